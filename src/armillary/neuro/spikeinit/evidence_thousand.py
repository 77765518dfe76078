"""E3: a network of 1000 layers, and whether its branches do anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
)
from armillary.neuro.spikeinit.evidence_networks import (
    Split,
    build,
    digits,
    recipe,
    setting_of,
)
from armillary.neuro.spikeinit.evidence_trained import Run
from armillary.neuro.spikeinit.training import accuracy, train


def thousand(who: str) -> Run:
    """Train the deepest network; look how far its branches moved and whether they matter.

    ``trunk-only`` is ours with every branch taken out before training: a stem, two convolutions and
    a layer of neurons, which is what is left if depth does nothing.
    """

    def run(work: Split, cell: Cell) -> Mapping[str, float]:
        x = cell.case.x
        setting = setting_of("residual", "thousand")
        trunk = who == "trunk-only"
        model = build(
            "ours" if trunk else who,
            "residual",
            int(x["depth"]),
            int(x["width"]),
            work.x,
            cell.seed,
            setting.alpha,
        )
        blocks: Any = model.body.blocks
        _take_branches(blocks, out=trunk)
        before = [
            (block.conv1.weight.detach().clone(), block.conv2.weight.detach().clone())
            for block in blocks
        ]
        losses = train(
            model, work.x, work.y, recipe(setting, int(x["steps"]), int(x["batch"])), cell.seed
        )
        found = {
            "accuracy": 100 * accuracy(model, work.x_test, work.y_test),
            "finite": float(all(math.isfinite(value) for value in losses)),
        }
        if who != "ours":
            return found
        # Branches of ours start at zero: how far they came is told beside their conv1 at the start.
        moved = [
            float((block.conv2.weight.detach() - second).norm() / first.norm())
            for block, (first, second) in zip(blocks, before, strict=True)
        ]
        membrane = _last_membrane(model, work.x_test[:200])
        _take_branches(blocks, out=True)
        left = _last_membrane(model, work.x_test[:200])
        without = 100 * accuracy(model, work.x_test, work.y_test)
        return found | {
            "lost_without_branches": found["accuracy"] - without,
            "branches_moved": _or_zero(float(np.median(moved))),
            "branch_variance": _or_zero(float((membrane - left).var() / membrane.var())),
        }

    return run


def _or_zero(value: float) -> float:
    """A network that has diverged counts as one whose branches do nothing."""
    return value if math.isfinite(value) else 0.0


def _take_branches(blocks: Any, out: bool) -> None:
    for block in blocks:
        block.removed = out


def _last_membrane(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """The sum of the trunk and all branches, which the last layer of neurons sees."""
    seen: list[torch.Tensor] = []
    last: Any = model.body.last  # pyright: ignore[reportAttributeAccessIssue]
    handle = last.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.eval()
    with torch.no_grad():
        model(rows)
    handle.remove()
    return seen[0]


def _thousand(depth: int, width: int, steps: int) -> Case:
    return Case(f"depth={depth}", x={"depth": depth, "width": width, "steps": steps, "batch": 32})


THOUSAND = Experiment(
    id="thousand-layers",
    title="A network of 1000 layers on digits",
    cases={
        "smoke": [_thousand(7, 4, 2)],
        "quick": [],
        "full": [_thousand(1000, 8, 60)],
        "long": [_thousand(1000, 16, 30)],
    },
    setup=lambda cell: digits(cell.seed),
    contenders=(
        Contender("ours", thousand("ours")),
        Contender("trunk-only", thousand("trunk-only")),
        Contender("kaiming", thousand("kaiming")),
        Contender("kaiming-zero", thousand("kaiming-zero")),
        Contender("fluctuation", thousand("fluctuation")),
    ),
    metrics=(
        Metric("accuracy", "%", "higher"),
        Metric("lost_without_branches", "points", "neither"),
        Metric("branches_moved", "of the norm of conv1", "neither"),
        Metric("branch_variance", "of the last membrane's", "neither"),
        Metric("finite", "0/1", "higher"),
    ),
    claims=(
        Claim(
            id="a-thousand-layers-train",
            statement="A residual spiking network of 1000 layers without any normalisation reads "
            "at least 85 % of digits held out after 60 steps of 32, its loss finite throughout, "
            "and at least 1 point more than the same network without any branch (a stem, two "
            "convolutions and neurons), trained alike: depth does not only do no harm.",
            paper="Trains a residual network of 1000 layers (166, 166 and 167 blocks) without "
            "normalisation; the figure stands in a plot.",
            conditions=(
                Condition(Stat("accuracy"), at_least=85.0),
                Condition(Stat("finite"), at_least=1.0, every=True),
                Condition(Stat("accuracy", over=("trunk-only",), form="difference"), at_least=1.0),
            ),
            ablations=(
                Ablation("kaiming", "accuracy"),
                Ablation("fluctuation", "accuracy"),
                Ablation("kaiming-zero", "accuracy", expect="reported"),
            ),
        ),
        Claim(
            id="its-branches-work",
            statement="By then the 499 residual branches, which start at zero, make at least a "
            "tenth of the variance that the last layer of neurons sees, and taking them out of the "
            "trained network costs at least 5 points.",
            paper="Does not look at the branches.",
            conditions=(
                Condition(Stat("branch_variance"), at_least=0.1),
                Condition(Stat("lost_without_branches"), at_least=5.0),
            ),
        ),
        Claim(
            id="a-thousand-beat-zero-branches-alone",
            statement="There it reads at least 2 points more digits than He's weights with the "
            "same zero branches, zero classifier, surrogate and optimiser.",
            paper="Does not take the two apart.",
            conditions=(
                Condition(
                    Stat("accuracy", over=("kaiming-zero",), form="difference"), at_least=2.0
                ),
            ),
        ),
        Claim(
            id="others-do-not-train-a-thousand",
            statement="The same network with He's or the fluctuation-driven initialisation, its "
            "branches not at zero, stays at or below 30 %. Both run at the setting that was chosen "
            "for ours; they were not tuned.",
            paper="Does not report other initialisations at this depth.",
            conditions=(
                Condition(Stat("accuracy", of="kaiming"), at_most=30.0),
                Condition(Stat("accuracy", of="fluctuation"), at_most=30.0),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 4, "long": 3},
    packages=("torch", "scikit-learn"),
)
