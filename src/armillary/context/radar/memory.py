"""What is remembered of a question between steps: one small state, never a document.

`PaperState` is the paper's: the last answer joins the next step as a node, with a support and a
doubt that are updated by Bayes' rule. `CampaignState` is ours: a filter over classes of answers
that prices independent mistakes by the copy and a coordinated campaign once.

**Campaign.** Let a be the true class, n_b the number of this step's answers in class b.

    prior        b'(a) = (1 - h) b(a) + h / |classes|
    likelihood   log L(a) = log Poisson(n_a; mu) + sum_{b != a} g(n_b)
    g(n)         = max( n log eta,  log rho + n log zeta )
    posterior    b(a) proportional to b'(a) L(a)

A wrong answer costs log(eta) each time it is an honest mistake; a campaign costs log(rho) once and
only log(zeta) a copy, so flooding buys little belief, while a genuine change is seen because the
old answer's own support falls below mu. g is not normalised over n: every hypothesis has one
Poisson factor and |classes| - 1 factors g, so that its constant cancels. The max stands for the
sum of both explanations and is within log 2 of it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from armillary.context.radar.scores import HIGH, LOW

if TYPE_CHECKING:
    from jaxtyping import Float, Int

#: Most classes that a belief is kept over.
MOST_CLASSES = 8

Mode = Literal["campaign", "paper"]


@dataclasses.dataclass(frozen=True)
class CampaignSettings:
    """Prices of the campaign memory.

    Attributes:
        hazard: h, chance a step that the truth changed, in [0, 1).
        mistake: eta, price of one honest mistake, in (0, 1).
        campaign: rho, price of a campaign, in [0, 1]; 0 means that there are none.
        copy: zeta, price of each copy in a campaign, in (0, 1].
        weight: w, how much of S and F is belief, in [0, 1].
    """

    hazard: float = 0.15
    mistake: float = 0.12
    campaign: float = 0.03
    copy: float = 0.9
    weight: float = 0.8

    def __post_init__(self) -> None:
        allowed = {
            "hazard": 0 <= self.hazard < 1,
            "mistake": 0 < self.mistake < 1,
            "campaign": 0 <= self.campaign <= 1,
            "copy": 0 < self.copy <= 1,
            "weight": 0 <= self.weight <= 1,
        }
        for name, good in allowed.items():
            if not good:
                raise ValueError(
                    f"{name}={getattr(self, name)}: give a probability (weight, campaign and copy "
                    "may be 1; campaign, hazard and weight may be 0)"
                )


@dataclasses.dataclass(frozen=True)
class PaperState:
    """The paper's memory: one answer and two numbers in [0, 1].

    Attributes:
        answer: the last final answer.
        support: its mean agreement with the answers of its step.
        doubt: its mean conflict with them.
    """

    answer: str
    support: float = 1.0
    doubt: float = 0.0

    def node(
        self, agreement: Float[np.ndarray, " n"], conflict: Float[np.ndarray, " n"]
    ) -> tuple[float, float]:
        """S and F of the remembered answer among n new ones.

        Args:
            agreement: (n,) with the new answers.
            conflict: (n,) with them.
        """
        likelihoods = (float(np.mean(agreement)), float(np.mean(conflict)))
        return (
            bayes(self.support, likelihoods[0]),
            bayes(self.doubt, likelihoods[1]),
        )


def bayes(prior: float, likelihood: float) -> float:
    """l p / (l p + (1 - l)(1 - p)), the prior clipped to [0.01, 0.99]."""
    p = min(max(prior, LOW), HIGH)
    denominator = likelihood * p + (1 - likelihood) * (1 - p)
    return likelihood * p / denominator if denominator > 0 else p


@dataclasses.dataclass(frozen=True)
class CampaignState:
    """A belief over classes of answers, each known by one answer that stands for it.

    Attributes:
        answers: at most 8, one a class.
        belief: their probabilities, same order, summing to 1.
        expected: mu, how many answers the true class usually has.
        step: steps so far.
    """

    answers: tuple[str, ...]
    belief: tuple[float, ...]
    expected: float
    step: int

    @property
    def best(self) -> str:
        """The most believed answer."""
        return self.answers[int(np.argmax(self.belief))]


def classes(M: Float[np.ndarray, "n n"], threshold: float = 0.5) -> Int[np.ndarray, " n"]:
    """(n,) class of each answer: connected components of M >= threshold.

    Classes are numbered in the order of their first members.
    """
    from scipy.sparse.csgraph import connected_components

    _, found = connected_components(threshold <= M, directed=False)
    first = np.unique(found, return_index=True)[1]
    order = {int(found[i]): number for number, i in enumerate(sorted(first))}
    return np.array([order[int(c)] for c in found], dtype=np.int64)


def log_likelihoods(
    counts: Float[np.ndarray, " m"], expected: float, settings: CampaignSettings
) -> Float[np.ndarray, " m"]:
    """log L(a) of each class being the true one.

    Args:
        counts: (m,) answers a class in this step.
        expected: mu, at least 1.
        settings: the prices.
    """
    from scipy.special import gammaln, xlogy

    poisson = xlogy(counts, expected) - expected - gammaln(counts + 1)
    mistakes = counts * math.log(settings.mistake)
    if settings.campaign > 0:
        coordinated = math.log(settings.campaign) + counts * math.log(settings.copy)
        mistakes = np.maximum(mistakes, coordinated)
    mistakes = np.where(counts > 0, mistakes, 0.0)
    return poisson + mistakes.sum() - mistakes


def updated(
    state: CampaignState | None,
    named: Sequence[str],
    counts: Sequence[float],
    settings: CampaignSettings,
) -> CampaignState:
    """The belief after a step.

    Args:
        state: before, or None at the first step (belief uniform, mu the largest count).
        named: the classes now: those of the state first, in its order, then new ones.
        counts: answers of each class in this step.
        settings: the prices.
    """
    n = np.asarray(counts, dtype=float)
    known = np.zeros(len(named))
    if state is None:
        known[:] = 1 / len(named)
        expected = max(1.0, float(n.max()))
    else:
        known[: len(state.belief)] = state.belief
        expected = state.expected
    prior = (1 - settings.hazard) * known + settings.hazard / len(named)
    log_posterior = np.log(np.maximum(prior, 1e-300)) + log_likelihoods(n, expected, settings)
    posterior = np.exp(log_posterior - log_posterior.max())
    posterior /= posterior.sum()
    best = int(posterior.argmax())
    if posterior[best] > 0.9:
        expected = 0.8 * expected + 0.2 * max(1.0, float(n[best]))
    kept = np.sort(np.argsort(-posterior, kind="stable")[:MOST_CLASSES])
    belief = posterior[kept] / posterior[kept].sum()
    return CampaignState(
        tuple(str(named[int(i)]) for i in kept),
        tuple(belief.tolist()),
        expected,
        1 if state is None else state.step + 1,
    )


def blended(
    unary: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]],
    belief: Float[np.ndarray, " n"],
    weight: float,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """S and F with the belief in each answer's class mixed in.

    Args:
        unary: S and F, (n,) each.
        belief: (n,) belief in each answer's class.
        weight: w in [0, 1].
    """
    S, F = unary
    return (1 - weight) * S + weight * belief, (1 - weight) * F + weight * (1 - belief)


def to_plain(state: PaperState | CampaignState) -> dict[str, Any]:
    """The state as JSON can hold it, numbers to six digits."""
    kind = "paper" if isinstance(state, PaperState) else "campaign"
    plain = {
        name: [_short(x) for x in value] if isinstance(value, tuple) else _short(value)
        for name, value in dataclasses.asdict(state).items()
    }
    return {"kind": kind, **plain}


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def from_plain(plain: dict[str, Any]) -> PaperState | CampaignState:
    """The inverse of `to_plain`.

    Raises:
        ValueError: it is not such a state.
    """
    fields = {key: value for key, value in plain.items() if key != "kind"}
    try:
        if plain.get("kind") == "paper":
            return PaperState(**fields)
        if plain.get("kind") == "campaign":
            fields["answers"], fields["belief"] = tuple(fields["answers"]), tuple(fields["belief"])
            return CampaignState(**fields)
    except (TypeError, KeyError) as error:
        raise ValueError(f"no state of a memory: {error}") from error
    raise ValueError(f"no state of a memory: kind is {plain.get('kind')!r}")
