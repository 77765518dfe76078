"""The experiments of spikeinit: training. Those at initialisation stand in `evidence_depth`, those
that are timed in `evidence_time`.

The independent unit is the seed: it draws rows, weights and the order of minibatches anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from armillary.corpora.registry import EXTERNAL
from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
)
from armillary.neuro.spikeinit.evidence_depth import DEPTHS
from armillary.neuro.spikeinit.evidence_networks import (
    Family,
    Split,
    build,
    digits,
    fashion,
    recipe,
    setting_of,
)
from armillary.neuro.spikeinit.evidence_time import STEP_TIME
from armillary.neuro.spikeinit.training import accuracy, train

Run = Callable[[Split, Cell], Mapping[str, float]]

INITS = ("torch-default", "kaiming", "fluctuation", "micheli", "ding")
BATCH_NORMS = ("tdbn", "bntt", "tebn", "mpbn")
RESIDUAL_NORMS = (*BATCH_NORMS, "tdbn-zero")

FASHION = tuple(
    Need("data", entry.path, entry.how)
    for entry in EXTERNAL
    if entry.name.startswith("fashion-mnist-")
)

METRICS = (
    Metric("accuracy", "%", "higher"),
    Metric("loss", "nats"),
    Metric("steps_to_60", "steps"),
    Metric("spikes", "a sample"),
)


def trained(who: str, family: Family) -> Run:
    """Build a contender's network, train it with its tuned setting, test it."""

    def run(work: Split, cell: Cell) -> Mapping[str, float]:
        x = cell.case.x
        setting = setting_of(family, who)
        steps, batch = int(x["steps"]), int(x["batch"])
        model = build(
            who, family, int(x["depth"]), int(x["width"]), work.x, cell.seed, setting.alpha
        )
        rising = _Rising(model, work)
        losses = train(
            model, work.x, work.y, recipe(setting, steps, batch), cell.seed, watch=rising
        )
        tail = [value for value in losses[-20:] if math.isfinite(value)]
        return {
            "accuracy": 100 * accuracy(model, work.x_test, work.y_test),
            # A loss that is no number any more counts as ten times that of guessing.
            "loss": float(np.mean(tail)) if tail else 10 * math.log(10),
            "steps_to_60": float(rising.reached or steps),
            "spikes": _spikes(model, work),
        }

    return run


class _Rising:
    """The first look, every 25 steps on 256 training rows, at which 60 % are right."""

    def __init__(self, model: nn.Module, work: Split) -> None:
        self.model, self.work, self.reached = model, work, 0

    def __call__(self, step: int, loss: float) -> None:
        if step % 25 == 0 and not self.reached:
            if accuracy(self.model, self.work.x[:256], self.work.y[:256]) >= 0.6:
                self.reached = step
            self.model.train()


def _spikes(model: nn.Module, work: Split) -> float:
    """Spikes that the network sends for a test image: the proxy of energy on hardware."""
    total = 0.0
    handles = []

    def count(_: nn.Module, inputs: object, output: torch.Tensor) -> None:
        nonlocal total
        total += float(output.sum())

    from armillary.neuro.spikeinit.neurons import LIF
    from armillary.neuro.spikeinit.peers import MPBNNeuron

    for part in model.modules():
        if isinstance(part, (LIF, MPBNNeuron)):
            handles.append(part.register_forward_hook(count))
    rows = work.x_test[:200]
    model.eval()
    with torch.no_grad():
        model(rows)
    for handle in handles:
        handle.remove()
    return total / len(rows)


def clothes(cell: Cell) -> Split:
    """Fashion-MNIST at the case's size."""
    rows = int(cell.case.x["rows"])
    return fashion(cell.seed, int(cell.case.x["side"]), rows, min(2_000, rows))


def _contenders(family: Family, names: tuple[str, ...]) -> tuple[Contender, ...]:
    return tuple(Contender(name, trained(name, family)) for name in names)


# ---- E2: trainability --------------------------------------------------------------------------


def _plain(depth: int, width: int, steps: int, batch: int = 64, rows: int = 10_000) -> Case:
    return Case(
        f"depth={depth} batch={batch}",
        x={"depth": depth, "width": width, "steps": steps, "batch": batch, "side": 14,
           "rows": rows},
        needs=FASHION,
    )  # fmt: skip


#: Without unit-alpha, which is ours here (`TUNED`); of residual networks theory-alpha is.
_PLAIN = ("ours", "theory-alpha", "adaptive", *INITS, *BATCH_NORMS)

PLAIN = Experiment(
    id="plain-networks",
    title="Training plain networks of 20 layers on Fashion-MNIST",
    cases={
        "smoke": [_plain(4, 16, 3, 16, rows=200)],
        "quick": [_plain(20, 64, 150)],
        "full": [_plain(20, 128, 400)],
        "long": [_plain(depth, 128, 2000) for depth in (10, 20, 50, 100)],
    },
    setup=clothes,
    contenders=_contenders("plain", _PLAIN),
    metrics=METRICS,
    claims=(
        Claim(
            id="plain-beats-batch-norm",
            statement="Plain fully connected spiking networks of 20 layers without normalisation "
            "are at least 2 points more accurate than with tdBN, BNTT, TEBN or MPBN, after the "
            "same number of steps. Ours, tdBN and TEBN were tuned on one grid; BNTT and MPBN were "
            "not, they run at tdBN's setting.",
            paper="Reports that networks without normalisation match or beat normalised ones "
            "(VGG-11, ResNets on CIFAR, ImageNet and event data).",
            conditions=(
                Condition(Stat("accuracy", over=BATCH_NORMS, form="difference"), at_least=2.0),
            ),
            ablations=(
                Ablation("theory-alpha", "accuracy", expect="reported"),
                Ablation("adaptive", "accuracy", expect="reported"),
            ),
        ),
        Claim(
            id="plain-beats-other-inits",
            statement="Plain networks of 20 layers are at least 20 points more accurate than with "
            "torch's default, He's, the fluctuation-driven, Micheli's or Ding's initialisation, "
            "which were not tuned: they run at ours' setting.",
            paper="Reports that these do not train deep spiking networks without normalisation.",
            conditions=(Condition(Stat("accuracy", over=INITS, form="difference"), at_least=20.0),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch",),
)


SMALL_BATCHES = Experiment(
    id="small-batches",
    title="Training with minibatches of 4",
    cases={
        "smoke": [_plain(4, 16, 3, 4, rows=200)],
        "quick": [],
        "full": [_plain(20, 64, 600, 4)],
        "long": [
            _plain(20, 64, steps, batch)
            for batch, steps in ((4, 4000), (16, 2000), (64, 1000), (128, 800))
        ],
    },
    setup=clothes,
    contenders=_contenders("plain", ("ours", *BATCH_NORMS)),
    metrics=METRICS,
    claims=(
        Claim(
            id="small-batches-beat-batch-norm",
            statement="With minibatches of 4, plain networks of 20 layers are at least 2 points "
            "more accurate than with tdBN, BNTT, TEBN or MPBN, all at the settings of batches of "
            "64 (BNTT and MPBN at tdBN's).",
            paper="Does not report small batches.",
            conditions=(
                Condition(
                    Stat(
                        "accuracy",
                        over=BATCH_NORMS,
                        form="difference",
                        where=lambda case: case.x["batch"] == 4,
                    ),
                    at_least=2.0,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch",),
)


# BNTT and MPBN normalise each step by itself: of a single row of a fully connected network they
# have no statistics, and torch refuses to train them. tdBN and TEBN pool over the steps.
SINGLE_ROWS = Experiment(
    id="single-rows",
    title="Training with one row at a time (BNTT and MPBN cannot)",
    cases={
        "smoke": [_plain(4, 16, 3, 1, rows=200)],
        "quick": [],
        "full": [],
        "long": [_plain(20, 64, 4000, 1)],
    },
    setup=clothes,
    contenders=_contenders("plain", ("ours", "tdbn", "tebn")),
    metrics=METRICS,
    claims=(
        Claim(
            id="single-rows-beat-batch-norm",
            statement="Trained on one row at a time, plain networks of 20 layers are at least 2 "
            "points more accurate than with tdBN or TEBN, all at the settings of batches of 64; "
            "BNTT and MPBN cannot be trained so.",
            paper="Does not report small batches.",
            conditions=(
                Condition(Stat("accuracy", over=("tdbn", "tebn"), form="difference"), at_least=2.0),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch",),
)


def _residual(depth: int, width: int, steps: int, batch: int = 64, rows: int = 10_000) -> Case:
    return Case(
        f"depth={depth}",
        x={"depth": depth, "width": width, "steps": steps, "batch": batch, "side": 7,
           "rows": rows},
        needs=FASHION,
    )  # fmt: skip


RESIDUAL = Experiment(
    id="residual-networks",
    title="Training residual networks of 101 layers on Fashion-MNIST",
    cases={
        "smoke": [_residual(7, 4, 2, 8, rows=200)],
        "quick": [],
        "full": [_residual(101, 8, 100)],
        "long": [_residual(101, 8, 400), _residual(201, 8, 400)],
    },
    setup=clothes,
    contenders=_contenders(
        "residual",
        ("ours", "unit-alpha", "kaiming", "fluctuation", *RESIDUAL_NORMS),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="residual-matches-batch-norm",
            statement="Residual spiking networks of 101 layers without normalisation are at most "
            "half a point less accurate than with tdBN (also with its branches starting at "
            "zero), BNTT, TEBN or MPBN, after the same number of steps. BNTT and MPBN were not "
            "tuned, they run at tdBN's setting.",
            paper="Reports that SEW- and MS-ResNets without normalisation match or beat "
            "normalised ones.",
            conditions=(
                Condition(Stat("accuracy", over=RESIDUAL_NORMS, form="difference"), at_least=-0.5),
            ),
            ablations=(
                Ablation("unit-alpha", "accuracy", expect="reported"),
                Ablation("kaiming", "accuracy"),
                Ablation("fluctuation", "accuracy"),
            ),
        ),
        Claim(
            id="fewer-spikes",
            statement="Once trained, the residual network of 101 layers sends no more spikes for "
            "an image than with tdBN (also with its branches starting at zero), BNTT, TEBN or "
            "MPBN.",
            paper="Does not report spikes.",
            conditions=(
                Condition(
                    Stat("spikes", over=RESIDUAL_NORMS, form="ratio", pool="geomean"), at_most=1.0
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch",),
)


# ---- E3: a thousand layers ---------------------------------------------------------------------


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
        "long": [_thousand(1000, 16, 200)],
    },
    setup=lambda cell: digits(cell.seed),
    contenders=(
        Contender("ours", thousand("ours")),
        Contender("trunk-only", thousand("trunk-only")),
        Contender("kaiming", thousand("kaiming")),
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
            ablations=(Ablation("kaiming", "accuracy"), Ablation("fluctuation", "accuracy")),
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
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch", "scikit-learn"),
)


EXPERIMENTS: tuple[Experiment, ...] = (
    DEPTHS,
    PLAIN,
    SMALL_BATCHES,
    SINGLE_ROWS,
    RESIDUAL,
    THOUSAND,
    STEP_TIME,
)
