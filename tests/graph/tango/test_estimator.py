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


@pytest.mark.parametrize(
    "state", [None, 3, np.random.RandomState(3), np.random.default_rng(3)], ids=type
)
def test_random_states_of_every_kind_are_taken(state):
    graph, labels = communities()
    model = SklearnTango(4, 2, epochs=1, random_state=state).fit(graph, labels)
    assert model.predict(graph).shape == (16,)
    for bad in (-1, "seed", 2**40):
        with pytest.raises(ValueError, match="random_state="):
            SklearnTango(4, 2, epochs=1, random_state=bad).fit(graph, labels)


def test_targets_held_as_objects_are_what_they_all_are():
    graph, labels = communities()
    plain = SklearnTango(4, 2, epochs=2).fit(graph, labels).predict_proba(graph)
    held = SklearnTango(4, 2, epochs=2).fit(graph, labels.astype(object))
    np.testing.assert_array_equal(held.predict_proba(graph), plain)
    assert held.classes_.tolist() == ["left", "right"]
    numbers = np.arange(16).astype(object) + 0.5
    values = SklearnTango(4, 2, epochs=2).fit(graph, numbers)
    assert values.predict(graph).dtype == float
    gaps = labels.astype(object)
    gaps[[0, 9]] = None
    known = np.array([v is not None for v in gaps])
    assert SklearnTango(4, 2, epochs=2).fit(graph, gaps, known).classes_.tolist() == [
        "left",
        "right",
    ]
    with pytest.raises(ValueError, match=r"NoneType \(row 0\), str \(row 1\)"):
        SklearnTango(4, 2, epochs=2).fit(graph, gaps)


def test_graphs_without_nodes_have_their_row():
    graphs, means = rings_with_means(6)
    empty = Graph(torch.empty(0, 2), torch.empty(2, 0, dtype=torch.long))
    for pool in ("mean", "sum", "max"):
        model = SklearnTango(4, 2, epochs=2, pool=pool).fit(graphs, means)
        alone = model.predict(graphs)
        found = model.predict([empty, *graphs[:3], empty, *graphs[3:], empty])
        assert found.shape == (9,)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[[1, 2, 3, 5, 6, 7]], alone, rtol=1e-4, atol=1e-5)
        assert found[0] == pytest.approx(found[8])


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
    wide = Graph(torch.randn(4, 5), torch.empty(2, 0, dtype=torch.long))
    with pytest.raises(ValueError, match="x of graph 1 has 5 channels, that of graph 0 has 3"):
        model.fit([graph, wide], [0.5, 1.5])
    flat = Graph(torch.randn(4), torch.empty(2, 0, dtype=torch.long))
    with pytest.raises(ValueError, match=r"x of graph 0 has the shape \(4,\)"):
        model.fit(flat, labels[:4])
    model.fit(graph, labels)
    with pytest.raises(ValueError, match="give one graph"):
        model.predict([graph])
    with pytest.raises(ValueError, match="x has 2 channels, the estimator was fitted with 3"):
        model.predict(Graph(graph.x[:, :2], graph.edge_index))
    values = SklearnTango(4, 2, epochs=2).fit(graph, np.arange(16.0))
    with pytest.raises(AttributeError, match="learnt values"):
        values.predict_proba(graph)


def test_weights_that_ran_away_end_in_a_message():
    x, ring = torch.randn(6, 2), torch.stack([torch.arange(6), (torch.arange(6) + 1) % 6])
    y = np.arange(6) % 2
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        SklearnTango(4, 2, epochs=3, lr=1e30).fit(Graph(x, ring), y)
    fitted = SklearnTango(4, 2, epochs=1).fit(Graph(x, ring), y)
    with torch.no_grad():
        fitted.model_.decoder.bias.fill_(float("nan"))
    with pytest.raises(ValueError, match="output of node 0 is not finite"):
        fitted.predict(Graph(x, ring))
