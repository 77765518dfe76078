"""The dual by a level bundle: few best responses, an exact gap, and the mixture that attains it.

Every best response gives a line that supports the dual function D from below. The least point of
the largest of these lines is a small linear programme; its multipliers mix the policies seen so far
into one that meets the limits and whose worst return is that least value. The next point is the one
nearest to the best so far at which the lines leave D a share of the gap (Lemarechal, Nemirovskii
and Nesterov's level method): far fewer calls than going to the least point itself (Kelley).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linprog

from armillary.rl.maxmin_morl.linear_program import infeasible
from armillary.rl.maxmin_morl.oracle import Oracle, Response
from armillary.rl.maxmin_morl.projection import nearest_in_polyhedron

if TYPE_CHECKING:
    from jaxtyping import Float

    from armillary.rl.maxmin_morl.mdp import VectorMDP

#: The level stands at this share of the gap above the lower bound.
LEVEL = 0.3
MAX_CALLS = 1000


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of the oracle: what is known after it.

    Attributes:
        calls: best responses so far.
        lower: worst return of the best mixture that meets all limits; -inf before there is one.
        upper: the smallest D so far, which no policy that meets all limits can exceed.
    """

    calls: int
    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class BundleResult:
    """Where the bundle stopped: multipliers, mixture of the responses, bounds."""

    x: Float[np.ndarray, " K+L"]
    responses: list[Response]
    weights: Float[np.ndarray, " n"]
    lower: float
    upper: float
    history: list[Step]

    def occupancy(self, mdp: VectorMDP) -> Float[np.ndarray, "S A"]:
        """Discounted visits of the mixture."""
        parts = [
            weight * mdp.occupancy(response.policy)
            for weight, response in zip(self.weights, self.responses, strict=True)
            if weight > 0
        ]
        return np.sum(parts, axis=0)


def solve_bundle(mdp: VectorMDP, tol: float = 1e-6) -> BundleResult:
    """Minimise D over w in the simplex and u >= 0.

    Args:
        mdp: the problem.
        tol: the gap to stop at, relative to the larger of 1 and the value.

    Raises:
        InfeasibleConstraints: no policy meets all limits.
        RuntimeError: the gap stays open after `MAX_CALLS` best responses.
    """
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    oracle = Oracle(mdp)
    known: list[Response] = []
    if L:
        slack = _limits_first(mdp, oracle, known)
        if slack is not None:
            raise infeasible(mdp, *slack)
    start = np.concatenate([np.full(K, 1 / K), np.zeros(L)])
    known.append(oracle(start))
    offset = np.concatenate([np.zeros(K), mdp.C])
    return _level(oracle, known, offset, K, start, tol)


def _limits_first(
    mdp: VectorMDP, oracle: Oracle, known: list[Response]
) -> tuple[np.ndarray, float] | None:
    """Find policies whose mixture meets all limits, or the proof that there is none.

    The same method on max over policies of min_l (J_c - C)_l, stopped when the sign is known.

    Returns:
        None, or Farkas weights and the shortfall.
    """
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    size = max(1.0, float(np.abs(mdp.C).max()))
    start = np.concatenate([np.zeros(K), np.full(L, 1 / L)])
    known.append(oracle(start))
    offset = np.concatenate([np.zeros(K), mdp.C])
    decided: Callable[[float, float], bool] = lambda low, high: (  # noqa: E731
        high < -1e-9 * size or low > 1e-6 * size
    )
    found = _level(oracle, known, offset, 0, start, 1e-9, decided)
    return None if found.upper > -1e-9 * size else (found.x[K:], -found.upper)


def _level(
    oracle: Oracle,
    known: list[Response],
    offset: np.ndarray,
    free: int,
    start: np.ndarray,
    tol: float,
    decided: Callable[[float, float], bool] | None = None,
) -> BundleResult:
    """The level method. ``free`` objectives share weight 1, or, if 0, the limits do."""
    box = _Box(len(offset), oracle.mdp.r.shape[1], bool(free))
    slopes = [response.J - offset for response in known]
    centre, upper = start, max(float(slope @ start) for slope in slopes)
    history: list[Step] = []
    while True:
        lower, least, weights = _least(np.array(slopes), box)
        history.append(Step(oracle.calls, lower, upper))
        done = upper - lower <= tol * max(1.0, abs(upper))
        if done or (decided is not None and decided(lower, upper)):
            return BundleResult(centre, known, weights, lower, upper, history)
        if oracle.calls > MAX_CALLS:
            raise RuntimeError(
                f"the gap is still {upper - lower:.3g} after {MAX_CALLS} best responses: ask for a "
                f"larger tol, or use method='lp'"
            )
        bound = -np.inf if not np.isfinite(lower) else lower + LEVEL * (upper - lower)
        trial = box.nearest(centre, np.array(slopes), bound) if np.isfinite(bound) else None
        trial = least if trial is None else trial
        response = oracle(trial)
        known.append(response)
        slopes.append(response.J - offset)
        if response.value < upper:
            centre, upper = trial, response.value


class _Box:
    """The set of (w, u): w in the simplex and u >= 0; or w = 0 and u in the simplex."""

    def __init__(self, size: int, objectives: int, share_objectives: bool) -> None:
        first = np.arange(size) < objectives
        self.shared = first if share_objectives else ~first
        self.open = ~first if share_objectives else np.zeros(size, dtype=bool)
        self.used = np.flatnonzero(self.shared | self.open)
        self.last = np.flatnonzero(self.shared)[-1]

    def nearest(self, x: np.ndarray, slopes: np.ndarray, level: float) -> np.ndarray | None:
        """The point nearest to x where all lines are at most ``level``; None if rounding hides it.

        The last shared coordinate is 1 minus the others, so that only inequalities are left.
        """
        kept = self.used[self.used != self.last]
        shared = self.shared[kept].astype(float)
        lines = slopes[:, kept] - slopes[:, [self.last]] * shared
        scale = np.maximum(np.abs(lines).max(axis=1, keepdims=True), 1e-12)
        G = np.concatenate([-lines / scale, np.eye(len(kept)), -shared[None]])
        h = np.concatenate(
            [(slopes[:, self.last] - level) / scale[:, 0], np.zeros(len(kept)), [-1.0]]
        )
        found = nearest_in_polyhedron(x[kept], G, h)
        if found is None or not np.isfinite(found).all():
            return None
        found = np.maximum(found, 0.0)
        y = np.zeros(len(x))
        y[kept] = found
        total = y[self.shared].sum()
        if total > 1:
            y[self.shared] /= total
        y[self.last] = max(1.0 - y[self.shared].sum(), 0.0)
        return y


def _least(slopes: np.ndarray, box: _Box) -> tuple[float, np.ndarray, np.ndarray]:
    """Least value of the largest line, where it is, and the mixture of lines that proves it."""
    count, size = slopes.shape
    bounds = [(0, None) if use else (0, 0) for use in box.shared | box.open]
    found = linprog(
        np.append(np.zeros(size), 1.0),
        A_ub=np.column_stack([slopes, -np.ones(count)]),
        b_ub=np.zeros(count),
        A_eq=np.append(box.shared.astype(float), 0.0)[None],
        b_eq=[1.0],
        bounds=[*bounds, (None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if found.status != 0:  # unbounded below: no mixture meets the limits yet
        return -np.inf, np.zeros(size), np.zeros(count)
    weights = np.maximum(-found.ineqlin.marginals, 0.0)
    return float(found.fun), found.x[:-1], weights / weights.sum()


def limits_met(mdp: VectorMDP) -> tuple[np.ndarray, float] | None:
    """None where some policy meets all limits; else Farkas weights and the shortfall."""
    return _limits_first(mdp, Oracle(mdp), [])
