"""The same roots by simulation over T steps: for finite T, IF neurons, other resets.

Two pictures of a layer's input over time:

- independent steps, as in the paper's Monte Carlo: λx_t ~ N(0, s_x²) anew at each step
  (`simulate_independent`);
- steps as correlated as the spikes of the layer before makes them (ours): the input is Gaussian
  with Cov(x_t, x_t') = σ² E[s_t s_t'], which even for independent spikes is not 0 but σ²p². The
  correlation that reproduces itself from layer to layer is found along with σ
  (`simulate_correlated`), and α is then the one for which the largest eigenvalue of the map of
  gradient covariances G -> (λσ)² E[A G Aᵀ] is 1, A being a neuron's Jacobian over time.

All draws are common random numbers from one seed, so that a root is a root of one smooth-enough
function and the answer is deterministic. Legend: T steps, N simulated neurons.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.neuro.spikeinit.theory import Neuron, Surrogate, find_root, slope_squared

Floats = NDArray[np.float64]


class Simulated(NamedTuple):
    """A layer's fixed point, by simulation.

    Attributes:
        drive: standard deviation of λx that gives the rate.
        mean, std: of the membrane before resets, over neurons and steps.
        correlation: (T, T), of the input over time, 1 on the diagonal where all steps fire alike.
        potentials: (T, N).
        spikes: (T, N), 0 or 1.
    """

    drive: float
    mean: float
    std: float
    correlation: Floats
    potentials: Floats
    spikes: Floats


def fire(neuron: Neuron, current: Floats) -> tuple[Floats, Floats]:
    """Potentials and spikes of neurons under the weighted input λx.

    Args:
        neuron: its constants.
        current: (T, N).

    Returns:
        (T, N) potentials at the time of the decision, (T, N) spikes.
    """
    potentials, spikes = np.empty_like(current), np.empty_like(current)
    v = np.zeros_like(current[0])
    rest = np.zeros_like(current[0])
    for t, x in enumerate(current):
        v = v + x  # v is what the leak and the reset have left
        if neuron.refractory:
            v = np.where(rest > 0, 0.0, v)
        s = (v >= neuron.theta).astype(float)
        potentials[t], spikes[t] = v, s
        if neuron.refractory:
            rest = np.where(s > 0, neuron.refractory, rest - 1)
        if neuron.reset == "hard":
            v = neuron.kappa * v * (1 - s)
        elif neuron.reset == "soft":
            v = neuron.kappa * (v - neuron.theta * s)
        else:
            v = neuron.kappa * v - neuron.theta * s
    return potentials, spikes


def simulate_independent(
    neuron: Neuron, rate: float, T: int, *, draws: int = 100_000, seed: int = 0
) -> Simulated:
    """The drive at which the mean rate over T steps is ``rate``, steps independent.

    Raises:
        ValueError: no drive gives this rate.
    """
    z = np.random.default_rng(seed).standard_normal((T, draws))
    return _at_rate(neuron, rate, z, np.eye(T))


def simulate_correlated(
    neuron: Neuron, rate: float, T: int, *, draws: int = 40_000, seed: int = 0, rounds: int = 30
) -> Simulated:
    """The drive, and the correlation over time that reproduces itself, at which the mean rate over
    T steps is ``rate``.

    Raises:
        ValueError: no drive gives this rate.
    """
    z = np.random.default_rng(seed).standard_normal((T, draws))
    correlation = (1 - rate) * np.eye(T) + rate
    found = _at_rate(neuron, rate, _coloured(z, correlation), correlation)
    for _ in range(rounds):
        new = found.spikes @ found.spikes.T / draws / rate
        change = np.abs(new - found.correlation).max()
        found = _at_rate(neuron, rate, _coloured(z, new), new)
        if change < 1e-3:
            break
    return found


def _coloured(z: Floats, correlation: Floats) -> Floats:
    values, vectors = np.linalg.eigh(correlation)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ z


def _at_rate(neuron: Neuron, rate: float, unit: Floats, correlation: Floats) -> Simulated:
    def excess(u: float) -> float:
        return float(fire(neuron, math.exp(u) * unit)[1].mean()) - rate

    low, high = math.log(neuron.theta * 1e-2), math.log(neuron.theta * 1e4)
    if excess(high) < 0:
        limit = excess(high) + rate
        raise ValueError(
            f"rate={rate!r}: these neurons fire at most at {limit:.3f} over {len(unit)} steps; "
            "a lower rate is needed"
        )
    drive = math.exp(find_root(excess, low, high, xtol=1e-5))
    v, s = fire(neuron, drive * unit)
    return Simulated(drive, float(v.mean()), float(v.std()), correlation, v, s)


def simulated_static_drive(
    neuron: Neuron, rate: float, T: int, *, draws: int = 100_000, seed: int = 0
) -> float:
    """The standard deviation of unchanging input λx at which neurons fire at ``rate`` over T steps,
    for any reset."""
    z = np.random.default_rng(seed).standard_normal(draws)
    unit = np.broadcast_to(z, (T, draws))
    return _at_rate(neuron, rate, unit, np.ones((T, T))).drive


def simulated_slope(neuron: Neuron, rate: float, found: Simulated, seed: int = 0) -> float:
    """χ = dq/dp at fixed weights, by a difference under common random numbers."""
    T, draws = found.spikes.shape
    z = _coloured(np.random.default_rng(seed).standard_normal((T, draws)), found.correlation)
    step = 0.05
    high, low = (
        fire(neuron, found.drive * math.sqrt(1 + sign * step) * z)[1].mean() for sign in (1, -1)
    )
    return float(high - low) / (2 * step * rate)


# ---- the surrogate -----------------------------------------------------------------------------


def simulated_alpha(
    neuron: Neuron, rate: float, sigma: float, found: Simulated, surrogate: Surrogate
) -> float:
    """α that keeps the variance of gradients, from the T-average of the sum over earlier steps,
    (1 - ((1-p)κ²)^{t+1}) / (1 - (1-p)κ²) (Theorem 5.1 at finite T)."""
    T = len(found.spikes)
    r = (1 - rate) * neuron.kappa**2
    total = float(np.mean([(1 - r ** (t + 1)) / (1 - r) for t in range(T)]))
    wanted = 1 / (total * (sigma * neuron.lam) ** 2)
    u = found.potentials - neuron.theta

    def excess(log_alpha: float) -> float:
        return float(slope_squared(surrogate, math.exp(log_alpha), u).mean()) - wanted

    return math.exp(find_root(excess, math.log(1e-3), math.log(1e3), xtol=1e-6))


def correlated_alpha(
    neuron: Neuron, sigma: float, found: Simulated, surrogate: Surrogate, *, draws: int = 20_000
) -> float:
    """α at which the covariance over time of gradients neither grows nor shrinks with depth."""

    def excess(log_alpha: float) -> float:
        return math.log(
            gradient_growth(neuron, sigma, found, surrogate, math.exp(log_alpha), draws)
        )

    return math.exp(find_root(excess, math.log(1e-2), math.log(1e2), xtol=1e-4))


def gradient_growth(
    neuron: Neuron,
    sigma: float,
    found: Simulated,
    surrogate: Surrogate,
    alpha: float,
    draws: int = 20_000,
) -> float:
    """The largest eigenvalue of `gradient_operator`: growth a layer of the variance of gradients.

    Gradients run backwards in time only, so that the operator is triangular and its eigenvalues are
    (λσ)² E[σ'(u_t)σ'(u_t')]; what steps add to earlier ones grows with depth by a power, not
    exponentially.
    """
    operator = gradient_operator(neuron, sigma, found, surrogate, alpha, draws)
    return float(np.abs(np.linalg.eigvals(operator)).max())


def gradient_operator(
    neuron: Neuron,
    sigma: float,
    found: Simulated,
    surrogate: Surrogate,
    alpha: float,
    draws: int = 20_000,
) -> Floats:
    """The map G -> (λσ)² E[A G Aᵀ] of the covariance over time of gradients, a layer back.

    A maps a neuron's spike gradients to those of its input, dv_t = σ'(u_t) ds_t + κ_t dv_{t+1},
    with κ_t what the leak and a detached reset let through.

    Returns:
        (T², T²), acting on G flattened.
    """
    u, s = found.potentials[:, :draws] - neuron.theta, found.spikes[:, :draws]
    T, n = u.shape
    slope = np.sqrt(slope_squared(surrogate, alpha, u))
    keep = neuron.kappa * (1 - s if neuron.reset == "hard" else np.ones_like(s))
    jacobian = np.zeros((n, T, T))
    for t in range(T):
        through = np.ones(n)
        for later in range(t, T):
            jacobian[:, t, later] = through * slope[later]
            through = through * keep[later]
    # E[A ⊗ A] acts on the T² entries of G.
    operator = np.einsum("nab,ncd->acbd", jacobian, jacobian, optimize=True) / n
    return (sigma * neuron.lam) ** 2 * operator.reshape(T * T, T * T)
