"""Which variant of its plan each contender of the static experiment runs, chosen by simulation.

Every contender has at most five variants, and the one that serves most requests a unit of money on
a development trace is taken. ``python -m armillary.serving.hexgen.tuning`` prints the table
that stands in `tuned`; development seeds start at 1000, reported ones at 0.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.serving.hexgen import baselines
from armillary.serving.hexgen.baselines import Task
from armillary.serving.hexgen.planner import InfeasibleError, Plan
from armillary.serving.hexgen.static import CASES, CONTENDERS, LIST_CASES, demand_trace, task_of

DEVELOPMENT_SEED = 1000
Variant = Callable[[Task], Plan]


def main() -> None:
    """Print the table."""
    from armillary.serving.hexgen.closing import sustained

    print("CHOSEN: dict[str, dict[str, str]] = {")
    for case in (*CASES, *LIST_CASES):
        task = task_of(case, DEVELOPMENT_SEED)
        trace = demand_trace(case, task, DEVELOPMENT_SEED + 1)
        print(f"    {case.name!r}: {{")
        seen: dict[str, float] = {}
        for name in CONTENDERS:
            best, chosen = -1.0, ""
            for variant, make in baselines.VARIANTS.get(name, {}).items():
                try:
                    fleet = make(task)
                except InfeasibleError:
                    continue
                key = fleet.describe()
                if key not in seen:
                    seen[key] = sustained(fleet, trace) / fleet.price
                if seen[key] > best * 1.001:
                    best, chosen = seen[key], variant
            if chosen:
                print(f"        {name!r}: {chosen!r},  # {best * 3600:.0f}", flush=True)
        print("    },")
    print("}")


if __name__ == "__main__":
    main()
