"""Roots by simulation: rates reached, other resets, correlations, gradients over depth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from armillary.neuro.spikeinit import Neuron, solve
from armillary.neuro.spikeinit import simulation as sim


@pytest.mark.parametrize(
    ("kappa", "reset", "refractory"),
    [(1.0, "hard", 0), (0.5, "soft", 0), (0.8, "subtract", 0), (0.5, "hard", 2)],
)
def test_simulated_neurons_fire_at_the_wanted_rate(kappa, reset, refractory):
    found = solve(kappa, 1.0, 0.5, 0.1, T=6, reset=reset, refractory=refractory)
    assert found.method == "sim"
    z = np.random.default_rng(99).standard_normal((6, 60_000))
    rate = sim.fire(found.neuron, found.sigma * math.sqrt(0.1) * z)[1].mean()
    assert rate == pytest.approx(0.1, abs=0.003)


def test_each_reset_is_its_equation():
    x = np.array([[0.7], [0.2], [0.5]])
    hard = sim.fire(Neuron(0.5, 1.0, 0.5), x)[0].ravel()
    soft = sim.fire(Neuron(0.5, 1.0, 0.5, "soft"), x)[0].ravel()
    subtract = sim.fire(Neuron(0.5, 1.0, 0.5, "subtract"), x)[0].ravel()
    assert hard == pytest.approx([0.7, 0.2, 0.6])
    assert soft == pytest.approx([0.7, 0.3, 0.65])
    assert subtract == pytest.approx([0.7, 0.05, 0.525])
    held = sim.fire(Neuron(0.5, 1.0, 0.5, refractory=1), np.ones((4, 1)))[1].ravel()
    assert held.tolist() == [1, 0, 1, 0]


def test_answers_are_the_same_each_time():
    sim_once = sim.simulate_independent(Neuron(), 0.1, 4, draws=5_000)
    again = sim.simulate_independent(Neuron(), 0.1, 4, draws=5_000)
    assert sim_once.drive == again.drive


def test_the_correlation_reproduces_itself():
    neuron = Neuron()
    found = sim.simulate_correlated(neuron, 0.16, 4, draws=40_000)
    assert found.spikes.mean() == pytest.approx(0.16, abs=1e-3)
    new = found.spikes @ found.spikes.T / 40_000 / 0.16
    assert np.abs(new - found.correlation).max() < 0.02
    assert found.correlation[0, 1] > 0.16  # more than that of independent spikes


def test_gradients_a_layer_back_are_those_of_the_operator():
    """The operator against its slow twin: drawn gradients sent back through time, T = 3."""
    neuron = Neuron()
    found = sim.simulate_correlated(neuron, 0.16, 3, draws=20_000)
    operator = sim.gradient_operator(neuron, 2.6, found, "piecewise_exp", 2.0)
    covariance = np.array([[1.0, 0.3, 0.1], [0.3, 0.8, 0.2], [0.1, 0.2, 0.5]])
    rng = np.random.default_rng(1)
    u, s = found.potentials - 0.5, found.spikes
    slope = 2.0 * np.exp(-4.0 * np.abs(u))
    total = np.zeros((3, 3))
    for _ in range(40):
        g = np.linalg.cholesky(covariance) @ rng.standard_normal((3, 20_000))
        dv = np.zeros(20_000)
        dx = np.zeros((3, 20_000))
        for t in (2, 1, 0):
            dv = slope[t] * g[t] + 0.5 * (1 - s[t]) * dv
            dx[t] = 0.5 * dv
        total += 2.6**2 * dx @ dx.T / 20_000 / 40
    np.testing.assert_allclose(operator @ covariance.ravel(), total.ravel(), rtol=0.05, atol=5e-3)
    # Triangular: its eigenvalues are the moments of the slope.
    growth = sim.gradient_growth(neuron, 2.6, found, "piecewise_exp", 2.0)
    assert growth == pytest.approx(2.6**2 * 0.25 * (slope**2).mean(1).max(), rel=1e-6)


@pytest.mark.slow
def test_correlated_alpha_stops_the_growth():
    found = solve(0.5, 0.5, 0.5, 0.16, T=3, method="correlated")
    state = sim.simulate_correlated(found.neuron, 0.16, 3)
    growth = sim.gradient_growth(found.neuron, found.sigma, state, "piecewise_exp", found.alpha)
    assert growth == pytest.approx(1, rel=2e-3)
