"""The rivals, on the same isolated answers. Each is written anew from its paper.

None calls a model for the final answer, ours neither: all end in one of the isolated answers, so
that what is compared is the selection.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from armillary.context.radar.memory import MOST_CLASSES, classes
from armillary.errors import require

if TYPE_CHECKING:
    from jaxtyping import Float

    from armillary.context.radar.agreement import Agreement, AnswerAgreement

#: RobustRAG's thresholds (Xiang et al., 2024, arXiv 2405.15556): share and number of responses.
ALPHA, BETA = 0.3, 3
#: ReliabilityRAG (Shen et al., 2025, arXiv 2509.23519): exact up to 20, else 10 samples of 20.
EXACT_UP_TO, SAMPLES, GAMMA = 20, 10, 0.9

#: Agreement from which two answers are one class.
_SAME = 0.5
_STOP = frozenset(("a", "an", "and", "at", "by", "for", "in", "is", "it", "of", "on", "the", "to"))


def majority(answers: Sequence[str], judged: Agreement) -> int:
    """The first answer of the largest class; RobustRAG's voting for questions with options.

    Args:
        answers: n >= 1 isolated answers in rank order.
        judged: their agreement.

    Returns:
        An index of ``answers``.
    """
    found = classes(judged.agreement)
    return int(np.flatnonzero(found == np.bincount(found).argmax())[0])


class Remembering(Protocol):
    """A rival with a memory of its own, for one stream."""

    def answer(self, question: str, answers: Sequence[str], judge: AnswerAgreement) -> str | None:
        """The answer at this step, None where there has been none yet."""
        ...


class Sticky:
    """Keeps the last answer while enough isolated answers support it, else majority decides.

    Args:
        support: how many answers must agree with the last one for it to stay.
    """

    def __init__(self, support: int) -> None:
        self.support = support
        self._last: str | None = None

    def answer(self, question: str, answers: Sequence[str], judge: AnswerAgreement) -> str | None:
        """See `Remembering`."""
        if not answers:
            return self._last
        if self._last is not None:
            judged = judge.compare(question, [self._last, *answers])
            if (judged.agreement[0, 1:] >= _SAME).sum() >= self.support:
                return self._last
        self._last = answers[majority(answers, judge.compare(question, answers))]
        return self._last


class DecayedVote:
    """Majority vote over all steps, the votes of a step counting ``decay`` times less at the next.

    Args:
        decay: from 0 (this step alone) to 1 (all steps alike).
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self._votes: dict[str, float] = {}

    def answer(self, question: str, answers: Sequence[str], judge: AnswerAgreement) -> str | None:
        """See `Remembering`."""
        known = list(self._votes)
        everyone = [*known, *answers]
        if not everyone:
            return None
        found = classes(judge.compare(question, everyone).agreement)
        weights = [self.decay * self._votes[a] for a in known] + [1.0] * len(answers)
        totals = np.bincount(found, weights=weights)
        names = {int(c): everyone[i] for i, c in reversed(list(enumerate(found)))}
        most = np.argsort(-totals, kind="stable")[:MOST_CLASSES]
        self._votes = {names[int(c)]: float(totals[c]) for c in most}
        return names[int(totals.argmax())]


def latest_only(years: Sequence[float]) -> int:
    """The answer of the newest document, the first of equals.

    Args:
        years: when the document of each answer was written.
    """
    return int(np.argmax(np.asarray(years)))


def keywords(answers: Sequence[str], *, alpha: float = ALPHA, beta: int = BETA) -> int:
    """RobustRAG's keyword aggregation: words that enough isolated answers share decide.

    A word is kept when at least min(alpha n, beta) of the n answers have it. The paper lets the
    model answer again from the kept words; here the isolated answer wins whose words are kept with
    the largest mean count (the first of equals).
    """
    found = [_words(answer) for answer in answers]
    counts = Counter(word for words in found for word in words)
    least = min(alpha * len(answers), beta)
    kept = {word: count for word, count in counts.items() if count >= least}
    score = [sum(kept.get(w, 0) for w in words) / max(len(words), 1) for words in found]
    return int(np.argmax(score))


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w+:.%-]+", text.lower())) - _STOP


def independent_set(judged: Agreement, *, seed: int = 0) -> int:
    """ReliabilityRAG: the largest set of answers without contradictions, low ranks preferred.

    Answers that contradict (C > 0.5) may not stand together. Up to 20 answers the maximum
    independent set is exact, of equals the one that comes first in rank order; beyond, ten samples
    of 20 answers drawn with weights gamma ** rank each elect an answer.

    Args:
        judged: agreement and conflict of n >= 1 answers in rank order.
        seed: of the samples.

    Returns:
        The index of the first answer in the set (or the one that most samples elect).
    """
    conflict = judged.conflict > 0.5
    n = len(conflict)
    if n <= EXACT_UP_TO:
        return _first_of_set(conflict, list(range(n)))
    rng = np.random.default_rng(seed)
    weights = GAMMA ** np.arange(n)
    elected = []
    for _ in range(SAMPLES):
        drawn = rng.choice(n, EXACT_UP_TO, replace=False, p=weights / weights.sum())
        elected.append(_first_of_set(conflict, sorted(drawn.tolist())))
    found = classes(judged.agreement)
    votes = Counter(int(found[i]) for i in elected)
    winner = votes.most_common(1)[0][0]
    return next(i for i in sorted(elected) if found[i] == winner)


def _first_of_set(conflict: Float[np.ndarray, "n n"], members: Sequence[int]) -> int:
    """The lowest rank in the maximum independent set of some answers.

    An independent set is a clique of the complement; a weight of 2^n plus 2^(n - 1 - i) an answer
    makes size come first and rank order second.
    """
    networkx: Any = require("networkx", what="radar's rivals", extra="context-peers")
    n = len(members)
    graph = networkx.Graph()
    for place, _ in enumerate(members):
        graph.add_node(place, weight=2**n + 2 ** (n - 1 - place))
    for a in range(n):
        for b in range(a + 1, n):
            if not conflict[members[a], members[b]]:
                graph.add_edge(a, b)
    clique, _ = networkx.max_weight_clique(graph)
    return members[min(clique)]


def networkx_select(
    S: Float[np.ndarray, " n"], F: Float[np.ndarray, " n"], M: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, " n"]:
    """The same minimum cut through networkx, as the paper's authors solve it; for timing."""
    networkx: Any = require("networkx", what="radar's rivals", extra="context-peers")
    graph = networkx.DiGraph()
    n = len(S)
    for i in range(n):
        graph.add_edge("s", i, capacity=float(S[i]))
        graph.add_edge(i, "t", capacity=float(F[i]))
        for j in range(n):
            if i != j and M[i, j] > 0:
                graph.add_edge(i, j, capacity=float(M[i, j]))
    _, (reached, _) = networkx.minimum_cut(graph, "s", "t")
    return np.array([i in reached for i in range(n)])


def exhaustive_minimum(
    S: Float[np.ndarray, " n"], F: Float[np.ndarray, " n"], M: Float[np.ndarray, "n n"]
) -> float:
    """The least energy over all 2^n choices, n up to about 16."""
    n = len(S)
    bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    unary = (1 - bits) @ S + bits @ F
    upper = np.triu(M, 1)
    left, right = np.nonzero(upper)
    apart = np.abs(bits[:, left] - bits[:, right]) @ upper[left, right]
    least = float((unary + apart).min())
    return least if math.isfinite(least) else math.inf
