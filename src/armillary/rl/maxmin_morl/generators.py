"""Random Markov decision processes with limits that bind: the controlled work of the evidence."""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy import sparse

from armillary.rl.maxmin_morl.bundle import solve_bundle
from armillary.rl.maxmin_morl.mdp import VectorMDP


def garnet(
    states: int,
    actions: int = 5,
    branching: int = 5,
    objectives: int = 4,
    limits: int = 1,
    gamma: float = 0.95,
    tightness: float = 0.6,
    seed: int = 0,
) -> VectorMDP:
    """A Garnet process: each (s, a) leads to ``branching`` states; rewards uniform in [0, 1].

    Args:
        states, actions, branching: S, A and successors of a pair.
        objectives, limits: K and L.
        gamma: discount.
        tightness: where the thresholds stand between the unconstrained max-min policy's J_c (0) and
            that of the policy whose smallest J_c is largest (1).
        seed: of all draws.
    """
    rng = np.random.default_rng(seed)
    pairs = states * actions
    branching = min(branching, states)
    targets = (
        np.argsort(rng.random((pairs, states)), axis=1)[:, :branching]
        if states <= 500
        else (np.stack([rng.choice(states, branching, replace=False) for _ in range(pairs)]))
    )
    cuts = np.sort(rng.random((pairs, branching - 1)), axis=1)
    chances = np.diff(np.column_stack([np.zeros(pairs), cuts, np.ones(pairs)]), axis=1)
    rows = np.repeat(np.arange(pairs), branching)
    P = sparse.csr_array((chances.ravel(), (rows, targets.ravel())), shape=(pairs, states))
    free = VectorMDP(
        P,
        rng.random((pairs, objectives)),
        np.zeros((pairs, 0)),
        np.zeros(0),
        np.full(states, 1 / states),
        gamma,
        actions,
    )
    c = rng.random((pairs, limits))
    return limited(free, c, tightness)


def limited(free: VectorMDP, c: np.ndarray, tightness: float) -> VectorMDP:
    """The process with thresholds that max-min alone misses and that some policy meets."""
    K, L = free.r.shape[1], c.shape[1]
    bare = dataclasses.replace(free, c=c, C=np.full(L, -1e12))
    worst = solve_bundle(free, 1e-7).occupancy(free).ravel() @ c
    if L == 1:
        from armillary.rl.maxmin_morl.linear_program import achievable

        best = achievable(bare)
    else:
        # The policy that is good for all limits is itself a max-min policy, of c.
        swapped = dataclasses.replace(free, r=c)
        best = solve_bundle(swapped, 1e-7).occupancy(swapped).ravel() @ c
    del K
    return dataclasses.replace(bare, C=worst + tightness * (best - worst))
