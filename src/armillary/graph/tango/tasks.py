"""Controlled problems for reach and for global structure, made from a seed.

Transfer: only the class at the source tells the target's label, so that a signal has to travel the
whole distance (after Bodnar et al., "Weisfeiler and Lehman Go Cellular", NeurIPS 2021, and Di
Giovanni et al., "On Over-Squashing in Message Passing Neural Networks", ICML 2023). Properties:
eccentricity, single-source distances and diameter of small graphs of ten families (after Corso et
al., "Principal Neighbourhood Aggregation", NeurIPS 2020).

Legend of shapes: n nodes, K classes.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.graph.tango.graphs import Graph

if TYPE_CHECKING:
    from jaxtyping import Int64

Topology = Literal["ring", "crossed-ring", "line"]
TOPOLOGIES: tuple[Topology, ...] = ("ring", "crossed-ring", "line")
Property = Literal["eccentricity", "sssp", "diameter"]
FAMILIES = (
    "erdos-renyi", "barabasi-albert", "caveman", "tree", "grid", "ladder", "line", "star",
    "caterpillar", "lobster",
)  # fmt: skip


def wiring(topology: Topology, distance: int) -> tuple[int, Int64[torch.Tensor, "2 E"]]:
    """Nodes and undirected edges (both ways) in which node 0 is ``distance`` hops from that node.

    Args:
        topology: ``ring`` of 2·distance nodes; ``crossed-ring``, the same with the two arms wired
            crosswise; ``line`` of distance + 1 nodes.
        distance: at least 1 (3 for rings).

    Returns:
        (n, edge_index). The target is node ``distance``.
    """
    least = 1 if topology == "line" else 3
    if distance < least:
        raise ValueError(f"distance={distance}: a {topology} needs at least {least}")
    n = distance + 1 if topology == "line" else 2 * distance
    pairs = [(i, i + 1) for i in range(n - 1)]
    if topology != "line":
        pairs.append((n - 1, 0))
    if topology == "crossed-ring":  # node n − i is as far from the source as node i
        for i in range(1, distance - 1):
            pairs += [(i, n - i - 1), (i + 1, n - i)]
    one_way = torch.tensor(pairs).T
    return n, torch.cat([one_way, one_way.flip(0)], 1)


def transfer(topology: Topology, distance: int, classes: int = 5) -> list[Graph]:
    """One graph a class: the source holds its one-hot code, the target is to name it.

    Only ``classes`` graphs exist, so that accuracy on them shows reach and not generalisation.

    Returns:
        Graphs with x (n, K+2): the code at the source, a flag of the source, a flag of the target;
        y (n,): the class at the target, −1 elsewhere.
    """
    n, edges = wiring(topology, distance)
    graphs = []
    for label in range(classes):
        x = torch.zeros(n, classes + 2)
        x[0, label] = x[0, classes] = x[distance, classes + 1] = 1
        y = torch.full((n,), -1)
        y[distance] = label
        graphs.append(Graph(x, edges, y))
    return graphs


class PropertySet(NamedTuple):
    """Graphs with a property as target, in three parts.

    Attributes:
        train, val, test: graphs; x (n, 2): uniform noise and a flag of the source; y: (n, 1) for
            eccentricity and distances, (1, 1) for the diameter, divided by ``scale``.
        scale: the largest training label.
    """

    train: list[Graph]
    val: list[Graph]
    test: list[Graph]
    scale: float


def properties(wanted: Property, sizes: tuple[int, int, int], seed: int) -> PropertySet:
    """Random graphs of 25 to 35 nodes of all families, with a property of each as target.

    Args:
        wanted: ``eccentricity`` (of every node), ``sssp`` (distance of every node from the source)
            or ``diameter`` (of the graph).
        sizes: graphs in train, val and test.
        seed: of everything that is random.
    """
    if wanted not in ("eccentricity", "sssp", "diameter"):
        raise ValueError(f"wanted={wanted!r}: it must be eccentricity, sssp or diameter")
    rng = np.random.default_rng(seed)
    drawn = [_labelled(wanted, i, rng) for i in range(sum(sizes))]
    first, second = sizes[0], sizes[0] + sizes[1]
    scale = max(float(g.y.max()) for g in drawn[:first] if g.y is not None)
    for graph in drawn:
        graph.y = graph.y / scale if graph.y is not None else None
    return PropertySet(drawn[:first], drawn[first:second], drawn[second:], scale)


def _labelled(wanted: Property, index: int, rng: np.random.Generator) -> Graph:
    from scipy.sparse.csgraph import shortest_path

    # Graph i is of family i mod 10: parts of any size have all families alike.
    n, pairs = family(FAMILIES[index % len(FAMILIES)], rng)
    order = rng.permutation(n)
    both = order[np.concatenate([pairs, pairs[:, ::-1]])].T
    adjacency = np.zeros((n, n))
    adjacency[both[0], both[1]] = 1
    hops = shortest_path(adjacency, unweighted=True)
    source = int(rng.integers(n))
    x = np.stack([rng.random(n), np.arange(n) == source], axis=1)
    y = {
        "eccentricity": hops.max(1)[:, None],
        "sssp": hops[source][:, None],
        "diameter": hops.max().reshape(1, 1),
    }[wanted]
    edges = torch.from_numpy(np.ascontiguousarray(both))
    return Graph(torch.from_numpy(x).float(), edges, torch.from_numpy(y).float())


def family(name: str, rng: np.random.Generator) -> tuple[int, NDArray[np.int64]]:
    """A connected graph of 25 to 35 nodes: (n, (E, 2) pairs, each edge once)."""
    networkx = _networkx()
    n = int(rng.integers(25, 36))
    seed = int(rng.integers(2**31))
    if name == "erdos-renyi":
        graph = networkx.erdos_renyi_graph(n, 0.15, seed=seed)
    elif name == "barabasi-albert":
        graph = networkx.barabasi_albert_graph(n, 2, seed=seed)
    elif name == "caveman":
        clique = int(rng.integers(4, 8))
        graph = networkx.connected_caveman_graph(max(n // clique, 2), clique)
    elif name == "tree":
        graph = networkx.random_labeled_tree(n, seed=seed)
    elif name == "grid":
        rows = int(rng.integers(4, 7))
        graph = networkx.grid_2d_graph(rows, -(-25 // rows) + (n > 30))
    elif name == "ladder":
        graph = networkx.ladder_graph(max(13, n // 2))
    elif name == "line":
        graph = networkx.path_graph(n)
    elif name == "star":
        graph = networkx.star_graph(n - 1)
    elif name in ("caterpillar", "lobster"):
        return _legged(n, int(rng.integers(8, 16)), 1 if name == "caterpillar" else 2, rng)
    else:
        raise ValueError(f"name={name!r}: families are {', '.join(FAMILIES)}")
    graph = networkx.convert_node_labels_to_integers(graph)
    parts = [sorted(part) for part in networkx.connected_components(graph)]
    bridges = [(a[0], b[0]) for a, b in itertools.pairwise(parts)]
    return len(graph), np.array([*graph.edges, *bridges], dtype=np.int64)


def _legged(
    n: int, spine: int, reach: int, rng: np.random.Generator
) -> tuple[int, NDArray[np.int64]]:
    """A path of ``spine`` nodes; every other node hangs within ``reach`` hops of it."""
    pairs = [(i, i + 1) for i in range(spine - 1)]
    depth = [0] * spine
    for node in range(spine, n):
        near = [i for i, d in enumerate(depth) if d < reach]
        parent = near[int(rng.integers(len(near)))]
        pairs.append((parent, node))
        depth.append(depth[parent] + 1)
    return n, np.array(pairs, dtype=np.int64)


@functools.cache
def _networkx():
    from armillary.errors import require

    return require("networkx", what="tango", extra="graph")
