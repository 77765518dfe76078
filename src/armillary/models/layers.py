"""What each layer of a torch module does on one batch: its outputs and the gradients that reach it.

For questions of depth (does the signal die, do gradients vanish or explode, which units never
answer) in any architecture, by forward hooks; the module is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch


class LayerProfile(NamedTuple):
    """One call of one layer.

    Attributes:
        name: the module's dotted name; a module called again gets ``name#2`` and so on.
        kind: its class.
        mean, rms: of its output, over everything.
        dead: share of units whose output is zero for every sample (and time step).
        gradient_rms: root mean square of the loss's derivative by the output; NaN without a loss,
            or where no gradient reaches the layer.
    """

    name: str
    kind: str
    mean: float
    rms: float
    dead: float
    gradient_rms: float


def profile_layers(
    model: torch.nn.Module,
    run: Callable[[torch.nn.Module], torch.Tensor],
    *,
    select: Callable[[str, torch.nn.Module], bool] | None = None,
    sample_axes: int = 1,
    gradients: bool = True,
    pool_calls: bool = False,
) -> list[LayerProfile]:
    """Profile the layers of a model over one forward and, with gradients, one backward pass.

    Args:
        model: any module.
        run: takes the model, runs it once and returns the loss (a scalar; anything where
            ``gradients`` is False). Parameters' gradients are restored afterwards.
        select: which modules are profiled, by name and module. Default: those without children.
        sample_axes: how many leading axes of an output count samples (1: batch; 2: time and
            batch); the others are the units.
        gradients: whether to run backward.
        pool_calls: take all calls of a module as one (a loop over time): its outputs count as more
            samples. Of an output that is a tuple the first entry is profiled.

    Returns:
        One profile a call (a module with ``pool_calls``), in the order of the calls.

    Raises:
        ValueError: no selected module was called, or the loss is no scalar.
    """
    chosen = select or (lambda name, module: not any(module.children()))
    calls: list[tuple[str, str, torch.Tensor]] = []
    slopes: dict[int, float] = {}
    counts: dict[str, int] = {}

    def hook(name: str) -> Callable:
        def record(module: torch.nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, tuple) and output:
                output = output[0]
            if not isinstance(output, torch.Tensor):
                return
            counts[name] = counts.get(name, 0) + 1
            label = name if counts[name] == 1 else f"{name}#{counts[name]}"
            place = len(calls)
            calls.append((label, type(module).__name__, output.detach().float()))
            if gradients and output.requires_grad:
                output.register_hook(lambda slope: slopes.__setitem__(place, _rms(slope)))

        return record

    before = {parameter: parameter.grad for parameter in model.parameters()}
    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if name and chosen(name, module)
    ]
    try:
        with torch.set_grad_enabled(gradients):
            loss = run(model)
        if not calls:
            raise ValueError("no selected module was called: check select and run")
        if gradients:
            if not isinstance(loss, torch.Tensor) or loss.ndim != 0:
                raise ValueError(
                    "run must return the loss, a scalar tensor, or set gradients=False"
                )
            for parameter in before:
                parameter.grad = None
            loss.backward()
    finally:
        for handle in handles:
            handle.remove()
        for parameter, slope in before.items():
            parameter.grad = slope
    nothing = float("nan")
    if pool_calls:
        calls, slopes = _pooled(calls, slopes)
    return [
        LayerProfile(
            name,
            kind,
            output.mean().item(),
            _rms(output),
            _dead(output, sample_axes),
            slopes.get(place, nothing),
        )
        for place, (name, kind, output) in enumerate(calls)
    ]


def _pooled(
    calls: list[tuple[str, str, torch.Tensor]], slopes: dict[int, float]
) -> tuple[list[tuple[str, str, torch.Tensor]], dict[int, float]]:
    """The calls of each module as one: outputs joined on the first axis, gradients' RMS."""
    places: dict[str, list[int]] = {}
    for place, (label, _, _) in enumerate(calls):
        places.setdefault(label.split("#")[0], []).append(place)
    joined = [
        (name, calls[at[0]][1], torch.cat([calls[place][2] for place in at]))
        for name, at in places.items()
    ]
    squares = [[slopes[place] ** 2 for place in at if place in slopes] for at in places.values()]
    means = {i: (sum(found) / len(found)) ** 0.5 for i, found in enumerate(squares) if found}
    return joined, means


def _rms(values: torch.Tensor) -> float:
    return values.float().square().mean().sqrt().item()


def _dead(output: torch.Tensor, sample_axes: int) -> float:
    samples = output.flatten(0, sample_axes - 1) if sample_axes > 1 else output
    return (samples == 0).all(dim=0).float().mean().item()
