"""Graphs that the tests share."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from armillary.graph.tango import Graph


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """The graphs are tiny: threads would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ring_edges(n: int) -> torch.Tensor:
    nodes = torch.arange(n)
    one_way = torch.stack([nodes, (nodes + 1) % n])
    return torch.cat([one_way, one_way.flip(0)], 1)


@pytest.fixture
def ring() -> Graph:
    return Graph(torch.randn(10, 6), ring_edges(10))


@pytest.fixture
def directed() -> Graph:
    """Seven nodes, edges one way, one isolated node, one self-loop, one edge given twice."""
    edges = torch.tensor([[0, 1, 2, 3, 3, 4, 0, 0], [1, 2, 0, 4, 3, 1, 4, 4]])
    return Graph(torch.randn(7, 6), edges)
