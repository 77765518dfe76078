"""The dual variables of a learner: how w and u move on what its policy was seen to return.

w <- projection on the simplex of w - eta_t (J_r - mean J_r) / spread, and
u <- max(0, u - eta_t nu (J_c - C) / size). Spread, size and nu (what a unit of constraint is worth in
units of objective) are running scales, so that one eta serves tasks of any units: they rescale
steps and leave fixed points where they are.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.rl.maxmin_morl.projection import inverse_sqrt, project_simplex

if TYPE_CHECKING:
    from jaxtyping import Float

#: Steps never fall below this share of the first, so that prices can follow a policy that changes.
LEAST_STEP = 0.3


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
        eta: first step.
        u_init: first price, in units of nu.
        update_w: whether weights move (else uniform).
        update_u: whether prices move (else they are 0: no limit).
        u_max: price, in units of nu, above which limits count as out of reach.
    """

    def __init__(
        self,
        objectives: int,
        limits: int,
        eta: float,
        u_init: float = 1.0,
        update_w: bool = True,
        update_u: bool = True,
        u_max: float = 1e3,
    ) -> None:
        self.w = np.full(objectives, 1 / objectives)
        self.prices = np.full(limits, u_init if update_u else 0.0)
        self.eta, self.u_max = eta, u_max
        self.update_w, self.update_u = update_w, update_u
        self.worth = np.ones(limits)
        self._spread = 0.0
        self._steps = 0

    @property
    def u(self) -> Float[np.ndarray, " L"]:
        """Prices in units of objective a unit of constraint."""
        return self.prices * self.worth

    def weights(self) -> Float[np.ndarray, " K+L"]:
        """What multiplies the signals in the scalar reward."""
        return np.concatenate([self.w, self.u])

    def step(
        self, J: Float[np.ndarray, " K"], slack: Float[np.ndarray, " L"], size: np.ndarray
    ) -> None:
        """Move on returns of the objectives and on slacks (J_c - C), given sizes of the latter."""
        self._steps += 1
        eta = max(inverse_sqrt(self.eta, self._steps), LEAST_STEP * self.eta)
        spread = float(np.abs(J - J.mean()).max())
        self._spread = max(spread, 0.95 * self._spread)
        if self.update_w and self._spread > 0:
            self.w = project_simplex(self.w - eta * (J - J.mean()) / self._spread)
        if self.update_u and len(slack):
            self.prices = np.maximum(0.0, self.prices - eta * slack / size)

    @property
    def diverged(self) -> bool:
        """Whether some price is beyond ``u_max``."""
        return bool((self.prices > self.u_max).any())

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as JSON."""
        return {
            "w": self.w.tolist(),
            "prices": self.prices.tolist(),
            "worth": self.worth.tolist(),
            "spread": self._spread,
            "steps": self._steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.w, self.prices = np.array(state["w"]), np.array(state["prices"])
        self.worth, self._spread = np.array(state["worth"]), float(state["spread"])
        self._steps = int(state["steps"])
