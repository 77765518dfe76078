"""Any regressor that predicts distributions, recalibrated inside scikit-learn's conventions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import (
    _num_samples,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from armillary.uncertainty.recalibration.distributions import (
    Floats,
    GaussianMixture,
    Interval,
    Predictive,
    Quantiles,
    WeightedSamples,
    as_predictive,
    normal,
    real_numbers,
)
from armillary.uncertainty.recalibration.estimator import MINIMUM_ROWS, KernelRecalibrator

_LEVELS = (np.arange(200) + 0.5) / 200


def predictive_of(estimator: Any, X: Any) -> Predictive:
    """The predictive distributions of a fitted regressor.

    Understood, in this order: ``predict_dist`` (anything that `as_predictive` reads), NGBoost's
    ``pred_dist``, skpro's ``predict_proba``, quantile-forest's ``predict(quantiles=…)``, and the
    members of a bagging ensemble or forest (``estimators_``) as samples.

    Args:
        estimator: a fitted regressor.
        X: its input rows.

    Raises:
        TypeError: it predicts points only.
    """
    if hasattr(estimator, "predict_dist"):
        return as_predictive(estimator.predict_dist(X))
    if hasattr(estimator, "pred_dist"):
        return _boosted(estimator.pred_dist(X))
    if hasattr(estimator, "predict_proba"):
        return as_predictive(estimator.predict_proba(X))
    if "quantiles" in inspect.signature(estimator.predict).parameters:
        values = estimator.predict(X, quantiles=_LEVELS.tolist())
        return Quantiles(_LEVELS, np.sort(values, axis=1))
    members = getattr(estimator, "estimators_", None)
    if isinstance(members, list) and members and all(hasattr(m, "predict") for m in members):
        return WeightedSamples(_member_predictions(estimator, members, X))
    raise TypeError(
        f"{type(estimator).__name__} predicts points, not distributions: wrap a bagging ensemble, "
        "NGBoost, quantile-forest or skpro regressor, or give it a method predict_dist(X)"
    )


def _boosted(law: Any) -> Predictive:
    """NGBoost's distribution object: Gaussians exactly, others through their quantiles."""
    if type(law).__name__ == "Normal":
        return normal(law.params["loc"], law.params["scale"])
    return Quantiles(_LEVELS, np.stack([law.ppf(level) for level in _LEVELS], axis=1))


def _member_predictions(ensemble: Any, members: Sequence[Any], X: Any) -> Floats:
    """(n, members) predictions; members of a bagging ensemble may see some features only."""
    features = getattr(ensemble, "estimators_features_", None)
    rows = X if hasattr(X, "tocsr") else np.asarray(X)
    columns = [
        member.predict(rows if features is None else rows[:, features[i]])
        for i, member in enumerate(members)
    ]
    return np.stack(columns, axis=1)


def stack(parts: Sequence[Predictive]) -> Predictive:
    """Rows of several sets of distributions of one kind, one set after the other.

    Raises:
        TypeError: the sets are of different kinds.
    """
    if all(isinstance(part, GaussianMixture) for part in parts):
        fields = [part.arrays() for part in parts]
        return GaussianMixture(
            *(np.concatenate([f[k] for f in fields]) for k in ("mu", "var", "pi"))
        )
    if not all(isinstance(part, WeightedSamples) for part in parts):
        kinds = sorted({type(part).__name__ for part in parts})
        raise TypeError(f"cannot stack distributions of different kinds: {', '.join(kinds)}")
    rows = [(part._row_values(), part._row_weights()) for part in parts]  # pyright: ignore
    longest = max(values.shape[1] for values, _ in rows)
    values = [np.pad(v, ((0, 0), (0, longest - v.shape[1])), mode="edge") for v, _ in rows]
    weights = [np.pad(w, ((0, 0), (0, longest - w.shape[1]))) for _, w in rows]
    return WeightedSamples(np.concatenate(values), np.concatenate(weights))


def _rows(X: Any) -> Any:
    """X as something whose rows can be picked; one row alone is refused, as scikit-learn does."""
    X = indexable(X)[0]
    if np.ndim(X) == 1 and not hasattr(X, "iloc") and not hasattr(X, "tocsr"):
        raise ValueError("Expected 2D array, got 1D array instead. Reshape your data: (n, d)")
    return X


class RecalibratedRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """A regressor whose predictive distributions are recalibrated on rows that it did not see.

    With ``cv`` folds every row is predicted by a model that was trained without it; the
    recalibrator learns from all of these, and the regressor that predicts is trained on all rows.
    It is a little better than those that were calibrated, so intervals tend to be slightly wide.

    Do not use it where rows depend on each other across folds (time series, groups): calibrate on
    your own held-out rows with ``cv="prefit"``.

    Args:
        estimator: a regressor that `predictive_of` understands.
        recalibrator: a `KernelRecalibrator`; None: one with default settings.
        cv: folds >= 2 of the cross-fit; None: hold out ``test_size`` of the rows once;
            ``"prefit"``: the estimator is fitted and all rows of ``fit`` are calibration rows.
        test_size: share of rows held out if ``cv`` is None, in (0, 1).
        random_state: seed of the split and of the default recalibrator.

    Attributes:
        estimator_: the fitted regressor that predicts.
        recalibrator_: the fitted recalibrator.
    """

    def __init__(
        self,
        estimator: Any,
        recalibrator: KernelRecalibrator | None = None,
        *,
        cv: int | str | None = 5,
        test_size: float = 0.3,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.recalibrator = recalibrator
        self.cv = cv
        self.test_size = test_size
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> RecalibratedRegressor:
        """Train the regressor and calibrate it on rows that it did not see.

        Args:
            X: (n, d) features, in any form that the estimator takes.
            y: (n,) outcomes.

        Raises:
            ValueError: too few rows, or a parameter out of range.
            TypeError: the estimator predicts points only.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        X = _rows(X)
        validate_data(self, X, skip_check_array=True)
        outcomes = real_numbers(column_or_1d(y, warn=True), "y")
        if len(outcomes) != _num_samples(X):
            raise ValueError(f"X has {_num_samples(X)} rows and y has {len(outcomes)}")
        if len(outcomes) < MINIMUM_ROWS:
            raise ValueError(
                f"n_samples={len(outcomes)}: at least {MINIMUM_ROWS} rows are needed to calibrate"
            )
        if self.cv == "prefit":
            self.estimator_ = self.estimator
            predictions, held = predictive_of(self.estimator_, X), np.arange(len(outcomes))
        elif self.cv is None:
            predictions, held = self._hold_out(X, outcomes)
        else:
            predictions, held = self._cross_fit(X, outcomes)
        recalibrator: Any = self.recalibrator or KernelRecalibrator(random_state=self.random_state)
        fresh: Any = clone(recalibrator)
        self.recalibrator_: KernelRecalibrator = fresh.fit(predictions, outcomes[held])
        return self

    def _trained(self, X: Any, y: Floats, rows: NDArray[np.intp]) -> Any:
        model: Any = clone(self.estimator)
        return model.fit(_safe_indexing(X, rows), y[rows])

    def _hold_out(self, X: Any, y: Floats) -> tuple[Predictive, NDArray[np.intp]]:
        if not 0 < self.test_size < 1:
            raise ValueError(f"test_size={self.test_size!r} must lie strictly between 0 and 1")
        order = np.random.default_rng(self.random_state).permutation(len(y))
        held = np.sort(order[: max(1, round(self.test_size * len(y)))])
        self.estimator_ = self._trained(X, y, np.setdiff1d(order, held))
        return predictive_of(self.estimator_, _safe_indexing(X, held)), held

    def _cross_fit(self, X: Any, y: Floats) -> tuple[Predictive, NDArray[np.intp]]:
        if not isinstance(self.cv, (int, np.integer)) or self.cv < 2:
            raise ValueError(f"cv={self.cv!r}: give folds >= 2, None or 'prefit'")
        parts, held = [], []
        folds = KFold(min(int(self.cv), len(y)), shuffle=True, random_state=self.random_state)
        for train, test in folds.split(np.arange(len(y))):
            model = self._trained(X, y, train)
            parts.append(predictive_of(model, _safe_indexing(X, test)))
            held.append(test)
        self.estimator_ = self._trained(X, y, np.arange(len(y)))
        return stack(parts), np.concatenate(held)

    def _predictive(self, X: Any) -> Predictive:
        X = _rows(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        return predictive_of(self.estimator_, X)

    def _fitted(self) -> KernelRecalibrator:
        check_is_fitted(self, "recalibrator_")
        return self.recalibrator_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if hasattr(self.estimator, "__sklearn_tags__"):
            inner = get_tags(self.estimator).input_tags
            tags.input_tags.allow_nan, tags.input_tags.sparse = inner.allow_nan, inner.sparse
        return tags

    def predict_dist(self, X: Any) -> WeightedSamples:
        """The recalibrated distributions, one a row."""
        return self._fitted().predict(self._predictive(X))

    def predict(self, X: Any) -> Floats:
        """(n,) means of the recalibrated distributions."""
        return self._fitted().predict_mean(self._predictive(X))

    def predict_quantiles(self, X: Any, q: ArrayLike) -> Floats:
        """(n, L) quantiles at levels ``q`` in (0, 1); they never cross."""
        return self._fitted().predict_quantiles(self._predictive(X), q)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Interval:
        """Central intervals of a nominal coverage in (0, 1)."""
        return self._fitted().predict_interval(self._predictive(X), coverage)

    def crps(self, X: Any, y: ArrayLike) -> Floats:
        """(n,) CRPS of the recalibrated distributions, in units of y; lower is better."""
        return self._fitted().crps(self._predictive(X), y)
