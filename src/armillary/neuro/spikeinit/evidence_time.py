"""E5: what a training step costs beside the normalised twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import nn

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
    Timing,
)
from armillary.neuro.spikeinit.evidence_networks import Split, build, digits

Step = Callable[[Split, Cell], Mapping[str, float]]


def stepped(who: str) -> Step:
    """Three training steps of a network that is built once a cell; the memory of saved tensors."""
    built: dict[tuple[str, int], tuple[nn.Module, torch.optim.Optimizer]] = {}

    def run(work: Split, cell: Cell) -> Mapping[str, float]:
        key = (cell.case.name, cell.seed)
        if key not in built:
            x = cell.case.x
            model = build(who, "residual", int(x["depth"]), int(x["width"]), work.x, cell.seed)
            built[key] = (model, torch.optim.Adam(model.parameters(), 1e-3))
        model, optimiser = built[key]
        model.train()
        saved: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return tensor

        loss = torch.zeros(())
        for _ in range(3):
            optimiser.zero_grad(set_to_none=True)
            saved.clear()
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                loss = nn.functional.cross_entropy(model(work.x[:32]), work.y[:32])
            loss.backward()
            optimiser.step()
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        kept = sum(size for place, size in saved.items() if place not in weights)
        return {"saved": kept / 2**20, "checksum": loss.item()}

    return run


def _case(depth: int, width: int) -> Case:
    return Case(f"depth={depth}", x={"depth": depth, "width": width})


STEP_TIME = Experiment(
    id="step-time",
    title="Time and memory of a training step of 101 layers",
    cases={
        "smoke": [_case(7, 4)],
        "quick": [_case(101, 8)],
        "full": [_case(101, 8)],
        "long": [],
    },
    setup=lambda cell: digits(cell.seed),
    contenders=tuple(Contender(name, stepped(name)) for name in ("ours", "tdbn", "tebn")),
    metrics=(
        Metric("seconds", "s"),
        Metric("saved", "MiB"),
        Metric("checksum", "", "neither"),
    ),
    claims=(
        Claim(
            id="steps-cost-less",
            statement="A training step of a residual network of 101 layers takes at most 0.95 of "
            "the time, and keeps no more memory for its backward pass, than with tdBN or TEBN.",
            paper="Does not report times.",
            conditions=(
                Condition(
                    Stat("seconds", over=("tdbn", "tebn"), form="ratio", pool="geomean"),
                    at_most=0.95,
                ),
                Condition(
                    Stat("saved", over=("tdbn", "tebn"), form="ratio", pool="geomean"),
                    at_most=1.0,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 4, "long": 0},
    timed=Timing(warmups=1, repeats=3),
    packages=("torch",),
)
