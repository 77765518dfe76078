"""Generated problems: distances and labels are what they say."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from armillary.graph.tango.tasks import FAMILIES, TOPOLOGIES, family, properties, transfer, wiring


def as_networkx(edge_index: torch.Tensor, n: int) -> nx.Graph:
    graph = nx.empty_graph(n)
    graph.add_edges_from(edge_index.T.tolist())
    return graph


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("distance", [3, 4, 9, 16])
def test_the_target_is_as_far_as_it_says(topology, distance):
    n, edges = wiring(topology, distance)
    graph = as_networkx(edges, n)
    assert nx.shortest_path_length(graph, 0, distance) == distance
    assert n == (distance + 1 if topology == "line" else 2 * distance)
    assert {tuple(e) for e in edges.T.tolist()} == {tuple(e[::-1]) for e in edges.T.tolist()}


def test_only_the_source_tells_the_class():
    graphs = transfer("ring", 4, classes=3)
    for label, graph in enumerate(graphs):
        assert graph.y.tolist() == [-1, -1, -1, -1, label, -1, -1, -1]
        torch.testing.assert_close(graph.x[1:], graphs[0].x[1:])
    assert len({tuple(g.x[0].tolist()) for g in graphs}) == 3


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_connected_and_of_the_size(name):
    rng = np.random.default_rng(3)
    for _ in range(5):
        n, pairs = family(name, rng)
        graph = nx.empty_graph(n)
        graph.add_edges_from(pairs)
        assert nx.is_connected(graph)
        assert 20 <= n <= 36
        assert len(graph) == n


@pytest.mark.parametrize("wanted", ["eccentricity", "sssp", "diameter"])
def test_labels_are_those_of_networkx(wanted):
    found = properties(wanted, (20, 5, 5), seed=4)
    for graph in found.train + found.test:
        known = as_networkx(graph.edge_index, graph.num_nodes)
        y = (graph.y * found.scale).round().flatten().tolist()
        if wanted == "eccentricity":
            assert y == [nx.eccentricity(known)[i] for i in range(graph.num_nodes)]
        elif wanted == "diameter":
            assert y == [nx.diameter(known)]
        else:
            source = int(graph.x[:, 1].argmax())
            hops = nx.single_source_shortest_path_length(known, source)
            assert y == [hops[i] for i in range(graph.num_nodes)]
    assert max(float(g.y.max()) for g in found.train) == pytest.approx(1)


def test_properties_come_from_the_seed():
    first, again, other = (properties("sssp", (3, 1, 1), s) for s in (0, 0, 1))
    torch.testing.assert_close(first.train[2].x, again.train[2].x, rtol=0, atol=0)
    assert not torch.equal(first.train[0].x[:20], other.train[0].x[:20])


def test_bad_requests_are_told():
    with pytest.raises(ValueError, match="a ring needs at least 3"):
        wiring("ring", 2)
    with pytest.raises(ValueError, match="wanted='girth'"):
        properties("girth", (1, 1, 1), 0)
    with pytest.raises(ValueError, match="families are"):
        family("torus", np.random.default_rng(0))
