"""Charts of measurements: each metric by case and contender, or along a covariate."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from armillary.evidence.shapes import OURS
from armillary.report import formats, summaries
from armillary.report.charts.figures import (
    ENDS,
    Figure,
    axis_title,
    rounded,
    scale,
    series,
    specification,
    tooltip,
)
from armillary.report.summaries import Point
from armillary.report.views import ExperimentView

#: With more contenders than this, only ours has a band: many bands hide each other.
MANY_BANDS = 5
#: Above so many cases a chart shows each contender's spread over cases instead of each case.
MANY_CASES = 24
#: Metrics of timed experiments that are kept apart from what is compared.
_SETTLING = ("first_seconds",)
#: A line has at most so many positions; more are pooled into neighbours of equal number.
MANY_POSITIONS = 32


def experiment_figures(experiment: ExperimentView, along: Sequence[str] = ()) -> list[Figure]:
    """A chart a metric: lines along a covariate where cases have one, else points by case.

    Args:
        experiment: what ran.
        along: covariates that its claims use, which are preferred.
    """
    figures = []
    for metric in experiment.metrics:
        if experiment.timed and (metric.get("better") == "neither" or metric["name"] in _SETTLING):
            continue  # in the rows, but no picture: checksums, and what a first call cost
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
    """The covariate with the most positions (at least three), one of ``along`` first.

    Others than these count only where each case has a position of its own: different data sets of
    one size are no curve.
    """
    positions: dict[str, list[float]] = {}
    for case in experiment.cases:
        if case.get("name") in cases:
            for name, value in (case.get("x") or {}).items():
                if formats.real(value) is not None:
                    positions.setdefault(str(name), []).append(float(value))
    fit = [
        name
        for name, found in positions.items()
        if len(set(found)) >= 3 and (name in along or len(set(found)) == len(found))
    ]
    return max(fit, key=lambda name: (name in along, len(set(positions[name]))), default="")


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
        "scale": scale(v for p in points for v in (p.low, p.high)),
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
            "shape": series(names, "shape"),
            "tooltip": tooltip(
                ("case", "case"), ("who", "contender"), ("m", "mean"),
                ("l", "10 %"), ("h", "90 %"), ("n", "cells"),
            ),
        },
    }  # fmt: skip
    band = {"mark": {"type": "rule", "style": "spread"}, "encoding": ENDS}
    name = str(metric.get("name"))
    return Figure(
        name,
        "Point: mean over seeds. Line: from the 10 % to the 90 % quantile of seeds.",
        specification(
            f"{axis_title(metric)}: {len(present)} cases, {len(names)} contenders.",
            _values(points),
            height=height,
            encoding={"x": x, **y, "color": series(names, "color")},
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
        "scale": scale(v for p in pooled for v in (p.low, p.high)),
        "axis": {"title": axis_title(metric), "tickCount": 5},
    }
    y = {"y": {"field": "who", "type": "nominal", "sort": list(names), "axis": {"title": None}}}
    layer = [
        {"mark": {"type": "rule", "style": "spread"}, "encoding": ENDS},
        {
            "mark": {"type": "point", "style": "dot"},
            "encoding": {
                "x": {"field": "m"},
                "shape": series(names, "shape"),
                "tooltip": tooltip(
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
        specification(
            f"{axis_title(metric)} over {n_cases} cases.",
            _values(pooled),
            height=22 * len(pooled),
            encoding={"x": x, **y, "color": series(names, "color")},
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
        "scale": scale(x for x, _ in placed),
        "axis": {"title": covariate, "tickCount": 5},
    }
    y = {
        "type": "quantitative",
        "scale": scale(v for _, p in placed for v in (p.low, p.high)),
        "axis": {"title": None, "tickCount": 5},
    }
    name = str(metric.get("name"))
    others = _others(experiment, covariate)
    pooled = f" and over {', '.join(others)}" if others else ""
    return Figure(
        f"{name} against {covariate}",
        f"Point: mean over seeds{pooled}. Band: from the 10 % to the 90 % quantile.",
        specification(
            f"{axis_title(metric)} against {covariate}, {len(names)} contenders.",
            values,
            height=230,
            encoding={"x": x, "y": y, "color": series(names, "color")},
            layer=_line_marks(names, covariate, n_shown=len({p.contender for p in points})),
        ),
        subtitle=axis_title({**metric, "name": ""}),
        tabled=True,
    )


def _line_marks(names: Sequence[str], covariate: str, *, n_shown: int) -> list[dict[str, Any]]:
    """Bands, lines and points; with many contenders only ours keeps its band."""
    band: dict[str, Any] = {
        "mark": {"type": "area", "style": "band"},
        "encoding": {"y": {"field": "l"}, "y2": {"field": "h"}},
    }
    if n_shown > MANY_BANDS:
        band["transform"] = [{"filter": f"datum.who === '{OURS}'"}]
    told = tooltip(
        ("who", "contender"), ("x", covariate), ("m", "mean"), ("l", "10 %"), ("h", "90 %"),
        ("n", "cells"),
    )  # fmt: skip
    return [
        band,
        {"mark": {"type": "line", "style": "trace"}, "encoding": {"y": {"field": "m"}}},
        {
            "mark": {"type": "point", "style": "dot"},
            "encoding": {
                "y": {"field": "m"},
                "shape": series(names, "shape"),
                "tooltip": told,
            },
        },
    ]


def _others(experiment: ExperimentView, covariate: str) -> list[str]:
    """Other covariates that vary, over which a line is a mean."""
    seen: dict[str, set[Any]] = {}
    for case in experiment.cases:
        for name, value in (case.get("x") or {}).items():
            seen.setdefault(str(name), set()).add(value)
    return [name for name, found in seen.items() if name != covariate and len(found) > 1]
