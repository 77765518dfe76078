"""The sentences beside a verdict: what was found, what was asked, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from armillary.evidence.shapes import OURS, Condition, Row, Stat
from armillary.evidence.statistics import MIN_UNITS, Estimate, effective_pool, units_to_decide
from armillary.evidence.table import Table

if TYPE_CHECKING:
    from armillary.evidence.ablations import AblationFound
    from armillary.evidence.comparisons import Compared


#: Order statistics give no 95 % interval of a median under six units.
MEDIAN_UNITS = 6


def figure(value: float | None) -> str:
    """A number with three significant digits."""
    return "no value" if value is None else f"{value:.3g}"


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def metric_name(stat: Stat) -> str:
    """The metric, or the name of the function that stands for it."""
    if stat.fn is None or stat.metric:
        return stat.metric
    name = getattr(stat.fn, "__name__", "")
    return "statistic" if name in ("", "<lambda>") else name


def place(cells: Table, at: int) -> str:
    return f"case {cells.cases[cells.case[at]].name!r}, seed {cells.seed[at]}"


def cell(cells: Table, at: int, values: NDArray, count: int) -> str:
    """A cell that breaks a condition, and how many do."""
    others = f" (and {count - 1} more of {len(cells)} cells)" if count > 1 else ""
    return f"{figure(float(values[at]))} in {place(cells, at)}{others}"


def failure(row: Row) -> str:
    """Why a row has no value."""
    return ": ".join(filter(None, (row.kind, row.reason))) or "it gave no reason"


def asked(condition: Condition) -> str:
    """The bounds in words."""
    low, high = condition.at_least, condition.at_most
    if low is not None and high is not None:
        return f"between {figure(low)} and {figure(high)}"
    return f"at most {figure(high)}" if high is not None else f"at least {figure(low)}"


def _with_interval(found: Estimate) -> str:
    if found.low is None or found.high is None or found.interval == "observed":
        return figure(found.value)
    return f"{figure(found.value)} ({figure(found.low)} to {figure(found.high)})"


def told(compared: Compared) -> str:
    """What a condition measured: ``crps is 0.912 (0.9 to 0.93) times that of gp-beta``."""
    stat, amount = compared.stat, _with_interval(compared.found)
    name = metric_name(stat)
    who = "" if stat.of == OURS or stat.fn is not None else f" of {stat.of}"
    pool = "" if stat.fn is not None else effective_pool(stat)
    worst = {"max": "the largest ", "min": "the smallest ", "median": "the median "}.get(pool, "")
    if compared.condition.every:
        worst = "the worst "
    if stat.fn is None and stat.form == "slope":
        return f"{name}{who} grows as {stat.along} to the power {amount}"
    if compared.peer is None:
        return f"{worst}{name}{who} is {amount}"
    if stat.form == "ratio":
        return f"{worst}{name}{who} is {amount} times that of {compared.peer}"
    return f"{worst}{name}{who} minus that of {compared.peer} is {amount}"


def _against(compared: Compared, peers: int) -> str:
    """The condition, what was asked, and that its peer is the nearest of several."""
    nearest = f", the nearest of {peers} peers" if peers > 1 else ""
    return f"{told(compared)}{nearest}; asked: {asked(compared.condition)}"


def _sentence(text: str) -> str:
    """First letter upper where the sentence starts with a word of ours, a full stop at the end."""
    return text if text.endswith((".", "?", "!")) else text + "."


def met(counted: list[Compared]) -> str:
    """All conditions, each by its tightest peer."""
    parts = []
    for index in dict.fromkeys(c.index for c in counted):
        mine = [c for c in counted if c.index == index]
        parts.append(_against(min(mine, key=lambda c: c.slack), len(mine)))
    return _sentence("Met: " + ". ".join(parts))


def missed(missed: list[Compared]) -> str:
    """The condition that is missed by most."""
    worst = min(missed, key=lambda c: c.slack)
    others = len({c.index for c in missed}) - 1
    more = f" ({plural(others, 'more condition')} missed)" if others else ""
    return _sentence(f"Missed: {told(worst)}; asked: {asked(worst.condition)}{more}")


def short_of(compared: Compared) -> str:
    return _sentence(f"{told(compared)}; asked: {asked(compared.condition)}")


def broken(counted: list[Compared]) -> str:
    """An ``every`` condition that a cell breaks, or nothing."""
    for c in counted:
        if c.broken:
            peer = f" against {c.peer}" if c.peer else ""
            of = "" if c.stat.of == OURS else f" of {c.stat.of}"
            return _sentence(
                f"Broken: {metric_name(c.stat)}{of}{peer} is {c.broken}; asked of every cell: "
                f"{asked(c.condition)}"
            )
    return ""


def unclear(unclear: list[Compared], unit: str) -> str:
    """What leaves the claim open, and how many units would decide."""
    for c in unclear:
        if c.found.problem:
            return _sentence(f"No answer: {metric_name(c.stat)} {_problem(c)}")
    widest = min(unclear, key=lambda c: c.slack)
    head = f"Unclear: {told(widest)}; asked: {asked(widest.condition)}"
    if widest.found.interval == "none":
        return _sentence(f"{head}. An interval of a median needs {MEDIAN_UNITS} {unit}s")
    needed = [units_to_decide(c.found, c.condition.at_most, c.condition.at_least) for c in unclear]
    if any(n is None for n in needed):
        return _sentence(f"{head}. The estimate lies on the bound: more {unit}s may never decide")
    most = max(max(n for n in needed if n is not None), widest.found.units + 1)
    return _sentence(f"{head}. About {plural(most, unit)} would decide ({widest.found.units} ran)")


def _problem(compared: Compared) -> str:
    peer = f"against {compared.peer}" if compared.peer else f"of {compared.stat.of}"
    return f"{peer}: {compared.found.problem}"


def few_units(units: int, unit: str) -> str:
    return f"Only {plural(units, unit)} gave values; a verdict needs {MIN_UNITS} {unit}s."


def absent(who: str, row: Row, count: int, expected: int) -> str:
    """A contender (or a case's data) that is absent, with the hint that mends it."""
    part = "" if count >= expected else f" in {count} of {expected} cells"
    if row.kind == "busy":
        load = row.reason.removeprefix("machine busy: ") or "run it again"
        return _sentence(f"The machine was busy{part}: {load}")
    return _sentence(f"{who} could not run{part}: {row.reason or f'{row.kind} is absent'}")


def unmeasured(who: str, measured: int, expected: int) -> str:
    return (
        f"{who} has {measured} of {expected} cells: run the same command again to finish the rest."
    )


def ours_failed(gaps: Mapping[tuple[str, int], str], total: int) -> str:
    (case, seed), why = next(iter(gaps.items()))
    return _sentence(
        f"Ours gave no result in {len(gaps)} of {total} cells, first in case {case!r}, "
        f"seed {seed}: {why}"
    )


def peer_raised(who: str, gaps: Mapping[tuple[str, int], str], total: int) -> str:
    (case, seed), why = next(iter(gaps.items()))
    return _sentence(
        f"{who} gave no result in {len(gaps)} of {total} cells, first in case {case!r}, "
        f"seed {seed}: {why}"
    )


def ablation(found: AblationFound) -> str:
    """A warning where a part that should matter is not shown to; else nothing."""
    if found.ablation.expect != "hurts" or found.hurts:
        return ""
    name, metric, ratio = found.ablation.name, found.ablation.metric, found.ratio
    times = f": its {metric} is {_with_interval(ratio)} times ours" if ratio.value else ""
    if found.hurts is None:
        return _sentence(f"Warning: whether {name} hurts is unclear{times}")
    return _sentence(f"Warning: {name} does not hurt{times}")
