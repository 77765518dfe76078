"""The environment as pure functions: reset, step, render, and many of them at once.

A step never draws, and drawing never changes a state: who wants frames calls `Kage.render` on what
`Kage.step` returned. `rollout` keeps episodes going over a batch: states that end are replaced
before the one frame of the step is drawn, and new levels are only made in steps where an episode
ends.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from armillary.rl.kage import assets as pictures
from armillary.rl.kage import filters, world
from armillary.rl.kage import look as looks
from armillary.rl.kage.assets import Assets
from armillary.rl.kage.draw import Painter, unpack
from armillary.rl.kage.look import Look
from armillary.rl.kage.params import Config, LatentParams, StaticCaps, VisualParams
from armillary.rl.kage.world import Latent

Mode = Literal["rgb", "index", "gray"]
SIZES = (128, 64, 32)


@struct.dataclass
class KageState:
    """One environment: its world, its look, and the key of everything visual, (2,) uint32."""

    world: Latent
    look: Look
    key: jax.Array

    @property
    def time(self) -> jax.Array:
        """Steps of this episode."""
        return self.world.time


@struct.dataclass
class KageParams:
    """What a program takes as input: the world's rules, the look, and the shared pictures."""

    latent: LatentParams
    visual: VisualParams
    assets: Assets


class Outcome(NamedTuple):
    """What a step gives besides the state."""

    reward: jax.Array
    truncated: jax.Array
    success: jax.Array
    distance: jax.Array


class Kage:
    """Pure functions of one environment; `jax.vmap` them, or use `reset_batch` and `step_batch`.

    Args:
        caps: what the program is compiled for.
        observation_mode: ``rgb`` (H, W, 3), ``gray`` (H, W, 1) or ``index`` (H, W, 1), all uint8.
        size: side of an observation: the frame itself, or means of its blocks of 2 x 2 or 4 x 4
            pixels (for ``index``: the foremost kind of the block).
    """

    def __init__(
        self, caps: StaticCaps, observation_mode: Mode = "rgb", size: int | None = None
    ) -> None:
        if observation_mode not in ("rgb", "index", "gray"):
            raise ValueError(
                f"observation_mode={observation_mode!r}: give 'rgb', 'index' or 'gray'"
            )
        size = caps.height if size is None else size
        if size != caps.height and (size not in SIZES or caps.height % size or caps.width % size):
            raise ValueError(
                f"size={size!r}: give {caps.height}, or one of {SIZES} that divides the frame of "
                f"{caps.height} x {caps.width}"
            )
        self.caps = caps
        self.mode: Mode = observation_mode
        self.factor = caps.height // size

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of an observation."""
        rows, columns = self.caps.height // self.factor, self.caps.width // self.factor
        return rows, columns, 3 if self.mode == "rgb" else 1

    def params(self, config: Config) -> KageParams:
        """The inputs that run a configuration, whose features must be among the program's.

        Raises:
            ValueError: the configuration shows what the program was not compiled for.
        """
        lacking = sorted(config.caps.features - self.caps.features)
        if lacking:
            raise ValueError(
                f"the program draws no {', '.join(lacking)}: build it with "
                "StaticCaps.union([...]) of all its configurations"
            )
        shared = pictures.load(self.caps)
        return KageParams(config.latent, config.visual, shared)

    def reset(self, key: jax.Array, params: KageParams) -> KageState:
        """A new episode. The level's key and the visual key are two children of ``key``."""
        visual_key, level_key = level_and_visual_keys(key)
        latent = world.reset(level_key, params.latent, self.caps)
        look = looks.reset(visual_key, latent.tops, params.visual, self.caps)
        return KageState(latent, look, visual_key)

    def step(
        self, state: KageState, action: jax.Array, params: KageParams
    ) -> tuple[KageState, Outcome]:
        """One step; nothing is drawn."""
        before = state.world
        after = world.step(before, action, params.latent, self.caps)
        outcome = Outcome(
            world.reward(before, action, after, params.latent),
            after.time >= params.latent.episode_length,
            after.x - after.x0 >= params.latent.dist_to_success,
            after.x - after.x0,
        )
        look = looks.step(
            state.look, state.key, after.time, params.latent, params.visual, self.caps
        )
        return KageState(after, look, state.key), outcome

    def render(self, state: KageState, params: KageParams) -> jax.Array:
        """The observation of a state, uint8 of `shape`; the same state gives the same frame."""
        painter = self._painter(state, params)
        if self.mode == "index":
            kinds = painter.kinds()
            return (kinds if self.factor == 1 else self._blocks(kinds).max((1, 3)))[..., None]
        if self._interleaved:
            return painter.interleaved().reshape(self.shape)
        word = painter.packed()
        if self.factor > 1:
            word = self._means(word)
        return _grey(word)[..., None] if self.mode == "gray" else unpack(word)

    def _painter(self, state: KageState, params: KageParams) -> Painter:
        return Painter(
            state.world,
            state.look,
            state.key,
            params.latent,
            params.visual,
            params.assets,
            self.caps,
        )

    @property
    def _interleaved(self) -> bool:
        """Whether frames are drawn as bytes from the start: nothing is done to them afterwards."""
        return self.mode == "rgb" and self.factor == 1 and not filters.active(self.caps)

    def _blocks(self, plane: jax.Array) -> jax.Array:
        f = self.factor
        return plane.reshape(plane.shape[0] // f, f, plane.shape[1] // f, f)

    def _means(self, word: jax.Array) -> jax.Array:
        """Means of blocks, red and blue in one sum: their fields are 16 bits apart."""
        cells = self.factor**2

        def mean(fields: jax.Array) -> jax.Array:
            total = self._blocks(fields).sum(1).sum(-1) + jnp.uint32(0x10001 * (cells // 2))
            return (total // cells) & jnp.uint32(0xFF00FF)

        ends = jnp.uint32(0xFF00FF)
        return mean(word & ends) | ((mean((word >> 8) & jnp.uint32(0xFF)) & 0xFF) << 8)

    # Batches -------------------------------------------------------------------------------------

    def reset_batch(self, keys: jax.Array, params: KageParams) -> KageState:
        """(n, 2) keys to n states."""
        return jax.vmap(self.reset, in_axes=(0, None))(keys, params)

    def step_batch(
        self, states: KageState, actions: jax.Array, params: KageParams
    ) -> tuple[KageState, Outcome]:
        """n states and (n,) actions; episodes that ended stay ended: see `continue_batch`."""
        return jax.vmap(self.step, in_axes=(0, 0, None))(states, actions, params)

    def render_batch(self, states: KageState, params: KageParams) -> jax.Array:
        """(n, *shape) uint8."""
        if not self._interleaved:
            return jax.vmap(self.render, in_axes=(0, None))(states, params)

        def rows() -> jax.Array:
            return jax.vmap(lambda state: self._painter(state, params).interleaved())(states)

        # What reads (H, W, 3) would be fused with drawing, which then runs byte by byte. A
        # condition that always holds, and of which the compiler does not know it, keeps them apart.
        n, height, width = states.world.time.shape[0], self.caps.height, 3 * self.caps.width
        blank = functools.partial(jnp.zeros, (n, height, width), jnp.uint8)
        return jax.lax.cond((states.world.time >= 0).any(), rows, blank).reshape(n, *self.shape)

    def continue_batch(
        self, states: KageState, done: jax.Array, key: jax.Array, params: KageParams
    ) -> KageState:
        """Replace the states whose episode is over by new episodes; cheap where none is."""

        def renew(states: KageState) -> KageState:
            fresh = self.reset_batch(jax.random.split(key, done.shape[0]), params)
            return jax.tree.map(functools.partial(_choose, done), fresh, states)

        return jax.lax.cond(done.any(), renew, lambda s: s, states)


def level_and_visual_keys(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``(visual, level)``: the level's is the one that KAGE-Bench's reset gives its generator."""
    children = jax.random.split(key, 8)
    return children[0], children[1]


def _grey(word: jax.Array) -> jax.Array:
    """Luminance of packed colours, uint8."""
    r, g, b = ((word >> (8 * i)) & jnp.uint32(255) for i in range(3))
    return ((r * 299 + g * 587 + b * 114 + 500) // 1000).astype(jnp.uint8)


def _choose(done: jax.Array, fresh: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(done.reshape(-1, *[1] * (fresh.ndim - 1)), fresh, old)


def state_bytes(caps: StaticCaps) -> int:
    """Bytes of one environment's state, from its shapes; nothing is computed."""
    from armillary.rl.kage.pairs import any_config

    env = Kage(caps)
    config = any_config()
    params = KageParams(config.latent, config.visual, pictures.load(StaticCaps()))
    shapes = jax.eval_shape(env.reset, jax.random.PRNGKey(0), params)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def check_room(n: int, shape: tuple[int, ...], caps: StaticCaps, limit: int | None = None) -> int:
    """Bytes that n environments and their frames take; refuses what cannot fit.

    Args:
        n: environments.
        shape: of one observation.
        caps: what the program is compiled for.
        limit: bytes available; None asks the machine.

    Returns:
        The estimate in bytes: states twice (before and after a step) and one frame each.

    Raises:
        MemoryError: the estimate exceeds the limit.
        ValueError: ``n`` is below 1.
    """
    if n < 1:
        raise ValueError(f"n={n}: at least one environment is needed")
    size = 1
    for side in shape:
        size *= side
    needed = n * (2 * state_bytes(caps) + size)
    available = _available_bytes() if limit is None else limit
    if needed > available:
        raise MemoryError(
            f"n={n} environments need about {needed / 2**30:.1f} GiB of {available / 2**30:.1f} GiB"
            f" that are free: {size} bytes a frame; take at most {available * n // needed}"
        )
    return needed


def _available_bytes() -> int:
    device = jax.devices()[0]
    stats: Any = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    import os

    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
