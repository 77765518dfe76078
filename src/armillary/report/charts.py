"""Charts of the report as Vega-Lite specifications, whose data a page can list as a table too.

Colours and fonts are not in the specifications: the page gives them by its theme. Field names are
fixed, so that no name that comes from data is ever read as an expression. Every chart has a
description for those who do not see it, and its figures stand in a table beneath it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.evidence.shapes import OURS
from armillary.report import formats, summaries
from armillary.report.summaries import Point
from armillary.report.views import AblationLine, ConditionLine, ExperimentView, Result

#: Vega's point shapes, in the order in which contenders take them.
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
#: How many colours the page's theme has for series; the first is for ours alone.
N_COLOURS = 8
#: With more contenders than this, only ours has a band: many bands hide each other.
MANY_BANDS = 5
#: Values of one sign that span more than this factor are shown on a logarithmic axis.
LOG_SPAN = 30.0
#: Above so many cases a chart shows each contender's spread over cases instead of each case.
MANY_CASES = 24
#: A line has at most so many positions; more are pooled into neighbours of equal number.
MANY_POSITIONS = 32


@dataclasses.dataclass(frozen=True)
class Figure:
    """A chart with its words and its figures.

    Attributes:
        title: what the chart shows, in a few words.
        caption: how to read it.
        spec: a Vega-Lite specification without colours.
        subtitle: the unit and the good direction, where no axis has room for them.
        tabled: whether a table of its data stands beneath it; False where the page shows the same
            figures in a table of its own.
    """

    title: str
    caption: str
    spec: dict[str, Any]
    subtitle: str = ""
    tabled: bool = False


def rounded(value: float | None, digits: int = 5) -> float | None:
    """A number to ``digits`` significant digits, to keep pages small."""
    return None if value is None else float(f"{value:.{digits - 1}e}")


def spans_decades(values: Iterable[float | None]) -> bool:
    """Whether values are all positive and far enough apart for a logarithmic axis."""
    known = [v for v in values if v is not None]
    return bool(known) and min(known) > 0 and max(known) / min(known) >= LOG_SPAN


def _scale(values: Iterable[float | None]) -> dict[str, Any]:
    if spans_decades(values):
        return {"type": "log", "nice": False, "padding": 6}
    return {"zero": False, "nice": True, "padding": 6}


def _spec(description: str, values: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {
        "description": description,
        "data": {"values": values},
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        **rest,
    }


def _series(names: Sequence[str], channel: str) -> dict[str, Any]:
    """An encoding by contender whose colours and shapes are the same all over the page."""
    scale: dict[str, Any] = {"domain": list(names)}
    if channel == "shape":
        scale["range"] = [SHAPES[i % len(SHAPES)] for i in range(len(names))]
    return {"field": "who", "type": "nominal", "scale": scale, "legend": None}


def _tooltip(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"field": field, "title": title, "type": "nominal" if field in _NAMES else "quantitative"}
        for field, title in pairs
    ]


_NAMES = ("who", "case", "row", "run")
#: From the low to the high end; scale and axis of x stand above the layers.
_ENDS: dict[str, Any] = {"x": {"field": "l"}, "x2": {"field": "h"}}


# -- claims ----------------------------------------------------------------------------------


def _span(lines: Sequence[ConditionLine]) -> tuple[list[float | None], dict[str, Any]]:
    """Ends of a forest plot's axis, and its kind: all figures and bounds with room around."""
    marks = [
        value
        for line in lines
        for value in (line.estimate, line.low, line.high, line.at_most, line.at_least)
        if value is not None
    ]
    neutral = {"ratio": 1.0, "difference": 0.0}.get(lines[0].form)
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
        results: the claim's results, one a run.
    """
    by_condition: dict[int, list[tuple[Result, ConditionLine]]] = {}
    for result in results:
        for line in result.conditions:
            if line.estimate is not None:
                by_condition.setdefault(line.index, []).append((result, line))
    return [_forest(found) for _, found in sorted(by_condition.items())]


def _forest(found: Sequence[tuple[Result, ConditionLine]]) -> Figure:
    lines = [line for _, line in found]
    head = lines[0]
    domain, kind = _span(lines)
    runs = list(dict.fromkeys(_run_label(result) for result, _ in found))
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
    rows = list(dict.fromkeys(line.against for line in lines))
    y: dict[str, Any] = {
        "y": {
            "field": "row",
            "type": "nominal",
            "sort": rows,
            "axis": {"title": None},
        }
    }
    if len(runs) > 1:
        y["yOffset"] = {"field": "run", "type": "nominal", "sort": runs}
    shape = {"condition": {"test": "datum.key === 'own'", "value": "diamond"}, "value": "circle"}
    layer = [
        *_good_side(head, domain),
        {"mark": {"type": "rule", "style": "interval"}, "encoding": {**y, **_ENDS}},
        {
            "mark": {"type": "point", "style": "estimate"},
            "encoding": {
                **y,
                "x": {"field": "m"},
                "shape": shape,
                "tooltip": _tooltip(
                    ("row", "against"),
                    ("run", "run"),
                    ("m", "estimate"),
                    ("l", "from"),
                    ("h", "to"),
                ),
            },
        },
    ]
    title = f"{head.statistic} ({head.bound})"
    said = "; ".join(
        f"{line.against}, {_run_label(result)}: {line.measured} {line.interval}"
        for result, line in found[:6]
    )
    return Figure(
        title,
        "Point: estimate. Line: 95 % interval. Shaded: the side on which the claim holds.",
        _spec(
            f"{title}. {said}",
            values,
            height=24 * len(rows) * len(runs),
            encoding={"x": x},
            layer=layer,
        ),
    )


def _good_side(line: ConditionLine, domain: Sequence[float | None]) -> list[dict[str, Any]]:
    """The shaded side, its edges, and the line of no difference."""
    left = domain[0] if line.at_least is None else line.at_least
    right = domain[1] if line.at_most is None else line.at_most
    edges = [b for b in (line.at_least, line.at_most) if b is not None]
    neutral = {"ratio": 1.0, "difference": 0.0}.get(line.form)
    layers: list[dict[str, Any]] = []
    if edges:
        layers.append(
            {
                "data": {"values": [{"l": left, "h": right}]},
                "mark": {"type": "rect", "style": "good"},
                "encoding": _ENDS,
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


# -- rows ------------------------------------------------------------------------------------


def experiment_figures(experiment: ExperimentView, along: Sequence[str] = ()) -> list[Figure]:
    """A chart a metric: lines along a covariate where cases have one, else points by case.

    Args:
        experiment: what ran.
        along: covariates that its claims use, which are preferred.
    """
    figures = []
    for metric in experiment.metrics:
        points = [p for p in experiment.points if p.metric == metric.get("name")]
        if not points:
            continue
        covariate = _covariate(experiment, {p.case for p in points}, along)
        if covariate:
            figures.append(_lines(experiment, metric, points, covariate))
        elif len({p.case for p in points}) > MANY_CASES:
            figures.append(_spread(experiment, metric, points))
        else:
            figures.append(_by_case(experiment, metric, points))
    return figures


def _covariate(experiment: ExperimentView, cases: set[str], along: Sequence[str]) -> str:
    """The covariate with the most positions (at least three), one of ``along`` first."""
    positions: dict[str, set[float]] = {}
    for case in experiment.cases:
        if case.get("name") in cases:
            for name, value in (case.get("x") or {}).items():
                if formats.real(value) is not None:
                    positions.setdefault(str(name), set()).add(float(value))
    fit = [name for name, found in positions.items() if len(found) >= 3]
    return max(fit, key=lambda name: (name in along, len(positions[name])), default="")


def axis_title(metric: Mapping[str, Any]) -> str:
    """A metric's name, unit and good direction."""
    name, unit = str(metric.get("name")), str(metric.get("unit") or "")
    better = metric.get("better")
    if name and unit not in ("", name):
        unit = f"({unit})"
    words = " ".join(dict.fromkeys(part for part in (name, unit) if part))
    direction = f"{better} is better" if better in ("lower", "higher") else ""
    return ", ".join(part for part in (words, direction) if part)


def colour(index: int) -> int:
    """The theme's colour (1 to `N_COLOURS`) of the contender at a place; ours is at 0."""
    return 1 if index == 0 else 2 + (index - 1) % (N_COLOURS - 1)


def _values(points: Iterable[Point]) -> list[dict[str, Any]]:
    return [
        {
            "case": p.case,
            "who": p.contender,
            "m": rounded(p.mean),
            "l": rounded(p.low),
            "h": rounded(p.high),
            "n": p.cells,
        }
        for p in points
    ]


def _by_case(
    experiment: ExperimentView, metric: Mapping[str, Any], points: Sequence[Point]
) -> Figure:
    names = experiment.contenders
    order = [str(case.get("name")) for case in experiment.cases]
    present = [case for case in order if case in {p.case for p in points}]
    roomy = len(present) * len({p.contender for p in points}) <= 96
    x = {
        "type": "quantitative",
        "scale": _scale(v for p in points for v in (p.low, p.high)),
        "axis": {"title": axis_title(metric), "tickCount": 5},
    }
    y: dict[str, Any] = {
        "y": {"field": "case", "type": "nominal", "sort": present, "axis": {"title": None}}
    }
    height = 20 * len(present)
    if roomy:
        y["yOffset"] = {"field": "who", "type": "nominal", "sort": list(names)}
        height = (9 * len(names) + 14) * len(present)
    dots = {
        "mark": {"type": "point", "style": "dot"},
        "encoding": {
            "x": {"field": "m"},
            "shape": _series(names, "shape"),
            "tooltip": _tooltip(
                ("case", "case"), ("who", "contender"), ("m", "mean"),
                ("l", "10 %"), ("h", "90 %"), ("n", "cells"),
            ),
        },
    }  # fmt: skip
    band = {"mark": {"type": "rule", "style": "spread"}, "encoding": _ENDS}
    name = str(metric.get("name"))
    return Figure(
        name,
        "Point: mean over seeds. Line: from the 10 % to the 90 % quantile of seeds.",
        _spec(
            f"{axis_title(metric)}: {len(present)} cases, {len(names)} contenders.",
            _values(points),
            height=height,
            encoding={"x": x, **y, "color": _series(names, "color")},
            layer=[band, dots] if roomy else [dots],
        ),
        tabled=True,
    )


def _spread(
    experiment: ExperimentView, metric: Mapping[str, Any], points: Sequence[Point]
) -> Figure:
    """Where cases are many: each contender's spread over them."""
    name = str(metric.get("name"))
    names = experiment.contenders
    pooled = [
        summaries.point("all cases", who, name, values)
        for who in names
        if (values := [p.mean for p in points if p.contender == who])
    ]
    n_cases = len({p.case for p in points})
    x = {
        "type": "quantitative",
        "scale": _scale(v for p in pooled for v in (p.low, p.high)),
        "axis": {"title": axis_title(metric), "tickCount": 5},
    }
    y = {"y": {"field": "who", "type": "nominal", "sort": list(names), "axis": {"title": None}}}
    layer = [
        {"mark": {"type": "rule", "style": "spread"}, "encoding": _ENDS},
        {
            "mark": {"type": "point", "style": "dot"},
            "encoding": {
                "x": {"field": "m"},
                "shape": _series(names, "shape"),
                "tooltip": _tooltip(
                    ("who", "contender"), ("m", "mean"), ("l", "10 %"), ("h", "90 %"),
                    ("n", "cases"),
                ),
            },
        },
    ]  # fmt: skip
    return Figure(
        name,
        f"{n_cases} cases. Point: mean over cases. Line: from the 10 % to the 90 % quantile "
        "of cases. Each single case is in the CSV file.",
        _spec(
            f"{axis_title(metric)} over {n_cases} cases.",
            _values(pooled),
            height=22 * len(pooled),
            encoding={"x": x, **y, "color": _series(names, "color")},
            layer=layer,
        ),
        tabled=True,
    )


def _along(
    experiment: ExperimentView, points: Sequence[Point], covariate: str
) -> list[tuple[float, Point]]:
    """Points pooled by contender and position; many positions become neighbours' means."""
    at = {
        str(case.get("name")): formats.real((case.get("x") or {}).get(covariate))
        for case in experiment.cases
    }
    placed = [(x, p) for p in points if (x := at.get(p.case)) is not None]
    positions = np.unique([x for x, _ in placed])
    groups = np.array_split(positions, min(len(positions), MANY_POSITIONS))
    centre = {float(x): float(np.median(group)) for group in groups for x in group}
    pooled: dict[tuple[str, float], list[Point]] = {}
    for x, p in placed:
        pooled.setdefault((p.contender, centre[x]), []).append(p)
    return [
        (x, found[0] if len(found) == 1 else _merged(found))
        for (_, x), found in sorted(pooled.items(), key=lambda item: item[0][1])
    ]


def _merged(found: Sequence[Point]) -> Point:
    merged = summaries.point("", found[0].contender, found[0].metric, [p.mean for p in found])
    return dataclasses.replace(merged, cells=sum(p.cells for p in found))


def _lines(
    experiment: ExperimentView, metric: Mapping[str, Any], points: Sequence[Point], covariate: str
) -> Figure:
    names = experiment.contenders
    placed = _along(experiment, points, covariate)
    values = [
        {**value, "x": rounded(x)}
        for (x, _), value in zip(placed, _values(p for _, p in placed), strict=True)
    ]
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": _scale(x for x, _ in placed),
        "axis": {"title": covariate, "tickCount": 5},
    }
    y = {
        "type": "quantitative",
        "scale": _scale(v for _, p in placed for v in (p.low, p.high)),
        "axis": {"title": None, "tickCount": 5},
    }
    layer = [
        {
            "mark": {"type": "area", "style": "band"},
            "encoding": {"y": {"field": "l"}, "y2": {"field": "h"}},
        },
        {
            "mark": {"type": "line", "style": "trace"},
            "encoding": {"y": {"field": "m"}},
        },
        {
            "mark": {"type": "point", "style": "dot"},
            "encoding": {
                "y": {"field": "m"},
                "shape": _series(names, "shape"),
                "tooltip": _tooltip(
                    ("who", "contender"), ("x", covariate), ("m", "mean"), ("l", "10 %"),
                    ("h", "90 %"), ("n", "cells"),
                ),
            },
        },
    ]  # fmt: skip
    if len({p.contender for p in points}) > MANY_BANDS:
        layer[0]["transform"] = [{"filter": f"datum.who === '{OURS}'"}]
    name = str(metric.get("name"))
    others = _others(experiment, covariate)
    pooled = f" and over {', '.join(others)}" if others else ""
    return Figure(
        f"{name} against {covariate}",
        f"Point: mean over seeds{pooled}. Band: from the 10 % to the 90 % quantile.",
        _spec(
            f"{axis_title(metric)} against {covariate}, {len(names)} contenders.",
            values,
            height=230,
            encoding={"x": x, "y": y, "color": _series(names, "color")},
            layer=layer,
        ),
        subtitle=axis_title({**metric, "name": ""}),
        tabled=True,
    )


def _others(experiment: ExperimentView, covariate: str) -> list[str]:
    """Other covariates that vary, over which a line is a mean."""
    seen: dict[str, set[Any]] = {}
    for case in experiment.cases:
        for name, value in (case.get("x") or {}).items():
            seen.setdefault(str(name), set()).add(value)
    return [name for name, found in seen.items() if name != covariate and len(found) > 1]


# -- ablations -------------------------------------------------------------------------------


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
        "scale": _scale([1.0, *(end for a in shown for end in (a.ratio, a.low, a.high))]),
        "axis": {"title": "metric of the ablation ÷ metric of ours", "tickCount": 5},
    }
    said = "; ".join(f"{a.name}: {formats.number(a.ratio)}, {a.answer}" for a in shown[:6])
    return Figure(
        "Ablations against ours",
        "Round: it hurts. Cross: it does not. Square: unclear.",
        _spec(
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
    tooltip = _tooltip(
        ("row", "ablation"), ("case", "metric"), ("who", "answer"), ("m", "ratio"),
        ("l", "from"), ("h", "to"),
    )  # fmt: skip
    return [
        {"mark": {"type": "rule", "style": "interval"}, "encoding": {**y, **_ENDS}},
        {
            "mark": {"type": "point", "style": "estimate"},
            "encoding": {**y, "x": {"field": "m"}, "shape": shape, "tooltip": tooltip},
        },
    ]


# -- a glance --------------------------------------------------------------------------------


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
