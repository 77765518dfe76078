"""The paper's hierarchical search, on our columns: a baseline without a certificate.

Global search anneals how many GPUs of each type each role has (``agg``, ``pre``, ``dec``, and
``afd`` groups), moving blocks of GPUs from roles with much throughput to roles with little; local
search fills a role's GPUs with the replicas of most throughput. Constants as published: blocks of
1, 2, 4 or 8 GPUs by model size, 60 iterations, a stop after 12 without gain, a start temperature of
0.25 that cools by 0.92.

The published search has its GPUs given. Here a budget decides, so that blocks may also be sold and
bought; for a given rate the price is annealed instead of the throughput.
"""

from __future__ import annotations

import math

import numpy as np

from armillary.serving.hexgen.allocation import (
    Allocation,
    Problem,
    fits,
    price_of,
    throughput_of,
)

ITERATIONS, STABLE, T0, COOLING = 60, 12, 0.25, 0.92
RESTARTS = 4
ROLES = ("agg", "pre", "dec", "afd")


def block_size(params: float) -> int:
    """GPUs that move together, by the model's number of parameters."""
    for limit, size in ((13e9, 1), (34e9, 2), (90e9, 4)):
        if params <= limit:
            return size
    return 8


def anneal(problem: Problem, *, params: float, seed: int = 0) -> Allocation | None:
    """The best allocation that a few annealings find, or None."""
    rng = np.random.default_rng(seed)
    best: tuple[float, tuple[int, ...]] | None = None
    for _ in range(RESTARTS):
        found = _once(problem, block_size(params), rng)
        if found is not None and (best is None or found[0] > best[0]):
            best = found
    if best is None or best[0] == -math.inf:
        return None
    counts = best[1]
    whole, agg = throughput_of(problem, counts)
    return Allocation(
        counts, whole, price_of(problem, counts), math.inf, math.inf, False,
        agg / whole if whole > 0 else 0.0,
    )  # fmt: skip


def _once(
    problem: Problem, block: int, rng: np.random.Generator
) -> tuple[float, tuple[int, ...]] | None:
    gpus = sorted(problem.inventory)
    roles = [r for r in ROLES if any(c.kind == r for c in problem.columns)]
    state = _start(problem, gpus, roles, block, rng)
    counts = _fill(problem, state, gpus, roles)
    score = _score(problem, counts)
    best, stable, temperature = (score, counts), 0, T0
    for _ in range(ITERATIONS):
        trial = _move(problem, state, counts, gpus, roles, block, rng)
        filled = _fill(problem, trial, gpus, roles)
        value = _score(problem, filled)
        scale = abs(best[0]) if math.isfinite(best[0]) and best[0] else 1.0
        gain = (value - score) / scale if math.isfinite(value) else -math.inf
        if (
            value > score
            or (math.isfinite(gain) and rng.random() < math.exp(gain / temperature))
            or not math.isfinite(score)
        ):
            state, counts, score = trial, filled, value
        if value > best[0]:
            best, stable = (value, filled), 0
        else:
            stable += 1
        if stable >= STABLE:
            break
        temperature *= COOLING
    return best


def _score(problem: Problem, counts: tuple[int, ...]) -> float:
    """Throughput, or the price (negative) once the rate is reached; infeasible: −∞."""
    if not fits(problem, counts):
        return -math.inf
    whole, _ = throughput_of(problem, counts)
    if problem.rate is None:
        return whole
    return -price_of(problem, counts) if whole >= problem.rate else -math.inf


def _start(
    problem: Problem, gpus: list[str], roles: list[str], block: int, rng: np.random.Generator
) -> np.ndarray:
    """Random blocks for random roles until budget or inventory is used up."""
    state = np.zeros((len(roles), len(gpus)), int)
    for _ in range(400):
        i, g = rng.integers(len(roles)), rng.integers(len(gpus))
        state[i, g] += block
        if not _affordable(problem, state, gpus):
            state[i, g] -= block
            if rng.random() < 0.1:
                break
    return state


def _affordable(problem: Problem, state: np.ndarray, gpus: list[str]) -> bool:
    held = state.sum(0)
    if any(held[g] > problem.inventory[name] for g, name in enumerate(gpus)):
        return False
    if problem.budget is None:
        return True
    return float(held @ _prices(problem, gpus)) <= problem.budget * (1 + 1e-9)


def _prices(problem: Problem, gpus: list[str]) -> np.ndarray:
    """Price of one GPU of each type, from columns that use one type only."""
    found = dict.fromkeys(gpus, 0.0)
    for column in problem.columns:
        if len(column.use) == 1:
            ((gpu, count),) = column.use
            found[gpu] = column.price / count
    return np.array([found[g] for g in gpus])


def _move(
    problem: Problem,
    state: np.ndarray,
    counts: tuple[int, ...],
    gpus: list[str],
    roles: list[str],
    block: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """A block goes from a rich role to a poor one, or is sold for one of another type."""
    trial = state.copy()
    carried = np.array([
        sum(problem.capacity(c) * n for c, n in zip(problem.columns, counts, strict=True)
            if c.kind == role)
        for role in roles
    ])  # fmt: skip
    rich = carried + carried.max() * 0.05 + 1e-9
    if rng.random() < 0.5:
        source = rng.choice(len(roles), p=rich / rich.sum())
        poor = 1 / rich
        target = rng.choice(len(roles), p=poor / poor.sum())
        g = rng.integers(len(gpus))
        size = min(block, trial[source, g])
        trial[source, g] -= size
        trial[target, g] += size
    else:
        i, g, h = rng.integers(len(roles)), rng.integers(len(gpus)), rng.integers(len(gpus))
        trial[i, g] = max(0, trial[i, g] - block)
        bought = 0
        while bought < 8 and rng.random() < 0.8:
            trial[i, h] += block
            if not _affordable(problem, trial, gpus):
                trial[i, h] -= block
                break
            bought += 1
    return trial if _affordable(problem, trial, gpus) else state


def _fill(
    problem: Problem, state: np.ndarray, gpus: list[str], roles: list[str]
) -> tuple[int, ...]:
    """Local search: for each role the replicas of most throughput from its GPUs, one after another.

    Every first column is tried; what it leaves goes to the best of the rest.
    """
    counts = [0] * len(problem.columns)
    for i, role in enumerate(roles):
        own = [j for j, c in enumerate(problem.columns) if c.kind == role]
        free = dict(zip(gpus, state[i].tolist(), strict=True))
        best: tuple[float, dict[int, int]] = (0.0, {})
        order = sorted(own, key=lambda j: -_per_gpu(problem, j))
        for first in own:
            rest, taken, value = dict(free), {}, 0.0
            for j in (first, *order):
                use = problem.columns[j].use
                n = min(rest[gpu] // count for gpu, count in use)
                if n > 0:
                    taken[j] = taken.get(j, 0) + n
                    value += n * problem.capacity(problem.columns[j])
                    for gpu, count in use:
                        rest[gpu] -= n * count
            if value > best[0]:
                best = (value, taken)
        for j, n in best[1].items():
            counts[j] += n
    return tuple(counts)


def _per_gpu(problem: Problem, j: int) -> float:
    column = problem.columns[j]
    return problem.capacity(column) / sum(count for _, count in column.use)
