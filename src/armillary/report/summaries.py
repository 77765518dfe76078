"""Rows reduced to what a chart can show: a mean and quantiles a case and contender.

Repeats of a cell become their median first, so that a page's size depends on how many cases and
contenders there are and not on how many rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from armillary.evidence.shapes import OURS, Row

#: The band that charts show: this share of cells lies inside.
BAND = (0.1, 0.9)


@dataclasses.dataclass(frozen=True)
class Point:
    """One metric of one contender in one case, over seeds (or over a group of cells).

    Attributes:
        mean: arithmetic mean of the cells' values.
        low, high: the `BAND` quantiles of those values (equal to ``mean`` for a single cell).
        cells: how many finished cells it stands for.
    """

    case: str
    contender: str
    metric: str
    mean: float
    low: float
    high: float
    cells: int


@dataclasses.dataclass(frozen=True)
class Tally:
    """How a contender's measurements ended."""

    contender: str
    ok: int
    failed: int
    not_run: int


def cells(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[float]]:
    """Values of finished cells by (metric, contender, case), repeats reduced to their median."""
    repeats: dict[tuple[str, str, str, int], list[float]] = {}
    for row in rows:
        if row.status != "ok":
            continue
        for metric, value in row.metrics.items():
            key = (metric, row.contender, row.case, row.seed)
            repeats.setdefault(key, []).append(value)
    values: dict[tuple[str, str, str], list[float]] = {}
    for (metric, contender, case, _), found in repeats.items():
        value = found[0] if len(found) == 1 else float(np.median(found))
        values.setdefault((metric, contender, case), []).append(value)
    return values


def point(case: str, contender: str, metric: str, values: Sequence[float]) -> Point:
    """The summary of some cells' values (at least one)."""
    array = np.asarray(values, dtype=float)
    low, high = np.quantile(array, BAND)
    return Point(case, contender, metric, float(array.mean()), float(low), float(high), len(array))


def by_case(rows: Iterable[Row]) -> list[Point]:
    """A point a (metric, contender, case), in the order in which they first appear."""
    return [
        point(case, contender, metric, values)
        for (metric, contender, case), values in cells(rows).items()
    ]


def tallies(rows: Iterable[Row]) -> list[Tally]:
    """How many measurements of each contender were finished, failed or never ran; ours first."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        status = counts.setdefault(row.contender, {"ok": 0, "failed": 0, "not run": 0})
        status[row.status] = status.get(row.status, 0) + 1
    names = sorted(counts, key=lambda name: name != OURS)
    return [
        Tally(name, counts[name]["ok"], counts[name]["failed"], counts[name]["not run"])
        for name in names
    ]
