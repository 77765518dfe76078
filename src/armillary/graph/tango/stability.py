"""How a discrete step is kept from climbing: an explicit Euler step along a level set of V leaves
it at second order.

Legend of shapes: N nodes, G graphs, c channels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from armillary.graph.tango.energy import Point
from armillary.graph.tango.operators import Segments

#: Newton steps for a graph whose energy stays above where it started.
_NEWTON_STEPS = 3
_HALVINGS = 8


@dataclasses.dataclass
class Repairs:
    """How often each remedy was needed, counted in graphs."""

    newton: int = 0
    halvings: int = 0
    descents: int = 0


@dataclasses.dataclass(frozen=True)
class Motion:
    """One step from a start: H + h (−αG + βT).

    Attributes:
        start: where it starts.
        tangent: βT, (N, c); None: no tangent part.
        alpha: α >= 0, a scalar tensor.
        step: h.
        epsilon: (G,) what keeps divisions by ‖G‖² finite.
        segments: nodes to graphs.
        at: the energy's point at given features.
    """

    start: Point
    tangent: Tensor | None
    alpha: Tensor
    step: float
    epsilon: Tensor
    segments: Segments
    at: Callable[[Tensor], Point]

    def moved(self, scale: Tensor | None = None) -> Point:
        """The end of the plain step, h times ``scale`` (G,) graph by graph."""
        h = self.step if scale is None else self.segments.spread(scale) * self.step
        x = self.start.x - (h * self.alpha) * self.start.gradient
        return self.at(x if self.tangent is None else x + h * self.tangent)

    def target(self, scale: Tensor | None = None) -> Tensor:
        """(G,) V* = V − ½ h α ‖G‖²: half of what pure descent would gain at first order."""
        squared = self.segments.dot(self.start.gradient, self.start.gradient)
        h = self.step if scale is None else scale * self.step
        return self.start.energy - h * self.alpha * squared / 2

    def returned(self, point: Point, target: Tensor, repairs: Repairs) -> Point:
        """Back towards the target level along the gradient at a point.

        One Newton step for all graphs that are above it, and up to two more for those that are
        still above their start: V is nearly always convex along the ray, so that Newton's steps
        stop short and never overshoot.
        """
        excess = torch.relu(point.energy - target)
        if not bool((excess > 0).any()):
            return point
        ray = point.ray(-point.gradient)
        squared = self.segments.dot(point.gradient, point.gradient)
        k = excess / (squared + self.epsilon)
        end = ray.point(k)
        for _ in range(_NEWTON_STEPS - 1):
            climbed = risen(self.start.energy, end.energy)
            if not bool(climbed.any()):
                break
            repairs.newton += int(climbed.sum())
            fall = -ray.slope(end)
            more = torch.relu(end.energy - target) / (fall.clamp(min=0) + self.epsilon)
            k = torch.where(climbed & (fall > self.epsilon), k + more, k)
            end = ray.point(k)
        return end


def risen(start: Tensor, end: Tensor) -> Tensor:
    """(G,) whether an energy rose by more than the rounding of its sum, or is not finite."""
    tolerance = 1e-6 if start.dtype == torch.float32 else 1e-12
    return ~(end <= start + tolerance * start.abs())


def corrected(
    motion: Motion, curvature: Callable[[], Tensor | None], repairs: Repairs
) -> Point:
    """The step brought back to V* where it went above, such that V never rises.

    A graph that Newton's steps leave above its start takes a smaller h, and at last pure descent
    at h = 1/(αΛ), which cannot climb.

    Args:
        motion: the step.
        curvature: Λ, or None where no bound is known (then the graph stays where it is).
        repairs: counts what was needed.
    """
    point = motion.returned(motion.moved(), motion.target(), repairs)
    climbed = risen(motion.start.energy, point.energy)
    scale = torch.ones_like(motion.start.energy)
    for _ in range(_HALVINGS):
        if not bool(climbed.any()):
            return point
        repairs.halvings += int(climbed.sum())
        scale = torch.where(climbed, scale / 2, scale)
        attempt = motion.returned(motion.moved(scale), motion.target(scale), repairs)
        point = _replace(motion, climbed, attempt, point)
        climbed = risen(motion.start.energy, point.energy)
    if not bool(climbed.any()):
        return point
    repairs.descents += int(climbed.sum())
    bound = curvature()
    x = motion.start.x
    if bound is not None:
        rate = torch.minimum(motion.step * motion.alpha, 1 / bound.to(motion.alpha))
        x = x - rate * motion.start.gradient
    return _replace(motion, climbed, motion.at(x), point)


def _replace(motion: Motion, which: Tensor, new: Point, old: Point) -> Point:
    """The new features for some graphs, the old ones for the others."""
    if bool(which.all()):
        return new
    return motion.at(torch.where(motion.segments.spread(which), new.x, old.x))


def clipped(motion: Motion, bound: Tensor) -> Point:
    """The step with βT scaled such that h <= 2α‖G‖² / (Λ(α²‖G‖² + ‖βT‖²)): V cannot rise.

    By Taylor's formula V(H + hd) <= V + h⟨G, d⟩ + h²Λ‖d‖²/2 with d = −αG + βT, ⟨G, d⟩ = −α‖G‖².
    Where hα > 1/Λ, h is cut to 1/(αΛ) as well.
    """
    if motion.tangent is None:
        rate = torch.minimum(motion.step * motion.alpha, 1 / bound)
        return motion.at(motion.start.x - rate * motion.start.gradient)
    gradient = motion.start.gradient
    squared = motion.segments.dot(gradient, gradient)
    h = torch.minimum(
        torch.as_tensor(motion.step, dtype=bound.dtype, device=bound.device),
        1 / (motion.alpha * bound),
    )
    room = 2 * motion.alpha * squared / (h * bound) - motion.alpha**2 * squared
    length = motion.segments.dot(motion.tangent, motion.tangent)
    ratio = room.clamp(min=0) / length.clamp(min=torch.finfo(length.dtype).tiny)
    # A root has no slope at 0: there the tangent part is cut off whole.
    scale = torch.where(ratio > 0, ratio.clamp(min=1e-30), 1.0).sqrt().clamp(max=1)
    scale = torch.where(ratio > 0, scale, 0.0)
    tangent = motion.segments.spread(scale) * motion.tangent
    return motion.at(motion.start.x + h * (tangent - motion.alpha * gradient))
