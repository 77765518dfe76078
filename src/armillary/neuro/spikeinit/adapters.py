"""Which modules are spiking neurons, what their constants are, and how their surrogate is set.

SpikingJelly's and snnTorch's classes are told by name along their inheritance, so that neither
library is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from torch import nn

from armillary.neuro.spikeinit.neurons import LIF, AdaptiveLIF, SurrogateSpike
from armillary.neuro.spikeinit.solving import SpikeInitParams
from armillary.neuro.spikeinit.theory import Neuron

#: A user's own neuron classes: how each one's constants are read.
Readers = Mapping[type[nn.Module], Callable[[Any], Neuron]]

KNOWN = (
    "armillary LIF and AdaptiveLIF",
    "SpikingJelly LIFNode, IFNode and ParametricLIFNode (v_reset 0 or None)",
    "snnTorch Leaky and Lapicque (reset_mechanism 'zero' or 'subtract')",
)


class UnsupportedNeuron(TypeError):
    """A spiking neuron whose equation is not known here."""

    def __init__(self, name: str, module: nn.Module, why: str = "") -> None:
        detail = f" ({why})" if why else ""
        super().__init__(
            f"{name or 'the module'} is a {type(module).__name__}{detail}, a spiking neuron whose "
            f"equation is not known; known are {'; '.join(KNOWN)}. Pass neurons={{"
            f"{type(module).__name__}: lambda module: Neuron(kappa, lam, theta, reset)}} if it is "
            "a leaky integrator, with method='sim' for constants that have no steady state"
        )


class Recognised(NamedTuple):
    """A spiking neuron.

    Attributes:
        constants: of its equation.
        multi_step: whether one call runs all time steps, on axis 0.
        library: whose it is.
    """

    constants: Neuron
    multi_step: bool
    library: Literal["armillary", "spikingjelly", "snntorch", "own"]


def recognise(name: str, module: nn.Module, own: Readers | None = None) -> Recognised | None:
    """The neuron that a module is, or None for any other module.

    Args:
        name: the module's dotted name, for messages.
        module: any module.
        own: readers of the user's own classes.

    Raises:
        UnsupportedNeuron: it is a spiking neuron of an unknown kind.
    """
    for kind, read in (own or {}).items():
        if isinstance(module, kind):
            return Recognised(read(module), getattr(module, "step_mode", "m") == "m", "own")
    if isinstance(module, LIF):
        return Recognised(module.neuron, True, "armillary")
    lineage = {f"{c.__module__.split('.')[0]}.{c.__name__}" for c in type(module).__mro__}
    if "spikingjelly.BaseNode" in lineage or "spikingjelly.SimpleBaseNode" in lineage:
        return Recognised(_jelly(name, module), module.step_mode == "m", "spikingjelly")  # pyright: ignore
    if "snntorch.SpikingNeuron" in lineage:
        return Recognised(_snntorch(name, module), False, "snntorch")
    if any(_is_other_jelly(kind) for kind in type(module).__mro__):
        raise UnsupportedNeuron(name, module)
    return None


def _is_other_jelly(kind: type) -> bool:
    """Whether a class is one of SpikingJelly's neurons that are no BaseNode (PSN, GatedLIFNode, …);
    its non-spiking nodes are readouts."""
    return (
        kind.__module__.startswith("spikingjelly.activation_based.neuron")
        and kind.__name__.endswith(("Node", "SN"))
        and "NonSpiking" not in kind.__name__
    )


def _jelly(name: str, module: Any) -> Neuron:
    kind = type(module).__name__
    if module.v_reset not in (None, 0.0):
        raise UnsupportedNeuron(name, module, f"v_reset={module.v_reset}")
    reset = "soft" if module.v_reset is None else "hard"
    theta = float(module.v_threshold)
    if kind in ("IFNode", "SimpleIFNode"):
        return Neuron(1.0, 1.0, theta, reset)
    if kind in ("LIFNode", "SimpleLIFNode"):
        leak = 1 / float(module.tau)
    elif kind == "ParametricLIFNode":
        leak = float(module.w.detach().sigmoid())
    else:
        raise UnsupportedNeuron(name, module)
    return Neuron(1 - leak, leak if module.decay_input else 1.0, theta, reset)


def _snntorch(name: str, module: Any) -> Neuron:
    if type(module).__name__ not in ("Leaky", "Lapicque"):
        raise UnsupportedNeuron(name, module)
    if module.beta.numel() > 1 or module.threshold.numel() > 1:
        raise UnsupportedNeuron(name, module, "a beta or threshold a neuron")
    mechanism = module.reset_mechanism
    if mechanism == "zero":
        reset = "hard"
    elif mechanism == "subtract":
        reset = "subtract" if module.reset_delay else "soft"
    else:
        raise UnsupportedNeuron(name, module, f"reset_mechanism={mechanism!r}")
    beta, gain = float(module.beta.detach().clamp(0, 1)), 1.0
    if type(module).__name__ == "Lapicque":
        # Its step is Euler's of RC dU/dt = -U + RI; its beta is the exponential's and not used.
        beta = 1 - float(module.time_step) / (float(module.R) * float(module.C))
        gain = float(module.time_step) / float(module.C)
        if beta < 0:
            raise UnsupportedNeuron(name, module, f"R·C below its time step, leak {beta:.3g}")
    return Neuron(beta, gain, float(module.threshold), reset)


def set_surrogate(module: Any, neuron: Recognised, params: SpikeInitParams) -> str:
    """Give a neuron the surrogate of ``params`` and detach its reset where the library lets one.

    Returns:
        What was set, in words; empty for a user's own class, which is left as it is.
    """
    if neuron.library == "armillary":
        module.surrogate = params.surrogate
        if isinstance(module, AdaptiveLIF):
            module.base = params.alpha * params.std
            return f"base={module.base:.4g}"
        module.alpha = params.alpha
        return f"alpha={params.alpha:.4g}"
    if neuron.library == "spikingjelly":
        from spikingjelly.activation_based import surrogate as jelly  # pyright: ignore

        # SpikingJelly's piecewise exponential is α/2 e^{-α|u|}: its α is twice ours.
        made: Any = {
            "piecewise_exp": lambda a: jelly.PiecewiseExp(alpha=2 * a),
            "atan": lambda a: jelly.ATan(alpha=a),
            "sigmoid": lambda a: jelly.Sigmoid(alpha=a),
            "triangle": lambda a: jelly.PiecewiseQuadratic(alpha=a),
        }[params.surrogate](params.alpha)
        module.surrogate_function = made
        module.detach_reset = True
        return f"surrogate_function={type(made).__name__}(alpha={made.alpha:.4g})"
    if neuron.library == "snntorch":
        module.spike_grad = SurrogateSpike(params.alpha, params.surrogate)
        return f"spike_grad={module.spike_grad!r}"
    return ""


def reset_states(module: nn.Module) -> None:
    """Forget the potentials that SpikingJelly's and snnTorch's neurons carry from a call to the
    next."""
    for part in module.modules():
        if type(part).__module__.startswith("spikingjelly.") and hasattr(part, "reset"):
            part.reset()  # pyright: ignore[reportCallIssue]
        elif type(part).__module__.startswith("snntorch.") and hasattr(part, "reset_mem"):
            part.reset_mem()  # pyright: ignore[reportCallIssue]
