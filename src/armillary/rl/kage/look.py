"""What of a frame is drawn by lot at the start of an episode, and how it moves.

Everything here comes from the episode's visual key; the level's key is never touched, so that no
visual setting can leak into the world.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from armillary.rl.kage import noise
from armillary.rl.kage.params import COLOUR, IMAGE, Choice, LatentParams, StaticCaps, VisualParams

#: Steps a second: speeds of animations are given per second.
FPS = 60.0
#: Distractors stay this far from the edges, characters of the world from the world's ends.
MARGIN, ENDS = 15, 200


@struct.dataclass
class Look:
    """Ids and positions of one episode; arrays whose feature is inactive have no entries.

    Attributes:
        background: id of the picture or of the colour, int16.
        skin: the agent's character, int8.
        shape: the agent's shape, int8.
        colour: index of the agent's colour, int8.
        ground: index of the ground's colour, int8.
        preset: id of the filter preset, int8.
        lights: (L, 2) float32 positions as shares of the frame.
        npc_x: (N,) int16 columns of the world; 0 where there is none.
        npc_y: (N,) int16 rows.
        npc_skin: (N,) int8.
        sticky_x: (K,) int16 columns beside the agent.
        sticky_y: (K,) int16 rows now.
        sticky_home: (K,) int16 rows at rest.
        sticky_v: (K,) float32 rows a step.
        sticky_skin: (K,) int8; -1 where there is none.
        drift: (D, 6) float32: x, y, vx, vy, degrees, degrees a step.
        drift_kind: (D, 3) int8: shape, colour, size.
    """

    background: jax.Array
    skin: jax.Array
    shape: jax.Array
    colour: jax.Array
    ground: jax.Array
    preset: jax.Array
    lights: jax.Array
    npc_x: jax.Array
    npc_y: jax.Array
    npc_skin: jax.Array
    sticky_x: jax.Array
    sticky_y: jax.Array
    sticky_home: jax.Array
    sticky_v: jax.Array
    sticky_skin: jax.Array
    drift: jax.Array
    drift_kind: jax.Array


def reset(key: jax.Array, tops: jax.Array, visual: VisualParams, caps: StaticCaps) -> Look:
    """Draw the look of an episode; ``tops`` only tells where characters stand."""
    keys = jax.random.split(key, 8)
    lots = jax.random.uniform(keys[0], (6,))
    npc_x, npc_y, npc_skin = _npcs(keys[1], tops, visual, caps)
    sticky_x, sticky_y, sticky_skin = _stickies(keys[2], visual, caps)
    drift, kind = _distractors(keys[3], visual, caps)
    return Look(
        background=_background(lots[0], visual),
        skin=_pick(lots[1], visual.skins).astype(jnp.int8),
        shape=_pick(lots[2], visual.shapes).astype(jnp.int8),
        colour=_index(lots[3], visual.shape_colour_count).astype(jnp.int8),
        ground=_index(lots[4], visual.ground_colour_count).astype(jnp.int8),
        preset=_pick(lots[5], visual.presets).astype(jnp.int8),
        lights=jax.random.uniform(keys[4], (caps.lights, 2), minval=0.15, maxval=0.85),
        npc_x=npc_x,
        npc_y=npc_y,
        npc_skin=npc_skin,
        sticky_x=sticky_x,
        sticky_y=sticky_y,
        sticky_home=sticky_y,
        sticky_v=jnp.zeros(caps.stickies, jnp.float32),
        sticky_skin=sticky_skin,
        drift=drift,
        drift_kind=kind,
    )


def _index(lot: jax.Array, count: jax.Array) -> jax.Array:
    return jnp.minimum((lot * count).astype(jnp.int32), count - 1)


def _pick(lot: jax.Array, choice: Choice) -> jax.Array:
    return jnp.asarray(choice.ids)[_index(lot, jnp.asarray(choice.count))]


def _background(lot: jax.Array, visual: VisualParams) -> jax.Array:
    picture = _pick(lot, visual.images)
    colour = _index(lot, jnp.asarray(visual.field_count))
    mode = visual.background
    return jnp.where(mode == IMAGE, picture, jnp.where(mode == COLOUR, colour, 0)).astype(jnp.int16)


def _npcs(
    key: jax.Array, tops: jax.Array, visual: VisualParams, caps: StaticCaps
) -> tuple[jax.Array, jax.Array, jax.Array]:
    k_count, k_x, k_skin = jax.random.split(key, 3)
    low, high = visual.npc_range[0], visual.npc_range[1]
    count = jax.random.randint(k_count, (), low, high + 1)
    last = max(ENDS + 100, caps.length - ENDS)
    x = jax.random.randint(k_x, (caps.npcs,), ENDS, last)
    x = jnp.clip(x, 0, caps.length - 1)
    y = tops[x // caps.run_width] - caps.half_height - 2 - visual.npc_lift
    skin = jax.vmap(lambda lot: _pick(lot, visual.npc_skins))(
        jax.random.uniform(k_skin, (caps.npcs,))
    )
    there = (jnp.arange(caps.npcs) < count) & visual.npc_enabled
    x = jnp.where(there, x, 0)
    return x.astype(jnp.int16), y.astype(jnp.int16), skin.astype(jnp.int8)


def _stickies(
    key: jax.Array, visual: VisualParams, caps: StaticCaps
) -> tuple[jax.Array, jax.Array, jax.Array]:
    k_count, k_x, k_y, k_skin = jax.random.split(key, 4)
    n = caps.stickies
    count = jax.random.randint(k_count, (), visual.sticky_range[0], visual.sticky_range[1] + 1)
    given = jnp.asarray(visual.sticky_x)
    drawn = jax.random.randint(k_x, (n,), given[0], jnp.maximum(given[1], given[0]) + 1)
    x = jnp.where(visual.sticky_x_random, drawn, given[:n])
    y = jax.random.randint(k_y, (n,), visual.sticky_y[0], visual.sticky_y[1] + 1)
    skin = jax.vmap(lambda lot: _pick(lot, visual.sticky_skins))(jax.random.uniform(k_skin, (n,)))
    there = (jnp.arange(n) < count) & visual.sticky_enabled
    return x.astype(jnp.int16), y.astype(jnp.int16), jnp.where(there, skin, -1).astype(jnp.int8)


def _distractors(
    key: jax.Array, visual: VisualParams, caps: StaticCaps
) -> tuple[jax.Array, jax.Array]:
    k_place, k_speed, k_turn, k_kind, k_size = jax.random.split(key, 5)
    n = caps.distractors
    place = jax.random.uniform(k_place, (n, 2))
    room = jnp.array([caps.width - 2 * MARGIN, caps.height - 2 * MARGIN], jnp.float32)
    speed = visual.distractor_speed * jax.random.uniform(k_speed, (n, 2), minval=-1.0)
    angle, turn = jax.random.uniform(k_turn, (2, n))
    slow, fast = visual.distractor_rotation[0], visual.distractor_rotation[1]
    turn = slow + turn * (fast - slow)
    drift = jnp.concatenate(
        [MARGIN + place * room, speed, 360 * angle[:, None], turn[:, None]], axis=1
    )
    lots = jax.random.uniform(k_kind, (2, n))
    shape = jax.vmap(lambda lot: _pick(lot, visual.distractor_shapes))(lots[0])
    colour = _index(lots[1], jnp.asarray(visual.distractor_colour_count))
    size = jax.random.randint(
        k_size, (n,), visual.distractor_size[0], visual.distractor_size[1] + 1
    )
    kind = jnp.stack([shape, colour, size], axis=1).astype(jnp.int8)
    return drift.astype(jnp.float32), kind


def step(
    look: Look,
    key: jax.Array,
    time: jax.Array,
    latent: LatentParams,
    visual: VisualParams,
    caps: StaticCaps,
) -> Look:
    """Move what moves by one step; ``time`` is the step just taken."""
    changes: dict[str, jax.Array] = {}
    if caps.distractors:
        changes["drift"] = _moved(look.drift, caps)
    if caps.stickies:
        changes |= _jumped(look, key, time, latent, visual, caps)
    if caps.has("switching"):
        seed = noise.stream(key, time, noise.SWITCH)
        lots = noise.uniform(seed, jnp.arange(2))
        changes["background"] = jnp.where(
            lots[0] < visual.switch_frequency, _background(lots[1], visual), look.background
        )
    return look.replace(**changes)  # pyright: ignore[reportAttributeAccessIssue]


def _moved(drift: jax.Array, caps: StaticCaps) -> jax.Array:
    place, speed = drift[:, :2] + drift[:, 2:4], drift[:, 2:4]
    edge = jnp.array([caps.width - MARGIN, caps.height - MARGIN], jnp.float32)
    speed = jnp.where((place <= MARGIN) | (place >= edge), -speed, speed)
    angle = (drift[:, 4:5] + drift[:, 5:6]) % 360.0
    place = jnp.clip(place, MARGIN, edge)
    return jnp.concatenate([place, speed, angle, drift[:, 5:6]], axis=1)


def _jumped(
    look: Look,
    key: jax.Array,
    time: jax.Array,
    latent: LatentParams,
    visual: VisualParams,
    caps: StaticCaps,
) -> dict[str, jax.Array]:
    lots = noise.uniform(noise.stream(key, time, noise.JUMPS), jnp.arange(caps.stickies))
    rests = look.sticky_y >= look.sticky_home
    speed = jnp.where((lots < visual.sticky_jump) & rests, latent.jump_force, look.sticky_v)
    speed = speed + latent.gravity
    y = (look.sticky_y + speed).astype(jnp.int16)
    landed = y >= look.sticky_home
    return {
        "sticky_y": jnp.where(landed, look.sticky_home, y),
        "sticky_v": jnp.where(landed, 0.0, speed),
    }


def frame_of(fps: jax.Array, time: jax.Array, frames: int) -> jax.Array:
    """Which frame of a walk is shown."""
    return (time.astype(jnp.float32) * fps / FPS).astype(jnp.int32) % frames
