"""Projected gradient on the softened dual, and its rival whose gradient comes from Gaussian noise.

The softened dual D_alpha is smooth and convex, with gradient (J_r, J_c - C) at its best response. A
step length is kept from one iteration to the next, doubled when it works and halved until the
quadratic bound holds (backtracking), so that no constant has to be known.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from armillary.rl.maxmin_morl.oracle import Oracle, Response
from armillary.rl.maxmin_morl.projection import inverse_sqrt, project_dual

if TYPE_CHECKING:
    from jaxtyping import Float

    from armillary.rl.maxmin_morl.mdp import VectorMDP


@dataclasses.dataclass(frozen=True)
class GradientResult:
    """Where the descent stopped.

    Attributes:
        x: (K + L,) multipliers.
        response: the softened best response to them.
        history: D_alpha after every step.
        calls: best responses in all.
    """

    x: Float[np.ndarray, " K+L"]
    response: Response
    history: list[float]
    calls: int


def solve_pgd(
    mdp: VectorMDP,
    alpha: float = 0.02,
    steps: int = 400,
    anneal_from: float = 0.1,
    tol: float = 1e-7,
    u_max: float = np.inf,
) -> GradientResult:
    """Descend D_alpha by projected gradient, alpha falling from ``anneal_from`` in the first third.

    Raises:
        FloatingPointError: the multipliers left ``u_max``: the limits look infeasible.
    """
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    offset = np.concatenate([np.zeros(K), mdp.C])
    x = np.concatenate([np.full(K, 1 / K), np.zeros(L)])
    oracle = Oracle(mdp, max(alpha, anneal_from))
    at, step, history = oracle(x), 1e-3, []
    stages = max(1, steps // 3)
    for t in range(steps):
        temperature = max(alpha, anneal_from * (alpha / anneal_from) ** (t / stages))
        if temperature != oracle.alpha:
            oracle.alpha = temperature
            at = oracle(x)
        slope = at.J - offset
        step *= 2.0
        while True:
            trial = project_dual(x - step * slope, K, u_max)
            moved = trial - x
            response = oracle(trial)
            bound = at.value + slope @ moved + moved @ moved / (2 * step)
            if response.value <= bound + 1e-12 * max(1.0, abs(at.value)) or step < 1e-14:
                break
            step /= 2.0
        x, at = trial, response
        history.append(at.value)
        if temperature == alpha and np.abs(moved).max() < tol:
            break
    return GradientResult(x, at, history, oracle.calls)


def solve_smoothing(
    mdp: VectorMDP,
    alpha: float = 0.02,
    steps: int = 400,
    copies: int = 10,
    spread: float = 0.01,
    eta: float = 0.05,
    seed: int = 0,
    constrained: bool = True,
) -> GradientResult:
    """The same descent with the gradient of Park et al. (ICML 2024), a rewrite.

    D_alpha is evaluated at ``copies`` points drawn around (w, u) and a plane is fitted to the
    values by least squares; steps are eta / sqrt(t), in units of the first gradient.
    """
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    rng = np.random.default_rng(seed)
    oracle = Oracle(mdp, alpha)
    x = np.concatenate([np.full(K, 1 / K), np.zeros(L)])
    size, history = 0.0, []
    for t in range(1, steps + 1):
        noise = spread * rng.standard_normal((copies, K + L))
        if not constrained:
            noise[:, K:] = 0.0
        values = [oracle(x + delta).value for delta in noise]
        plane = np.column_stack([noise, np.ones(copies)])
        slope = np.linalg.lstsq(plane, np.array(values), rcond=None)[0][:-1]
        size = size or float(np.linalg.norm(slope))
        x = project_dual(x - inverse_sqrt(eta / size, t) * slope, K)
        history.append(oracle(x).value)
    return GradientResult(x, oracle(x), history, oracle.calls)
