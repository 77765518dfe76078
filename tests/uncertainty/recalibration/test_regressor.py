"""The wrapper: every host ecosystem it reads, and scikit-learn's own checks."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import BaggingRegressor, GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from armillary.uncertainty.recalibration import (
    KernelRecalibrator,
    RecalibratedRegressor,
    predictive_of,
)
from armillary.uncertainty.recalibration.distributions import GaussianMixture, normal
from armillary.uncertainty.recalibration.regressor import stack


def data(n: int = 160, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    return X, X[:, 0] ** 2 + (0.1 + 0.4 * (X[:, 1] > 0)) * rng.normal(size=n)


def bagged(**settings) -> RecalibratedRegressor:
    return RecalibratedRegressor(
        BaggingRegressor(n_estimators=20, random_state=0), random_state=0, **settings
    )


@pytest.mark.parametrize("cv", [3, None])
def test_an_overconfident_ensemble_covers_after_wrapping(cv):
    X, y = data(300)
    new, outcome = data(300, seed=1)
    model = bagged(cv=cv, test_size=0.5).fit(X, y)
    before = predictive_of(model.estimator_, new)
    assert before.interval(0.9).covers(outcome).mean() < 0.8
    assert abs(model.predict_interval(new, 0.9).covers(outcome).mean() - 0.9) < 0.06
    assert model.crps(new, outcome).mean() < before.crps(outcome).mean()
    np.testing.assert_allclose(model.predict(new), model.predict_dist(new).mean())
    assert (np.diff(model.predict_quantiles(new, [0.1, 0.5, 0.9]), axis=1) >= 0).all()
    assert model.score(new, outcome) > 0.5


def test_cross_fitted_rows_are_never_predicted_by_a_model_that_saw_them():
    """A model that remembers its training outcomes would be perfect on them."""
    X, y = data(90)

    class Memory:
        def __init__(self):
            self.known: dict[bytes, float] = {}

        def get_params(self, deep=True):
            return {}

        def set_params(self, **_):
            return self

        def fit(self, X, y):
            self.known = {row.tobytes(): value for row, value in zip(X, y, strict=True)}
            return self

        def predict_dist(self, X):
            seen = [row.tobytes() in self.known for row in X]
            assert not any(seen) or all(seen)
            return normal(
                np.array([100.0 if s else row[0] for s, row in zip(seen, X, strict=True)]),
                np.ones(len(X)),
            )

        predict = predict_dist

    model = RecalibratedRegressor(Memory(), KernelRecalibrator("y", lam=0.1), cv=3).fit(X, y)
    # No calibration prediction was 100: a query there is unlike all of them.
    assert model.recalibrator_.extrapolated(([100.0], [1.0])).all()


def test_prefit_uses_every_row_for_calibration():
    X, y = data(80)
    base = RandomForestRegressor(n_estimators=15, random_state=0).fit(*data(80, seed=3))
    model = RecalibratedRegressor(base, cv="prefit", random_state=0).fit(X, y)
    assert model.estimator_ is base
    assert model.recalibrator_.n_calibration_ == 80


@pytest.mark.slow
def test_ngboost_is_read():
    ngboost = pytest.importorskip("ngboost")
    X, y = data(120)
    model = ngboost.NGBRegressor(n_estimators=15, verbose=False, random_state=0).fit(X, y)
    read = predictive_of(model, X)
    np.testing.assert_allclose(read.mean(), model.predict(X))
    wrapped = RecalibratedRegressor(model, cv=2, random_state=0).fit(X, y)
    assert wrapped.predict(X).shape == (120,)
    assert np.corrcoef(wrapped.predict(X), y)[0, 1] > 0.7


def test_quantile_forest_is_read():
    forest = pytest.importorskip("quantile_forest")
    X, y = data(120)
    model = forest.RandomForestQuantileRegressor(n_estimators=20, random_state=0).fit(X, y)
    read = predictive_of(model, X)
    np.testing.assert_allclose(
        read.median(), model.predict(X, quantiles=[0.5]).ravel(), atol=0.05 * y.std()
    )


def test_skpro_is_read_and_wrapped():
    pytest.importorskip("skpro")
    import pandas as pd
    from skpro.regression.residual import ResidualDouble

    X, y = data(120)
    frame, column = pd.DataFrame(X, columns=["a", "b"]), pd.Series(y, name="y")
    model = ResidualDouble(LinearRegression()).fit(frame, pd.DataFrame(column))
    read = predictive_of(model, frame)
    assert isinstance(read, GaussianMixture)
    np.testing.assert_allclose(read.mean(), np.ravel(model.predict(frame)), atol=1e-9)
    wrapped = RecalibratedRegressor(ResidualDouble(LinearRegression()), cv=2, random_state=0).fit(
        frame, column
    )
    assert abs(wrapped.predict_interval(frame).covers(y).mean() - 0.9) < 0.08


def test_members_of_an_ensemble_on_parts_of_the_features_are_read():
    X, y = data(60)
    model = BaggingRegressor(n_estimators=5, max_features=0.5, random_state=0).fit(X, y)
    np.testing.assert_allclose(predictive_of(model, X).mean(), model.predict(X))


@pytest.mark.parametrize("point", [LinearRegression(), GradientBoostingRegressor(n_estimators=2)])
def test_point_predictions_are_refused(point):
    X, y = data(60)
    with pytest.raises(TypeError, match="predicts points, not distributions"):
        RecalibratedRegressor(point, cv=2).fit(X, y)


def test_stacking_keeps_rows_and_refuses_other_kinds():
    from armillary.uncertainty.recalibration.distributions import WeightedSamples

    a, b = WeightedSamples([[1.0, 2.0]]), WeightedSamples([[3.0, 4.0, 8.0]])
    np.testing.assert_allclose(stack([a, b]).mean(), [1.5, 5.0])
    np.testing.assert_allclose(stack([a, b]).crps([1.0, 4.0]), np.r_[a.crps([1.0]), b.crps([4.0])])
    two = stack([normal([0.0], [1.0]), normal([5.0], [2.0])])
    np.testing.assert_allclose(two.std(), [1, 2])
    with pytest.raises(TypeError, match="different kinds"):
        stack([a, normal([0.0], [1.0])])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cv": 1}, "cv=1"),
        ({"cv": "all"}, "cv='all'"),
        ({"cv": None, "test_size": 1.0}, "test_size"),
    ],
)
def test_settings_out_of_range_are_told(settings, message):
    with pytest.raises(ValueError, match=message):
        bagged(**settings).fit(*data(60))


_FEW = "fits on fewer than the 20 rows that a calibration needs at least"

#: `KernelRecalibrator` takes distributions and not features, so these checks do not apply to it.
EXPECTED_FAILURES = {
    "check_n_features_in_after_fitting": _FEW,
    "check_regressors_no_decision_function": _FEW,
    "check_fit2d_1feature": _FEW,
    "check_estimators_empty_data_messages": _FEW,
}


@parametrize_with_checks(
    [
        RecalibratedRegressor(
            BaggingRegressor(n_estimators=5, random_state=0),
            KernelRecalibrator("residual", lam=0.1),
            cv=2,
            random_state=0,
        )
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("y", "error", "told"),
    [
        (["a"] * 40, ValueError, "y holds something that is no number"),
    ],
)
def test_outcomes_that_are_no_numbers_are_told(y, error, told):
    model = RecalibratedRegressor(BaggingRegressor(n_estimators=5, random_state=0))
    with pytest.raises(error, match=told):
        model.fit(np.arange(40.0)[:, None], y)
