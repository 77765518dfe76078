"""Plans: how near to the best they are, how long they take, and whether planted ones are found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
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
from armillary.serving.gemq.distilled import NEEDS

if TYPE_CHECKING:
    from armillary.serving.gemq.importance import Importance

SCIPY = (Need("extra", "scipy", "pip install armillary"),)


def invented(damage: Any, bits: tuple[int, ...] = (1, 2, 3)) -> Importance:
    """An importance of given damages, experts of 2048 by 1024 features."""
    import numpy as np

    from armillary.serving.gemq import rtn
    from armillary.serving.gemq.importance import Importance

    layers, experts, _ = damage.shape
    size = np.array([rtn.expert_bytes(2048, 1024, b, 128) for b in bits])
    return Importance(
        damage, damage, damage, damage, np.ones((layers, experts), np.int64),
        np.ones((layers, experts)), 1, np.zeros((layers, experts), bool),
        np.broadcast_to(size, damage.shape).copy(),
        np.full((layers, experts), 3 * 2048 * 1024), bits, 128,
        tuple(f"model.layers.{i}.mlp" for i in range(layers)),
    )  # fmt: skip


def damages(cell: Cell) -> Importance:
    """Damages that fall with the width, over four decades, as wide as measured ones spread."""
    import numpy as np

    rng = np.random.default_rng(cell.seed)
    layers, experts = int(cell.case.x["layers"]), int(cell.case.x["experts"])
    base = 10.0 ** rng.uniform(-4, 0, size=(layers, experts, 1))
    return invented(base * np.cumprod(rng.uniform(0.1, 0.7, size=(layers, experts, 3)), axis=2))


def best_of_all(importance: Importance, budget: float) -> float:
    """The least damage among all plans with the diversity rule, by trying each of them."""
    import itertools

    import numpy as np

    c, size = importance.fisher, importance.sizes
    layers, experts, count = c.shape
    n = layers * experts
    plans = np.array(list(itertools.product(range(count), repeat=n)))
    fits = size.reshape(n, count)[np.arange(n), plans].sum(axis=1) <= budget + 1e-9
    by_layer = plans.reshape(-1, layers, experts)
    for width in (count - 1, count - 2):
        fits &= (by_layer == width).any(axis=2).all(axis=1)
    return float(c.reshape(n, count)[np.arange(n), plans].sum(axis=1)[fits].min())


def solved(solver: str) -> Callable[[Importance, Cell], Mapping[str, float]]:
    """Gap to the best plan (small cases) or to the proven bound, and processor seconds."""

    def run(work: Importance, cell: Cell) -> Mapping[str, float]:
        import warnings

        from armillary.serving.gemq.allocation import AllocationWarning, allocate

        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AllocationWarning)
            plan = allocate(work, avg_bits=2.0, solver=solver)  # pyright: ignore
        seconds = time.process_time() - start
        found = {"gap": plan.gap, "seconds": seconds}
        if cell.case.x["brute"]:
            best = best_of_all(work, plan.budget)
            found["above_best"] = max(0.0, plan.objective / best - 1)
        return found

    return run


def _sizes(*names: str) -> list[Case]:
    known = {
        "8 experts": (2, 4), "10 experts": (2, 5), "240 experts": (30, 8),
        "1664 experts": (26, 64), "4000 experts": (40, 100),
    }  # fmt: skip
    return [
        Case(
            name,
            x={"layers": known[name][0], "experts": known[name][1],
               "brute": float(known[name][0] * known[name][1] <= 10)},
            needs=SCIPY,
        )
        for name in names
    ]  # fmt: skip


def _brute(case: Case) -> bool:
    return bool(case.x["brute"])


def _large(case: Case) -> bool:
    return not case.x["brute"]


ALLOCATION = Experiment(
    id="allocation",
    title="The solver against all plans, and against its own bound",
    cases={
        "smoke": _sizes("8 experts", "240 experts"),
        "quick": _sizes("8 experts", "240 experts", "1664 experts"),
        "full": _sizes("8 experts", "10 experts", "240 experts", "1664 experts", "4000 experts"),
        "long": _sizes("8 experts", "10 experts", "240 experts", "1664 experts", "4000 experts"),
    },
    setup=damages,
    contenders=(
        Contender("ours", solved("highs")),
        Contender("multipliers", solved("lagrange")),
    ),
    metrics=(
        Metric("above_best", "share"),
        Metric("gap", "share"),
        Metric("seconds", "s"),
    ),
    claims=(
        Claim(
            id="no-plan-is-better",
            statement="For up to 10 experts of three widths no plan of all there are does less "
            "damage, under the same budget and rules.",
            paper="Solves its program with Gurobi.",
            conditions=(
                Condition(Stat("above_best", where=_brute), at_most=1e-9, every=True),
            ),
        ),
        Claim(
            id="multipliers-suffice",
            statement="For 240 to 4,000 experts the plan of multipliers alone is within 0.01 % of "
            "the bound that they prove.",
            paper="Needs a licensed solver for large models.",
            conditions=(
                Condition(
                    Stat("gap", of="multipliers", where=_large), at_most=1e-4, every=True
                ),
            ),
        ),
        Claim(
            id="planned-in-seconds",
            statement="A plan takes at most 5 seconds of one processor, up to 1,664 experts of "
            "three widths.",
            paper="Seconds to minutes.",
            conditions=(
                Condition(
                    Stat("seconds", where=lambda c: c.x["layers"] * c.x["experts"] <= 1664),
                    at_most=5.0, every=True,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 20},
    unit="seed",
    packages=("scipy", "numpy"),
)  # fmt: skip


# ---- planted optima -----------------------------------------------------------------------------


class Planted(NamedTuple):
    """Measured or given damages, and the widths that are best."""

    importance: Any
    wanted: Any
    seed: int


def plant(cell: Cell) -> Planted:
    """Damages in closed form, or a block whose experts' outputs are scaled by known factors."""
    from armillary.serving.gemq.allocation import planted

    if not cell.case.x["model"]:
        damage, wanted = planted(cell.seed, layers=6, experts=8)
        return Planted(invented(damage), wanted, cell.seed)
    import numpy as np
    import torch

    from armillary.serving.gemq.importance import collect
    from armillary.serving.gemq.layouts import blocks
    from armillary.serving.gemq.tasks import small_moe

    third = np.repeat([0, 1, 2], 2)
    np.random.default_rng(cell.seed).shuffle(third)
    model = small_moe(
        seed=cell.seed, num_hidden_layers=1, num_local_experts=6, num_experts_per_tok=3
    )
    with torch.no_grad():
        for block in blocks(model):
            for e, level in enumerate(third.tolist()):
                block.experts.down_proj[e] *= 10.0 ** (0.9 * level - 1.8)
    generator = torch.Generator().manual_seed(cell.seed)
    tokens = torch.randint(1, 97, (12, 48), generator=generator)
    # From two bits on, each bit saves less than the one before it.
    return Planted(collect(model, tokens, bits=(2, 3, 4)), third[None] + 2, cell.seed)


def recovered(kind: str) -> Callable[[Planted, Cell], Mapping[str, float]]:
    def run(work: Planted, cell: Cell) -> Mapping[str, float]:
        import numpy as np

        from armillary.serving.gemq.allocation import allocate

        coefficients = None
        if kind == "shuffled":
            rng = np.random.default_rng(work.seed + 1)
            flat = work.importance.fisher.reshape(-1, 3)
            coefficients = flat[rng.permutation(len(flat))].reshape(-1, *work.wanted.shape[1:], 3)
        plan = allocate(
            work.importance, avg_bits=float(work.wanted.mean()), budget="nominal", diversity=False,
            scope="layer" if kind == "layer" else "global", coefficients=coefficients,
        )  # fmt: skip
        return {"missed": float((plan.bits != work.wanted).mean())}

    return run


def _planted(model: bool) -> Case:
    name = "measured" if model else "closed form"
    return Case(name, x={"model": float(model)}, needs=NEEDS if model else SCIPY)


PLANTED = Experiment(
    id="planted",
    title="Best plans that are known",
    cases={
        name: [_planted(False), _planted(True)] for name in ("smoke", "quick", "full", "long")
    },
    setup=plant,
    contenders=(
        Contender("ours", recovered("global")),
        Contender("layer-wise", recovered("layer")),
        Contender("shuffled", recovered("shuffled")),
    ),
    metrics=(Metric("missed", "share"),),
    claims=(
        Claim(
            id="planted-plan-is-found",
            statement="Where every expert's sensitivity is planted, each gets the width that is "
            "best in closed form: with damages given, and with damages measured on a model.",
            paper="No such control.",
            conditions=(Condition(Stat("missed"), at_most=0, every=True),),
            ablations=(Ablation("shuffled", "missed"),),
        ),
    ),
    seeds={"smoke": 2, "quick": 20, "full": 100, "long": 100},
    packages=("scipy", "torch", "transformers"),
)  # fmt: skip
