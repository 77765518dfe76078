"""Spiking networks without and with normalisation, deep ones above all.

Every model takes images or rows (batch, ...) and repeats them over T steps (direct coding), or
sequences (T, batch, ...) with ``coded=True``, and answers with logits averaged over time. The same
builder makes plain-torch networks (fused `LIF`) and SpikingJelly ones (`backend="spikingjelly"`).
Layout: (T, batch, channels, ...).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from armillary.errors import require
from armillary.neuro.spikeinit.neurons import LIF, AdaptiveLIF

Backend = Literal["torch", "spikingjelly"]
#: Makes the normalisation after a weight layer: ``norm(channels, T, scale)``, the scale being θ/λ,
#: the input that takes a neuron at rest to its threshold.
Norm = Callable[[int, int, float], nn.Module]
NeuronKind = Literal["lif", "adaptive"] | Callable[[int], nn.Module]


class Conv2d(nn.Conv2d):
    """A convolution of every time step of (T, batch, channels, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(0, 1)).unflatten(0, input.shape[:2])


class AvgPool2d(nn.AvgPool2d):
    """Average pooling of every time step of (T, batch, channels, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(0, 1)).unflatten(0, input.shape[:2])


class Parts:
    """Layers of one backend with one kind of neuron.

    Args:
        backend: ``torch`` or ``spikingjelly``.
        T: time steps.
        tau: time constant; κ = 1 - 1/τ, λ = 1/τ.
        theta: threshold.
        norm: makes the normalisation after each weight layer, or None.
        neuron: ``lif``, ``adaptive`` (the paper's adaptive neuron, plain torch), or a function
            of the number of channels that makes any module.
    """

    def __init__(
        self,
        backend: Backend = "torch",
        T: int = 4,
        tau: float = 2.0,
        theta: float = 0.5,
        norm: Norm | None = None,
        neuron: NeuronKind = "lif",
    ) -> None:
        if backend not in ("torch", "spikingjelly"):
            raise ValueError(f"backend={backend!r}: expected 'torch' or 'spikingjelly'")
        if T < 1:
            raise ValueError(f"T={T!r}: expected at least one time step")
        if tau < 1:
            raise ValueError(f"tau={tau!r}: expected a time constant >= 1")
        if neuron == "adaptive" and backend != "torch":
            raise ValueError("neuron='adaptive' is a plain torch module: backend='torch'")
        if not callable(neuron) and neuron not in ("lif", "adaptive"):
            raise ValueError(f"neuron={neuron!r}: expected 'lif', 'adaptive' or a function")
        self.T, self.tau, self.theta, self.norm, self.kind = T, tau, theta, norm, neuron
        self.jelly: Any = (
            require("spikingjelly.activation_based", what="spikeinit", extra="neuro-peers")
            and _jelly()
            if backend == "spikingjelly"
            else None
        )

    def neuron(self, channels: int) -> nn.Module:
        if callable(self.kind):
            return self.kind(channels)
        if self.jelly is not None:
            return self.jelly.neuron.LIFNode(
                tau=self.tau,
                v_threshold=self.theta,
                surrogate_function=self.jelly.surrogate.PiecewiseExp(alpha=2.0),
                detach_reset=True,
                step_mode="m",
            )
        kappa, lam = 1 - 1 / self.tau, 1 / self.tau
        if self.kind == "adaptive":
            return AdaptiveLIF(channels, kappa, lam, self.theta)
        return LIF(kappa, lam, self.theta)

    def conv(self, fan_in: int, channels: int, size: int = 3, stride: int = 1) -> nn.Module:
        padding = size // 2
        if self.jelly is not None:
            return self.jelly.layer.Conv2d(
                fan_in, channels, size, stride, padding, bias=False, step_mode="m"
            )
        return Conv2d(fan_in, channels, size, stride, padding, bias=False)

    def linear(self, fan_in: int, channels: int, bias: bool = False) -> nn.Module:
        if self.jelly is not None:
            return self.jelly.layer.Linear(fan_in, channels, bias=bias, step_mode="m")
        return nn.Linear(fan_in, channels, bias=bias)

    def pool(self) -> nn.Module:
        if self.jelly is not None:
            return self.jelly.layer.AvgPool2d(2, step_mode="m")
        return AvgPool2d(2)

    def normalised(self, layer: nn.Module, channels: int) -> nn.Module:
        """The layer alone, or with the normalisation after it."""
        if self.norm is None:
            return layer
        return nn.Sequential(layer, self.norm(channels, self.T, self.theta * self.tau))


def _jelly() -> Any:
    from types import SimpleNamespace

    from spikingjelly.activation_based import functional, layer, neuron, surrogate

    return SimpleNamespace(functional=functional, layer=layer, neuron=neuron, surrogate=surrogate)


class SpikingNetwork(nn.Module):
    """Direct coding, a body of spiking layers, a readout averaged over time.

    Args:
        body: maps (T, batch, ...) to spikes (T, batch, channels, ...).
        readout: maps (T, batch, channels) to logits.
        T: time steps.
        jelly: SpikingJelly's modules, whose neurons are reset before each forward pass.
        grid: images are averaged to grid×grid positions before the readout.
        scan: images are read a row a time step, not repeated; T is then their height.
    """

    def __init__(
        self,
        body: nn.Module,
        readout: nn.Module,
        T: int,
        jelly: Any = None,
        grid: int = 1,
        scan: bool = False,
    ) -> None:
        super().__init__()
        self.body, self.readout, self.T, self._jelly = body, readout, T, jelly
        self.grid, self.scan = grid, scan

    def forward(self, x: Tensor, coded: bool = False) -> Tensor:
        """(batch, classes) logits of (batch, ...), or of (T, batch, ...) with ``coded``."""
        if self._jelly is not None:
            self._jelly.functional.reset_net(self)
        if coded:
            sequence = x
        elif self.scan:  # (batch, channels, rows, columns): rows become time
            sequence = x.permute(2, 0, 1, 3)
        else:
            sequence = x.unsqueeze(0).expand(self.T, *x.shape)
        spikes = self.body(sequence)
        if spikes.ndim > 3:
            pooled = nn.functional.adaptive_avg_pool2d(spikes.flatten(0, 1), self.grid)
            spikes = pooled.flatten(1).unflatten(0, spikes.shape[:2])
        return self.readout(spikes).mean(0)


class Block(nn.Module):
    """A residual block, which adds a membrane to the trunk (MS-ResNet) or spikes (SEW-ResNet).

    MS: x + conv2(s(conv1(s(x)))), with a plain convolution as the shortcut where sizes change.
    SEW: x + s(conv2(s(conv1(x)))), with a convolution and neurons as the shortcut there.
    """

    def __init__(
        self, parts: Parts, fan_in: int, channels: int, stride: int, spikes: bool = False
    ) -> None:
        super().__init__()
        self.spikes = spikes
        self.neuron1 = parts.neuron(channels if spikes else fan_in)
        self.neuron2 = parts.neuron(channels)
        self.conv1 = parts.normalised(parts.conv(fan_in, channels, 3, stride), channels)
        self.conv2 = parts.normalised(parts.conv(channels, channels), channels)
        self.shortcut = None
        if stride != 1 or fan_in != channels:
            self.shortcut = parts.normalised(parts.conv(fan_in, channels, 1, stride), channels)
            if spikes:
                self.shortcut = nn.Sequential(self.shortcut, parts.neuron(channels))
        self.removed = False

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        if self.removed:
            return kept
        if self.spikes:
            return kept + self.neuron2(self.conv2(self.neuron1(self.conv1(x))))
        return kept + self.conv2(self.neuron2(self.conv1(self.neuron1(x))))


class ResidualBody(nn.Module):
    """A stem, blocks, and (MS) a last layer of neurons; optionally recomputed in the backward
    pass."""

    def __init__(self, stem: nn.Module, blocks: list[Block], last: nn.Module, segment: int) -> None:
        super().__init__()
        self.stem, self.blocks, self.last = stem, nn.ModuleList(blocks), last
        self.segment = segment

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.segment and self.training and torch.is_grad_enabled():
            for first in range(0, len(self.blocks), self.segment):
                part = self.blocks[first : first + self.segment]
                x = checkpoint(nn.Sequential(*part), x, use_reentrant=False)  # pyright: ignore
        else:
            for block in self.blocks:
                x = block(x)
        return self.last(x)


def _resnet(
    spikes: bool,
    depth: int,
    width: int,
    num_classes: int,
    channels: int,
    parts: Parts,
    checkpoint_segment: int,
    strides: tuple[int, int, int],
    grid: int,
) -> SpikingNetwork:
    """A residual network whose sums are spikes or membranes; see `deep_ms_resnet`."""
    blocks = (depth - 1) // 2
    if blocks < 3:
        raise ValueError(f"depth={depth!r}: expected at least 7, a stem and a block a stage")
    sizes = [blocks // 3, blocks // 3, blocks - 2 * (blocks // 3)]
    made: list[Block] = []
    fan_in = width
    for stage, count in enumerate(sizes):
        size = width * 2**stage
        for index in range(count):
            stride = strides[stage] if stage and index == 0 else 1
            made.append(Block(parts, fan_in, size, stride, spikes))
            fan_in = size
    stem = parts.normalised(parts.conv(channels, width, 3, strides[0]), width)
    if spikes:  # neurons after the stem, and none after the last sum
        stem, last = nn.Sequential(stem, parts.neuron(width)), nn.Identity()
    else:
        last = parts.neuron(fan_in)
    body = ResidualBody(stem, made, last, checkpoint_segment)
    readout = parts.linear(fan_in * grid**2, num_classes, bias=True)
    return SpikingNetwork(body, readout, parts.T, parts.jelly, grid)


def deep_ms_resnet(
    depth: int = 101,
    width: int = 16,
    num_classes: int = 10,
    *,
    channels: int = 1,
    T: int = 4,
    tau: float = 2.0,
    theta: float = 0.5,
    norm: Norm | None = None,
    backend: Backend = "torch",
    neuron: NeuronKind = "lif",
    checkpoint_segment: int = 0,
    strides: tuple[int, int, int] = (1, 2, 2),
    grid: int = 1,
) -> SpikingNetwork:
    """A residual spiking network of any depth: three stages of width, 2·width and 4·width.

    Its shortcuts carry membranes: use it rather than `deep_sew_resnet` beyond 100 layers or so.

    Args:
        depth: convolutions, a stem and two a block; an even depth counts the classifier too, so
            that 1000 means 166, 166 and 167 blocks.
        width: channels of the first stage.
        num_classes: outputs.
        channels: of the images.
        T, tau, theta: time steps and neuron.
        norm: makes the normalisation after each convolution (for comparison), or None.
        backend: ``torch`` or ``spikingjelly``.
        neuron: ``lif``, ``adaptive`` (`AdaptiveLIF`), or a function of the channels.
        checkpoint_segment: recompute this many blocks at a time in the backward pass, so that
            memory grows with depth/segment + segment; 0 keeps everything.
        strides: of the stem and of the first block of the second and third stage.
        grid: the readout sees grid×grid positions of the last feature map, averaged to those.

    Raises:
        ValueError: a depth below 7 (a block a stage).
    """
    parts = Parts(backend, T, tau, theta, norm, neuron)
    return _resnet(
        False, depth, width, num_classes, channels, parts, checkpoint_segment, strides, grid
    )


def deep_sew_resnet(
    depth: int = 51,
    width: int = 16,
    num_classes: int = 10,
    *,
    channels: int = 1,
    T: int = 4,
    tau: float = 2.0,
    theta: float = 0.5,
    norm: Norm | None = None,
    backend: Backend = "torch",
    neuron: NeuronKind = "lif",
    checkpoint_segment: int = 0,
    strides: tuple[int, int, int] = (1, 2, 2),
    grid: int = 1,
) -> SpikingNetwork:
    """A residual spiking network whose shortcuts carry spikes, which blocks add to (SEW-ResNet).

    The sums are whole numbers and no longer spikes: at rest each block adds about one in a hundred.
    Args and errors: as for `deep_ms_resnet`.
    """
    parts = Parts(backend, T, tau, theta, norm, neuron)
    return _resnet(
        True, depth, width, num_classes, channels, parts, checkpoint_segment, strides, grid
    )


def plain_mlp(
    depth: int = 20,
    width: int = 128,
    num_classes: int = 10,
    *,
    inputs: int = 64,
    T: int = 4,
    tau: float = 2.0,
    theta: float = 0.5,
    norm: Norm | None = None,
    backend: Backend = "torch",
    neuron: NeuronKind = "lif",
    scan: bool = False,
) -> SpikingNetwork:
    """``depth`` fully connected spiking layers without shortcuts, and a readout.

    Args:
        depth: spiking layers.
        width: neurons of each.
        num_classes: outputs.
        inputs: entries of an input row (of a row of the image with ``scan``); images are
            flattened.
        T, tau, theta, norm, backend, neuron: as for `deep_ms_resnet`.
        scan: images (batch, channels, rows, columns) are read a row a time step.
    """
    if depth < 1:
        raise ValueError(f"depth={depth!r}: expected at least one layer")
    parts = Parts(backend, T, tau, theta, norm, neuron)
    layers: list[nn.Module] = [nn.Flatten(2)]
    for index in range(depth):
        linear = parts.linear(inputs if index == 0 else width, width)
        layers += [parts.normalised(linear, width), parts.neuron(width)]
    return SpikingNetwork(
        nn.Sequential(*layers),
        parts.linear(width, num_classes, bias=True),
        T,
        parts.jelly,
        scan=scan,
    )


def vgg9_snn(
    width: int = 16,
    num_classes: int = 10,
    *,
    channels: int = 1,
    T: int = 4,
    tau: float = 2.0,
    theta: float = 0.5,
    norm: Norm | None = None,
    backend: Backend = "torch",
    neuron: NeuronKind = "lif",
) -> SpikingNetwork:
    """Seven convolutions in three stages with average pooling, one spiking dense layer, a readout.

    Args: as for `deep_ms_resnet`; images need at least 4×4 pixels.
    """
    parts = Parts(backend, T, tau, theta, norm, neuron)
    layers: list[nn.Module] = []
    fan_in = channels
    for stage, convolutions in enumerate((2, 2, 3)):
        size = width * 2**stage
        for _ in range(convolutions):
            layers += [parts.normalised(parts.conv(fan_in, size), size), parts.neuron(size)]
            fan_in = size
        if stage < 2:
            layers.append(parts.pool())
    layers += [Pooled(), parts.normalised(parts.linear(fan_in, fan_in), fan_in)]
    layers.append(parts.neuron(fan_in))
    return SpikingNetwork(
        nn.Sequential(*layers), parts.linear(fan_in, num_classes, bias=True), T, parts.jelly
    )


class Pooled(nn.Module):
    """The mean over space: (T, batch, channels, ...) to (T, batch, channels)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(3).mean(-1)


#: Models by name, for the command line.
MODELS: dict[str, Callable[..., SpikingNetwork]] = {
    "deep_ms_resnet": deep_ms_resnet,
    "deep_sew_resnet": deep_sew_resnet,
    "plain_mlp": plain_mlp,
    "vgg9_snn": vgg9_snn,
}
