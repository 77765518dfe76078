"""The work of the experiments on exactness, storage, calls and time."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence

import numpy as np

from armillary.context.radar import cut, peers
from armillary.context.radar.agreement import Agreement
from armillary.context.radar.evidence_policies import values
from armillary.context.radar.evidence_readings import question_set
from armillary.context.radar.evidence_streams import honest_pages
from armillary.context.radar.radar import Document, Radar
from armillary.context.radar.store import BeliefStore
from armillary.corpora.histories import beside_the_point
from armillary.evidence.shapes import Cell


@dataclasses.dataclass(frozen=True)
class Instance:
    """One energy to minimise."""

    S: np.ndarray
    F: np.ndarray
    M: np.ndarray


def instance(n: int, rng: np.random.Generator) -> Instance:
    """Random weights, a half of the pairs coupled."""
    half = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.5), 1)
    return Instance(rng.random(n), rng.random(n), half + half.T + np.eye(n))


def exact_work(cell: Cell) -> list[Instance]:
    """A hundred instances of 1 to 12 answers."""
    rng = np.random.default_rng([3, cell.seed])
    count = int(cell.case.x["instances"])
    return [instance(int(rng.integers(1, 13)), rng) for _ in range(count)]


def mismatches_of_cut(work: list[Instance], cell: Cell) -> Mapping[str, float]:
    """In how many instances the cut's energy is not the least of all."""
    wrong = 0
    for w in work:
        found = cut.energy(cut.select(w.S, w.F, w.M), w.S, w.F, w.M)
        wrong += abs(found - peers.exhaustive_minimum(w.S, w.F, w.M)) > 1e-5
    return {"mismatches": float(wrong)}


def mismatches_of_greedy(work: list[Instance], cell: Cell) -> Mapping[str, float]:
    """Local search that turns one answer at a time while the energy falls."""
    wrong = 0
    for w in work:
        best = cut.energy(greedy(w), w.S, w.F, w.M)
        wrong += abs(best - peers.exhaustive_minimum(w.S, w.F, w.M)) > 1e-5
    return {"mismatches": float(wrong)}


def greedy(w: Instance) -> np.ndarray:
    """From the answers' own preference, the best single change until none helps."""
    x = w.S > w.F
    while True:
        now = cut.energy(x, w.S, w.F, w.M)
        turned = [np.where(np.arange(len(x)) == i, ~x, x) for i in range(len(x))]
        energies = [cut.energy(y, w.S, w.F, w.M) for y in turned]
        if min(energies) >= now - 1e-12:
            return x
        x = turned[int(np.argmin(energies))]


def instance_work(cell: Cell) -> Instance:
    """One instance with n answers."""
    return instance(int(cell.case.x["n"]), np.random.default_rng([4, cell.seed]))


def time_cut(work: Instance, cell: Cell) -> Mapping[str, float]:
    return {"selected": float(cut.select(work.S, work.F, work.M).sum())}


def time_networkx(work: Instance, cell: Cell) -> Mapping[str, float]:
    return {"selected": float(peers.networkx_select(work.S, work.F, work.M).sum())}


def time_independent_set(work: Instance, cell: Cell) -> Mapping[str, float]:
    """ReliabilityRAG's selection, contradictions where there is no coupling."""
    judged = Agreement(work.M, (work.M == 0).astype(float))
    return {"selected": float(peers.independent_set(judged, seed=cell.seed))}


# ---- storage and calls -------------------------------------------------------------------------

#: Characters of a retrieved chunk; common splitters of documents make them 1,000 to 4,000 long.
CHUNK = 2000


class CountingReader:
    """Knows which value each text states, and counts how often it is asked."""

    def __init__(self, stated: Mapping[str, str]) -> None:
        self._stated, self.calls = stated, 0

    def read(self, question: str, text: str) -> str | None:
        """The value that the text states."""
        self.calls += 1
        return self._stated.get(text)


@dataclasses.dataclass(frozen=True)
class Archive:
    """Steps of documents for one question, each with the value that it states.

    Attributes:
        question: the question.
        steps: new documents of each step.
        stated: text -> value.
        pages: the same steps as the stream experiments have them: ten single sentences each.
    """

    question: str
    steps: tuple[tuple[str, ...], ...]
    stated: Mapping[str, str]
    pages: tuple[tuple[str, ...], ...]


def archive_work(cell: Cell) -> list[Archive]:
    """Chunks of 2,000 characters: a page that states the value, and text about the place."""
    rng = np.random.default_rng([5, cell.seed])
    steps = int(cell.case.x["steps"])
    archives = []
    for subject in question_set(cell.seed)[:4]:
        stated: dict[str, str] = {}
        every, short = [], []
        for t in range(steps):
            late = t >= steps // 2
            pages = subject.new if late else subject.old
            texts = [_chunk(subject.change, page, t, rng) for page in pages]
            value = subject.change.new if late else subject.change.old
            stated |= dict.fromkeys(texts, value)
            every.append(tuple(texts))
            year = subject.change.year + t - steps // 2
            sentences = honest_pages(subject, year, 0.15, rng)
            stated |= {page.text: page.answer for page in sentences if page.answer}
            short.append(tuple(page.text for page in sentences))
        archives.append(Archive(subject.question, tuple(every), stated, tuple(short)))
    return archives


def _chunk(change, page: str, step: int, rng: np.random.Generator) -> str:
    """A page of its own: sentences in random order, numbered so that no two are copies."""
    beside = beside_the_point(change)
    text = f"{page}"
    while len(text) < CHUNK:
        text += f" {beside[int(rng.integers(len(beside)))]} No. {step}-{int(rng.integers(10**6))}."
    return text[:CHUNK]


def storage_of_radar(work: list[Archive], cell: Cell) -> Mapping[str, float]:
    """Bytes of a question's row and of the file, and calls of the reader beyond one a document."""
    size, sentences, extra = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        store = BeliefStore(f"{folder}/beliefs.db", scorer=values().name)
        for archive in work:
            reader = CountingReader(archive.stated)
            radar = Radar(reader, values(), store=store, dedup=None)
            key = archive.question
            for t, texts in enumerate(archive.steps):
                before = reader.calls
                documents = [Document(text) for text in texts]
                radar.answer(archive.question, documents, key=key, time=2 * t)
                extra += abs(reader.calls - before - len(texts))
                before = reader.calls
                radar.answer(archive.question, documents[::-1], key=key, time=2 * t + 1)
                extra += reader.calls - before
            size.append(store.bytes_of(key))
            for t, texts in enumerate(archive.pages):
                radar.answer(archive.question, list(texts), key=f"{key} short", time=t)
            sentences.append(store.bytes_of(f"{key} short"))
        store.close()
        file = os.path.getsize(f"{folder}/beliefs.db")
    share = np.mean([s / _bytes(a.steps) for s, a in zip(size, work, strict=True)])
    short = np.mean([s / _bytes(a.pages) for s, a in zip(sentences, work, strict=True)])
    return {
        "bytes": float(np.mean(size)),
        "file_bytes": file / (2 * len(work)),
        "share": float(share),
        "share_of_sentences": float(short),
        "extra_calls": float(extra),
    }


def storage_of_archive(work: list[Archive], cell: Cell) -> Mapping[str, float]:
    """Bytes of all documents so far."""
    archived = [_bytes(archive.steps) for archive in work]
    return {"bytes": float(np.mean(archived)), "share": 1.0, "share_of_sentences": 1.0}


def _bytes(steps: Sequence[Sequence[str]]) -> int:
    return sum(len(text.encode()) for texts in steps for text in texts)
