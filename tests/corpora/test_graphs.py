"""Citation graphs have their published sizes and splits."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.corpora import graphs

DATA = pytest.mark.skipif("not __import__('os').environ.get('ARMILLARY_DATA')", reason="no data")


@DATA
@pytest.mark.parametrize(
    ("name", "papers", "words", "classes", "train", "unlabelled"),
    [("cora", 2708, 1433, 7, 140, 0), ("citeseer", 3327, 3703, 6, 120, 15)],
)
def test_published_sizes(name, papers, words, classes, train, unlabelled):
    graph = graphs.citation(name)
    assert graph.features.shape == (papers, words)
    assert set(np.unique(graph.labels)) - {-1} == set(range(classes))
    assert (graph.labels == -1).sum() == unlabelled
    assert (len(graph.train), len(graph.val), len(graph.test)) == (train, 500, 1000)
    assert np.bincount(graph.labels[graph.train]).tolist() == [20] * classes
    forward = {tuple(edge) for edge in graph.edge_index.T}
    assert len(forward) == graph.edge_index.shape[1]
    assert all((b, a) in forward and a != b for a, b in forward)


def test_unknown_names_are_refused():
    with pytest.raises(LookupError, match="cora, citeseer"):
        graphs.citation("pubmed")  # pyright: ignore[reportArgumentType]
