"""The rivals: the authors' own environment from a checkout, and other engines that give frames.

The checkout is run as it stands, by path; nothing of it is copied. `frames` functions return
compiled blocks of steps that consume every frame: each is written into a buffer that is carried, so
that no compiler can drop one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

#: Runs a block of steps, waits for its end, and gives a checksum.
Block = Callable[[], float]


@contextlib.contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    """The checkout's configurations name its pictures relative to its root."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def original_env(checkout: Path, config: Path | None = None) -> Any:
    """KAGE-Bench's environment.

    Args:
        checkout: root of its repository.
        config: one of its YAML files; default: its plainest look, a teal circle on black.

    Raises:
        FileNotFoundError: there is no such checkout.
    """
    source = checkout / "src"
    if not (source / "kage_bench" / "__init__.py").is_file():
        raise FileNotFoundError(f"no checkout of kage-bench at {str(checkout)!r}")
    if str(source) not in sys.path:
        sys.path.insert(0, str(source))
    _plain_termcolor()
    from kage_bench import KAGE_Env, load_config_from_yaml  # pyright: ignore

    with _standing_in(checkout):
        if config is None:
            config = checkout / "benchmark/kage_bench_configs/background/config_1_train.yaml"
        return KAGE_Env(load_config_from_yaml(str(config)))


def _plain_termcolor() -> None:
    """The original colours its errors with termcolor: plain text does where it is absent."""
    import importlib.util
    import types

    if "termcolor" not in sys.modules and importlib.util.find_spec("termcolor") is None:
        plain: Any = types.ModuleType("termcolor")
        plain.colored = lambda text, *_, **__: text
        plain.cprint = lambda text, *_, **__: print(text)
        sys.modules["termcolor"] = plain


def original_block(env: Any, n: int, steps: int, frames: bool) -> Block:
    """Steps of the original; without ``frames`` its observations are dropped, as in its script."""
    import jax
    import jax.numpy as jnp

    from armillary.rl.kage.throughput import byte_of

    def body(carry: Any, key: Any) -> Any:
        state, shown, seen = carry
        actions = (jax.random.randint(key, (n,), 0, 8) + seen) % 8
        obs, *_, info = jax.vmap(env.step)(state, actions)
        return (info["state"], *((obs, byte_of(obs)) if frames else (shown, seen))), None

    @jax.jit
    def block(state: Any, key: Any) -> Any:
        blank = jnp.zeros((n, 128, 128, 3) if frames else (1,), jnp.uint8)
        carry = (state, blank, jnp.zeros(n, jnp.int32))
        (state, shown, _), _ = jax.lax.scan(body, carry, jax.random.split(key, steps))
        return state.x.sum(), shown

    _, info = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), n))
    state = info["state"]

    def run() -> float:
        total, shown = block(state, jax.random.PRNGKey(1))
        return float(total) + float(np.asarray(shown)[-1].sum())

    return run


def original_state_bytes(env: Any) -> int:
    """Bytes of the original's state, from its shapes."""
    import jax

    _, info = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(info["state"]))


def craftax_block(n: int, steps: int) -> tuple[Block, int]:
    """Craftax-Classic's frames of 63 x 63 floats, and the bytes of one (as float32 it writes)."""
    import jax
    import jax.numpy as jnp
    from craftax.craftax_env import make_craftax_env_from_name

    env = make_craftax_env_from_name("Craftax-Classic-Pixels-v1", auto_reset=False)
    params = env.default_params
    obs, state = jax.jit(jax.vmap(env.reset, in_axes=(0, None)))(
        jax.random.split(jax.random.PRNGKey(0), n), params
    )

    def body(carry: Any, key: Any) -> Any:
        state, _, seen = carry
        k_action, k_step = jax.random.split(key)
        actions = (jax.random.randint(k_action, (n,), 0, env.num_actions) + seen) % env.num_actions
        obs, state, *_ = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
            jax.random.split(k_step, n), state, actions, params
        )
        return (state, obs, (obs[:, 30, 30, 0] * 255).astype(jnp.int32)), None

    @jax.jit
    def block(state: Any, key: Any) -> Any:
        carry = (state, jnp.zeros_like(obs), jnp.zeros(n, jnp.int32))
        return jax.lax.scan(body, carry, jax.random.split(key, steps))[0][1]

    def run() -> float:
        return float(block(state, jax.random.PRNGKey(1)).sum())

    return run, int(obs[0].size * obs.dtype.itemsize)


def envpool_block(n: int, steps: int, threads: int) -> tuple[Block, int]:
    """EnvPool's Atari: grey frames of 84 x 84, the newest of four; bytes of that one."""
    import envpool

    env = envpool.make("Breakout-v5", env_type="gymnasium", num_envs=n, num_threads=threads)
    env.reset()
    actions = np.random.default_rng(0).integers(0, env.action_space.n, (steps, n))
    folded = np.zeros((n, 84, 84), np.uint8)

    def run() -> float:
        for row in actions:
            obs = env.step(row)[0]
            np.bitwise_xor(folded, obs[:, -1], out=folded)
        return float(folded[:1].sum())

    return run, 84 * 84
