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
from typing import Any

import numpy as np

from armillary.serving.hexgen.columns import Column
from armillary.serving.hexgen.optables import Floats

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
        running: replicas of each column that are there already (rate form only).
        change_price: what each added replica costs besides, as a price of an hour.
    """

    columns: Sequence[Column]
    inventory: Mapping[str, int]
    kv_bytes: float = 0.0
    budget: float | None = None
    rate: float | None = None
    running: Sequence[int] | None = None
    change_price: Sequence[float] | None = None

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
    """The best allocation (HiGHS), or None if nothing is feasible."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    rows = _rows(problem)
    n = len(problem.columns)
    bounds: Any = Bounds(0.0, rows.most)  # type: ignore[arg-type]  # stubs want scalars
    limits: Any = LinearConstraint(rows.matrix, -np.inf, rows.limit)  # type: ignore[arg-type]
    integral = np.r_[np.ones(n), np.zeros(len(rows.cost) - n)]
    found = milp(
        rows.cost, integrality=integral, bounds=bounds, constraints=limits,
        options={"time_limit": float(time_limit), "mip_rel_gap": gap},
    )  # fmt: skip
    if found.x is None:
        return None
    counts = tuple(round(v) for v in found.x[:n])
    whole, agg = throughput_of(problem, counts)
    price = price_of(problem, counts)
    value = abs(float(found.fun))
    bound = abs(float(found.mip_dual_bound))
    return Allocation(
        counts, whole, price, bound, abs(bound - value) / max(value, 1e-12), found.status == 1,
        agg / whole if whole > 0 else 0.0,
    )  # fmt: skip


def shadow_prices(problem: Problem) -> dict[str, float]:
    """What one more GPU of each type is worth in the linear relaxation.

    Requests a second (budget form) or price of an hour saved (rate form). Counts are not bounded by
    the inventory one by one here, only in all, so that the whole worth stands in its row.
    """
    from scipy.optimize import linprog

    rows = _rows(problem)
    found = linprog(rows.cost, A_ub=rows.matrix, b_ub=rows.limit, bounds=(0, None))
    if found.x is None:
        return dict.fromkeys(sorted(problem.inventory), 0.0)
    dual = dict(zip(rows.names, found.ineqlin.marginals.tolist(), strict=True))
    return {gpu: abs(dual[f"inventory {gpu}"]) for gpu in sorted(problem.inventory)}


@dataclasses.dataclass(frozen=True)
class _Rows:
    """min cost·x with matrix·x ≤ limit, 0 ≤ x ≤ most; x = (n_1 … n_J, λ_agg, λ_dis)."""

    cost: Floats
    matrix: Floats
    limit: Floats
    most: Floats
    names: tuple[str, ...]


def _rows(problem: Problem) -> _Rows:
    columns = problem.columns
    n = len(columns)
    capacity = np.array([problem.capacity(c) for c in columns])
    price = np.array([c.price for c in columns])
    kinds = np.array([c.kind for c in columns])
    rows: list[tuple[str, Floats, float]] = []

    def carried(kind: str, members: Floats, share: int) -> None:
        row = np.zeros(n + 2)
        row[:n] = -members
        row[n + share] = 1.0
        rows.append((kind, row, 0.0))

    carried("agg", capacity * (kinds == "agg"), 0)
    carried("pre", capacity * (kinds == "pre"), 1)
    carried("dec", capacity * np.isin(kinds, ("dec", "afd")), 1)
    if problem.kv_bytes > 0:  # in units of requests a second
        link = np.array([c.kv_bandwidth for c in columns]) / problem.kv_bytes
        carried("link", link * (kinds == "pre"), 1)
    for gpu in sorted(problem.inventory):
        use = np.array([float(dict(c.use).get(gpu, 0)) for c in columns])
        rows.append((f"inventory {gpu}", np.r_[use, 0.0, 0.0], float(problem.inventory[gpu])))
    if problem.budget is not None:
        rows.append(("budget", np.r_[price, 0.0, 0.0], float(problem.budget)))
        cost = np.r_[np.zeros(n), -1.0, -1.0]
    else:
        rows.append(("rate", np.r_[np.zeros(n), -1.0, -1.0], -float(problem.rate or 0.0)))
        cost = np.r_[price, 0.0, 0.0]
    most = [float(min(problem.inventory.get(g, 0) // u for g, u in c.use)) for c in columns]
    matrix = np.stack([row for _, row, _ in rows])
    limit = np.array([value for *_, value in rows])
    names, bound = tuple(name for name, *_ in rows), np.array([*most, np.inf, np.inf])
    if problem.running is not None and problem.change_price is not None:
        # added_j ≥ n_j − running_j, and each added replica has its price
        added = np.c_[np.eye(n), np.zeros((n, 2)), -np.eye(n)]
        matrix = np.r_[np.c_[matrix, np.zeros((len(matrix), n))], added]
        limit = np.r_[limit, np.asarray(problem.running, float)]
        names += tuple(f"added {c.name}" for c in columns)
        cost, bound = np.r_[cost, np.asarray(problem.change_price, float)], np.r_[bound, most]
    return _Rows(cost, matrix, limit, bound, names)
