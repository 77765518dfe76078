"""Before and after: the figures of a calibration report, its charts, and its page."""

from __future__ import annotations

import dataclasses
import html
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from armillary.output import write_json, write_text
from armillary.output.charts import PALETTE
from armillary.uncertainty.recalibration.diagnostics import (
    QUADRATIC_ROWS,
    dcor,
    pit,
    pit_distance,
    skce,
)
from armillary.uncertainty.recalibration.distributions import (
    Floats,
    Predictive,
    as_predictive,
)

LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclasses.dataclass(frozen=True)
class CoverageLine:
    """One line of the coverage table: nominal and observed coverage, and the mean width."""

    nominal: float
    observed: float
    width: float


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What the diagnostics say of one set of predictions.

    Attributes:
        n: rows.
        crps: mean CRPS, in units of y.
        skce: squared kernel calibration error (unbiased; near zero when calibrated).
        skce_p: p-value of "the predictions are calibrated".
        pit_ks: Kolmogorov-Smirnov distance of the PIT from uniform.
        width_dependence: bias-corrected distance correlation between the width of the 90 %
            interval and the PIT: zero when calibration does not depend on the width.
        coverage: central intervals at several levels.
        pit_histogram: share of PIT values in ten equal bins (0.1 each when calibrated).
    """

    n: int
    crps: float
    skce: float
    skce_p: float
    pit_ks: float
    width_dependence: float
    coverage: tuple[CoverageLine, ...]
    pit_histogram: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Report:
    """Diagnoses of named sets of predictions on the same outcomes."""

    diagnoses: dict[str, Diagnosis]

    def to_dict(self) -> dict[str, Any]:
        return {name: dataclasses.asdict(found) for name, found in self.diagnoses.items()}

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write as ``.json`` (the figures) or ``.html`` (a page with charts, no network).

        Raises:
            ValueError: another suffix.
        """
        suffix = Path(path).suffix.lower()
        if suffix == ".json":
            return write_json(path, self.to_dict())
        if suffix == ".html":
            return write_text(path, self.to_html())
        raise ValueError(f"path={str(path)!r}: a report is written as .html or .json")

    def to_html(self) -> str:
        """A page of its own."""
        import vl_convert

        names = list(self.diagnoses)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr><th>{html.escape(label)}</th>"
            + "".join(f"<td>{row[name]}</td>" for name in names)
            + "</tr>"
            for label, row in self.lines()
        )
        chart = vl_convert.vegalite_to_svg(
            {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", **self.chart()},
            vl_version="5.21",
        )
        return (
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Calibration</title>'
            "<style>body{font:16px system-ui;margin:2rem;max-width:60rem}"
            "td,th{padding:.2rem .8rem;text-align:right}th:first-child{text-align:left}</style>"
            f"<h1>Calibration</h1><table><tr><th></th>{head}</tr>{body}</table>{chart}</html>\n"
        )

    def lines(self) -> list[tuple[str, dict[str, str]]]:
        """Rows of the table of figures: a label, and a text for each set of predictions."""

        def row(label: str, text: Any) -> tuple[str, dict[str, str]]:
            return label, {name: text(found) for name, found in self.diagnoses.items()}

        lines = [
            row("rows", lambda d: str(d.n)),
            row("CRPS", lambda d: f"{d.crps:#.4g}"),
            row("SKCE", lambda d: f"{d.skce:.3g}"),
            row("p-value of calibrated", lambda d: f"{d.skce_p:.3g}"),
            row("PIT distance from uniform", lambda d: f"{d.pit_ks:.3f}"),
            row("dependence of PIT on width", lambda d: f"{d.width_dependence:.3f}"),
        ]
        for i, level in enumerate(LEVELS):
            lines.append(
                row(
                    f"coverage of {level:.0%} intervals (width)",
                    lambda d, i=i: f"{d.coverage[i].observed:.3f} ({d.coverage[i].width:#.4g})",
                )
            )
        return lines

    def chart(self) -> dict[str, Any]:
        """A Vega-Lite specification: PIT histograms beside observed against nominal coverage."""
        histogram = [
            {"set": name, "PIT": (i + 0.5) / 10, "share": share}
            for name, found in self.diagnoses.items()
            for i, share in enumerate(found.pit_histogram)
        ]
        coverage = [
            {"set": name, "nominal": line.nominal, "observed": line.observed}
            for name, found in self.diagnoses.items()
            for line in found.coverage
        ]
        names = list(self.diagnoses)
        colour = {
            "field": "set",
            "type": "nominal",
            "title": None,
            "scale": {"domain": names, "range": list(PALETTE[: len(names)][::-1])},
        }
        size = {"width": 300, "height": 260}
        return {
            "hconcat": [
                {
                    **size,
                    "title": "PIT (flat at 0.1 when calibrated)",
                    "data": {"values": histogram},
                    "mark": {"type": "line", "interpolate": "step", "point": True},
                    "encoding": {
                        "x": {"field": "PIT", "type": "quantitative", "scale": {"domain": [0, 1]}},
                        "y": {"field": "share", "type": "quantitative"},
                        "color": colour,
                    },
                },
                {
                    **size,
                    "title": "Coverage of central intervals",
                    "layer": [
                        {
                            "data": {"values": [{"a": v, "b": v} for v in (0.4, 1.0)]},
                            "mark": {"type": "line", "color": "#999999", "strokeDash": [4, 4]},
                            "encoding": {
                                "x": {"field": "a", "type": "quantitative"},
                                "y": {"field": "b", "type": "quantitative"},
                            },
                        },
                        {
                            "data": {"values": coverage},
                            "mark": {"type": "line", "point": True},
                            "encoding": {
                                "x": {
                                    "field": "nominal",
                                    "type": "quantitative",
                                    "title": "nominal",
                                    "scale": {"zero": False},
                                },
                                "y": {
                                    "field": "observed",
                                    "type": "quantitative",
                                    "title": "observed",
                                    "scale": {"zero": False},
                                },
                                "color": colour,
                            },
                        },
                    ],
                },
            ]
        }


def expected_coverage_table(
    P: Any, y: ArrayLike, levels: tuple[float, ...] = LEVELS
) -> tuple[CoverageLine, ...]:
    """Observed coverage and mean width of central intervals at nominal ``levels``."""
    y = np.asarray(y, dtype=float)
    p = as_predictive(P, len(y))
    lines = []
    for level in levels:
        interval = p.interval(level)
        lines.append(
            CoverageLine(level, float(interval.covers(y).mean()), float(interval.width.mean()))
        )
    return tuple(lines)


def diagnose(P: Any, y: ArrayLike, seed: int = 0) -> Diagnosis:
    """All figures of one set of predictions."""
    outcomes: Floats = np.asarray(y, dtype=float)
    p: Predictive = as_predictive(P, len(outcomes))
    values = pit(p, outcomes, seed)
    test = skce(p, outcomes, seed=seed)
    part = np.random.default_rng(seed).permutation(len(outcomes))[:QUADRATIC_ROWS]
    counts, _ = np.histogram(values, bins=10, range=(0, 1))
    return Diagnosis(
        n=len(outcomes),
        crps=float(p.crps(outcomes).mean()),
        skce=test.statistic,
        skce_p=test.p_value,
        pit_ks=pit_distance(values),
        width_dependence=dcor(p.interval(0.9).width[part], values[part]),
        coverage=expected_coverage_table(p, outcomes),
        pit_histogram=tuple(counts / len(outcomes)),
    )


def report(P_before: Any, P_after: Any, y: ArrayLike, seed: int = 0) -> Report:
    """Compare predictions before and after recalibration on rows that neither has seen.

    Args:
        P_before: n predictive distributions in any accepted form.
        P_after: the n recalibrated ones.
        y: (n,) outcomes.
        seed: of the tests' random signs.

    Returns:
        A `Report`, whose ``write`` makes a JSON file or a page.
    """
    return Report({"before": diagnose(P_before, y, seed), "after": diagnose(P_after, y, seed)})
