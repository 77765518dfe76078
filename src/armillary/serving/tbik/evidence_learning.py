"""Learning from rollouts that the trainer agrees with, beside plain bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
)  # fmt: skip
from armillary.serving.tbik.evidence_kernels import NEEDS

STEPS = {"smoke": 2, "quick": 10, "full": 40, "long": 300}


def game(cell: Cell) -> None:
    """The seed draws weights, prompts and samples; nothing is shared but that."""


def learner(backend: str) -> Callable[[None, Cell], Mapping[str, float]]:
    def run(work: None, cell: Cell) -> Mapping[str, float]:
        from armillary.serving.tbik.learning import Course, learn

        return learn(backend, Course(steps=STEPS[cell.profile]), cell.seed)

    return run


def _cases() -> list[Case]:
    return [Case("format", needs=NEEDS)]


LEARNING = Experiment(
    id="learning",
    title="Reward while a small Llama learns a format",
    cases={"smoke": _cases(), "quick": [], "full": _cases(), "long": _cases()},
    setup=game,
    contenders=(
        Contender("ours", learner("tbik")),
        Contender("torch-bf16", learner("naive")),
    ),
    metrics=(
        Metric("reward", "share", "higher"),
        Metric("last_reward", "share", "higher"),
        Metric("apart", "nats"),
    ),
    claims=(
        Claim(
            id="learns-no-worse",
            statement="Mean reward over the whole course is not below that of plain bfloat16 by "
            "more than 0.02, and rollout and trainer never differ.",
            paper="Better and faster learning than the mismatched baseline on large models.",
            conditions=(
                Condition(Stat("reward", over=("torch-bf16",), form="difference"), at_least=-0.02),
                Condition(Stat("apart"), at_most=0, every=True),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 20},
    packages=("torch", "transformers"),
)
