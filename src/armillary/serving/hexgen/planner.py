"""`plan`: the fleet for a model, a workload and targets, with how good it can be shown to be."""

from __future__ import annotations

import dataclasses
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from armillary.serving.hexgen import allocation
from armillary.serving.hexgen.allocation import Allocation, Problem
from armillary.serving.hexgen.catalog import Catalog, Gpu
from armillary.serving.hexgen.columns import (
    DEGREES,
    PREFILL_BUDGET,
    AfdTimes,
    Column,
    Demand,
    build_columns,
)
from armillary.serving.hexgen.model_shape import BYTES, ModelShape
from armillary.serving.hexgen.steptimes import (
    MEMORY_SHARE,
    RUNTIME_BYTES,
    kv_room,
    step_times,
)
from armillary.serving.hexgen.traces import Slo, Workload

FORMAT = 1


class InfeasibleError(ValueError):
    """No fleet meets what was asked; the message names the smallest change that would help."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A fleet.

    Attributes:
        shape: the model that it serves.
        slo: its targets.
        catalog: what it was bought from.
        columns, counts: kinds of replica and how many of each.
        throughput: fluid requests a second: what the planner believes, not a result.
        bound, gap: of the planner's objective; a gap of 0 is a proof within the columns.
        binding: what stops the plan from being larger or cheaper.
        shadow: worth of one more GPU by type, in the linear relaxation.
        agg_share: share of requests for AGG replicas.
        timed_out: whether the solver stopped early (the plan stands, with its gap).
        fingerprint: of the catalogue.
    """

    shape: ModelShape
    slo: Slo
    catalog: Catalog
    columns: tuple[Column, ...]
    counts: tuple[int, ...]
    throughput: float
    bound: float = math.nan
    gap: float = math.nan
    binding: tuple[str, ...] = ()
    shadow: Mapping[str, float] = dataclasses.field(default_factory=dict)
    agg_share: float = 1.0
    timed_out: bool = False
    fingerprint: str = ""

    @property
    def price(self) -> float:
        """Of an hour."""
        return float(sum(c.price * n for c, n in zip(self.columns, self.counts, strict=True)))

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs by type."""
        used: dict[str, int] = {}
        for column, n in zip(self.columns, self.counts, strict=True):
            for gpu, count in column.use:
                used[gpu] = used.get(gpu, 0) + count * n
        return used

    @property
    def estimated(self) -> tuple[str, ...]:
        """Columns whose times are a roofline and no measurement."""
        return tuple(c.name for c in self.columns if c.estimated)

    def describe(self) -> str:
        """One line: counts and names."""
        return " + ".join(f"{n} x {c.name}" for c, n in zip(self.columns, self.counts, strict=True))

    def to_json(self) -> dict[str, Any]:
        """As plain data that `from_json` reads."""
        return {
            "format": FORMAT,
            "shape": dataclasses.asdict(self.shape),
            "slo": dataclasses.asdict(self.slo),
            "catalog": {
                "book": self.catalog.book,
                "currency": self.catalog.currency,
                "source": self.catalog.source,
                "fingerprint": self.fingerprint or self.catalog.fingerprint,
                "gpus": {n: dataclasses.asdict(g) for n, g in self.catalog.gpus.items()},
            },
            "fleet": [
                {"count": n, **_column_json(c)}
                for c, n in zip(self.columns, self.counts, strict=True)
            ],
            "price_per_hour": self.price,
            "gpus": self.gpus,
            "fluid_throughput": self.throughput,
            "bound": None if math.isnan(self.bound) else self.bound,
            "gap": None if math.isnan(self.gap) else self.gap,
            "binding": list(self.binding),
            "shadow_prices": dict(self.shadow),
            "agg_share": self.agg_share,
            "timed_out": self.timed_out,
            "estimated": list(self.estimated),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], catalog: Catalog | None = None) -> Plan:
        """From what `to_json` gave.

        Args:
            data: the plan.
            catalog: today's catalogue: a warning tells if the plan was made from another.

        Raises:
            ValueError: it is no plan of this format.
        """
        try:
            if data["format"] != FORMAT:
                raise ValueError(f"plan: format {data['format']!r}, this version reads {FORMAT}")
            kept = data["catalog"]
            gpus = {name: Gpu(**values) for name, values in kept["gpus"].items()}
            own = Catalog(gpus, kept["book"], kept["currency"], kept["source"])
            shape, slo = ModelShape(**data["shape"]), Slo(**data["slo"])
            columns = tuple(_column_from(entry, shape, own) for entry in data["fleet"])
            counts = tuple(int(entry["count"]) for entry in data["fleet"])
            found = cls(
                shape, slo, own, columns, counts, data["fluid_throughput"],
                math.nan if data["bound"] is None else data["bound"],
                math.nan if data["gap"] is None else data["gap"], tuple(data["binding"]),
                data["shadow_prices"], data["agg_share"], data["timed_out"], kept["fingerprint"],
            )  # fmt: skip
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"plan: it is no plan of hexgen ({error!r})") from None
        if catalog is not None and catalog.fingerprint != found.fingerprint:
            warnings.warn(
                f"the plan was made from catalogue {found.fingerprint}, now it is "
                f"{catalog.fingerprint}: prices or GPUs have changed, plan anew",
                stacklevel=2,
            )
        return found

    @classmethod
    def load(cls, path: str | Path, catalog: Catalog | None = None) -> Plan:
        """From a file."""
        path = Path(path)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeError):
            raise ValueError(f"{path.name}: it is no JSON, hence no plan") from None
        return cls.from_json(data, catalog)

    def to_vllm(self, **options: Any) -> list[Any]:
        """One ``vllm serve`` a replica; see `deploy.to_vllm`."""
        from armillary.serving.hexgen.deploy import to_vllm

        return to_vllm(self, **options)

    def to_ray_serve(self, **options: Any) -> dict[str, Any]:
        """Configuration for ``serve deploy``; see `deploy.to_ray_serve`."""
        from armillary.serving.hexgen.deploy import to_ray_serve

        return to_ray_serve(self, **options)

    def save(self, path: str | Path) -> None:
        """To a file, whole or not at all."""
        from armillary import output

        output.write_json(Path(path), self.to_json())


def plan(
    model: str | Path | Mapping[str, Any] | ModelShape,
    catalog: Catalog,
    workload: Workload,
    slo: Slo,
    *,
    budget_per_hour: float | None = None,
    rate: float | None = None,
    modes: Sequence[str] = ("agg", "pd", "afd"),
    solver: str = "milp",
    rho: float = 0.75,
    margin: float = 0.9,
    time_limit: float = 10.0,
    seed: int = 0,
) -> Plan:
    """The fleet of most throughput for a budget, or the cheapest for a rate.

    Args:
        model: a config.json, its content, a known name, or a shape.
        catalog: GPUs with prices and inventory.
        workload: whose lengths decide capacities; its rate is not used.
        slo: the targets.
        budget_per_hour: the most that an hour may cost.
        rate: requests a second to carry. Exactly one of the two.
        modes: of ``agg``, ``pd``, ``afd``.
        solver: ``milp`` (HiGHS, with a certificate) or ``anneal`` (the paper's hierarchical search
            on the same columns).
        rho: utilisation to plan the rate form for.
        margin: share of the TPOT target that a full batch may take.
        time_limit: seconds for the solver; past it the best plan stands, flagged.
        seed: of the annealer.

    Raises:
        InfeasibleError: the model fits nowhere, the targets are below the floor, the inventory or
            the budget is too small; the message names the smallest change.
    """
    shape = model if isinstance(model, ModelShape) else ModelShape.load(model)
    if not 0 < rho <= 1:
        raise ValueError(f"rho={rho}: it must lie in (0, 1]")
    if solver not in ("milp", "anneal"):
        raise ValueError(f"solver={solver!r}: it must be milp or anneal")
    columns = build_columns(shape, catalog, workload, slo, modes=modes, margin=margin)
    inventory = {name: gpu.inventory for name, gpu in catalog.gpus.items()}
    if not _complete(columns):
        raise InfeasibleError(_why(shape, catalog, workload, slo, modes))
    kv = float(workload.inputs.mean()) * shape.kv_bytes
    problem = Problem(columns, inventory, kv, budget_per_hour, None if rate is None else rate / rho)
    if solver == "anneal":
        from armillary.serving.hexgen.annealer import anneal

        found = anneal(problem, params=shape.params, seed=seed)
    else:
        found = allocation.solve(problem, time_limit)
    if found is None or found.throughput <= 0:
        raise InfeasibleError(_too_small(problem, catalog, rate, rho))
    return _plan(shape, slo, catalog, problem, found)


def _plan(
    shape: ModelShape, slo: Slo, catalog: Catalog, problem: Problem, found: Allocation
) -> Plan:
    bought = [(c, n) for c, n in zip(problem.columns, found.counts, strict=True) if n]
    result = Plan(
        shape, slo, catalog, tuple(c for c, _ in bought), tuple(n for _, n in bought),
        found.throughput, found.bound, found.gap, agg_share=found.agg_share,
        timed_out=found.timed_out, fingerprint=catalog.fingerprint,
        shadow=allocation.shadow_prices(problem),
    )  # fmt: skip
    return dataclasses.replace(result, binding=_binding(problem, result))


def _binding(problem: Problem, found: Plan) -> tuple[str, ...]:
    """Rows without room for one more of the cheapest column."""
    rows = []
    cheapest = min(c.price for c in problem.columns)
    if problem.budget is not None and found.price + cheapest > problem.budget:
        rows.append("budget")
    used = found.gpus
    rows += [
        f"inventory of {gpu}" for gpu, n in sorted(problem.inventory.items())
        if used.get(gpu, 0) >= n > 0
    ]  # fmt: skip
    return tuple(rows) or (("rate",) if problem.rate is not None else ("none",))


def _complete(columns: Sequence[Column]) -> bool:
    kinds = {c.kind for c in columns}
    return "agg" in kinds or ("pre" in kinds and bool(kinds & {"dec", "afd"}))


def _why(
    shape: ModelShape, catalog: Catalog, workload: Workload, slo: Slo, modes: Sequence[str]
) -> str:
    """Why no column is there: memory first, then the targets."""
    demand = Demand.of(workload)
    lines, fitting = [], False
    for gpu in catalog.gpus.values():
        degrees = [tp for tp in DEGREES if tp <= min(gpu.node, gpu.inventory)]
        rooms = {tp: kv_room(shape, gpu, tp, shape.params) for tp in degrees}
        good = [tp for tp in degrees if rooms[tp] >= demand.context and shape.can_split(tp)]
        if not good:
            tp = max(degrees, default=1)
            need = shape.params * BYTES + demand.context * shape.kv_bytes
            missing = need - (gpu.memory * MEMORY_SHARE - RUNTIME_BYTES) * tp
            later = [d for d in DEGREES if d > tp and kv_room(shape, gpu, d, shape.params) > 0]
            hint = f", or tp {later[0]}" if later else ""
            lines.append(f"{gpu.name} (tp {tp}): {missing / 1e9:.1f} GB missing{hint}")
            continue
        fitting = True
        steps, prompts = [], []
        for tp in good:
            times = step_times(shape, gpu, tp)
            assert times is not None
            steps.append(float(times.decode(1, demand.context)))
            prompts.append(float(times.alone(np.array([demand.long_input]), PREFILL_BUDGET)[0]))
        lines.append(
            f"{gpu.name}: TPOT floor {min(steps) * 1e3:.1f} ms, TTFT floor {min(prompts):.2f} s"
        )
    head = (
        f"no replica meets {slo.tpot_p99_ms:g} ms a token and {slo.ttft_p99_s:g} s to the first "
        f"(modes {', '.join(modes)}): loosen the targets"
        if fitting
        else f"{shape.name} ({shape.params * BYTES / 1e9:.0f} GB of weights) fits no replica"
    )
    return head + "; " + "; ".join(lines)


def _too_small(problem: Problem, catalog: Catalog, rate: float | None, rho: float) -> str:
    if rate is not None:
        whole = Problem(problem.columns, problem.inventory, problem.kv_bytes, budget=1e12)
        most = allocation.solve(whole)
        reach = 0.0 if most is None else most.throughput * rho
        return (
            f"rate={rate:g}: the inventory carries {reach:.2f} requests a second at rho={rho:g}: "
            "lower the rate or add GPUs"
        )
    least = cheapest(problem)
    assert problem.budget is not None
    if least is None:
        return "the inventory holds no replica (or no pair of prefill and decode): add GPUs"
    return (
        f"budget_per_hour={problem.budget:g} is below the cheapest fleet that serves at all: "
        f"{least:.2f} {catalog.currency} an hour"
    )


def cheapest(problem: Problem) -> float | None:
    """Price of an hour of the cheapest fleet that serves any request."""
    tiny = Problem(problem.columns, problem.inventory, problem.kv_bytes, rate=0.01)
    found = allocation.solve(tiny)
    return None if found is None else found.price


def _column_json(column: Column) -> dict[str, Any]:
    plain = {
        f.name: getattr(column, f.name) for f in dataclasses.fields(column) if f.name != "times"
    }
    plain["use"] = dict(column.use)
    times = column.times
    if isinstance(times, AfdTimes):
        plain["group"] = {
            "attention": [times.attention.gpu.name, times.attention.tp, times.workers],
            "ffn": [times.ffn.gpu.name, times.ffn.tp, times.ffn_workers],
            "micro": times.micro,
            "kv_tokens": times.kv_tokens,
        }
    else:
        plain["replica"] = [times.gpu.name, times.tp]
    return plain


def _column_from(entry: Mapping[str, Any], shape: ModelShape, catalog: Catalog) -> Column:
    def replica(name: str, tp: int):
        times = step_times(shape, catalog[name], tp)
        if times is None:
            raise ValueError(f"plan: {shape.name} cannot be split over {tp} x {name}")
        return times

    values = {k: v for k, v in entry.items() if k not in ("count", "group", "replica", "use")}
    if "group" in entry:
        group = entry["group"]
        (a, tp_a, n_a), (f, tp_f, n_f) = group["attention"], group["ffn"]
        times: Any = AfdTimes(
            replica(a, tp_a), replica(f, tp_f), n_a, n_f, group["micro"], group["kv_tokens"]
        )
    else:
        times = replica(*entry["replica"])
    return Column(use=tuple(sorted(entry["use"].items())), times=times, **values)
