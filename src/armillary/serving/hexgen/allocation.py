"""How many replicas of which kind: a mixed-integer linear programme.

With n_j replicas of column j, its capacity k_j in requests a second, price p_j and GPUs u_j[g]:

    max λ            (budget form)   or   min Σ p_j n_j with λ = rate / ρ   (rate form)
    λ = λ_agg + λ_dis
    Σ_AGG k n ≥ λ_agg,  Σ_PRE k n ≥ λ_dis,  Σ_{DEC, AFD} k n ≥ λ_dis
    Σ_PRE w n ≥ λ_dis · (KV bytes of a prompt)          w: bytes a second that leave a replica
    Σ u_j[g] n_j ≤ inventory[g],  Σ p_j n_j ≤ budget

An AGG replica ships no KV cache: only λ_dis stands in the row of the link. Homogeneous fleets, PD
and AFD alone are special cases, so that no optimum is below theirs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from armillary.serving.hexgen.columns import Column

#: Most requests a second that one column is taken to carry: keeps the programme well scaled.
MOST = 1e5


@dataclasses.dataclass(frozen=True)
class Problem:
    """What to buy for.

    Attributes:
        columns: what can be bought.
        inventory: GPUs of each type.
        kv_bytes: of a mean prompt.
        budget: price of an hour at most, or None.
        rate: requests a second that must be carried, or None (exactly one of the two is given).
    """

    columns: Sequence[Column]
    inventory: Mapping[str, int]
    kv_bytes: float = 0.0
    budget: float | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if (self.budget is None) == (self.rate is None):
            raise ValueError("give either a budget or a rate")
        for name in ("budget", "rate"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name}={value}: it must be a finite number above 0")

    def capacity(self, column: Column) -> float:
        """Requests a second of one replica, as the programme takes it."""
        return min(column.capacity, MOST)


@dataclasses.dataclass(frozen=True)
class Allocation:
    """Counts of replicas, and what is known of how good they are.

    Attributes:
        counts: of each column.
        throughput: requests a second (fluid).
        price: of an hour.
        bound: of the objective (requests a second, or price): no allocation is better.
        gap: relative distance of the objective from the bound.
        timed_out: whether the solver stopped early.
        agg_share: share of requests that AGG replicas take.
    """

    counts: tuple[int, ...]
    throughput: float
    price: float
    bound: float
    gap: float
    timed_out: bool
    agg_share: float


def throughput_of(problem: Problem, counts: Sequence[int]) -> tuple[float, float]:
    """Requests a second that counts carry: all, and those of AGG replicas."""
    total = {"agg": 0.0, "pre": 0.0, "dec": 0.0, "link": 0.0}
    for column, n in zip(problem.columns, counts, strict=True):
        kind = "dec" if column.kind == "afd" else column.kind
        total[kind] += problem.capacity(column) * n
        if kind == "pre":
            total["link"] += column.kv_bandwidth * n
    link = total["link"] / problem.kv_bytes if problem.kv_bytes > 0 else math.inf
    return total["agg"] + min(total["pre"], total["dec"], link), total["agg"]


def price_of(problem: Problem, counts: Sequence[int]) -> float:
    """Price of an hour."""
    return float(sum(c.price * n for c, n in zip(problem.columns, counts, strict=True)))


def fits(problem: Problem, counts: Sequence[int]) -> bool:
    """Whether inventory and budget allow the counts."""
    used: dict[str, int] = {}
    for column, n in zip(problem.columns, counts, strict=True):
        for gpu, count in column.use:
            used[gpu] = used.get(gpu, 0) + count * n
    if any(count > problem.inventory.get(gpu, 0) for gpu, count in used.items()):
        return False
    return problem.budget is None or price_of(problem, counts) <= problem.budget * (1 + 1e-9)


def solve(problem: Problem, time_limit: float = 10.0, gap: float = 1e-6) -> Allocation | None:
    """The best allocation, or None if nothing is feasible."""
    model = _model(problem, integer=True)
    model.setOptionValue("time_limit", float(time_limit))
    model.setOptionValue("mip_rel_gap", gap)
    model.run()
    status = str(model.getModelStatus())
    info = model.getInfo()
    if "Infeasible" in status or info.primal_solution_status == 0:
        return None
    values = np.array(model.getSolution().col_value)
    counts = tuple(int(round(v)) for v in values[: len(problem.columns)])
    whole, agg = throughput_of(problem, counts)
    price = price_of(problem, counts)
    value = whole if problem.budget is not None else price
    bound = abs(float(info.mip_dual_bound))
    return Allocation(
        counts, whole, price, bound, abs(bound - value) / max(value, 1e-12),
        "TimeLimit" in status, agg / whole if whole > 0 else 0.0,
    )  # fmt: skip


def shadow_prices(problem: Problem) -> dict[str, float]:
    """What one more GPU of each type is worth in the linear relaxation.

    Requests a second (budget form) or price of an hour saved (rate form).
    """
    model = _model(problem, integer=False)
    model.run()
    dual = np.array(model.getSolution().row_dual)
    start = 5 if problem.kv_bytes > 0 else 4
    return {
        gpu: abs(float(dual[start + i])) for i, gpu in enumerate(sorted(problem.inventory))
    }


def _model(problem: Problem, *, integer: bool):  # noqa: ANN202 (the solver's own type is lazy)
    import highspy

    columns = problem.columns
    n = len(columns)
    model = highspy.Highs()
    model.silent()
    model.setOptionValue("threads", 1)
    infinity = highspy.kHighsInf
    budget = problem.budget is not None
    for column in columns:
        most = min(problem.inventory.get(g, 0) // u for g, u in column.use)
        model.addVar(0.0, float(most))
    model.addVar(0.0, infinity)  # λ_agg
    model.addVar(0.0, infinity)  # λ_dis
    cost = [0.0 if budget else c.price for c in columns] + ([-1.0, -1.0] if budget else [0.0, 0.0])
    for j, value in enumerate(cost):
        model.changeColCost(j, value)
    if integer:
        for j in range(n):
            model.changeColIntegrality(j, highspy.HighsVarType.kInteger)

    def row(low: float, high: float, entries: Mapping[int, float]) -> None:
        kept = {j: v for j, v in entries.items() if v != 0}
        index, value = list(kept), list(kept.values())
        model.addRow(low, high, len(index), np.array(index, np.int32), np.array(value, float))

    def carried(kinds: tuple[str, ...], share: int) -> dict[int, float]:
        found = {
            j: problem.capacity(c) for j, c in enumerate(columns) if c.kind in kinds
        }
        return {**found, share: -1.0}

    row(0.0, infinity, carried(("agg",), n))
    row(0.0, infinity, carried(("pre",), n + 1))
    row(0.0, infinity, carried(("dec", "afd"), n + 1))
    least = 0.0 if budget else float(problem.rate or 0.0)
    row(least, infinity, {n: 1.0, n + 1: 1.0})
    if problem.kv_bytes > 0:  # in units of requests a second
        link = {
            j: c.kv_bandwidth / problem.kv_bytes for j, c in enumerate(columns) if c.kind == "pre"
        }
        row(0.0, infinity, {**link, n + 1: -1.0})
    for gpu in sorted(problem.inventory):
        use = {j: float(dict(c.use).get(gpu, 0)) for j, c in enumerate(columns)}
        row(-infinity, float(problem.inventory[gpu]), use)
    if problem.budget is not None:
        row(-infinity, float(problem.budget), {j: c.price for j, c in enumerate(columns)})
    return model
