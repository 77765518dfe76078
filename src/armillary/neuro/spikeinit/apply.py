"""Initialise a network that is there: its weights in place, its neurons' surrogates."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from armillary.neuro.spikeinit.adapters import KNOWN, Readers, set_surrogate
from armillary.neuro.spikeinit.solving import SpikeInitParams, solve, warn_if_unstable
from armillary.neuro.spikeinit.theory import Method, Neuron, Surrogate
from armillary.neuro.spikeinit.tracing import Call, trace

First = Literal["auto", "static", "spikes"]
Residual = Literal["auto", "ms", "sew"]
Role = Literal["first", "hidden", "linear", "branch", "sew", "shortcut", "classifier", "untouched"]

#: Φ⁻¹(0.99).
_Z01 = 2.3263478740408408


class NormalisationFound(UserWarning):
    """A normalisation stands between a weight layer and its neurons: its scale undoes σ."""


class UnstandardisedInput(UserWarning):
    """The input of the first layer is far from an RMS of 1."""


@dataclasses.dataclass(frozen=True)
class LayerReport:
    """What happened to a weight layer.

    Attributes:
        name: dotted name.
        role: ``first`` (sees the data), ``hidden``, ``branch`` (last of a residual branch whose
            sum is a membrane: zero), ``sew`` (last of a branch whose sum are spikes),
            ``shortcut`` (acts on a sum of membranes: keeps variance), ``linear`` (another weight
            layer follows with no neuron between: keeps variance), ``classifier`` (zero) or
            ``untouched``.
        sigma: of the weights, times the square root of the fan-in; NaN where untouched.
        fan_in: inputs of a neuron, without those on padding.
        neuron: the neuron that follows, or ``""``.
        note: why, where that needs a word.
    """

    name: str
    role: Role
    sigma: float
    fan_in: float
    neuron: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class InitReport:
    """What `init_` did.

    Attributes:
        layers: one a weight layer, in the order of the calls.
        surrogates: neuron -> what was set.
        params: neuron -> the parameters that it was given.
        depth: weight layers on the longest way through the network.
    """

    layers: tuple[LayerReport, ...]
    surrogates: Mapping[str, str]
    params: Mapping[str, SpikeInitParams]
    depth: int

    @property
    def untouched(self) -> tuple[str, ...]:
        """Weight layers that were left as they were."""
        return tuple(layer.name for layer in self.layers if layer.role == "untouched")

    def __str__(self) -> str:
        rows = [
            f"{x.name:28s} {x.role:11s} sigma={x.sigma:<8.4g} fan_in={x.fan_in:<8.4g} "
            f"-> {x.neuron or '-'} {x.note}".rstrip()
            for x in self.layers
        ]
        return "\n".join(rows)


def spiking_normal_(
    weight: Tensor,
    sigma: float,
    fan_in: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Fill a weight with N(0, sigma²/fan_in), in place.

    Args:
        weight: (out, in, ...).
        sigma: from `solve`; 0 fills with zeros.
        fan_in: default: the product of all axes but the first.
        generator: source of randomness; default: torch's own.
    """
    if weight.ndim < 2:
        raise ValueError(f"weight has the shape {tuple(weight.shape)}; expected (out, in, ...)")
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError(f"sigma={sigma!r}: expected a finite number >= 0")
    fan_in = float(weight[0].numel()) if fan_in is None else fan_in
    with torch.no_grad():
        return weight.normal_(0.0, sigma / math.sqrt(fan_in), generator=generator)


def init_(
    module: nn.Module,
    params: SpikeInitParams | None = None,
    *,
    sample: Any,
    forward: Callable[[nn.Module, Any], Any] | None = None,
    rate: float | Literal["auto"] = 0.1,
    method: Method = "auto",
    first: First = "auto",
    residual: Residual | None = "auto",
    roles: Mapping[str, Role] | None = None,
    surrogate: bool | Surrogate = True,
    neurons: Readers | None = None,
    generator: torch.Generator | None = None,
) -> InitReport:
    """Initialise a spiking network in place, so that rates and gradients keep over depth.

    One forward pass finds which neuron follows which weight layer; each neuron's constants are read
    from it, and each weight layer is drawn for the neuron that follows. Biases become zero.

    Args:
        module: a network of torch weight layers and of SpikingJelly (`activation_based`), snnTorch
            (`Leaky`) or this package's neurons.
        params: from `solve`; its rate, method and surrogate win over the arguments here. Neurons
            with other constants than its own are solved anew with these.
        sample: a batch of standardised inputs, as the network takes them.
        forward: runs the network: ``forward(module, sample)``. Default: ``module(sample)``. Loops
            over time that stand outside the network go here.
        rate: spikes a neuron and step; see `solve`.
        method: see `solve`.
        first: how the layers that see the data are driven: ``static`` (the same at every step:
            direct coding), ``spikes`` (anew at each step), ``auto``: as the sample is.
        residual: rule of residual branches: ``ms``: the last weight layer of a branch whose sum is
            a membrane becomes zero, ``sew``: that of a branch whose sum are spikes is set to fire
            in one step of a hundred; ``auto``: both where found; None: branches are like other
            layers. With residual branches the classifier becomes zero.
        roles: layer -> role, where the rule above errs.
        surrogate: whether neurons get the surrogate of the theory (and a detached reset); a name
            chooses which.
        neurons: readers of your own neuron classes, ``{MyLIF: lambda m: Neuron(...)}``.
        generator: source of randomness; default: torch's own. Equal seeds give equal weights on
            every rank of a distributed run.

    Returns:
        What was done to each layer. Layers with no spiking neuron after them, and those before a
        normalisation, are listed as untouched.

    Raises:
        UnsupportedNeuron: a spiking neuron of an unknown kind.
        ValueError: an argument is out of its range, or no spiking neuron follows a weight layer.

    Warns:
        NormalisationFound: a normalisation stands before a neuron.
        UnstandardisedInput: the RMS of the input is outside 0.5 to 2.
        UnstableRate: an error of the rate would grow over more than 20 layers in a row.
    """
    _check_choice("first", first, get_args(First))
    _check_choice("residual", residual, (None, *get_args(Residual)))
    run = (lambda m: m(sample)) if forward is None else (lambda m: forward(m, sample))
    calls = trace(module, run, neurons)
    after = _consumers(calls)
    if not any(after.values()):
        raise ValueError(
            "no weight layer of the module is followed by a spiking neuron in this forward pass: "
            f"check sample and forward; known are {'; '.join(KNOWN)}, and your own classes by "
            "neurons={MyLIF: lambda module: Neuron(kappa, lam, theta)}"
        )
    solved = _solve_each(calls, params, rate, method, surrogate)
    assigned = _roles(calls, after, residual, roles or {})
    report = []
    for name, call in calls.items():
        if call.kind == "weight":
            follows = calls[after[name][0]] if after[name] else None
            if assigned[name] == "first" and follows is not None:
                sigma, note = _first_sigma(
                    _data_of(calls, call), follows, solved[follows.name], first
                )
            else:
                sigma, note = _later_sigma(assigned[name], follows, solved)
            report.append(_fill(call, assigned[name], follows, sigma, note, generator))
    set_ = {}
    if surrogate is not False:
        for name, found in solved.items():
            call = calls[name]
            assert call.neuron is not None
            set_[name] = set_surrogate(call.module, call.neuron, found)
    depth = max(call.depth for call in calls.values())
    if "branch" not in assigned.values():
        warn_if_unstable(max(solved.values(), key=lambda p: p.slope), depth)
    return InitReport(tuple(report), set_, solved, depth)


def _check_choice(name: str, given: Any, known: tuple[Any, ...]) -> None:
    if given not in known:
        raise ValueError(f"{name}={given!r}: expected one of {', '.join(map(repr, known))}")


# ---- what follows what -------------------------------------------------------------------------


def _consumers(calls: Mapping[str, Call]) -> dict[str, list[str]]:
    """Weight layer -> the neurons that its output reaches, through normalisations or not."""
    after: dict[str, list[str]] = {n: [] for n, c in calls.items() if c.kind == "weight"}
    for name, call in calls.items():
        if call.kind == "neuron":
            for source in _through_norms(calls, call)[0]:
                after[source].append(name)
    return after


def _through_norms(calls: Mapping[str, Call], call: Call) -> tuple[set[str], set[str]]:
    """The weight layers that feed a call, and those of them behind a normalisation."""
    direct: set[str] = set()
    normalised: set[str] = set()
    for source in call.sources:
        if calls[source].kind == "weight":
            direct.add(source)
        elif calls[source].kind == "norm":
            normalised |= _through_norms(calls, calls[source])[0]
    return direct | normalised, normalised


def _roles(
    calls: Mapping[str, Call],
    after: Mapping[str, list[str]],
    residual: Residual | None,
    given: Mapping[str, Role],
) -> dict[str, Role]:
    unknown = sorted(set(given) - set(after))
    if unknown:
        raise ValueError(
            f"roles names {unknown}, no weight layer that ran; there are {list(after)}"
        )
    for name, role in given.items():
        _check_choice(f"roles[{name!r}]", role, get_args(Role))
    branches = _membrane_branches(calls) if residual in ("auto", "ms") else set()
    spiking = _spike_branches(calls) if residual in ("auto", "sew") else set()
    behind_norm = {
        layer
        for call in calls.values()
        if call.kind == "neuron"
        for layer in _through_norms(calls, call)[1]
    }
    if behind_norm:
        warnings.warn(
            f"{len(behind_norm)} weight layers stand before a normalisation, whose scale undoes "
            f"sigma: they are left as they are ({', '.join(sorted(behind_norm)[:3])}, ...). Take "
            "the normalisations out to train without them",
            NormalisationFound,
            stacklevel=3,
        )
    linear = _linear(calls, after)
    last = max(after, key=lambda name: calls[name].depth)
    roles: dict[str, Role] = {}
    for name, consumers in after.items():
        call = calls[name]
        kinds = {calls[s].kind for s in call.sources}
        if name in given:
            roles[name] = given[name]
        elif name in behind_norm:
            roles[name] = "untouched"
        elif not consumers and name in linear:
            roles[name] = "linear"
        elif not consumers:
            end = (branches or spiking) and name == last
            roles[name] = "classifier" if end else "untouched"
        elif name in branches:
            roles[name] = "branch"
        elif not call.sources:
            roles[name] = "first"
        elif call.sources <= linear:
            roles[name] = "hidden" if _data_of(calls, call).sources else "first"
        elif kinds == {"weight"}:
            roles[name] = "shortcut"
        else:
            roles[name] = "sew" if name in spiking else "hidden"
    return roles


def _linear(calls: Mapping[str, Call], after: Mapping[str, list[str]]) -> set[str]:
    """Weight layers that no neuron follows but another weight layer which a neuron does."""
    found: set[str] = set()
    for name in reversed(list(after)):
        if after[name] or name in found:
            found |= {s for s in calls[name].sources if s in after and not after[s]}
    return found


def _data_of(calls: Mapping[str, Call], call: Call) -> Call:
    """The first of the weight layers in a row that a weight layer ends."""
    while call.sources and all(calls[s].kind == "weight" for s in call.sources):
        call = min((calls[s] for s in call.sources), key=lambda c: c.depth)
    return call


def _later(calls: Mapping[str, Call], sources: frozenset[str]) -> set[str]:
    """Of the summands of a sum, those that are not the trunk: deeper than the least deep."""
    least = min(calls[s].depth for s in sources)
    return {s for s in sources if calls[s].depth > least}


def _membrane_branches(calls: Mapping[str, Call]) -> set[str]:
    """Weight layers that are added to a trunk before a neuron (or a readout) sees the sum."""
    return {
        layer
        for call in calls.values()
        for sources, summed in call.inflows
        if summed and len(sources) > 1
        for layer in _later(calls, sources)
        if calls[layer].kind == "weight"
    }


def _spike_branches(calls: Mapping[str, Call]) -> set[str]:
    """Weight layers whose neuron's spikes are added to those of a trunk."""
    found = set()
    for call in calls.values():
        for sources, summed in call.inflows:
            if not summed or len(sources) < 2:
                continue
            for neuron in _later(calls, sources):
                if calls[neuron].kind == "neuron":
                    found |= {s for s in calls[neuron].sources if calls[s].kind == "weight"}
    return found


# ---- what each gets ----------------------------------------------------------------------------


def _solve_each(
    calls: Mapping[str, Call],
    params: SpikeInitParams | None,
    rate: float | Literal["auto"],
    method: Method,
    surrogate: bool | Surrogate,
) -> dict[str, SpikeInitParams]:
    """Each neuron's parameters, from its own constants."""
    kind: Surrogate = surrogate if isinstance(surrogate, str) else "piecewise_exp"
    solved = {}
    for name, call in calls.items():
        if call.neuron is None:
            continue
        constants = call.neuron.constants
        if params is not None and constants == params.neuron:
            solved[name] = params
        elif params is not None:
            wanted = method if params.method == "moments" else params.method
            solved[name] = _solve(
                constants, params.rate, params.T or call.steps, params.surrogate, wanted
            )
        else:
            solved[name] = _solve(constants, rate, call.steps, kind, method)
    return solved


def _solve(
    n: Neuron, rate: float | Literal["auto"], T: int, surrogate: Surrogate, method: Method
) -> SpikeInitParams:
    return solve(n.kappa, n.lam, n.theta, rate, T, n.reset, surrogate, method, n.refractory)


def _later_sigma(
    role: Role, follows: Call | None, solved: Mapping[str, SpikeInitParams]
) -> tuple[float, str]:
    """σ of a layer that does not see the data, NaN where it is left alone; and a note."""
    if role == "untouched":
        return (
            math.nan,
            "no spiking neuron after it" if follows is None else "before a normalisation",
        )
    if role in ("branch", "classifier"):
        return 0.0, ""
    if role == "linear":
        return 1.0, "a weight layer follows"
    if role == "shortcut":
        return 1.0, ""
    if follows is None:
        raise ValueError(f"role {role!r}: no spiking neuron follows the layer, so it has no sigma")
    params = solved[follows.name]
    return (_sew_sigma(params) if role == "sew" else params.sigma), ""


def _fill(
    call: Call,
    role: Role,
    follows: Call | None,
    sigma: float,
    note: str,
    generator: torch.Generator | None,
) -> LayerReport:
    layer: Any = call.module
    fan_in = layer.weight[0].numel() * call.coverage
    if role != "untouched":
        spiking_normal_(layer.weight, sigma, fan_in, generator)
        if layer.bias is not None:
            with torch.no_grad():
                layer.bias.zero_()
    return LayerReport(call.name, role, sigma, fan_in, follows.name if follows else "", note)


def _first_sigma(
    data: Call, follows: Call, params: SpikeInitParams, first: First
) -> tuple[float, str]:
    """σ of a layer that sees the data, whose second moment is measured."""
    if not data.inputs:
        raise ValueError(f"role 'first': the input of {data.name} is not the data")
    values = torch.stack([x.float() for x in data.inputs])
    rms = float(values.square().mean().sqrt())
    if not math.isfinite(rms) or rms == 0:
        raise ValueError(f"sample: the input of {data.name} has the RMS {rms}; expected about 1")
    binary = bool(((values == 0) | (values == 1)).all())
    static = first == "static" or (first == "auto" and not _changes(values, data, follows))
    if not binary and not 0.5 <= rms <= 2:
        warnings.warn(
            f"the input of {data.name} has the RMS {rms:.3g}: standardise it to about 1 (weights "
            "are divided by it now, but data of another scale later will not fire at this rate)",
            UnstandardisedInput,
            stacklevel=3,
        )
    if static:
        return params.sigma_static / rms, f"static input, RMS {rms:.3g}"
    # Var[λx] = (σλ)² E[s²], with E[s²] = p for spikes at the design's own rate.
    return params.sigma * math.sqrt(params.rate) / rms, f"input over time, RMS {rms:.3g}"


def _changes(values: Tensor, data: Call, follows: Call) -> bool:
    """Whether the data differ from time step to time step.

    Args:
        values: (calls, ...) inputs of the layer.
        data: the layer.
        follows: the neuron after it.
    """
    assert follows.neuron is not None
    if len(values) == 1:
        if not follows.neuron.multi_step or follows.size > data.size:
            return False  # the layer ran once, and its output is repeated over time
        # Time is the leading part of axis 0, which may hold (time, batch) in one.
        steps = follows.steps if values.shape[1] % follows.steps == 0 else values.shape[1]
        values = values[0].unflatten(0, (steps, -1))
    return len(values) > 1 and not torch.equal(values, values[:1].expand_as(values))


def _sew_sigma(params: SpikeInitParams) -> float:
    """σ of the last layer of a spike-sum branch: it fires in about one step of a hundred even when
    half of its inputs fire at every step alike."""
    n = params.neuron
    reach = 1 / (1 - n.kappa) if n.kappa < 1 else float(params.T or 4)
    return n.theta / _Z01 / (n.lam * math.sqrt(0.5) * reach)
