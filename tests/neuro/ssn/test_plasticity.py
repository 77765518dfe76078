"""Learning is local: no gradient, and a synapse changes by its own two rates."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.neuro.ssn import encoder as encoder_module
from armillary.neuro.ssn import network, plasticity
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.plasticity import (
    compete,
    covariance,
    hebb,
    homeostasis,
    relative_rates,
    unit_rows,
)


def rates(seed: int, items: int, units: int) -> torch.Tensor:
    return torch.as_tensor(np.random.default_rng(seed).gamma(1.0, 5.0, (items, units)))


@pytest.mark.parametrize("module", [plasticity, network, encoder_module])
def test_no_module_of_learning_names_a_gradient(module):
    names = {
        node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text("utf-8")))
    }
    assert not names & {"backward", "grad", "autograd", "requires_grad_", "optim", "Adam", "SGD"}


def test_learning_computes_no_gradient(patches, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a gradient was computed")

    monkeypatch.setattr(torch.autograd, "backward", refuse)
    monkeypatch.setattr(torch.autograd, "grad", refuse)
    monkeypatch.setattr(torch.Tensor, "backward", refuse)
    seen: list[bool] = []
    update = network.Learner._update

    def watched(self, *arguments):
        seen.append(torch.is_grad_enabled())
        return update(self, *arguments)

    monkeypatch.setattr(network.Learner, "_update", watched)
    model = SSNEncoder(n_exc=16, n_inh=4, n_iter=3, J=(0.5, 1.5, 1.5, 0.3), random_state=0)
    model.fit(patches)
    assert seen == [False] * 3
    assert not any(t.requires_grad for t in model.network_.tensors().values())


def slow_change(post: np.ndarray, pre: np.ndarray) -> np.ndarray:
    """Synapse by synapse, each from two columns of rates."""
    change = np.zeros((post.shape[1], pre.shape[1]))
    for i in range(post.shape[1]):
        for j in range(pre.shape[1]):
            change[i, j] = sum(a * b for a, b in zip(post[:, i], pre[:, j], strict=True))
    return change / len(post)


def test_changes_are_products_of_two_rates():
    post, pre = rates(0, 6, 4), rates(1, 6, 5)
    np.testing.assert_allclose(hebb(post, pre), slow_change(post.numpy(), pre.numpy()))
    np.testing.assert_allclose(
        covariance(post, pre), slow_change(post.numpy() - 1, pre.numpy() - 1)
    )


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.integers(0, 3), st.integers(0, 4))
def test_other_units_rates_change_nothing(seed, i, j):
    """Synapse (i, j) learns the same whatever all units but i and j do."""
    post, pre = rates(seed, 8, 4), rates(seed + 1, 8, 5)
    other_post, other_pre = rates(seed + 2, 8, 4), rates(seed + 3, 8, 5)
    other_post[:, i], other_pre[:, j] = post[:, i], pre[:, j]
    for rule in (hebb, covariance):
        before = rule(relative_rates(post), relative_rates(pre))
        after = rule(relative_rates(other_post), relative_rates(other_pre))
        assert float(before[i, j]) == float(after[i, j])


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.integers(0, 3))
def test_competition_stays_inside_one_unit(seed, i):
    weights = torch.as_tensor(np.random.default_rng(seed).normal(0.3, 1, (4, 4)))
    other = torch.as_tensor(np.random.default_rng(seed + 1).normal(0.3, 1, (4, 4)))
    other[i] = weights[i]
    for rule in (unit_rows, lambda w: compete(w, 1.5), lambda w: compete(w, 1.5, own=True)):
        np.testing.assert_array_equal(rule(weights)[i], rule(other)[i])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.01, 5), st.booleans())
def test_totals_are_held_and_weights_stay_positive(seed, total, own):
    weights = torch.as_tensor(np.random.default_rng(seed).normal(0, 1, (6, 6)))
    found = compete(weights, total, own=own)
    assert float(found.min()) >= 0
    np.testing.assert_allclose(found.sum(1), total)
    if own:
        assert float(found.diagonal().abs().max()) == 0
    np.testing.assert_allclose(unit_rows(weights).norm(dim=1), 1)


def test_a_unit_without_synapses_starts_anew():
    found = compete(torch.full((3, 3), -1.0), 1.2, own=True)
    np.testing.assert_allclose(found, 0.6 * (1 - np.eye(3)), rtol=1e-6)


def test_relative_rates_have_mean_one_and_silent_units_none():
    r = rates(2, 9, 4)
    r[:, 2] = 0
    found = relative_rates(r)
    np.testing.assert_allclose(found.mean(0), [1, 1, 0, 1])


def test_thresholds_rise_where_units_fire_more_than_the_population():
    found = homeostasis(torch.zeros(3), torch.tensor([1.0, 2.0, 3.0]), step=0.1)
    np.testing.assert_allclose(found, [-0.05, 0, 0.05], atol=1e-7)
    assert float(homeostasis(torch.tensor([0.5]), torch.tensor([9.0])).max()) == 0.5
    far = homeostasis(torch.zeros(2), torch.tensor([0.0, 100.0]))
    np.testing.assert_allclose(far, [-0.004, 0.004], atol=1e-7)


def test_weights_keep_their_totals_through_learning(encoder):
    net = encoder.network_
    exc, inh = net.f_exc.shape[0], net.f_inh.shape[0]
    for w, total, size in (
        (net.w_ee, net.totals[0], exc), (net.w_ei, net.totals[1], exc),
        (net.w_ie, net.totals[2], inh), (net.w_ii, net.totals[3], inh),
    ):  # fmt: skip
        np.testing.assert_allclose(w.sum(1), np.full(size, total), rtol=1e-5)
        assert float(w.min()) >= 0
    assert float(net.w_ee.diagonal().abs().max()) == 0
    np.testing.assert_allclose(net.f_exc.norm(dim=1), 1, rtol=1e-5)


def test_learning_moves_weights_away_from_chance(patches, encoder):
    random = SSNEncoder(n_exc=64, n_inh=16, n_iter=0, random_state=0).fit(patches).network_
    for name in ("f_exc", "f_inh", "w_ee", "w_ei", "w_ie"):
        learned, before = getattr(encoder.network_, name), getattr(random, name)
        assert float((learned - before).norm() / before.norm()) > 0.1, name


def test_totals_are_the_same_before_and_after_learning(patches):
    """A single inhibitory unit inhibits itself; no excitatory unit ever drives itself."""
    totals = (0.5, 1.5, 1.5, 0.3)
    for batches in (0, 3):
        model = SSNEncoder(n_exc=16, n_inh=1, n_iter=batches, J=totals, random_state=0)
        net = model.fit(patches).network_
        for w, total in zip((net.w_ee, net.w_ei, net.w_ie, net.w_ii), net.totals, strict=True):
            np.testing.assert_allclose(w.sum(1), total, rtol=1e-5)
        assert not net.w_ee.diagonal().any()
    assert float(net.w_ii) == pytest.approx(0.3)
