"""The estimator, as scikit-learn's users expect it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from armillary.graph.tango import Graph, SklearnTango
from armillary.graph.tango.tasks import wiring


def communities() -> tuple[Graph, np.ndarray]:
    """Two cliques of eight joined by an edge; one feature tells the clique, with noise."""
    pairs = [(i, j) for c in (0, 8) for i in range(c, c + 8) for j in range(i) if j >= c]
    one_way = torch.tensor([*pairs, (0, 8)]).T
    labels = np.array(["left"] * 8 + ["right"] * 8)
    x = torch.from_numpy((labels == "right").astype(np.float32)).unsqueeze(1)
    x = torch.cat([x + 0.8 * torch.randn(16, 1), torch.randn(16, 2)], 1)
    return Graph(x, torch.cat([one_way, one_way.flip(0)], 1)), labels


def rings_with_means(count: int) -> tuple[list[Graph], np.ndarray]:
    """Rings of several sizes; the target is the mean of the first feature."""
    sizes = np.random.default_rng(0).integers(3, 12, count)
    graphs = [Graph(torch.randn(2 * s, 2), wiring("ring", int(s))[1]) for s in sizes]
    return graphs, np.array([float(g.x[:, 0].mean()) for g in graphs])


def test_nodes_of_communities_are_told_apart_from_few_labels():
    graph, labels = communities()
    mask = np.zeros(16, bool)
    mask[[1, 2, 9, 10]] = True
    model = SklearnTango(8, 3, epochs=25, lr=0.02, validation_fraction=0).fit(graph, labels, mask)
    assert model.score(graph, labels) >= 0.9
    assert model.classes_.tolist() == ["left", "right"]
    shares = model.predict_proba(graph)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert (model.classes_[shares.argmax(1)] == model.predict(graph)).all()


def test_values_of_graphs_are_learnt():
    graphs, means = rings_with_means(40)
    model = SklearnTango(16, 2, epochs=30, lr=0.02, batch_size=20, stable="none")
    model.fit(graphs, means)
    assert model.predict(graphs).shape == (40,)
    assert model.score(graphs, means) > 0.9


def test_fits_are_repeatable_and_leave_the_global_generator_alone():
    graph, labels = communities()
    state = torch.random.get_rng_state()
    first, again = (
        SklearnTango(4, 2, epochs=3, random_state=7).fit(graph, labels).predict_proba(graph)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)
    assert torch.equal(state, torch.random.get_rng_state())


def test_it_is_cloned_and_refuses_to_predict_before_fit():
    graph, _ = communities()
    model = SklearnTango(12, stable="clip", rho=0.1)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert twin.set_params(hidden_channels=3).hidden_channels == 3
    for ask in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            ask(graph)


def test_scikit_learn_checks_what_it_can_without_tables():
    with pytest.warns(UserWarning, match="Can't test estimator"):
        check_estimator(SklearnTango())


def test_bad_input_is_told():
    graph, labels = communities()
    model = SklearnTango(4, 2, epochs=2)
    with pytest.raises(ValueError, match="y is missing"):
        model.fit(graph)
    with pytest.raises(ValueError, match="there are 16 nodes"):
        model.fit(graph, labels[:5])
    with pytest.raises(ValueError, match="no graphs were given"):
        model.fit([], [])
    with pytest.raises(ValueError, match="mask leaves nothing"):
        model.fit(graph, labels, np.zeros(16, bool))
    with pytest.raises(ValueError, match=r"it must be \(16,\) booleans"):
        model.fit(graph, labels, np.arange(16))
    with pytest.raises(ValueError, match="epochs=0"):
        SklearnTango(epochs=0).fit(graph, labels)
    with pytest.raises(ValueError, match="is no graph: give x"):
        model.fit(object(), labels)
    broken = Graph(graph.x.clone(), graph.edge_index)
    broken.x[3] = torch.inf
    with pytest.raises(ValueError, match="not finite at node 3"):
        model.fit(broken, labels)
    model.fit(graph, labels)
    with pytest.raises(ValueError, match="give one graph"):
        model.predict([graph])
    with pytest.raises(ValueError, match="x has 2 channels, the estimator was fitted with 3"):
        model.predict(Graph(graph.x[:, :2], graph.edge_index))
    values = SklearnTango(4, 2, epochs=2).fit(graph, np.arange(16.0))
    with pytest.raises(AttributeError, match="learnt values"):
        values.predict_proba(graph)
