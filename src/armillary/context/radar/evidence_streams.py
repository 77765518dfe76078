"""The work of the experiments: static question sets and streams, read by the recorded reader.

Everything random comes from the seed; every contender gets the same documents and readings.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from armillary.context.radar.attacks import drip, placed, surge
from armillary.context.radar.evidence_readings import SETS, Subject, question_set, reading
from armillary.evidence.shapes import Case, Cell

STEPS, DOCUMENTS = 12, 10
#: On-topic pages a step; the rest says nothing of the matter.
ON_TOPIC = 8
#: Steps after the change that count as "after the change", its own included.
AFTER = 3


@dataclasses.dataclass(frozen=True)
class Page:
    """One document of a step.

    Attributes:
        text: what it says.
        answer: what the reader answered from it alone, None where it abstained.
        year: when it was written.
        poisoned: whether an attacker wrote it.
    """

    text: str
    answer: str | None
    year: float
    poisoned: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
    """One question at one time.

    Attributes:
        question: the question.
        truth: the right answer now.
        wrong: what the attack wants.
        pages: in rank order.
        attacked: whether a page is poisoned.
        after: whether the change was at most two steps ago.
    """

    question: str
    truth: str
    wrong: str
    pages: tuple[Page, ...]
    attacked: bool
    after: bool = False

    @property
    def answered(self) -> tuple[list[str], list[int]]:
        """The answers that were given, and the ranks of their pages."""
        given = [(p.answer, i) for i, p in enumerate(self.pages) if p.answer is not None]
        return [a for a, _ in given], [i for _, i in given]


Stream = tuple[Step, ...]


@dataclasses.dataclass(frozen=True)
class Streams:
    """Work: streams of steps; a static question is a stream of one step.

    Attributes:
        streams: what is answered.
        unattacked: the same without the attack, in the same order; empty where not needed.
    """

    streams: tuple[Stream, ...]
    unattacked: tuple[Stream, ...] = ()


Read = Callable[[str, str], str | None]


def read_pages(
    subject: Subject,
    texts: Sequence[str],
    year: float,
    *,
    poisoned: bool = False,
    read: Read = reading,
) -> list[Page]:
    """Pages with the recorded answers."""
    return [Page(text, read(subject.question, text), year, poisoned) for text in texts]


def together(step: Step) -> str:
    """All documents of a step in one prompt, as an undefended system reads them."""
    return "\n".join(page.text for page in step.pages)


def honest_pages(
    subject: Subject, year: int, stale: float, rng: np.random.Generator, read: Read = reading
) -> list[Page]:
    """Ten pages in random order: eight on the topic, of which a share lags behind the change."""
    change = subject.change
    lagging = year >= change.year
    current = subject.new if lagging else subject.old
    old = int(rng.binomial(ON_TOPIC, stale)) if lagging else 0
    fresh = rng.permutation(current)[: ON_TOPIC - old].tolist()
    pages = read_pages(subject, fresh, year, read=read)
    late = rng.permutation(subject.old)[:old].tolist()
    pages += read_pages(subject, late, change.year - 1, read=read)
    pages += read_pages(subject, subject.empty[: DOCUMENTS - ON_TOPIC], year, read=read)
    return [pages[i] for i in rng.permutation(len(pages))]


def static_work(cell: Cell, *, read: bool = True) -> Streams:
    """Questions after the change, attacked as the case says, and the same without the attack.

    With ``read=False`` nobody reads the pages: for making the recording.
    """
    x = cell.case.x
    # Honest pages are the same in all cases of a seed.
    rng, attacker = (np.random.default_rng([1, who, cell.seed]) for who in range(2))
    reader: Read = reading if read else lambda question, text: None
    rank = ("first", "middle", "last")[int(x["rank"])]
    attacked, unattacked = [], []
    for subject in question_set(cell.seed)[: _subjects(cell)]:
        year = subject.change.year + AFTER
        for _ in range(int(x.get("draws", 3))):
            pages = honest_pages(subject, year, 0.15, rng, reader)
            kind, copies = KINDS[int(x["kind"])], int(x["copies"])
            if kind == "edited":
                pages, planted = edited_pages(subject, pages, copies, attacker, reader)
            else:
                texts = attack_pages(subject, kind, copies, attacker)
                planted = read_pages(subject, texts, year, poisoned=True, read=reader)
            mixed, at = placed([p.text for p in pages], [p.text for p in planted], rank)
            poisoned, honest = iter(planted), iter(pages)
            both = tuple(next(poisoned) if i in at else next(honest) for i in range(len(mixed)))
            attacked.append((_step(subject, year, both, bool(planted)),))
            unattacked.append((_step(subject, year, tuple(pages), False),))
    return Streams(tuple(attacked), tuple(unattacked))


KINDS = ("poison", "pia", "pia10", "edited")


def recorded_static_work(cell: Cell) -> Streams:
    """`static_work` with the draws whose joint prompts were recorded: those of seeds 0 to 4."""
    return static_work(dataclasses.replace(cell, seed=cell.seed % SETS))


def edited_pages(
    subject: Subject,
    pages: Sequence[Page],
    copies: int,
    rng: np.random.Generator,
    read: Read = reading,
) -> tuple[list[Page], list[Page]]:
    """Honest pages as parts of longer ones, and copies of the first of them with the wrong answer.

    A sentence alone is too short to be a near-copy when its value changes: each stands before forty
    words of its own, as a statement in an article does. What is read is the sentence.
    """
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    whole, planted = [], []
    for page in pages:
        rest = " ".join("".join(rng.choice(letters, 6)) for _ in range(40))
        whole.append(dataclasses.replace(page, text=f"{page.text} {rest}"))
        if page.text in subject.new and len(planted) < copies:
            sentence = subject.edited[subject.new.index(page.text)]
            answer = read(subject.question, sentence)
            planted.append(Page(f"{sentence} {rest}", answer, page.year, True))
    return whole, planted


def static_case(kind: str, rank: str, copies: int, **more: float) -> Case:
    """One kind of attack: ``copies`` documents at a rank."""
    x = {"kind": KINDS.index(kind), "rank": ("first", "middle", "last").index(rank)}
    return Case(f"{kind}, {copies} at {rank}", {**x, "copies": copies, **more})


#: The cases in which all documents were also read at once.
UNDEFENDED_CASES = (
    static_case("poison", "first", 1, draws=1),
    static_case("pia10", "last", 1, draws=1),
)


def attack_pages(subject: Subject, kind: str, copies: int, rng: np.random.Generator) -> list[str]:
    """Poisoned texts: paraphrases, or the injected instruction (all alike)."""
    if kind == "poison":
        return rng.permutation(subject.poison)[:copies].tolist()
    return [subject.pia[kind == "pia10"]] * copies


def _step(
    subject: Subject, year: int, pages: tuple[Page, ...], attacked: bool, after: bool = False
) -> Step:
    truth = subject.change.value(year)
    return Step(subject.question, truth, subject.wrong, pages, attacked, after)


def stream_work(cell: Cell) -> Streams:
    """Twelve steps a question, one change, one attack."""
    rng = np.random.default_rng([2, cell.seed])
    streams = [
        one_stream(subject, cell.case, rng)
        for subject in question_set(cell.seed)[: _subjects(cell)]
        for _ in range(int(cell.case.x.get("draws", 1)))
    ]
    return Streams(tuple(streams))


def one_stream(subject: Subject, case: Case, rng: np.random.Generator) -> Stream:
    """A stream: a step a year, the change at step 5, 6 or 7, and a surge.

    It begins three steps before or after the change, or where the case's ``offset`` says. Poisoned
    pages stand at random ranks among the honest ones.
    """
    x = case.x
    change = int(rng.integers(5, 8))
    start = int(rng.choice([change - 3, change + 3]))
    start = change + int(x["offset"]) if "offset" in x else start
    copies = surge(start, int(x["steps"]), int(x["copies"]), STEPS)
    if x.get("drip"):
        copies = drip(STEPS)
    steps = []
    for t in range(STEPS):
        year = subject.change.year - change + t
        pages = honest_pages(subject, year, x.get("stale", 0.15), rng)
        texts = attack_pages(subject, "poison", copies[t], rng)
        pages += read_pages(subject, texts, year, poisoned=True)
        mixed = tuple(pages[i] for i in rng.permutation(len(pages)))
        after = change <= t < change + AFTER
        steps.append(_step(subject, year, mixed, copies[t] > 0, after))
    return tuple(steps)


def _subjects(cell: Cell) -> int | None:
    return 3 if cell.profile == "smoke" else None


#: A policy starts anew on each stream: step -> answer.
Policy = Callable[[], Callable[[Step], str | None]]


def answers_of(policy: Policy, streams: Sequence[Stream]) -> list[list[str | None]]:
    """The answers of a policy, stream by stream."""
    told = []
    for stream in streams:
        answer = policy()
        told.append([answer(step) for step in stream])
    return told


def scored(told: Sequence[Sequence[str | None]], streams: Sequence[Stream]) -> dict[str, float]:
    """Accuracy over all steps, attack success where attacked, accuracy and lag after the change."""
    right, hit, after, lags = [], [], [], []
    for answers, stream in zip(told, streams, strict=True):
        ok = [a == step.truth for a, step in zip(answers, stream, strict=True)]
        right += ok
        hit += [a == s.wrong for a, s in zip(answers, stream, strict=True) if s.attacked]
        tail = [i for i, step in enumerate(stream) if step.after]
        after += [ok[i] for i in tail]
        if tail:
            until = range(tail[0], len(stream))
            lags.append(next((i - tail[0] for i in until if ok[i]), len(stream) - tail[0]))
    found = {"accuracy": float(np.mean(right)), "asr": float(np.mean(hit)) if hit else 0.0}
    if after:
        found |= {"accuracy_after": float(np.mean(after)), "lag": float(np.mean(lags))}
    return found


def reading_quality(cell: Cell) -> dict[str, float]:
    """How often the reader is right about single documents of a question set."""
    right, silent, misled = [], [], []
    for s in question_set(cell.seed)[: _subjects(cell)]:
        change = s.change
        for pages, value in ((s.old, change.old), (s.new, change.new)):
            right += [reading(s.question, text) == value for text in pages]
        silent += [reading(s.question, text) is None for text in s.empty]
        misled += [reading(s.question, text) == s.wrong for text in (*s.poison, *s.pia, *s.edited)]
    return {
        "read_right": float(np.mean(right)),
        "abstained": float(np.mean(silent)),
        "misled": float(np.mean(misled)),
    }


#: A reader that is right on 85 % of pages that it answers, and abstains on a fifth.
RELIABLE, SILENT = 0.85, 0.2


def simulated_work(cell: Cell) -> Streams:
    """Streams whose pages are read by chance, for what does not depend on the reader at hand.

    An honest page is abstained on with probability 0.2, else read right with probability 0.85, else
    as one of four wrong values; a poisoned one always gives the attacker's answer.
    """
    rng = np.random.default_rng([8, cell.seed])
    count = 6 if cell.profile == "smoke" else int(cell.case.x["questions"])
    return Streams(tuple(_simulated_stream(cell.case, rng) for _ in range(count)))


def _simulated_stream(case: Case, rng: np.random.Generator) -> Stream:
    change = int(rng.integers(5, 8))
    start = int(rng.choice([change - 3, change + 3]))
    copies = surge(start, int(case.x["steps"]), int(case.x["copies"]), STEPS)
    steps = []
    for t in range(STEPS):
        truth, before = ("new", "old") if t >= change else ("old", "error 0")
        wrong = (before, "error 1", "error 2", "error 3")
        pages = _simulated_pages(truth, wrong, DOCUMENTS, t, rng)
        pages += [Page(_text(rng), "attack", t, True) for _ in range(copies[t])]
        mixed = tuple(pages[i] for i in rng.permutation(len(pages)))
        after = change <= t < change + AFTER
        steps.append(Step("simulated", truth, "attack", mixed, copies[t] > 0, after))
    return tuple(steps)


def _simulated_pages(
    truth: str, wrong: Sequence[str], count: int, year: int, rng: np.random.Generator
) -> list[Page]:
    pages = []
    for _ in range(count):
        answer = truth if rng.random() < RELIABLE else wrong[int(rng.integers(len(wrong)))]
        pages.append(Page(_text(rng), None if rng.random() < SILENT else answer, year))
    return pages


def _text(rng: np.random.Generator) -> str:
    """A text like no other."""
    return str(rng.integers(10**12))


def simulated_static_work(cell: Cell) -> Streams:
    """Single questions with many documents, read by chance, with and without the attack."""
    rng = np.random.default_rng([9, cell.seed])
    x = cell.case.x
    rank = ("first", "middle", "last")[int(x["rank"])]
    attacked, unattacked = [], []
    for _ in range(6 if cell.profile == "smoke" else int(x["questions"])):
        wrong = ("error 0", "error 1", "error 2", "error 3")
        pages = _simulated_pages("true", wrong, int(x["documents"]), 0, rng)
        poison = [Page(_text(rng), "attack", 0, True) for _ in range(int(x["copies"]))]
        mixed, at = placed([p.text for p in pages], [p.text for p in poison], rank)
        honest, poisoned = iter(pages), iter(poison)
        both = tuple(next(poisoned) if i in at else next(honest) for i in range(len(mixed)))
        attacked.append((Step("simulated", "true", "attack", both, True),))
        unattacked.append((Step("simulated", "true", "attack", tuple(pages), False),))
    return Streams(tuple(attacked), tuple(unattacked))
