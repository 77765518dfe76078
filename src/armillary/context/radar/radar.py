"""The pipeline: documents in, one answer with its reasons out, beliefs kept between steps."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Literal

from armillary.context.radar import duplicates
from armillary.context.radar.agreement import AnswerAgreement, Embedder
from armillary.context.radar.decision import Decision, Rules, decide
from armillary.context.radar.memory import CampaignState, Mode, PaperState
from armillary.context.radar.readers import ChatReader, Reader, answer_or_none
from armillary.context.radar.store import BeliefStore, Remembered, Time, as_number, refuse_stale
from armillary.models.conversation import Chat

Finalizer = Literal["llm", "medoid"]
Verdict = Literal["trusted", "cut", "isolated", "abstained", "duplicate"]

#: From this many trusted answers on, the model must answer from them alone.
ENOUGH = 3


@dataclasses.dataclass(frozen=True)
class Document:
    """A retrieved document; its place in the list is its rank.

    Attributes:
        text: what it says.
        id: how you call it.
        source: where it comes from.
    """

    text: str
    id: str = ""
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Judged:
    """What became of one document.

    Attributes:
        index: its rank, from 0.
        id: its id.
        answer: what it alone answers, None where it abstains or was not read.
        support: S, 0 where it gave no answer.
        doubt: F, 0 where it gave no answer.
        verdict: ``trusted``; ``cut`` (not in the minimum cut); ``isolated`` (unlike the other
            trusted answers); ``abstained``; ``duplicate`` (a copy of an earlier document).
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
            is under the threshold), ``replayed`` (this very observation was seen before, nothing
            was changed).
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
        dedup: ``near`` counts near-copies of a document once; None counts each.
        finalizer: ``llm`` writes the final answer from the trusted ones, ``medoid`` takes the
            trusted answer with most support. Default: ``llm`` with an endpoint, else ``medoid``.
        abstain_below: margin under which no answer is given.
        rules: parts of the method switched off, for ablations; overrides ``memory``.

    Raises:
        ValueError: an unknown ``dedup`` or ``finalizer``, or ``finalizer="llm"`` with a reader.
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
        self.chat = None if isinstance(llm, Reader) else llm
        self.reader = llm if isinstance(llm, Reader) else ChatReader(llm)
        self.scorer = scorer or _default_scorer()
        self.embedder = embedder
        self.rules = rules or Rules(memory=memory)
        if self.rules.memory not in ("campaign", "paper", None):
            raise ValueError(f"memory={memory!r}: give 'campaign', 'paper' or None")
        if dedup not in ("near", None):
            raise ValueError(f"dedup={dedup!r}: give 'near' or None")
        self.dedup, self.abstain_below = dedup, abstain_below
        self.finalizer = finalizer or _default_finalizer(self.chat)
        if self.finalizer not in ("llm", "medoid"):
            raise ValueError(f"finalizer={finalizer!r}: give 'llm' or 'medoid'")
        if self.finalizer == "llm" and self.chat is None:
            raise ValueError("finalizer='llm' needs a chat; with a reader give 'medoid'")
        self.store = store if isinstance(store, BeliefStore) else self._open(store)
        self._read: dict[tuple[str, str], str | None] = {}

    def answer(
        self,
        question: str,
        documents: Sequence[str | Document],
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
            ValueError: no documents, or a document without text.
            StaleObservationError: ``time`` is before the newest observation of the key.
        """
        step = _Step.of(question, documents, key, time)
        if (replayed := self._replayed(step)) is not None:
            return replayed
        for text in self._unread(step):
            self.read(question, text)
        return self._conclude(step)

    def read(self, question: str, text: str) -> str | None:
        """What one document alone answers, read once; None where it abstains."""
        if (question, text) not in self._read:
            self._read[question, text] = self.reader.read(question, text)
        return self._read[question, text]

    async def aanswer(
        self,
        question: str,
        documents: Sequence[str | Document],
        *,
        key: str | None = None,
        time: Time | None = None,
    ) -> RadarResult:
        """``answer`` for asynchronous code: the documents are read concurrently."""
        step = _Step.of(question, documents, key, time)
        if (replayed := self._replayed(step)) is not None:
            return replayed
        todo = self._unread(step)
        aread = getattr(self.reader, "aread", None)
        reads = [
            aread(question, text) if aread else asyncio.to_thread(self.reader.read, question, text)
            for text in todo
        ]
        for text, answer in zip(todo, await asyncio.gather(*reads), strict=True):
            self._read[question, text] = answer
        return await asyncio.to_thread(self._conclude, step)

    def _open(self, place: str | os.PathLike[str] | None) -> BeliefStore | None:
        if self.rules.memory is None:
            return None
        return BeliefStore(place, scorer=self.scorer.name, memory=self.rules.memory)

    def _replayed(self, step: _Step) -> RadarResult | None:
        """The answer of the last observation, where this is it; refuses what is older."""
        known = self.store.get(step.key) if self.store is not None else None
        if known is None:
            return None
        if known.event == step.event:
            belief = _belief(known.state)
            return RadarResult(known.answer, [], [], known.margin, belief, ("replayed",))
        refuse_stale(step.key, known.observed, step.observed)
        return None

    def _copies(self, step: _Step) -> list[int | None]:
        texts = [document.text for document in step.documents]
        return duplicates.copies(texts) if self.dedup else [None] * len(texts)

    def _unread(self, step: _Step) -> list[str]:
        pairs = zip(step.documents, self._copies(step), strict=True)
        texts = dict.fromkeys(document.text for document, copy in pairs if copy is None)
        return [text for text in texts if (step.question, text) not in self._read]

    def _conclude(self, step: _Step) -> RadarResult:
        copied = self._copies(step)
        answers = [
            None if copy is not None else self._read[step.question, document.text]
            for document, copy in zip(step.documents, copied, strict=True)
        ]
        ranks = [i for i, answer in enumerate(answers) if answer is not None]
        known = self.store.get(step.key) if self.store is not None else None
        if not ranks:
            return self._unsupported(step, copied, known)
        decision = decide(
            step.question,
            [answer for answer in answers if answer is not None],
            ranks,
            len(answers),
            self.scorer,
            rules=self.rules,
            state=known.state if known else None,
            embedder=self.embedder,
        )
        final = self._final(step.question, decision, [answers[i] or "" for i in ranks])
        state = self._state_of(step.question, final, decision, [answers[i] or "" for i in ranks])
        flags = ["fallback"] if decision.fallback else []
        if decision.chosen >= len(ranks):
            flags.append("remembered")
        given: str | None = final
        if self.abstain_below is not None and decision.margin < self.abstain_below:
            given = None
            flags.append("abstained")
        if self.store is not None and state is not None:
            event = Remembered(state, given, decision.margin, step.observed, step.event)
            if not self.store.put(step.key, event, after=known.event if known else None):
                return self._conclude(step)  # another writer was quicker: think again from its row
        scores = _judged(step.documents, answers, copied, ranks, decision)
        trusted = [line.index for line in scores if line.verdict == "trusted"]
        belief = _belief(state)
        return RadarResult(given, trusted, scores, decision.margin, belief, tuple(flags))

    def _unsupported(
        self, step: _Step, copied: list[int | None], known: Remembered | None
    ) -> RadarResult:
        """No document answers: what is remembered, else the model reads all of them at once."""
        scores = _judged(step.documents, [None] * len(copied), copied, [], None)
        if known is not None:
            state = known.state
            answer = state.answer if isinstance(state, PaperState) else state.best
            flags = ("unsupported", "remembered")
            return RadarResult(answer, [], scores, 0.0, _belief(state), flags)
        answer = None
        if self.chat is not None:
            together = "\n\n".join(document.text for document in step.documents)
            asked = ChatReader(self.chat).prompt(step.question, together)
            answer = answer_or_none(self.chat.complete(asked, max_tokens=64).text)
        return RadarResult(answer, [], scores, 0.0, {}, ("unsupported",))

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


@dataclasses.dataclass(frozen=True)
class _Step:
    """One checked call."""

    question: str
    documents: tuple[Document, ...]
    key: str
    observed: float | None
    event: str

    @classmethod
    def of(
        cls,
        question: str,
        documents: Sequence[str | Document],
        key: str | None,
        time: Time | None,
    ) -> _Step:
        if isinstance(documents, str):
            raise TypeError("documents: got one string, give a list of documents")
        if not documents:
            raise ValueError(f"radar: no documents for question {question!r}")
        whole = tuple(Document(d) if isinstance(d, str) else d for d in documents)
        for index, document in enumerate(whole):
            if not document.text.strip():
                raise ValueError(f"documents[{index}] has no text; leave it out")
        key = key or " ".join(question.lower().split())
        observed = as_number(time)
        told = json.dumps([key, observed, question, [d.text for d in whole]])
        return cls(question, whole, key, observed, hashlib.sha256(told.encode()).hexdigest())


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
            lines.append(Judged(index, document.id, None, 0.0, 0.0, verdict))
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
