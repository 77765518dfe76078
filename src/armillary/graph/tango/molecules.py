"""Molecules as graphs: atoms with what RDKit knows of them, bonds both ways."""

from __future__ import annotations

import os

import torch

from armillary.errors import require
from armillary.graph.tango.graphs import Graph

_ELEMENTS = ("C", "N", "O", "F", "S", "Cl", "Br", "I", "P")
_DEGREES = 5
_HYDROGENS = 5
#: Channels of an atom: element (and any other), degree, hydrogens, charge, aromatic, in a ring.
FEATURES = len(_ELEMENTS) + 1 + _DEGREES + _HYDROGENS + 3


def read_sdf(path: str | os.PathLike[str], target: str) -> list[Graph]:
    """The molecules of an SDF file with a property as target.

    Args:
        path: the file.
        target: the name of a numeric property; molecules without it are left out.

    Returns:
        Graphs with x (atoms, FEATURES), edge_attr (E, 4) bond types, y (1, 1).

    Raises:
        ValueError: no molecule has the property.
    """
    chem = require("rdkit.Chem", what="tango", extra="graph-peers")
    graphs = []
    for molecule in chem.SDMolSupplier(os.fspath(path)):
        if molecule is None or not molecule.HasProp(target) or not molecule.GetNumAtoms():
            continue
        value = float(molecule.GetProp(target))
        graphs.append(_graph(molecule, value))
    if not graphs:
        raise ValueError(f"{os.fspath(path)!r}: no molecule has the property {target!r}")
    return graphs


def _graph(molecule, value: float) -> Graph:
    x = torch.tensor([_atom(atom) for atom in molecule.GetAtoms()])
    ends: list[tuple[int, int]] = []
    kinds: list[list[float]] = []
    for bond in molecule.GetBonds():
        a, b = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        order = bond.GetBondTypeAsDouble()
        ends += [(a, b), (b, a)]
        kinds += [[float(order == o) for o in (1.0, 1.5, 2.0, 3.0)]] * 2
    edges = torch.tensor(ends, dtype=torch.long).reshape(-1, 2).T
    attributes = torch.tensor(kinds).reshape(-1, 4)
    return Graph(x, edges.contiguous(), torch.tensor([[value]]), attributes)


def _atom(atom) -> list[float]:
    symbol = atom.GetSymbol()
    element = _ELEMENTS.index(symbol) if symbol in _ELEMENTS else len(_ELEMENTS)
    return [
        *_one_hot(element, len(_ELEMENTS) + 1),
        *_one_hot(atom.GetDegree(), _DEGREES),
        *_one_hot(atom.GetTotalNumHs(), _HYDROGENS),
        float(atom.GetFormalCharge()),
        float(atom.GetIsAromatic()),
        float(atom.IsInRing()),
    ]


def _one_hot(value: int, size: int) -> list[float]:
    return [float(i == min(value, size - 1)) for i in range(size)]
