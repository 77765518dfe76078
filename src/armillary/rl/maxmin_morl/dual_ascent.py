"""The dual variables of a learner: how w and u move on what its policy was seen to return.

w <- projection on the simplex of w - eta_w,t (J_r - mean J_r) / size_r, and
u <- max(0, u - eta_u,t nu (J_c - C) / size_c). The sizes and nu (what a unit of constraint is worth
in units of objective) are running scales, so that one pair of steps serves tasks of any units: they
rescale steps and leave fixed points where they are. Steps fall as 1 / sqrt(1 + t / 25).

A policy follows its weights and prices late, so that plain ascent overshoots and swings. What the
policy sees is therefore the ascended variable less ``damping`` times its last gradient (the
proportional part of Stooke et al., 2020; for prices, the multiplier of an augmented Lagrangian),
projected: the addition vanishes where the gradient does, and so moves no fixed point.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.rl.maxmin_morl.projection import inverse_sqrt, project_simplex

if TYPE_CHECKING:
    from jaxtyping import Float

#: After so many steps their length begins to fall as one over the root of their number.
CONSTANT_STEPS = 25


@dataclasses.dataclass(frozen=True)
class DualStep:
    """One step of the dual: what was seen, and where it led."""

    timesteps: int
    J: Float[np.ndarray, " K"]
    slack: Float[np.ndarray, " L"]
    w: Float[np.ndarray, " K"]
    u: Float[np.ndarray, " L"]


class DualVariables:
    """(w, u) with their steps.

    Args:
        objectives, limits: K and L.
        eta_w, eta_u: first steps of weights and prices.
        u_init: first price, in units of nu.
        update_w: whether weights move (else uniform).
        update_u: whether prices move (else they are 0: no limit).
        damping, damping_w: of prices and of weights, see above.
        w_init: first weights; None for uniform ones.
        u_max: price, in units of nu, above which limits count as out of reach.
    """

    def __init__(
        self,
        objectives: int,
        limits: int,
        eta_w: float,
        eta_u: float,
        u_init: float = 1.0,
        update_w: bool = True,
        update_u: bool = True,
        u_max: float = 1e3,
        damping: float = 0.0,
        damping_w: float = 0.0,
        w_init: tuple[float, ...] | None = None,
    ) -> None:
        if w_init is not None and (
            len(w_init) != objectives or min(w_init) < 0 or abs(sum(w_init) - 1) > 1e-6
        ):
            raise ValueError(f"w_init={w_init}: give {objectives} weights >= 0 that sum to 1")
        uniform = np.full(objectives, 1 / objectives)
        self.ascended = uniform if w_init is None else np.array(w_init, dtype=float)
        self.prices = np.full(limits, u_init if update_u else 0.0)
        self.eta_w, self.eta_u, self.u_max = eta_w, eta_u, u_max
        self.update_w, self.update_u = update_w, update_u
        self.damping = damping if update_u else 0.0
        self.damping_w = damping_w if update_w else 0.0
        self._behind = np.zeros(objectives)
        self.worth = np.ones(limits)
        self._short = np.zeros(limits)
        self._steps = 0

    @property
    def w(self) -> Float[np.ndarray, " K"]:
        """Weights of the objectives, on the simplex."""
        return project_simplex(self.ascended + self.damping_w * self._behind)

    @property
    def u(self) -> Float[np.ndarray, " L"]:
        """Prices in units of objective a unit of constraint."""
        return np.maximum(0.0, self.prices + self.damping * self._short) * self.worth

    def weights(self) -> Float[np.ndarray, " K+L"]:
        """What multiplies the signals in the scalar reward."""
        return np.concatenate([self.w, self.u])

    def step(
        self,
        J: Float[np.ndarray, " K"],
        slack: Float[np.ndarray, " L"],
        J_size: float,
        slack_size: Float[np.ndarray, " L"],
    ) -> None:
        """Move on returns of the objectives and on slacks (J_c - C), given the sizes of both."""
        decay = inverse_sqrt(1.0, 1 + self._steps / CONSTANT_STEPS)
        self._steps += 1
        if self.update_w:
            self._behind = (J.mean() - J) / J_size
            self.ascended = project_simplex(self.ascended + self.eta_w * decay * self._behind)
        if self.update_u and len(slack):
            self._short = -slack / slack_size
            self.prices = np.maximum(0.0, self.prices - self.eta_u * decay * slack / slack_size)

    @property
    def diverged(self) -> bool:
        """Whether some price is beyond ``u_max``."""
        return bool((self.prices > self.u_max).any())

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON."""
        return {
            "w": self.ascended.tolist(),
            "behind": self._behind.tolist(),
            "prices": self.prices.tolist(),
            "worth": self.worth.tolist(),
            "short": self._short.tolist(),
            "steps": self._steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.ascended, self.prices = np.array(state["w"]), np.array(state["prices"])
        self._behind = np.array(state["behind"])
        self.worth = np.array(state["worth"])
        self._short, self._steps = np.array(state["short"]), int(state["steps"])
