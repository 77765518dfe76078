"""The world: equal to a slow simulator on pixels, and to the original where it is given."""

from __future__ import annotations

import copy
import functools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from armillary.rl.kage import world
from armillary.rl.kage.pairs import BASE, any_config
from armillary.rl.kage.params import load_config

# A slow simulator on pixels, written from the rules of the world and from nothing else: it knows no
# segments and no shortcuts, and walks back one pixel at a time. float32, rounded half to even.

F = np.float32


def solid_mask(tops: np.ndarray, run_width: int, length: int, height: int = 128) -> np.ndarray:
    """(height, length) bool: bands of two rows, walls in the first column of a new segment."""
    column_tops = np.repeat(tops.astype(int), run_width)[:length]
    solid = np.zeros((height, length), bool)
    for c, top in enumerate(column_tops):
        solid[top : top + 2, c] = True
        if c and column_tops[c - 1] != top:
            low, high = sorted((top, column_tops[c - 1]))
            solid[low:high, c] = True
    return solid


class Oracle:
    """One agent of 17 x 25 pixels in a world of pixels."""

    def __init__(self, solid: np.ndarray, x: float, y: float, rules: dict[str, float]) -> None:
        self.solid, self.rules = solid, rules
        self.x, self.y, self.vx, self.vy = F(x), F(y), F(0), F(0)
        self.grounded, self.coyote, self.x_max = False, 0, F(x)

    def _box(self, x: int, y: int) -> bool:
        return bool(self.solid[y - 12 : y + 13, x - 8 : x + 9].any())

    def _touches(self, x: int, y: int) -> bool:
        return bool(self.solid[y + 13 : y + 15, x - 8 : x + 9].any())

    def step(self, action: int) -> float:
        r = self.rules
        height, length = self.solid.shape
        x0, y0 = int(np.rint(self.x)), int(np.rint(self.y))
        grounded = self._touches(x0, y0) and self.vy >= 0
        self.coyote = 0 if grounded else min(self.coyote + 1, 4)
        pressed = bool(action & 4)
        vy = self.vy
        if pressed and self.coyote <= 3:
            vy, grounded, self.coyote = F(r["jump"]), False, 4
        direction = F(bool(action & 2)) - F(bool(action & 1))
        vx = self.vx * F(r["friction"] if grounded else r["air"])
        vx = vx + F(1.0 if grounded else 0.4) * direction
        vx = np.clip(vx, -F(r["speed"]), F(r["speed"]))
        vy = np.clip(vy + F(r["gravity"]), F(-100), F(8))
        x = np.clip(self.x + vx, F(8), F(length - 9))
        y = np.clip(self.y + vy, F(12), F(height - 13))
        x1, y1 = int(np.rint(x)), int(np.rint(y))
        x2 = x1
        while x2 != x0 and self._box(x2, y0):
            x2 -= int(np.sign(x2 - x0))
        y2 = y1
        while y2 != y0 and self._box(x2, y2):
            y2 -= int(np.sign(y2 - y0))
        before = self.x
        self.vx = vx if x2 == x1 else F(0)
        self.vy = vy if y2 == y1 else F(0)
        self.x, self.y, self.grounded = F(x2), F(y2), grounded
        forward = max(F(0), self.x - self.x_max) * F(0.2)
        self.x_max = max(self.x_max, self.x)
        return float(forward - F(10) * F(pressed) - F(0.1) - F(5) * F(self.x == before))


RULES = {"jump": -7.5, "friction": 0.8, "air": 0.95, "speed": 1, "gravity": 0.75}


def actions(levels: int, steps: int, seed: int) -> np.ndarray:
    """Mostly right, often jumping; a third at random: (levels, steps)."""
    rng = np.random.default_rng(seed)
    shape = (levels, steps)
    runs = np.where(rng.random(shape) < 0.3, 6, 2)
    return np.where(rng.random(shape) < 0.67, runs, rng.integers(0, 8, shape)).astype(np.int32)


def check_against_oracle(config: dict, rules: dict, levels: int, steps: int, seed: int) -> int:
    """Play both; every number must agree. Gives how many levels had a free place to start."""
    latent, _, caps = load_config(config)
    keys = jax.random.split(jax.random.PRNGKey(seed), levels)
    taken = actions(levels, steps, seed)

    def step(state, action):
        after = world.step(state, action, latent, caps)
        reward = world.reward(state, action, after, latent)
        return after, (after.x, after.y, after.vx, after.vy, after.grounded, after.coyote, reward)

    def play(key, row):
        state = world.reset(key, latent, caps)
        return state, jax.lax.scan(step, state, row)[1]

    start, found = jax.jit(jax.vmap(play))(keys, jnp.asarray(taken))
    x, y, vx, vy, grounded, coyote, reward = map(np.asarray, found)
    for i in range(levels):
        solid = solid_mask(np.asarray(start.tops[i]), caps.run_width, caps.length)
        slow = Oracle(solid, float(start.x[i]), float(start.y[i]), rules)
        assert not slow._box(int(slow.x), int(slow.y))
        for t in range(steps):
            expected = slow.step(int(taken[i, t]))
            at = (x[i, t], y[i, t], vy[i, t], bool(grounded[i, t]), int(coyote[i, t]))
            assert at == (slow.x, slow.y, slow.vy, slow.grounded, slow.coyote), (i, t)
            # Friction and push are one fused operation where the machine has it: the last bit.
            assert abs(vx[i, t] - slow.vx) <= 1e-6
            assert reward[i, t] == np.float32(expected), (i, t)
    return levels


def test_heights_equal_pixels():
    assert check_against_oracle(BASE, RULES, levels=6, steps=250, seed=0) == 6


@pytest.mark.parametrize(("run_width", "speed", "low", "high"), [(5, 3, 5, 17), (1, 1, 1, 3)])
def test_heights_equal_pixels_for_narrow_segments_and_long_steps(run_width, speed, low, high):
    config = copy.deepcopy(BASE)
    config["layout"] |= {"run_width": run_width, "min_step_height": low, "max_step_height": high}
    config["physics"]["move_speed"] = speed
    check_against_oracle(config, {**RULES, "speed": speed}, levels=3, steps=120, seed=1)


@pytest.mark.slow
def test_heights_equal_pixels_on_200_levels():
    assert check_against_oracle(BASE, RULES, levels=200, steps=500, seed=7) == 200


SEGMENTS = 82


@functools.cache
def fresh():
    """A world to begin with."""
    latent, _, caps = any_config()
    return jax.jit(lambda key: world.reset(key, latent, caps))(jax.random.PRNGKey(0))


def flat_world(tops: list[int], x: float, y: float):
    """A world of the given tops, repeated at its end, with the agent at rest."""
    rows = np.resize(np.asarray(tops, np.int16), SEGMENTS)
    rows[len(tops) :] = tops[-1]
    return fresh().replace(  # pyright: ignore[reportAttributeAccessIssue]
        tops=jnp.asarray(rows), x=jnp.float32(x), y=jnp.float32(y), x0=jnp.float32(x)
    )


@functools.cache
def compiled():
    """One step of the plainest world."""
    latent, _, caps = any_config()
    return jax.jit(lambda s, a: world.step(s, a, latent, caps))


def run(state, taken: list[int]):
    """States after each action."""
    step = compiled()
    states = []
    for action in taken:
        state = step(state, jnp.int32(action))
        states.append(state)
    return states


def test_the_agent_rests_13_pixels_above_the_ground_and_jumps_34():
    states = run(flat_world([96], 100, 82), [0] * 4 + [4] + [0] * 40)
    assert float(states[3].y) == 96 - 13
    assert 83 - min(float(s.y) for s in states[4:]) == 34
    assert float(states[-1].y) == 83


@pytest.mark.parametrize(("units", "passes"), [(17, True), (18, False)])
def test_the_tallest_wall_of_34_pixels_is_passable_and_36_is_not(units, passes):
    tops = [96] * 5 + [96 - 2 * units]
    jumped = run(flat_world(tops, 90, 82), [2] * 10 + [6] * 120)
    assert (max(float(s.x) for s in jumped) > 125) == passes


def test_a_jump_is_possible_three_steps_after_leaving_the_ground_and_no_later():
    edge = flat_world([56] * 4 + [96], 104, 43)
    walked = run(edge, [2] * 12)
    left = next(i for i, s in enumerate(walked) if float(s.y) > 43)
    for late, jumps in ((2, True), (6, False)):
        states = run(edge, [2] * (left + late) + [6])
        assert (float(states[-1].vy) < -6) == jumps


def test_left_and_right_cancel_and_the_reward_counts_progress_once():
    latent = any_config().latent
    state = run(flat_world([96], 100, 83), [0] * 3)[-1]
    both = run(state, [3])[0]
    assert float(both.x) == float(state.x)
    assert float(world.reward(state, jnp.int32(3), both, latent)) == pytest.approx(-5.1)
    right = run(both, [2])[0]
    assert float(world.reward(both, jnp.int32(2), right, latent)) == pytest.approx(0.2 - 0.1)
    back = run(right, [1] * 5)[-1]
    again = run(back, [2])
    assert float(again[0].x) <= float(right.x)
    assert float(world.reward(back, jnp.int32(2), again[0], latent)) <= -0.1
    jump = run(right, [6])[0]
    assert float(world.reward(right, jnp.int32(6), jump, latent)) == pytest.approx(0.2 - 10.1)


def test_the_camera_follows_past_its_margins_and_stays_in_the_world():
    states = run(flat_world([96], 100, 83), [2] * 60)
    for state in states:
        assert 0 <= float(state.camera_x) <= 2048 - 128
        assert float(state.x - state.camera_x) <= 88
    assert float(states[-1].camera_x) == float(states[-1].x) - 88


def test_the_expert_solves_levels():
    latent, _, caps = any_config()

    def play(key):
        state = world.reset(key, latent, caps)
        body = lambda s, _: (world.step(s, world.expert(s, caps), latent, caps), None)  # noqa: E731
        return jax.lax.scan(body, state, length=500)[0].success_once

    solved = jax.jit(jax.vmap(play))(jax.random.split(jax.random.PRNGKey(1), 24))
    assert int(solved.sum()) >= 23


def test_levels_stay_in_their_band_and_begin_half_way_up():
    latent, _, caps = any_config()
    keys = jax.random.split(jax.random.PRNGKey(2), 50)
    levels = jax.jit(jax.vmap(lambda k: world.level(k, latent, caps)))
    tops = np.asarray(levels(keys)).astype(int)
    assert tops.shape == (50, 82)
    assert (tops[:, 0] == 96 - 2 * 10).all()
    assert tops.min() >= 96 - 2 * 20
    assert tops.max() <= 96
    assert np.mean(np.diff(tops, axis=1) == 0) < 0.5


@pytest.mark.skipif(
    not os.environ.get("ARMILLARY_KAGE_BENCH"),
    reason="ARMILLARY_KAGE_BENCH names no checkout of kage-bench",
)
@pytest.mark.slow
def test_levels_and_trajectories_are_those_of_the_original(monkeypatch):
    import json

    from armillary.evidence.shapes import Case, Cell
    from armillary.rl.kage import evidence_exact

    checkout = str(Path(os.environ["ARMILLARY_KAGE_BENCH"]).absolute())
    monkeypatch.setenv("ARMILLARY_PEERS", json.dumps({"kage-bench": checkout}))
    cell = Cell(Case("a", x={"levels": 8}), 1000, "smoke")
    found = evidence_exact._disagreement(None, cell)
    assert found["mismatches"] == 0
    assert found["numbers"] > 8 * 500 * 6
