"""Seconds of a product against torch's, and how near its weights come to the memory's speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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
from armillary.serving.tbik.evidence_kernels import NEEDS

if TYPE_CHECKING:
    from torch import Tensor

ROWS = (1, 4, 16, 128, 512)
#: (K, N): the layers of SmolLM2-135M, and of Qwen3-1.7B.
SHAPES = ((576, 1536), (1536, 576), (2048, 2048), (6144, 2048), (576, 49152))
HEAD = (576, 49152)
FP32, BF16 = "torch-fp32", "torch-bf16"


class Weights(NamedTuple):
    """One shape: inputs, weights in two types, and our panels of both."""

    x: Tensor
    w: Tensor
    narrow_w: Tensor
    panels: Any
    narrow_panels: Any


class Load(NamedTuple):
    """Every shape, and the rows that are run."""

    shapes: dict[tuple[int, int], Weights]
    rows: tuple[int, ...]


def weights(cell: Cell) -> Load:
    import torch

    from armillary.serving.tbik import ops

    torch.set_num_threads(cell.threads)
    generator = torch.Generator().manual_seed(cell.seed)
    few = {"smoke": SHAPES[:1], "quick": (*SHAPES[:2], SHAPES[3], HEAD)}
    rows = {"smoke": (1, 128), "quick": (1, 16, 128)}.get(cell.profile, ROWS)
    shapes = {}
    for k, n in few.get(cell.profile, SHAPES):
        w = torch.randn(n, k, generator=generator) / k**0.5
        x = torch.randn(max(rows), k, generator=generator)
        narrow = w.to(torch.bfloat16)
        shapes[k, n] = Weights(x, w, narrow, ops.pack(w), ops.pack(narrow))
    return Load(shapes, rows)


def skipped(shape: tuple[int, int], rows: int) -> bool:
    """The output layer of a prompt: 512 rows of 49152 columns are not asked for in practice."""
    return shape == HEAD and rows > 16


def timed(
    product: Callable[[Weights, Tensor], Any], narrow_x: bool, bytes_a_weight: int
) -> Callable[[Load, Cell], Mapping[str, float]]:
    """Geometric mean of seconds over shapes for each number of rows."""

    def run(work: Load, cell: Cell) -> Mapping[str, float]:
        import torch

        found: dict[str, float] = {}
        logs: list[float] = []
        for rows in work.rows:
            mine = []
            for shape, held in work.shapes.items():
                if skipped(shape, rows):
                    continue
                x = held.x[:rows]
                x = x.to(torch.bfloat16) if narrow_x else x
                seconds = best_of(lambda held=held, x=x: product(held, x))
                mine.append(seconds)
                if rows == 1 and shape == max(work.shapes, key=lambda s: s[0] * s[1]):
                    found["weight_gbs"] = held.w.numel() * bytes_a_weight / seconds / 1e9
            logs += [torch.tensor(mine).log().mean().item()]
            found[f"seconds_{rows}"] = torch.tensor(logs[-1]).exp().item()
        found["seconds"] = torch.tensor(logs).mean().exp().item()
        return found

    return run


def best_of(call: Callable[[], Any], least: float = 2e-3) -> float:
    """Seconds of one call: the mean over enough calls to fill ``least`` seconds."""
    start = time.perf_counter()
    kept = call()
    once = time.perf_counter() - start
    calls = max(1, int(least / max(once, 1e-7)))
    start = time.perf_counter()
    for _ in range(calls):
        kept = call()
    seconds = (time.perf_counter() - start) / calls
    assert kept is not None
    return seconds


def tree(narrow: bool) -> Callable[[Weights, Tensor], Any]:
    def product(held: Weights, x: Tensor) -> Any:
        from armillary.serving.tbik import ops

        return ops.tree_linear(x, held.narrow_panels if narrow else held.panels)

    return product


def linear(narrow: bool) -> Callable[[Weights, Tensor], Any]:
    def product(held: Weights, x: Tensor) -> Any:
        from torch.nn import functional as F

        return F.linear(x, held.narrow_w if narrow else held.w)

    return product


def stream(work: Load, cell: Cell) -> Mapping[str, float]:
    """Bytes a second that a copy of the largest weight moves, read and written."""
    import torch

    largest = max((held.narrow_w for held in work.shapes.values()), key=lambda w: w.numel())
    target = torch.empty_like(largest)
    seconds = best_of(lambda: target.copy_(largest))
    gbs = 2 * largest.numel() * largest.element_size() / seconds / 1e9
    return {"weight_gbs": gbs, "seconds": seconds}


def ratio(metric: str, at_most: float, of: str, over: str) -> Condition:
    stat = Stat(metric, of=of, over=(over,), form="ratio", pool="geomean")
    return Condition(stat, at_most=at_most)


def experiment(threads: int, word: str, claims: tuple[Claim, ...]) -> Experiment:
    """The same measurement on a number of threads."""
    case = [Case("layers", needs=NEEDS)]
    none: list[Case] = []
    return Experiment(
        id=f"speed-{word}",
        title=f"Seconds of products on {word} thread{'s' if threads > 1 else ''}",
        cases={
            "smoke": case if threads == 1 else none,
            "quick": case if threads == 1 else none, "full": case, "long": case,
        },
        setup=weights,
        contenders=(
            Contender("ours", timed(tree(False), False, 4)),
            Contender("ours-bf16", timed(tree(True), False, 2)),
            Contender(FP32, timed(linear(False), False, 4)),
            Contender(BF16, timed(linear(True), True, 2)),
            Contender("stream", stream),
        ),
        metrics=(
            Metric("seconds", "s"),
            *(Metric(f"seconds_{rows}", "s") for rows in ROWS),
            Metric("weight_gbs", "GB/s", "higher"),
        ),
        claims=claims,
        seeds={"smoke": 1, "quick": 3, "full": 3, "long": 7},
        timed=Timing(
            ("seconds", *(f"seconds_{rows}" for rows in ROWS)), warmups=1, repeats=7,
            threads=threads,
        ),
        packages=("torch",),
    )  # fmt: skip


SPEED = experiment(
    1,
    "one",
    (
        Claim(
            id="no-slower-than-torch",
            statement="On one thread the tree product with float32 weights takes no longer than "
            "torch's float32 product, over the shapes of five layers and 1 to 512 rows.",
            paper="Gives no figure for the cost.",
            conditions=(ratio("seconds", 1.0, "ours", FP32),),
        ),
        Claim(
            id="one-row-faster",
            statement="With bfloat16 weights one row takes at most 0.7 of the time of torch's "
            "bfloat16 product on one thread.",
            paper="Gives no figure for the cost.",
            conditions=(ratio("seconds_1", 0.7, "ours-bf16", BF16),),
        ),
        Claim(
            id="many-rows-bounded",
            statement="With bfloat16 weights 128 rows take at most 3 times the time of torch's "
            "bfloat16 product, which has matrix instructions where the processor has them.",
            paper="Gives no figure for the cost.",
            conditions=(ratio("seconds_128", 3.0, "ours-bf16", BF16),),
        ),
        Claim(
            id="near-the-memory",
            statement="At one row the largest layer reads its bfloat16 weights at no less than 0.7 "
            "of the bytes a second that a copy moves.",
            paper="Gives no figure.",
            conditions=(
                Condition(
                    Stat("weight_gbs", of="ours-bf16", over=("stream",), form="ratio",
                         pool="geomean"),
                    at_least=0.7,
                ),
            ),
        ),
    ),
)  # fmt: skip

SPEED_TWO = experiment(
    2,
    "two",
    (
        Claim(
            id="no-slower-on-two-threads",
            statement="On two threads the tree product with float32 weights takes no longer than "
            "torch's float32 product, over the same shapes and rows.",
            paper="Gives no figure for the cost.",
            conditions=(ratio("seconds", 1.0, "ours", FP32),),
        ),
    ),
)
