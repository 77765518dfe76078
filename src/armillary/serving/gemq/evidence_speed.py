"""Bytes and seconds of packed experts beside torch's own, a token and sixteen at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
    Timing,
)  # fmt: skip
from armillary.serving.gemq.distilled import NEEDS

#: Blocks, experts, chosen experts, hidden and inner features: the distilled mixture's, and larger.
SHAPES = {"small": (30, 8, 4, 576, 192), "large": (4, 16, 4, 2048, 1024)}


class Load(NamedTuple):
    """Blocks of each kind with the same weights, and what goes through them."""

    blocks: dict[str, list[Any]]
    inputs: dict[int, list[tuple[Any, Any, Any]]]
    bf16_bytes: int


def weights(cell: Cell) -> Load:
    """Random experts: packed at 2 and 3 bits, and as torch has them in two types."""
    import torch
    from transformers.models.mixtral.configuration_mixtral import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralExperts

    from armillary.serving.gemq.gptq import rounded
    from armillary.serving.gemq.pack import PackedExperts, PackedMatrix

    torch.set_num_threads(cell.threads)
    name = "large" if cell.case.x["large"] else "small"
    layers, count, top_k, hidden, inner = SHAPES[name]
    if cell.profile == "smoke":
        layers = 1
    generator = torch.Generator().manual_seed(cell.seed)
    group = 128 if hidden % 128 == 0 and inner % 128 == 0 else 64
    kinds = ("2 bits", "3 bits", "bf16", "bf16-grouped", "fp32")
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for _ in range(layers):
        gate_up = torch.randn(count, 2 * inner, hidden, generator=generator) / hidden**0.5
        down = torch.randn(count, hidden, inner, generator=generator) / inner**0.5
        act = torch.nn.SiLU()
        for bits in (2, 3):
            packed = PackedExperts([bits] * count, hidden, inner, group, act)
            for e in range(count):
                packed.gate_up[e] = PackedMatrix.of(rounded(gate_up[e], bits, group), hidden)
                packed.down[e] = PackedMatrix.of(rounded(down[e], bits, group), inner)
            found[f"{bits} bits"].append(packed)
        for kind, way in (("bf16", "eager"), ("bf16-grouped", "grouped_mm"), ("fp32", "eager")):
            config = MixtralConfig(
                hidden_size=hidden, intermediate_size=inner, num_local_experts=count
            )
            config._experts_implementation = way
            plain = MixtralExperts(config)
            dtype = torch.float32 if kind == "fp32" else torch.bfloat16
            plain.gate_up_proj.data = gate_up.to(dtype)
            plain.down_proj.data = down.to(dtype)
            found[kind].append(plain.requires_grad_(False))
    inputs: dict[int, list[tuple[Any, Any, Any]]] = {}
    for rows in (1, 16):
        inputs[rows] = []
        for _ in range(layers):
            x = torch.randn(rows, hidden, generator=generator)
            scores = torch.rand(rows, count, generator=generator)
            inputs[rows].append((x, scores.topk(top_k).indices, torch.full((rows, top_k), 0.25)))
    size = layers * count * 3 * hidden * inner * 2
    return Load(found, inputs, size)


def timed(kind: str) -> Callable[[Load, Cell], Mapping[str, float]]:
    """Seconds of all blocks, a token and sixteen at a time, and bytes beside bfloat16's."""

    def run(work: Load, cell: Cell) -> Mapping[str, float]:
        import torch

        from armillary.evidence.sink import consume

        held = work.blocks[kind]
        dtype = torch.bfloat16 if kind.startswith("bf16") else torch.float32
        found: dict[str, float] = {}
        size = sum(p.numel() * p.element_size() for block in held for p in block.parameters())
        found["bytes_ratio"] = size / work.bf16_bytes
        with torch.no_grad():
            for rows, given in work.inputs.items():
                ready = [(x.to(dtype), index, share.to(dtype)) for x, index, share in given]
                start = time.perf_counter()
                outputs = [block(*each) for block, each in zip(held, ready, strict=True)]
                found[f"seconds_{rows}"] = time.perf_counter() - start
                consume(*outputs)
        found["seconds"] = found["seconds_1"]
        return found

    return run


def _case(name: str) -> Case:
    return Case(name, x={"large": float(name == "large")}, needs=NEEDS)


def faster(metric: str, times: float, *others: str) -> Condition:
    return Condition(
        Stat(metric, of="ours", over=others, form="ratio", pool="geomean"), at_most=1 / times
    )


SPEED = Experiment(
    id="speed",
    title="Packed experts beside torch's, one thread",
    cases={
        "smoke": [_case("small")],
        "quick": [_case("small")],
        "full": [_case("small"), _case("large")],
        "long": [_case("small"), _case("large")],
    },
    setup=weights,
    contenders=(
        Contender("ours", timed("2 bits")),
        Contender("ours-3", timed("3 bits")),
        Contender("torch-bf16", timed("bf16")),
        Contender("torch-bf16-grouped", timed("bf16-grouped")),
        Contender("torch-fp32", timed("fp32")),
    ),
    metrics=(
        Metric("seconds", "s"),
        Metric("seconds_1", "s"),
        Metric("seconds_16", "s"),
        Metric("bytes_ratio", "of bfloat16"),
    ),
    claims=(
        Claim(
            id="small-in-memory",
            statement="Experts take at most 0.17 of bfloat16's bytes at 2 bits and 0.23 at 3 bits, "
            "scales and zeros included, as they lie in memory.",
            paper="87 GB of Mixtral-8x7B become a fraction; gives no figure for experts alone.",
            conditions=(
                Condition(Stat("bytes_ratio"), at_most=0.17, every=True),
                Condition(Stat("bytes_ratio", of="ours-3"), at_most=0.23, every=True),
            ),
        ),
        Claim(
            id="faster-at-one-token",
            statement="One token passes all blocks at 2 bits at least 1.5 times as fast as torch's "
            "bfloat16 experts, on one thread.",
            paper="Faster inference on GPUs with kernels of its own.",
            conditions=(faster("seconds_1", 1.5, "torch-bf16", "torch-bf16-grouped"),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    timed=Timing(metrics=("seconds", "seconds_1", "seconds_16"), warmups=2, repeats=7, threads=1),
    packages=("torch", "transformers"),
)
