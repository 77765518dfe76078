"""Predictive distributions, one a row, and the one primitive that everything else needs of them.

Legend of shapes: n rows, m atoms a row, C components, K knots, L levels.

Whatever form a prediction has (samples, quantiles, forest weights, a Gaussian mixture), the method
and its diagnostics read it through the *integrated CDF*

    H(t) = E (t - X)+ = integral of F from minus infinity to t,

which is closed for all of them. Its first differences over knots embed the distribution for the
energy distance, its second differences bin the distribution on the knots.
"""

from __future__ import annotations

import abc
import dataclasses
import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Floats = NDArray[np.float64]
#: Larger numbers would overflow in squares.
LARGEST = 1e100

#: Elements of a temporary array: row-wise work is cut into pieces of about this size.
CHUNK = 4_000_000


class CrossingQuantiles(UserWarning):
    """Some rows of a quantile grid decreased; their values were sorted."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """Central prediction intervals.

    Attributes:
        lower: (n,) lower ends, in units of y.
        upper: (n,) upper ends, never below ``lower``.
    """

    lower: Floats
    upper: Floats

    @property
    def width(self) -> Floats:
        return self.upper - self.lower

    def covers(self, y: ArrayLike) -> NDArray[np.bool_]:
        """(n,) whether each outcome lies in its closed interval."""
        y = np.asarray(y, dtype=float)
        return (self.lower <= y) & (y <= self.upper)


class Predictive(abc.ABC):
    """One real-valued distribution a row."""

    @abc.abstractmethod
    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> Predictive:
        """The distributions of some rows: a slice, indices, a mask, or one row by its number."""
        if isinstance(rows, (int, np.integer)):
            rows = [range(len(self))[rows]]
        return self._pick(rows)

    @abc.abstractmethod
    def _pick(self, rows: Any) -> Predictive: ...

    def __array__(self, *_: Any, **__: Any) -> NDArray:
        raise TypeError(
            f"a {type(self).__name__} is no array: take mean(), quantile(levels) or sample(size)"
        )

    @abc.abstractmethod
    def moved(self, by: float) -> Predictive:
        """The distributions of X + by."""

    @abc.abstractmethod
    def integrated_cdf(self, knots: Floats) -> Floats:
        """(n, K) E (t - X)+ at each knot t."""

    @abc.abstractmethod
    def cdf_bounds(self, y: Floats) -> tuple[Floats, Floats]:
        """(n,) P(X < y) and (n,) P(X <= y), row i at y_i."""

    @abc.abstractmethod
    def mean(self) -> Floats:
        """(n,) means."""

    @abc.abstractmethod
    def variance(self) -> Floats:
        """(n,) variances."""

    @abc.abstractmethod
    def quantile(self, levels: ArrayLike) -> Floats:
        """(n, L) quantiles at levels in (0, 1): the smallest x with F(x) >= level."""

    @abc.abstractmethod
    def crps(self, y: ArrayLike) -> Floats:
        """(n,) continuous ranked probability score E|X - y| - E|X - X'|/2, in closed form."""

    @abc.abstractmethod
    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> Floats:
        """(n, size) independent draws."""

    @abc.abstractmethod
    def pooled(self) -> tuple[Floats, Floats]:
        """Points and weights whose distribution is that of all rows pooled (or near it)."""

    @abc.abstractmethod
    def span(self) -> tuple[float, float]:
        """Ends between which all rows have their mass (up to 1e-14)."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, NDArray]:
        """What defines it, as arrays that `Predictive.from_arrays` reads."""

    def std(self) -> Floats:
        """(n,) standard deviations."""
        return np.sqrt(self.variance())

    def median(self) -> Floats:
        """(n,) medians."""
        return self.quantile([0.5])[:, 0]

    def interval(self, coverage: float = 0.9) -> Interval:
        """Central intervals of a nominal coverage in (0, 1)."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage={coverage!r} must lie strictly between 0 and 1")
        ends = self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])
        return Interval(ends[:, 0], ends[:, 1])

    @staticmethod
    def from_arrays(arrays: dict[str, NDArray]) -> Predictive:
        """The distributions that `arrays` described."""
        if "mu" in arrays:
            return GaussianMixture(arrays["mu"], arrays["var"], arrays["pi"])
        return WeightedSamples(arrays["values"], arrays.get("weights"))


class WeightedSamples(Predictive):
    """Discrete distributions: row i puts ``weights[i, j]`` on ``values[i, j]``.

    Args:
        values: (n, m) atoms, or (m,) atoms that all rows share; any order.
        weights: (n, m) or (m,) weights >= 0 whose rows have a positive sum (they are normalised);
            None: equal weights.

    Raises:
        ValueError: shapes disagree, a value is not finite, a weight is negative or a row has none.
    """

    def __init__(self, values: ArrayLike, weights: ArrayLike | None = None) -> None:
        atoms = real_numbers(values, "values")
        if atoms.ndim not in (1, 2) or atoms.size == 0:
            raise ValueError(f"values has shape {atoms.shape}: give (n, m) or, shared, (m,)")
        _first_bad_row(np.atleast_2d(atoms), "values")
        order = np.argsort(atoms, axis=-1, kind="stable")
        self.values: Floats = np.take_along_axis(atoms, order, axis=-1)
        self.weights: Floats | None = None
        if weights is not None:
            self.weights = _sorted_weights(real_numbers(weights, "weights"), atoms, order)
        elif atoms.ndim == 1:
            raise ValueError("values of shape (m,) are shared by all rows: give weights (n, m)")

    @property
    def shared(self) -> bool:
        """Whether all rows have the same atoms."""
        return self.values.ndim == 1

    def __len__(self) -> int:
        return len(self.weights) if self.shared and self.weights is not None else len(self.values)

    def _pick(self, rows: Any) -> WeightedSamples:
        picked = object.__new__(WeightedSamples)
        picked.values = self.values if self.shared else self.values[rows]
        by_row = self.weights is not None and self.weights.ndim == 2
        picked.weights = self.weights[rows] if by_row else self.weights  # pyright: ignore
        return picked

    def moved(self, by: float) -> WeightedSamples:
        moved = object.__new__(WeightedSamples)
        moved.values, moved.weights = self.values + by, self.weights
        return moved

    def _row_values(self) -> Floats:
        """(n, m) atoms, sorted in each row (a view where they are shared)."""
        return np.broadcast_to(self.values, (len(self), self.values.shape[-1]))

    def _row_weights(self) -> Floats:
        """(n, m) weights (a view where rows share them)."""
        m = self.values.shape[-1]
        weights = np.full(m, 1 / m) if self.weights is None else self.weights
        return np.broadcast_to(weights, (len(self), m))

    def _cumulative(self) -> Floats:
        """(n, m + 1) weights of the first 0, 1, …, m atoms; the last is exactly 1."""
        cumulative = np.zeros((len(self), self.values.shape[-1] + 1))
        np.cumsum(self._row_weights(), axis=1, out=cumulative[:, 1:])
        cumulative[:, -1] = 1.0
        return cumulative

    def integrated_cdf(self, knots: Floats) -> Floats:
        if self.shared:
            return self._row_weights() @ np.maximum(knots - self.values[:, None], 0)
        found = np.empty((len(self), len(knots)))
        mass = self._cumulative()
        first = np.zeros_like(mass)
        np.cumsum(self._row_weights() * self.values, axis=1, out=first[:, 1:])
        for i, row in enumerate(self.values):
            at = np.searchsorted(row, knots, side="right")
            found[i] = knots * mass[i, at] - first[i, at]
        return np.maximum(found, 0)

    def cdf_bounds(self, y: Floats) -> tuple[Floats, Floats]:
        y = np.asarray(y, dtype=float)[:, None]
        values, weights = self._row_values(), self._row_weights()
        below = np.where(values < y, weights, 0).sum(axis=1)
        return below, np.minimum(below + np.where(values == y, weights, 0).sum(axis=1), 1.0)

    def mean(self) -> Floats:
        values = self._row_values()
        lowest = values[:, :1]  # sums of gaps keep the digits that a common offset would take
        return lowest[:, 0] + np.einsum("nm,nm->n", self._row_weights(), values - lowest)

    def variance(self) -> Floats:
        centred = self._row_values() - self.mean()[:, None]
        return np.einsum("nm,nm,nm->n", self._row_weights(), centred, centred)

    def quantile(self, levels: ArrayLike) -> Floats:
        levels = _levels(levels)
        mass, values = self._cumulative()[:, 1:], self._row_values()
        # Rounding must not push a level past an atom that holds it exactly.
        at = np.stack([(mass < level - 1e-12).sum(axis=1) for level in levels], axis=1)
        return np.take_along_axis(values, np.minimum(at, values.shape[1] - 1), axis=1)

    def crps(self, y: ArrayLike) -> Floats:
        y = np.asarray(y, dtype=float)
        values, weights = self._row_values(), self._row_weights()
        to_outcome = np.einsum("nm,nm->n", weights, np.abs(values - y[:, None]))
        return to_outcome - self.half_spread()

    def half_spread(self) -> Floats:
        """(n,) E|X - X'| / 2 = integral of F (1 - F)."""
        inner = self._cumulative()[:, 1:-1]
        return np.einsum("nm,nm->n", inner * (1 - inner), np.diff(self._row_values(), axis=1))

    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> Floats:
        uniform = np.random.default_rng(seed).random((len(self), size))
        mass = self._cumulative()[:, 1:-1]
        at = np.stack(
            [np.searchsorted(m, u, side="right") for m, u in zip(mass, uniform, strict=True)]
        )
        return np.take_along_axis(self._row_values(), at, axis=1)

    def smooth(self, bandwidth: float | None = None) -> GaussianMixture:
        """The same distributions with each atom widened to a Gaussian.

        Args:
            bandwidth: standard deviation of the Gaussians, in units of y; None: Silverman's rule
                on each row, with its effective number of atoms 1 / sum of squared weights.
        """
        weights = self._row_weights()
        if bandwidth is None:
            effective = 1 / np.einsum("nm,nm->n", weights, weights)
            widths = 0.9 * self.std() * effective**-0.2
        else:
            widths = np.full(len(self), float(bandwidth))
        values = np.array(self._row_values())
        variances = np.broadcast_to((widths**2)[:, None], values.shape)
        return GaussianMixture(values, variances, weights)

    def pooled(self) -> tuple[Floats, Floats]:
        if self.shared:
            return self.values, self._row_weights().mean(axis=0)
        return self.values.ravel(), self._row_weights().ravel()

    def span(self) -> tuple[float, float]:
        return float(self.values.min()), float(self.values.max())

    def arrays(self) -> dict[str, NDArray]:
        weights = {} if self.weights is None else {"weights": self.weights}
        return {"values": self.values, **weights}


def _sorted_weights(weights: Floats, atoms: Floats, order: NDArray[np.intp]) -> Floats:
    """Normalised weights in the order of the sorted atoms."""
    fits = weights.ndim in (1, 2) and weights.shape[-1] == atoms.shape[-1]
    if atoms.ndim == 2 and weights.ndim == 2:
        fits = weights.shape == atoms.shape
    elif atoms.ndim == 1:
        fits = fits and weights.ndim == 2
    if not fits:
        raise ValueError(f"weights {weights.shape} do not fit values {atoms.shape}")
    _first_bad_row(np.atleast_2d(weights), "weights")
    total = weights.sum(axis=-1, keepdims=True)
    if (weights < 0).any() or (total <= 0).any():
        raise ValueError("weights must be >= 0 with a positive sum in every row")
    weights = weights / total
    if atoms.ndim == 1:
        return weights[:, order]
    return np.take_along_axis(np.broadcast_to(weights, atoms.shape), order, axis=-1)


class SupportWeights(WeightedSamples):
    """Rows that weigh one shared support, as a random forest weighs its training outcomes.

    Args:
        weights: (n, m) weights >= 0.
        support: (m,) outcomes.
    """

    def __init__(self, weights: ArrayLike, support: ArrayLike) -> None:
        support = np.asarray(support, dtype=float)
        if support.ndim != 1:
            raise ValueError(f"support has shape {support.shape}: give (m,) outcomes")
        super().__init__(support, np.atleast_2d(np.asarray(weights, dtype=float)))


class Quantiles(WeightedSamples):
    """Rows known by their quantiles, read as weighted samples.

    A level carries the mass half-way to its neighbours, so that K mid-levels (k - 1/2)/K carry 1/K
    each.

    Args:
        levels: (K,) strictly increasing levels in (0, 1).
        values: (n, K) quantiles. Rows that decrease somewhere are sorted, with a
            `CrossingQuantiles` warning that counts them.

    Raises:
        ValueError: levels are not increasing, lie outside (0, 1) or do not fit the values.
    """

    def __init__(self, levels: ArrayLike, values: ArrayLike) -> None:
        levels = _levels(levels)
        if len(levels) < 2 or not (np.diff(levels) > 0).all():
            raise ValueError(
                f"levels={levels.tolist()} must be at least two and strictly increasing"
            )
        values = np.atleast_2d(real_numbers(values, "values"))
        if values.ndim != 2 or values.shape[1] != len(levels):
            raise ValueError(
                f"values has shape {values.shape} but there are {len(levels)} levels: give "
                f"(n, {len(levels)}), one column a level"
            )
        crossing = int((np.diff(values, axis=1) < 0).any(axis=1).sum())
        if crossing:
            warnings.warn(
                f"{crossing} of {len(values)} rows have crossing quantiles; they were sorted",
                CrossingQuantiles,
                stacklevel=2,
            )
        edges = np.concatenate([[0.0], (levels[1:] + levels[:-1]) / 2, [1.0]])
        super().__init__(np.sort(values, axis=1), np.diff(edges))


class GaussianMixture(Predictive):
    """Mixtures of Gaussians; one component makes a Gaussian.

    Args:
        mu: (n, C) or (n,) component means.
        var: (n, C) or (n,) component variances, > 0.
        pi: (n, C) or (C,) component weights >= 0, normalised here; None: equal.

    Raises:
        ValueError: shapes disagree, a variance is not positive, a number is not finite.
    """

    def __init__(self, mu: ArrayLike, var: ArrayLike, pi: ArrayLike | None = None) -> None:
        self.mu: Floats = _columns(real_numbers(mu, "mu"))
        self.var: Floats = np.broadcast_to(_columns(real_numbers(var, "var")), self.mu.shape)
        components = self.mu.shape[1]
        weights = np.full(components, 1 / components) if pi is None else real_numbers(pi, "pi")
        if weights.shape[-1] != self.mu.shape[1] and weights.shape != self.mu.shape[:1]:
            raise ValueError(f"pi {weights.shape} does not fit mu {self.mu.shape}")
        weights = np.broadcast_to(
            weights[:, None] if weights.shape[-1] != self.mu.shape[1] else weights, self.mu.shape
        )
        for name, array in (("mu", self.mu), ("var", self.var), ("pi", weights)):
            _first_bad_row(array, name)
        narrow = (self.var <= 0).any(axis=1)
        if narrow.any():
            row = int(np.argmax(narrow))
            raise ValueError(
                f"var must be > 0 (a standard deviation likewise); row {row} has "
                f"{self.var[row].min():g}"
            )
        total = weights.sum(axis=1, keepdims=True)
        if (weights < 0).any() or (total <= 0).any():
            raise ValueError("pi must be >= 0 with a positive sum in every row")
        if np.abs(total - 1).max(initial=0) > 1e-3:
            row = int(np.abs(total - 1).argmax())
            raise ValueError(
                f"pi must sum to 1 in every row; row {row} sums to {total[row, 0]:.4g}"
            )
        self.pi: Floats = weights / total

    def __len__(self) -> int:
        return len(self.mu)

    def _pick(self, rows: Any) -> GaussianMixture:
        return GaussianMixture(self.mu[rows], self.var[rows], self.pi[rows])

    def moved(self, by: float) -> GaussianMixture:
        moved = object.__new__(GaussianMixture)
        moved.mu, moved.var, moved.pi = self.mu + by, self.var, self.pi
        return moved

    def _standardised(self, t: Floats) -> tuple[Floats, Floats]:
        """((n, C, K) z, (n, C, 1) standard deviations) of points t, shaped (n, 1, K) or (K,)."""
        deviation = np.sqrt(self.var)[:, :, None]
        return (t - self.mu[:, :, None]) / deviation, deviation

    def _cdf(self, t: Floats) -> Floats:
        """(n, K) CDF of row i at t[i] (n, K)."""
        z, _ = self._standardised(t[:, None, :])
        return np.einsum("nc,nck->nk", self.pi, special.ndtr(z))

    def integrated_cdf(self, knots: Floats) -> Floats:
        rows = max(1, CHUNK // (len(knots) * self.mu.shape[1]))
        pieces = []
        for start in range(0, len(self), rows):
            part = self._pick(slice(start, start + rows))
            z, deviation = part._standardised(knots)
            h = deviation * (z * special.ndtr(z) + _density(z))
            pieces.append(np.einsum("nc,nck->nk", part.pi, np.maximum(h, 0)))
        return np.concatenate(pieces)

    def cdf_bounds(self, y: Floats) -> tuple[Floats, Floats]:
        value = self._cdf(np.asarray(y, dtype=float)[:, None])[:, 0]
        return value, value

    def mean(self) -> Floats:
        return np.einsum("nc,nc->n", self.pi, self.mu)

    def variance(self) -> Floats:
        centred = self.mu - self.mean()[:, None]
        return np.einsum("nc,nc->n", self.pi, self.var + centred**2)

    def quantile(self, levels: ArrayLike) -> Floats:
        levels = _levels(levels)
        ends = self.mu[:, :, None] + np.sqrt(self.var)[:, :, None] * special.ndtri(levels)
        low, high = ends.min(axis=1), ends.max(axis=1)
        if self.mu.shape[1] == 1:
            return low
        for _ in range(60):  # bisection: 2^-60 of the widest bracket
            middle = (low + high) / 2
            beyond = self._cdf(middle) >= levels
            low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
        return high

    def crps(self, y: ArrayLike) -> Floats:
        y = np.asarray(y, dtype=float)[:, None]
        to_outcome = np.einsum("nc,nc->n", self.pi, mean_absolute_normal(y - self.mu, self.var))
        return to_outcome - self.half_spread()

    def half_spread(self) -> Floats:
        """(n,) E|X - X'| / 2, over all pairs of components."""
        found = np.empty(len(self))
        for i, (mu, var, pi) in enumerate(zip(self.mu, self.var, self.pi, strict=True)):
            pairs = mean_absolute_normal(mu[:, None] - mu, var[:, None] + var)
            found[i] = pi @ pairs @ pi / 2
        return found

    def sample(self, size: int, seed: int | np.random.Generator | None = None) -> Floats:
        rng = np.random.default_rng(seed)
        which = WeightedSamples(np.arange(self.mu.shape[1]), self.pi).sample(size, rng).astype(int)
        mu, var = (np.take_along_axis(a, which, axis=1) for a in (self.mu, self.var))
        return mu + np.sqrt(var) * rng.standard_normal(mu.shape)

    def pooled(self) -> tuple[Floats, Floats]:
        levels = int(np.clip(20_000 // self.mu.size, 9, 401))
        z = special.ndtri((np.arange(levels) + 0.5) / levels)
        points = self.mu[:, :, None] + np.sqrt(self.var)[:, :, None] * z
        return points.ravel(), np.repeat(self.pi.ravel(), len(z))

    def span(self) -> tuple[float, float]:
        reach = 8 * np.sqrt(self.var)
        return float((self.mu - reach).min()), float((self.mu + reach).max())

    def arrays(self) -> dict[str, NDArray]:
        return {"mu": self.mu, "var": self.var, "pi": self.pi}


def normal(mean: ArrayLike, std: ArrayLike) -> GaussianMixture:
    """Gaussian predictions.

    Args:
        mean: (n,) means.
        std: (n,) standard deviations, > 0.
    """
    std = real_numbers(std, "std")
    bad = ~np.isfinite(std) | (std <= 0)
    if bad.any():
        row = int(np.flatnonzero(bad.ravel())[0])
        raise ValueError(f"std must be finite and > 0; row {row} has {std.ravel()[row]:g}")
    if std.max(initial=0) > LARGEST:
        raise ValueError(
            f"std holds {std.max():.3g}: numbers up to {LARGEST:g} are accepted; rescale P and y"
        )
    return GaussianMixture(mean, std**2)


def mean_absolute_normal(mu: Floats, var: Floats) -> Floats:
    """E|Z| for Z ~ N(mu, var), elementwise; var = 0 gives |mu|."""
    deviation = np.sqrt(var)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = mu / deviation
        value = mu * (2 * special.ndtr(z) - 1) + 2 * deviation * _density(z)
    return np.where(deviation > 0, value, np.abs(mu))


def as_predictive(predictions: Any, n: int | None = None) -> Predictive:
    """Read predictions in any form that is accepted.

    Args:
        predictions: an (n, m) array of samples; a `Predictive` (`WeightedSamples`,
            `SupportWeights`, `Quantiles`, `GaussianMixture`); a pair (mean, std) of (n,) arrays; a
            skpro ``BaseDistribution``; or a frozen scipy distribution with n values. The last two
            are read through their quantiles at 200 mid-levels (Gaussians exactly).
        n: number of outcomes, to be checked against the rows.

    Raises:
        TypeError: nothing of these.
        ValueError: not finite, or not n rows.
    """
    found = _read(predictions, n)
    if n is not None and len(found) != n:
        raise ValueError(f"P has {len(found)} rows but y has {n} values")
    return found


def _read(predictions: Any, n: int | None) -> Predictive:
    if isinstance(predictions, Predictive):
        return predictions
    if isinstance(predictions, tuple):
        if len(predictions) != 2:
            raise ValueError(f"P is a tuple of {len(predictions)}: give (mean, std)")
        mean, std = (
            real_numbers(part, name).ravel()
            for part, name in zip(predictions, ("mean", "std"), strict=True)
        )
        if mean.shape != std.shape:
            raise ValueError(f"mean {mean.shape} and std {std.shape} differ in length")
        _first_bad_row(mean[:, None], "mean")
        return normal(mean, std)
    kind = type(predictions).__module__.split(".")[0]
    levels = (np.arange(200) + 0.5) / 200
    law: Any = predictions
    if kind == "skpro":
        if type(law).__name__ == "Normal":
            return normal(
                np.asarray(law.mean(), dtype=float).ravel(),
                np.sqrt(np.asarray(law.var(), dtype=float)).ravel(),
            )
        columns = [np.asarray(law.ppf(level), dtype=float).ravel() for level in levels]
        return Quantiles(levels, np.stack(columns, axis=1))
    if kind == "scipy" and hasattr(law, "ppf"):
        values = np.atleast_1d(law.ppf(levels[:, None])).T
        return Quantiles(levels, values)
    return _samples(predictions, n)


def _samples(predictions: Any, n: int | None) -> WeightedSamples:
    if np.iscomplexobj(predictions):
        raise TypeError("P holds complex numbers: give real samples")
    try:
        array = np.asarray(predictions, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"P is a {type(predictions).__name__}: give an (n, m) array of samples, (mean, std), "
            "Quantiles, SupportWeights, GaussianMixture, or a skpro or scipy distribution"
        ) from error
    if array.ndim != 2:
        raise ValueError(
            f"P has shape {array.shape}: samples are (n, m), one row of m draws a prediction"
        )
    if n is not None and len(array) != n and array.shape[1] == n:
        raise ValueError(
            f"P has shape {array.shape} but y has shape ({n},): the rows must be predictions; "
            "P looks transposed, pass P.T"
        )
    _first_bad_row(array, "P")
    return WeightedSamples(array)


def _levels(levels: ArrayLike) -> Floats:
    levels = np.atleast_1d(np.asarray(levels, dtype=float))
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"levels={levels.tolist()} must lie strictly between 0 and 1")
    if not len(levels):
        raise ValueError("levels is empty: give at least one number between 0 and 1")
    return levels


def real_numbers(array: ArrayLike, name: str) -> Floats:
    """An array of floats; complex numbers would lose their imaginary part unseen."""
    if np.iscomplexobj(array):
        raise TypeError(f"{name} holds complex numbers: give real numbers")
    try:
        return np.asarray(array, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} holds something that is no number: give numbers") from None


def _columns(array: ArrayLike) -> Floats:
    array = np.asarray(array, dtype=float)
    if array.ndim not in (1, 2):
        raise ValueError(f"shape {array.shape}: give (n,) or (n, C)")
    return array[:, None] if array.ndim == 1 else array


def _first_bad_row(array: Floats, name: str) -> None:
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{name} holds NaN or infinity in {int(bad.sum())} of {len(array)} rows, first in row "
            f"{int(np.argmax(bad))}: drop or mend them"
        )
    largest = np.abs(array).max(initial=0)
    if name == "var" and largest > LARGEST**2:
        raise ValueError(
            f"var holds {largest:.3g}, a standard deviation of {np.sqrt(largest):.3g}: standard "
            f"deviations up to {LARGEST:g} are accepted; rescale P and y"
        )
    if largest > LARGEST and name != "var":
        raise ValueError(
            f"{name} holds {largest:.3g}: numbers up to {LARGEST:g} are accepted; rescale P and y"
        )


def _density(z: Floats) -> Floats:
    return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
