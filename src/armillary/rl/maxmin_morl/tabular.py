"""Exact max-min policies of finite Markov decision processes under hard limits.

max over policies of min_k J_k subject to J_l >= C_l is a linear programme over occupancy measures
(Park et al., ICML 2026), so that it has a dual without a gap: the least over w in the simplex and
u >= 0 of D(w, u) = max over policies of w'J_r + u'(J_c - C). Three ways to solve it, one answer:

- ``"lp"``: the programme itself, by HiGHS;
- ``"bundle"``: the dual, from a few dozen best responses; for thousands of states;
- ``"pgd"``: projected gradient on the softened dual, as the paper has it; close, not exact.

The optimum mixes: no deterministic policy attains it in general, and what is returned is
stochastic.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from armillary.rl.maxmin_morl.bundle import Step, solve_bundle
from armillary.rl.maxmin_morl.gradient import solve_pgd
from armillary.rl.maxmin_morl.linear_program import infeasible, solve_program
from armillary.rl.maxmin_morl.mdp import VectorMDP, vector_mdp
from armillary.rl.maxmin_morl.oracle import Oracle, bias_bound

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

Method = Literal["lp", "bundle", "pgd"]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A proof that a policy is as good as it is said to be; `check` computes it from scratch.

    Attributes:
        lower: worst return of the policy, from its own occupancy.
        upper: D(w, u) of a best response: no policy that meets the limits has a worst return above.
        gap: upper - lower; may be negative by as much as the policy misses a limit.
        slack: (L,) J_c - C of the policy.
        bias_bound: how far softening may have pulled the worst return down (0 for exact methods).
    """

    lower: float
    upper: float
    gap: float
    slack: Float[np.ndarray, " L"]
    bias_bound: float = 0.0


@dataclasses.dataclass(frozen=True)
class TabularSolution:
    """A policy, the multipliers that prove it, and the proof.

    Attributes:
        policy: (S, A) probabilities.
        visited: (S,) whether the policy ever comes to a state; where not, its row is uniform.
        w: (K,) weights of the objectives, on the simplex.
        u: (L,) prices of the limits, >= 0.
        value_min: the worst return, min_k J_k.
        J: (K,) returns of the objectives.
        slack: (L,) J_c - C.
        gap: of the certificate.
        certificate: see `Certificate`.
        history: one `Step` a call of the bundle's oracle (empty for other methods).
        seconds: wall time.
    """

    policy: Float[np.ndarray, "S A"]
    visited: Bool[np.ndarray, " S"]
    w: Float[np.ndarray, " K"]
    u: Float[np.ndarray, " L"]
    value_min: float
    J: Float[np.ndarray, " K"]
    slack: Float[np.ndarray, " L"]
    gap: float
    certificate: Certificate
    history: list[Step]
    seconds: float


def solve_tabular(
    P: Any,
    r: Any,
    c: Any = None,
    C: Any = None,
    mu: Any = None,
    gamma: float = 0.99,
    method: Method = "bundle",
    tol: float = 1e-6,
    *,
    scale: Any = None,
    alpha: float = 0.02,
    steps: int = 400,
) -> TabularSolution:
    """The policy that lifts the worst objective as far as the limits allow.

    Args:
        P: (S, A, S) transition probabilities, or a list of A sparse (S, S) matrices.
        r: (S, A, K) objectives, bigger is better, in units that can be compared.
        c: (S, A, L) constraint rewards, bigger is better (a cost enters as its negative), or None.
        C: (L,) thresholds on discounted returns: J_c >= C. For a limit on the average per step
            multiply it by 1 / (1 - gamma).
        mu: (S,) initial distribution; None for uniform.
        gamma: discount, in [0, 1).
        method: ``"bundle"``, ``"lp"`` or ``"pgd"``.
        tol: relative gap at which the bundle stops.
        scale: (K,) sizes by which objectives are divided before they are compared.
        alpha: temperature of ``"pgd"``, in units of the rewards, at its end (it starts at 0.1).
        steps: of ``"pgd"``.

    Raises:
        InfeasibleConstraints: no policy meets all limits.
        ValueError: an argument is not usable.
    """
    if method not in ("lp", "bundle", "pgd"):
        raise ValueError(f"method={method!r}: known are 'bundle', 'lp' and 'pgd'")
    mdp = vector_mdp(P, r, c, C, mu, gamma, scale)
    return solve_mdp(mdp, method, tol, alpha=alpha, steps=steps)


def solve_mdp(
    mdp: VectorMDP, method: Method, tol: float = 1e-6, alpha: float = 0.02, steps: int = 400
) -> TabularSolution:
    """`solve_tabular` on a problem that has been checked."""
    began = time.perf_counter()
    K = mdp.r.shape[1]
    history: list[Step] = []
    if method == "lp":
        optimum = solve_program(mdp)
        occupancy, x, bias = optimum.occupancy, np.concatenate([optimum.w, optimum.u]), 0.0
    elif method == "bundle":
        found = solve_bundle(mdp, tol)
        occupancy, x, bias, history = found.occupancy(mdp), found.x, 0.0, found.history
    else:
        _refuse_infeasible(mdp)
        descent = solve_pgd(mdp, alpha, steps)
        occupancy, x = mdp.occupancy(descent.response.policy), descent.x
        bias = bias_bound(mdp, alpha)
    policy, visited = policy_of(occupancy)
    certificate = check(mdp, policy, x[:K], x[K:], bias)
    J = mdp.returns(policy)[:K]
    return TabularSolution(
        policy, visited, x[:K], x[K:], certificate.lower, J, certificate.slack,
        certificate.gap, certificate, history, time.perf_counter() - began,
    )  # fmt: skip


def policy_of(
    occupancy: Float[np.ndarray, "S A"],
) -> tuple[Float[np.ndarray, "S A"], Bool[np.ndarray, " S"]]:
    """The policy with these visits, and which states it comes to (uniform in the others)."""
    mass = occupancy.sum(axis=1)
    visited = mass > 1e-12 * mass.sum()
    rows = occupancy / np.where(visited, mass, 1.0)[:, None]
    return np.where(visited[:, None], rows, 1 / occupancy.shape[1]), visited


def check(
    mdp: VectorMDP,
    policy: Float[np.ndarray, "S A"],
    w: Float[np.ndarray, " K"],
    u: Float[np.ndarray, " L"],
    bias: float = 0.0,
) -> Certificate:
    """Prove a policy: its own returns against the dual value at (w, u), both from scratch."""
    K = mdp.r.shape[1]
    J = mdp.returns(policy)
    upper = Oracle(mdp)(np.concatenate([w, u])).value
    lower = float(J[:K].min())
    return Certificate(lower, upper, upper - lower, J[K:] - mdp.C, bias)


def _refuse_infeasible(mdp: VectorMDP) -> None:
    """The descent would diverge: find out before."""
    if not mdp.c.shape[1]:
        return
    from armillary.rl.maxmin_morl.bundle import limits_met

    proof = limits_met(mdp)
    if proof is not None:
        raise infeasible(mdp, *proof)
