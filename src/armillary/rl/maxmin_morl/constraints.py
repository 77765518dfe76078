"""Limits on what a policy may do: where their signal is read, and in which units they are meant.

A limit is compared in the units in which it was given, always: ``discounted`` on the discounted sum
from the start, ``average`` on the discounted average per step (the sum times 1 - gamma),
``episode`` on the plain sum over an episode. Learning follows discounted advantages; for
``episode`` the price u moves on the plain sums of fresh episodes, and the ratio between the two is
printed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

Kind = Literal["discounted", "average", "episode"]
KINDS = ("discounted", "average", "episode")
_TEXT = re.compile(r"^(?P<source>[^<>=@]+)(?P<sense>>=|<=)(?P<threshold>[^@]+)@(?P<kind>\w+)$")


@dataclasses.dataclass(frozen=True)
class Constraint:
    """One limit.

    Attributes:
        source: ``"info:KEY"`` of the step's info, or ``"reward:I"``, a component of the reward that
            then is no objective.
        sense: ``">="`` or ``"<="``.
        threshold: in the units of ``kind``.
        kind: ``"discounted"``, ``"average"`` or ``"episode"``.

    Raises:
        ValueError: one of them is not usable.
    """

    source: str
    sense: Literal[">=", "<="]
    threshold: float
    kind: Kind = "discounted"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"info:.+|reward:\d+", self.source):
            raise ValueError(f"source={self.source!r}: give 'info:KEY' or 'reward:INDEX'")
        if self.sense not in (">=", "<="):
            raise ValueError(f"sense={self.sense!r}: give '>=' or '<='")
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: known are {', '.join(KINDS)}")
        if not np.isfinite(self.threshold):
            raise ValueError(f"threshold={self.threshold!r}: give a finite number")

    @classmethod
    def parse(cls, text: str) -> Constraint:
        """Read ``"info:energy>=-180@discounted"`` or ``"reward:2<=30@episode"``."""
        found = _TEXT.match(text.replace(" ", ""))
        if found is None:
            raise ValueError(
                f"constraint {text!r}: write SOURCE>=NUMBER@KIND, such as "
                "'info:energy>=-180@discounted' or 'reward:2<=30@episode'"
            )
        try:
            threshold = float(found["threshold"])
        except ValueError:
            raise ValueError(f"constraint {text!r}: {found['threshold']!r} is no number") from None
        return cls(found["source"], found["sense"], threshold, found["kind"])  # pyright: ignore

    def __str__(self) -> str:
        return f"{self.source}{self.sense}{self.threshold:g}@{self.kind}"

    @property
    def sign(self) -> float:
        """1 where more is better, -1 where the signal is turned round."""
        return 1.0 if self.sense == ">=" else -1.0

    @property
    def bound(self) -> float:
        """The threshold of the turned signal: J >= bound."""
        return self.sign * self.threshold

    @property
    def component(self) -> int | None:
        """The component of the reward it reads, or None."""
        return int(self.source[7:]) if self.source.startswith("reward:") else None


class Signals:
    """What is learnt from: objectives, then turned constraint signals.

    Args:
        reward_dim: components of the environment's reward.
        constraints: the limits.
        scale: sizes by which the objectives are divided.

    Raises:
        ValueError: fewer than two objectives are left, or a component does not exist.
    """

    def __init__(
        self,
        reward_dim: int,
        constraints: Sequence[Constraint],
        scale: Sequence[float] | None = None,
    ) -> None:
        used = {c.component for c in constraints if c.component is not None}
        beyond = [i for i in used if i >= reward_dim]
        if beyond:
            raise ValueError(
                f"constraint on reward:{beyond[0]}: the reward has {reward_dim} components, 0 to "
                f"{reward_dim - 1}"
            )
        self.objectives = [i for i in range(reward_dim) if i not in used]
        if len(self.objectives) < 2:
            raise ValueError(
                f"{len(self.objectives)} objective is left of {reward_dim} reward components: "
                "max-min needs two or more; with one, use a constrained single-objective method"
            )
        self.constraints = tuple(constraints)
        self.scale = np.ones(len(self.objectives)) if scale is None else np.asarray(scale, float)
        if self.scale.shape != (len(self.objectives),) or not (self.scale > 0).all():
            raise ValueError(
                f"scale must hold {len(self.objectives)} positive numbers, got {scale}"
            )

    @property
    def size(self) -> int:
        return len(self.objectives) + len(self.constraints)

    def read(
        self, rewards: Float[np.ndarray, "N D"], infos: Sequence[dict[str, Any]] | dict[str, Any]
    ) -> Float[np.ndarray, "N K+L"]:
        """Signals of one step of N environments.

        Args:
            rewards: vector rewards.
            infos: one dict an environment, or one dict of arrays.

        Raises:
            ValueError: a constraint's key is missing.
        """
        columns = [rewards[:, self.objectives] / self.scale]
        for constraint in self.constraints:
            at = constraint.component
            values = rewards[:, at] if at is not None else _column(constraint.source[5:], infos)
            columns.append(constraint.sign * np.asarray(values, dtype=float)[:, None])
        return np.concatenate(columns, axis=1)


def _column(key: str, infos: Sequence[dict[str, Any]] | dict[str, Any]) -> np.ndarray:
    """One number an environment from the step's info."""
    try:
        if isinstance(infos, dict):
            return np.asarray(infos[key], dtype=float)
        return np.array([float(info[key]) for info in infos])
    except KeyError:
        one = infos if isinstance(infos, dict) else next(i for i in infos if key not in i)
        there = sorted(k for k in one if not k.startswith(("_", "final", "terminal", "TimeLimit")))
        raise ValueError(
            f"constraint on info:{key}: the step's info has no such key; it has "
            f"{', '.join(there) or 'none'}"
        ) from None
