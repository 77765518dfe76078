"""Spiking neurons in plain torch: a fused LIF layer, and the adaptive one of the paper.

Layout of all sequences: (T, batch, channels, ...). One autograd function runs all T steps and
writes its own backward pass; the gradient through the reset is detached, as the theory of α
assumes (`theory.backward_gain`).
"""

from __future__ import annotations

import math
from typing import Any, get_args

import torch
from torch import Tensor, nn

from armillary.neuro.spikeinit.theory import Neuron, Surrogate

#: Φ⁻¹(0.99): a membrane so quiet that it crosses the threshold once in a hundred steps.
_Z01 = 2.3263478740408408


def surrogate_slope(surrogate: Surrogate, alpha: float | Tensor, u: Tensor) -> Tensor:
    """The slope of a surrogate at u = v - θ; see `theory.slope_squared` for the four of them.

    Args:
        surrogate: its name.
        alpha: its parameter, a number or a tensor that broadcasts with ``u``.
        u: any shape.
    """
    if surrogate == "piecewise_exp":
        return torch.exp(u.abs() * (-2 * alpha)) * alpha
    if surrogate == "atan":
        return (alpha / 2) / (1 + (u * alpha * (math.pi / 2)) ** 2)
    if surrogate == "sigmoid":
        s = torch.sigmoid(u * alpha)
        return s * (1 - s) * alpha
    if surrogate == "triangle":
        return torch.relu(1 - u.abs() * alpha) * alpha
    raise ValueError(f"surrogate={surrogate!r}: expected one of {', '.join(get_args(Surrogate))}")


class _Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, surrogate: Surrogate, alpha: float) -> Tensor:
        ctx.save_for_backward(u)
        ctx.surrogate, ctx.alpha = surrogate, alpha
        return (u >= 0).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (u,) = ctx.saved_tensors
        # In float32, because α e^{-2α|u|} loses its tail in half precision.
        slope = surrogate_slope(ctx.surrogate, ctx.alpha, u.float())
        return (grads[0] * slope).to(u.dtype), None, None


class SurrogateSpike:
    """A spike function 1[u >= 0] with a surrogate slope: snnTorch's ``spike_grad``, or your own.

    Args:
        alpha: its parameter, > 0.
        surrogate: its name, see `theory.slope_squared`.
    """

    def __init__(self, alpha: float, surrogate: Surrogate = "piecewise_exp") -> None:
        self.alpha, self.surrogate = alpha, surrogate

    def __call__(self, u: Tensor) -> Tensor:
        return _Spike.apply(u, self.surrogate, self.alpha)  # pyright: ignore[reportReturnType]

    def __repr__(self) -> str:
        return f"SurrogateSpike(alpha={self.alpha:g}, surrogate={self.surrogate!r})"


class _Sequence(torch.autograd.Function):
    """All steps of a layer. With a gain γ and a shift β the neuron fires where γv + β >= θ."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor | None,
        shift: Tensor | None,
        neuron: Neuron,
        surrogate: Surrogate,
        alpha: float,
        per_channel: bool,
    ) -> Tensor:
        kappa, lam, theta = neuron.kappa, neuron.lam, neuron.theta
        v = torch.empty_like(x)
        fired = torch.empty_like(x, dtype=torch.bool)
        torch.mul(x[0], lam, out=v[0])
        for t in range(len(x)):
            if t:
                kept = v[t - 1] * kappa
                if neuron.reset == "hard":
                    kept.masked_fill_(fired[t - 1], 0.0)
                else:
                    drop = theta * kappa if neuron.reset == "soft" else theta
                    kept.sub_(fired[t - 1].to(x.dtype), alpha=drop)
                torch.add(kept, x[t], alpha=lam, out=v[t])
            if gain is None:
                torch.ge(v[t], theta, out=fired[t])
            else:  # as in the backward pass, so that both see the same spikes
                torch.ge(torch.addcmul(shift - theta, v[t], gain), 0.0, out=fired[t])  # pyright: ignore
        ctx.alpha = _channel_alpha(alpha, v, theta) if per_channel else alpha
        ctx.save_for_backward(v, gain, shift)
        ctx.neuron, ctx.surrogate = neuron, surrogate
        return fired.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        v, gain, shift = ctx.saved_tensors
        neuron: Neuron = ctx.neuron
        u = v - neuron.theta if gain is None else torch.addcmul(shift - neuron.theta, v, gain)
        fired = u >= 0
        slope = surrogate_slope(ctx.surrogate, ctx.alpha, u.float()).to(v.dtype)
        du = slope.mul_(grads[0])
        dgain = dshift = None
        if gain is not None:
            axes = [axis for axis in range(v.ndim) if axis != 2]
            dgain = (du * v).sum(axes).view_as(gain)
            dshift = du.sum(axes).view_as(shift)
            du = du * gain
        for t in range(len(v) - 2, -1, -1):
            through = du[t + 1] * neuron.kappa
            if neuron.reset == "hard":
                through.masked_fill_(fired[t], 0.0)
            du[t] += through
        return du.mul_(neuron.lam), dgain, dshift, None, None, None, None


def _channel_alpha(base: float, v: Tensor, theta: float) -> Tensor:
    """α of each channel, base over the standard deviation of its membrane (over time, batch and
    space), which counts as at least θ/Φ⁻¹(0.99)."""
    axes = [axis for axis in range(v.ndim) if axis != 2]
    std = v.float().std(dim=axes, correction=0, keepdim=True)
    return base / std.clamp_min(theta / _Z01)


class LIF(nn.Module):
    """Leaky integrate-and-fire neurons over all time steps at once.

    Args:
        kappa, lam, theta, reset: see `theory.Neuron` (refractory neurons are not provided).
        alpha: parameter of the surrogate.
        surrogate: its name, see `theory.slope_squared`.
    """

    def __init__(
        self,
        kappa: float = 0.5,
        lam: float = 0.5,
        theta: float = 0.5,
        alpha: float = 1.0,
        surrogate: Surrogate = "piecewise_exp",
        reset: str = "hard",
    ) -> None:
        super().__init__()
        self.neuron = Neuron(kappa, lam, theta, reset)  # pyright: ignore[reportArgumentType]
        self.alpha = alpha
        self.surrogate: Surrogate = surrogate

    def forward(self, x: Tensor) -> Tensor:
        """Spikes, 0 or 1, of the shape of ``x``: (T, batch, channels, ...)."""
        return _Sequence.apply(  # pyright: ignore[reportReturnType]
            x, None, None, self.neuron, self.surrogate, self.alpha, False
        )

    def extra_repr(self) -> str:
        n = self.neuron
        return f"kappa={n.kappa:g}, lam={n.lam:g}, theta={n.theta:g}, alpha={self.alpha:.4g}"


class AdaptiveLIF(LIF):
    """LIF neurons with a learnt gain and shift a channel and a surrogate as wide as the membrane
    moves: the paper's adaptive neuron (ASLIF).

    A neuron fires where γv + β >= θ, γ = 1 and β = 0 at first. The surrogate's α of a channel is
    ``base`` over the standard deviation of its membrane in this batch (detached), that being taken
    as at least θ/Φ⁻¹(0.99).

    Args:
        channels: size of axis 2 of the input.
        base: α times the standard deviation of the membrane; `init_` sets it from the theory.
        kappa, lam, theta, surrogate, reset: as for `LIF`.
    """

    def __init__(
        self,
        channels: int,
        kappa: float = 0.5,
        lam: float = 0.5,
        theta: float = 0.5,
        base: float = 1.0,
        surrogate: Surrogate = "piecewise_exp",
        reset: str = "hard",
    ) -> None:
        super().__init__(kappa, lam, theta, base, surrogate, reset)
        self.base = base
        self.gain = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Spikes, 0 or 1, of the shape of ``x``: (T, batch, channels, ...)."""
        if x.ndim < 3 or x.shape[2] != len(self.gain):
            raise ValueError(
                f"x has the shape {tuple(x.shape)}; expected (T, batch, {len(self.gain)}, ...)"
            )
        shape = (-1,) + (1,) * (x.ndim - 3)
        return _Sequence.apply(  # pyright: ignore[reportReturnType]
            x,
            self.gain.view(shape),
            self.shift.view(shape),
            self.neuron,
            self.surrogate,
            self.base,
            True,
        )
