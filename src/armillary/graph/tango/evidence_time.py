"""What a step costs: time and memory against a GCN and GPS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

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
from armillary.graph.tango.evidence_transfer import NEEDS

if TYPE_CHECKING:
    from torch import Tensor

    from armillary.graph.tango.operators import Propagation

CHANNELS, STEPS, DEGREE = 32, 4, 8


class Load(NamedTuple):
    """Features and Â of a random graph of mean degree 8."""

    x: Tensor
    operator: Propagation


def random_graph(cell: Cell) -> Load:
    import torch

    from armillary.graph.tango.operators import Propagation

    n = int(cell.case.x["nodes"])
    generator = torch.Generator().manual_seed(cell.seed)
    one_way = torch.randint(0, n, (2, n * DEGREE // 2), generator=generator)
    edges = torch.cat([one_way, one_way.flip(0)], 1)
    return Load(torch.randn(n, CHANNELS, generator=generator), Propagation(edges, n))


Forward = Callable[["Load"], "Tensor"]


def timed(make: Callable[[], Forward]) -> Callable[[Load, Cell], Mapping[str, float]]:
    """Seconds of ``STEPS`` steps forward, and bytes that one training pass keeps a step."""
    made: list[Forward] = []

    def run(work: Load, cell: Cell) -> Mapping[str, float]:
        import time

        import torch

        if not made:
            made.append(make())
        with torch.no_grad():
            start = time.perf_counter()
            total = float(made[0](work).sum())
            seconds = time.perf_counter() - start
        found = {"seconds": seconds, "checksum": total}
        # Linear in N; at the largest sizes the pass itself would disturb the timing.
        if cell.profile != "smoke" and len(work.x) <= 20_000:
            found["kept_mb"] = _kept(made[0], work)
        return found

    return run


def _kept(forward: Forward, work: Load) -> float:
    """Megabytes a step that autograd holds for backward, each storage once."""
    import torch

    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        forward(Load(work.x.requires_grad_(), work.operator))
    work.x.requires_grad_(False)
    return sum(sizes.values()) / 1e6 / STEPS


def tango(stable: str) -> Callable[[], Forward]:
    def make() -> Forward:
        import torch

        from armillary.graph.tango.flow import TangoConv

        torch.manual_seed(0)
        conv = TangoConv(CHANNELS, STEPS, stable=stable)  # pyright: ignore[reportArgumentType]
        return lambda work: conv(work.x, work.operator)

    return make


def gcn() -> Forward:
    """H ← H + relu(ÂHW + b) on the same CSR operator: the leanest GCN there is."""
    import torch

    weight = torch.randn(CHANNELS, CHANNELS, generator=torch.Generator().manual_seed(0)) / 6
    weight.requires_grad_()
    bias = torch.zeros(CHANNELS, requires_grad=True)

    def forward(work: Load) -> Tensor:
        h = work.x
        for _ in range(STEPS):
            h = h + torch.relu(torch.addmm(bias, work.operator @ h, weight))
        return h

    return forward


def pyg_gcn() -> Forward:
    """PyG's ``GCNConv`` on an edge index, gather and scatter."""
    import torch
    from torch_geometric.nn import GCNConv

    torch.manual_seed(0)
    conv = GCNConv(CHANNELS, CHANNELS, cached=False)

    def forward(work: Load) -> Tensor:
        h = work.x
        for _ in range(STEPS):
            h = h + torch.relu(conv(h, work.operator.edge_index))
        return h

    return forward


def gps() -> Forward:
    """GPS with full attention; above 4000 nodes its N² scores do not fit, and it is left out."""
    import torch
    from torch_geometric.nn import GCNConv, GPSConv

    torch.manual_seed(0)
    conv = GPSConv(CHANNELS, GCNConv(CHANNELS, CHANNELS, normalize=False), heads=2).eval()

    def forward(work: Load) -> Tensor:
        h = work.x
        for _ in range(STEPS):
            h = conv(h, work.operator.matrix)
        return h

    return forward


def _sizes(*sizes: int) -> list[Case]:
    return [Case(f"N={n}", x={"nodes": n}, needs=NEEDS) for n in sizes]


def large(case: Case) -> bool:
    return case.x["nodes"] >= 10_000


METRICS = (
    Metric("seconds", "s"),
    Metric("kept_mb", "MB a step"),
    Metric("checksum", "", "neither"),
)

COST = Experiment(
    id="cost",
    title="Time of a step on graphs of mean degree 8, 32 channels",
    cases={
        "smoke": _sizes(200),
        "quick": _sizes(10_000),
        "full": _sizes(1000, 10_000, 100_000),
        "long": [],
    },
    setup=random_graph,
    contenders=(
        Contender("ours", timed(tango("correct"))),
        Contender("plain-euler", timed(tango("none"))),
        Contender("gcn", timed(gcn)),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="cost-of-a-step",
            statement="From 10,000 nodes on, a step without correction takes at most 2.5 times a "
            "GCN's on the same sparse operator, and one with correction at most 5 times.",
            paper="Gives no figure.",
            conditions=(
                Condition(
                    Stat("seconds", of="plain-euler", over=("gcn",), form="ratio", pool="geomean",
                         where=large),
                    at_most=2.5,
                ),
                Condition(
                    Stat("seconds", over=("gcn",), form="ratio", pool="geomean", where=large),
                    at_most=5.0,
                ),
            ),
        ),
        Claim(
            id="linear-in-nodes",
            statement="The time of a step grows with at most the power 1.1 of the nodes.",
            paper="Gives no figure.",
            conditions=(Condition(Stat("seconds", form="slope", along="nodes"), at_most=1.1),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 0},
    timed=Timing(warmups=1, repeats=5),
)  # fmt: skip

ATTENTION = Experiment(
    id="cost-of-attention",
    title="Time of a step beside full attention",
    cases={
        "smoke": _sizes(200),
        "quick": [],
        "full": _sizes(1000, 2000, 4000),
        "long": [],
    },
    setup=random_graph,
    contenders=(
        Contender("ours", timed(tango("correct"))),
        Contender("gps", timed(gps)),
        Contender("pyg-gcn", timed(pyg_gcn), required=False),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="attention-grows-faster",
            statement="The time of GPS with full attention grows with at least the power 1.5 of "
            "the nodes (from 1000 to 4000), that of ours with at most 1.1.",
            paper="Gives no figure.",
            conditions=(
                Condition(Stat("seconds", of="gps", form="slope", along="nodes"), at_least=1.5),
                Condition(Stat("seconds", form="slope", along="nodes"), at_most=1.1),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 0},
    timed=Timing(warmups=1, repeats=3),
)
