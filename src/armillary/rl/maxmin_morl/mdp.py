"""A finite Markov decision process with vector rewards and limits, checked once.

Legend of shapes: S states, A actions, K objectives, L limits. Rows of the transition matrix and of
the rewards are pairs (s, a), numbered s A + a, so that everything is a sparse matrix or a plain
two-dimensional array.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

if TYPE_CHECKING:
    import gymnasium
    from jaxtyping import Float

Array = np.ndarray
#: Up to so many states, a dense solve is quicker than anything sparse.
DENSE_STATES = 300
#: A sparse LU is used while the reordered matrix is this narrow; wider ones fill up.
LU_BANDWIDTH = 64


class ScaleWarning(UserWarning):
    """Objectives of very different size: the smallest alone decides the minimum."""


@dataclasses.dataclass(frozen=True)
class VectorMDP:
    """A finite MDP with K objectives and L limits on discounted returns.

    Attributes:
        P: (S A, S) CSR, row s A + a holds P(. | s, a).
        r: (S A, K) objectives, bigger is better.
        c: (S A, L) constraint rewards, bigger is better (a cost enters as its negative).
        C: (L,) thresholds: J_c >= C is asked for.
        mu: (S,) initial distribution.
        gamma: discount, in [0, 1).
        actions: A.
    """

    P: sparse.csr_array
    r: Float[Array, "SA K"]
    c: Float[Array, "SA L"]
    C: Float[Array, " L"]
    mu: Float[Array, " S"]
    gamma: float
    actions: int

    @property
    def states(self) -> int:
        return self.P.shape[1]  # pyright: ignore[reportOptionalSubscript]

    @cached_property
    def signals(self) -> Float[Array, "SA K+L"]:
        """Objectives and constraint rewards side by side."""
        return np.concatenate([self.r, self.c], axis=1)

    @cached_property
    def _narrow(self) -> bool:
        """Whether a reordered sparse LU stays sparse."""
        pattern = sparse.csr_matrix(self._lumped())
        order = csgraph.reverse_cuthill_mckee(pattern + pattern.T, symmetric_mode=True)
        place = np.argsort(order)
        rows, columns = pattern.nonzero()
        return bool(np.abs(place[rows] - place[columns]).max(initial=0) <= LU_BANDWIDTH)

    def _lumped(self) -> sparse.csr_array:
        """(S, S): where some action leads."""
        pairs = np.arange(self.states * self.actions)
        shape = (self.states, self.states * self.actions)
        fold = sparse.csr_array((np.ones(len(pairs)), (pairs // self.actions, pairs)), shape=shape)
        return sparse.csr_array(fold @ self.P)

    def under(self, policy: Float[Array, "S A"]) -> sparse.csr_array:
        """(S, S) transitions of a stochastic policy."""
        pairs = np.arange(policy.size)
        shape = (self.states, policy.size)
        fold = sparse.csr_array((policy.ravel(), (pairs // self.actions, pairs)), shape=shape)
        return sparse.csr_array(fold @ self.P)

    def choose(self, actions: np.ndarray) -> sparse.csr_array:
        """(S, S) transitions of a deterministic policy, given as (S,) actions."""
        return self.P[np.arange(self.states) * self.actions + actions]

    def solve(
        self,
        transitions: sparse.csr_array,
        rhs: Float[Array, " S"],
        start: Float[Array, " S"] | None = None,
        transposed: bool = False,
    ) -> Float[Array, " S"]:
        """x with (I - gamma P_pi) x = rhs, or with its transpose."""
        matrix = transitions.T if transposed else transitions
        if self.states <= DENSE_STATES:
            return np.linalg.solve(np.eye(self.states) - self.gamma * matrix.toarray(), rhs)
        system = sparse.csr_matrix(sparse.eye_array(self.states) - self.gamma * matrix)
        if self._narrow:
            return sparse_linalg.splu(system.tocsc()).solve(rhs)
        return self._iterate(system, rhs, start)

    def _iterate(
        self, system: sparse.csr_matrix, rhs: np.ndarray, start: np.ndarray | None
    ) -> np.ndarray:
        """BiCGSTAB, begun anew where it breaks down; then sweeps, which always converge."""
        goal = 1e-10 * max(1.0, float(np.abs(rhs).max()))
        x = np.zeros(len(rhs)) if start is None else start
        for _ in range(3):
            trial, _ = sparse_linalg.bicgstab(system, rhs, x0=x, rtol=1e-13, maxiter=500)
            if np.isfinite(trial).all():
                x = trial
            if np.abs(system @ x - rhs).max() <= goal:
                return x
        for _ in range(int(np.ceil(50 / (1 - self.gamma)))):
            residual = rhs - system @ x
            if np.abs(residual).max() <= goal:
                break
            x = x + residual
        return x

    def occupancy(self, policy: Float[Array, "S A"]) -> Float[Array, "S A"]:
        """Discounted visits rho(s, a); they sum to 1 / (1 - gamma)."""
        visits = self.solve(self.under(policy), self.mu, transposed=True)
        return np.maximum(visits, 0.0)[:, None] * policy

    def returns(self, policy: Float[Array, "S A"]) -> Float[Array, " K+L"]:
        """Discounted returns of all objectives, then of all constraint rewards."""
        return self.occupancy(policy).ravel() @ self.signals


def vector_mdp(
    P: Any, r: Any, c: Any, C: Any, mu: Any, gamma: float, scale: Any = None
) -> VectorMDP:
    """Check arrays and bring them in one form.

    Args:
        P: (S, A, S) array, or a list of A sparse (S, S) matrices.
        r: (S, A, K) objectives, K >= 2.
        c: (S, A, L) constraint rewards, or None.
        C: (L,) thresholds, or a number where L = 1.
        mu: (S,) initial distribution, or None for uniform.
        gamma: discount in [0, 1).
        scale: (K,) positive numbers by which objectives are divided.

    Raises:
        ValueError: a shape, a probability, a reward or the discount is not usable.

    Warns:
        ScaleWarning: objectives differ in size by more than 10 and no ``scale`` is given.
    """
    if not 0 <= gamma < 1:
        raise ValueError(
            f"gamma={gamma!r}: discounted returns need 0 <= gamma < 1 (for averages take .99 or so)"
        )
    matrix, actions = _transitions(P)
    states = matrix.shape[1]  # pyright: ignore
    if states < 2:
        raise ValueError(
            "P has a single state: there is nothing to plan; a bandit is a choice of weights over "
            "its arms (give it a terminal state if you want it solved here)"
        )
    rewards = _rewards("r", r, states, actions)
    if rewards.shape[1] < 2:
        raise ValueError(
            f"r has K={rewards.shape[1]} objective: max-min needs two or more; with one, its return"
            " is the objective and limits make it a constrained MDP"
        )
    limits = np.zeros((states * actions, 0)) if c is None else _rewards("c", c, states, actions)
    thresholds = np.atleast_1d(np.asarray([] if C is None else C, dtype=float))
    if thresholds.shape != (limits.shape[1],) or not np.isfinite(thresholds).all():
        raise ValueError(
            f"C has shape {thresholds.shape}: one finite threshold for each of the "
            f"{limits.shape[1]} constraint rewards in c is needed"
        )
    start = np.full(states, 1 / states) if mu is None else np.asarray(mu, dtype=float)
    if start.shape != (states,) or (start < 0).any() or not np.isclose(start.sum(), 1, atol=1e-8):
        raise ValueError(
            f"mu must hold {states} probabilities that sum to 1; it sums to {np.sum(start):.6g}"
        )
    return VectorMDP(
        matrix, _scaled(rewards, scale), limits, thresholds, start, float(gamma), actions
    )


def _transitions(P: Any) -> tuple[sparse.csr_array, int]:
    """((S A, S) CSR, A), every row a distribution."""
    if isinstance(P, Sequence) and len(P) and all(sparse.issparse(part) for part in P):
        states, actions = P[0].shape[0], len(P)
        if any(part.shape != (states, states) for part in P):
            raise ValueError(f"P: every action needs a ({states}, {states}) matrix")
        stacked = sparse.csr_array(sparse.vstack([sparse.csr_array(part) for part in P]))
        order = (np.arange(actions)[None] * states + np.arange(states)[:, None]).ravel()
        matrix = stacked[order]
    else:
        dense = np.asarray(P, dtype=float)
        if dense.ndim != 3 or dense.shape[0] != dense.shape[2]:
            raise ValueError(
                f"P has shape {dense.shape}: give (S, A, S), or a list of A sparse (S, S) matrices"
            )
        states, actions = dense.shape[:2]
        matrix = sparse.csr_array(dense.reshape(states * actions, states))
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    bad = ~np.isclose(sums, 1.0, atol=1e-8)
    if matrix.nnz and (~np.isfinite(matrix.data) | (matrix.data < 0)).any():
        entry = int(np.argmax(~(matrix.data >= 0)))
        bad[int(np.searchsorted(matrix.indptr, entry, side="right")) - 1] = True
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"P: row (state {row // actions}, action {row % actions}) is no distribution: it sums "
            f"to {sums[row]:.6g}, or holds a negative number; {int(bad.sum())} such rows in all"
        )
    return sparse.csr_array(matrix), actions


def _rewards(name: str, values: Any, states: int, actions: int) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if array.ndim != 3 or array.shape[:2] != (states, actions):
        raise ValueError(
            f"{name} has shape {array.shape}: ({states}, {actions}, number of signals) is needed"
        )
    if not np.isfinite(array).all():
        s, a, k = (int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name} holds {array[s, a, k]} at state {s}, action {a}, component {k}")
    return array.reshape(states * actions, -1)


def _scaled(rewards: np.ndarray, scale: Any) -> np.ndarray:
    if scale is not None:
        scale = np.asarray(scale, dtype=float)
        if scale.shape != (rewards.shape[1],) or not (scale > 0).all():
            raise ValueError(f"scale must hold {rewards.shape[1]} positive numbers, got {scale}")
        return rewards / scale
    sizes = np.abs(rewards).max(axis=0)
    if (sizes > 0).all() and sizes.max() > 10 * sizes.min():
        suggestion = [float(f"{size:.3g}") for size in sizes]
        warnings.warn(
            f"objectives differ in size by {sizes.max() / sizes.min():.3g}: the worst is worst in "
            f"these units; to compare them in their own, pass scale={suggestion}",
            ScaleWarning,
            stacklevel=4,
        )
    return rewards


def from_gymnasium(env: gymnasium.Env) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(P, r, mu) of an environment that lists its own transitions.

    The environment has ``P[s][a] = [(probability, next state, reward, terminated), ...]``, as
    Gymnasium's toy-text environments have; rewards may be vectors. A terminated transition leads to
    one more state that is never left and gives nothing.

    Returns:
        P (S + 1, A, S + 1), r (S + 1, A, K) expected rewards, and mu (S + 1,): the environment's
        ``initial_state_distrib`` where it has one, else its first state.

    Raises:
        ValueError: the environment lists no transitions.
    """
    inner = env.unwrapped
    table = getattr(inner, "P", None)
    if not isinstance(table, dict):
        raise ValueError(
            f"{type(inner).__name__} has no table `P` of transitions: give arrays to solve_tabular"
        )
    states, actions = len(table), len(table[0])
    first = np.atleast_1d(np.asarray(table[0][0][0][2], dtype=float))
    P = np.zeros((states + 1, actions, states + 1))
    r = np.zeros((states + 1, actions, len(first)))
    P[states, :, states] = 1.0
    for s, row in table.items():
        for a, outcomes in row.items():
            for probability, following, reward, terminated in outcomes:
                P[s, a, states if terminated else following] += probability
                r[s, a] += probability * np.asarray(reward, dtype=float)
    mu = np.zeros(states + 1)
    start = getattr(inner, "initial_state_distrib", None)
    if start is None:
        mu[0] = 1.0
    else:
        mu[:states] = start
    return P, r, mu
