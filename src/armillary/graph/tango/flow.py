"""`TangoConv`: features descend an energy and slide along its level sets.

One step, in the symbols of the docs page: G = ∇V(H), M = act(backbone(H)),
T = M − (⟨M, G⟩ / (‖G‖² + ε)) G graph by graph, H ← H + h (−αG + βT), then back to the allowed
level of V. Source: Eliasof, Haber, Schönlieb, "TANGO: Graph Neural Dynamics via Learned Energy and
Tangential Flows", ICML 2026 (arXiv 2508.05070); the energy, the step rule, the scope of the
projection and the correction are our reconstruction.

Legend of shapes: N nodes, E edges, G graphs, c channels, L steps.
"""

from __future__ import annotations

import copy
import math
import warnings
from typing import TYPE_CHECKING, Literal, NamedTuple, overload

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from armillary.graph.tango.backbones import Convolution, Foreign, make_backbone
from armillary.graph.tango.energy import EnergyModule, LogCoshEnergy, Point
from armillary.graph.tango.operators import Propagation, Segments
from armillary.graph.tango.stability import Motion, Repairs, clipped, corrected, risen

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int64, Shaped

Stable = Literal["correct", "clip", "none"]
Projection = Literal["graph", "node", "none"]


class FlowTrace(NamedTuple):
    """What the energy did along a flow. All tensors are detached.

    Attributes:
        energy: (L+1, G) V before each step and after the last one. With weights of its own for
            each step, every row is the energy of the step that follows it.
        change: (L, G) V after a step minus V before it, by the energy of that step.
        rising: (L, G) whether that change is a rise beyond the rounding of the sum.
        grad_norm: (L, G) ‖G‖.
        tangent_norm: (L, G) ‖T‖.
        cosine: (L, G) ⟨T, G⟩ / (‖T‖ ‖G‖), 0 where one of them is 0.
        repairs: graphs that needed more Newton steps, a halved h, or pure descent.
    """

    energy: Float[Tensor, "L+1 G"]
    change: Float[Tensor, "L G"]
    rising: Bool[Tensor, "L G"]
    grad_norm: Float[Tensor, "L G"]
    tangent_norm: Float[Tensor, "L G"]
    cosine: Float[Tensor, "L G"]
    repairs: Repairs


class Step(torch.nn.Module):
    """The weights of one step: an energy, a backbone, α and β."""

    def __init__(
        self,
        energy: LogCoshEnergy | EnergyModule,
        backbone: torch.nn.Module,
        alpha: float,
        beta: float,
    ) -> None:
        super().__init__()
        self.energy, self.backbone = energy, backbone
        self._start = (alpha, beta)
        self.raw_alpha = torch.nn.Parameter(torch.empty(())) if alpha else None
        self.raw_beta = torch.nn.Parameter(torch.empty(())) if beta else None
        self._reset_rates()

    def _reset_rates(self) -> None:
        alpha, beta = self._start
        if self.raw_alpha is not None:  # softplus(raw) = alpha
            torch.nn.init.constant_(self.raw_alpha, math.log(math.expm1(alpha)))
        if self.raw_beta is not None:
            torch.nn.init.constant_(self.raw_beta, beta)

    def reset_parameters(self) -> None:
        for part in (self.energy, self.backbone):
            reset = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()
        self._reset_rates()

    def alpha(self, like: Tensor) -> Tensor:
        """α >= 0."""
        if self.raw_alpha is None:
            return like.new_zeros(())
        return torch.nn.functional.softplus(self.raw_alpha)

    def beta(self) -> Tensor | None:
        """β, or None where the tangent part is off."""
        return self.raw_beta


class TangoConv(torch.nn.Module):
    """Node features along the TANGO flow.

    Args:
        channels: c, of input and output.
        num_steps: L >= 1. For node tasks at least the distance that a signal has to travel.
        backbone: ``gcn`` (ours, shares ÂH with the energy), a name in ``BACKBONES``, or a PyG
            convolution from c to c channels (copied for each step where weights are not shared).
        energy: ``logcosh``, or an `EnergyModule`.
        alpha: α at the start, learnt through a softplus; exactly 0 switches descent off for good.
            Keep it at 0.2 or below: larger rates swallow the signal.
        beta: β at the start, learnt; exactly 0 switches the tangent flow off for good.
        step: h, 0.1 to 1.
        stable: ``correct`` returns each step to the allowed level of the energy (V does not rise),
            ``clip`` shortens the tangent part by a bound on the curvature (V does not rise, but
            motion dies where V is flat, and spectral norms make it the dearest), ``none`` takes
            the plain step.
        projection: ``graph`` takes inner products over all nodes and channels of a graph: this
            scalar is a graph-wide channel, and the mechanism behind long reach. ``node`` and
            ``none`` are there for ablations and for sampled subgraphs.
        share_weights: one energy and backbone for all steps, or one each.
        rho: ρ of the log-cosh energy.
        dropout: on the messages only, so that the energy's statement stands.
        checkpointing: recompute each step in backward: memory of L·N·c, one more forward.

    Raises:
        ValueError: a setting is out of its range, or ``clip`` is asked of an energy without a
            bound on its curvature.
        TypeError: ``energy`` is none of the above.
    """

    def __init__(
        self,
        channels: int,
        num_steps: int = 8,
        backbone: str | torch.nn.Module = "gcn",
        energy: str | EnergyModule = "logcosh",
        alpha: float = 0.05,
        beta: float = 1.0,
        step: float = 0.5,
        stable: Stable = "correct",
        projection: Projection = "graph",
        share_weights: bool = True,
        rho: float = 1e-3,
        *,
        dropout: float = 0.0,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        _check_settings(locals())
        self.channels, self.num_steps, self.step = channels, num_steps, step
        self.stable, self.projection, self.share_weights = stable, projection, share_weights
        self.checkpointing = checkpointing
        self.dropout = torch.nn.Dropout(dropout)
        self._warned = False  # of features of edges that no backbone reads
        made = 1 if share_weights else num_steps
        self.steps = torch.nn.ModuleList(
            Step(_energy(energy, channels, rho), _own(backbone, channels), alpha, beta)
            for _ in range(made)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew, from torch's generator."""
        for step in self.steps:
            step.reset_parameters()  # pyright: ignore

    @overload
    def forward(
        self, x: Tensor, edge_index: Tensor | Propagation, edge_attr: Tensor | None = ...,
        batch: Tensor | None = ..., return_trace: Literal[False] = ..., *,
        edge_weight: Tensor | None = ..., num_graphs: int | None = ...,
    ) -> Tensor: ...  # fmt: skip

    @overload
    def forward(
        self, x: Tensor, edge_index: Tensor | Propagation, edge_attr: Tensor | None = ...,
        batch: Tensor | None = ..., *, return_trace: Literal[True],
        edge_weight: Tensor | None = ..., num_graphs: int | None = ...,
    ) -> tuple[Tensor, FlowTrace]: ...  # fmt: skip

    def forward(
        self,
        x: Float[Tensor, "N c"],
        edge_index: Int64[Tensor, "2 E"] | Propagation,
        edge_attr: Shaped[Tensor, "E ..."] | None = None,
        batch: Int64[Tensor, " N"] | None = None,
        return_trace: bool = False,
        *,
        edge_weight: Float[Tensor, " E"] | None = None,
        num_graphs: int | None = None,
    ) -> Float[Tensor, "N c"] | tuple[Float[Tensor, "N c"], FlowTrace]:
        """Let features flow.

        Args:
            x: (N, c) features.
            edge_index: (2, E) sources and targets, or a `Propagation` made of them.
            edge_attr: (E, …) for backbones that read it; a warning tells, once, of those that do
                not, such as ``gcn``.
            batch: (N,) graph of each node; None: one graph. Unsorted ones are sorted for the time
                of the flow, with a warning.
            return_trace: also give a `FlowTrace`.
            edge_weight: (E,) non-negative weights of Â and of backbones that read them.
            num_graphs: G; None: as many as ``batch`` names. It matters for the trace where the last
                graphs of a batch have no nodes.

        Returns:
            (N, c) features, and the trace where it is asked for.

        Raises:
            ValueError: shapes do not match, or x is not finite (the message names the first node).
        """
        _check_features(x, self.channels)
        self._warn_of_edge_attr(edge_attr)
        if batch is not None and not torch.compiler.is_compiling() and _unsorted(batch):
            return self._in_order(
                x, edge_index, edge_attr, batch, return_trace, edge_weight, num_graphs
            )
        operator = as_operator(edge_index, x, edge_weight)
        segments = Segments(len(x), batch, x.device, num_graphs)
        record = _Record() if return_trace else None
        course = _Course(operator, segments, edge_attr, record)
        if self.checkpointing and torch.is_grad_enabled() and record is None:
            for i in range(self.num_steps):
                x = checkpoint(self._from_features, i, x, course, use_reentrant=False)
            return x
        point = self._point(0, x, operator, segments)
        for i in range(self.num_steps):
            if i and not self.share_weights:
                point = self._point(i, point.x, operator, segments)
            point = self._advance(i, point, course)
        return point.x if record is None else (point.x, record.trace(course.repairs))

    def _from_features(self, i: int, x: Tensor, course: _Course) -> Tensor:
        """One step, from features to features."""
        return self._advance(i, self._point(i, x, course.operator, course.segments), course).x

    def _warn_of_edge_attr(self, edge_attr: Tensor | None) -> None:
        """Once a layer: features of edges that nothing reads are not passed over in silence."""
        if edge_attr is None or self._warned or torch.compiler.is_compiling():
            return
        backbone = self._step(0).backbone
        if isinstance(backbone, Foreign) and "edge_attr" in backbone.takes:
            return
        self._warned = True
        name = "gcn" if isinstance(backbone, Convolution) else type(backbone.module).__name__
        warnings.warn(
            f"edge_attr is not used: the backbone {name} does not read it; take one that does "
            "(gatv2 with edge_dim, a GINEConv of your own), or leave edge_attr out",
            UserWarning,
            stacklevel=3,
        )

    def _in_order(
        self, x: Tensor, edge_index: Tensor | Propagation, edge_attr: Tensor | None,
        batch: Tensor, return_trace: bool, edge_weight: Tensor | None, num_graphs: int | None,
    ) -> Tensor | tuple[Tensor, FlowTrace]:  # fmt: skip
        """The flow with nodes sorted by graph, and its features in the order that was given."""
        warnings.warn(
            "batch is not sorted: nodes are sorted by graph for the time of the flow; sort them "
            "once to save that",
            UserWarning,
            stacklevel=3,
        )
        if isinstance(edge_index, Propagation):
            edge_index, edge_weight = edge_index.edge_index, edge_index.edge_weight
        order = torch.argsort(batch, stable=True)
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order), device=order.device)
        operator = Propagation(edge_index, len(x), edge_weight, x.dtype)  # checks before indexing
        found = self.forward(
            x[order],
            place[operator.edge_index],
            edge_attr,
            batch[order],
            return_trace,  # pyright: ignore
            edge_weight=edge_weight,
            num_graphs=num_graphs,
        )
        return found[place] if isinstance(found, Tensor) else (found[0][place], found[1])

    def _step(self, i: int) -> Step:
        return self.steps[0 if self.share_weights else i]  # pyright: ignore

    def _point(self, i: int, x: Tensor, operator: Propagation, segments: Segments) -> Point:
        return self._step(i).energy.at(x, operator, segments)

    def _advance(self, i: int, point: Point, course: _Course) -> Point:
        """One step of the flow."""
        step, operator, segments = self._step(i), course.operator, course.segments
        epsilon = _epsilon(point.x, segments)
        alpha, beta = step.alpha(point.x), step.beta()
        messages = along = None
        if beta is not None:
            messages = self._messages(step, point, course)
            along = self._along(messages, point, segments, epsilon)
        motion = Motion(
            point, messages, along, alpha, beta, self.step, epsilon, segments,
            lambda x: step.energy.at(x, operator, segments),
        )  # fmt: skip
        if self.stable == "correct":
            end = corrected(motion, lambda: course.bound(step), course.repairs)
        elif self.stable == "clip":
            bound = course.bound(step)
            assert bound is not None  # checked when the module was made
            end = clipped(motion, bound)
        else:
            end = motion.moved()
        if course.record is not None:
            course.record.add(point, end, motion.tangent, segments)
        return end

    def _messages(self, step: Step, point: Point, course: _Course) -> Tensor:
        """M = act(backbone(H)), (N, c)."""
        backbone = step.backbone
        if isinstance(backbone, Convolution):
            found = backbone.messages(point)
        else:
            found = backbone.messages(  # pyright: ignore
                point, course.operator, course.segments, course.edge_attr
            )
        found = torch.tanh(found)
        return self.dropout(found) if self.dropout.p else found

    def _along(
        self, messages: Tensor, point: Point, segments: Segments, epsilon: Tensor
    ) -> Tensor | None:
        """q = ⟨M, G⟩ / (‖G‖² + ε): T = M − qG is tangent to V's level set. Where G = 0, T = M."""
        gradient = point.gradient
        if self.projection == "none":
            return None
        if self.projection == "node":
            tiny = 1e-30 if gradient.dtype == torch.float64 else 1e-16
            squared = gradient.square().sum(1, keepdim=True) + tiny * self.channels
            return (messages * gradient).sum(1, keepdim=True) / squared
        # |qG| <= ‖M‖ however small G is: ε only spares 0/0, and a larger one would tilt T.
        q = segments.dot(messages, gradient) / (point.squared + 1e-8 * epsilon)
        return segments.spread(q).to(gradient.dtype)

    def energy(
        self,
        x: Float[Tensor, "N c"],
        edge_index: Int64[Tensor, "2 E"] | Propagation,
        batch: Int64[Tensor, " N"] | None = None,
        *,
        edge_weight: Float[Tensor, " E"] | None = None,
    ) -> Float[Tensor, " G"]:
        """(G,) V(x), of the first step where weights are not shared."""
        _check_features(x, self.channels)
        operator = as_operator(edge_index, x, edge_weight)
        return self._point(0, x, operator, Segments(len(x), batch, x.device)).energy

    def extra_repr(self) -> str:
        return (
            f"{self.channels}, num_steps={self.num_steps}, step={self.step:g}, "
            f"stable={self.stable!r}, projection={self.projection!r}, "
            f"share_weights={self.share_weights}"
        )


class _Course:
    """What all steps of one flow share.

    Attributes:
        operator: Â.
        segments: nodes to graphs.
        edge_attr: features of edges, or None.
        record: collects the trace, where one is asked for.
        repairs: counts what the correction needed.
    """

    def __init__(
        self, operator: Propagation, segments: Segments, edge_attr: Tensor | None,
        record: _Record | None,
    ) -> None:  # fmt: skip
        self.operator, self.segments, self.edge_attr = operator, segments, edge_attr
        self.record, self.repairs = record, Repairs()
        self._bounds: dict[Step, Tensor | None] = {}

    def bound(self, step: Step) -> Tensor | None:
        """Λ of a step's energy, found once a flow: its two spectral norms are dear."""
        if step not in self._bounds:
            self._bounds[step] = step.energy.curvature(self.operator)
        return self._bounds[step]


class _Record:
    """Collects a trace step by step."""

    def __init__(self) -> None:
        self.energies: list[Tensor] = []
        self.rows: list[tuple[Tensor, ...]] = []
        self.last: Tensor | None = None

    @torch.no_grad()
    def add(self, start: Point, end: Point, tangent: Tensor | None, segments: Segments) -> None:
        before, after = start.energy.detach(), end.energy.detach()
        g = start.gradient.detach().double()
        t = torch.zeros_like(g) if tangent is None else tangent.detach().double()
        norms = segments.sum(g.square()).sqrt(), segments.sum(t.square()).sqrt()
        product = norms[0] * norms[1]
        cosine = torch.where(product > 0, segments.sum(t * g) / product.clamp(min=1e-300), 0.0)
        self.energies.append(before)
        self.rows.append((after - before, risen(before, after), *norms, cosine))
        self.last = after

    def trace(self, repairs: Repairs) -> FlowTrace:
        assert self.last is not None
        change, rising, grad, tangent, cosine = (
            torch.stack(c) for c in zip(*self.rows, strict=True)
        )
        energy = torch.stack([*self.energies, self.last])
        return FlowTrace(energy, change, rising, grad, tangent, cosine, repairs)


def as_operator(
    edge_index: Tensor | Propagation, x: Tensor, edge_weight: Tensor | None = None
) -> Propagation:
    """Â of an edge index, or the operator that was given, its size checked against x."""
    if not isinstance(edge_index, Propagation):
        dtype = x.dtype if x.dtype == torch.float64 else torch.float32
        return Propagation(edge_index, len(x), edge_weight, dtype)
    if edge_weight is not None:
        raise ValueError("edge_weight belongs to the Propagation that was given: pass it there")
    if edge_index.num_nodes != len(x):
        raise ValueError(
            f"the operator is of {edge_index.num_nodes} nodes, x has {len(x)} rows: they must agree"
        )
    return edge_index


def _epsilon(x: Tensor, segments: Segments) -> Tensor:
    """(G,) ε = 1e-8 c N_g, or 1e-16 c N_g in float64, where the larger one would be seen."""
    relative = 1e-16 if x.dtype == torch.float64 else 1e-8
    dtype = x.dtype if x.dtype == torch.float64 else torch.float32
    return segments.counts.clamp(min=1).to(dtype) * (relative * x.shape[1])


def _unsorted(batch: Tensor) -> bool:
    return len(batch) > 1 and bool((batch[1:] < batch[:-1]).any())


def _check_features(x: Tensor, channels: int) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}: give a torch.Tensor (torch.as_tensor(x))")
    if x.ndim != 2 or x.shape[1] != channels:
        given = x.shape[1] if x.ndim == 2 else tuple(x.shape)
        raise ValueError(
            f"x has {given} channels, the layer has {channels}: x must be (N, {channels}); put a "
            "Linear before it, or make the layer of that width"
        )
    if not x.is_floating_point():
        raise TypeError(f"x holds {x.dtype}; it must hold floating-point numbers")
    refuse_non_finite(x)


def refuse_non_finite(x: Tensor) -> None:
    """Name the first node whose features are NaN or infinite."""
    # One pass in the usual case: a finite sum has finite terms.
    if torch.compiler.is_compiling() or bool(torch.isfinite(x.detach().sum())):
        return
    broken = (~torch.isfinite(x)).any(1).nonzero()
    if len(broken):
        raise ValueError(
            f"x is not finite at node {int(broken[0])} (the first of {len(broken)}): mend or "
            "impute it"
        )


def _energy(energy: str | EnergyModule, channels: int, rho: float) -> LogCoshEnergy | EnergyModule:
    if isinstance(energy, EnergyModule):
        return copy.deepcopy(energy)
    if energy != "logcosh":
        raise TypeError(f"energy={energy!r}: give 'logcosh' or an EnergyModule")
    return LogCoshEnergy(channels, rho)


def _own(backbone: str | torch.nn.Module, channels: int) -> torch.nn.Module:
    """A backbone with weights of its own."""
    module = copy.deepcopy(backbone) if isinstance(backbone, torch.nn.Module) else backbone
    return make_backbone(module, channels)


def _check_settings(given: dict) -> None:
    ranges = {
        "channels": (given["channels"] >= 1, "at least 1"),
        "num_steps": (given["num_steps"] >= 1, "at least 1"),
        "alpha": (0 <= given["alpha"] < math.inf, "finite and not negative"),
        "beta": (math.isfinite(given["beta"]), "finite"),
        "step": (0 < given["step"] < math.inf, "positive"),
        "stable": (given["stable"] in ("correct", "clip", "none"), "correct, clip or none"),
        "projection": (given["projection"] in ("graph", "node", "none"), "graph, node or none"),
        "rho": (0 <= given["rho"] < math.inf, "finite and not negative"),
        "dropout": (0 <= given["dropout"] < 1, "at least 0 and below 1"),
    }
    for name, (fine, accepted) in ranges.items():
        if not fine:
            raise ValueError(f"{name}={given[name]!r}: it must be {accepted}")
    if given["stable"] == "clip" and given["projection"] == "none":
        raise ValueError(
            "stable='clip' bounds a tangent field, and projection='none' leaves none: take "
            "stable='correct' or 'none'"
        )
    energy = given["energy"]
    unbounded = (
        isinstance(energy, EnergyModule) and type(energy).curvature is EnergyModule.curvature
    )
    if given["stable"] == "clip" and unbounded:
        raise ValueError(
            "stable='clip' needs a bound on the energy's curvature: give "
            f"{type(energy).__name__} a method curvature(operator), or take stable='correct'"
        )
