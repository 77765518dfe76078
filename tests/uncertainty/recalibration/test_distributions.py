"""Predictive distributions: closed forms against integrals, sampling and another library."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from armillary.uncertainty.recalibration.distributions import (
    CrossingQuantiles,
    GaussianMixture,
    Predictive,
    Quantiles,
    SupportWeights,
    WeightedSamples,
    as_predictive,
    mean_absolute_normal,
    normal,
)


def weighted(n: int = 4, m: int = 7, seed: int = 0) -> WeightedSamples:
    rng = np.random.default_rng(seed)
    return WeightedSamples(rng.normal(size=(n, m)).round(1), rng.random((n, m)))


def mixture(n: int = 4, components: int = 3, seed: int = 0) -> GaussianMixture:
    rng = np.random.default_rng(seed)
    shape = (n, components)
    mu, var, pi = rng.normal(size=shape), 0.1 + rng.random(shape), rng.random(shape)
    return GaussianMixture(mu, var, pi / pi.sum(axis=1, keepdims=True))


def crps_by_integral(p: Predictive, row: int, y: float) -> float:
    """The definition: the integral of (F(t) - 1{y <= t})^2."""
    grid = np.linspace(-8, 8, 40_001)
    one = p[[row] * len(grid)]
    upto = one.cdf_bounds(grid)[1]
    return float(integrate.trapezoid((upto - (y <= grid)) ** 2, grid))


@pytest.mark.parametrize("p", [weighted(), mixture()], ids=["samples", "mixture"])
def test_crps_is_the_integral_of_its_definition(p):
    y = np.array([-1.0, 0.2, 0.9, 3.0])
    expected = [crps_by_integral(p, i, y[i]) for i in range(4)]
    np.testing.assert_allclose(p.crps(y), expected, atol=1e-3)


@pytest.mark.slow
def test_crps_agrees_with_scoringrules():
    scoringrules = pytest.importorskip("scoringrules")
    y = np.array([-1.0, 0.2, 0.9, 3.0])
    p = mixture()
    np.testing.assert_allclose(
        p.crps(y), scoringrules.crps_mixnorm(y, p.mu, np.sqrt(p.var), p.pi), rtol=1e-10
    )
    samples = np.random.default_rng(1).normal(size=(4, 50))
    np.testing.assert_allclose(
        WeightedSamples(samples).crps(y),
        scoringrules.crps_ensemble(y, samples, estimator="nrg"),
        rtol=1e-10,
    )
    one = normal([0.0, 1, 2, 3], [1.0, 2, 0.5, 0.1])
    np.testing.assert_allclose(
        one.crps(y), scoringrules.crps_normal(y, [0, 1, 2, 3], [1, 2, 0.5, 0.1]), rtol=1e-10
    )


def test_mixture_moments_and_quantiles_match_sampling():
    p = mixture(n=2)
    draws = p.sample(400_000, seed=3)
    np.testing.assert_allclose(p.mean(), draws.mean(axis=1), atol=0.01)
    np.testing.assert_allclose(p.std(), draws.std(axis=1), atol=0.01)
    np.testing.assert_allclose(
        p.quantile([0.1, 0.5, 0.95]), np.quantile(draws, [0.1, 0.5, 0.95], axis=1).T, atol=0.02
    )


def test_quantile_inverts_the_cdf_of_a_mixture():
    p = mixture(n=5)
    for level in (0.001, 0.3, 0.5, 0.999):
        at = p.quantile([level])[:, 0]
        np.testing.assert_allclose(p.cdf_bounds(at)[1], level, atol=1e-9)


@pytest.mark.parametrize("p", [weighted(), mixture()], ids=["samples", "mixture"])
def test_integrated_cdf_is_the_mean_of_the_positive_part(p):
    knots = np.array([-2.0, -0.1, 0.0, 1.5])
    draws = p.sample(300_000, seed=1)
    expected = np.maximum(knots - draws[:, :, None], 0).mean(axis=1)
    np.testing.assert_allclose(p.integrated_cdf(knots), expected, atol=0.02)


def test_shared_support_equals_the_same_rows_written_out():
    rng = np.random.default_rng(0)
    support, weights = rng.normal(size=9), rng.random((3, 9))
    shared, rows = SupportWeights(weights, support), WeightedSamples([support] * 3, weights)
    y, knots = np.array([0.0, 1.0, support[2]]), np.linspace(-2, 2, 5)
    for a, b in (
        (shared.crps(y), rows.crps(y)),
        (shared.integrated_cdf(knots), rows.integrated_cdf(knots)),
        (shared.quantile([0.2, 0.7]), rows.quantile([0.2, 0.7])),
        (shared.cdf_bounds(y), rows.cdf_bounds(y)),
        (shared.variance(), rows.variance()),
    ):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_weighted_quantile_is_the_smallest_value_that_reaches_the_level():
    p = WeightedSamples([[1.0, 2.0, 4.0]], [[0.2, 0.3, 0.5]])
    assert p.quantile([0.1, 0.2, 0.21, 0.5, 0.51, 0.999]).tolist() == [[1, 1, 2, 2, 4, 4]]


@given(st.integers(0, 10_000), st.floats(0.1, 10), st.floats(-5, 5))
@settings(max_examples=25, deadline=None)
def test_crps_scales_and_shifts_with_its_units(seed, scale, shift):
    p = weighted(seed=seed)
    y = np.random.default_rng(seed).normal(size=4)
    moved = WeightedSamples(shift + scale * p.values, p.weights)
    np.testing.assert_allclose(moved.crps(shift + scale * y), scale * p.crps(y), atol=1e-9)


def test_mean_absolute_normal_by_quadrature_and_at_zero_variance():
    for mu, var in ((0.3, 2.0), (-4.0, 0.5)):
        expected, _ = integrate.quad(
            lambda x, mu=mu, var=var: abs(x) * stats.norm.pdf(x, mu, np.sqrt(var)), -30, 30
        )
        np.testing.assert_allclose(mean_absolute_normal(np.array(mu), np.array(var)), expected)
    assert mean_absolute_normal(np.array(-2.0), np.array(0.0)) == 2.0


def test_quantile_rows_keep_their_mass_and_crossings_are_counted():
    levels = [0.25, 0.5, 0.75]
    with pytest.warns(CrossingQuantiles, match="1 of 2 rows"):
        p = Quantiles(levels, [[1, 2, 3], [5, 4, 6]])
    np.testing.assert_allclose(p.weights, [[0.375, 0.25, 0.375]] * 2)
    assert p.values[1].tolist() == [4, 5, 6]


def test_mid_levels_of_a_gaussian_give_nearly_its_crps():
    levels = (np.arange(200) + 0.5) / 200
    y = np.array([0.5])
    read = Quantiles(levels, special.ndtri(levels)[None]).crps(y)
    np.testing.assert_allclose(read, normal([0.0], [1.0]).crps(y), atol=1e-3)


def test_smoothing_keeps_the_mean_and_adds_the_bandwidth():
    p = weighted()
    smooth = p.smooth(0.3)
    np.testing.assert_allclose(smooth.mean(), p.mean())
    np.testing.assert_allclose(smooth.variance(), p.variance() + 0.09)
    assert (p.smooth().variance() > p.variance()).all()


def test_every_form_is_read():
    samples = np.random.default_rng(0).normal(size=(5, 30))
    assert isinstance(as_predictive(samples, 5), WeightedSamples)
    pair = as_predictive((np.zeros(5), np.ones(5)), 5)
    np.testing.assert_allclose(pair.std(), 1)
    frozen = as_predictive(stats.gamma(np.arange(1.0, 6.0)), 5)
    np.testing.assert_allclose(frozen.mean(), np.arange(1.0, 6.0), rtol=0.01)
    p = mixture()
    assert as_predictive(p) is p


def test_skpro_distributions_are_read():
    pytest.importorskip("skpro")
    from skpro.distributions import Laplace, Normal

    mu = np.array([[0.0], [2.0]])
    read = as_predictive(Normal(mu=mu, sigma=3.0), 2)
    np.testing.assert_allclose(read.mean(), [0, 2])
    np.testing.assert_allclose(read.std(), 3)
    laplace = as_predictive(Laplace(mu=mu, scale=1.0), 2)
    np.testing.assert_allclose(laplace.std(), np.sqrt(2), rtol=0.02)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_predictive(np.ones((3, 5)), 5), r"\(3, 5\).*\(5,\).*P\.T"),
        (lambda: as_predictive(np.ones((3, 7)), 5), "3 rows but y has 5"),
        (lambda: as_predictive(np.ones(5), 5), r"shape \(5,\)"),
        (lambda: as_predictive([[1, 2], [np.nan, 1]]), "first in row 1"),
        (lambda: as_predictive((np.ones(3), np.array([1.0, 0, 2]))), "row 1 has 0"),
        (lambda: as_predictive((np.ones(3), np.ones(2))), "differ in length"),
        (lambda: Quantiles([0.5, 0.4], np.ones((2, 2))), "increasing"),
        (lambda: Quantiles([0.5, 1.0], np.ones((2, 2))), "between 0 and 1"),
        (lambda: Quantiles([0.2, 0.8], np.ones((2, 3))), "2 levels"),
        (lambda: GaussianMixture([[0.0]], [[-1.0]]), "> 0"),
        (lambda: WeightedSamples([[1.0, 2.0]], [[-1.0, 2.0]]), ">= 0"),
        (lambda: normal([0.0], [1.0]).interval(1.0), "coverage=1.0"),
        (lambda: normal([0.0], [1.0]).quantile([0.0]), "between 0 and 1"),
    ],
)
def test_bad_input_is_told(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_no_prediction_is_a_type_error():
    with pytest.raises(TypeError, match="give an"):
        as_predictive(object())
