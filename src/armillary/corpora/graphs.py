"""Real graphs: citation networks with their public splits, as plain arrays."""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from armillary.corpora.registry import external


class CitationGraph(NamedTuple):
    """A graph of papers with one label each.

    Attributes:
        name: ``cora`` or ``citeseer``.
        features: (N, d) bag of words, CSR float32, not normalised.
        labels: (N,), int64; −1 where a paper has none.
        edge_index: (2, E), int64; each citation in both directions, no self-loops, no repeats.
        train, val, test: indices of the public split.
    """

    name: str
    features: csr_array
    labels: NDArray[np.int64]
    edge_index: NDArray[np.int64]
    train: NDArray[np.int64]
    val: NDArray[np.int64]
    test: NDArray[np.int64]


def citation(
    name: Literal["cora", "citeseer"], data: str | os.PathLike[str] | None = None
) -> CitationGraph:
    """A citation network of the Planetoid collection with its public split.

    Args:
        name: ``cora`` (2,708 papers, 7 classes) or ``citeseer`` (3,327 papers, 6 classes; 15 papers
            stand alone without a label).
        data: the folder of public data. Default: what ``ARMILLARY_DATA`` names.

    Raises:
        LookupError: the name is unknown.
        FileNotFoundError: the file is not there; says where it is had.
    """
    if name not in ("cora", "citeseer"):
        raise LookupError(f"name={name!r} is no citation graph; there are: cora, citeseer")
    with np.load(external(name, data), allow_pickle=False) as file:
        features = csr_array(
            (file["x_data"].astype(np.float32), file["x_indices"], file["x_indptr"]),
            shape=tuple(file["x_shape"]),
        )
        ends = file["edges"].astype(np.int64)
        both = np.concatenate([ends, ends[::-1]], axis=1)
        both = np.unique(both[:, both[0] != both[1]], axis=1)
        splits = [file[part].astype(np.int64) for part in ("train", "val", "test")]
        return CitationGraph(name, features, file["y"].astype(np.int64), both, *splits)
