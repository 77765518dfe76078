"""Charts of claims: intervals against their bound, and ablations against ours."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from armillary.report import formats
from armillary.report.charts.figures import (
    ENDS,
    Figure,
    rounded,
    scale,
    spans_decades,
    specification,
    tooltip,
)
from armillary.report.views import AblationLine, ConditionLine, Result

#: The value of no difference, by the form of a statistic.
_NEUTRAL = {"ratio": 1.0, "difference": 0.0}


def _span(lines: Sequence[ConditionLine]) -> tuple[list[float | None], dict[str, Any]]:
    """Ends of a forest plot's axis, and its kind: all figures and bounds with room around."""
    marks = [
        value
        for line in lines
        for value in (line.estimate, line.low, line.high, line.at_most, line.at_least)
        if value is not None
    ]
    neutral = _NEUTRAL.get(lines[0].form)
    if neutral is not None:
        marks.append(neutral)
    least, most = min(marks), max(marks)
    if spans_decades(marks):
        room = (most / least) ** 0.06
        return [rounded(least / room), rounded(most * room)], {"type": "log"}
    room = 0.08 * (most - least) or 0.1 * abs(least) or 1.0
    left, right = least - room, most + room
    if least >= 0:
        left = max(left, -0.04 * right)  # no empty stretch of impossible values
    return [rounded(left), rounded(right)], {"type": "linear", "zero": False}


def forests(results: Sequence[Result]) -> list[Figure]:
    """A forest plot a condition of a claim: one line a peer and run, and the side that is good.

    Args:
        results: the claim's results, one a run. Runs whose bounds differ are in plots apart.
    """
    by_condition: dict[Any, list[tuple[Result, ConditionLine]]] = {}
    for result in results:
        for line in result.conditions:
            if line.estimate is not None:
                key = (line.index, line.statistic, line.form, line.bound)
                by_condition.setdefault(key, []).append((result, line))
    return [_forest(found) for _, found in sorted(by_condition.items(), key=lambda item: item[0])]


def _forest(found: Sequence[tuple[Result, ConditionLine]]) -> Figure:
    lines = [line for _, line in found]
    head = lines[0]
    domain, kind = _span(lines)
    runs = list(dict.fromkeys(_run_label(result) for result, _ in found))
    rows = list(dict.fromkeys(line.against for line in lines))
    values = [
        {
            "row": line.against,
            "run": _run_label(result),
            "key": result.run.key if result.run else "own",
            "m": rounded(line.estimate),
            "l": rounded(line.low),
            "h": rounded(line.high),
        }
        for result, line in found
    ]
    x = {
        "type": "quantitative",
        "scale": {**kind, "domain": domain, "nice": False},
        "axis": {"title": ", ".join(filter(None, (head.statistic, head.detail))), "tickCount": 5},
    }
    title = f"{head.statistic} ({head.bound})"
    said = "; ".join(
        f"{line.against}, {_run_label(result)}: {line.measured} {line.interval}"
        for result, line in found[:6]
    )
    return Figure(
        title,
        "Point: estimate. Line: 95 % interval. Shaded: the side on which the claim holds.",
        specification(
            f"{title}. {said}",
            values,
            height=24 * len(rows) * len(runs),
            encoding={"x": x},
            layer=[*_good_side(head, domain), *_forest_marks(rows, runs)],
        ),
    )


def _forest_marks(rows: Sequence[str], runs: Sequence[str]) -> list[dict[str, Any]]:
    """Intervals and estimates, committed ones round and own ones as diamonds."""
    y: dict[str, Any] = {
        "y": {"field": "row", "type": "nominal", "sort": list(rows), "axis": {"title": None}}
    }
    if len(runs) > 1:
        y["yOffset"] = {"field": "run", "type": "nominal", "sort": list(runs)}
    shape = {"condition": {"test": "datum.key === 'own'", "value": "diamond"}, "value": "circle"}
    told = tooltip(
        ("row", "against"), ("run", "run"), ("m", "estimate"), ("l", "from"), ("h", "to")
    )
    return [
        {"mark": {"type": "rule", "style": "interval"}, "encoding": {**y, **ENDS}},
        {
            "mark": {"type": "point", "style": "estimate"},
            "encoding": {**y, "x": {"field": "m"}, "shape": shape, "tooltip": told},
        },
    ]


def _good_side(line: ConditionLine, domain: Sequence[float | None]) -> list[dict[str, Any]]:
    """The shaded side, its edges, and the line of no difference."""
    left = domain[0] if line.at_least is None else line.at_least
    right = domain[1] if line.at_most is None else line.at_most
    edges = [b for b in (line.at_least, line.at_most) if b is not None]
    neutral = _NEUTRAL.get(line.form)
    layers: list[dict[str, Any]] = []
    if edges:
        layers.append(
            {
                "data": {"values": [{"l": left, "h": right}]},
                "mark": {"type": "rect", "style": "good"},
                "encoding": ENDS,
            }
        )
    if neutral is not None:
        layers.append(_upright(neutral, "neutral"))
    return layers + [_upright(edge, "bound") for edge in edges]


def _upright(at: float, style: str) -> dict[str, Any]:
    return {
        "data": {"values": [{"m": at}]},
        "mark": {"type": "rule", "style": style},
        "encoding": {"x": {"field": "m"}},
    }


def _run_label(result: Result) -> str:
    run = result.run
    return f"{run.label.lower()}, {run.profile}" if run else ""


def ablation_figure(ablations: Sequence[AblationLine]) -> Figure | None:
    """What taking each part away does to a metric, as a ratio to ours."""
    shown = [a for a in ablations if a.ratio is not None]
    if not shown:
        return None
    uses = Counter(a.name for a in shown)
    values = [
        {
            "row": a.name if uses[a.name] == 1 else f"{a.name}: {a.metric}, {a.claim}",
            "who": a.answer,
            "case": f"{a.claim}: {a.metric}, {a.better} is better",
            "m": rounded(a.ratio),
            "l": rounded(a.low),
            "h": rounded(a.high),
        }
        for a in shown
    ]
    x = {
        "type": "quantitative",
        "scale": scale([1.0, *(end for a in shown for end in (a.ratio, a.low, a.high))]),
        "axis": {"title": "metric of the ablation ÷ metric of ours", "tickCount": 5},
    }
    said = "; ".join(f"{a.name}: {formats.number(a.ratio)}, {a.answer}" for a in shown[:6])
    return Figure(
        "Ablations against ours",
        "Round: it hurts. Cross: it does not. Square: unclear.",
        specification(
            f"Ablations. {said}",
            values,
            height=24 * len(values),
            encoding={"x": x},
            layer=[_upright(1.0, "bound"), *_ablation_marks()],
        ),
    )


def _ablation_marks() -> list[dict[str, Any]]:
    """Intervals, and points whose shape is the answer."""
    y = {"y": {"field": "row", "type": "nominal", "sort": None, "axis": {"title": None}}}
    shape = {
        "field": "who",
        "type": "nominal",
        "scale": {
            "domain": ["hurts", "does not hurt", "unclear"],
            "range": ["circle", "cross", "square"],
        },
        "legend": None,
    }
    told = tooltip(
        ("row", "ablation"), ("case", "metric"), ("who", "answer"), ("m", "ratio"),
        ("l", "from"), ("h", "to"),
    )  # fmt: skip
    return [
        {"mark": {"type": "rule", "style": "interval"}, "encoding": {**y, **ENDS}},
        {
            "mark": {"type": "point", "style": "estimate"},
            "encoding": {**y, "x": {"field": "m"}, "shape": shape, "tooltip": told},
        },
    ]


@dataclasses.dataclass(frozen=True)
class Glyph:
    """An interval against its bound in a line of text: positions from 0 (left) to 100 (right)."""

    good_from: float
    good_to: float
    low: float
    high: float
    estimate: float
    edges: tuple[float, ...]


def glyph(line: ConditionLine | None) -> Glyph | None:
    """The small picture of a condition, or None when it has no estimate or no bound."""
    if line is None or line.estimate is None:
        return None
    edges = [b for b in (line.at_least, line.at_most) if b is not None]
    if not edges:
        return None
    low = line.estimate if line.low is None else line.low
    high = line.estimate if line.high is None else line.high
    marks = [line.estimate, low, high, *edges]
    log = spans_decades(marks)

    def place(value: float) -> float:
        return math.log(value) if log else value

    start, stop = place(min(marks)), place(max(marks))
    room = (stop - start) * 0.3 or 1.0
    start, stop = start - room, stop + room

    def percent(value: float) -> float:
        return round(100 * (place(value) - start) / (stop - start), 1)

    return Glyph(
        good_from=0.0 if line.at_least is None else percent(line.at_least),
        good_to=100.0 if line.at_most is None else percent(line.at_most),
        low=percent(low),
        high=percent(high),
        estimate=percent(line.estimate),
        edges=tuple(percent(edge) for edge in edges),
    )
