"""How others would choose a fleet, from the same columns.

Every baseline buys from the columns that ours buys from (the same batches, token budgets and
operator times) and is judged by the same simulator; what differs is which of them it may combine,
and how it chooses counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from armillary.serving.hexgen import allocation
from armillary.serving.hexgen.allocation import Allocation, Problem
from armillary.serving.hexgen.catalog import Catalog
from armillary.serving.hexgen.columns import DEGREES, Column, build_columns
from armillary.serving.hexgen.model_shape import ModelShape
from armillary.serving.hexgen.planner import InfeasibleError, Plan, plan
from armillary.serving.hexgen.traces import Slo, Workload


@dataclasses.dataclass(frozen=True)
class Task:
    """What all contenders are asked: most requests a second for a price of an hour."""

    shape: ModelShape
    catalog: Catalog
    workload: Workload
    slo: Slo
    budget: float


def ours(task: Task, modes: Sequence[str] = ("agg", "pd", "afd"), margin: float = 0.9) -> Plan:
    """The planner over all GPUs."""
    return plan(
        task.shape, task.catalog, task.workload, task.slo, budget_per_hour=task.budget,
        modes=modes, margin=margin,
    )  # fmt: skip


def homogeneous(task: Task, gpu: str, mode: str, margin: float = 0.9, tp: int = 0) -> Plan:
    """The best fleet of one type of GPU and one mode; ``tp``: of this degree alone."""
    task = dataclasses.replace(task, catalog=task.catalog.only(gpu))
    return same_degree(task, (mode,), tp, margin) if tp else ours(task, (mode,), margin)


def best_homogeneous(task: Task, mode: str, margin: float = 0.9) -> Plan:
    """The best fleet of one type of GPU, whichever type that is."""
    found: list[Plan] = []
    for gpu in task.catalog.gpus:
        try:
            found.append(homogeneous(task, gpu, mode, margin))
        except InfeasibleError:
            continue
    if not found:
        raise InfeasibleError("no type of GPU serves the model alone")
    return max(found, key=lambda p: p.throughput / p.price)


def same_degree(
    task: Task, modes: Sequence[str] = ("agg", "pd"), tp: int = 0, margin: float = 0.9
) -> Plan:
    """All replicas with one degree of tensor parallelism (0: the best one); no groups."""
    columns = build_columns(
        task.shape, task.catalog, task.workload, task.slo, modes=modes, margin=margin
    )
    found: list[Plan] = []
    for degree in (tp,) if tp else DEGREES:
        part = [c for c in columns if c.name.endswith(f"-tp{degree}")]
        problem = _problem(task, part)
        best = allocation.solve(problem) if part else None
        if best is not None and best.throughput > 0:
            found.append(_as_plan(task, problem, best.counts))
    if not found:
        raise InfeasibleError("no such fleet serves the model within the budget")
    return max(found, key=lambda p: p.throughput)


def uniform_allocation(task: Task) -> Plan:
    """Every type of GPU gets the same share of the budget, split evenly over its kinds."""
    columns = build_columns(task.shape, task.catalog, task.workload, task.slo)
    problem = _problem(task, columns)
    kinds = ("pre", "dec")
    names = [g for g in task.catalog.gpus if any(dict(c.use).get(g) for c in columns)]
    share = task.budget / (len(names) * len(kinds))
    counts = [0] * len(columns)
    for gpu in names:
        for kind in kinds:
            own = [
                j for j, c in enumerate(columns)
                if c.kind == kind and set(dict(c.use)) == {gpu} and c.price <= share
            ]  # fmt: skip
            if own:
                j = max(own, key=lambda j: columns[j].capacity / columns[j].price)
                counts[j] = int(share // columns[j].price)
    return _as_plan(task, problem, counts)


def _problem(task: Task, columns: Sequence[Column]) -> Problem:
    inventory = {name: gpu.inventory for name, gpu in task.catalog.gpus.items()}
    kv = float(task.workload.inputs.mean()) * task.shape.kv_bytes
    return Problem(columns, inventory, kv, budget=task.budget)


def _as_plan(task: Task, problem: Problem, counts: Sequence[int]) -> Plan:
    from armillary.serving.hexgen.planner import _plan

    whole, agg = allocation.throughput_of(problem, counts)
    if whole <= 0:
        raise InfeasibleError("such a fleet serves nothing within the budget")
    price = allocation.price_of(problem, counts)
    found = Allocation(tuple(counts), whole, price, whole, 0.0, False, agg / whole)
    return _plan(task.shape, task.slo, task.catalog, problem, found)


def vllm_sr_sim(task: Task) -> Plan:
    """What ``vllm-sr-sim``'s optimiser of disaggregated fleets recommends, from its own profiles.

    It is asked about every pair of GPU types and degrees with its default corrections
    (0.90, 0.92, 1.80) and gives counts; the replicas are then ours, so that batching is the same.
    """
    from fleet_sim.gpu_profiles import ProfileBuilder, ServingConfig
    from fleet_sim.hardware import H100_SXM
    from fleet_sim.models import ModelSpec
    from fleet_sim.optimizer import DisaggFleetOptimizer

    shape, mean_in = task.shape, float(task.workload.inputs.mean())
    mean_out = float(task.workload.outputs.mean())
    spec = ModelSpec(
        shape.name, shape.layers, shape.heads, shape.kv_heads, shape.hidden, shape.inner,
        shape.vocab, 40960, moe_intermediate_size=shape.expert_inner, n_experts=shape.experts,
        n_experts_topk=shape.top_k,
    )  # fmt: skip
    columns = build_columns(shape, task.catalog, task.workload, task.slo, modes=("pd",))
    own = {kind: [c for c in columns if c.kind == kind] for kind in ("pre", "dec")}
    context = int(mean_in + mean_out)

    def profile(column: Column, phase: str):
        ((gpu_name, tp),) = column.use
        gpu = task.catalog[gpu_name]
        hardware = dataclasses.replace(
            H100_SXM, name=gpu_name, mem_bw=gpu.bandwidth, mem_capacity=int(gpu.memory),
            fp16_tc_flops=gpu.flops, nvlink_bw=gpu.intra, inter_node_bw=gpu.inter,
            cost_per_hr=gpu.price,
        )  # fmt: skip
        config = ServingConfig(
            tp=tp, phase=phase, mean_ctx_tokens=context, max_slots=column.batch,
            chunk=max(column.chunk, 512),
        )  # fmt: skip
        return ProfileBuilder().build(hardware, spec, config)

    best: tuple[float, list[int]] | None = None
    for pre in own["pre"]:
        for dec in own["dec"]:
            optimiser = DisaggFleetOptimizer(
                profile(pre, "prefill"), profile(dec, "decode"), mean_in, mean_out,
                task.slo.ttft_p99_s * 1e3, task.slo.tpot_p99_ms, max_ctx=context,
            )  # fmt: skip
            for point in optimiser.sweep(24, 48):
                price = point.n_prefill * pre.price + point.n_decode * dec.price
                if (
                    point.slo_met
                    and price <= task.budget
                    and (best is None or point.system_rate > best[0])
                ):
                    counts = [
                        point.n_prefill if c is pre else point.n_decode if c is dec else 0
                        for c in columns
                    ]
                    best = (point.system_rate, counts)
    if best is None:
        raise InfeasibleError("vllm-sr-sim finds no pair of pools that meets the targets")
    return _as_plan(task, _problem(task, columns), best[1])


def _variants() -> dict[str, dict[str, Callable[[Task], Plan]]]:
    """For every contender that is tuned, at most five plans; the first is the default."""
    every = ("agg", "pd", "afd")
    return {
        "ours": {
            "all": lambda t: ours(t, every),
            "all, 0.7": lambda t: ours(t, every, 0.7),
            "pd": lambda t: ours(t, ("pd",)),
            "agg": lambda t: ours(t, ("agg",)),
            "one type": lambda t: best_homogeneous(t, "agg"),
        },
        "no-afd": {
            "agg+pd": lambda t: ours(t, ("agg", "pd")),
            "agg+pd, 0.7": lambda t: ours(t, ("agg", "pd"), 0.7),
            "pd": lambda t: ours(t, ("pd",)),
            "agg": lambda t: ours(t, ("agg",)),
            "one type": lambda t: best_homogeneous(t, "agg"),
        },
        "heterogeneous-pd": {
            "0.9": lambda t: ours(t, ("pd",)),
            "0.7": lambda t: ours(t, ("pd",), 0.7),
            "tp1": lambda t: same_degree(t, ("pd",), 1),
            "tp2": lambda t: same_degree(t, ("pd",), 2),
            "tp4": lambda t: same_degree(t, ("pd",), 4),
        },
        "h100-agg": _homogeneous_variants("h100", "agg"),
        "h100-pd": _homogeneous_variants("h100", "pd"),
        "best-homogeneous": {
            "agg": lambda t: best_homogeneous(t, "agg"),
            "pd": lambda t: best_homogeneous(t, "pd"),
            "agg, 0.7": lambda t: best_homogeneous(t, "agg", 0.7),
            "pd, 0.7": lambda t: best_homogeneous(t, "pd", 0.7),
        },
        "no-pd": {
            "0.9": lambda t: ours(t, ("agg",)),
            "0.7": lambda t: ours(t, ("agg",), 0.7),
        },
    }


def _homogeneous_variants(gpu: str, mode: str) -> dict[str, Callable[[Task], Plan]]:
    return {
        "0.9": lambda t: homogeneous(t, gpu, mode),
        "0.7": lambda t: homogeneous(t, gpu, mode, 0.7),
        "tp1": lambda t: homogeneous(t, gpu, mode, tp=1),
        "tp2": lambda t: homogeneous(t, gpu, mode, tp=2),
        "tp4": lambda t: homogeneous(t, gpu, mode, tp=4),
    }


VARIANTS = _variants()
