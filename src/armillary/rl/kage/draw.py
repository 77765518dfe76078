"""Frames: every pixel is computed from its coordinates, in one elementwise pass over a plane.

A frame is a list of layers in painter's order: distractors, ground, characters of the world,
characters that follow the agent, the agent. A layer is a mask and a colour. There are two canvases,
and one body draws on both:

- *interleaved*, (H, 3 W) bytes: red, green and blue of a pixel stand side by side, a row is what a
  row of the frame is in memory, and reshaping it is free. Frames without filters are drawn so.
- *packed*, (H, W) uint32, red in the lowest byte: what filters and smaller frames start from.

What depends on one coordinate alone (the ground's top in a column, a row of a character) is looked
up in a table of bytes first, so that what is left to do for a pixel is a few operations on bytes,
which a CPU does 32 or 64 at a time; arithmetic on three bytes as an innermost axis of its own takes
several times as long. A character or a turned shape is 24 or 32 words of bits, a bit a pixel, so
that nothing is scattered into a frame and no picture is kept in a state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from armillary.rl.kage import filters, noise, shapes
from armillary.rl.kage.assets import COLUMNS, FRAMES, PERIOD, ROWS, Assets
from armillary.rl.kage.look import Look, frame_of
from armillary.rl.kage.params import (
    COLOUR,
    IMAGE,
    NOISE,
    RECTANGLE,
    SHAPE,
    SPRITE,
    LatentParams,
    StaticCaps,
    VisualParams,
)
from armillary.rl.kage.world import Latent

#: Layers of one kind up to this number are compiled one by one, more of them as a loop: a program
#: of forty layers in a row takes minutes to compile.
UNROLLED = 2
#: What an `index` observation says of a pixel.
KINDS = ("background", "distractor", "ground", "character", "follower", "agent")


class Layer(NamedTuple):
    """What covers pixels: where, (H, C) bool; in which colour of the canvas; and of what kind."""

    mask: jax.Array
    colour: jax.Array
    kind: int


class Stack(NamedTuple):
    """So many layers of one kind, the last one on top; ``layer(i)`` gives one of them."""

    count: int
    layer: Callable[[int | jax.Array], Layer]

    def over(self, shown: jax.Array, what: Callable[[Layer], jax.Array]) -> jax.Array:
        """A plane with ``what`` of each layer put where its mask says."""

        def put(i: int | jax.Array, shown: jax.Array) -> jax.Array:
            layer = self.layer(i)
            return jnp.where(layer.mask, what(layer), shown)

        if self.count > UNROLLED:
            return jax.lax.fori_loop(0, self.count, put, shown)
        for i in range(self.count):
            shown = put(i, shown)
        return shown


class Canvas(NamedTuple):
    """The places that are drawn: rows (H,) and columns (C,) of the screen, int32.

    Interleaved, every column occurs three times, and ``channel`` (C,) says for which colour. Where
    pixels are ``merged``, columns are not one after the other.
    """

    ys: jax.Array
    xs: jax.Array
    channel: np.ndarray | None
    merged: bool

    def tint(self, table: jax.Array | np.ndarray, number: jax.Array) -> jax.Array:
        """A colour of a table (K, 3) uint8: one packed word, or (C,) bytes."""
        table = jnp.asarray(table)
        if self.channel is None:
            return pack(table[number])
        return table.reshape(-1)[3 * number.astype(jnp.int32) + self.channel]

    def lit(
        self, words: jax.Array, left: jax.Array, top: jax.Array, width: int = 1, bit: int = 0
    ) -> jax.Array:
        """(H, C) mask of a patch of bits.

        Args:
            words: (R,) uint32, rows of the patch; ``width`` bits a pixel, the first one lowest.
            left: the screen's column of its first pixel.
            top: the screen's row of its first row.
            width: bits a pixel, 1 or 2.
            bit: which of a pixel's bits is asked for.
        """
        rows = words.shape[0]
        shifts = jnp.arange(0, 32, 8, dtype=jnp.uint32)
        parts = (jnp.pad(words, 1)[None, :] >> shifts[:, None]).astype(jnp.uint8)
        row = jnp.clip(self.ys - top, -1, rows) + 1
        found = jnp.zeros((), jnp.uint8)
        for part, chosen in zip(parts, _selectors(width, bit), strict=True):
            found = found | (part[row][:, None] & self._along(chosen, left)[None, :])
        return found != 0

    def _along(self, patch: np.ndarray, left: jax.Array) -> jax.Array:
        """(C,) bytes of a patch of columns whose first one is the screen's column ``left``."""
        span = 1 if self.channel is None else 3
        width = len(self.xs) // span
        wide = np.repeat(np.pad(patch, width), span)
        start = span * jnp.clip(width - left, 0, width + len(patch))
        window = jax.lax.dynamic_slice(jnp.asarray(wide), (start,), (len(self.xs),))
        return window[span * self.xs] if self.merged else window


def _selectors(width: int, bit: int) -> np.ndarray:
    """(4, columns) uint8: which bit of which byte of a word is a pixel's."""
    columns = np.arange(32 // width)
    at = width * columns + bit
    table = np.zeros((4, len(columns)), np.uint8)
    table[at // 8, columns] = 1 << (at % 8)
    return table


class Painter(NamedTuple):
    """All that a frame depends on."""

    world: Latent
    look: Look
    key: jax.Array
    latent: LatentParams
    visual: VisualParams
    assets: Assets
    caps: StaticCaps

    def packed(self) -> jax.Array:
        """The frame, (H, W) uint32 of packed colours, filters and lights applied."""
        word = self._painted(self._canvas(interleaved=False))
        return filters.apply(word, self.look, self.key, self.world.time, self.visual, self.caps)

    def interleaved(self) -> jax.Array:
        """The frame, (H, 3 W) uint8; filters and lights do not apply."""
        return self._painted(self._canvas(interleaved=True))

    def kinds(self) -> jax.Array:
        """What each pixel shows, (H, W) uint8: an index into `KINDS`; no filter applies."""
        kind = jnp.zeros((self.caps.height, self.caps.width), jnp.uint8)
        for stack in self._stacks(self._canvas(interleaved=False)):
            kind = stack.over(kind, lambda layer: jnp.uint8(layer.kind))
        return kind

    def _painted(self, canvas: Canvas) -> jax.Array:
        shown = self._background(canvas)
        for stack in self._stacks(canvas):
            shown = stack.over(shown, lambda layer: layer.colour)
        return shown

    # What covers a pixel ------------------------------------------------------------------------

    def _canvas(self, interleaved: bool) -> Canvas:
        ys, xs = jnp.arange(self.caps.height), jnp.arange(self.caps.width)
        merged = self.caps.has("pixelate") and not filters.pixelates_late(self.caps)
        if merged:
            # Merged pixels show one sample: choosing where to draw costs nothing.
            ys = filters.coarse(self.caps.height, self.visual.pixelate)
            xs = filters.coarse(self.caps.width, self.visual.pixelate)
        if not interleaved:
            return Canvas(ys, xs, None, merged)
        column, channel = np.divmod(np.arange(3 * self.caps.width), 3)
        return Canvas(ys, xs[column], channel, merged)

    def _stacks(self, canvas: Canvas) -> Iterator[Stack]:
        look, caps = self.look, self.caps
        yield self._distractors(canvas)
        ground = canvas.tint(self.visual.ground_colours, look.ground)
        yield Stack(1, lambda i: Layer(self._ground(canvas), ground, 2))
        camera = jnp.round(self.world.camera_x).astype(jnp.int32)
        walking = frame_of(self.visual.npc_fps, self.world.time, FRAMES)

        def npc(i: int | jax.Array) -> Layer:
            x = look.npc_x[i].astype(jnp.int32)
            place = x - camera, look.npc_y[i]
            return self._character(canvas, look.npc_skin[i], *place, walking, 3, x > 0)

        yield Stack(caps.npcs, npc)
        agent = self._agent_column()

        def sticky(i: int | jax.Array) -> Layer:
            skin, place = look.sticky_skin[i], (agent + look.sticky_x[i], look.sticky_y[i])
            return self._character(canvas, skin, *place, walking, 4, skin >= 0)

        yield Stack(caps.stickies, sticky)
        for layer in self._agent(canvas):
            yield Stack(1, lambda i, layer=layer: layer)

    def _agent_column(self) -> jax.Array:
        return jnp.round(self.world.x - self.world.camera_x).astype(jnp.int32)

    def _ground(self, canvas: Canvas) -> jax.Array:
        """The band of each column, with a wall where its segment begins at another height.

        Band and wall of a column are one interval of rows, which only its segment decides and
        whether it is the first of it.
        """
        row = jnp.uint8 if self.caps.height < 256 else jnp.uint16
        top = self.world.tops.astype(jnp.int32)
        previous = jnp.concatenate([top[:1], top[:-1]])
        below = top + self.latent.ground_thickness
        first = jnp.stack([top, jnp.minimum(top, previous)], axis=1)
        end = jnp.stack([below, jnp.maximum(below, previous)], axis=1)
        first, end = (jnp.clip(edge, 0, jnp.iinfo(row).max) for edge in (first, end))
        camera = jnp.round(self.world.camera_x).astype(jnp.int32)
        column = jnp.clip(canvas.xs + camera, 0, self.caps.length - 1)
        segment, within = column // self.caps.run_width, column % self.caps.run_width
        at = 2 * segment + (within == 0)
        start = first.astype(row).reshape(-1)[at]
        height = (end - first).astype(row).reshape(-1)[at]
        return (canvas.ys.astype(row)[:, None] - start) < height

    def _distractors(self, canvas: Canvas) -> Stack:
        kind, drift = self.look.drift_kind.astype(jnp.int32), self.look.drift
        radius = kind[:, 2] / 2
        # KAGE-Bench draws an ellipse of 0.5 x 0.3 of the size.
        turned = jax.vmap(functools.partial(shapes.patch, xp=jnp))
        words = turned(kind[:, 0], radius, 0.6 * radius, drift[:, 4])

        def distractor(i: int | jax.Array) -> Layer:
            colour = canvas.tint(self.visual.distractor_colours, kind[i, 1])
            there = i < self.visual.distractor_count
            return Layer(_centred(canvas, words[i], drift[i, 0], drift[i, 1], there), colour, 1)

        return Stack(self.caps.distractors, distractor)

    def _character(
        self,
        canvas: Canvas,
        skin: jax.Array,
        x: jax.Array,
        y: jax.Array,
        frame: jax.Array,
        kind: int,
        there: jax.Array,
    ) -> Layer:
        """A character whose box is centred at (x, y) of the screen."""
        skin = jnp.maximum(skin, 0).astype(jnp.int32)
        words = jnp.where(there, jnp.asarray(self.assets.characters)[skin, frame], 0)
        place = x - COLUMNS // 2, y.astype(jnp.int32) + self.caps.half_height - ROWS
        low, high = (canvas.lit(words, *place, 2, bit) for bit in (0, 1))
        table = jnp.asarray(self.assets.colours).reshape(-1, 3)
        one, two, both = (canvas.tint(table, 3 * skin + code) for code in range(3))
        return Layer(low | high, jnp.where(low, jnp.where(high, both, one), two), kind)

    def _agent(self, canvas: Canvas) -> Iterator[Layer]:
        """The agent, whose box is drawn one pixel lower than it collides."""
        x, y = self._agent_column(), jnp.round(self.world.y + 1).astype(jnp.int32)
        kind = self.visual.agent
        if self.caps.has("agent_shape", "agent_rectangle"):
            last = shapes.N_TABLES - 1
            shape = jnp.where(kind == RECTANGLE, last, self.look.shape.astype(jnp.int32))
            words = jnp.asarray(self.assets.shapes)[shape]
            if self.caps.has("agent_rotates"):
                radius = float(min(self.caps.half_width, self.caps.half_height))
                angle = self.world.time * self.visual.rotation_speed % 360.0
                turned = shapes.patch(shape, radius, float(self.caps.half_height), angle, jnp)
                words = jnp.where(kind == SHAPE, turned, words)
            named = jnp.asarray(self.visual.shape_colours)
            table = jnp.concatenate([named, jnp.asarray(self.visual.rectangle)[None]])
            number = jnp.where(kind == RECTANGLE, len(named), self.look.colour)
            yield Layer(
                _centred(canvas, words, x, y, kind != SPRITE), canvas.tint(table, number), 5
            )
        if self.caps.has("agent_sprite"):
            walks = (jnp.abs(self.world.vx) > 0.1) & self.visual.animate
            walking = frame_of(self.visual.agent_fps, self.world.time, FRAMES)
            frame = jnp.where(walks, walking, self.visual.idle_frame % FRAMES)
            yield self._character(canvas, self.look.skin, x, y, frame, 5, kind == SPRITE)

    # The background ------------------------------------------------------------------------------

    def _background(self, canvas: Canvas) -> jax.Array:
        """(H, C) uint32 or uint8."""
        mode, packed = self.visual.background, canvas.channel is None
        shape = (self.caps.height, len(canvas.xs))
        shown = jnp.zeros(shape, jnp.uint32 if packed else jnp.uint8)
        if self.caps.has("background_color"):
            last = len(self.visual.fields) - 1
            colour = canvas.tint(self.visual.fields, jnp.clip(self.look.background, 0, last))
            shown = jnp.where(mode == COLOUR, colour, shown)
        if self.caps.has("background_noise"):
            # White noise of the episode: the same at every step.
            seed = noise.stream(self.key, jnp.uint32(0), noise.BACKGROUND)
            place = canvas.ys[:, None] * self.caps.width + canvas.xs
            bits = noise.bits(seed, place)
            if canvas.channel is not None:
                bits = (bits >> (8 * canvas.channel).astype(np.uint32)).astype(jnp.uint8)
            shown = jnp.where(mode == NOISE, bits, shown)
        if self.caps.has("background_image"):
            words = self._picture(canvas)
            shown = jnp.where(
                mode == IMAGE, words if packed else unpack(words).reshape(shape), shown
            )
        return shown

    def _picture(self, canvas: Canvas) -> jax.Array:
        """A window of the episode's picture, which moves slower than the camera: (H, W) uint32."""
        xs = canvas.xs if canvas.channel is None else canvas.xs[::3]
        offset = jnp.round(self.world.camera_x * self.visual.parallax).astype(jnp.int32)
        number = self.look.background.astype(jnp.int32)
        pictures = jnp.asarray(self.assets.backgrounds)
        if self.caps.width > PERIOD:
            turned, last = (xs + offset) % PERIOD, PERIOD - 1
            columns = jnp.where(self.visual.tile, turned, jnp.clip(xs + offset, 0, last))
            return pictures[number][canvas.ys][:, columns]
        first = jnp.where(self.visual.tile, offset % PERIOD, jnp.clip(offset, 0, PERIOD))
        window = jax.lax.dynamic_slice(
            pictures, (number, 0, first), (1, self.caps.height, self.caps.width)
        )[0]
        return window[canvas.ys][:, xs] if self.caps.has("pixelate") else window


def _centred(
    canvas: Canvas, words: jax.Array, x: jax.Array, y: jax.Array, there: jax.Array
) -> jax.Array:
    """(H, C) mask of a patch of a shape with its centre at (x, y) of the screen."""
    left, top = (jnp.round(v).astype(jnp.int32) - shapes.CENTRE for v in (x, y))
    return canvas.lit(jnp.where(there, jnp.asarray(words), 0), left, top)


def pack(colour: jax.Array) -> jax.Array:
    """Colours (…, 3) as words, red lowest."""
    parts = jnp.asarray(colour).astype(jnp.uint32)
    return parts[..., 0] | (parts[..., 1] << 8) | (parts[..., 2] << 16)


def unpack(word: jax.Array) -> jax.Array:
    """Words (H, W) as bytes (H, W, 3)."""
    return jax.lax.bitcast_convert_type(word, jnp.uint8)[..., :3]
