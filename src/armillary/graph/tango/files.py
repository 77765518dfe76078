"""Graphs from a user's files: edge and node tables, GraphML, npz, PyG's .pt.

Every reader gives a `Dataset`: one joined graph, names of nodes and features, targets as they
stand. Legend of shapes: N nodes, E edges, G graphs, d channels.
"""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.errors import require
from armillary.graph.tango.graphs import Graph, joined

SUFFIXES = (".csv", ".graphml", ".npz", ".pt")
#: Features of nodes that have none of their own.
STRUCTURE = ("constant", "degree")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """What a file holds.

    Attributes:
        graph: all graphs joined; its y is not used.
        nodes: (N,) names of the nodes.
        features: (d,) names of the channels.
        targets: (N,) or (G,) values or labels, None or NaN where unknown; or None.
        names: (G,) names of the graphs; empty: their numbers.
        blanks: words other than nothing that a table has for a missing target, such as NA.
    """

    graph: Graph
    nodes: list[str]
    features: list[str]
    targets: NDArray[Any] | None
    names: list[str] = dataclasses.field(default_factory=list)
    blanks: list[str] = dataclasses.field(default_factory=list)

    @property
    def graphs(self) -> list[Graph]:
        """The graphs one by one."""
        batch, whole = self.graph.batch, self.graph
        if batch is None:
            return [whole]
        count = whole.num_graphs
        if count is None:
            count = int(batch.max()) + 1 if len(batch) else 0
        found = []
        for g in range(count):
            nodes = (batch == g).nonzero().flatten()
            place = torch.full((whole.num_nodes,), -1)
            place[nodes] = torch.arange(len(nodes))
            edges = (batch[whole.edge_index[0]] == g).nonzero().flatten()
            weight = None if whole.edge_weight is None else whole.edge_weight[edges]
            found.append(
                Graph(whole.x[nodes], place[whole.edge_index[:, edges]], edge_weight=weight)
            )
        return found


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns or attributes mean what.

    Attributes:
        node: the node's name, in the table of nodes.
        graph: the graph of a node; empty: all nodes form one graph.
        target: what is learnt; empty: nothing.
        features: channels; empty: every numeric column that is left, or, if there is none, a
            constant and the degree.
        directed: whether edges go one way only.
        task: ``node`` (a target for each node, also where there are many graphs) or ``graph`` (one
            for each graph, on its nodes).
    """

    node: str = "id"
    graph: str = ""
    target: str = ""
    features: tuple[str, ...] = ()
    directed: bool = False
    task: str = "node"


def read(path: Path, nodes: Path | None, columns: Columns) -> Dataset:
    """Read a graph.

    Args:
        path: ``.csv`` of edges (source, target and, if there is one, weight), ``.graphml``,
            ``.npz`` (x, edge_index and, if there are any, y, batch, edge_weight), or a ``.pt`` that
            holds PyG's ``Data`` or a list of them.
        nodes: the table of nodes, for a ``.csv`` of edges.
        columns: which columns mean what; of GraphML: which attributes.

    Raises:
        ValueError: the format is unknown, or something in the file cannot be used.
        FileNotFoundError: there is no such file.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r}: there is no such file")
    suffix = path.suffix.lower()
    if suffix != ".csv" and nodes is not None:
        raise ValueError(f"--nodes belongs to a .csv of edges; {path.name} holds its nodes itself")
    if suffix == ".csv":
        return _tables(path, nodes, columns)
    if suffix == ".graphml":
        return _graphml(path, columns)
    if suffix == ".npz":
        return _arrays(path)
    if suffix == ".pt":
        return _pyg(path)
    raise ValueError(f"{str(path)!r}: a graph is read from {', '.join(SUFFIXES)}")


def _tables(path: Path, nodes: Path | None, columns: Columns) -> Dataset:
    if nodes is None:
        raise ValueError("a .csv of edges needs --nodes, the table of nodes with their features")
    edges, table = _csv(path, "source", "target"), _csv(nodes, columns.node)
    for name in ("source", "target"):
        if name not in edges.columns:
            raise ValueError(
                f"{path.name} has the columns {', '.join(map(str, edges.columns))}; it needs "
                "source and target"
            )
    if columns.node not in table.columns:
        raise ValueError(
            f"{nodes.name} has no column {columns.node!r} of node names; it has "
            f"{', '.join(map(str, table.columns[:12]))}: name it with --id"
        )
    names = table[columns.node].tolist()
    if "" in names:
        raise ValueError(
            f"{nodes.name}: {columns.node!r} is empty in data row {names.index('')} (counted from "
            "0): every node needs a name"
        )
    ends = _places(names, edges["source"], edges["target"], path.name)
    weight = None
    if "weight" in edges.columns:
        if edges["weight"].dtype.kind not in "iufb":
            raise ValueError(f"{path.name}: the column weight holds text: give numbers")
        weight = torch.from_numpy(edges["weight"].to_numpy(dtype=np.float32, copy=True))
    found = _from_table(table.drop(columns=columns.node), names, ends, weight, columns)
    return dataclasses.replace(found, blanks=_blanks(nodes, columns.target, found.targets))


def _csv(path: Path, *named: str) -> Any:
    """A table with a header line; columns of names are text as it stands, so that 007 stays 007."""
    pandas = require("pandas", what="tango", extra="graph")
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r}: there is no such file")
    try:
        return pandas.read_csv(path, converters=dict.fromkeys(named, str.strip))
    except (ValueError, UnicodeError) as error:  # pandas' own are ValueErrors
        raise ValueError(
            f"{path.name} cannot be read as a table in UTF-8, by commas, with a header line: "
            f"{error}"
        ) from None


def _blanks(path: Path, target: str, targets: NDArray[Any] | None) -> list[str]:
    """Words in the place of a text target that pandas takes for nothing, such as NA and None."""
    if targets is None or targets.dtype.kind in "iufb":
        return []
    pandas = require("pandas", what="tango", extra="graph")
    raw = pandas.read_csv(path, usecols=[target], dtype=str, keep_default_na=False)[target]
    return sorted(set(raw[np.asarray(pandas.isna(pandas.Series(targets)))].str.strip()) - {""})


def _places(
    names: Sequence[str], sources: Sequence[str], targets: Sequence[str], where: str
) -> torch.Tensor:
    """(2, E) places of named ends."""
    place = {name: i for i, name in enumerate(names)}
    if len(place) < len(names):
        twice = next(name for i, name in enumerate(names) if place[name] != i)
        raise ValueError(f"node {twice!r} stands twice in the table of nodes: give each once")
    found = []
    for row, pair in enumerate(zip(sources, targets, strict=True)):
        for name in pair:
            if name not in place:
                raise ValueError(
                    f"{where}, data row {row} (counted from 0): the edge names {name!r}, which is "
                    "not in the table of nodes"
                )
        found.append([place[name] for name in pair])
    return torch.tensor(found, dtype=torch.long).reshape(-1, 2).T.contiguous()


def _graphml(path: Path, columns: Columns) -> Dataset:
    networkx = require("networkx", what="tango", extra="graph")
    pandas = require("pandas", what="tango", extra="graph")
    try:
        found = networkx.read_graphml(path)
    except Exception as error:  # networkx lets its XML parser's errors through
        raise ValueError(f"{path.name} cannot be read as GraphML: {error}") from None
    names = [str(node) for node in found.nodes]
    table = pandas.DataFrame([dict(d) for _, d in found.nodes(data=True)])
    sources, targets = [str(a) for a, _ in found.edges()], [str(b) for _, b in found.edges()]
    ends = _places(names, sources, targets, path.name)
    weights = [d.get("weight") for *_, d in found.edges(data=True)]
    weight = None
    if weights and all(isinstance(w, (int, float)) for w in weights):
        weight = torch.tensor(weights, dtype=torch.float32)
    return _from_table(
        table, names, ends, weight, dataclasses.replace(columns, directed=found.is_directed())
    )


def _from_table(
    table: Any, names: list[str], ends: torch.Tensor, weight: torch.Tensor | None, columns: Columns
) -> Dataset:
    """A dataset from a table of nodes and the edges between them."""
    for what, name in (("--target", columns.target), ("--graph-column", columns.graph)):
        if name and name not in table.columns:
            raise ValueError(
                f"{what} {name!r}: nodes have no such column; they have "
                f"{', '.join(map(str, table.columns[:12])) or 'none'}"
            )
    if not columns.directed:
        ends, weight = _both_ways(ends, weight, len(names))
    batch, graphs = None, []
    if columns.graph:
        codes, graphs = _codes(table[columns.graph], columns.graph)
        batch = torch.from_numpy(codes)
        if bool((batch[ends[0]] != batch[ends[1]]).any()):
            raise ValueError("an edge joins nodes of two graphs: check --graph-column")
    features, x = _features(table, columns, ends, names)
    targets = None
    if columns.target:
        targets = table[columns.target].to_numpy()
    graph = Graph(x, ends, edge_weight=weight, batch=batch, num_graphs=len(graphs) or None)
    if batch is not None and targets is not None and columns.task == "graph":
        targets = _of_graphs(targets, batch.numpy(), graphs, columns.target)
    return Dataset(graph, names, features, targets, graphs)


def _both_ways(
    ends: torch.Tensor, weight: torch.Tensor | None, n: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Each edge with its opposite, unless that is given as well."""
    keys, opposite = ends[0] * n + ends[1], ends[1] * n + ends[0]
    lacking = ~torch.isin(opposite, keys)
    both = torch.cat([ends, ends[:, lacking].flip(0)], 1)
    return both, None if weight is None else torch.cat([weight, weight[lacking]])


def _codes(column: Any, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """(N,) number of each node's graph, in the order of their first nodes, and their names."""
    lacking = np.flatnonzero(column.isna())
    if len(lacking):
        raise ValueError(
            f"--graph-column {name!r} is empty at node row {lacking[0]} (counted from 0): every "
            "node belongs to a graph"
        )
    order: dict[str, int] = {}
    codes = [order.setdefault(str(value), len(order)) for value in column]
    return np.array(codes, dtype=np.int64), list(order)


def _of_graphs(
    targets: NDArray[Any], batch: NDArray[np.int64], graphs: list[str], name: str
) -> NDArray[Any]:
    """(G,) the one target that the nodes of a graph share; unknown where none of them has one."""
    pandas = require("pandas", what="tango", extra="graph")
    known = ~np.asarray(pandas.isna(pandas.Series(targets)))
    first = np.full(len(graphs), -1)
    for node in np.flatnonzero(known):
        g = batch[node]
        if first[g] < 0:
            first[g] = node
        elif targets[first[g]] != targets[node]:
            raise ValueError(
                f"--target {name!r} differs within graph {graphs[g]!r} ({targets[first[g]]!r} and "
                f"{targets[node]!r}): for --task graph all nodes of a graph carry its target; for "
                "targets of nodes take --task node"
            )
    if (first >= 0).all():
        return targets[first]
    empty = np.nan if targets.dtype.kind in "iuf" else None
    found = np.array([empty if i < 0 else targets[i] for i in first], dtype=object)
    return found.astype(float) if targets.dtype.kind in "iuf" else found


def _features(
    table: Any, columns: Columns, ends: torch.Tensor, names: list[str]
) -> tuple[list[str], torch.Tensor]:
    """Names of channels and (N, d) their values."""
    n = len(names)
    left = [c for c in table.columns if c not in (columns.target, columns.graph)]
    numeric = [c for c in left if table[c].dtype.kind in "iufb"]
    chosen = list(columns.features) or numeric
    if not chosen or (tuple(chosen) == STRUCTURE and not set(STRUCTURE) <= set(left)):
        degree = torch.bincount(ends[1], minlength=n).float()
        return list(STRUCTURE), torch.stack([torch.ones(n), degree], 1)
    for name in chosen:
        if name not in left:
            raise ValueError(
                f"feature {name!r}: nodes have no such column; they have "
                f"{', '.join(map(str, left[:12])) or 'none'}"
            )
        if name not in numeric:
            raise ValueError(
                f"feature {name!r} is not numeric: encode it as numbers, or leave it out"
            )
    with np.errstate(over="ignore"):  # told below
        values = table[chosen].to_numpy(dtype=np.float64).astype(np.float32)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, name = bad[0][0], chosen[bad[0][1]]
        raise ValueError(
            f"feature {str(name)!r} is {table[name].iloc[row]} at node {names[row]!r}: fill gaps "
            "and scale what leaves single precision, or name other columns with --features"
        )
    return [str(name) for name in chosen], torch.from_numpy(values.copy())


def _arrays(path: Path) -> Dataset:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path.name} is no .npz file (numpy.savez writes one): write it anew")
    with np.load(path, allow_pickle=False) as file:
        held = {name: file[name] for name in file.files}
    missing = [name for name in ("x", "edge_index") if name not in held]
    if missing:
        raise ValueError(
            f"{path.name} has no {' and no '.join(missing)}; it holds "
            f"{', '.join(held) or 'nothing'}"
        )
    if held["x"].ndim != 2 or held["x"].dtype.kind not in "iufb":
        raise ValueError(
            f"{path.name}: x holds {held['x'].dtype} in the shape {held['x'].shape}; it must hold "
            "numbers, (nodes, channels)"
        )
    for name in ("edge_index", "batch"):
        if name in held and held[name].dtype.kind not in "iu":
            raise ValueError(
                f"{path.name}: {name} holds {held[name].dtype} numbers; it must hold whole numbers "
                "(node and graph numbers from 0)"
            )
    optional = {
        name: torch.from_numpy(held[name].astype(dtype)) if name in held else None
        for name, dtype in (("batch", np.int64), ("edge_weight", np.float32))
    }
    _check_batch(path, held["edge_index"], held.get("batch"), len(held["x"]))
    x = torch.from_numpy(held["x"].astype(np.float32))
    graph = Graph(x, torch.from_numpy(held["edge_index"].astype(np.int64)), **optional)  # pyright: ignore
    return _numbered(graph, held.get("y"))


def _check_batch(path: Path, ends: NDArray[Any], batch: NDArray[Any] | None, nodes: int) -> None:
    """Refuse edges between graphs; ends that name no node are told by the graph itself."""
    if batch is None or batch.shape != (nodes,) or ends.ndim != 2 or len(ends) != 2:
        return
    if not ends.size or ends.min() < 0 or ends.max() >= nodes:
        return
    apart = np.flatnonzero(batch[ends[0]] != batch[ends[1]])
    if len(apart):
        raise ValueError(
            f"{path.name}: edge {apart[0]} (counted from 0) joins nodes of two graphs: edge_index "
            "and batch do not belong together"
        )


def _pyg(path: Path) -> Dataset:
    allowed = _containers()
    try:
        with torch.serialization.safe_globals(allowed):
            found = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises pickle's and its own
        raise ValueError(
            f"{path.name} cannot be read with weights_only=True: save a PyG Data, or a list of "
            f"them, with torch.save ({type(error).__name__})"
        ) from None
    items = list(found) if isinstance(found, (list, tuple)) else [found]
    if isinstance(found, dict):
        raise ValueError(f"{path.name} holds a dict; it must hold a PyG Data or a list of them")
    graphs = [Graph.of(item) for item in items]
    if isinstance(found, (list, tuple)):
        targets = None
        if all(g.y is not None for g in graphs):
            targets = _one_each(path, [g.y.reshape(-1).numpy() for g in graphs])  # pyright: ignore
        for g in graphs:
            g.y = None
        return _numbered(joined(graphs), targets)
    y = graphs[0].y
    return _numbered(graphs[0], None if y is None else y.numpy())


def _one_each(path: Path, rows: list[NDArray[Any]]) -> NDArray[Any]:
    """(G, targets) of graphs that hold their own."""
    for i, row in enumerate(rows):
        if len(row) != len(rows[0]) or not len(row):
            raise ValueError(
                f"{path.name}: y of graph {i} holds {len(row)} values and that of graph 0 "
                f"{len(rows[0])}: give each graph one, or as many as the others"
            )
    return np.stack(rows)


def _containers() -> list[Any]:
    """PyG's plain containers of tensors: all that a file may name besides tensors."""
    data = require("torch_geometric.data.data", what="tango", extra="graph")
    storage = require("torch_geometric.data.storage", what="tango", extra="graph")
    return [data.Data, data.DataEdgeAttr, data.DataTensorAttr, storage.GlobalStorage]


def _numbered(graph: Graph, targets: NDArray[Any] | None) -> Dataset:
    """A dataset whose nodes and channels have numbers for names."""
    if targets is not None and targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    nodes = [str(i) for i in range(graph.num_nodes)]
    features = [f"x{i}" for i in range(graph.x.shape[1])]
    return Dataset(Graph(graph.x.float(), graph.edge_index, None, None, graph.edge_weight,
                         graph.batch, graph.num_graphs), nodes, features, targets)  # fmt: skip
