"""Equal bits over shapes, shards, threads and instruction sets; errors against float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from armillary.evidence.shapes import (
    Ablation,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
)  # fmt: skip

if TYPE_CHECKING:
    from torch import Tensor

NEEDS = (
    Need("extra", "torch", "pip install 'armillary[serving]'"),
    Need("extra", "transformers", "pip install 'armillary[serving]'"),
)
ROWS = (1, 2, 3, 4, 5, 8, 16, 31, 64)
COLUMN_SPLITS = (1, 2, 3, 4, 8)
FEATURE_SPLITS = (1, 2, 3, 4, 6, 8, 12)
LEAF = 64


class Product(NamedTuple):
    """x (64, K) and w (N, K) of widely spread magnitudes, so that any change of order shows."""

    x: Tensor
    w: Tensor


def spread(cell: Cell) -> Product:
    import torch

    generator = torch.Generator().manual_seed(cell.seed)
    n, k = int(cell.case.x["n"]), int(cell.case.x["k"])

    def draw(*shape: int) -> Tensor:
        size = torch.rand(*shape, generator=generator) * 12 - 6
        return torch.randn(*shape, generator=generator) * 10.0**size

    return Product(draw(ROWS[-1], k), draw(n, k))


def differing(a: Tensor, b: Tensor) -> int:
    """Elements whose bits differ."""
    import torch

    return int((a.contiguous().view(torch.int32) != b.contiguous().view(torch.int32)).sum())


class Count:
    """How many elements were compared with the whole product, and how many differ."""

    def __init__(self, whole: Tensor) -> None:
        self.whole, self.mismatches, self.compared = whole, 0, 0

    def add(self, found: Tensor, rows: slice = slice(None), columns: slice = slice(None)) -> None:
        self.mismatches += differing(found, self.whole[rows, columns])
        self.compared += found.numel()

    def metrics(self) -> dict[str, float]:
        return {"mismatches": self.mismatches, "compared": self.compared}


def shards_of(k: int) -> Iterator[list[tuple[int, int]]]:
    """Even and uneven cuts of K features, on leaf boundaries."""
    from armillary.serving.tbik.plan import even_shards

    leaves = -(-k // LEAF)
    for world in FEATURE_SPLITS:
        if world <= leaves:
            yield even_shards(k, LEAF, world)
    if leaves > 4:  # one leaf, three, and the rest
        yield [(0, LEAF), (LEAF, 4 * LEAF), (4 * LEAF, k)]


def ours(work: Product, cell: Cell) -> Mapping[str, float]:
    """Every row count, column split, feature split, thread count and instruction set."""
    import torch

    from armillary import native
    from armillary.serving.tbik import ops
    from armillary.serving.tbik.dist import tree_all_reduce
    from armillary.serving.tbik.plan import TreePlan

    x, w = work
    packed = ops.pack(w)
    threads = torch.get_num_threads()
    count = Count(ops.tree_linear(x, packed))
    try:
        for many in (1, 2):
            torch.set_num_threads(many)
            for rows in ROWS:
                count.add(ops.tree_linear(x[:rows].contiguous(), packed), slice(0, rows))
            for parts in COLUMN_SPLITS:
                for i in range(parts):
                    columns = slice(len(w) * i // parts, len(w) * (i + 1) // parts)
                    count.add(ops.tree_linear(x, ops.pack(w[columns])), columns=columns)
    finally:
        torch.set_num_threads(threads)
    for shards in shards_of(w.shape[1]):
        plan = TreePlan(w.shape[1], LEAF, shards)
        parts = [
            part
            for rank, (a, b) in enumerate(shards)
            for part in ops.tree_parts(x[:, a:b], ops.pack(w[:, a:b]), plan, rank)
        ]
        alone = TreePlan(w.shape[1], LEAF)
        assert tuple(node for node, _ in parts) == tuple(node for _, node in plan.parts)
        program = plan.combination()
        found = native.combine([value.numpy() for _, value in parts], program.merges)
        count.add(torch.from_numpy(found))
        assert tree_all_reduce([((0, alone.leaves), count.whole)], alone) is count.whole
    program = TreePlan(w.shape[1], LEAF).subtree((0, -(-w.shape[1] // LEAF)))
    for isa in native.instruction_sets():
        for many in (1, 2):
            found = native.tree_gemm(
                x.numpy(), packed.packed, leaf=LEAF, merges=program.merges, isa=isa, threads=many
            )
            count.add(torch.from_numpy(found))
    few, narrow = x[:2].contiguous(), slice(0, 8)
    found = native.tree_gemm(
        few.numpy(), ops.pack(w[narrow]).packed, leaf=LEAF, merges=program.merges, isa="portable"
    )
    count.add(torch.from_numpy(found), slice(0, 2), narrow)
    return count.metrics()


def torch_product(work: Product, cell: Cell) -> Mapping[str, float]:
    """The same matrix with torch's product, parts added in the order of ranks."""
    import torch

    x, w = work
    threads = torch.get_num_threads()
    count = Count(x @ w.t())
    try:
        for many in (1, 2):
            torch.set_num_threads(many)
            for rows in ROWS:
                count.add(x[:rows].contiguous() @ w.t(), slice(0, rows))
            for parts in COLUMN_SPLITS:
                for i in range(parts):
                    columns = slice(len(w) * i // parts, len(w) * (i + 1) // parts)
                    count.add(x @ w[columns].contiguous().t(), columns=columns)
    finally:
        torch.set_num_threads(threads)
    for shards in shards_of(w.shape[1]):
        total = torch.zeros_like(count.whole)
        for a, b in shards:
            total = total + x[:, a:b] @ w[:, a:b].t()
        count.add(total)
    return count.metrics()


def otherwise(how: str) -> Callable[[Product, Cell], Mapping[str, float]]:
    """Splits of features whose parts are added in another way."""

    def run(work: Product, cell: Cell) -> Mapping[str, float]:
        import torch

        from armillary.serving.tbik import ops
        from armillary.serving.tbik.plan import TreePlan

        x, w = work
        count = Count(ops.tree_linear(x, ops.pack(w)))
        for shards in shards_of(w.shape[1]):
            plan = TreePlan(w.shape[1], LEAF, shards)
            values = []
            for rank, (a, b) in enumerate(shards):
                packed = ops.pack(w[:, a:b])
                if how == "boundary":
                    parts = ops.tree_parts(x[:, a:b], packed, plan, rank)
                    values.append((parts[0][1], *(value for _, value in parts[1:])))
                else:
                    values.append((ops.tree_linear(x[:, a:b].contiguous(), packed),))
            count.add(_added(values, how))
        assert torch.is_tensor(count.whole)
        return count.metrics()

    return run


def _added(values: list[tuple[Any, ...]], how: str) -> Any:
    """Ranks' values: in the order of ranks, in pairs, or rounded to bfloat16 where ranks meet."""
    import torch

    whole = []
    for parts in values:
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        several = len(values) > 1 and how == "boundary"
        whole.append(total.to(torch.bfloat16).float() if several else total)
    if how == "rank-order":
        total = whole[0]
        for value in whole[1:]:
            total = total + value
        return total
    while len(whole) > 1:
        pairs = [a + b for a, b in zip(whole[::2], whole[1::2], strict=False)]
        whole = pairs + (whole[-1:] if len(whole) % 2 else [])
    return whole[0]


def _cases(*shapes: tuple[int, int]) -> list[Case]:
    return [Case(f"{k}x{n}", x={"k": k, "n": n}, needs=NEEDS) for k, n in shapes]


KERNELS = Experiment(
    id="kernels",
    title="Equal bits: 1 to 64 rows, splits of columns and features, threads, instruction sets",
    cases={
        "smoke": _cases((320, 40)),
        "quick": _cases((576, 192), (1536, 96)),
        "full": _cases((576, 1536), (1536, 576), (1000, 333), (6144, 256)),
        "long": _cases((576, 1536), (1536, 576), (1000, 333), (6144, 2048), (576, 49152)),
    },
    setup=spread,
    contenders=(
        Contender("ours", ours),
        Contender("torch", torch_product),
        Contender("local-tree", otherwise("local-tree")),
        Contender("rank-order", otherwise("rank-order")),
        Contender("boundary", otherwise("boundary")),
    ),
    metrics=(
        Metric("mismatches", "elements"),
        Metric("compared", "elements", "neither"),
    ),
    claims=(
        Claim(
            id="no-bit-differs",
            statement="Over 1 to 64 rows, splits of columns and features (uneven ones too), one "
            "and two threads and every instruction set, no bit of the product differs; torch's "
            "differs.",
            paper="Bit-identical products for 1, 2, 4 and 8 ranks and any batch on GPUs.",
            conditions=(
                Condition(Stat("mismatches"), at_most=0, every=True),
                Condition(Stat("mismatches", of="torch"), at_least=1, every=True),
            ),
            ablations=tuple(
                Ablation(name, "mismatches") for name in ("local-tree", "rank-order", "boundary")
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 10},
    packages=("torch",),
)


# ---- accuracy -----------------------------------------------------------------------------------


def normal(cell: Cell) -> Product:
    import torch

    generator = torch.Generator().manual_seed(cell.seed)
    n, k = int(cell.case.x["n"]), int(cell.case.x["k"])
    x = torch.randn(64, k, generator=generator)
    return Product(x, torch.randn(n, k, generator=generator))


def error_of(product: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Mapping[str, float]]:
    """The largest error against float64."""

    def run(work: Product, cell: Cell) -> Mapping[str, float]:
        exact = work.x.double() @ work.w.double().t()
        return {"error": float((product(work.x, work.w).double() - exact).abs().max())}

    return run


def tree(x: Tensor, w: Tensor) -> Tensor:
    from armillary.serving.tbik import ops

    return ops.tree_linear(x, ops.pack(w))


ACCURACY = Experiment(
    id="accuracy",
    title="Largest error against float64",
    cases={
        "smoke": _cases((320, 40)),
        "quick": _cases((1536, 576), (6144, 256)),
        "full": _cases((576, 1536), (1536, 576), (2048, 2048), (6144, 2048)),
        "long": _cases((576, 1536), (1536, 576), (2048, 2048), (6144, 2048)),
    },
    setup=normal,
    contenders=(
        Contender("ours", error_of(tree)),
        Contender("torch-fp32", error_of(lambda x, w: x @ w.t())),
    ),
    metrics=(Metric("error"),),
    claims=(
        Claim(
            id="no-less-accurate",
            statement="The largest error of the tree product against float64 is not above that of "
            "torch's float32 product.",
            paper="Does not report errors.",
            conditions=(
                Condition(
                    Stat("error", over=("torch-fp32",), form="ratio", pool="geomean"), at_most=1.0
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 5, "full": 5, "long": 20},
    packages=("torch",),
)
