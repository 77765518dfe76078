"""Tasks of the static experiment, and what its contenders buy.

A case is a model under a workload, at the paper's prices of H100 and H20 (the H20's times are a
roofline), or at list prices with measured GPUs only. Fleets are planned on one sample of requests
and judged on another by `sustained`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from armillary.evidence.shapes import Case, Need
from armillary.serving.hexgen.traces import Slo, Workload
from armillary.serving.hexgen.tuned import CHOSEN

if TYPE_CHECKING:
    from armillary.serving.hexgen.baselines import Task
    from armillary.serving.hexgen.planner import Plan

TABLES = (
    Need("extra", "aiconfigurator_core", "pip install 'armillary[serving]'"),
    Need("extra", "pyarrow", "pip install 'armillary[serving]'"),
)
MODELS = {
    "moe-30b": "Qwen/Qwen3-30B-A3B",
    "dense-8b": "meta-llama/Meta-Llama-3.1-8B",
    "dense-32b": "Qwen/Qwen3-32B",
}
WORKLOADS = ("wildgpt", "openthoughts", "openr1-math", "numinamath", "azure-conv")
#: Price of an hour: four H100 at the paper's price.
BUDGET = 12.28
SLO = Slo(2.0, 50.0)
#: Length of a run, in mean times that an answer takes at 40 ms a token; seconds at least.
RESIDENCES, SHORTEST_S, MOST_REQUESTS = 6.0, 60.0, 40000

CONTENDERS = (
    "ours", "h100-agg", "h100-pd", "best-homogeneous", "heterogeneous-pd", "vllm-sr-sim",
    "no-afd", "no-pd", "uniform-allocation", "uniform-parallelism",
)  # fmt: skip


def case_of(model: str, workload: str, book: str = "paper") -> Case:
    """A case, with what it needs."""
    needs = TABLES
    if workload.startswith("azure"):
        from armillary.corpora import EXTERNAL

        entry = next(e for e in EXTERNAL if e.name == workload)
        needs = (*TABLES, Need("data", entry.path, entry.how))
    name = f"{model} {workload}" + ("" if book == "paper" else f" {book}")
    return Case(name, {"moe": float(model.startswith("moe"))}, needs)


CASES = tuple(case_of(model, workload) for model in MODELS for workload in WORKLOADS)
LIST_CASES = tuple(case_of("moe-30b", workload, "list") for workload in WORKLOADS)


def lengths(kind: str, count: int, rate: float, seed: int) -> Workload:
    """Requests of a kind of traffic: synthetic, or drawn from those of an Azure trace (Poisson)."""
    if not kind.startswith("azure"):
        return Workload.synthetic_of(kind, count, rate, seed)
    trace = Workload.from_azure(kind=kind.removeprefix("azure-"))
    return trace.at_rate(rate).shuffled(count, seed)


def task_of(case: Case, seed: int) -> Task:
    """What a case asks, with a sample of 4000 requests to plan on."""
    from armillary.serving.hexgen.baselines import Task
    from armillary.serving.hexgen.catalog import Catalog
    from armillary.serving.hexgen.model_shape import ModelShape

    model, workload, *book = case.name.split(" ")
    catalog = Catalog.load(book=book[0] if book else "paper")
    sample = lengths(workload, 4000, 10.0, 50_000 + seed)
    return Task(ModelShape.load(MODELS[model]), catalog, sample, SLO, BUDGET)


def demand_trace(case: Case, task: Task, seed: int, share: float = 1.0) -> Workload:
    """The requests that judge: long enough that the fleet is in its steady state."""
    from armillary.serving.hexgen import baselines
    from armillary.serving.hexgen.columns import Demand

    demand = Demand.of(task.workload)
    reference = baselines.ours(task)
    seconds = max(SHORTEST_S, RESIDENCES * demand.steps * 0.04) * share
    count = int(min(MOST_REQUESTS, max(400, reference.throughput * seconds)))
    return lengths(case.name.split(" ")[1], count, reference.throughput, seed)


def fleet_of(name: str, case: Case, task: Task) -> Plan:
    """A contender's fleet: the variant that was chosen on development traces."""
    from armillary.serving.hexgen import baselines

    fixed: dict[str, Callable[[Task], Plan]] = {
        "vllm-sr-sim": baselines.vllm_sr_sim,
        "uniform-allocation": baselines.uniform_allocation,
        "uniform-parallelism": baselines.same_degree,
    }
    if name in fixed:
        return fixed[name](task)
    variants = baselines.VARIANTS[name]
    chosen = CHOSEN.get(case.name, {}).get(name, next(iter(variants)))
    return variants[chosen](task)


@dataclasses.dataclass
class Work:
    """What a cell's contenders share; fleets that are the same are simulated once."""

    task: Task
    trace: Workload
    tolerance: float
    seen: dict[str, float] = dataclasses.field(default_factory=dict)
