"""The pipeline: documents in, one answer with its reasons out, beliefs kept between steps."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from armillary.context.radar import duplicates
from armillary.context.radar.agreement import AnswerAgreement, Embedder
from armillary.context.radar.decision import SAME_CLASS, Decision, Rules, decide
from armillary.context.radar.memory import CampaignState, Mode, PaperState
from armillary.context.radar.observation import Document as Document
from armillary.context.radar.observation import Observation
from armillary.context.radar.readers import ChatReader, Reader, ReadOnce, answer_or_none
from armillary.context.radar.store import BeliefStore, Remembered, Time, refuse_stale
from armillary.models.conversation import Chat

Finalizer = Literal["llm", "medoid"]
Verdict = Literal["trusted", "cut", "isolated", "abstained", "duplicate"]

#: From this many trusted answers on, the model must answer from them alone.
ENOUGH = 3


@dataclasses.dataclass(frozen=True)
class Judged:
    """What became of one document.

    Attributes:
        index: its rank, from 0.
        id: its id.
        answer: what it alone answers, None where it abstains.
        support: S, 0 where it has no vote.
        doubt: F, 0 where it has no vote.
        verdict: ``trusted``; ``cut`` (not in the minimum cut); ``isolated`` (unlike the other
            trusted answers); ``abstained``; ``duplicate`` (a copy of an earlier document that
            answers the same).
    """

    index: int
    id: str
    answer: str | None
    support: float
    doubt: float
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class RadarResult:
    """An answer and how it came about.

    Attributes:
        answer: the final answer; None where it abstains.
        trusted: ranks of the trusted documents.
        scores: one line a document.
        margin: energy that it would cost to distrust the answer, at least 0; larger is surer.
        belief: what is remembered: answer -> probability (campaign), or the remembered answer with
            its support (paper); empty without memory.
        flags: ``unsupported`` (no document answers), ``fallback`` (none could be trusted, all
            spoke), ``remembered`` (the answer comes from memory alone), ``abstained`` (the margin
            is under the threshold), ``replayed`` (this very observation was the last one: nothing
            was changed, the answer and its margin are those of then, and what is trusted is
            computed again).
    """

    answer: str | None
    trusted: list[int]
    scores: list[Judged]
    margin: float
    belief: dict[str, float]
    flags: tuple[str, ...]


class Radar:
    """Answers from documents of which some may be poisoned, while the truth may change.

    Use it when several documents are retrieved for a question and you do not control who wrote
    them; with a memory, when the same questions are asked again over time. Do not use it where one
    authoritative document exists, or where documents each hold a part of a long answer.

    Args:
        llm: a chat, or a `Reader` of your own.
        scorer: judges whether answers agree; default `ValueAgreement`, with sentence embeddings for
            answers without a value where the extra ``models`` is installed.
        embedder: for the isolation filter; without one, agreement stands for similarity.
        memory: ``campaign`` (ours, default), ``paper`` or None.
        store: where beliefs are kept: a `BeliefStore`, a path or an SQLAlchemy URL; default: in
            this object.
        dedup: ``near`` counts near-copies of a document that answer the same once; None counts
            each.
        finalizer: ``llm`` writes the final answer from the trusted ones, ``medoid`` takes the
            trusted answer with most support. Default: ``llm`` with an endpoint, else ``medoid``.
        abstain_below: margin under which no answer is given; where no document answers, the
            margin is 0.
        rules: parts of the method switched off, for ablations; overrides ``memory``.

    Raises:
        TypeError: ``llm`` is neither a chat nor a reader, or ``scorer``, ``store`` or
            ``abstain_below`` is of another type than said above.
        ValueError: an unknown ``memory``, ``dedup`` or ``finalizer``, ``finalizer="llm"`` with a
            reader, a threshold that is not finite, or a store of another judge or memory.
    """

    def __init__(
        self,
        llm: Chat | Reader,
        scorer: AnswerAgreement | None = None,
        embedder: Embedder | None = None,
        *,
        memory: Mode | None = "campaign",
        store: BeliefStore | str | os.PathLike[str] | None = None,
        dedup: Literal["near"] | None = "near",
        finalizer: Finalizer | None = None,
        abstain_below: float | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.chat = _chat_or_none(llm)
        self.reader = llm if isinstance(llm, Reader) else ChatReader(llm)
        self.scorer = scorer or _default_scorer()
        if not hasattr(self.scorer, "compare") or not hasattr(self.scorer, "name"):
            raise TypeError(f"scorer: a {type(scorer).__name__} has no compare() and name")
        self.embedder = embedder
        self.rules = rules or Rules(memory=memory)
        if self.rules.memory not in ("campaign", "paper", None):
            raise ValueError(f"memory={memory!r}: give 'campaign', 'paper' or None")
        if dedup not in ("near", None):
            raise ValueError(f"dedup={dedup!r}: give 'near' or None")
        self.dedup, self.abstain_below = dedup, _threshold(abstain_below)
        self.finalizer = finalizer or _default_finalizer(self.chat)
        if self.finalizer not in ("llm", "medoid"):
            raise ValueError(f"finalizer={finalizer!r}: give 'llm' or 'medoid'")
        if self.finalizer == "llm" and self.chat is None:
            raise ValueError("finalizer='llm' needs a chat; with a reader give 'medoid'")
        self.store = self._open(store)
        self._read = ReadOnce(self.reader)

    def answer(
        self,
        question: str,
        documents: Iterable[str | Document],
        *,
        key: str | None = None,
        time: Time | None = None,
    ) -> RadarResult:
        """Answer a question from documents in rank order, and update what is believed.

        Args:
            question: the question.
            documents: at least one, best first.
            key: under which the belief is kept; default: the question, case and spaces aside.
            time: when this was observed; later steps of a key must not be older.

        Raises:
            TypeError: a question, document or key of another type.
            ValueError: an empty question, no documents, a document without text, or a time that is
                none.
            StaleObservationError: ``time`` is before the newest observation of the key.
        """
        step = self._seen(question, documents, key, time)
        return self._conclude(step, [self.read(question, d.text) for d in step.documents])

    def read(self, question: str, text: str) -> str | None:
        """What one document alone answers, read once; None where it abstains."""
        return self._read.read(question, text)

    async def aanswer(
        self,
        question: str,
        documents: Iterable[str | Document],
        *,
        key: str | None = None,
        time: Time | None = None,
    ) -> RadarResult:
        """``answer`` for asynchronous code: the documents are read concurrently."""
        step = self._seen(question, documents, key, time)
        texts = list(dict.fromkeys(document.text for document in step.documents))
        reads = await asyncio.gather(*(self._read.aread(question, text) for text in texts))
        answer_of = dict(zip(texts, reads, strict=True))
        answers = [answer_of[document.text] for document in step.documents]
        return await asyncio.to_thread(self._conclude, step, answers)

    def _open(self, store: Any) -> BeliefStore | None:
        memory = self.rules.memory
        if memory is None:
            if store is not None:
                raise ValueError("store: memory=None keeps no beliefs; leave the store out")
            return None
        if isinstance(store, BeliefStore):
            store.check(scorer=self.scorer.name, memory=memory)
            return store
        if store is not None and not isinstance(store, (str, os.PathLike)):
            raise TypeError(f"store: got a {type(store).__name__}, give a BeliefStore or a path")
        return BeliefStore(store, scorer=self.scorer.name, memory=memory)

    def _seen(
        self,
        question: str,
        documents: Iterable[str | Document],
        key: str | None,
        time: Time | None,
    ) -> Observation:
        """The checked call; refused before anything is read if it is older than what is known."""
        step = Observation.of(question, documents, key, time)
        known = self._known(step)
        if known is not None and known.event != step.event:
            refuse_stale(step.key, known.observed, step.observed)
        return step

    def _known(self, step: Observation) -> Remembered | None:
        return self.store.get(step.key) if self.store is not None else None

    def _copies(self, step: Observation, answers: Sequence[str | None]) -> list[int | None]:
        if not self.dedup:
            return [None] * len(answers)

        def agree(one: str, two: str) -> bool:
            judged = self.scorer.compare(step.question, [one, two])
            return bool(judged.agreement[0, 1] >= SAME_CLASS)

        return duplicates.copies([d.text for d in step.documents], answers, agree)

    def _conclude(self, step: Observation, answers: Sequence[str | None]) -> RadarResult:
        """Decide and remember; again from the newer belief where another writer was quicker."""
        copied = self._copies(step, answers)
        while True:
            known = self._known(step)
            result, row = self._decided(step, answers, copied, known)
            if row is None or self.store is None:
                return result
            if self.store.put(step.key, row, after=known.event if known else None):
                return result

    def _decided(
        self,
        step: Observation,
        answers: Sequence[str | None],
        copied: Sequence[int | None],
        known: Remembered | None,
    ) -> tuple[RadarResult, Remembered | None]:
        """The result, and the row to write; None where this observation is in the row already."""
        votes = zip(answers, copied, strict=True)
        ranks = [i for i, (a, copy) in enumerate(votes) if a is not None and copy is None]
        if not ranks:
            return self._unsupported(step, copied, known)
        replayed = known if known is not None and known.event == step.event else None
        voices = [answers[i] or "" for i in ranks]
        decision = decide(
            step.question,
            voices,
            ranks,
            len(answers),
            self.scorer,
            rules=self.rules,
            state=known.state if known else None,
            embedder=self.embedder,
            update=replayed is None,
        )
        margin = replayed.margin if replayed else decision.margin
        given, state = replayed.answer if replayed else None, decision.state
        if given is None:  # new, or there was no answer under the threshold of then
            given = self._final(step.question, decision, voices)
            state = state if replayed else self._state_of(step.question, given, decision, voices)
        flags = ["replayed"] if replayed else []
        if decision.fallback:
            flags.append("fallback")
        if decision.chosen >= len(ranks):
            flags.append("remembered")
        if self._too_unsure(margin):
            given = None
            flags.append("abstained")
        scores = _judged(step.documents, answers, copied, ranks, decision)
        trusted = [line.index for line in scores if line.verdict == "trusted"]
        row = None
        if state is not None and not replayed:
            row = Remembered(state, given, margin, step.observed, step.event)
        belief = _belief(replayed.state if replayed else state)
        return RadarResult(given, trusted, scores, margin, belief, tuple(flags)), row

    def _too_unsure(self, margin: float) -> bool:
        return self.abstain_below is not None and margin < self.abstain_below

    def _unsupported(
        self, step: Observation, copied: Sequence[int | None], known: Remembered | None
    ) -> tuple[RadarResult, Remembered | None]:
        """No document answers: what is remembered, else the model reads all of them at once.

        The belief stays as it is; when this was observed is remembered with it.
        """
        scores = _judged(step.documents, [None] * len(copied), copied, [], None)
        flags, answer, row = ["unsupported"], None, None
        if known is not None:
            flags.append("remembered")
            state = known.state
            answer = state.answer if isinstance(state, PaperState) else state.best
            if known.event == step.event:
                flags.insert(0, "replayed")
            else:
                row = Remembered(state, answer, 0.0, step.observed, step.event)
        elif self.chat is not None and not self._too_unsure(0.0):
            together = "\n\n".join(document.text for document in step.documents)
            asked = ChatReader(self.chat).prompt(step.question, together)
            answer = answer_or_none(self.chat.complete(asked, max_tokens=64).text)
        if self._too_unsure(0.0):
            answer = None
            flags.append("abstained")
        belief = _belief(known.state if known else None)
        return RadarResult(answer, [], scores, 0.0, belief, tuple(flags)), row

    def _final(self, question: str, decision: Decision, answers: Sequence[str]) -> str:
        if self.finalizer == "medoid" or self.chat is None:
            return decision.answer
        trusted = [a for a, t in zip(answers, decision.trusted, strict=True) if t]
        prompt = final_prompt(question, trusted or [decision.answer])
        written = answer_or_none(self.chat.complete(prompt, max_tokens=256).text)
        return written or decision.answer

    def _state_of(
        self, question: str, final: str, decision: Decision, answers: Sequence[str]
    ) -> PaperState | CampaignState | None:
        """The memory; the paper's holds the final answer, so one that was written is compared."""
        if not isinstance(decision.state, PaperState) or final == decision.answer:
            return decision.state
        against = self.scorer.compare(question, [final, *answers])
        agreement, conflict = against.agreement[0, 1:], against.conflict[0, 1:]
        return PaperState(final, float(agreement.mean()), float(conflict.mean()))


def final_prompt(question: str, trusted: Sequence[str]) -> str:
    """The request for the final answer: strict from three trusted answers on, else lenient."""
    lines = "\n".join(f"- {answer}" for answer in trusted)
    if len(trusted) >= ENOUGH:
        rule = "Use nothing but the findings below; they were checked against one another."
    else:
        rule = "Few findings are left, so weigh them against what you know yourself."
    return (
        f"Answer the question in a few words. {rule}\n\nFindings:\n{lines}\n\nQuestion: {question}"
    )


def _chat_or_none(llm: Any) -> Chat | None:
    if isinstance(llm, Reader):
        return None
    if not callable(getattr(llm, "complete", None)):
        raise TypeError(
            f"llm: got a {type(llm).__name__}, give a chat (armillary.models.chat()) or a reader "
            "with read(question, text)"
        )
    return llm


def _threshold(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"abstain_below: got {value!r}, give a number or None")
    if not math.isfinite(value):
        raise ValueError(f"abstain_below={value}: give a finite number or None")
    return float(value)


def _default_finalizer(chat: Chat | None) -> Finalizer:
    """Models in process are small: they pick better than they write."""
    return "llm" if chat is not None and not hasattr(chat, "embedded") else "medoid"


def _default_scorer() -> AnswerAgreement:
    from armillary.context.radar import value_agreement

    return value_agreement.default_judge()


def _belief(state: PaperState | CampaignState | None) -> dict[str, float]:
    if isinstance(state, PaperState):
        return {state.answer: state.support}
    if state is None:
        return {}
    pairs: Mapping[str, float] = dict(zip(state.answers, state.belief, strict=True))
    return dict(sorted(pairs.items(), key=lambda pair: -pair[1]))


def _judged(
    documents: Sequence[Document],
    answers: Sequence[str | None],
    copied: Sequence[int | None],
    ranks: Sequence[int],
    decision: Decision | None,
) -> list[Judged]:
    place = {rank: at for at, rank in enumerate(ranks)}
    lines = []
    for index, (document, answer) in enumerate(zip(documents, answers, strict=True)):
        at = place.get(index)
        if at is None or decision is None:
            verdict = "abstained" if copied[index] is None else "duplicate"
            lines.append(Judged(index, document.id, answer, 0.0, 0.0, verdict))
            continue
        lines.append(
            Judged(
                index,
                document.id,
                answer,
                float(decision.support[at]),
                float(decision.doubt[at]),
                decision.reasons[at] or "trusted",  # pyright: ignore[reportArgumentType]
            )
        )
    return lines
