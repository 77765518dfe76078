"""Diagnostics: size and power of the test, distance correlation, coverage and reports."""

from __future__ import annotations

import json

import numpy as np
import pytest

from armillary.uncertainty.recalibration import reporting
from armillary.uncertainty.recalibration.diagnostics import (
    dcor,
    pit,
    pit_distance,
    skce,
    skce_terms,
)
from armillary.uncertainty.recalibration.distributions import WeightedSamples, normal


def calibrated(n: int, seed: int):
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n), np.exp(rng.normal(size=n) / 3)
    return mean, std, rng.normal(mean, std)


def rejections(n: int, repeats: int, overconfidence: float) -> float:
    rejected = 0
    for seed in range(repeats):
        mean, std, y = calibrated(n, seed)
        rejected += skce((mean, std * overconfidence), y, n_boot=200, seed=seed).p_value <= 0.05
    return rejected / repeats


def test_skce_rejects_overconfidence_and_seldom_the_truth():
    # Under the null the count of 40 is binomial(40, .05): 7 or more has probability 0.003.
    assert rejections(60, 40, 1.0) <= 6 / 40
    assert rejections(120, 10, 0.5) >= 0.9


@pytest.mark.slow
def test_skce_has_its_nominal_size_and_grows_in_power():
    # Binomial(400, .05): mean 20, standard deviation 4.4.
    assert 0.02 <= rejections(150, 400, 1.0) <= 0.085
    powers = [rejections(n, 60, 0.75) for n in (60, 150, 400)]
    assert powers[0] < powers[2]
    assert powers[2] >= 0.9


def test_skce_sees_errors_that_cancel_over_the_rows():
    """The PIT is uniform on average while half of the rows are too wide and half too narrow."""
    rng = np.random.default_rng(0)
    n = 400
    mean = np.repeat([0.0, 4.0], n // 2)
    std = np.where(mean == 0, 0.5, 2.0)
    y = rng.normal(mean, 1.0)
    u = pit((mean, std), y)
    mixed = pit((mean, np.ones(n)), y)
    assert skce((mean, std), y).p_value < 0.01
    assert skce((mean, np.ones(n)), y).p_value > 0.05
    assert pit_distance(mixed) < 0.08
    assert abs(u.mean() - 0.5) < 0.05


def test_skce_terms_match_their_definition_by_sampling():
    mean, std, y = calibrated(4, 0)
    p = normal(mean, std)
    terms = skce_terms(p, y)
    np.testing.assert_allclose(terms, terms.T, atol=1e-12)
    from armillary.uncertainty.recalibration.embedding import median_heuristic, outcome_bandwidth
    from armillary.uncertainty.recalibration.energy import energy_distances

    theta = outcome_bandwidth(y)
    square = energy_distances(p)
    draws = p.sample(4000, seed=1)

    def ell(a, b):
        return np.exp(-np.abs(np.subtract.outer(a, b)) / theta)

    for i, j in ((0, 1), (2, 3)):
        bracket = (
            ell(y[i], y[j])
            - ell(y[i], draws[j]).mean()
            - ell(draws[i], y[j]).mean()
            + ell(draws[i], draws[j]).mean()
        )
        kernel = np.exp(-square[i, j] / median_heuristic(square) ** 2)
        np.testing.assert_allclose(terms[i, j], kernel * bracket, atol=0.02)


def test_skce_of_discrete_predictions_agrees_between_shared_and_written_out_atoms():
    rng = np.random.default_rng(0)
    support, weights, y = rng.normal(size=30), rng.random((50, 30)), rng.normal(size=50)
    a = skce(WeightedSamples(support, weights), y).statistic
    b = skce(WeightedSamples(np.tile(support, (50, 1)), weights), y).statistic
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_pit_of_discrete_predictions_is_uniform_when_they_are_right():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 4000)
    p = WeightedSamples(np.tile([0.0, 1, 2], (4000, 1)))
    assert pit_distance(pit(p, y)) < 0.03


def slow_dcor(x: np.ndarray, y: np.ndarray) -> float:
    """The definition, element by element."""
    n = len(x)

    def centred(v):
        d = np.abs(v[:, None] - v)
        out = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                if i != j:
                    out[i, j] = (
                        d[i, j]
                        - d[i].sum() / (n - 2)
                        - d[:, j].sum() / (n - 2)
                        + d.sum() / ((n - 1) * (n - 2))
                    )
        return out

    a, b = centred(x), centred(y)
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


def test_dcor_matches_its_definition():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = x**2 + 0.3 * rng.normal(size=40)
    np.testing.assert_allclose(dcor(x, y), slow_dcor(x, y))


@pytest.mark.slow
def test_dcor_matches_the_package():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    y = x**2 + 0.3 * rng.normal(size=40)
    package = pytest.importorskip("dcor")
    np.testing.assert_allclose(dcor(x, y), package.u_distance_correlation_sqr(x, y))


def test_dcor_is_zero_on_average_under_independence_and_one_for_a_line():
    rng = np.random.default_rng(1)
    values = [dcor(rng.normal(size=50), rng.normal(size=50)) for _ in range(300)]
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(300)
    x = rng.normal(size=50)
    np.testing.assert_allclose(dcor(x, 3 * x - 1), 1)
    with pytest.raises(ValueError, match="at least 4"):
        dcor([1, 2, 3], [1, 2, 3])


def test_coverage_table_of_a_gaussian_is_its_coverage():
    mean, std, y = calibrated(5000, 0)
    lines = reporting.expected_coverage_table((mean, std), y)
    for line in lines:
        assert abs(line.observed - line.nominal) < 4 * np.sqrt(0.25 / 5000)
    np.testing.assert_allclose(lines[2].width, 2 * 1.6448536 * std.mean(), rtol=1e-6)


def test_report_shows_before_and_after(tmp_path):
    mean, std, y = calibrated(200, 0)
    made = reporting.report((mean, std / 3), (mean, std), y)
    assert made.diagnoses["before"].skce_p < 0.01 < made.diagnoses["after"].skce_p
    assert made.diagnoses["before"].crps > made.diagnoses["after"].crps
    read = json.loads(made.write(tmp_path / "r.json").read_text())
    assert read["after"]["n"] == 200
    assert sum(read["after"]["pit_histogram"]) == pytest.approx(1)
    page = made.write(tmp_path / "r.html").read_text()
    assert "<svg" in page
    assert f"{made.diagnoses['after'].crps:.4g}" in page
    with pytest.raises(ValueError, match=r"\.html or \.json"):
        made.write(tmp_path / "r.txt")
