"""Random numbers for frames: one integer hash a number, elementwise, so that it fuses with drawing.

A frame with pixel noise needs 49,152 numbers. Threefry costs far more than the rest of the frame,
and noise on a picture needs no cryptographic strength: a counter through the finaliser of Murmur3
(Appleby, public domain) over (episode's visual key, step, purpose, index) is enough. The world's
randomness never comes from here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

#: Purposes: each has its own stream of a frame.
PIXELS, BACKGROUND, JITTER, JUMPS, SWITCH = range(1, 6)


def _mix(h: jax.Array) -> jax.Array:
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h ^ (h >> 16)


def stream(key: jax.Array, time: jax.Array, purpose: int) -> jax.Array:
    """The seed of a frame's numbers for one purpose, uint32."""
    h = _mix(key[..., 0] + jnp.uint32(0x9E3779B9 * purpose & 0xFFFFFFFF))
    h = _mix(h ^ key[..., 1])
    return _mix(h + jnp.asarray(time).astype(jnp.uint32) * jnp.uint32(0x9E3779B1))


def bits(seed: jax.Array, index: jax.Array) -> jax.Array:
    """A uint32 for every index of a stream."""
    return _mix(_mix(seed + index.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)))


def uniform(seed: jax.Array, index: jax.Array) -> jax.Array:
    """float32 in (0, 1), 24 bits, neither end included."""
    return ((bits(seed, index) >> 8).astype(jnp.float32) + 0.5) * jnp.float32(2.0**-24)


def normal(seed: jax.Array, index: jax.Array) -> jax.Array:
    """Standard normal float32."""
    return jnp.float32(2**0.5) * jax.lax.erf_inv(2.0 * uniform(seed, index) - 1.0)
