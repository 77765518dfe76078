"""How a discrete step is kept from climbing: an explicit Euler step along a level set of V leaves
it at second order.

Legend of shapes: N nodes, G graphs, c channels.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import torch
from torch import Tensor

from armillary.graph.tango.energy import Point, Ray
from armillary.graph.tango.operators import Segments

#: Newton steps for a graph whose energy stays above where it started.
_NEWTON_STEPS = 3
_HALVINGS = 8
#: The share of the rounding by which an accepted step may end above its start: where some graphs of
#: a batch take another step, energies of all are summed anew, which moves the last digits.
_ACCEPTED = 0.5


@dataclasses.dataclass
class Repairs:
    """How often each remedy was needed, counted in graphs."""

    newton: int = 0
    halvings: int = 0
    descents: int = 0


@dataclasses.dataclass(frozen=True)
class Motion:
    """One step from a start: H + h (−αG + βT) with T = M − qG.

    Attributes:
        start: where it starts.
        messages: M, (N, c); None: no tangent part.
        along: q, one for each graph, (N, 1) or (1, 1), or for each node; None: T = M.
        alpha: α >= 0, a scalar tensor.
        beta: β, a scalar tensor; None: no tangent part.
        step: h.
        epsilon: (G,) what keeps divisions by ‖G‖² finite.
        segments: nodes to graphs.
        at: the energy's point at given features.
    """

    start: Point
    messages: Tensor | None
    along: Tensor | None
    alpha: Tensor
    beta: Tensor | None
    step: float
    epsilon: Tensor
    segments: Segments
    at: Callable[[Tensor], Point]

    @functools.cached_property
    def tangent(self) -> Tensor | None:
        """T, (N, c)."""
        if self.messages is None or self.along is None:
            return self.messages
        return torch.addcmul(self.messages, self.along, self.start.gradient, value=-1)

    def moved(self) -> Point:
        """The end of the plain step."""
        x, gradient = self.start.x, self.start.gradient
        along = self.step * self.alpha  # H − h(α + βq) G + hβ M, in two passes
        if self.messages is None or self.beta is None:
            return self.at(torch.addcmul(x, along.to(x.dtype), gradient, value=-1))
        ahead = self.step * self.beta
        if self.along is not None:
            along = along + ahead * self.along
        x = torch.addcmul(x, ahead.to(x.dtype), self.messages)
        return self.at(x.addcmul_(along.to(x.dtype), gradient, value=-1))

    def direction(self) -> Tensor:
        """−αG + βT, (N, c)."""
        descent = -self.alpha.to(self.start.x.dtype) * self.start.gradient
        if self.tangent is None or self.beta is None:
            return descent
        return torch.addcmul(descent, self.beta.to(descent.dtype), self.tangent)

    def target(self) -> Tensor:
        """(G,) V* = V − ½ h α ‖G‖²: half of what pure descent would gain at first order."""
        return self.start.energy - self.step * self.alpha * self.start.squared / 2

    def returned(self, point: Point, target: Tensor, repairs: Repairs) -> Point:
        """Back towards the target level along the gradient at a point, for graphs above it.

        How far to go is a number without a gradient: training sees the return as a step of a
        fixed length along the gradient (the docs page tells what else was tried).
        """
        # With its graph, where there is one, and before the energy, which is only compared.
        direction = point.gradient
        with torch.no_grad():
            excess = torch.relu(point.energy - target)
            if not bool((excess > 0).any()):
                return point
        return self._length(point.ray(direction), excess, target, repairs)[1]

    def _length(
        self, ray: Ray, excess: Tensor, target: Tensor, repairs: Repairs
    ) -> tuple[Tensor, Point]:
        """(G,) k of the return H − kG, without a gradient, and the point there.

        One step for all graphs that are above the target, to the root of V's parabola along the ray
        where its curvature is known, else Newton's; then up to two Newton steps for graphs that
        are still above their start (between target and start they may stay).
        """
        with torch.no_grad():
            k = _root(excess, ray.start.squared + self.epsilon, ray.curvature())
        end = ray.point(-k)
        for _ in range(_NEWTON_STEPS - 1):
            level = end.energy  # before gradients are switched off: the next step shares its parts
            with torch.no_grad():
                more = self._more(ray, end, level, target, repairs)
            if more is None:
                break
            k = k + more
            end = ray.point(-k)
        return k, end

    def _more(
        self, ray: Ray, end: Point, level: Tensor, target: Tensor, repairs: Repairs
    ) -> Tensor | None:
        """(G,) what a Newton step adds to k where V is still above its start; None: nothing."""
        climbed = risen(self.start.energy, level, _ACCEPTED)
        if not bool(climbed.any()):
            return None
        repairs.newton += int(climbed.sum())
        fall = ray.slope(end)
        leads = climbed & (fall > self.epsilon)
        if not bool(leads.any()):
            return None
        more = torch.relu(level - target) / (fall.clamp(min=0) + self.epsilon)
        return torch.where(leads, more, 0.0)


def _root(excess: Tensor, fall: Tensor, curvature: Tensor | None) -> Tensor:
    """The smaller root k of ``excess − fall·k + curvature·k²/2``, or the vertex if it has none."""
    if curvature is None:
        return excess / fall
    root = (fall.square() - 2 * curvature * excess).clamp(min=0).sqrt()
    return torch.minimum(2 * excess / (fall + root), fall / curvature.clamp(min=1e-30))


def risen(start: Tensor, end: Tensor, share: float = 1.0) -> Tensor:
    """(G,) whether an energy rose by more than a share of its sum's rounding, or is not finite."""
    tolerance = share * (1e-6 if start.dtype == torch.float32 else 1e-12)
    return ~(end <= start + tolerance * start.abs())


def corrected(motion: Motion, curvature: Callable[[], Tensor | None], repairs: Repairs) -> Point:
    """The step brought back to V* where it went above, such that V never rises.

    A graph that Newton's steps leave above its start takes the plain step at a smaller h, and at
    last pure descent at h = 1/(αΛ), which cannot climb.

    Args:
        motion: the step.
        curvature: Λ, or None where no bound is known (then the graph stays where it is).
        repairs: counts what was needed.
    """
    moved = motion.moved()
    with torch.no_grad():
        target = motion.target()
    point = motion.returned(moved, target, repairs)
    level = point.energy  # with its graph: the next step shares its parts
    with torch.no_grad():
        climbed = risen(motion.start.energy, level, _ACCEPTED)
        if not bool(climbed.any()):
            return point
    ray = motion.start.ray(motion.direction())
    with torch.no_grad():
        k, left = _shortened(motion, ray, climbed, repairs)
    point = _replace(motion, climbed, ray.point(k), point)
    if not bool(left.any()):
        return point
    repairs.descents += int(left.sum())
    bound = curvature()
    x = motion.start.x
    if bound is not None:
        rate = torch.minimum(motion.step * motion.alpha, 1 / bound.to(motion.alpha))
        x = x - rate * motion.start.gradient
    return _replace(motion, left, motion.at(x), point)


def _shortened(motion: Motion, ray: Ray, which: Tensor, repairs: Repairs) -> tuple[Tensor, Tensor]:
    """(G,) h of the plain step halved such that V does not rise, and where no halving helped.

    Where the curvature along the step is known, V's parabola says how often to halve at first.
    """
    start = motion.start
    halved = which.long()
    bent = ray.curvature()
    if bent is not None:
        room = 2 * (-ray.slope(start)).clamp(min=0) / bent.clamp(min=1e-30)
        needed = torch.log2(motion.step / room.clamp(min=1e-30)).ceil().clamp(1, _HALVINGS)
        needed = needed.nan_to_num(nan=_HALVINGS)  # NaN as an integer is no count: endless halving
        halved = torch.where(which, needed.long(), halved)
    while True:
        k = motion.step * torch.exp2(-halved.to(start.energy.dtype))
        left = which & risen(start.energy, ray.point(k).energy, 0.0)
        again = left & (halved < _HALVINGS)
        if not bool(again.any()):
            break
        halved = halved + again.long()
    repairs.halvings += int(halved.sum())
    return k, left


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
    gradient, squared = motion.start.gradient, motion.start.squared
    if motion.tangent is None or motion.beta is None:
        rate = torch.minimum(motion.step * motion.alpha, 1 / bound)
        return motion.at(motion.start.x - rate * gradient)
    h = (1 / (motion.alpha * bound)).clamp(max=motion.step)
    room = 2 * motion.alpha * squared / (h * bound) - motion.alpha**2 * squared
    length = motion.beta**2 * motion.segments.dot(motion.tangent, motion.tangent)
    ratio = room.clamp(min=0) / length.clamp(min=torch.finfo(length.dtype).tiny)
    # A root has no slope at 0: there the tangent part is cut off whole.
    scale = torch.where(ratio > 0, ratio.clamp(min=1e-30), 1.0).sqrt().clamp(max=1)
    scale = motion.segments.spread(torch.where(ratio > 0, scale, 0.0)).to(gradient.dtype)
    push = (h * motion.beta) * scale * motion.tangent
    return motion.at(motion.start.x + push - (h * motion.alpha) * gradient)
