"""A small pixel policy, and how it is kept: safetensors with its shape and observation beside it.

Shapes: n frames, (H, W, C) an observation, 8 actions.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from armillary.rl.kage.world import N_ACTIONS


class PixelNet(nn.Module):
    """Two or three convolutions, one hidden layer, logits of 8 actions and a value.

    Attributes:
        channels: of each convolution; three make the Nature-CNN (strides 4, 2, 1).
        hidden: units of the hidden layer.
    """

    channels: tuple[int, ...] = (8, 16)
    hidden: int = 64

    @nn.compact
    def __call__(self, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(n, H, W, C) in [0, 1] to (n, 8) logits and (n,) values."""
        kernels, strides = ((8, 4, 3), (4, 2, 1)) if len(self.channels) == 3 else ((4, 4), (2, 2))
        x = obs - 0.5
        for channels, kernel, stride in zip(self.channels, kernels, strides, strict=True):
            x = nn.relu(nn.Dense(channels)(patches(x, kernel, stride)))
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(len(x), -1)))
        logits = nn.Dense(N_ACTIONS, kernel_init=nn.initializers.orthogonal(0.01))(x)
        value = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(x)
        return logits, value[:, 0]


def patches(x: jax.Array, kernel: int, stride: int) -> jax.Array:
    """What each place of a convolution without padding sees; a dense layer then makes it one.

    XLA's convolutions are slow inside loops on a CPU; a product of matrices is not. The kernel is a
    multiple of the stride, so that blocks of ``stride`` pixels are moved whole.

    Args:
        x: (n, H, W, C).
        kernel: its side.
        stride: pixels between places.

    Returns:
        (n, h, w, kernel * kernel * C).
    """
    n, rows, columns, channels = x.shape
    out = [(side - kernel) // stride + 1 for side in (rows, columns)]
    pad = [(0, -side % stride) for side in (rows, columns)]
    x = jnp.pad(x, ((0, 0), *pad, (0, 0)))
    _, rows, columns, _ = x.shape
    x = x.reshape(n, rows // stride, stride, columns // stride, stride, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(n, rows // stride, columns // stride, -1)
    moved = range(kernel // stride)
    seen = [x[:, i : i + out[0], j : j + out[1]] for i in moved for j in moved]
    return jnp.concatenate(seen, axis=-1)


@dataclasses.dataclass(frozen=True)
class Policy:
    """A network with its weights, and the observation that it reads.

    Attributes:
        net: the network.
        weights: its parameters.
        size: side of its frames.
    """

    net: PixelNet
    weights: Any
    size: int = 32

    def logits(self, obs: jax.Array) -> jax.Array:
        """(n, size, size, 3) uint8 to (n, 8)."""
        return logits(self.net, self.weights, obs)

    def __call__(self, obs: jax.Array, key: jax.Array) -> jax.Array:
        """Sampled actions, (n,) int32."""
        return jax.random.categorical(key, self.logits(obs)).astype(jnp.int32)

    def save(self, path: str | Path) -> None:
        """Write weights and shape to a .safetensors file."""
        from safetensors.numpy import save

        from armillary.output import atomic_path

        flat = {
            ".".join(str(k.key) for k in keys): np.asarray(leaf)
            for keys, leaf in jax.tree_util.tree_flatten_with_path(self.weights)[0]
        }
        about = {"channels": list(self.net.channels), "hidden": self.net.hidden, "size": self.size}
        with atomic_path(Path(path)) as temporary:
            temporary.write_bytes(save(flat, metadata={"kage": json.dumps(about)}))


def logits(net: PixelNet, weights: Any, obs: jax.Array) -> jax.Array:
    """(n, H, W, C) uint8 to (n, 8)."""
    return net.apply(weights, obs.astype(jnp.float32) / 255.0)[0]  # pyright: ignore


def start(net: PixelNet, size: int, key: jax.Array) -> Any:
    """Fresh weights."""
    return net.init(key, jnp.zeros((1, size, size, 3)))


def load(path: str | Path) -> Policy:
    """A policy that `Policy.save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no policy of this kind.
    """
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"no policy file {str(path)!r}")
    try:
        with safe_open(str(path), framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("kage", "null"))
            flat = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{str(path)!r} is no safetensors file: {error}") from error
    if not isinstance(about, dict):
        raise ValueError(f"{str(path)!r} holds no policy of `armillary kage train`")
    weights: dict[str, Any] = {}
    for name, leaf in flat.items():
        *parents, last = name.split(".")
        at = weights
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = jnp.asarray(leaf)
    net = PixelNet(tuple(about["channels"]), int(about["hidden"]))
    return Policy(net, weights, int(about["size"]))
