"""From a neuron and a wanted firing rate to the scale of weights and the width of the surrogate."""

from __future__ import annotations

import dataclasses
import math
import warnings
from functools import lru_cache
from typing import Literal, get_args

from armillary.neuro.spikeinit import simulation
from armillary.neuro.spikeinit.theory import (
    Method,
    Neuron,
    Reset,
    Surrogate,
    UnstableRate,
    find_root,
    max_rate,
    slope_of,
    stable_rate,
    static_drive,
    steady_state,
    surrogate_moment,
)

#: Steps that a simulation takes where none are given.
DEFAULT_STEPS = 4


@dataclasses.dataclass(frozen=True)
class SpikeInitParams:
    """What keeps rates and gradients over depth.

    Attributes:
        sigma: weights of hidden layers are N(0, sigma²/fan_in).
        sigma_static: the same of a first layer whose input has RMS 1 and does not change over time.
        alpha: parameter of the surrogate, in the convention of `theory.slope_squared`.
        mu, std: mean and standard deviation of the membrane potential.
        slope: growth of an error of the rate from layer to layer (below 1: stable).
        rate: the firing rate that all this keeps.
        neuron: the neuron's constants.
        surrogate: the surrogate that alpha belongs to.
        T: number of steps, or None for the steady state.
        method: how it was found: ``moments``, ``sim`` or ``correlated``.
    """

    sigma: float
    sigma_static: float
    alpha: float
    mu: float
    std: float
    slope: float
    rate: float
    neuron: Neuron
    surrogate: Surrogate
    T: int | None
    method: Literal["moments", "sim", "correlated"]


def solve(
    kappa: float = 0.5,
    lam: float = 0.5,
    theta: float = 0.5,
    rate: float | Literal["auto"] = 0.1,
    T: int | None = None,
    reset: Reset = "hard",
    surrogate: Surrogate = "piecewise_exp",
    method: Method = "auto",
    refractory: int = 0,
) -> SpikeInitParams:
    """The scale of weights and the width of the surrogate for a neuron and a firing rate.

    Args:
        kappa: what is left of the potential after a step, in [0, 1]: 1 - 1/τ; 1 for IF neurons.
        lam: gain of the input: 1/τ with ``decay_input``, else 1.
        theta: threshold, > 0.
        rate: spikes a neuron and step that every layer shall have, in (0, `theory.max_rate`);
            ``"auto"``: the smallest of at least 0.1 at which the rate is stable over depth, or,
            where neurons leak so little that they cannot fire at 0.1 (κ near 1), one below that.
        T: number of time steps; needed for simulations, 4 if left out there. Moments are those of
            the steady state and ignore it.
        reset: ``hard``, ``soft`` (SpikingJelly) or ``subtract`` (snnTorch).
        surrogate: ``piecewise_exp``, ``atan``, ``sigmoid`` or ``triangle``.
        method: ``moments`` (the paper's equations: the steady state, independent steps), ``sim``
            (the paper's Monte Carlo over T steps), ``correlated`` (ours: over T steps, with the
            correlation over time that reproduces itself) or ``auto``: moments where there is a
            steady state, else sim.
        refractory: steps of silence after a spike; simulated.

    Returns:
        The parameters; under 50 ms by moments, about a second by simulation, remembered.

    Raises:
        ValueError: a value is out of its range, or these neurons cannot fire at this rate.

    Warns:
        UnstableRate: never here; `init_` warns where the slope is above 1 and the network deep.
    """
    neuron = Neuron(float(kappa), float(lam), float(theta), reset, refractory)
    for name, given, known in (
        ("surrogate", surrogate, get_args(Surrogate)),
        ("method", method, get_args(Method)),
    ):
        if given not in known:
            raise ValueError(f"{name}={given!r}: expected one of {', '.join(known)}")
    if T is not None and (isinstance(T, bool) or int(T) != T or T < 1):
        raise ValueError(f"T={T!r}: expected a whole number of time steps >= 1, or None")
    if rate != "auto" and not (isinstance(rate, (int, float)) and 0 < rate < 1):
        raise ValueError(f"rate={rate!r}: expected a firing rate between 0 and 1, or 'auto'")
    if rate == "auto":
        rate = stable_rate(neuron) if neuron.has_steady_state else 0.1
    if method == "auto":
        method = "moments" if neuron.has_steady_state else "sim"
    try:
        return _solve(neuron, float(rate), None if T is None else int(T), surrogate, method)
    except ValueError as error:
        if "different signs" not in str(error):
            raise
        limit = f" and {max_rate(neuron.kappa):.6g}" if neuron.has_steady_state else ""
        raise ValueError(
            f"rate={rate!r}: no weights and surrogate were found for so extreme a rate: take one "
            f"farther from 0{limit}"
        ) from None


@lru_cache(maxsize=256)
def _solve(
    neuron: Neuron, rate: float, T: int | None, surrogate: Surrogate, method: Method
) -> SpikeInitParams:
    if method == "moments":
        return _by_moments(neuron, rate, T, surrogate)
    steps = T or DEFAULT_STEPS
    correlated = method == "correlated"
    simulate = simulation.simulate_correlated if correlated else simulation.simulate_independent
    found = simulate(neuron, rate, steps)
    sigma = found.drive / math.sqrt(rate) / neuron.lam
    alpha = (
        simulation.correlated_alpha(neuron, sigma, found, surrogate)
        if correlated
        else simulation.simulated_alpha(neuron, rate, sigma, found, surrogate)
    )
    if neuron.reset == "hard" and neuron.refractory == 0:
        static = static_drive(neuron, rate, steps)
    else:
        static = simulation.simulated_static_drive(neuron, rate, steps)
    return SpikeInitParams(
        sigma,
        static / neuron.lam,
        alpha,
        found.mean,
        found.std,
        simulation.simulated_slope(neuron, rate, found),
        rate,
        neuron,
        surrogate,
        steps,
        "correlated" if correlated else "sim",
    )


def _by_moments(
    neuron: Neuron, rate: float, T: int | None, surrogate: Surrogate
) -> SpikeInitParams:
    state = steady_state(neuron, rate)
    sigma = state.drive / math.sqrt(rate) / neuron.lam
    wanted = (1 - (1 - rate) * neuron.kappa**2) / (sigma * neuron.lam) ** 2

    def excess(log_alpha: float) -> float:
        alpha = math.exp(log_alpha)
        found = surrogate_moment(surrogate, alpha, state.mean, state.std, neuron.theta)
        return math.log(found / wanted)

    scale = math.log(1 / neuron.theta)  # α is an inverse potential
    alpha = math.exp(find_root(excess, scale - 7, scale + 12, xtol=1e-12))
    return SpikeInitParams(
        sigma,
        static_drive(neuron, rate) / neuron.lam,
        alpha,
        state.mean,
        state.std,
        slope_of(neuron, rate),
        rate,
        neuron,
        surrogate,
        T,
        "moments",
    )


def warn_if_unstable(params: SpikeInitParams, depth: int) -> None:
    """Warn where errors of the rate grow and there are many layers for it.

    Args:
        params: what is used.
        depth: number of spiking layers in a row.
    """
    if params.slope <= 1 or depth <= 20:
        return
    neuron = params.neuron
    better = f"rate={stable_rate(neuron):.3f}" if neuron.has_steady_state else "a higher rate"
    warnings.warn(
        f"rate={params.rate:g} is unstable: an error of the rate grows {params.slope:.2f}-fold a "
        f"layer, over {depth} layers; take {better} (rate='auto')",
        UnstableRate,
        stacklevel=3,
    )
