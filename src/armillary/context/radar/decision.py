"""The method's core: isolated answers in, trusted answers and the next memory out.

No model runs here.

1. classes of answers and, with a memory, what is remembered of them (`memory`);
2. support and doubt of each (`scores`);
3. the minimum cut (`cut`), then the isolation filter;
4. the trusted answer with the largest support-weighted agreement, and its margin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from armillary.context.radar import cut, scores
from armillary.context.radar.memory import (
    CampaignSettings,
    CampaignState,
    Mode,
    PaperState,
    blended,
    classes,
    updated,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from armillary.context.radar.agreement import Agreement, AnswerAgreement, Embedder

#: Mean similarity to the other trusted answers under which a trusted answer is dropped.
ISOLATED = 0.3
SAME_CLASS = 0.5


@dataclasses.dataclass(frozen=True)
class Decision:
    """What was decided over n answers.

    Attributes:
        trusted: (n,) booleans.
        support: (n,) S of each answer.
        doubt: (n,) F of each answer.
        chosen: the index of the final answer; n stands for the remembered one.
        answer: the final answer.
        margin: energy that it would cost to distrust the final answer's class, at least 0.
        reasons: (n,) why each answer is not trusted: ``cut``, ``isolated``, or ``""``.
        fallback: nothing was left to trust, so that all answers spoke.
        state: the memory after this step, None without memory.
    """

    trusted: Bool[np.ndarray, " n"]
    support: Float[np.ndarray, " n"]
    doubt: Float[np.ndarray, " n"]
    chosen: int
    answer: str
    margin: float
    reasons: tuple[str, ...]
    fallback: bool
    state: PaperState | CampaignState | None


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which parts of the method are on.

    Attributes:
        memory: ``campaign`` (ours), ``paper`` (the paper's) or None.
        campaign: prices of the campaign memory.
        agreement_in_cut: whether M couples answers in the energy (the paper: yes).
    """

    memory: Mode | None = "campaign"
    campaign: CampaignSettings = dataclasses.field(default_factory=CampaignSettings)
    agreement_in_cut: bool = True


def decide(
    question: str,
    answers: Sequence[str],
    ranks: Sequence[int],
    documents: int,
    scorer: AnswerAgreement,
    *,
    rules: Rules | None = None,
    state: PaperState | CampaignState | None = None,
    embedder: Embedder | None = None,
    update: bool = True,
) -> Decision:
    """Decide which answers to trust.

    Args:
        question: the question.
        answers: n >= 1 isolated answers, abstentions left out.
        ranks: (n,) ranks of their documents, from 0.
        documents: K, how many documents were read.
        scorer: judges agreement and conflict.
        rules: which parts are on; default: all, with the campaign memory.
        state: the memory after the step before, None at the first.
        embedder: for the isolation filter; without one, agreement stands for similarity.
        update: whether this step is new. If not, ``state`` is the memory after it and stays: the
            campaign memory then decides as it did at first, the paper's as if its last answer had
            been there before.

    Raises:
        ValueError: no answers, a state of the other memory, or matrices that break the cut.
    """
    rules = rules or Rules()
    if not answers:
        raise ValueError("answers: got none, an unsupported question has nothing to select from")
    if rules.memory == "paper":
        found = _with_paper_memory(
            question, answers, ranks, documents, scorer, rules, _of(state, PaperState), embedder
        )
        return found if update else dataclasses.replace(found, state=state)
    before = _of(state, CampaignState) if rules.memory else None
    known = before.answers if before else ()
    every = _judgement(scorer, question, [*known, *answers])
    m = len(known)
    M, C = every.agreement[m:, m:], every.conflict[m:, m:]
    S, F = scores.unary(M, C, ranks, documents)
    after = None
    if rules.memory == "campaign":
        found = classes(every.agreement, SAME_CLASS)
        if update or before is None:
            after, belief = _believe(before, answers, found, rules)
        else:
            after, belief = before, _believed(before, found)
        S, F = blended((S, F), belief, rules.campaign.weight)
    return _select(answers, S, F, M, rules, embedder, after)


def _judgement(scorer: AnswerAgreement, question: str, answers: Sequence[str]) -> Agreement:
    """What the judge says, its shape checked (`scores.unary` checks the values)."""
    found, n = scorer.compare(question, answers), len(answers)
    for name, matrix in (("agreement", found.agreement), ("conflict", found.conflict)):
        if np.shape(matrix) != (n, n):
            raise ValueError(
                f"scorer: {name} is {np.shape(matrix)} for {n} answers, want ({n}, {n})"
            )
    return found


_State = TypeVar("_State", PaperState, CampaignState)


def _of(state: PaperState | CampaignState | None, kind: type[_State]) -> _State | None:
    if state is not None and not isinstance(state, kind):
        raise ValueError(
            f"state: got a {type(state).__name__}, this memory needs a {kind.__name__}; states of "
            "the two memories are not interchangeable, start a new store"
        )
    return state


def _believe(
    before: CampaignState | None,
    answers: Sequence[str],
    found: Int[np.ndarray, " all"],
    rules: Rules,
) -> tuple[CampaignState, Float[np.ndarray, " n"]]:
    """The belief after this step, and (n,) the belief in each answer's class.

    ``found`` has the class of each remembered answer, then of each new one; remembered classes
    that the new answers join are merged.
    """
    m = 0 if before is None else len(before.answers)
    total = int(found.max()) + 1
    names, prior, counts = [""] * total, np.zeros(total), np.zeros(total)
    everyone = [*(before.answers if before else ()), *answers]
    for at in range(len(everyone) - 1, -1, -1):
        names[found[at]] = everyone[at]
    for at in range(m):
        prior[found[at]] += before.belief[at] if before else 0.0
    np.add.at(counts, found[m:], 1)
    merged = before and dataclasses.replace(
        before, answers=tuple(names), belief=tuple(prior.tolist())
    )
    after = updated(merged, names, counts.tolist(), rules.campaign)
    of_class = dict(zip(after.answers, after.belief, strict=True))
    return after, np.array([of_class.get(names[c], 0.0) for c in found[m:]])


def _believed(state: CampaignState, found: Int[np.ndarray, " all"]) -> Float[np.ndarray, " n"]:
    """(n,) the belief in each answer's class, the step being in the belief already."""
    m = len(state.answers)
    of_class = np.bincount(found[:m], weights=state.belief, minlength=int(found.max()) + 1)
    return of_class[found[m:]]


def _with_paper_memory(
    question: str,
    answers: Sequence[str],
    ranks: Sequence[int],
    documents: int,
    scorer: AnswerAgreement,
    rules: Rules,
    before: PaperState | None,
    embedder: Embedder | None,
) -> Decision:
    """The paper's memory: the last answer is one more node, of rank K."""
    n = len(answers)
    everyone = [*answers, before.answer] if before else list(answers)
    every = _judgement(scorer, question, everyone)
    if before:
        S, F = scores.unary(every.agreement, every.conflict, [*ranks, documents], documents + 1)
        S[n], F[n] = before.node(every.agreement[n, :n], every.conflict[n, :n])
    else:
        S, F = scores.unary(every.agreement, every.conflict, ranks, documents)
    found = _select(everyone, S, F, every.agreement, rules, embedder, None)
    to_final = every.agreement[found.chosen, :n], every.conflict[found.chosen, :n]
    state = PaperState(found.answer, float(to_final[0].mean()), float(to_final[1].mean()))
    return dataclasses.replace(
        found,
        trusted=found.trusted[:n],
        support=S[:n],
        doubt=F[:n],
        reasons=found.reasons[:n],
        state=state,
    )


def _select(
    answers: Sequence[str],
    S: Float[np.ndarray, " n"],
    F: Float[np.ndarray, " n"],
    M: Float[np.ndarray, "n n"],
    rules: Rules,
    embedder: Embedder | None,
    state: CampaignState | None,
) -> Decision:
    coupling = M if rules.agreement_in_cut else np.zeros_like(M)
    by_cut = cut.select(S, F, coupling)
    kept = by_cut & ~isolated(answers, by_cut, M, embedder)
    fallback = not kept.any()
    voters = np.ones(len(answers), dtype=bool) if fallback else kept
    weight = np.where(voters, M @ (S * voters), -np.inf)
    chosen = int(weight.argmax())
    same = M[chosen] >= SAME_CLASS
    reasons = ["" if k else "isolated" if c else "cut" for k, c in zip(kept, by_cut, strict=True)]
    return Decision(
        trusted=kept,
        support=S,
        doubt=F,
        chosen=chosen,
        answer=answers[chosen],
        margin=cut.margin(S, F, coupling, same, best=by_cut),
        reasons=tuple(reasons),
        fallback=fallback,
        state=state,
    )


def isolated(
    answers: Sequence[str],
    trusted: Bool[np.ndarray, " n"],
    M: Float[np.ndarray, "n n"],
    embedder: Embedder | None,
) -> Bool[np.ndarray, " n"]:
    """(n,) which trusted answers are unlike the others: mean similarity under 0.3."""
    alone = np.zeros(len(answers), dtype=bool)
    at = np.flatnonzero(trusted).tolist()
    if len(at) < 2:
        return alone
    if embedder is None:
        similarity = M[np.ix_(at, at)]
    else:
        vectors = np.asarray(embedder.encode([answers[i] for i in at]), dtype=float)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        similarity = vectors @ vectors.T
    others = (similarity.sum(axis=1) - np.diag(similarity)) / (len(at) - 1)
    alone[at] = others < ISOLATED
    return alone
