"""Level, physics, reward and camera: everything that a frame's look must never touch.

The ground is a column of heights, one a segment, and never a pixel mask. ``tops[s]`` is the first
solid row of segment ``s`` (columns ``s*w`` to ``s*w + w - 1``); where two segments differ, a wall
one column wide joins them, in the *first column of the new segment*. A column ``c`` is therefore
solid from ``min(tops[c // w], tops[(c - 1) // w])``, and the box of an agent at ``x`` stands over

    h(x) = min of the tops of the segments that hold the columns x - half_width - 1 … x + half_width

(one column to the left of the box brings the wall rule in). An agent is never under the ground, so
"its box overlaps something solid" is "its feet, row y + half_height, reach h(x)". Walking back to
the last free pixel needs no loop: the first segment ahead that reaches the feet is where it stops.

Positions are rounded half to even before every test and stored as whole numbers after it. The
order of a step is that of KAGE-Bench, on which the solvability of the tallest wall rests.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from armillary.rl.kage.params import LatentParams, StaticCaps

#: Action bits; left and right together cancel.
LEFT, RIGHT, JUMP = 1, 2, 4
N_ACTIONS = 8
#: A row below every world, and bounds of walls that are not there.
FAR = 1_000_000
#: Spawn positions tried, and the first of them.
TRIES, FIRST_SPAWN = 20, 64


@struct.dataclass
class Latent:
    """The world of one environment.

    Attributes:
        tops: (S,) int16, first solid row of each segment.
        x: centre of the agent's box, pixels of the world; whole numbers in float32.
        y: the same, rows from the top.
        vx: pixels a step.
        vy: pixels a step, downwards.
        grounded: whether it stood on the ground before it moved.
        coyote: steps since it last stood, at most ``coyote_time + 1``.
        camera_x: first column of the world in view.
        time: steps of this episode.
        x_max: furthest x of this episode.
        x0: x at the start.
        success_once: whether it has come ``dist_to_success`` far.
    """

    tops: jax.Array
    x: jax.Array
    y: jax.Array
    vx: jax.Array
    vy: jax.Array
    grounded: jax.Array
    coyote: jax.Array
    camera_x: jax.Array
    time: jax.Array
    x_max: jax.Array
    x0: jax.Array
    success_once: jax.Array


def level(key: jax.Array, params: LatentParams, caps: StaticCaps) -> jax.Array:
    """Tops of a random level: a bounded random walk over segments, its first segment half-way up.

    With the key that KAGE-Bench's reset gives its generator, this is its level.

    Returns:
        (S,) int16 rows.
    """
    n = caps.segments
    event_key, step_key = jax.random.split(key, 2)
    u = jax.random.uniform(event_key, (n,), jnp.float32)
    flat = 1.0 - params.p_change
    up = flat + params.p_change * params.p_up
    event = jnp.where(u < flat, 0, jnp.where(u < up, 1, -1))
    size = jax.random.randint(step_key, (n,), params.min_step, params.max_step + 1, jnp.int32)
    start = (params.min_height + params.max_height) // 2

    def walk(height: jax.Array, change: jax.Array) -> tuple[jax.Array, jax.Array]:
        moved = jnp.clip(height + change, params.min_height, params.max_height)
        return moved, height

    _, heights = jax.lax.scan(walk, start, event * size)
    return (params.base_ground_y - params.pix_per_unit * heights).astype(jnp.int16)


def reset(key: jax.Array, params: LatentParams, caps: StaticCaps) -> Latent:
    """A new level with the agent in its first free place.

    Where none of the 20 places is free, the agent hangs above the ground of the first one.
    """
    tops = level(key, params, caps)
    tried = FIRST_SPAWN + jnp.arange(TRIES) * (2 * caps.half_width + 4)
    tried = jnp.clip(tried, caps.half_width, caps.length - caps.half_width - 1)
    own = tops[tried // caps.run_width].astype(jnp.int32)
    y = own - caps.half_height - 2
    free = y + caps.half_height < jax.vmap(lambda x: _highest_of(tops, x, caps))(tried)
    first = jnp.argmax(free)
    hanging = jnp.minimum(FIRST_SPAWN, _highest_of(tops, tried[0], caps) - caps.half_height - 2)
    x = jnp.where(free.any(), tried[first], FIRST_SPAWN).astype(jnp.float32)
    y = jnp.where(free.any(), y[first], hanging).astype(jnp.float32)
    zero = jnp.float32(0)
    return Latent(
        tops=tops,
        x=x,
        y=y,
        vx=zero,
        vy=zero,
        grounded=jnp.bool_(False),
        coyote=jnp.int32(0),
        camera_x=jnp.clip(x - caps.width // 2, 0.0, float(caps.length - caps.width)),
        time=jnp.int32(0),
        x_max=x,
        x0=x,
        success_once=jnp.bool_(False),
    )


def _highest_of(tops: jax.Array, x: jax.Array, caps: StaticCaps) -> jax.Array:
    """h(x) straight from its definition, for the few places of a reset."""
    columns = x + jnp.arange(-caps.half_width - 1, caps.half_width + 1)
    columns = jnp.clip(columns, 0, caps.length - 1)
    return tops[columns // caps.run_width].astype(jnp.int32).min()


def step(state: Latent, action: jax.Array, params: LatentParams, caps: StaticCaps) -> Latent:
    """One step of the dynamics; `reward` reads the outcome."""
    left, right, jump = ((action & bit) != 0 for bit in (LEFT, RIGHT, JUMP))
    direction = right.astype(jnp.float32) - left.astype(jnp.float32)
    x0 = jnp.round(state.x).astype(jnp.int32)
    y0 = jnp.round(state.y).astype(jnp.int32)
    near = _Near(state.tops, x0, caps)

    # 1. Ground, within a few pixels under the feet; 2. jump.
    feet = y0 + caps.half_height
    touch = feet + params.ground_snap_dist >= near.highest(x0)
    grounded = touch & (state.vy >= 0)
    late = params.coyote_time + 1
    coyote = jnp.where(grounded, 0, jnp.minimum(state.coyote + 1, late))
    fires = jump & (coyote <= params.coyote_time)
    vy = jnp.where(fires, params.jump_force, state.vy)
    grounded &= ~fires
    coyote = jnp.where(fires, late, coyote)

    # 3. Friction, then control; 4. gravity; 5. integrate.
    vx = state.vx * jnp.where(grounded, params.ground_friction, params.air_resistance)
    vx += jnp.where(grounded, params.ground_accel, params.air_accel) * direction
    vx = jnp.clip(vx, -params.move_speed, params.move_speed)
    vy = jnp.clip(vy + params.gravity, -100.0, params.max_fall_speed)
    x = jnp.clip(state.x + vx, caps.half_width, caps.length - 1 - caps.half_width)
    y = jnp.clip(state.y + vy, caps.half_height, caps.height - 1 - caps.half_height)

    # 6. Walls with y fixed, then ground with x fixed.
    x1, y1 = jnp.round(x).astype(jnp.int32), jnp.round(y).astype(jnp.int32)
    low, high = near.walls(x0, feet)
    x2 = jnp.clip(x1, low, high)
    y2 = jnp.minimum(y1, near.highest(x2) - 1 - caps.half_height)
    now = x2.astype(jnp.float32)
    return state.replace(  # pyright: ignore[reportAttributeAccessIssue]
        x=now,
        y=y2.astype(jnp.float32),
        vx=jnp.where(x2 != x1, 0.0, vx),
        vy=jnp.where(y2 != y1, 0.0, vy),
        grounded=grounded,
        coyote=coyote,
        camera_x=_follow(state.camera_x, now, params, caps),
        time=state.time + 1,
        x_max=jnp.maximum(state.x_max, now),
        success_once=state.success_once | (now - state.x0 >= params.dist_to_success),
    )


class _Near:
    """The few segments that a step can meet: one gather, the rest is arithmetic on them."""

    def __init__(self, tops: jax.Array, x: jax.Array, caps: StaticCaps) -> None:
        self._caps = caps
        reach = caps.half_width + 1 + caps.max_move
        columns = reach + caps.half_width + caps.max_move + 1
        count = (columns + caps.run_width - 2) // caps.run_width + 1
        first = jnp.floor_divide(x - reach, caps.run_width)
        index = first + jnp.arange(count)
        self._tops = tops[jnp.clip(index, 0, caps.segments - 1)].astype(jnp.int32)
        self._starts = index * caps.run_width
        self._ends = self._starts + caps.run_width - 1

    def highest(self, x: jax.Array) -> jax.Array:
        """h(x)."""
        half = self._caps.half_width
        under = (self._ends >= x - half - 1) & (self._starts <= x + half)
        return jnp.where(under, self._tops, FAR).min()

    def walls(self, x: jax.Array, feet: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The least and the greatest x that the agent can walk to from ``x``."""
        half = self._caps.half_width
        blocks = self._tops <= feet
        left = blocks & (self._ends < x - half - 1)
        right = blocks & (self._starts > x + half)
        low = jnp.where(left, self._ends + half + 2, -FAR).max()
        high = jnp.where(right, self._starts - half - 1, FAR).min()
        return low, high


def _follow(camera: jax.Array, x: jax.Array, params: LatentParams, caps: StaticCaps) -> jax.Array:
    """The camera's dead zone: it moves only as far as keeps the agent between the margins."""
    on_screen = x - camera
    left = params.left_margin - on_screen
    right = on_screen - (caps.width - params.right_margin)
    moved = camera + jnp.where(left > 0, -left, jnp.where(right > 0, right, 0.0))
    return jnp.clip(moved, 0.0, float(caps.length - caps.width))


def reward(before: Latent, action: jax.Array, after: Latent, params: LatentParams) -> jax.Array:
    """Progress past the furthest point, minus the price of jumping, of time and of standing still.

    ``scale*max(0, x' - x_max) - jump_penalty*jump - timestep_penalty - idle_penalty*[x' == x]``
    """
    forward = jnp.maximum(0.0, after.x - before.x_max) * params.forward_reward_scale
    jumped = ((action & JUMP) != 0).astype(jnp.float32) * params.jump_penalty
    idle = (after.x == before.x).astype(jnp.float32) * params.idle_penalty
    return forward - jumped - params.timestep_penalty - idle


def expert(state: Latent, caps: StaticCaps, look: int = 10) -> jax.Array:
    """The privileged policy: walk right, jump when the ground rises within ``look`` pixels.

    Returns:
        An action, int32.
    """
    front = jnp.round(state.x).astype(jnp.int32) + caps.half_width
    ahead = front + 1 + jnp.arange(look)
    ahead = jnp.clip(ahead, 0, caps.length - 1) // caps.run_width
    here = jnp.clip(front, 0, caps.length - 1) // caps.run_width
    rises = (state.tops[ahead] < state.tops[here]).any()
    return jnp.where(rises, RIGHT | JUMP, RIGHT).astype(jnp.int32)
