"""Everyone who answers the steps of a stream: ours, its ablations and the rivals."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from armillary.context.radar import duplicates, peers
from armillary.context.radar.agreement import (
    Agreement,
    AnswerAgreement,
    Embedder,
    EmbeddingAgreement,
)
from armillary.context.radar.decision import SAME_CLASS, Rules, decide
from armillary.context.radar.evidence_readings import reading, subject_of
from armillary.context.radar.evidence_spellings import value_of
from armillary.context.radar.evidence_streams import (
    DOCUMENTS,
    Policy,
    Step,
    Streams,
    answers_of,
    scored,
    together,
)
from armillary.context.radar.memory import CampaignSettings, CampaignState, PaperState
from armillary.context.radar.value_agreement import ValueAgreement
from armillary.errors import require
from armillary.evidence.shapes import Cell, Contender, Need

#: Sentence embeddings of every answer in the question sets, as the embedded encoder gives them.
EMBEDDINGS = "answers.npz"

CAMPAIGN = Rules()
PAPER = Rules(memory="paper")
STATIC = Rules(memory=None)
#: Parts of the campaign memory taken away.
ABLATIONS = {
    "no-campaign-price": Rules(campaign=CampaignSettings(campaign=0)),
    "free-campaigns": Rules(campaign=CampaignSettings(campaign=1, copy=1)),
    "half-belief": Rules(campaign=CampaignSettings(weight=0.5)),
    "no-coupling": Rules(agreement_in_cut=False),
}


@cache
def values() -> ValueAgreement:
    """One judge for all, so that each pair of answers is judged once a process."""
    return ValueAgreement()


class RecordedEmbeddings:
    """The encoder's vectors of the answers, from the package."""

    def __init__(self) -> None:
        with np.load(str(resources.files("armillary.context.radar") / EMBEDDINGS)) as arrays:
            self._rows = {str(t): i for i, t in enumerate(arrays["texts"])}
            self._vectors = arrays["vectors"].astype(np.float64)

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """(n, 384) vectors.

        Raises:
            KeyError: a text is none of the answers.
        """
        return self._vectors[[self._rows[text] for text in texts]]


class _EqualTexts:
    """Answers agree when their texts are equal: for simulated readers, whose answers are labels."""

    name = "equal texts"

    def compare(self, question: str, answers: Sequence[str]) -> Agreement:
        texts = np.array(answers)
        same = (texts[:, None] == texts[None, :]).astype(float)
        return Agreement(same, 1.0 - same)


def equal_texts() -> AnswerAgreement:
    return _EqualTexts()


@cache
def embeddings() -> EmbeddingAgreement:
    return EmbeddingAgreement(RecordedEmbeddings())


@lru_cache(maxsize=4096)
def _near(texts: tuple[str, ...]) -> list[list[int]]:
    return duplicates.near(texts)


def votes(
    step: Step, judge: AnswerAgreement, *, by_text: bool = False
) -> tuple[list[str], list[int]]:
    """The answers that count and the ranks of their pages: copies once, for every contender alike.

    With ``by_text`` near-copies count once whatever they answer.
    """
    texts = tuple(page.text for page in step.pages)

    def agree(one: str, two: str) -> bool:
        return bool(judge.compare(step.question, [one, two]).agreement[0, 1] >= SAME_CLASS)

    answers = ["" if by_text else page.answer for page in step.pages]
    copied = duplicates.merged(_near(texts), texts, answers, agree)
    given = [
        (page.answer, rank)
        for rank, (page, copy) in enumerate(zip(step.pages, copied, strict=True))
        if page.answer is not None and copy is None
    ]
    return [answer for answer, _ in given], [rank for _, rank in given]


def radar(
    rules: Rules, scorer: Callable[[], AnswerAgreement] = values, *, by_text: bool = False
) -> Policy:
    """The method, with some parts on; ``by_text`` lets an edited copy silence its original."""

    def start() -> Callable[[Step], str | None]:
        state: PaperState | CampaignState | None = None

        def answer(step: Step) -> str | None:
            nonlocal state
            answers, ranks = votes(step, scorer(), by_text=by_text)
            if not answers:
                return _remembered(state)
            decision = decide(
                step.question, answers, ranks, len(step.pages), scorer(), rules=rules, state=state
            )
            state = decision.state
            return decision.answer

        return answer

    return start


def _remembered(state: PaperState | CampaignState | None) -> str | None:
    if state is None:
        return None
    return state.answer if isinstance(state, PaperState) else state.best


def stateless(
    choose: Callable[[Step, list[str], list[int]], int],
    scorer: Callable[[], AnswerAgreement] = values,
) -> Policy:
    """A rival that looks at one step alone."""

    def answer(step: Step) -> str | None:
        answers, ranks = votes(step, scorer())
        return answers[choose(step, answers, ranks)] if answers else None

    return lambda: answer


def majority(scorer: Callable[[], AnswerAgreement] = values) -> Policy:
    """Majority vote over isolated answers."""
    return stateless(
        lambda step, a, r: peers.majority(a, scorer().compare(step.question, a)), scorer
    )


def independent_set(scorer: Callable[[], AnswerAgreement] = values) -> Policy:
    """ReliabilityRAG's selection."""
    return stateless(
        lambda step, a, r: peers.independent_set(scorer().compare(step.question, a)), scorer
    )


def remembering(
    start: Callable[[], peers.Remembering], scorer: Callable[[], AnswerAgreement] = values
) -> Policy:
    """A simple rival with a memory."""

    def begin() -> Callable[[Step], str | None]:
        rival = start()

        def answer(step: Step) -> str | None:
            answers, _ = votes(step, scorer())
            return rival.answer(step.question, answers, scorer())

        return answer

    return begin


#: Half of the ten documents that are retrieved at an ordinary step.
SUPPORT = DOCUMENTS // 2
#: Tuned on seeds 1000 to 1004 among 0.1, 0.2, ... 0.9; see the page.
DECAY = 0.3


def sticky(scorer: Callable[[], AnswerAgreement] = values) -> Policy:
    """Keeps the last answer while half of the readers support it."""
    return remembering(lambda: peers.Sticky(SUPPORT), scorer)


def decayed(scorer: Callable[[], AnswerAgreement] = values, decay: float = DECAY) -> Policy:
    """Majority vote over all steps, older votes counting less."""
    return remembering(lambda: peers.DecayedVote(decay), scorer)


MAJORITY = majority()
KEYWORDS = stateless(lambda step, a, r: peers.keywords(a))
LATEST = stateless(lambda step, a, r: peers.latest_only([step.pages[i].year for i in r]))


def _undefended() -> Callable[[Step], str | None]:
    return lambda step: reading(step.question, together(step))


UNDEFENDED: Policy = _undefended


@cache
def _encoder() -> Embedder:
    from armillary import models

    return models.encoder()


def guard(algorithm: str) -> Callable[[Step], list[bool]]:
    """embeddings-guardian on the pages of one stream: which of them look poisoned to it.

    Its baseline is generous: every true page about the question, of before and after the change.
    """
    guardian: Any = require("embeddings_guardian", what="radar", extra="context-peers")
    judge: Any = None

    def rejected(step: Step) -> list[bool]:
        nonlocal judge
        if judge is None:
            judge = guardian.PoisoningDetector(algorithm=algorithm)
            subject = subject_of(step.question)
            judge.update_baseline_batch(
                _encoder().encode([*subject.old, *subject.new, *subject.empty])
            )
        vectors = _encoder().encode([page.text for page in step.pages])
        return [bool(judge.is_poisoned(vector)[0]) for vector in vectors]

    return rejected


def detector(algorithm: str) -> Callable[[Streams, Cell], Mapping[str, float]]:
    """A contender: what embeddings-guardian lets through votes; its rejections are counted."""

    def run(work: Streams, cell: Cell) -> Mapping[str, float]:
        counts: dict[bool, list[bool]] = {True: [], False: []}
        told = []
        for stream in work.streams:
            rejected, vote, answers = guard(algorithm), MAJORITY(), []
            for step in stream:
                verdicts = rejected(step)
                kept = []
                for page, bad in zip(step.pages, verdicts, strict=True):
                    counts[page.poisoned].append(bad)
                    kept += [] if bad else [page]
                answers.append(vote(dataclasses.replace(step, pages=tuple(kept))))
            told.append(answers)
        return {
            **scored(told, work.streams),
            "rejected_poison": float(np.mean(counts[True])) if counts[True] else 0.0,
            "rejected_honest": float(np.mean(counts[False])),
        }

    return run


DETECTOR = (
    Need("extra", "embeddings_guardian", "pip install 'armillary[context-peers]'"),
    Need("extra", "sentence_transformers", "pip install 'armillary[models]'"),
)
NETWORKX = Need("extra", "networkx", "pip install 'armillary[context-peers]'")


def spelled(policy: Policy) -> Callable[[Streams, Cell], Mapping[str, float]]:
    """A policy as a contender on streams whose answers are spelled in several ways."""

    def run(work: Streams, cell: Cell) -> Mapping[str, float]:
        told = [
            [None if answer is None else value_of()[answer] for answer in answers]
            for answers in answers_of(policy, work.streams)
        ]
        return scored(told, work.streams)

    return run


def streaming(policy: Policy) -> Callable[[Streams, Cell], Mapping[str, float]]:
    """A policy as a contender on streams."""

    def run(work: Streams, cell: Cell) -> Mapping[str, float]:
        return scored(answers_of(policy, work.streams), work.streams)

    return run


def paired(policy: Policy) -> Callable[[Streams, Cell], Mapping[str, float]]:
    """A policy as a contender on questions with and without the attack."""

    def run(work: Streams, cell: Cell) -> Mapping[str, float]:
        with_attack = scored(answers_of(policy, work.streams), work.streams)
        without = scored(answers_of(policy, work.unattacked), work.unattacked)
        lost = without["accuracy"] - with_attack["accuracy"]
        return {**with_attack, "lost": lost}

    return run


def rivals(
    wrap: Callable[[Policy], Callable[[Streams, Cell], Mapping[str, float]]],
    scorer: Callable[[], AnswerAgreement] = values,
) -> tuple[Contender, ...]:
    """The rivals that need no memory."""
    return (
        Contender("majority", wrap(majority(scorer))),
        Contender("robustrag-keyword", wrap(KEYWORDS)),
        Contender("reliabilityrag", wrap(independent_set(scorer)), (NETWORKX,)),
        Contender("latest-only", wrap(LATEST)),
    )


def memories(
    wrap: Callable[[Policy], Callable[[Streams, Cell], Mapping[str, float]]],
    scorer: Callable[[], AnswerAgreement] = values,
) -> tuple[Contender, ...]:
    """Simple rivals with a memory."""
    return (
        Contender("sticky", wrap(sticky(scorer))),
        Contender("decayed-vote", wrap(decayed(scorer))),
    )
