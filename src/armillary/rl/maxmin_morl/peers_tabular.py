"""What others would do with a finite process: each gives an (S, A) policy. Rewrites, all exact."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from armillary.rl.maxmin_morl.bundle import solve_bundle
from armillary.rl.maxmin_morl.linear_program import solve_program
from armillary.rl.maxmin_morl.mdp import VectorMDP
from armillary.rl.maxmin_morl.oracle import Oracle
from armillary.rl.maxmin_morl.tabular import policy_of

#: Steps of the simplex's grid of weights, with a step for the limits' price.
FRONT_STEPS = 10


def uniform_weights(mdp: VectorMDP) -> np.ndarray:
    """The optimum of the mean, no limits."""
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    return Oracle(mdp)(np.concatenate([np.full(K, 1 / K), np.zeros(L)])).policy


def unlimited(mdp: VectorMDP) -> np.ndarray:
    """Max-min without limits (2024), exact."""
    free = dataclasses.replace(mdp, c=mdp.c[:, :0], C=mdp.C[:0])
    return policy_of(solve_bundle(free).occupancy(free))[0]


def limited_mean(mdp: VectorMDP) -> np.ndarray:
    """The optimum of the mean under the limits: what Lagrangian methods aim at, exact."""
    mean = np.repeat(mdp.r.mean(axis=1, keepdims=True), 2, axis=1)
    return policy_of(solve_program(dataclasses.replace(mdp, r=mean)).occupancy)[0]


def deterministic(mdp: VectorMDP) -> np.ndarray:
    """The best response to the optimal multipliers, which does not mix."""
    found = solve_bundle(mdp)
    return Oracle(mdp)(found.x).policy


def best_of_front(mdp: VectorMDP, seed: int = 0) -> np.ndarray:
    """The policy of largest worst return that meets the limits, of 66 optima of weighted sums.

    Weights are a grid on the simplex over (objectives, limit); with more than three signals as many
    are drawn uniformly. Where no optimum meets the limits, the one that misses them by least.
    """
    K, size = mdp.r.shape[1], mdp.signals.shape[1]
    if size == 3:
        steps = range(FRONT_STEPS + 1)
        grid = [(i, j, FRONT_STEPS - i - j) for i, j in itertools.product(steps, steps)]
        weights = np.array([g for g in grid if min(g) >= 0]) / FRONT_STEPS
    else:
        weights = np.random.default_rng(seed).dirichlet(np.ones(size), 66)
    oracle, best, score = Oracle(mdp), None, (-np.inf, -np.inf)
    span = np.abs(mdp.signals).mean(axis=0)
    for w in weights:
        response = oracle(w / np.maximum(span, 1e-12))
        short = min(0.0, float((response.J[K:] - mdp.C).min()))
        reached = (short if short < -1e-9 else 0.0, float(response.J[:K].min()))
        if reached > score:
            best, score = response.policy, reached
    assert best is not None
    return best


def descend_unprojected(mdp: VectorMDP, steps: int = 60) -> np.ndarray:
    """Multipliers after plain steps of length 0.2 along the gradient, w not projected."""
    K, L = mdp.r.shape[1], mdp.c.shape[1]
    oracle, offset = Oracle(mdp), np.concatenate([np.zeros(K), mdp.C])
    x = np.concatenate([np.full(K, 1 / K), np.zeros(L)])
    for _ in range(steps):
        slope = oracle(x).J - offset
        x = x - 0.2 * slope / np.linalg.norm(slope)
        x[K:] = np.maximum(x[K:], 0.0)
    return x
