"""Mean-field theory of a layer of leaky integrate-and-fire neurons, and the roots that keep it.

The neuron (hard reset; κ the leak, λ the input gain, θ the threshold)::

    v_t = κ · v_{t-1} · (1 - s_{t-1}) + λ · x_t        s_t = 1[v_t >= θ]

Its input is x = W s with W_ij ~ N(0, σ²/fan_in), and the inputs s fire at rate p, so that λx has
the variance s_x² = p (λσ)². In the steady state v ~ N(m, s²) with, at a = (θ - m)/s::

    m       = κ (m Φ(a) - s φ(a))
    m² + s² = κ² [(m² + s²) Φ(a) - s (θ + m) φ(a)] + s_x²

and the output rate is 1 - Φ(a) (Shi and Yu, ICML 2026, Theorem 4.1). The two equations are solved
here in closed form for a wanted rate: the rate gives a, the first equation then gives m/s, the
definition of a gives s, and the second equation s_x (`steady_state`). With κ = 1 there is no steady
state, and other resets have other equations: those are simulated (`simulation`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

Reset = Literal["hard", "soft", "subtract"]
Surrogate = Literal["piecewise_exp", "atan", "sigmoid", "triangle"]
Method = Literal["auto", "moments", "sim", "correlated"]

#: Where the slope of the rate must lie for `rate="auto"`.
STABLE_SLOPE = 0.9


class UnstableRate(UserWarning):
    """A small error of the rate grows from layer to layer at these settings."""


@dataclasses.dataclass(frozen=True)
class Neuron:
    """The constants of a neuron.

    Attributes:
        kappa: what is left of the potential after a step, in [0, 1] (1 - 1/τ; IF neurons: 1).
        lam: gain of the input, > 0.
        theta: threshold, > 0.
        reset: after a spike: ``hard`` (to zero), ``soft`` (θ is taken off before the leak, as
            SpikingJelly does) or ``subtract`` (taken off after it, as snnTorch does).
        refractory: steps after a spike in which the neuron is held at zero.
    """

    kappa: float = 0.5
    lam: float = 0.5
    theta: float = 0.5
    reset: Reset = "hard"
    refractory: int = 0

    def __post_init__(self) -> None:
        for name in ("kappa", "lam", "theta"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"{name}={value!r}: expected a finite number")
        if not 0 <= self.kappa <= 1:
            raise ValueError(
                f"kappa={self.kappa!r}: expected 0 to 1, what is left of the potential after a "
                "step (1 - 1/tau for a time constant tau >= 1; 1 for IF neurons)"
            )
        if self.lam <= 0:
            raise ValueError(
                f"lam={self.lam!r}: expected a gain > 0 (1/tau with decay_input, or 1)"
            )
        if self.theta <= 0:
            raise ValueError(f"theta={self.theta!r}: expected a threshold > 0")
        for name in ("lam", "theta"):  # squares and reciprocals of both are taken
            if not 1e-100 <= getattr(self, name) <= 1e100:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: expected 1e-100 to 1e100, beyond it double "
                    "precision does not hold what follows from it"
                )
        if self.reset not in get_args(Reset):
            raise ValueError(f"reset={self.reset!r}: expected one of {', '.join(get_args(Reset))}")
        if self.refractory < 0 or int(self.refractory) != self.refractory:
            raise ValueError(f"refractory={self.refractory!r}: expected a whole number >= 0")

    @property
    def has_steady_state(self) -> bool:
        """Whether the moment equations apply: a leak, a hard reset, no refractory time."""
        return self.kappa < 1 and self.reset == "hard" and self.refractory == 0


class SteadyState(NamedTuple):
    """The membrane in the steady state.

    Attributes:
        mean, std: of v.
        drive: s_x, the standard deviation of the weighted input λx that keeps it there.
    """

    mean: float
    std: float
    drive: float


def _phi(a: float) -> float:
    return math.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)


def find_root(f: Callable[[float], float], low: float, high: float, xtol: float) -> float:
    """Where a function crosses zero between two points at which its signs differ (Brent)."""
    return float(brentq(f, low, high, xtol=xtol))  # pyright: ignore[reportArgumentType]


def max_rate(kappa: float) -> float:
    """The rate at endless drive, which no rate can reach: Φ(μ), μ = κ(μΦ(-μ) - φ(μ)).

    Args:
        kappa: leak, in [0, 1]. At 1 the answer is 0: there is no steady state.
    """
    if kappa >= 1:
        return 0.0
    # μ lies in [-40, 0]: the left side rises, the right side falls in -μ.
    found = find_root(lambda u: u - kappa * (u * ndtr(-u) - _phi(u)), -40.0, 1e-12, xtol=1e-14)
    return float(ndtr(found))


def steady_state(neuron: Neuron, rate: float) -> SteadyState:
    """The steady state in which the neuron fires at a rate (closed form).

    Raises:
        ValueError: the neuron has no steady state, or it cannot fire at this rate.
    """
    if not neuron.has_steady_state:
        raise ValueError(
            "there is no steady state for kappa=1, soft resets and refractory neurons: "
            "method='sim' simulates them over T steps"
        )
    limit = max_rate(neuron.kappa)
    if not 0 < rate < limit:
        raise ValueError(
            f"rate={rate!r}: expected between 0 and {limit:.4g}, the rate at endless drive for "
            f"kappa={neuron.kappa:g}; a lower rate, or a smaller kappa, is needed"
        )
    return _at(neuron, -float(ndtri(rate)))


def _at(neuron: Neuron, a: float) -> SteadyState:
    """The steady state whose threshold lies a standard deviations above the mean."""
    kappa, theta = neuron.kappa, neuron.theta
    below, density = float(ndtr(a)), _phi(a)
    g = kappa * density / (1 - kappa * below)  # -m/s, from the first equation
    s = theta / (a - g)
    m = -g * s
    second = m * m + s * s
    drive2 = second - kappa**2 * (second * below - s * (theta + m) * density)
    return SteadyState(m, s, math.sqrt(drive2))


def rate_of(neuron: Neuron, drive: float) -> float:
    """The steady rate under Gaussian input of standard deviation ``drive`` = s_x, by bisection."""
    if drive <= 0:
        return 0.0
    lowest = -float(ndtri(max_rate(neuron.kappa)))
    a = find_root(
        lambda a: math.log(_at(neuron, a).drive / drive), lowest + 1e-9, lowest + 60, xtol=1e-13
    )
    return float(ndtr(-a))


def slope_of(neuron: Neuron, rate: float) -> float:
    """χ = dq/dp at the fixed point for fixed weights: the factor by which an error of the rate
    grows from a layer to the next; above 1 the rate drifts away."""
    state = steady_state(neuron, rate)
    a = (neuron.theta - state.mean) / state.std
    step = 1e-5
    high, low = _at(neuron, a + step).drive ** 2, _at(neuron, a - step).drive ** 2
    # s_x² is proportional to p, so that dq/dp = (dq/da) / (d s_x²/da) · s_x²/p.
    return -_phi(a) * (state.drive**2 / rate) / ((high - low) / (2 * step))


def stable_rate(neuron: Neuron) -> float:
    """The smallest rate of at least 0.1 whose slope is at most 0.9 (`rate="auto"`).

    Neurons that cannot fire at 0.1 (κ above about 0.95) get nine tenths of their largest rate.
    """
    limit = max_rate(neuron.kappa)
    start = min(0.1, 0.9 * limit)
    if slope_of(neuron, start) <= STABLE_SLOPE:
        return start
    return float(
        find_root(lambda p: slope_of(neuron, p) - STABLE_SLOPE, start, 0.999 * limit, xtol=1e-6)
    )


# ---- the first layer ---------------------------------------------------------------------------


def static_rate(neuron: Neuron, drive: float, T: int | None = None) -> float:
    """The rate under input that does not change over time, λx ~ N(0, drive²) once a neuron.

    A neuron that needs k steps to reach θ fires every k steps: at rate 1/k in the long run, and
    ⌊T/k⌋ times in T steps (hard reset only).

    Args:
        neuron: its constants.
        drive: standard deviation of λx.
        T: number of steps, or None for the long run.
    """
    kappa, theta = neuron.kappa, neuron.theta
    ks = np.arange(1, (T or 100_000) + 1, dtype=float)
    if T is None and kappa < 1:  # κ^k is below the precision from there on
        ks = ks[: max(2, math.ceil(-37 / math.log(max(kappa, 1e-16))) + 1)]
    sums = ks if kappa == 1 else (1 - kappa**ks) / (1 - kappa)
    fires_by = ndtr(-theta / (drive * sums))
    within = np.diff(fires_by, prepend=0.0)  # needs exactly k steps
    weight = 1 / ks if T is None else np.floor(T / ks) / T
    return float(within @ weight)


def static_drive(neuron: Neuron, rate: float, T: int | None = None) -> float:
    """The standard deviation of unchanging input λx at which the first layer fires at ``rate``.

    Raises:
        ValueError: half of the neurons see negative input and never fire: the rate is 0.5 or more.
    """
    if not 0 < rate < 0.5:
        raise ValueError(f"rate={rate!r}: under constant input expected between 0 and 0.5")
    theta = neuron.theta
    return float(
        math.exp(
            find_root(
                lambda u: static_rate(neuron, math.exp(u), T) - rate,
                math.log(theta * 1e-3),
                math.log(theta * 1e5),
                xtol=1e-12,
            )
        )
    )


# ---- the surrogate -----------------------------------------------------------------------------


def backward_gain(neuron: Neuron, rate: float, sigma: float, second_moment: float) -> float:
    """The factor by which the variance of gradients grows a layer, M₂ (σλ)² / (1 - (1-p)κ²)
    (Theorem 5.1): 1 keeps them. Gradients through the reset are taken as detached."""
    return second_moment * (sigma * neuron.lam) ** 2 / (1 - (1 - rate) * neuron.kappa**2)


def piecewise_exp_moment(alpha: float, mean: float, std: float, theta: float) -> float:
    """M₂ = E[α² e^{-4α|v-θ|}] for v ~ N(mean, std²), of the surrogate slope α e^{-2α|v-θ|}.

    In closed form through log Φ, because a quadrature misses the kink at large α.
    """
    c, delta = 4 * alpha, mean - theta
    half = 0.5 * (c * std) ** 2
    right = math.exp(half - c * delta + float(log_ndtr(delta / std - c * std)))
    left = math.exp(half + c * delta + float(log_ndtr(-delta / std - c * std)))
    return alpha**2 * (right + left)


def slope_squared(surrogate: Surrogate, alpha: float, u: np.ndarray) -> np.ndarray:
    """The square of a surrogate's slope at u = v - θ.

    ``piecewise_exp``: α e^{-2α|u|}; ``atan``: α/2 / (1 + (πuα/2)²); ``sigmoid``: α S(1-S) with
    S = 1/(1 + e^{-αu}); ``triangle``: α max(0, 1 - α|u|). All have area 1.
    """
    if surrogate == "piecewise_exp":
        slope = alpha * np.exp(-2 * alpha * np.abs(u))
    elif surrogate == "atan":
        slope = alpha / 2 / (1 + (math.pi / 2 * alpha * u) ** 2)
    elif surrogate == "sigmoid":
        half = np.exp(-np.abs(alpha * u))
        slope = alpha * half / (1 + half) ** 2
    elif surrogate == "triangle":
        slope = alpha * np.maximum(0.0, 1 - alpha * np.abs(u))
    else:
        known = ", ".join(get_args(Surrogate))
        raise ValueError(f"surrogate={surrogate!r}: expected one of {known}")
    return slope**2


def surrogate_moment(
    surrogate: Surrogate, alpha: float, mean: float, std: float, theta: float
) -> float:
    """M₂, the second moment of a surrogate's slope over v ~ N(mean, std²)."""
    if surrogate == "piecewise_exp":
        return piecewise_exp_moment(alpha, mean, std, theta)
    # In the surrogate's own scale w = αu, so that its kink and width stand still as α changes.
    scale = max(1.0, alpha * std)
    w = np.linspace(-12 * scale, 12 * scale, 240_001)
    density = np.exp(-0.5 * ((w / alpha + theta - mean) / std) ** 2) / (
        std * math.sqrt(2 * math.pi)
    )
    return float(np.trapezoid(slope_squared(surrogate, alpha, w / alpha) * density, w) / alpha)
