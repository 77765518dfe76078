"""Where spikes die and gradients vanish: the rate and the gradient of every layer of neurons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from armillary.models import profile_layers
from armillary.neuro.spikeinit.adapters import (
    KNOWN,
    Readers,
    Recognised,
    recognise,
    reset_states,
)
from armillary.neuro.spikeinit.theory import max_rate, slope_of

if TYPE_CHECKING:
    import pandas as pd


def depth_profile(
    module: nn.Module,
    batch: Any,
    loss_fn: Callable[[Any], Tensor] | None = None,
    *,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    neurons: Readers | None = None,
) -> pd.DataFrame:
    """One row a layer of neurons, in the order of the calls.

    Args:
        module: a spiking network; it is left as it was.
        batch: inputs, as for the network. A neuron counts as dead if no sample makes it fire at any
            step: give 256 samples or more, fewer leave neurons merely unseen.
        loss_fn: maps the network's answer to a scalar loss; without it gradients are NaN.
        forward: ``forward(module, batch)`` runs the network; default ``module(batch)``.
        neurons: readers of your own neuron classes. Those without ``step_mode`` ("m" or "s") are
            taken as single-step if one of them runs more than once in a pass, or is given (batch,
            channels); a multi-step neuron that serves several layers has to say ``"m"``.

    Returns:
        Columns ``layer``; ``rate``, spikes a neuron and step; ``dead_frac``, share of neurons that
        never fire; ``grad_rms``, of the loss by the spikes; ``slope``, χ of the theory at this
        rate: above 1, an error of the rate grows from this layer to the next (NaN where no theory
        applies).

    Raises:
        ValueError: there is no spiking neuron, none ran, or ``batch`` is empty or not finite.
        UnsupportedNeuron: a spiking neuron of an unknown kind.
    """
    found = {
        name: neuron
        for name, part in module.named_modules()
        if (neuron := recognise(name, part, neurons)) is not None
    }
    if not found:
        raise ValueError(
            f"the module has no spiking neuron that is known: known are {'; '.join(KNOWN)}, and "
            "your own classes by neurons={MyLIF: lambda module: Neuron(kappa, lam, theta)}"
        )
    if isinstance(batch, Tensor) and not (batch.numel() and bool(torch.isfinite(batch).all())):
        raise ValueError("batch is empty, or holds NaN or infinite numbers: give finite inputs")

    def run(m: nn.Module) -> Tensor:
        answer = m(batch) if forward is None else forward(m, batch)
        return answer if loss_fn is None else loss_fn(answer)

    found = _told_by_calls(module, run, found)
    reset_states(module)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        rows = profile_layers(
            module,
            run,
            select=lambda name, part: name in found,
            sample_axes=2 if all(n.multi_step for n in found.values()) else 1,
            gradients=loss_fn is not None,
            pool_calls=True,
        )
    finally:
        _restore(module, buffers)
    import pandas as pd

    table = [
        {
            "layer": row.name,
            "rate": row.mean,
            "dead_frac": row.dead,
            "grad_rms": row.gradient_rms,
            "slope": _slope(found[row.name].constants, row.mean),
        }
        for row in rows
    ]
    return pd.DataFrame(table)


def _told_by_calls(
    module: nn.Module, run: Callable[[nn.Module], Any], found: dict[str, Recognised]
) -> dict[str, Recognised]:
    """The neurons, with those that do not say their step mode read from one pass."""
    unsaid = {
        name: module.get_submodule(name)
        for name, neuron in found.items()
        if neuron.library == "own" and not hasattr(module.get_submodule(name), "step_mode")
    }
    if not unsaid:
        return found
    calls = dict.fromkeys(unsaid, 0)
    flat = False

    def count(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def record(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            nonlocal flat
            calls[name] += 1
            flat = flat or inputs[0].ndim < 3

        return record

    handles = [part.register_forward_pre_hook(count(name)) for name, part in unsaid.items()]
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    reset_states(module)
    try:
        with torch.no_grad():
            run(module)
    finally:
        for handle in handles:
            handle.remove()
        _restore(module, buffers)
    if not flat and max(calls.values()) < 2:
        return found
    return found | {name: found[name]._replace(multi_step=False) for name in unsaid}


def _restore(module: nn.Module, buffers: dict[str, Tensor]) -> None:
    """Forget states, and put buffers (of normalisations) back."""
    reset_states(module)
    with torch.no_grad():
        for name, buffer in module.named_buffers():
            if name in buffers and buffers[name].shape == buffer.shape:
                buffer.copy_(buffers[name])


def _slope(constants: Any, rate: float) -> float:
    if not constants.has_steady_state or not 0 < rate < 0.999 * max_rate(constants.kappa):
        return math.nan
    return slope_of(constants, rate)
