"""Augmentations of frames for training: random shift, colour jitter, random convolution.

Sources: Laskin et al. 2020 (random shift and jitter), Lee et al. 2020 (random convolution). Frames
are (n, H, W, 3) float32 in [0, 1]; each frame gets its own draw.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

Augment = Callable[[jax.Array, jax.Array], jax.Array]


def shift(key: jax.Array, frames: jax.Array, pad: int = 2) -> jax.Array:
    """Move each frame by up to ``pad`` pixels, edges repeated."""
    n, rows, columns, channels = frames.shape
    padded = jnp.pad(frames, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")
    corner = jax.random.randint(key, (n, 2), 0, 2 * pad + 1)

    def crop(frame: jax.Array, at: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice(frame, (at[0], at[1], 0), (rows, columns, channels))

    return jax.vmap(crop)(padded, corner)


def jitter(key: jax.Array, frames: jax.Array) -> jax.Array:
    """Brightness, contrast and a random mix of the colour channels."""
    k_bright, k_contrast, k_mix = jax.random.split(key, 3)
    n = len(frames)
    bright = jax.random.uniform(k_bright, (n, 1, 1, 1), minval=-0.4, maxval=0.4)
    contrast = jnp.exp(jax.random.uniform(k_contrast, (n, 1, 1, 1), minval=-1.0, maxval=1.0))
    mix = jnp.eye(3) + 0.5 * jax.random.normal(k_mix, (n, 3, 3))
    mix = mix / jnp.abs(mix).sum(-1, keepdims=True)
    mixed = jnp.einsum("nhwc,ndc->nhwd", frames, mix)
    return jnp.clip((mixed - 0.5) * contrast + 0.5 + bright, 0.0, 1.0)


def convolution(key: jax.Array, frames: jax.Array) -> jax.Array:
    """A random 3 x 3 convolution of the colours, for half of the frames."""
    k_half, k_weights = jax.random.split(key)
    n = len(frames)
    weights = jax.random.normal(k_weights, (n, 3, 3, 3, 3)) / 27**0.5

    def one(frame: jax.Array, kernel: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            frame[None], kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )[0]

    mixed = jax.nn.sigmoid(4.0 * jax.vmap(one)(frames - 0.5, weights))
    return jnp.where(jax.random.bernoulli(k_half, 0.5, (n, 1, 1, 1)), mixed, frames)


def jitter_and_convolution(key: jax.Array, frames: jax.Array) -> jax.Array:
    """Colour jitter, then a random convolution."""
    first, second = jax.random.split(key)
    return convolution(second, jitter(first, frames))


AUGMENTATIONS: dict[str, Augment] = {
    "none": lambda key, frames: frames,
    "shift": shift,
    "jitter": jitter,
    "convolution": convolution,
    "jitter+convolution": jitter_and_convolution,
}
