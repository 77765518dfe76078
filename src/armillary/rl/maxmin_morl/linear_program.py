"""The exact primal: a linear programme over occupancy measures, solved by HiGHS.

Variables rho(s, a) >= 0 and t. Maximise t subject to the Bellman flow
sum_a rho(s, a) - gamma sum P(s | s', a') rho(s', a') = mu(s), sum rho r_k >= t and
sum rho c_l >= C_l. Its multipliers are the dual's (w, u).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from armillary.rl.maxmin_morl.oracle import Oracle

if TYPE_CHECKING:
    from jaxtyping import Float

    from armillary.rl.maxmin_morl.mdp import VectorMDP


class InfeasibleConstraints(ValueError):
    """No policy meets all limits.

    Attributes:
        achievable: (L,) the largest return of each constraint reward, taken alone.
        farkas: (L,) non-negative weights that sum to 1: under them even the best policy stays below
            the thresholds, which proves that no policy meets all.
        shortfall: how far below, farkas'C - max farkas'J_c > 0.
    """

    def __init__(self, C: np.ndarray, achievable: np.ndarray, farkas: np.ndarray, shortfall: float):
        self.achievable, self.farkas, self.shortfall = achievable, farkas, shortfall
        limits = "; ".join(
            f"limit {i}: {C[i]:.6g} asked for, at most {achievable[i]:.6g} alone (weight "
            f"{farkas[i]:.3g})"
            for i in range(len(C))
        )
        super().__init__(
            f"C cannot be met by any policy: {limits}. With these weights the best policy is "
            f"{shortfall:.3g} short: lower C by at least that much"
        )


@dataclasses.dataclass(frozen=True)
class Optimum:
    """A vertex of the programme: (S, A) occupancy, worst return, multipliers."""

    occupancy: Float[np.ndarray, "S A"]
    value: float
    w: Float[np.ndarray, " K"]
    u: Float[np.ndarray, " L"]


def solve_program(mdp: VectorMDP) -> Optimum:
    """Solve the primal exactly.

    Raises:
        InfeasibleConstraints: no policy meets all limits.
        RuntimeError: HiGHS gave up.
    """
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    above_t = np.concatenate([np.ones(K), np.zeros(L)])
    limits = sparse.csr_array(np.column_stack([-mdp.signals.T, above_t]))
    found = linprog(
        np.append(np.zeros(mdp.states * mdp.actions), -1.0),
        A_ub=limits,
        b_ub=np.concatenate([np.zeros(K), -mdp.C]),
        A_eq=_flow(mdp, 1),
        b_eq=mdp.mu,
        bounds=[(0, None)] * (mdp.states * mdp.actions) + [(None, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9},
    )
    if found.status == 2:
        raise infeasible(mdp, *_phase_one(mdp))
    if found.status != 0:
        raise RuntimeError(f"HiGHS could not solve the programme: {found.message}")
    multipliers = -found.ineqlin.marginals
    w = np.maximum(multipliers[:K], 0.0)
    return Optimum(
        np.maximum(found.x[:-1], 0.0).reshape(mdp.states, mdp.actions),
        float(found.x[-1]),
        w / w.sum(),
        np.maximum(multipliers[K:], 0.0),
    )


def _flow(mdp: VectorMDP, extra: int) -> sparse.csr_array:
    """(S, S A + extra) the Bellman flow, with columns of zeros for other variables."""
    pairs = mdp.states * mdp.actions
    stay = sparse.csr_array(
        (np.ones(pairs), (np.arange(pairs) // mdp.actions, np.arange(pairs))),
        shape=(mdp.states, pairs),
    )
    flow = stay - mdp.gamma * mdp.P.T
    return sparse.csr_array(sparse.hstack([flow, sparse.csr_array((mdp.states, extra))]))


def _phase_one(mdp: VectorMDP) -> tuple[np.ndarray, float]:
    """(L,) weights that prove infeasibility, and the shortfall under them."""
    L = mdp.c.shape[1]
    found = linprog(
        np.append(np.zeros(mdp.states * mdp.actions), -1.0),
        A_ub=sparse.csr_array(np.column_stack([-mdp.c.T, np.ones(L)])),
        b_ub=-mdp.C,
        A_eq=_flow(mdp, 1),
        b_eq=mdp.mu,
        bounds=[(0, None)] * (mdp.states * mdp.actions) + [(None, None)],
        method="highs",
    )
    weights = np.maximum(-found.ineqlin.marginals, 0.0)
    return weights / weights.sum(), -float(found.x[-1])


def infeasible(mdp: VectorMDP, farkas: np.ndarray, shortfall: float) -> InfeasibleConstraints:
    """The error, with what each limit could reach alone."""
    return InfeasibleConstraints(mdp.C, achievable(mdp), farkas, shortfall)


def achievable(mdp: VectorMDP) -> Float[np.ndarray, " L"]:
    """The largest return of each constraint reward."""
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    oracle = Oracle(mdp)
    best = [oracle(np.eye(K + L)[K + i]).J[K + i] for i in range(L)]
    return np.array(best)
