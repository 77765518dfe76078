"""The energy V that node features descend, and its gradient.

`LogCoshEnergy` has its gradient in closed form; any other `EnergyModule` is differentiated.

Legend of shapes: N nodes, G graphs, c channels; H (N, c) features, V (G,) energies.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from armillary.graph.tango.operators import Propagation, Segments

if TYPE_CHECKING:
    from jaxtyping import Float


class EnergyNotDifferentiable(TypeError):
    """An energy has no gradient with respect to the features; the message names the operation."""


class Point(abc.ABC):
    """Features with their energy and its gradient, each computed when first asked for."""

    def __init__(self, x: Tensor, operator: Propagation, segments: Segments) -> None:
        self.x, self.operator, self.segments = x, operator, segments

    @functools.cached_property
    def neighbours(self) -> Tensor:
        """ÂH, (N, c): the energy and the default backbone share it, as Â(HW) = (ÂH)W."""
        return (self.operator @ self.x).to(self.x.dtype)

    @functools.cached_property
    def energy(self) -> Tensor:
        """V(H), (G,)."""
        return self._find_energy()

    @functools.cached_property
    def gradient(self) -> Tensor:
        """∇V(H), (N, c)."""
        return self._find_gradient()

    @abc.abstractmethod
    def _find_energy(self) -> Tensor:
        """V(H), (G,); asked for once."""

    @abc.abstractmethod
    def _find_gradient(self) -> Tensor:
        """∇V(H), (N, c); asked for once."""

    @functools.cached_property
    def squared(self) -> Tensor:
        """‖∇V‖², (G,)."""
        return self.segments.dot(self.gradient, self.gradient)

    @abc.abstractmethod
    def ray(self, direction: Float[Tensor, "N c"]) -> Ray:
        """The points from here along a direction, (N, c)."""


class Ray(abc.ABC):
    """Points H + kD, with one k for each graph."""

    def __init__(self, start: Point, direction: Tensor) -> None:
        self.start, self.direction = start, direction

    def features(self, k: Tensor) -> Tensor:
        spread = self.start.segments.spread(k).to(self.direction.dtype)
        return torch.addcmul(self.start.x, spread, self.direction)

    @abc.abstractmethod
    def point(self, k: Float[Tensor, " G"]) -> Point:
        """The point at k, (G,)."""

    def slope(self, point: Point) -> Float[Tensor, " G"]:
        """dV/dk at a point of the ray, (G,)."""
        return point.segments.dot(point.gradient, self.direction)

    def curvature(self) -> Float[Tensor, " G"] | None:
        """d²V/dk² at the start, (G,), where it is cheap to have."""
        return None


class EnergyModule(torch.nn.Module, abc.ABC):
    """An energy of your own: give ``forward``; its gradient is taken by autograd.

    The gradient is itself differentiated in training, so that every operation must be twice
    differentiable. Two to three times slower than the closed form.
    """

    @abc.abstractmethod
    def forward(
        self, x: Float[Tensor, "N c"], operator: Propagation, segments: Segments
    ) -> Float[Tensor, " G"]:
        """The energy of each graph.

        Args:
            x: (N, c) features.
            operator: Â.
            segments: nodes to graphs; ``segments.sum`` gives the (G,) sums.

        Returns:
            (G,) energies; graph g's may depend on graph g's nodes only.
        """

    def curvature(self, operator: Propagation) -> Float[Tensor, ""] | None:
        """An upper bound on ‖∇²V‖₂, or None where none is known (then not for ``clip``)."""
        return None

    def at(self, x: Float[Tensor, "N c"], operator: Propagation, segments: Segments) -> Point:
        """The point x of the energy."""
        return _AutogradPoint(self, x, operator, segments)

    def differentiate(
        self, x: Float[Tensor, "N c"], operator: Propagation, segments: Segments
    ) -> tuple[Float[Tensor, " G"], Callable[[], Float[Tensor, "N c"]]]:
        """(G,) energies and what gives their gradient, (N, c)."""
        training = torch.is_grad_enabled()
        with torch.enable_grad():
            tracked = x if x.requires_grad else x.detach().requires_grad_()
            energy = self(tracked, operator, segments)
            if energy.shape != (segments.num_graphs,):
                raise ValueError(
                    f"{type(self).__name__} gave energies of the shape {tuple(energy.shape)}; it "
                    f"must be ({segments.num_graphs},): one a graph"
                )
            if not energy.requires_grad:
                raise EnergyNotDifferentiable(self._blame(x, operator, segments))

        def gradient() -> Tensor:
            try:
                return torch.autograd.grad(energy.sum(), tracked, create_graph=training,
                                           retain_graph=True)[0]  # fmt: skip
            except RuntimeError as error:
                raise EnergyNotDifferentiable(
                    f"{type(self).__name__} has no gradient with respect to x: {error}"
                ) from None

        return energy if training else energy.detach(), gradient

    def _blame(self, x: Tensor, operator: Propagation, segments: Segments) -> str:
        """Which operation lost the gradient."""
        with torch.enable_grad(), _Watch() as watch:
            self(x.detach().requires_grad_(), operator, segments)
        culprit = watch.lost or "an operation that does not read x"
        return (
            f"{type(self).__name__} has no gradient with respect to x: it is lost in {culprit}; "
            "use operations that are differentiable twice"
        )


class _AutogradPoint(Point):
    def __init__(
        self, module: EnergyModule, x: Tensor, operator: Propagation, segments: Segments
    ) -> None:
        super().__init__(x, operator, segments)
        self.module = module

    @functools.cached_property
    def _found(self) -> tuple[Tensor, Callable[[], Tensor]]:
        return self.module.differentiate(self.x, self.operator, self.segments)

    def _find_energy(self) -> Tensor:
        return self._found[0]

    def _find_gradient(self) -> Tensor:
        return self._found[1]()

    def ray(self, direction: Tensor) -> Ray:
        return _AutogradRay(self, direction)


class _AutogradRay(Ray):
    start: _AutogradPoint

    def point(self, k: Tensor) -> Point:
        s = self.start
        return _AutogradPoint(s.module, self.features(k), s.operator, s.segments)


class _Watch(TorchFunctionMode):
    """Notes the first operation whose input has a gradient and whose output has none."""

    lost = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        tracked = any(isinstance(a, Tensor) and a.requires_grad for a in args)
        plain = isinstance(out, Tensor) and not out.requires_grad
        if tracked and plain and not self.lost and not name.startswith(("__get", "__", "size")):
            self.lost = name
        return out


class LogCoshEnergy(torch.nn.Module):
    """V(H) = Σ_i Σ_k log cosh Z_ik + (ρ/2) ‖H‖² with Z = H W_s + Â H W_n + 1bᵀ.

    With S = tanh Z its gradient is S W_sᵀ + Âᵀ(S W_nᵀ) + ρH. ρ > 0 makes V coercive: its sublevel
    sets are bounded, and so is every orbit that does not climb.

    Args:
        channels: c.
        rho: ρ >= 0.
    """

    def __init__(self, channels: int, rho: float = 1e-3) -> None:
        super().__init__()
        self.rho = rho
        self.weight_self = torch.nn.Parameter(torch.empty(channels, channels))
        self.weight_neighbour = torch.nn.Parameter(torch.empty(channels, channels))
        self.bias = torch.nn.Parameter(torch.empty(channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw W_s and W_n from U(±1/√c): ‖W_s‖₂ is then about 1.15 at most."""
        bound = 1 / math.sqrt(len(self.bias))
        torch.nn.init.uniform_(self.weight_self, -bound, bound)
        torch.nn.init.uniform_(self.weight_neighbour, -bound, bound)
        torch.nn.init.zeros_(self.bias)

    def at(self, x: Float[Tensor, "N c"], operator: Propagation, segments: Segments) -> Point:
        """The point x of the energy."""
        return _LogCoshPoint(self, x, operator, segments)

    def linear(
        self,
        x: Float[Tensor, "N c"],
        neighbours: Float[Tensor, "N c"],
        bias: Float[Tensor, " c"] | None = None,
    ) -> Float[Tensor, "N c"]:
        """H W_s + (ÂH) W_n + 1bᵀ, (N, c)."""
        own = x @ self.weight_self if bias is None else torch.addmm(bias, x, self.weight_self)
        return _plus_product(own, neighbours, self.weight_neighbour)

    def forward(
        self, x: Float[Tensor, "N c"], operator: Propagation, segments: Segments
    ) -> Float[Tensor, " G"]:
        """(G,) energies."""
        return self.at(x, operator, segments).energy

    def curvature(self, operator: Propagation) -> Float[Tensor, ""]:
        """Λ = (‖W_s‖₂ + ‖Â‖₂ ‖W_n‖₂)² + ρ, which bounds ‖∇²V‖₂ since 0 < tanh' <= 1."""
        with torch.no_grad():
            own, neighbour = (
                torch.linalg.matrix_norm(w.float() if w.element_size() < 4 else w, ord=2)
                for w in (self.weight_self, self.weight_neighbour)
            )
            return (own + operator.norm() * neighbour) ** 2 + self.rho

    def extra_repr(self) -> str:
        return f"channels={len(self.bias)}, rho={self.rho:g}"


class _LogCoshPoint(Point):
    """A point with Z and S, which energy and gradient share."""

    def __init__(
        self, module: LogCoshEnergy, x: Tensor, operator: Propagation, segments: Segments
    ) -> None:
        super().__init__(x, operator, segments)
        self.module = module

    @functools.cached_property
    def z(self) -> Tensor:
        return self.module.linear(self.x, self.neighbours, self.module.bias)

    @functools.cached_property
    def s(self) -> Tensor:
        return torch.tanh(self.z)

    def _find_energy(self) -> Tensor:
        z, s = (a.float() if a.element_size() < 4 else a for a in (self.z, self.s))
        level = self.segments.sum(_LogCoshRows.apply(z, s))  # pyright: ignore
        rho = self.module.rho
        return level + rho / 2 * self.segments.dot(self.x, self.x) if rho else level

    def _find_gradient(self) -> Tensor:
        module, s = self.module, self.s
        behind = (self.operator.T @ s).to(s.dtype)  # Âᵀ(S W_nᵀ) = (ÂᵀS) W_nᵀ
        own = torch.addmm(self.x, s, module.weight_self.T, beta=module.rho)
        return _plus_product(own, behind, module.weight_neighbour.T)

    def ray(self, direction: Tensor) -> Ray:
        return _LogCoshRay(self, direction)


class _LogCoshRay(Ray):
    """Z is linear in H: a whole ray costs one product with Â, and its points none."""

    start: _LogCoshPoint

    def __init__(self, start: _LogCoshPoint, direction: Tensor) -> None:
        super().__init__(start, direction)
        self.neighbours = (start.operator @ direction).to(direction.dtype)
        self.z = start.module.linear(direction, self.neighbours)

    def point(self, k: Tensor) -> _LogCoshPoint:
        s = self.start
        spread = s.segments.spread(k).to(self.z.dtype)
        end = _LogCoshPoint(s.module, self.features(k), s.operator, s.segments)
        end.z = torch.addcmul(s.z, spread, self.z)
        end.neighbours = torch.addcmul(s.neighbours, spread, self.neighbours)
        return end

    def slope(self, point: Point) -> Tensor:
        assert isinstance(point, _LogCoshPoint)
        found = point.segments.dot(point.s, self.z)
        rho = self.start.module.rho
        return found + rho * point.segments.dot(point.x, self.direction) if rho else found

    def curvature(self) -> Tensor:
        start, segments = self.start, self.start.segments
        flat = start.s * self.z  # tanh' = 1 - tanh²
        bent = (segments.dot(self.z, self.z) - segments.dot(flat, flat)).clamp(min=0)
        rho = start.module.rho
        return bent + rho * segments.dot(self.direction, self.direction) if rho else bent


def _plus_product(own: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """own + ab, in place of own where autocast leaves all of one type."""
    if own.dtype == a.dtype == b.dtype:
        return own.addmm_(a, b)
    return torch.addmm(own, a, b)


#: Below this |z| the series of log cosh is taken, whose next term is under the rounding there:
#: |z| − log(1 + |tanh z|) cancels to z²/2 and would lose all digits of it.
_SMALL = {torch.float32: 0.25, torch.float64: 0.03}
#: Factors 1 + |tanh z| <= 2 that are multiplied before a logarithm: 2^64 is within float32.
_FACTORS = 64
#: Rows that are taken together, so that what lies between two passes stays in the cache.
_ROWS = 2048


class _LogCoshRows(torch.autograd.Function):
    """Σ_k log cosh z_ik, (N,), from z and s = tanh z, which is also its derivative.

    log cosh z = |z| − log(1 + |tanh z|), so that one logarithm serves a whole row; its series where
    z is near 0, in blocks that hold rows of small energy.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, s: Tensor) -> Tensor:
        ctx.save_for_backward(s)
        parts = zip(z.split(_ROWS), s.split(_ROWS), strict=True)
        return torch.cat([_log_cosh_rows(*part) for part in parts])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (s,) = ctx.saved_tensors
        return gradients[0].unsqueeze(1) * s, None


def _log_cosh_rows(z: Tensor, s: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return _small_log_cosh_rows(z, s)
    out = z.abs().sum(1)
    for factors in s.abs().add_(1).split(_FACTORS, dim=1):
        out -= factors.prod(1).log_()
    # What cancels at small entries is seen only in rows that hold no others.
    if len(out) and bool(out.min() < z.shape[1] * _SMALL[z.dtype] ** 2 / 2):
        return _small_log_cosh_rows(z, s)
    return out


def _small_log_cosh_rows(z: Tensor, s: Tensor) -> Tensor:
    """The same with the series near 0: three times the passes."""
    size, square = z.abs(), z * z
    small = size < _SMALL[z.dtype]
    series = square * (0.5 - square * (1 / 12 - square * (1 / 45 - square * (17 / 2520))))
    out = torch.where(small, series, size).sum(1)
    for factors in s.abs().add_(1).masked_fill_(small, 1.0).split(_FACTORS, dim=1):
        out -= factors.prod(1).log_()
    return out
