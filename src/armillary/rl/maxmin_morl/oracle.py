"""Best responses: the policy that is optimal for the scalar reward w'r + u'c, hard or softened.

With x = (w, u) and J = (J_r, J_c), the dual function is D(x) = max over policies of w'J_r +
u'(J_c - C). One call gives its value, the policy, and that policy's J, which by the envelope
theorem is the gradient (with C taken off). Softened by alpha > 0, the reward has the bonus alpha
H(pi(.|s)): V = alpha logsumexp(Q / alpha), and the value lies above the hard one by at most
alpha log A / (1 - gamma).
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

    from armillary.rl.maxmin_morl.mdp import VectorMDP

#: Policy iteration takes a handful of rounds; this many mean that rounding keeps two policies
#: equal.
ROUNDS = 200


@dataclasses.dataclass(frozen=True)
class Response:
    """A best response to (w, u).

    Attributes:
        value: D(w, u): its (softened) return of the scalar reward, less u'C.
        J: (K + L,) its returns without bonus.
        policy: (S, A) probabilities.
        values: (S,) state values of the scalar reward, to start the next call from.
    """

    value: float
    J: Float[np.ndarray, " K+L"]
    policy: Float[np.ndarray, "S A"]
    values: Float[np.ndarray, " S"]

    def cut(self, mdp: VectorMDP) -> Float[np.ndarray, " K+L"]:
        """The slope of D at (w, u), and of the line that supports it there."""
        return self.J - np.concatenate([np.zeros(mdp.r.shape[1]), mdp.C])


class Oracle:
    """Best responses, each started from the one before; counts its calls."""

    def __init__(self, mdp: VectorMDP, alpha: float = 0.0) -> None:
        self.mdp, self.alpha, self.calls = mdp, alpha, 0
        self._values: np.ndarray | None = None

    def __call__(self, x: Float[np.ndarray, " K+L"]) -> Response:
        self.calls += 1
        respond = self._soft if self.alpha > 0 else self._hard
        policy, values = respond(self.mdp.signals @ x)
        self._values = values
        value = float(self.mdp.mu @ values - x[self.mdp.r.shape[1] :] @ self.mdp.C)
        return Response(value, self.mdp.returns(policy), policy, values)

    def _q(self, reward: np.ndarray, values: np.ndarray) -> np.ndarray:
        q = reward + self.mdp.gamma * (self.mdp.P @ values)
        return q.reshape(self.mdp.states, self.mdp.actions)

    def _hard(self, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Howard's policy iteration; an action changes only for a gain above rounding."""
        mdp, states = self.mdp, np.arange(self.mdp.states)
        values = np.zeros(mdp.states) if self._values is None else self._values
        actions = self._q(reward, values).argmax(axis=1)
        margin = 1e-11 * max(1.0, float(np.abs(reward).max())) / (1 - mdp.gamma)
        table = reward.reshape(mdp.states, mdp.actions)
        for _ in range(ROUNDS):
            values = mdp.solve(mdp.choose(actions), table[states, actions], values)
            q = self._q(reward, values)
            better = q.max(axis=1) > q[states, actions] + margin
            if not better.any():
                break
            actions = np.where(better, q.argmax(axis=1), actions)
        policy = np.zeros((mdp.states, mdp.actions))
        policy[states, actions] = 1.0
        return policy, values

    def _soft(self, reward: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Soft policy iteration: Newton's method on the soft Bellman equation."""
        mdp, alpha = self.mdp, self.alpha
        values = np.zeros(mdp.states) if self._values is None else self._values
        tolerance = 1e-10 * max(1.0, float(np.abs(reward).max())) / (1 - mdp.gamma)
        policy, soft = self._soften(self._q(reward, values))
        for _ in range(ROUNDS):
            if np.abs(soft - values).max() <= tolerance:
                break
            bonus = alpha * -(policy * np.log(np.maximum(policy, 1e-300))).sum(axis=1)
            gained = (policy * reward.reshape(policy.shape)).sum(axis=1) + bonus
            values = mdp.solve(mdp.under(policy), gained, values)
            policy, soft = self._soften(self._q(reward, values))
        return policy, values

    def _soften(self, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(softmax, logsumexp) of action values at the temperature."""
        top = q.max(axis=1)
        shares = np.exp((q - top[:, None]) / self.alpha)
        totals = shares.sum(axis=1)
        return shares / totals[:, None], top + self.alpha * np.log(totals)


def bias_bound(mdp: VectorMDP, alpha: float) -> float:
    """How far softening can pull the worst return down: alpha log A / (1 - gamma)."""
    return alpha * math.log(mdp.actions) / (1 - mdp.gamma)
