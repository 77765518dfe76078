"""The theory against published values, root-finders, quadrature and Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize
from scipy.stats import norm

from armillary.neuro.spikeinit import Neuron, max_rate, solve, theory
from armillary.neuro.spikeinit import simulation as sim


# Values of the paper's equations, computed by another root-finder (θ = 0.5).
@pytest.mark.parametrize(
    ("kappa", "lam", "rate", "sigma", "alpha", "slope"),
    [
        (0.0, 1.0, 0.05, 1.3594, 2.879, 1.696),
        (0.0, 1.0, 0.10, 1.2338, 2.852, 1.125),
        (0.0, 1.0, 0.20, 1.3284, 2.427, 0.589),
        (0.5, 0.5, 0.05, 2.5979, 2.531, 1.302),
        (0.5, 0.5, 0.10, 2.5784, 2.306, 0.797),
        (0.5, 0.5, 0.20, 3.4282, 1.617, 0.366),
        (0.9, 0.1, 0.05, 13.268, 1.041, 0.552),
    ],
)
def test_solutions_are_those_of_the_equations(kappa, lam, rate, sigma, alpha, slope):
    found = solve(kappa, lam, 0.5, rate)
    assert found.sigma == pytest.approx(sigma, abs=6e-4)
    assert found.alpha == pytest.approx(alpha, abs=6e-4)
    assert found.slope == pytest.approx(slope, abs=6e-4)


def test_without_a_leak_everything_is_closed_form():
    z = norm.isf(0.1)
    found = solve(0.0, 1.0, 0.5, 0.1)
    assert found.sigma == pytest.approx(0.5 / (z * math.sqrt(0.1)))
    assert found.slope == pytest.approx(z * norm.pdf(z) / 0.2, rel=1e-6)
    assert found.mu == 0
    assert found.sigma_static == pytest.approx(0.5 / z)


@settings(max_examples=15, deadline=None)
@given(kappa=st.floats(0, 0.95), theta=st.floats(0.1, 3), share=st.floats(0.05, 0.9))
def test_the_steady_state_solves_both_moment_equations(kappa, theta, share):
    """Its slow twin: the two equations as the paper writes them."""
    neuron = Neuron(kappa, 1.0, theta)
    p = share * max_rate(kappa)
    m, s, drive = theory.steady_state(neuron, p)
    a = (theta - m) / s
    cdf, pdf = norm.cdf(a), norm.pdf(a)
    assert kappa * (m * cdf - s * pdf) == pytest.approx(m, abs=1e-9 * theta)
    second = kappa**2 * ((m * m + s * s) * cdf - s * (theta + m) * pdf) + drive**2
    assert second == pytest.approx(m * m + s * s, rel=1e-9)
    assert 1 - cdf == pytest.approx(p, rel=1e-7)
    assert theory.rate_of(neuron, drive) == pytest.approx(p, rel=1e-6)


def test_a_root_finder_on_the_moment_equations_agrees():
    neuron = Neuron(0.5, 0.5, 0.5)
    drive = theory.steady_state(neuron, 0.1).drive

    def residual(v):
        m, s = v
        a = (0.5 - m) / s
        cdf, pdf = norm.cdf(a), norm.pdf(a)
        return (
            0.5 * (m * cdf - s * pdf) - m,
            0.25 * ((m * m + s * s) * cdf - s * (0.5 + m) * pdf) + drive**2 - m * m - s * s,
        )

    m, s = optimize.fsolve(residual, (0.0, drive / math.sqrt(0.75)))
    found = solve(0.5, 0.5, 0.5, 0.1)
    assert (found.mu, found.std) == pytest.approx((m, s))
    assert (m, s) == pytest.approx((-0.071, 0.446), abs=5e-4)


@pytest.mark.parametrize(("kappa", "limit"), [(0.0, 0.5), (0.5, 0.391), (0.8, 0.262), (0.9, 0.184)])
def test_the_largest_rate_is_that_of_endless_drive(kappa, limit):
    assert max_rate(kappa) == pytest.approx(limit, abs=5e-4)
    assert theory.rate_of(Neuron(kappa), 1e6) == pytest.approx(max_rate(kappa), rel=1e-4)


def test_the_slope_is_the_derivative_of_the_rate():
    neuron = Neuron(0.5, 0.5, 0.5)
    sigma = solve(0.5, 0.5, 0.5, 0.1).sigma

    def rate(p):
        return theory.rate_of(neuron, sigma * 0.5 * math.sqrt(p))

    assert (rate(0.1001) - rate(0.0999)) / 2e-4 == pytest.approx(
        theory.slope_of(neuron, 0.1), rel=1e-4
    )


def test_the_stable_rate_is_the_smallest_whose_slope_is_low_enough():
    assert theory.stable_rate(Neuron(0.5)) == 0.1
    p = theory.stable_rate(Neuron(0.0))
    assert p > 0.1
    assert theory.slope_of(Neuron(0.0), p) == pytest.approx(0.9, abs=1e-4)
    assert solve(0.0, 1.0, 0.5, "auto").rate == pytest.approx(p)


@pytest.mark.parametrize("surrogate", ["piecewise_exp", "atan", "sigmoid", "triangle"])
@pytest.mark.parametrize("alpha", [0.3, 2.3, 50.0])
def test_second_moments_of_slopes_agree_with_quadrature(surrogate, alpha):
    m, s, theta = -0.071, 0.446, 0.5

    def integrand(v):
        u = np.array([v - theta])
        return float(theory.slope_squared(surrogate, alpha, u)[0]) * norm.pdf(v, m, s)

    kinks = [theta - 1 / alpha, theta, theta + 1 / alpha]
    expected = integrate.quad(integrand, m - 12 * s, m + 12 * s, points=kinks, limit=500)[0]
    assert theory.surrogate_moment(surrogate, alpha, m, s, theta) == pytest.approx(
        expected, rel=1e-4
    )


def test_a_narrow_surrogate_keeps_its_closed_form():
    """At α = 1000 a quadrature misses the kink: M₂ tends to α/2 times the density at θ."""
    moment = theory.piecewise_exp_moment(1e3, -0.071, 0.446, 0.5)
    assert moment == pytest.approx(500 * norm.pdf(0.5, -0.071, 0.446), rel=1e-3)


@pytest.mark.parametrize("surrogate", ["piecewise_exp", "atan", "sigmoid", "triangle"])
def test_alpha_keeps_the_variance_of_gradients(surrogate):
    p = solve(0.5, 0.5, 0.5, 0.1, surrogate=surrogate)
    moment = theory.surrogate_moment(surrogate, p.alpha, p.mu, p.std, 0.5)
    assert theory.backward_gain(p.neuron, 0.1, p.sigma, moment) == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(("kappa", "T"), [(0.5, 4), (0.9, 3), (1.0, 5)])
def test_rates_under_unchanging_input_are_counted_exactly(kappa, T):
    """Its slow twin runs the neurons."""
    neuron = Neuron(kappa, 1.0, 0.5)
    z = norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    spikes = sim.fire(neuron, np.broadcast_to(0.4 * z, (T, len(z))))[1]
    assert theory.static_rate(neuron, 0.4, T) == pytest.approx(spikes.mean(), abs=2e-5)


def test_the_long_run_under_unchanging_input_is_the_limit():
    neuron = Neuron(0.5, 0.5, 0.5)
    assert theory.static_rate(neuron, 0.3) == pytest.approx(
        theory.static_rate(neuron, 0.3, 5000), abs=2e-4
    )
    drive = theory.static_drive(neuron, 0.1)
    assert theory.static_rate(neuron, drive) == pytest.approx(0.1)


def test_the_moments_are_those_of_a_simulated_layer():
    """Approximate, since v is taken as Gaussian: within 6 % at this neuron."""
    p = solve(0.5, 0.5, 0.5, 0.1)
    z = np.random.default_rng(0).standard_normal((60, 40_000))
    spikes = sim.fire(p.neuron, p.sigma * 0.5 * math.sqrt(0.1) * z)[1]
    assert spikes[20:].mean() == pytest.approx(0.1, rel=0.06)
