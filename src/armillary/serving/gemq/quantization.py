"""Quantise a mixture of experts by a plan, layer by layer, and pack it.

Each decoder layer is calibrated on what the quantised layers before it give, as GPTQ does; an
expert's Hessian comes from its own tokens. A run that was interrupted goes on after the last layer
that it finished, if it was given a folder to keep them in.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from armillary import output
from armillary.serving.gemq import gptq as rounding
from armillary.serving.gemq.allocation import BitPlan
from armillary.serving.gemq.hf import GemqConfig, check_complete, mark, set_module
from armillary.serving.gemq.layouts import (
    Block,
    blocks,
    decoder_layers,
    expert_weights,
    inner_activation,
    is_shared,
    other_linears,
)
from armillary.serving.gemq.pack import PackedExperts, PackedLinear, PackedMatrix
from armillary.serving.gemq.router_ft import RouterFT, tune_routers
from armillary.serving.gemq.rtn import Coded, width_of

Quantizer = Literal["gptq", "rtn", "hqq"]
Bar = Callable[[Iterable[Any]], Iterable[Any]]
Pair = tuple[Coded, Coded]


@dataclasses.dataclass(frozen=True)
class QuantizedMoE:
    """A quantised model and what it came from.

    Attributes:
        model: a `PreTrainedModel` with packed experts: `generate`, `save_pretrained` and
            `AutoModelForCausalLM.from_pretrained` work.
        plan: the widths.
        report: bytes of experts as planned and resident, padded matrices, losses of router tuning.
    """

    model: Any
    plan: BitPlan
    report: dict[str, Any]

    def save(self, folder: str | os.PathLike[str], tokenizer: Any = None) -> Path:
        """Write the model to a folder that appears only when it is whole.

        Raises:
            FileExistsError: there is something at that place.
        """
        return save_whole(self, Path(folder), tokenizer)


def quantize(
    model: Any,
    plan: BitPlan,
    tokens: Tensor,
    *,
    quantizer: Quantizer = "gptq",
    attention_bits: int | None = 4,
    router_ft: RouterFT | None = None,
    router_tokens: Tensor | None = None,
    sequential: bool = True,
    inplace: bool = False,
    resume: str | os.PathLike[str] | None = None,
    bar: Bar = iter,
) -> QuantizedMoE:
    """Quantise the experts by a plan, the other linear layers at four bits, and pack everything.

    Args:
        model: a mixture-of-experts causal language model of transformers.
        plan: from `allocate`.
        tokens: (N, T) calibration sequences.
        quantizer: ``"gptq"``, ``"rtn"`` (to nearest, no calibration) or ``"hqq"`` (half-quadratic,
            no calibration; the package hqq, 2 to 4 bits).
        attention_bits: width of attention and dense feed-forward layers; None: left as they are.
            Shared experts get the plan's largest width.
        router_ft: settings of router tuning; None: none.
        router_tokens: (N, T) its text; None: ``tokens``.
        sequential: calibrate each layer on quantised inputs; False: on those of the full model.
        inplace: change the given model instead of a copy.
        resume: a folder for finished layers; a later call with the same one goes on after them.
        bar: wraps the layers, for a progress bar.

    Raises:
        ValueError: the plan is of another model.
        RuntimeError: resident bytes differ from the plan's by more than 1 %.
    """
    if quantizer not in ("gptq", "rtn", "hqq"):
        raise ValueError(f"quantizer={quantizer!r}: it must be 'gptq', 'rtn' or 'hqq'")
    full = model
    work = model if inplace else copy.deepcopy(model)
    work.eval().requires_grad_(False)
    found = blocks(work)
    names = tuple(block.name for block in found)
    if names != plan.layers or any(b.count != plan.bits.shape[1] for b in found):
        raise ValueError(
            f"the plan is of {len(plan.layers)} blocks of {plan.bits.shape[1]} experts; the model "
            f"has {len(found)} of {found[0].count}"
        )
    linears = _linears(work, plan, attention_bits)
    coded, others = round_layers(
        work, plan, linears, tokens, quantizer=quantizer, sequential=sequential, bar=bar,
        kept=None if resume is None else _Kept(Path(resume), plan, quantizer, linears, tokens),
    )  # fmt: skip
    report: dict[str, Any] = {"padded": _padded(work, plan)}
    if router_ft is not None:
        text = tokens if router_tokens is None else router_tokens
        report["router"] = tune_routers(work, text, router_ft, reference=None if inplace else full)
    config = GemqConfig(
        plan.group,
        {name: plan.bits[i].tolist() for i, name in enumerate(names)},
        linears,
    )
    pack_model(work, coded, others, plan.group)
    check_complete(work, config)
    resident = sum(block.experts.nbytes for block in blocks(work))
    report |= {"expert_bytes": resident, "planned_bytes": plan.bytes,
               "bf16_bytes": _bf16_bytes(full)}  # fmt: skip
    if abs(resident - plan.bytes) > 0.01 * plan.bytes:
        raise RuntimeError(
            f"experts take {resident:,} bytes, the plan says {plan.bytes:,}: something was left "
            "unquantised"
        )
    mark(work, config)
    return QuantizedMoE(work, plan, report)


def _linears(model: Any, plan: BitPlan, attention_bits: int | None) -> dict[str, int]:
    widths = {
        name: max(plan.widths) if is_shared(name) else attention_bits
        for name in other_linears(model)
    }
    return {name: bits for name, bits in widths.items() if bits is not None}


def _bf16_bytes(model: Any) -> int:
    total = 0
    for block in blocks(model):
        for e in range(block.count):
            total += 2 * sum(w.numel() for w in expert_weights(block.experts, e))
    return total


def _padded(model: Any, plan: BitPlan) -> list[str]:
    block = blocks(model)[0]
    gate_up, down = expert_weights(block.experts, 0)
    found = []
    for name, matrix in (("gate_up", gate_up), ("down", down)):
        if any(width_of(matrix.shape[1], b) != b for b in plan.widths):
            found.append(f"{name}: {matrix.shape[1]} features are no multiple of 64, 4 bits")
    return found


# ---- layer by layer -----------------------------------------------------------------------------


def round_layers(
    model: Any,
    plan: BitPlan,
    linears: Mapping[str, int],
    tokens: Tensor,
    *,
    quantizer: Quantizer = "gptq",
    sequential: bool = True,
    bar: Bar = iter,
    kept: _Kept | None = None,
) -> tuple[list[list[Pair]], dict[str, Coded]]:
    """Round every layer and leave the rounded weights in ``model`` as plain numbers.

    Returns:
        For each block its experts' (gate and up, down), and the other linear layers by name.
    """
    found = {block.layer: (i, block) for i, block in enumerate(blocks(model))}
    coded: list[list[Pair]] = [[] for _ in found]
    others: dict[str, Coded] = {}
    calibrated = quantizer == "gptq"
    with torch.no_grad():
        states, arguments = entering(model, tokens) if calibrated else ([], [])
        for n, layer in enumerate(bar(decoder_layers(model))):
            prefix = f"model.layers.{n}."
            here = {k.removeprefix(prefix): b for k, b in linears.items() if k.startswith(prefix)}
            done = kept.read(n) if kept is not None else None
            after = None
            if done is None:
                rounded_linears = _round_linears(
                    layer, here, plan.group, states, arguments, n, quantizer
                )
                if sequential:
                    _write_linears(layer, rounded_linears)
                pairs: list[Pair] = []
                if n in found:
                    i, block = found[n]
                    passed, after = _passed(layer, block, states, arguments, n)
                    pairs = round_experts(
                        block, plan.bits[i].tolist(), plan.group, passed, quantizer
                    )
                done = (pairs, rounded_linears)
                if kept is not None:
                    kept.write(n, *done)
            pairs, rounded_linears = done
            if calibrated and not sequential:
                states = after or through(layer, states, arguments, n)
            _write_linears(layer, rounded_linears)
            if n in found:
                i, block = found[n]
                coded[i] = pairs
                _write_experts(block, pairs)
            if calibrated and sequential:
                states = through(layer, states, arguments, n)
            others |= {prefix + name: value for name, value in rounded_linears.items()}
    return coded, others


def entering(model: Any, tokens: Tensor) -> tuple[list[Tensor], list[list[dict[str, Any]]]]:
    """What enters the first layer, a sequence at a time, and each layer's other arguments."""
    layers = decoder_layers(model)
    states: list[Tensor] = []
    arguments: list[list[dict[str, Any]]] = []
    current: list[dict[str, Any]] = []

    def first(_: Any, args: Any, kwargs: Any) -> None:
        states.append((args[0] if args else kwargs["hidden_states"]).detach())

    class Skip(nn.Module):
        """Stands in for a layer, so that only arguments are computed."""

        def __init__(self, layer: Any) -> None:
            super().__init__()
            for name in ("attention_type", "layer_type"):
                if hasattr(layer, name):
                    setattr(self, name, getattr(layer, name))

        def forward(self, hidden_states: Tensor, *_: Any, **kwargs: Any) -> Tensor:
            current.append(kwargs)
            return hidden_states

    whole = model.model.layers
    try:
        model.model.layers = nn.ModuleList(Skip(layer) for layer in layers)
        model.model.layers[0].register_forward_pre_hook(first, with_kwargs=True)
        for row in tokens:
            current = []
            model.model(input_ids=row[None], use_cache=False)
            arguments.append(current)
    finally:
        model.model.layers = whole
    return states, arguments


def call_layer(layer: Any, state: Tensor, arguments: dict[str, Any]) -> Tensor:
    """What leaves a decoder layer."""
    out = layer(state, **arguments)
    return out[0] if isinstance(out, tuple) else out


def through(
    layer: Any, states: list[Tensor], arguments: list[list[dict[str, Any]]], n: int
) -> list[Tensor]:
    return [call_layer(layer, s, a[n]) for s, a in zip(states, arguments, strict=True)]


def _passed(
    layer: Any, block: Block, states: list[Tensor], arguments: list[list[dict[str, Any]]], n: int
) -> tuple[list[tuple[Tensor, Tensor]] | None, list[Tensor] | None]:
    """Tokens and chosen experts of a block over all sequences, and what leaves the layer."""
    if not states:
        return None, None
    passed: list[tuple[Tensor, Tensor]] = []
    hook = block.experts.register_forward_pre_hook(
        lambda _, args: passed.append((args[0].detach(), args[1].detach()))
    )
    try:
        after = through(layer, states, arguments, n)
    finally:
        hook.remove()
    return passed, after


def round_experts(
    block: Block,
    bits: list[int],
    group: int,
    passed: list[tuple[Tensor, Tensor]] | None,
    quantizer: Quantizer = "gptq",
) -> list[Pair]:
    """Round a block's experts, those of one width together; without tokens each by itself."""
    weights = [expert_weights(block.experts, e) for e in range(block.count)]
    if passed is None:
        return [
            (_alone(w, b, group, quantizer), _alone(d, b, group, quantizer))
            for (w, d), b in zip(weights, bits, strict=True)
        ]
    hessians = [_hessians(block, e, weights[e], passed) for e in range(block.count)]
    done: list[Pair | None] = [None] * block.count
    for width in sorted(set(bits)):
        members = [e for e, b in enumerate(bits) if b == width]
        halves = []
        for half in (0, 1):
            w = torch.stack([weights[e][half] for e in members])
            h = torch.stack([hessians[e][half] for e in members])
            halves.append(rounding.gptq(w, h, width, group))
        for place, e in enumerate(members):
            done[e] = (_one(halves[0], place), _one(halves[1], place))
    return [pair for pair in done if pair is not None]


def _alone(w: Tensor, bits: int, group: int, quantizer: Quantizer) -> Coded:
    """Round a matrix without calibration."""
    if quantizer == "hqq":
        from armillary.serving.gemq.peers import half_quadratic

        return half_quadratic(w, bits, group)
    return rounding.rounded(w, bits, group)


def _one(coded: Coded, place: int) -> Coded:
    zeros = None if coded.zeros is None else coded.zeros[place]
    return Coded(coded.codes[place], coded.scales[place], zeros, coded.bits, coded.group)


def _hessians(
    block: Block, e: int, weights: tuple[Tensor, Tensor], passed: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Mean x x^T of what an expert's two matrices read; few tokens are helped by the layer's."""
    x = torch.cat([tokens for tokens, _ in passed]).float()
    mine = torch.cat([(index == e).any(-1) for _, index in passed])
    act, count = block.experts.act_fn, int(mine.sum())
    found = []
    for half in (0, 1):

        def read(rows: Tensor, half: int = half) -> Tensor:
            return rows if half == 0 else inner_activation(act, weights[0], rows)

        few = count < 2 * weights[half].shape[1]
        own = _gram(read(x[mine])) if count else None
        if few:
            layer = _gram(read(x))
            own = layer if own is None else own + rounding.SHRINKAGE * layer
        assert own is not None
        found.append(own)
    return found[0], found[1]


def _gram(rows: Tensor) -> Tensor:
    return (rows.T @ rows) / len(rows)


def _round_linears(
    layer: Any, widths: Mapping[str, int], group: int, states: list[Tensor],
    arguments: list[list[dict[str, Any]]], n: int, quantizer: Quantizer,
) -> dict[str, Coded]:  # fmt: skip
    if not widths:
        return {}
    modules = {name: layer.get_submodule(name) for name in widths}
    if not states:
        return {
            name: _alone(module.weight.float(), widths[name], group, quantizer)
            for name, module in modules.items()
        }
    grams: dict[str, Tensor] = {}

    def note(name: str) -> Callable[..., None]:
        def hook(_: Any, args: Any) -> None:
            rows = args[0].detach().flatten(0, -2).float()
            grams[name] = grams.get(name, 0) + rows.T @ rows

        return hook

    hooks = [m.register_forward_pre_hook(note(name)) for name, m in modules.items()]
    try:
        through(layer, states, arguments, n)
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name: _one(
            rounding.gptq(module.weight.float()[None], grams[name][None], widths[name], group), 0
        )
        for name, module in modules.items()
    }


def _write_linears(layer: Any, coded: Mapping[str, Coded]) -> None:
    for name, value in coded.items():
        weight = layer.get_submodule(name).weight
        weight.data = value.dequantised()[:, : weight.shape[1]].to(weight.dtype)


def _write_experts(block: Block, pairs: list[Pair]) -> None:
    for parameter, half in ((block.experts.gate_up_proj, 0), (block.experts.down_proj, 1)):
        for e, pair in enumerate(pairs):
            parameter.data[e] = pair[half].dequantised()[:, : parameter.shape[2]]


# ---- packing ------------------------------------------------------------------------------------


def pack_model(
    model: Any, coded: list[list[Pair]], others: Mapping[str, Coded], group: int
) -> None:
    """Replace rounded modules by packed ones."""
    for block, pairs in zip(blocks(model), coded, strict=True):
        experts = block.experts
        hidden, inner = experts.down_proj.shape[1:]
        with torch.device("meta"):
            packed = PackedExperts([1] * len(pairs), hidden, inner, group, experts.act_fn)
        for e, (gate_up, down) in enumerate(pairs):
            packed.gate_up[e] = PackedMatrix.of(gate_up, hidden)
            packed.down[e] = PackedMatrix.of(down, inner)
        block.module.experts = packed  # pyright: ignore[reportArgumentType]
    for name, value in others.items():
        linear = model.get_submodule(name)
        with torch.device("meta"):
            packed = PackedLinear(linear.out_features, linear.in_features, value.bits, group, False)
        packed.matrix = PackedMatrix.of(value, linear.in_features)
        packed.bias = linear.bias
        set_module(model, name, packed)


# ---- what was finished before -------------------------------------------------------------------


class _Kept:
    """Finished layers in a folder, bound to the plan and settings that made them."""

    def __init__(
        self, folder: Path, plan: BitPlan, quantizer: str, linears: Mapping[str, int],
        tokens: Tensor,
    ) -> None:  # fmt: skip
        import hashlib

        about = json.dumps(
            [plan.bits.tolist(), plan.group, quantizer, dict(linears)], sort_keys=True
        )
        digest = hashlib.sha256(about.encode() + tokens.numpy().tobytes()).hexdigest()
        self.folder = folder / digest[:16]
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, n: int) -> Path:
        return self.folder / f"layer_{n:04d}.safetensors"

    def write(self, n: int, pairs: list[Pair], linears: Mapping[str, Coded]) -> None:
        from safetensors.torch import save_file

        tensors: dict[str, Tensor] = {}
        about: dict[str, str] = {"experts": str(len(pairs)), "linears": json.dumps(list(linears))}
        for name, coded in _named(pairs, linears):
            tensors[f"{name}/codes"] = coded.codes.contiguous()
            tensors[f"{name}/scales"] = coded.scales.contiguous()
            if coded.zeros is not None:
                tensors[f"{name}/zeros"] = coded.zeros.contiguous()
            about[name] = json.dumps([coded.bits, coded.group])
        with output.atomic_path(self._path(n)) as temporary:
            save_file(tensors, temporary, metadata=about)

    def read(self, n: int) -> tuple[list[Pair], dict[str, Coded]] | None:
        from safetensors import safe_open

        if not self._path(n).is_file():
            return None
        with safe_open(self._path(n), framework="pt") as file:
            about, keys = file.metadata(), set(file.keys())

            def coded(name: str) -> Coded:
                bits, group = json.loads(about[name])
                zeros = f"{name}/zeros"
                return Coded(
                    file.get_tensor(f"{name}/codes"), file.get_tensor(f"{name}/scales"),
                    file.get_tensor(zeros) if zeros in keys else None, bits, group,
                )  # fmt: skip

            pairs = [
                (coded(f"experts.{e}.gate_up"), coded(f"experts.{e}.down"))
                for e in range(int(about["experts"]))
            ]
            return pairs, {name: coded(name) for name in json.loads(about["linears"])}


def _named(pairs: list[Pair], linears: Mapping[str, Coded]) -> Iterator[tuple[str, Coded]]:
    for e, (gate_up, down) in enumerate(pairs):
        yield f"experts.{e}.gate_up", gate_up
        yield f"experts.{e}.down", down
    yield from linears.items()


def save_whole(quantized: QuantizedMoE, folder: Path, tokenizer: Any) -> Path:
    """Write beside the folder, then rename."""
    import shutil
    import tempfile

    if folder.exists():
        raise FileExistsError(f"{str(folder)!r} is there already: give another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        building.chmod(0o755)
        quantized.model.save_pretrained(building)
        if tokenizer is not None:
            tokenizer.save_pretrained(building)
        quantized.plan.save(building / "gemq_plan.json")
        output.write_json(building / "gemq_report.json", quantized.report)
        building.replace(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return folder
