"""From fluid capacities to promises that hold: the planner asks the simulator.

`sustained` finds how many requests a second a fleet serves with its targets met; `close_loop` finds
the highest utilisation to plan for such that the simulated targets still hold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from armillary.serving.hexgen.catalog import Catalog
from armillary.serving.hexgen.model_shape import ModelShape
from armillary.serving.hexgen.planner import InfeasibleError, Plan, plan
from armillary.serving.hexgen.simulator import SimResult, simulate
from armillary.serving.hexgen.traces import Slo, Workload

#: Share of requests at the start of a run that are left out: the fleet fills up.
WARM_UP = 0.4
ATTAINMENT = 0.99


def sustained(
    fleet: Plan,
    workload: Workload,
    *,
    attainment: float = ATTAINMENT,
    tolerance: float = 0.03,
    router: str = "least",
    seed: int = 0,
    guess: float | None = None,
) -> float:
    """Requests a second at which the share of requests that meet both targets is still enough.

    The trace is stretched or pressed in time; lengths and the pattern of arrivals stay. The rate is
    bracketed from the guess and then bisected, to ``tolerance`` relative; the returned rate passed.

    Args:
        fleet: what serves.
        workload: the trace.
        attainment: share of requests that must meet both targets.
        tolerance: relative width at which bisection stops.
        router: see `simulate`.
        seed: of the router.
        guess: where to start; None: the planner's fluid throughput.

    Returns:
        The rate, 0 if even a hundredth of the guess is too much.
    """
    if not 0 < attainment <= 1:
        raise ValueError(f"attainment={attainment}: it must lie in (0, 1]")

    def good(rate: float) -> bool:
        run = simulate(fleet, workload.at_rate(rate), router=router, seed=seed)
        return run.attainment(WARM_UP) >= attainment

    low = high = guess or fleet.throughput
    ok = good(low)
    factor = 1.15
    while ok:
        low, high = high, high * factor
        ok = good(high)
        factor = min(factor * factor, 2.0)
        if high > 1e6:
            return low
    if low == high:
        factor = 1.15
        while not good(low):
            high, low = low, low / factor
            factor = min(factor * factor, 2.0)
            if low < fleet.throughput / 100:
                return 0.0
    while high / low > 1 + tolerance:
        middle = (low * high) ** 0.5
        if good(middle):
            low = middle
        else:
            high = middle
    return low


@dataclasses.dataclass(frozen=True)
class Closed:
    """A plan whose targets hold in the simulator.

    Attributes:
        plan: the fleet.
        rho: the utilisation that it was planned for.
        run: the simulation that passed.
        tried: (rho, price of an hour, attainment) of every round.
    """

    plan: Plan
    rho: float
    run: SimResult
    tried: tuple[tuple[float, float, float], ...]


def close_loop(
    model: str | Path | Mapping[str, Any] | ModelShape,
    catalog: Catalog,
    workload: Workload,
    slo: Slo,
    *,
    rate: float | None = None,
    rho: float = 0.75,
    attainment: float = ATTAINMENT,
    rounds: int = 6,
    modes: Sequence[str] = ("agg", "pd", "afd"),
    router: str = "least",
    seed: int = 0,
) -> Closed:
    """The cheapest fleet for a rate whose targets hold in the simulator.

    Starts at ``rho`` and bisects the utilisation that the rate form is planned for.

    Raises:
        InfeasibleError: the targets hold at no utilisation that the inventory allows.
    """
    shape = model if isinstance(model, ModelShape) else ModelShape.load(model)
    wanted = workload.rate if rate is None else rate
    trace = workload.at_rate(wanted)
    low, high = 0.0, 1.2
    best: Closed | None = None
    tried: list[tuple[float, float, float]] = []
    reason: InfeasibleError | None = None
    for _ in range(rounds):
        try:
            fleet = plan(
                shape, catalog, workload, slo, rate=wanted / rho, rho=1.0, modes=modes, seed=seed
            )
        except InfeasibleError as error:
            reason = error
            if low > 0 or rho >= 1.0:
                break
            low, rho = rho, (rho + high) / 2  # the inventory is too small for so much room
            continue
        run = simulate(fleet, trace, router=router, seed=seed)
        share = run.attainment(WARM_UP)
        tried.append((rho, fleet.price, share))
        if share >= attainment:
            if best is None or fleet.price < best.plan.price:
                best = Closed(fleet, rho, run, ())
            low = rho
        else:
            high = rho
        rho = (low + high) / 2
        if high - low < 0.02:
            break
    if best is None and not tried and reason is not None:
        raise reason
    if best is None:
        seen = max((share for _, _, share in tried), default=0.0)
        raise InfeasibleError(
            f"rate={wanted:g}: at no utilisation do {attainment:.0%} of requests meet the targets "
            f"(at most {seen:.1%} did): loosen them, lower the rate or add GPUs"
        )
    return dataclasses.replace(best, tried=tuple(tried))


def compare(
    plans: Mapping[str, Plan], workload: Workload, seeds: Sequence[int], *, router: str = "least"
) -> dict[str, dict[str, float]]:
    """Each plan under the same traces: ``workload`` shuffled by each seed, at the trace's rate.

    Returns:
        For each plan the means over seeds of its figures (see `SimResult.summary`).
    """
    if not seeds:
        raise ValueError("seeds: one is needed at least")
    found: dict[str, dict[str, float]] = {}
    traces = [workload.shuffled(len(workload), seed) for seed in seeds]
    for name, fleet in plans.items():
        runs = [
            simulate(fleet, trace, router=router, seed=seed).summary()
            for trace, seed in zip(traces, seeds, strict=True)
        ]
        found[name] = {key: sum(r[key] for r in runs) / len(runs) for key in runs[0]}
    return found
