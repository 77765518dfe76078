"""Frames as files: pictures of an episode, a film of it, and a sheet that shows every axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from armillary.rl.kage import world
from armillary.rl.kage.engine import Kage, KageParams
from armillary.rl.kage.pairs import Pair
from armillary.rl.kage.params import Config, StaticCaps, load_config

#: Pixels between the pictures of a sheet, and rows for a name.
GAP, CAPTION = 6, 14


def frames(config: Config, steps: int, seed: int = 0) -> Iterator[np.ndarray]:
    """The expert's walk, (128, 128, 3) uint8 each."""
    kage = Kage(config.caps)
    params = kage.params(config)

    @jax.jit
    def advance(state, params):
        state, _ = kage.step(state, world.expert(state.world, kage.caps), params)
        return state, kage.render(state, params)

    state = jax.jit(kage.reset)(jax.random.PRNGKey(seed), params)
    yield np.asarray(jax.jit(kage.render)(state, params))
    for _ in range(steps):
        state, frame = advance(state, params)
        yield np.asarray(frame)


def pair_frames(pairs: Sequence[Pair], steps: int, seed: int = 0) -> list[np.ndarray]:
    """Both looks of every pair after the same steps: (128, 256 + gap, 3) uint8 a pair."""
    looks = [load_config(look) for pair in pairs for look in (pair.train, pair.eval)]
    caps = StaticCaps.union([c.caps for c in looks])
    kage = Kage(caps)

    @jax.jit
    def after(key: jax.Array, params: KageParams) -> jax.Array:
        state = kage.reset(key, params)

        def step(state, _):
            state, _ = kage.step(state, world.expert(state.world, caps), params)
            return state, None

        state, _ = jax.lax.scan(step, state, jnp.arange(steps))
        return kage.render(state, params)

    key = jax.random.PRNGKey(seed)
    drawn = [np.asarray(after(key, kage.params(look))) for look in looks]
    gap = np.full((drawn[0].shape[0], GAP, 3), 255, np.uint8)
    return [
        np.concatenate([a, gap, b], axis=1) for a, b in zip(drawn[::2], drawn[1::2], strict=True)
    ]


def sheet(pairs: Sequence[Pair], steps: int = 120, seed: int = 0, columns: int = 4) -> np.ndarray:
    """A sheet of pairs: each training look beside what it is evaluated under, with its id.

    Returns:
        (rows, columns, 3) uint8.
    """
    from PIL import Image, ImageDraw

    drawn = pair_frames(pairs, steps, seed)
    height, width = drawn[0].shape[0] + CAPTION, drawn[0].shape[1]
    lines = -(-len(drawn) // columns)
    canvas = Image.new(
        "RGB",
        (columns * (width + 2 * GAP), lines * (height + 2 * GAP)),
        "white",
    )
    pen = ImageDraw.Draw(canvas)
    for i, (pair, picture) in enumerate(zip(pairs, drawn, strict=True)):
        left = (i % columns) * (width + 2 * GAP) + GAP
        top = (i // columns) * (height + 2 * GAP) + GAP
        pen.text((left, top), pair.id, fill="black")
        canvas.paste(Image.fromarray(picture), (left, top + CAPTION))
    return np.asarray(canvas)


def write_picture(path: Path, image: np.ndarray) -> None:
    """Write a .png, whole or not at all."""
    from PIL import Image

    from armillary.output import atomic_path

    with atomic_path(path) as temporary, temporary.open("wb") as file:
        Image.fromarray(image).save(file, format="PNG")


def write_film(path: Path, images: Sequence[np.ndarray]) -> None:
    """Write a .gif of 30 frames a second, whole or not at all."""
    import imageio.v3 as imageio

    from armillary.output import atomic_path

    data = imageio.imwrite("<bytes>", np.stack(images), extension=".gif", duration=33, loop=0)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
