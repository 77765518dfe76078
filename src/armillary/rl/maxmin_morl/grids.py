"""Two grid worlds of mo-gymnasium as tables, with the cost of steps beside their objectives."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from armillary.rl.maxmin_morl.generators import limited
from armillary.rl.maxmin_morl.mdp import VectorMDP

#: Chance that an enemy takes all that is carried.
ATTACK = 0.1
#: Two shapes of each kind in four rooms; `_` the start, G the goal, X walls.
ROOMS = (
    "1    X    2",
    "     X     ",
    "          3",
    "     X     ",
    "     X     ",
    "XX XXXXX XX",
    "     X     ",
    "3    X     ",
    "           ",
    "_    X    1",
    "2    X    G",
)


def resource_gathering(tightness: float, gamma: float = 0.95) -> VectorMDP:
    """``resource-gathering-v0``: gold and gem are the objectives, steps the limit.

    States are (row, column, gold, gem), as the environment observes them, and one end.

    Args:
        tightness: of the limit on steps, see `limited`.
        gamma: discount.
    """
    grid = ["  12 ".replace("1", "g").replace("2", "e"), "  e j", "     ", "     ", "  h  "]
    moves = ((-1, 0), (1, 0), (0, -1), (0, 1))
    states = [(y, x, g, j) for y in range(5) for x in range(5) for g in (0, 1) for j in (0, 1)]
    index = {state: i for i, state in enumerate(states)}
    end, A = len(states), 4
    P = sparse.lil_array(((end + 1) * A, end + 1))
    r, c = np.zeros(((end + 1) * A, 2)), np.full(((end + 1) * A, 1), -1.0)
    for state, s in index.items():
        for a, (dy, dx) in enumerate(moves):
            y, x, gold, gem = state
            if 0 <= y + dy < 5 and 0 <= x + dx < 5:
                y, x = y + dy, x + dx
            cell, row = grid[y][x], s * A + a
            gold, gem = gold or cell == "g", gem or cell == "j"
            onward = index[(y, x, int(gold), int(gem))]
            if cell == "h":
                P[row, end], r[row] = 1.0, (gold, gem)
            elif cell == "e":
                P[row, end], P[row, onward] = ATTACK, 1 - ATTACK
            else:
                P[row, onward] = 1.0
    return _finish(P, r, c, end, index[(4, 2, 0, 0)], tightness, gamma, A)


def four_rooms(tightness: float, gamma: float = 0.97) -> VectorMDP:
    """``four-room-v0`` on a smaller map: three kinds of shapes are the objectives, steps the limit.

    Two shapes of a kind in place of the environment's four: 2^6 sets of what was collected, not
    2^12. States are those that can be reached, found by stepping the environment itself.
    """
    from mo_gymnasium.envs.four_room.four_room import FourRoom

    env = FourRoom(maze=np.array([list(row) for row in ROOMS]))
    env.reset(seed=0)
    start = (env.initial[0], tuple(0 for _ in env.shape_ids))
    index, queue, steps = {start: 0}, [start], []
    while queue:
        state = queue.pop()
        for a in range(4):
            env.state = state
            _, reward, terminated, _, _ = env.step(a)
            if not terminated and env.state not in index:
                index[env.state] = len(index)
                queue.append(env.state)
            steps.append((index[state], a, None if terminated else index[env.state], reward))
    end, A = len(index), 4
    P = sparse.lil_array(((end + 1) * A, end + 1))
    r, c = np.zeros(((end + 1) * A, 3)), np.full(((end + 1) * A, 1), -1.0)
    for s, a, onward, reward in steps:
        P[s * A + a, end if onward is None else onward] = 1.0
        r[s * A + a] = reward
    return _finish(P, r, c, end, 0, tightness, gamma, A)


def _finish(
    P: sparse.lil_array, r: np.ndarray, c: np.ndarray, end: int, start: int, tightness: float,
    gamma: float, A: int,
) -> VectorMDP:  # fmt: skip
    for a in range(A):
        P[end * A + a, end] = 1.0
        c[end * A + a] = 0.0
    mu = np.zeros(end + 1)
    mu[start] = 1.0
    free = VectorMDP(sparse.csr_array(P), r, np.zeros((len(r), 0)), np.zeros(0), mu, gamma, A)
    return limited(free, c, tightness)
