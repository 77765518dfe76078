"""Which neuron follows which weight layer: read from the autograd graph of one forward pass.

The order of calls pairs layers wrongly as soon as there are branches. The graph does not: from the
input of a neuron it leads back to the outputs of the layers that were summed in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from armillary.neuro.spikeinit.adapters import Readers, Recognised, recognise, reset_states

WEIGHT_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NORM_LAYERS = (
    nn.modules.batchnorm._NormBase,  # batch and instance norms
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
_IN_PLACE_SUMS = (Tensor.__iadd__, Tensor.__isub__, Tensor.add_, Tensor.sub_)


@dataclasses.dataclass
class Call:
    """A module of interest in the pass.

    Attributes:
        name: dotted name.
        module: itself.
        kind: ``weight``, ``neuron`` or ``norm``.
        sources: names of the modules of interest whose outputs reach its input directly; of a
            neuron or normalisation that is called for several layers, those of all calls.
        inflows: the sources of each call and whether they were added to each other (and not
            concatenated), each kind of call once; of weight layers the first call.
        depth: weight layers on the longest way to here, itself included.
        inputs: detached inputs, one a call: kept for the first layers only.
        calls: how often it ran.
        neuron: what kind of neuron it is.
        steps: time steps that a neuron saw.
        size: elements of a neuron's input, or of a weight layer's output, in the first call.
        coverage: share of a convolution's taps that lie on the image and not on its padding.
    """

    name: str
    module: nn.Module
    kind: str
    sources: frozenset[str] = frozenset()
    inflows: list[tuple[frozenset[str], bool]] = dataclasses.field(default_factory=list)
    depth: int = 0
    inputs: list[Tensor] = dataclasses.field(default_factory=list)
    calls: int = 0
    neuron: Recognised | None = None
    steps: int = 0
    coverage: float = 1.0
    size: int = 0


def trace(
    module: nn.Module, forward: Callable[[nn.Module], Any], own: Readers | None = None
) -> dict[str, Call]:
    """Run the module once and find what feeds what.

    Args:
        module: any module; parameters, gradients and buffers are left as they were.
        forward: runs it once.
        own: readers of the user's own neuron classes.

    Returns:
        The weight layers, neurons and normalisations that ran, by name, in the order of their
        first calls. A module under several names stands once, under its first.

    Raises:
        UnsupportedNeuron: a spiking neuron of an unknown kind.
    """
    found: dict[str, Call] = {}
    walker = _Walker()
    handles = []
    for name, part in module.named_modules():
        neuron = recognise(name, part, own)
        if neuron is not None:
            call = Call(name, part, "neuron", neuron=neuron)
        elif isinstance(part, WEIGHT_LAYERS):
            call = Call(name, part, "weight")
        elif isinstance(part, NORM_LAYERS):
            call = Call(name, part, "norm")
        else:
            continue
        handles.append(part.register_forward_pre_hook(_before(call, found, walker)))
        handles.append(part.register_forward_hook(_after(call, walker)))
    try:
        with _undisturbed(module), torch.enable_grad(), _Sums(walker):
            forward(module)
    finally:
        for handle in handles:
            handle.remove()
        reset_states(module)
    for call in found.values():
        _count_steps(call)
    return found


def _count_steps(call: Call) -> None:
    """A user's own neuron that does not say so is single-step if it ran again for one layer."""
    if call.neuron is None:
        return
    uses = max(1, len(call.inflows))
    unsaid = call.neuron.library == "own" and not hasattr(call.module, "step_mode")
    if unsaid and call.calls > uses:
        call.neuron = call.neuron._replace(multi_step=False)
    if not call.neuron.multi_step:
        call.steps = max(1, call.calls // uses)


def _before(call: Call, found: dict[str, Call], walker: _Walker) -> Callable:
    def record(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        x = inputs[0]
        call.calls += 1
        if call.neuron is not None and call.neuron.multi_step:
            call.steps = len(x)
        if call.kind == "weight" and (not call.sources):
            call.inputs.append(x.detach())
        if call.calls > 1 and call.kind == "weight":
            return
        sources, summed = walker.sources(x)
        if call.calls == 1:
            found[call.name] = call
            call.size = x.numel()
            if isinstance(call.module, nn.Conv2d):
                call.coverage = _coverage(call.module, x)
        elif not _is_another_use(call, sources):
            return
        call.inflows.append((sources, summed))
        call.sources |= sources
        if call.sources:
            call.inputs.clear()
        before = [found[name].depth for name in sources if name in found]
        call.depth = max(call.depth, max(before, default=0) + (call.kind == "weight"))

    return record


def _is_another_use(call: Call, sources: frozenset[str]) -> bool:
    """Whether a later call serves other layers than those before, and is not the next time step.

    From the second step on, what is fed back joins the sources of a single-step neuron: that is no
    other use of it.
    """
    before = [names for names, _ in call.inflows]
    if call.neuron is not None and not call.neuron.multi_step:
        return not any(names <= sources for names in before)
    return sources not in before


def _after(call: Call, walker: _Walker) -> Callable:
    def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if call.kind == "norm" and not call.sources:
            return  # a normalisation of the data: what follows still sees the data
        for tensor in output if isinstance(output, tuple) else (output,):
            if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
                if call.kind == "weight" and call.calls == 1:
                    call.size = tensor.numel()
                walker.mark(tensor.grad_fn, call.name)
                # What is added in place to a view is written into the graph of its base.
                base = tensor._base
                if base is not None and base.grad_fn is not None:
                    walker.mark(base.grad_fn, call.name)

    return record


def _coverage(conv: nn.Conv2d, x: Tensor) -> float:
    """Mean share of a kernel's taps that meet the image: fan-in is smaller at the borders."""
    if conv.padding_mode != "zeros":
        return 1.0
    ones = torch.ones(1, 1, *x.shape[-2:])
    kernel = torch.ones(1, 1, *conv.kernel_size)
    with torch.no_grad():
        met = nn.functional.conv2d(ones, kernel, None, conv.stride, conv.padding, conv.dilation)
    return float(met.mean()) / kernel.numel()


class _Walker:
    """Back along the autograd graph to the nearest marked outputs, each node visited once."""

    def __init__(self) -> None:
        self.marks: dict[Any, str] = {}
        self.known: dict[Any, tuple[frozenset[str], bool]] = {}
        self.sums: set[Any] = set()

    def mark(self, node: Any, name: str) -> None:
        self.marks[node] = name
        self.known.pop(node, None)

    def sources(self, x: Any) -> tuple[frozenset[str], bool]:
        node = x.grad_fn if isinstance(x, Tensor) else None
        return (frozenset(), False) if node is None else self._reach(node)

    def _reach(self, start: Any) -> tuple[frozenset[str], bool]:
        stack = [start]
        while stack:
            node = stack[-1]
            if node in self.known:
                stack.pop()
                continue
            if node in self.marks:
                self.known[node] = (frozenset((self.marks[node],)), False)
                continue
            parents = [parent for parent, _ in node.next_functions if parent is not None]
            unknown = [parent for parent in parents if parent not in self.known]
            if unknown:
                stack += unknown
                continue
            reached = [self.known[parent] for parent in parents]
            names = frozenset().union(*(names for names, _ in reached))
            adds = len(reached) > 1 and (
                node in self.sums or type(node).__name__.startswith(("Add", "Sub"))
            )
            self.known[node] = (names, adds or any(summed for _, summed in reached))
        return self.known[start]


class _Sums(TorchFunctionMode):
    """Notes additions in place to a view, which the graph does not tell from an assignment."""

    def __init__(self, walker: _Walker) -> None:
        super().__init__()
        self.walker = walker

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func in _IN_PLACE_SUMS and isinstance(out, Tensor) and out.grad_fn is not None:
            written = [node for node, _ in out.grad_fn.next_functions if node is not None]
            self.walker.sums |= {n for n in written if type(n).__name__ == "CopySlices"}
        return out


@contextlib.contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Weights require gradients, buffers (of normalisations) do not move."""
    frozen = [p for p in module.parameters() if not p.requires_grad]
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in buffers and buffer.shape == buffers[name].shape:
                    buffer.copy_(buffers[name])
