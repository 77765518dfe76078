"""Bring every layer of a network to a wanted rate on data: for pooling, odd blocks, odd inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from armillary.neuro.spikeinit.adapters import Readers, Recognised, reset_states
from armillary.neuro.spikeinit.simulation import fire
from armillary.neuro.spikeinit.tracing import trace


class Calibrated(NamedTuple):
    """What happened to a layer.

    Attributes:
        layer: the weight layer.
        neuron: the neuron that follows.
        before: rate before the last pass.
        after: rate that its own input gives with the new weights.
        scale: factor on the weights over all passes.
    """

    layer: str
    neuron: str
    before: float
    after: float
    scale: float


def calibrate(
    module: nn.Module,
    batch: Any,
    target_rate: float,
    iters: int = 3,
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    neurons: Readers | None = None,
) -> list[Calibrated]:
    """Rescale the weights of each layer so that its neurons fire at a rate on this batch, in place.

    Layers are met in the order of the forward pass, each with the inputs that the layers before it,
    already rescaled, give it; the scale is found by bisection on the neuron's own equation. Layers
    whose output is summed with others, or normalised, or whose neuron serves other layers too, are
    left alone. Biases are scaled along. A neuron of your own that is called once a time step is
    told by that, or by ``step_mode = "s"``.

    Args:
        module: a spiking network, usually after `init_`.
        batch: inputs, as for the network; some hundred samples.
        target_rate: spikes a neuron and step, in (0, 1).
        iters: passes; the second and later ones see what modules that are called again did.
        forward: ``forward(module, batch)`` runs the network; default ``module(batch)``.
        neurons: readers of your own neuron classes, as for `init_`.

    Returns:
        One record a layer, in order.

    Raises:
        ValueError: an argument is out of its range, inputs are empty or not finite, or a layer
            cannot reach the rate at any scale.
    """
    if not (isinstance(target_rate, (int, float)) and 0 < target_rate < 1):
        raise ValueError(f"target_rate={target_rate!r}: expected a rate between 0 and 1")
    if isinstance(iters, bool) or int(iters) != iters or iters < 1:
        raise ValueError(f"iters={iters!r}: expected a whole number >= 1")
    run = (lambda m: m(batch)) if forward is None else (lambda m: forward(m, batch))
    calls = trace(module, run, neurons)
    pairs = {}
    for name, call in calls.items():
        source = next(iter(call.sources), "")
        if call.kind == "neuron" and len(call.sources) == 1 and calls[source].kind == "weight":
            pairs.setdefault(source, name)
    scales = dict.fromkeys(pairs, 1.0)
    last: list[Calibrated] = []
    for _ in range(iters):
        last = []
        for layer, name in pairs.items():
            neuron = calls[name].neuron
            assert neuron is not None
            current = _input_of(calls[name].module, neuron, module, run)
            if not current.numel() or not bool(torch.isfinite(current).all()):
                raise ValueError(
                    f"batch: what it gives the neurons {name} is empty, or holds NaN or infinite "
                    "numbers: give finite inputs, and look for weights that are not finite"
                )
            before = _rate(neuron, current, 1.0)
            scale = _scale_for(neuron, current, float(target_rate), layer)
            with torch.no_grad():
                weighted: Any = calls[layer].module
                weighted.weight.mul_(scale)
                if weighted.bias is not None:
                    weighted.bias.mul_(scale)
            scales[layer] *= scale
            after = _rate(neuron, current, scale)
            last.append(Calibrated(layer, name, before, after, scales[layer]))
    return last


class _Seen(Exception):
    """The neuron's whole input was recorded."""


def _input_of(
    part: nn.Module, neuron: Recognised, module: nn.Module, run: Callable[[nn.Module], Any]
) -> Tensor:
    """The input of a neuron over all steps, (T, ...)."""
    seen: list[Tensor] = []

    def record(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0].detach())
        if neuron.multi_step:
            raise _Seen

    handle = part.register_forward_pre_hook(record)
    reset_states(module)
    try:
        with torch.no_grad():
            run(module)
    except _Seen:
        pass
    finally:
        handle.remove()
        reset_states(module)
    return seen[0] if neuron.multi_step else torch.stack(seen)


def _rate(neuron: Recognised, current: Tensor, scale: float) -> float:
    flat = current.flatten(1).double().numpy() * (scale * neuron.constants.lam)
    return float(fire(neuron.constants, flat)[1].mean())


def _scale_for(neuron: Recognised, current: Tensor, rate: float, layer: str) -> float:
    """The factor by which the input must grow for the rate, by bisection on its logarithm."""
    low, high = math.log(1e-4), math.log(1e4)
    reached = _rate(neuron, current, 1e4)
    if reached < rate:
        raise ValueError(
            f"target_rate={rate!r}: {layer} reaches {reached:.3f} at most on this batch; take a "
            "lower rate, or more varied inputs"
        )
    for _ in range(40):
        middle = (low + high) / 2
        if _rate(neuron, current, math.exp(middle)) < rate:
            low = middle
        else:
            high = middle
    return math.exp(high)
