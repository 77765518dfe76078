"""Frames: every pixel is computed from its coordinates, in one elementwise pass over a plane.

A frame is a list of layers in painter's order: distractors, ground, characters of the world,
characters that follow the agent, the agent. A layer is a mask and a colour. Colours are *packed*:
one uint32 a pixel, red in the lowest byte, so that drawing is arithmetic on one plane of whole
numbers, which a CPU does 16 pixels at a time; only the last line of `Kage.render` turns it into
bytes with channels last. (Three bytes as the innermost axis from the start take several times as
long.) A character or a turned shape is 24 or 32 words of bits: a row is looked up by y, a bit of
it by x, so that nothing is scattered into a frame and no picture is kept in a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

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

#: What an `index` observation says of a pixel.
KINDS = ("background", "distractor", "ground", "character", "follower", "agent")


class Layer(NamedTuple):
    """What covers pixels: where, (H, W) bool; in which packed colour; and of what kind."""

    mask: jax.Array
    colour: jax.Array
    kind: int


class Grid(NamedTuple):
    """The pixels that are drawn: rows (H,) and columns (W,) of the screen, int32."""

    ys: jax.Array
    xs: jax.Array


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
        grid = self._grid()
        word = self._background(grid)
        for layer in self._layers(grid):
            word = jnp.where(layer.mask, layer.colour, word)
        return filters.apply(word, self.look, self.key, self.world.time, self.visual, self.caps)

    def kinds(self) -> jax.Array:
        """What each pixel shows, (H, W) uint8: an index into `KINDS`; no filter applies."""
        kind = jnp.zeros((self.caps.height, self.caps.width), jnp.uint8)
        for layer in self._layers(self._grid()):
            kind = jnp.where(layer.mask, jnp.uint8(layer.kind), kind)
        return kind

    # What covers a pixel ------------------------------------------------------------------------

    def _grid(self) -> Grid:
        ys, xs = jnp.arange(self.caps.height), jnp.arange(self.caps.width)
        if self.caps.has("pixelate") and not filters.pixelates_late(self.caps):
            # Merged pixels show one sample: choosing where to draw costs nothing.
            ys = filters.coarse(self.caps.height, self.visual.pixelate)
            xs = filters.coarse(self.caps.width, self.visual.pixelate)
        return Grid(ys, xs)

    def _layers(self, grid: Grid) -> Iterator[Layer]:
        look, caps = self.look, self.caps
        for i in range(caps.distractors):
            named = jnp.asarray(self.visual.distractor_colours)
            colour = pack(named[look.drift_kind[i, 1].astype(jnp.int32)])
            yield Layer(self._distractor(grid, i), colour, 1)
        ground = jnp.asarray(self.visual.ground_colours)[look.ground.astype(jnp.int32)]
        yield Layer(self._ground(grid), pack(ground), 2)
        camera = jnp.round(self.world.camera_x).astype(jnp.int32)
        walking = frame_of(self.visual.npc_fps, self.world.time, FRAMES)
        for i in range(caps.npcs):
            x = look.npc_x[i].astype(jnp.int32)
            drawn = self._character(grid, look.npc_skin[i], x - camera, look.npc_y[i], walking, 3)
            yield drawn._replace(mask=drawn.mask & (x > 0))
        agent = self._agent_column()
        for i in range(caps.stickies):
            skin, y = look.sticky_skin[i], look.sticky_y[i]
            drawn = self._character(grid, skin, agent + look.sticky_x[i], y, walking, 4)
            yield drawn._replace(mask=drawn.mask & (skin >= 0))
        yield from self._agent(grid)

    def _agent_column(self) -> jax.Array:
        return jnp.round(self.world.x - self.world.camera_x).astype(jnp.int32)

    def _ground(self, grid: Grid) -> jax.Array:
        """The band of each column, and a wall where its segment begins at another height."""
        camera = jnp.round(self.world.camera_x).astype(jnp.int32)
        column = jnp.clip(grid.xs + camera, 0, self.caps.length - 1)
        top = self.world.tops[column // self.caps.run_width].astype(jnp.int32)
        before = jnp.maximum(column - 1, 0) // self.caps.run_width
        previous = self.world.tops[before].astype(jnp.int32)
        y = grid.ys[:, None]
        band = (y >= top) & (y < top + self.latent.ground_thickness)
        wall = (y >= jnp.minimum(top, previous)) & (y < jnp.maximum(top, previous))
        return band | wall

    def _distractor(self, grid: Grid, i: int) -> jax.Array:
        shape, _, size = (self.look.drift_kind[i, j].astype(jnp.int32) for j in range(3))
        x, y, angle = (self.look.drift[i, j] for j in (0, 1, 4))
        radius = size / 2
        # KAGE-Bench draws an ellipse of 0.5 x 0.3 of the size.
        words = shapes.patch(shape, radius, 0.6 * radius, angle, jnp)
        there = i < self.visual.distractor_count
        return _bit(grid, words, x, y) & there

    def _character(
        self,
        grid: Grid,
        skin: jax.Array,
        x: jax.Array,
        y: jax.Array,
        frame: jax.Array,
        kind: int,
    ) -> Layer:
        """A character whose box is centred at (x, y) of the screen."""
        skin = jnp.maximum(skin, 0).astype(jnp.int32)
        words = jnp.asarray(self.assets.characters)[skin, frame]
        colours = pack(jnp.asarray(self.assets.colours)[skin])
        row = grid.ys - (y.astype(jnp.int32) + self.caps.half_height - ROWS)
        column = grid.xs - (x - COLUMNS // 2)
        word = jnp.where((row >= 0) & (row < ROWS), words[jnp.clip(row, 0, ROWS - 1)], 0)
        shift = jnp.clip(2 * column, 0, 31).astype(jnp.uint32)
        code = (word.astype(jnp.uint32)[:, None] >> shift[None, :]) & jnp.uint32(3)
        within = (column >= 0) & (column < COLUMNS)
        colour = jnp.where(code == 1, colours[0], jnp.where(code == 2, colours[1], colours[2]))
        return Layer((code > 0) & within, colour, kind)

    def _agent(self, grid: Grid) -> Iterator[Layer]:
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
            named = jnp.asarray(self.visual.shape_colours)[self.look.colour.astype(jnp.int32)]
            colour = jnp.where(kind == RECTANGLE, self.visual.rectangle, named)
            yield Layer(_bit(grid, words, x, y) & (kind != SPRITE), pack(colour), 5)
        if self.caps.has("agent_sprite"):
            walks = (jnp.abs(self.world.vx) > 0.1) & self.visual.animate
            walking = frame_of(self.visual.agent_fps, self.world.time, FRAMES)
            frame = jnp.where(walks, walking, self.visual.idle_frame % FRAMES)
            drawn = self._character(grid, self.look.skin, x, y, frame, 5)
            yield drawn._replace(mask=drawn.mask & (kind == SPRITE))

    # The background ------------------------------------------------------------------------------

    def _background(self, grid: Grid) -> jax.Array:
        """(H, W) uint32."""
        mode = self.visual.background
        shown = jnp.zeros((self.caps.height, self.caps.width), jnp.uint32)
        if self.caps.has("background_color"):
            named = jnp.asarray(self.visual.fields)
            colour = named[jnp.clip(self.look.background, 0, len(named) - 1).astype(jnp.int32)]
            shown = jnp.where(mode == COLOUR, pack(colour), shown)
        if self.caps.has("background_noise"):
            # White noise of the episode: the same at every step.
            seed = noise.stream(self.key, jnp.uint32(0), noise.BACKGROUND)
            place = grid.ys[:, None] * self.caps.width + grid.xs
            shown = jnp.where(mode == NOISE, noise.bits(seed, place), shown)
        if self.caps.has("background_image"):
            shown = jnp.where(mode == IMAGE, self._picture(grid), shown)
        return shown

    def _picture(self, grid: Grid) -> jax.Array:
        """A window of the episode's picture, which moves slower than the camera."""
        offset = jnp.round(self.world.camera_x * self.visual.parallax).astype(jnp.int32)
        number = self.look.background.astype(jnp.int32)
        pictures = jnp.asarray(self.assets.backgrounds)
        if self.caps.width > PERIOD:
            turned, last = (grid.xs + offset) % PERIOD, PERIOD - 1
            columns = jnp.where(self.visual.tile, turned, jnp.clip(grid.xs + offset, 0, last))
            return pictures[number][grid.ys][:, columns]
        first = jnp.where(self.visual.tile, offset % PERIOD, jnp.clip(offset, 0, PERIOD))
        window = jax.lax.dynamic_slice(
            pictures, (number, 0, first), (1, self.caps.height, self.caps.width)
        )[0]
        return window[grid.ys][:, grid.xs] if self.caps.has("pixelate") else window


def _bit(grid: Grid, words: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """(H, W) mask of a patch of bits with its centre at (x, y) of the screen."""
    row = grid.ys - (jnp.round(y).astype(jnp.int32) - shapes.CENTRE)
    column = grid.xs - (jnp.round(x).astype(jnp.int32) - shapes.CENTRE)
    last = shapes.PATCH - 1
    word = jnp.where((row >= 0) & (row <= last), jnp.asarray(words)[jnp.clip(row, 0, last)], 0)
    shift = jnp.clip(column, 0, last).astype(jnp.uint32)
    bit = (word.astype(jnp.uint32)[:, None] >> shift[None, :]) & jnp.uint32(1)
    return (bit == 1) & (column >= 0) & (column <= last)


def pack(colour: jax.Array) -> jax.Array:
    """Colours (…, 3) as words, red lowest."""
    parts = jnp.asarray(colour).astype(jnp.uint32)
    return parts[..., 0] | (parts[..., 1] << 8) | (parts[..., 2] << 16)


def unpack(word: jax.Array) -> jax.Array:
    """Words (H, W) as bytes (H, W, 3)."""
    return jax.lax.bitcast_convert_type(word, jnp.uint8)[..., :3]
