"""What a policy does for each objective and each limit, over whole episodes."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from armillary import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from armillary.rl.maxmin_morl.constraints import Constraint


@dataclasses.dataclass(frozen=True)
class FairnessReport:
    """Figures of evaluation episodes.

    Attributes:
        episodes: how many.
        J: (K,) mean discounted return of each objective.
        low, high: (K,) its 95 % interval (Student t over episodes).
        per_step: (K,) the same as an average per step (J over the discounted weight of an episode).
        minimum: the smallest of J.
        worst: which objective that is.
        limits: the constraints, as text.
        values: (L,) mean of each limit's signal, in the units and sense of its threshold.
        slack: (L,) how far on the right side of the threshold; negative where violated.
        violation_rate: (L,) share of episodes on the wrong side.
        violation: the largest shortfall, as a share of the threshold's magnitude (0 where none).
        jain: Jain's index of the objectives' averages per step, lifted to be non-negative.
        w, u: the dual variables.
        lengths: mean length of an episode.
    """

    episodes: int
    J: Float[np.ndarray, " K"]
    low: Float[np.ndarray, " K"]
    high: Float[np.ndarray, " K"]
    per_step: Float[np.ndarray, " K"]
    minimum: float
    worst: int
    limits: tuple[str, ...]
    values: Float[np.ndarray, " L"]
    slack: Float[np.ndarray, " L"]
    violation_rate: Float[np.ndarray, " L"]
    violation: float
    jain: float
    w: Float[np.ndarray, " K"]
    u: Float[np.ndarray, " L"]
    lengths: float

    def lines(self) -> list[list[str]]:
        """Rows of a table: name, mean, interval or slack, weight or price."""
        rows = [
            [
                f"objective {k}",
                f"{self.J[k]:.4g}",
                f"{self.low[k]:.4g} to {self.high[k]:.4g}",
                f"w {self.w[k]:.3g}",
            ]
            for k in range(len(self.J))
        ]
        rows += [
            [text, f"{value:.4g}", f"slack {slack:.4g}, missed in {rate:.0%}", f"u {price:.3g}"]
            for text, value, slack, rate, price in zip(
                self.limits, self.values, self.slack, self.violation_rate, self.u, strict=True
            )
        ]
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in dataclasses.asdict(self).items()
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figures as JSON."""
        output.write_json(path, self.to_dict())


def jain_index(x: Float[np.ndarray, " K"]) -> float:
    """(sum x)^2 / (K sum x^2): 1 where all of K numbers >= 0 are equal, 1 / K where one has all."""
    total = float(np.square(x).sum())
    return 1.0 if total == 0 else float(x.sum() ** 2 / (len(x) * total))


def summarise(
    discounted: Float[np.ndarray, "E K+L"],
    plain: Float[np.ndarray, "E K+L"],
    lengths: np.ndarray,
    constraints: Sequence[Constraint],
    gamma: float,
    w: np.ndarray,
    u: np.ndarray,
) -> FairnessReport:
    """The report of E episodes; limits are judged in the units in which they were given."""
    K = discounted.shape[1] - len(constraints)
    J = discounted[:, :K].mean(axis=0)
    half = np.zeros(K)
    if len(discounted) > 1:
        t = stats.t.ppf(0.975, len(discounted) - 1)
        half = t * discounted[:, :K].std(axis=0, ddof=1) / np.sqrt(len(discounted))
    weight = (1 - gamma**lengths) / (1 - gamma) if gamma < 1 else lengths.astype(float)
    per_step = J / weight.mean()
    values, slack, rate, violation = [], [], [], 0.0
    for i, constraint in enumerate(constraints):
        seen = in_units(constraint.kind, discounted[:, K + i], plain[:, K + i], gamma)
        values.append(constraint.sign * seen.mean())
        slack.append(seen.mean() - constraint.bound)
        rate.append(float((seen < constraint.bound).mean()))
        size = abs(constraint.bound) or 1.0
        violation = max(violation, (constraint.bound - seen.mean()) / size)
    lifted = np.maximum(per_step, 0.0)
    return FairnessReport(
        len(discounted), J, J - half, J + half, per_step, float(J.min()), int(J.argmin()),
        tuple(map(str, constraints)), np.array(values), np.array(slack), np.array(rate),
        max(0.0, violation), jain_index(lifted), np.array(w), np.array(u), float(lengths.mean()),
    )  # fmt: skip


def in_units(kind: str, discounted: np.ndarray, plain: np.ndarray, gamma: float) -> np.ndarray:
    """Sums of episodes in the units of a threshold."""
    if kind == "episode":
        return plain
    return discounted * (1 - gamma) if kind == "average" else discounted
