"""Rivals: the rewritten ones do what their papers say, packages are called as they should be."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from armillary.uncertainty.recalibration.base_models import leaf_weights
from armillary.uncertainty.recalibration.distributions import WeightedSamples, normal
from armillary.uncertainty.recalibration.peers import (
    PEERS,
    crude,
    mondrian,
    nearest_distributions,
    pit_map,
    quantile_conformal,
)


@pytest.fixture(scope="module")
def narrow():
    """Gaussian predictions whose spread is half of the truth, everywhere."""
    rng = np.random.default_rng(0)

    def draw(n):
        mean, std = rng.normal(size=n), np.exp(rng.normal(size=n) / 3)
        return normal(mean, std / 2), rng.normal(mean, std)

    return *draw(1500), *draw(1500)


def test_a_factor_on_the_spread_is_repaired_by_every_rewritten_remap(narrow):
    p, y, new, outcome = narrow
    truth = normal(new.mean(), 2 * new.std())
    for peer in (pit_map, crude):
        found = peer(p, y, new, 0)
        assert found.crps(outcome).mean() == pytest.approx(truth.crps(outcome).mean(), rel=0.02)
        np.testing.assert_allclose(
            np.median(found.std() / truth.std()), 1, atol=0.08, err_msg=peer.__name__
        )


def test_pit_map_of_calibrated_predictions_changes_little():
    rng = np.random.default_rng(1)
    mean = rng.normal(size=3000)
    p = normal(mean, np.ones(3000))
    found = pit_map(p, rng.normal(mean, 1), p[:5], 0)
    np.testing.assert_allclose(found.quantile([0.1, 0.5, 0.9]), p[:5].quantile([0.1, 0.5, 0.9]),
                               atol=0.12)  # fmt: skip


def test_one_bin_of_crepes_is_crude(narrow):
    pytest.importorskip("crepes")
    p, y, new, _ = narrow
    found, expected = mondrian(1)(p, y, new, 0), crude(p, y, new, 0)
    np.testing.assert_allclose(found.mean(), expected.mean())
    np.testing.assert_allclose(found.quantile([0.1, 0.9]), expected.quantile([0.1, 0.9]))


def test_split_conformal_adds_the_same_residuals_to_every_mean(narrow):
    pytest.importorskip("crepes")
    p, y, new, _ = narrow
    found = PEERS["split-conformal"](p, y, new, 0)
    np.testing.assert_allclose(found.values[7], new.mean()[7] + np.sort(y - p.mean()))


def test_neighbours_are_outcomes_of_like_predictions():
    mean = np.repeat([0.0, 50.0], 60)
    y = mean + np.tile(np.arange(60.0) / 60, 2)
    p = normal(mean, np.ones(120))
    found = nearest_distributions(p, y, normal([0.0, 50.0], [1.0, 1.0]), 0)
    assert found.values[0].max() < 1
    assert found.values[1].min() >= 50


def test_conformalised_quantiles_cover(narrow):
    pytest.importorskip("mapie")
    p, y, new, outcome = narrow
    interval = quantile_conformal(p, y, new, 0)
    assert abs(interval.covers(outcome).mean() - 0.9) < 0.03
    assert interval.covers(outcome).mean() > new.interval(0.9).covers(outcome).mean() + 0.2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["variance-scaling", "netcal-isotonic"])
def test_netcal_repairs_a_factor_on_the_spread(narrow, name):
    pytest.importorskip("netcal")
    p, y, new, outcome = narrow
    truth = normal(new.mean(), 2 * new.std())
    found = PEERS[name](p, y, new, 0)
    assert found.crps(outcome).mean() == pytest.approx(truth.crps(outcome).mean(), rel=0.02)


@pytest.mark.slow
def test_gp_beta_takes_ordinary_arrays_and_repairs_the_spread(narrow):
    pytest.importorskip("netcal")
    p, y, new, outcome = narrow
    found = PEERS["gp-beta"](p[:300], y[:300], new[:300], 0)
    truth = normal(new.mean(), 2 * new.std())[:300].crps(outcome[:300]).mean()
    assert found.crps(outcome[:300]).mean() < 0.5 * (truth + new[:300].crps(outcome[:300]).mean())


@pytest.mark.parametrize("name", ["toolbox-isotonic", "toolbox-scaling"])
def test_the_toolbox_widens_what_is_too_narrow(narrow, name):
    pytest.importorskip("uncertainty_toolbox")
    p, y, new, outcome = narrow
    found = PEERS[name](p, y, new, 0)
    assert found.crps(outcome).mean() < new.crps(outcome).mean()
    assert 1.5 < np.median(found.std() / new.std()) < 2.5


def test_leaf_weights_of_a_forest_without_bootstrap_give_its_prediction():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 3)), rng.normal(size=150)
    forest = RandomForestRegressor(
        20, bootstrap=False, max_features=1, min_samples_leaf=4, random_state=0
    ).fit(X, y)
    new = rng.normal(size=(40, 3))
    weights = leaf_weights(forest.apply(X), forest.apply(new))
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    np.testing.assert_allclose(WeightedSamples(y, weights).mean(), forest.predict(new))
