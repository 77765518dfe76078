"""Does a model give one answer whatever the batch, padding, chunks and number of ranks?"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from armillary.serving.tbik.dist import Alone
from armillary.serving.tbik.generation import Answer, Setting, on_ranks
from armillary.serving.tbik.ranks import run_ranks


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one setting did to the prompts, against the first setting.

    Attributes:
        setting: how prompts were run.
        differing: prompts whose logits differ in any bit.
        token_differing: prompts whose tokens differ.
        max_dlogprob: largest difference of a log-probability, up to the first differing token.
        first_layer: for the first such prompt, the first module whose output for the last prompt
            token differs; empty if none does.
        unfinite: logits that are NaN or infinite.
    """

    setting: str
    differing: int
    token_differing: int
    max_dlogprob: float
    first_layer: str
    unfinite: int


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        backend: what was audited.
        dtype: of the weights.
        prompts: how many.
        distinct: (prompts,) how many different outputs (tokens and logits) each prompt got.
        findings: one a setting.
    """

    backend: str
    dtype: str
    prompts: int
    distinct: tuple[int, ...]
    findings: tuple[Finding, ...]

    @property
    def invariant(self) -> bool:
        """Whether every prompt had one output in all settings."""
        return all(n == 1 for n in self.distinct)

    @property
    def first_layer(self) -> str:
        """The first module that differed in any setting; empty if none did."""
        return next((f.first_layer for f in self.findings if f.first_layer), "")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        about = dataclasses.asdict(self)
        return {**about, "invariant": self.invariant, "first_layer": self.first_layer}


def settings_of(
    tp: Sequence[int], batch: Sequence[int], chunk: Sequence[int] = (0,), transport: str = "shm"
) -> list[Setting]:
    """The settings of an audit: the plainest first, every other one shuffled and padded."""
    plain = Setting(tp=tp[0], batch=batch[0], transport=transport)
    found = [plain]
    for ranks in tp:
        for rows in batch:
            for tokens in chunk:
                odd = len(found) % 2 == 1
                setting = Setting(ranks, rows, tokens, 3 if odd else 0, odd, transport)
                if dataclasses.replace(setting, padding=0, shuffled=False) != plain:
                    found.append(setting)
    return found


def compare(settings: Sequence[Setting], answers: Sequence[Sequence[Answer]]) -> list[Finding]:
    """Every setting's answers against those of the first."""
    return [
        _finding(setting, found, answers[0])
        for setting, found in zip(settings, answers, strict=True)
    ]


def _finding(setting: Setting, found: Sequence[Answer], base: Sequence[Answer]) -> Finding:
    pairs = list(zip(found, base, strict=True))
    differing = [i for i, (a, b) in enumerate(pairs) if a.sha256 != b.sha256]
    first = ""
    for i in differing:
        a, b = pairs[i]
        first = next((name for name in b.layers if a.layers.get(name) != b.layers[name]), "")
        if first:
            break
    return Finding(
        str(setting),
        len(differing),
        sum(not np.array_equal(a.tokens, b.tokens) for a, b in pairs),
        max((dlogprob(a, b) for a, b in pairs), default=0.0),
        first,
        sum(a.unfinite for a in found),
    )


def dlogprob(a: Answer, b: Answer) -> float:
    """The largest difference of log-probabilities while both have said the same.

    The step at which tokens part is not compared: other tokens have other probabilities.
    """
    same = a.tokens == b.tokens
    until = int(np.argmin(same)) if not same.all() else len(same)
    if until == 0:
        return 0.0
    gaps = np.abs(a.logprobs[:until].astype(np.float64) - b.logprobs[:until])
    return float(np.nan_to_num(gaps, nan=np.inf).max())


def distinct(answers: Sequence[Sequence[Answer]]) -> tuple[int, ...]:
    """How many different outputs each prompt had over all settings."""
    prompts = range(len(answers[0]))
    return tuple(
        len({(found[i].tokens.tobytes(), found[i].sha256) for found in answers}) for i in prompts
    )


def run_settings(
    folder: str | Path, prompts: Sequence[Sequence[int]], new_tokens: int | Sequence[int],
    settings: Sequence[Setting], *, backend: str = "tbik", dtype: str = "bfloat16",
    layers: bool = False, seed: int = 0, seconds: float = 900.0,
) -> list[list[Answer]]:  # fmt: skip
    """Answers in every setting, on real processes: as many as the largest setting has ranks.

    Args:
        folder: of a model of transformers.
        prompts: token ids.
        new_tokens: of each answer; one number, or one for each setting.
        settings: how prompts are run.
        backend: see `generation.prepared`.
        dtype: of the weights.
        layers: hash modules' outputs too.
        seed: of shuffled orders.
        seconds: limit for one number of ranks.
    """
    lengths = [new_tokens] if isinstance(new_tokens, int) else list(new_tokens)
    world = max(s.tp for s in settings)
    if world == 1:  # one rank needs no other process
        found = on_ranks(
            Alone(), str(folder), dtype, backend, prompts, lengths, settings, layers, seed
        )
        assert found is not None
        return found
    return run_ranks(
        world, on_ranks, str(folder), dtype, backend, list(prompts), lengths, list(settings),
        layers, seed, transport="gloo", seconds=seconds,
    )[0]  # fmt: skip


def audit(
    model: Any,
    prompts: Sequence[Sequence[int]],
    *,
    tp: Sequence[int] = (1, 2, 4, 8),
    batch: Sequence[int] = (1, 4, 16),
    chunk: Sequence[int] = (0,),
    dtype: torch.dtype = torch.bfloat16,
    backend: str = "tbik",
    new_tokens: int = 16,
    transport: str = "shm",
    bar: Callable[[list[int]], Iterable[int]] = iter,
) -> AuditReport:
    """Run prompts in every setting, on real processes, and name the first layer that differs.

    Args:
        model: a model of transformers (left as it is), or the folder of one.
        prompts: token ids of each prompt.
        tp: numbers of ranks, each rank a process.
        batch: prompts together.
        chunk: tokens of a prefill chunk; 0: all at once.
        dtype: of the weights.
        backend: ``tbik``, or ``torch`` (plain products, gloo's all_reduce), ``layercast``,
            ``double``.
        new_tokens: greedy tokens a prompt.
        transport: ``shm`` or ``gloo``.
        bar: wraps the numbers of ranks in a progress bar.

    Returns:
        The report; ``report.invariant`` says yes or no.

    Raises:
        ValueError: no prompts; more ranks than leaves of a layer.
        UnsupportedModelError, TypeError: as `make_invariant`.
    """
    if not prompts or any(len(p) == 0 for p in prompts):
        raise ValueError("prompts: give at least one, each of at least one token")
    if not tp or not batch or min(tp) < 1 or min(batch) < 1:
        raise ValueError(f"tp={list(tp)}, batch={list(batch)}: give numbers from 1")
    settings = settings_of(tp, batch, chunk, transport)
    kind = str(dtype).removeprefix("torch.")
    name = "naive" if backend == "torch" else backend
    with tempfile.TemporaryDirectory(prefix="armillary-audit-") as scratch:
        folder = model
        if not isinstance(model, (str, Path)):
            folder = scratch
            model.save_pretrained(scratch)
        found: dict[int, list[Answer]] = {}
        for ranks in bar(sorted({s.tp for s in settings})):
            mine = [i for i, s in enumerate(settings) if s.tp == ranks]
            answers = run_settings(
                folder, prompts, new_tokens, [settings[i] for i in mine], backend=name,
                dtype=kind, layers=True,
            )  # fmt: skip
            found.update(zip(mine, answers, strict=True))
    answers = [found[i] for i in range(len(settings))]
    findings = compare(settings, answers)
    return AuditReport(backend, kind, len(prompts), distinct(answers), tuple(findings))
