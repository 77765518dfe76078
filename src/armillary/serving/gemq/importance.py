"""How much each expert's rounding at each width hurts the model.

With g = dCE / d(block output) at full precision and E_e^b expert e rounded to b bits,

    c[l, e, b] = sum_t sum_d g[l, t, d]^2 (w_e(x_t) (E_e(x_t) - E_e^b(x_t)))_d^2

over the tokens t that are routed to e: only they change, and only by that difference. Sums are in
float64.

Source: GEMQ (ICML 2026, arXiv 2605.23078), importance of experts. Dropping the first positions,
clipping, and the prior for experts that no token reached are ours.

Shapes: L blocks, E experts, S widths, T tokens, H hidden features.
"""

from __future__ import annotations

import dataclasses
import json
import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Doubles = NDArray[np.float64]
Rounding = Literal["gptq", "searched", "nearest"]

#: The first positions of a sequence have gradients that drown the others (attention sinks).
SINKS = 4
CLIP = 0.99
WEIGHTINGS = ("fisher", "fisher-raw", "recon", "frequency")


class CalibrationWarning(UserWarning):
    """Some experts saw no calibration token."""


@dataclasses.dataclass(frozen=True)
class Importance:
    """What `collect` measured.

    Attributes:
        fisher: (L, E, S) c, without sink positions, each token's term clipped at the 99th
            percentile of its layer and width.
        fisher_raw: (L, E, S) c over all positions, not clipped.
        recon: (L, E, S) the same without g: squared error of the block's output.
        error: (L, E, S) mean squared error of the expert's own output on its tokens.
        counts: (L, E) tokens routed to each expert.
        routing: (L, E) mean weight that they gave it.
        tokens: how many there were.
        uncalibrated: (L, E) experts that no token reached; their coefficients are a prior.
        sizes: (L, E, S) bytes when packed.
        parameters: (L, E) weights.
        bits, group: the widths, and features that share a scale.
        layers: names of the blocks.
        model: what was measured, for people.
    """

    fisher: Doubles
    fisher_raw: Doubles
    recon: Doubles
    error: Doubles
    counts: NDArray[np.int64]
    routing: Doubles
    tokens: int
    uncalibrated: NDArray[np.bool_]
    sizes: NDArray[np.int64]
    parameters: NDArray[np.int64]
    bits: tuple[int, ...]
    group: int
    layers: tuple[str, ...]
    model: str = ""

    def damage(self, weighting: str) -> Doubles:
        """(L, E, S) the coefficients of a weighting.

        ``"frequency"`` is our reading of PMQ (MC-MoE): share of tokens times mean routing weight
        times squared error of the expert's output.
        """
        if weighting == "frequency":
            share = self.counts / max(1, self.tokens)
            return (share * self.routing)[:, :, None] * self.error
        if weighting not in WEIGHTINGS:
            raise ValueError(f"weighting={weighting!r}: it must be one of {', '.join(WEIGHTINGS)}")
        return getattr(self, weighting.replace("-", "_"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write as npz (arrays and one JSON text; no pickle)."""
        from armillary import output

        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arrays: dict[str, Any] = {
            name: value for name, value in fields.items() if isinstance(value, np.ndarray)
        }
        about = {name: value for name, value in fields.items() if name not in arrays}
        with output.atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)
        return Path(path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Importance:
        """Read what `save` wrote.

        Raises:
            ValueError: the file is something else.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                values: dict[str, Any] = {name: file[name] for name in file.files}
            values |= json.loads(str(values.pop("about")))
            for name in ("bits", "layers"):
                values[name] = tuple(values[name])
            return Importance(**values)
        except FileNotFoundError:
            raise
        except (OSError, KeyError, TypeError, ValueError, EOFError) as error:
            raise ValueError(
                f"{os.fspath(path)!r} is no file of `armillary gemq collect`: {error}"
            ) from error


def collect(
    model: Any,
    tokens: Tensor,
    *,
    bits: Sequence[int] = (1, 2, 3),
    group: int | None = None,
    rounding: Rounding = "nearest",
    reference: Any = None,
    strict: bool = False,
    bar: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> Importance:
    """Measure every expert's importance by one forward and backward pass a sequence.

    Args:
        model: a mixture-of-experts causal language model of transformers; nothing in it changes.
        tokens: (N, T) calibration sequences.
        bits: the widths, ascending, out of 1, 2, 3 and 4.
        group: features that share a scale; None: 128 where it divides all matrices, else 64.
        rounding: how experts are rounded to measure them: ``"nearest"``: to nearest, from the
            least to the largest value, as the authors do; ``"searched"``: with ranges of least
            error; ``"gptq"``: fitted to the same tokens, which flatters where those are few.
        reference: the model whose experts are the target, if not ``model`` itself (for progressive
            re-estimation: ``model`` is then the quantised one).
        strict: raise when an expert saw no token, instead of warning.
        bar: wraps the sequences, for a progress bar.

    Raises:
        TypeError: the model is dense.
        UnsupportedModelError: its experts lie in an unknown way.
        ValueError: widths or tokens that do not fit; a gradient that is not a number; with
            ``strict`` an expert that no token reached.
    """
    import torch

    from armillary.serving.gemq import rtn
    from armillary.serving.gemq.layouts import blocks, expert_weights, run_expert

    found = blocks(model)
    widths = checked_widths(bits)
    if rounding not in ("gptq", "searched", "nearest"):
        raise ValueError(f"rounding={rounding!r}: it must be 'gptq', 'searched' or 'nearest'")
    if tokens.ndim != 2 or tokens.shape[0] < 1 or tokens.shape[1] < SINKS + 2:
        raise ValueError(
            f"tokens has shape {tuple(tokens.shape)}: (sequences, length) with at least one "
            f"sequence of {SINKS + 2} tokens is needed"
        )
    sources = blocks(reference) if reference is not None else found
    hidden, inner = (
        expert_weights(sources[0].experts, 0)[1].shape[0],
        expert_weights(sources[0].experts, 0)[1].shape[1],
    )
    group = group or rtn.group_for(hidden, inner)
    layers, experts, count = len(found), max(b.count for b in found), len(widths)
    if any(b.count != experts for b in found):
        raise ValueError(
            "blocks have different numbers of experts: they cannot be planned together"
        )

    shape = (layers, experts, count)
    totals = {name: np.zeros(shape) for name in ("fisher_raw", "recon", "error", "weights")}
    counts, routing = np.zeros(shape[:2], np.int64), np.zeros(shape[:2])
    terms: list[list[list[list[Any]]]] = [
        [[[] for _ in range(count)] for _ in range(experts)] for _ in range(layers)
    ]
    seen = _watch(model, found, tokens, bar)
    stored = list(seen)
    for i, source in enumerate(sources):
        act = source.experts.act_fn
        pieces = [passed[i] for passed in stored]
        passed = [(x, index) for x, index, _, _ in pieces]
        every = [_rounded(source, b, group, rounding, passed) for b in widths]
        for e in range(experts):
            gate_up, down = expert_weights(source.experts, e)
            rounded = [pairs[e] for pairs in every]
            for s, (first, second) in enumerate(rounded):
                totals["weights"][i, e, s] = float(
                    (gate_up - first).double().square().sum()
                    + (down - second).double().square().sum()
                )
            for x, index, weight, squared in pieces:
                token, place = torch.where(index == e)
                if not len(token):
                    continue
                share = weight[token, place].float()
                inputs, gradient = x[token].float(), squared[token].double()
                late = token >= SINKS
                counts[i, e] += int(late.sum())
                routing[i, e] += float(share[late].sum())
                exact = run_expert(act, gate_up, down, inputs)
                for s, (first, second) in enumerate(rounded):
                    square = (exact - run_expert(act, first, second, inputs)).double().square()
                    weighted = square * share[:, None].double().square()
                    totals["error"][i, e, s] += float(square[late].sum())
                    totals["recon"][i, e, s] += float(weighted.sum())
                    term = (gradient * weighted).sum(-1)
                    totals["fisher_raw"][i, e, s] += float(term.sum())
                    terms[i][e][s].append(term[late].numpy())
    totals["error"] /= np.maximum(counts, 1)[:, :, None]
    fisher = _clipped(terms)
    uncalibrated = counts == 0
    _prior([fisher, totals["fisher_raw"], totals["recon"], totals["error"]], totals["weights"],
           uncalibrated)  # fmt: skip
    names = tuple(block.name for block in found)
    _tell(uncalibrated, names, strict)
    size = [rtn.expert_bytes(hidden, inner, b, group) for b in widths]
    return Importance(
        fisher=fisher,
        fisher_raw=totals["fisher_raw"],
        recon=totals["recon"],
        error=totals["error"],
        counts=counts,
        routing=routing / np.maximum(counts, 1),
        tokens=tokens.shape[0] * (tokens.shape[1] - SINKS),
        uncalibrated=uncalibrated,
        sizes=np.broadcast_to(np.array(size, np.int64), shape).copy(),
        parameters=np.full(shape[:2], 3 * hidden * inner, np.int64),
        bits=widths,
        group=group,
        layers=names,
        model=str(getattr(model.config, "_name_or_path", "") or model.config.model_type),
    )


def checked_widths(bits: Sequence[int]) -> tuple[int, ...]:
    """The widths, ascending.

    Raises:
        ValueError: there are none, or one is not 1, 2, 3 or 4.
    """
    widths = tuple(sorted(set(bits)))
    if not widths or not set(widths) <= {1, 2, 3, 4}:
        raise ValueError(f"bits={tuple(bits)}: give some of 1, 2, 3 and 4")
    return widths


def _rounded(
    block: Any, bits: int, group: int, rounding: str, passed: list[tuple[Tensor, Tensor]]
) -> list[tuple[Tensor, Tensor]]:
    """A block's experts, all rounded to one width: gate and up, and down, as plain numbers."""
    from armillary.serving.gemq.gptq import rounded
    from armillary.serving.gemq.layouts import expert_weights
    from armillary.serving.gemq.quantization import round_experts

    if rounding == "gptq":
        pairs = round_experts(block, [bits] * block.count, group, passed)
    else:
        search = rounding == "searched"
        weights = [expert_weights(block.experts, e) for e in range(block.count)]
        pairs = [
            (rounded(w, bits, group, search=search), rounded(d, bits, group, search=search))
            for w, d in weights
        ]
    hidden, inner = expert_weights(block.experts, 0)[1].shape
    return [(w.dequantised()[:, :hidden], d.dequantised()[:, :inner]) for w, d in pairs]


def _watch(
    model: Any, found: Sequence[Any], tokens: Tensor, bar: Callable[[Iterable[Any]], Iterable[Any]]
) -> Iterable[list[tuple[Tensor, Tensor, Tensor, Tensor]]]:
    """A sequence at a time: each block's tokens, indices, weights and squared gradients."""
    import torch

    seen: dict[int, list[Any]] = {}
    hooks = []

    def entering(i: int) -> Callable[..., None]:
        def hook(_: Any, args: Any) -> None:
            x, index, weight = args[:3]
            # A 16-bit model keeps 16 bits here.
            seen[i] = [x.detach(), index.detach(), weight.detach(), None]

        return hook

    def leaving(i: int) -> Callable[..., None]:
        def hook(_: Any, __: Any, out: Any) -> None:
            (out[0] if isinstance(out, tuple) else out).register_hook(
                lambda grad: seen[i].__setitem__(3, grad.detach().float().square().flatten(0, -2))
            )

        return hook

    for i, block in enumerate(found):
        hooks.append(block.experts.register_forward_pre_hook(entering(i)))
        hooks.append(block.module.register_forward_hook(leaving(i)))
    mode, wanted = model.training, [(p, p.requires_grad) for p in model.parameters()]
    try:
        model.eval()
        for p, _ in wanted:
            p.requires_grad = False
        for row in bar(tokens):
            seen.clear()
            with torch.enable_grad():
                inputs = model.get_input_embeddings()(row[None]).detach().requires_grad_(True)
                loss = next_token_loss(model, row[None], inputs)
                loss.backward()
            for i, block in enumerate(found):
                if seen[i][3] is None or not bool(torch.isfinite(seen[i][3]).all()):
                    raise ValueError(
                        f"the gradient at {block.name} is not a number: the model overflows on "
                        "this text, or its weights are damaged"
                    )
            yield [tuple(seen[i]) for i in range(len(found))]  # pyright: ignore
    finally:
        for hook in hooks:
            hook.remove()
        for p, before in wanted:
            p.requires_grad = before
        model.train(mode)


def next_token_loss(model: Any, ids: Tensor, inputs: Tensor | None = None) -> Tensor:
    """The sum of cross-entropies of the next tokens of (N, T), without router losses."""
    from torch.nn import functional

    given = {"input_ids": ids} if inputs is None else {"inputs_embeds": inputs}
    logits = model(**given, use_cache=False).logits[:, :-1]
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="sum"
    )


def _clipped(terms: list[list[list[list[Any]]]]) -> Doubles:
    """Sums of tokens' terms, each clipped at the 99th percentile of its layer and width."""
    layers, experts, count = len(terms), len(terms[0]), len(terms[0][0])
    out = np.zeros((layers, experts, count))
    for i in range(layers):
        for s in range(count):
            parts = [
                np.concatenate(terms[i][e][s]) if terms[i][e][s] else np.zeros(0)
                for e in range(experts)
            ]
            pooled = np.concatenate(parts)
            if not len(pooled):
                continue
            most = np.quantile(pooled, CLIP)
            for e, part in enumerate(parts):
                out[i, e, s] = np.minimum(part, most).sum()
    return out


def _prior(tables: Sequence[Doubles], weights: Doubles, absent: NDArray[np.bool_]) -> None:
    """Experts without tokens: rounding error of their weights, at the layer's median ratio."""
    for table in tables:
        for i, missing in enumerate(absent):
            if not missing.any():
                continue
            known = ~missing if not missing.all() else slice(None)
            source = table[i] if not missing.all() else table[~absent]
            scale = weights[i] if not missing.all() else weights[~absent]
            ratio = (
                np.median(source[known] / np.maximum(scale[known], 1e-300), axis=0)
                if len(source[known])
                else np.zeros(table.shape[2])
            )
            table[i, missing] = weights[i, missing] * ratio


def _tell(absent: NDArray[np.bool_], names: Sequence[str], strict: bool) -> None:
    if not absent.any():
        return
    listed = [f"{names[i]}: {np.flatnonzero(row).tolist()}" for i, row in enumerate(absent)
              if row.any()]  # fmt: skip
    text = (
        f"{int(absent.sum())} of {absent.size} experts saw no calibration token ("
        + "; ".join(listed)
        + "): their importance is a prior, and they may not have the largest width"
    )
    if strict:
        raise ValueError(text + "; give more text")
    if absent.mean() > 0.1:
        warnings.warn(text, CalibrationWarning, stacklevel=3)
