"""Steps a second, with frames that are read or without frames: never with frames that are dropped.

XLA removes the drawing from a loop whose observations nobody uses. In a block here every frame is
written whole into a buffer that the loop carries, as it would be for a learner; a byte of it
decides the next action; and the block gives the buffer back.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from armillary.rl.kage.engine import Kage, KageParams, check_room
from armillary.rl.kage.params import Config

Mode = Literal["physics", "rgb", "index"]
#: Runs its steps, waits for their end, and gives a checksum of what they gave.
Block = Callable[[], float]


def block(config: Config, n: int, steps: int, mode: Mode, size: int | None = None) -> Block:
    """A compiled block of random steps.

    Args:
        config: what is run.
        n: environments.
        steps: of each.
        mode: ``rgb`` and ``index`` consume every observation; ``physics`` draws none.
        size: side of an observation.

    Raises:
        MemoryError: so many environments do not fit; with the estimate.
        ValueError: the mode is unknown.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode={mode!r}: give one of {', '.join(get_args(Mode))}")
    kage = Kage(config.caps, "rgb" if mode == "physics" else mode, size)
    check_room(n, (2, *kage.shape), config.caps)
    params = kage.params(config)
    states = jax.jit(kage.reset_batch)(jax.random.split(jax.random.PRNGKey(0), n), params)
    shape = (1,) if mode == "physics" else (n, *kage.shape)

    @jax.jit
    def run(states: Any, key: jax.Array, params: KageParams) -> Any:
        def step(carry: Any, key: jax.Array) -> Any:
            states, frames, seen = carry
            actions = jax.random.randint(key, (n,), 0, 8)
            if mode != "physics":
                actions = (actions + seen) % 8
            states, _ = kage.step_batch(states, actions, params)
            if mode != "physics":
                frames = kage.render_batch(states, params)
                seen = byte_of(frames)
            return (states, frames, seen), None

        carry = (states, jnp.zeros(shape, jnp.uint8), jnp.zeros(n, jnp.int32))
        (states, frames, _), _ = jax.lax.scan(step, carry, jax.random.split(key, steps))
        return states.world.x.sum(), frames

    def measured() -> float:
        total, frames = run(states, jax.random.PRNGKey(1), params)
        return float(total) + float(np.asarray(frames)[-1].sum())

    return measured


def byte_of(frames: jax.Array) -> jax.Array:
    """The byte in the middle of each frame (n, H, W, C) uint8, as (n,) int32."""
    return frames[:, frames.shape[1] // 2, frames.shape[2] // 2, 0].astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Speed:
    """What was measured: steps a second, bytes of frames a second, and seconds of compilation."""

    mode: str
    n: int
    steps_per_second: float
    bytes_per_second: float
    compile_seconds: float


def measure(config: Config, n: int, mode: Mode, seconds: float = 1.0) -> Speed:
    """Run blocks for about so many seconds, compilation apart; the median block counts."""
    steps = max(2, 2048 // n)
    run = block(config, n, steps, mode)
    start = time.perf_counter()
    run()
    compiled = time.perf_counter() - start
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    rate = n * steps / float(np.median(times))
    frame = {"physics": 0, "rgb": 3, "index": 1}[mode] * config.caps.height * config.caps.width
    return Speed(mode, n, rate, rate * frame, max(0.0, compiled - float(np.median(times))))
