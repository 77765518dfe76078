"""How far a signal travels: classes across a ring, and which parts carry them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

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
from armillary.graph.tango import tuned
from armillary.graph.tango.evidence_training import Course, Part, Problem, accuracy, fitted

Run = Callable[[Problem, Cell], Mapping[str, float]]
CLASSES = 5
NEEDS = (Need("extra", "torch_geometric", "pip install 'armillary[graph-peers]'"),)
#: Rivals whose messages are local: they cannot reach what they cannot hand on hop by hop.
LOCAL = ("gcn", "gcn-residual", "gatv2", "a-dgn")
EPOCHS = {"smoke": 2, "quick": 100, "full": 250, "long": 250}


def ring(cell: Cell) -> Problem:
    """One graph a class; the five are training, validation and test set at once (reach, not
    generalisation)."""
    import torch

    from armillary.graph.tango.graphs import joined
    from armillary.graph.tango.peers import Wiring
    from armillary.graph.tango.tasks import TOPOLOGIES, transfer

    topology = TOPOLOGIES[int(cell.case.x["topology"])]
    graph = joined(transfer(topology, int(cell.case.x["distance"]), CLASSES))
    assert graph.y is not None
    rows = torch.nonzero(graph.y >= 0).flatten()
    part = Part(graph.x, Wiring(graph), graph.y, rows)
    return Problem((part,), (part,), (part,), CLASSES + 2, CLASSES, "node", classes=True)


def course(cell: Cell) -> Course:
    """As many steps as hops for everyone; training ends when the class is learnt.

    Gradients of deep flows come in bursts: Adam forgets them sooner, for all contenders alike.
    """
    depth = int(cell.case.x["distance"])
    return Course(EPOCHS[cell.profile], depth, width=32, every=5, enough=0.02, memory=0.99)


def contender(name: str, **flow: Any) -> Run:
    def run(work: Problem, cell: Cell) -> Mapping[str, float]:
        model = fitted(name, work, course(cell), tuned.TRANSFER[name], cell.seed, **flow)
        return {"accuracy": accuracy(model, work.test), **reach(model, work, cell)}

    return run


def reach(model: Any, work: Problem, cell: Cell) -> Mapping[str, float]:
    """log10 of ‖∂ target / ∂ source‖ after training; −30 where nothing arrives."""
    import math

    from armillary.graph.tango.graphs import Graph
    from armillary.graph.tango.models import sensitivity

    part = work.test[0]
    graph = Graph(part.x, part.wiring.edge_index)  # pyright: ignore[reportArgumentType]
    arrived = sensitivity(
        lambda x, edges: model(x, part.wiring), graph, 0, int(cell.case.x["distance"])
    )
    return {"log_sensitivity": math.log10(max(arrived, 1e-30))}


def _cases(*distances: int, topology: int = 0) -> list[Case]:
    from armillary.graph.tango.names import TOPOLOGY_NAMES

    name = TOPOLOGY_NAMES[topology]
    return [Case(f"{name}/{d}", x={"distance": d, "topology": topology}, needs=NEEDS)
            for d in distances]  # fmt: skip


def at_16(case: Case) -> bool:
    return case.x["distance"] == 16 and case.x["topology"] == 0


METRICS = (
    Metric("accuracy", "share", "higher"),
    Metric("log_sensitivity", "log10", "higher"),
)

TRANSFER = Experiment(
    id="transfer",
    title="Classes across a ring, one layer a hop",
    cases={
        "smoke": _cases(4),
        "quick": _cases(8),
        "full": _cases(16),
        "long": [
            *_cases(8, 16, 24, 32, 48),
            *_cases(16, topology=1),
            *_cases(16, topology=2),
        ],
    },
    setup=ring,
    contenders=(
        Contender("ours", contender("ours")),
        *(
            Contender(name, contender(name))
            for name in (
                "gcn",
                "gcn-residual",
                "gcn-virtual-node",
                "gatv2",
                "gcn2",
                "gps",
                "a-dgn",
                "swan",
                "graff",
            )
        ),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="reaches-16",
            statement="At distance 16 of the class ring at least 95 % of classes arrive, where "
            "GCN (plain and residual), GATv2 and A-DGN stay at or under 40 %.",
            paper="Reports that it mitigates oversquashing; has no class ring.",
            conditions=(
                Condition(Stat("accuracy", where=at_16), at_least=0.95),
                *(Condition(Stat("accuracy", of=who, where=at_16), at_most=0.40) for who in LOCAL),
            ),
        ),
        Claim(
            id="level-with-virtual-node",
            statement="At distance 16 of the class ring accuracy is within 5 points of GCN with a "
            "virtual node, the honest rival of a graph-wide channel.",
            paper="Does not compare with a virtual node in what we could read.",
            conditions=(
                Condition(
                    Stat("accuracy", over=("gcn-virtual-node",), form="difference", where=at_16),
                    at_least=-0.05,
                ),
            ),
        ),
        Claim(
            id="sensitivity-stays",
            statement="At distance 16 the derivative of the target by the source is at least a "
            "thousand times that of GCN (plain and residual), GATv2 and A-DGN.",
            paper="Says that sensitivity does not vanish with distance.",
            conditions=(
                Condition(
                    Stat("log_sensitivity", over=LOCAL, form="difference", where=at_16), at_least=3
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 3},
    packages=("torch", "torch-geometric"),
)


# ---- E5: parts --------------------------------------------------------------------------------

_PLAIN: dict[str, Any] = {"stable": "none"}

PARTS = Experiment(
    id="parts",
    title="Which part carries the class, without the energy correction",
    cases={
        "smoke": _cases(4),
        "quick": _cases(8),
        "full": _cases(8),
        "long": _cases(8, 16, 32),
    },
    setup=ring,
    contenders=(
        Contender("ours", contender("ours", **_PLAIN)),
        Contender("projection-per-node", contender("ours", **_PLAIN, projection="node")),
        Contender("no-projection", contender("ours", **_PLAIN, projection="none")),
        Contender("pure-descent", contender("ours", **_PLAIN, beta=0.0)),
        Contender("no-descent", contender("ours", **_PLAIN, alpha=0.0)),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="projection-carries-it",
            statement="Without the energy correction, the projection over the whole graph solves "
            "the class ring (at least 95 %), and does so by its graph-wide scalar: per node, "
            "without projection or with pure descent the class does not arrive (at most 40 %).",
            paper="Has the orthogonal component as the part that helps; scope not stated.",
            conditions=(
                Condition(Stat("accuracy"), at_least=0.95),
                *(
                    Condition(Stat("accuracy", of=who), at_most=0.40)
                    for who in ("projection-per-node", "no-projection", "pure-descent")
                ),
            ),
            ablations=(
                Ablation("projection-per-node", "accuracy", margin=0.3),
                Ablation("no-projection", "accuracy", margin=0.3),
                Ablation("pure-descent", "accuracy", margin=0.3),
                Ablation("no-descent", "accuracy", expect="reported"),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 3},
    packages=("torch",),
)
CORRECTED = Experiment(
    id="correction-channel",
    title="The energy correction is a second graph-wide channel",
    cases={"smoke": _cases(4), "quick": [], "full": _cases(8), "long": _cases(8, 16)},
    setup=ring,
    contenders=(
        Contender("ours", contender("ours")),
        Contender("projection-per-node", contender("ours", projection="node")),
        Contender("no-projection", contender("ours", projection="none")),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="correction-also-carries",
            statement="With the correction and without projection at least 60 % of classes still "
            "cross 8 hops, chance being 20 %: reach must not be credited to the projection alone.",
            paper="Has no such control.",
            conditions=(Condition(Stat("accuracy", of="no-projection"), at_least=0.6),),
            ablations=(
                Ablation("projection-per-node", "accuracy", expect="reported"),
                Ablation("no-projection", "accuracy", expect="reported"),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch",),
)
