"""Where spikes die and gradients vanish: the rate and the gradient of every layer of neurons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from armillary.models import profile_layers
from armillary.neuro.spikeinit.adapters import Readers, recognise, reset_states
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
        neurons: readers of your own neuron classes.

    Returns:
        Columns ``layer``; ``rate``, spikes a neuron and step; ``dead_frac``, share of neurons that
        never fire; ``grad_rms``, of the loss by the spikes; ``slope``, χ of the theory at this
        rate: above 1, an error of the rate grows from this layer to the next (NaN where no theory
        applies).

    Raises:
        ValueError: no spiking neuron ran.
        UnsupportedNeuron: a spiking neuron of an unknown kind.
    """
    found = {
        name: neuron
        for name, part in module.named_modules()
        if (neuron := recognise(name, part, neurons)) is not None
    }

    def run(m: nn.Module) -> Tensor:
        answer = m(batch) if forward is None else forward(m, batch)
        return answer if loss_fn is None else loss_fn(answer)

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
        reset_states(module)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in buffers and buffers[name].shape == buffer.shape:
                    buffer.copy_(buffers[name])
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


def _slope(constants: Any, rate: float) -> float:
    if not constants.has_steady_state or not 0 < rate < 0.999 * max_rate(constants.kappa):
        return math.nan
    return slope_of(constants, rate)
