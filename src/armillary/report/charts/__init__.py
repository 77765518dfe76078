"""Charts as Vega-Lite specifications, without colours, whose data a page can list as tables."""

from __future__ import annotations

from armillary.report.charts.claims import Glyph, ablation_figure, forests, glyph
from armillary.report.charts.figures import (
    LOG_SPAN,
    N_COLOURS,
    SHAPES,
    Figure,
    axis_title,
    colour,
    rounded,
)
from armillary.report.charts.rows import (
    MANY_BANDS,
    MANY_CASES,
    MANY_POSITIONS,
    experiment_figures,
)

__all__ = [
    "LOG_SPAN",
    "MANY_BANDS",
    "MANY_CASES",
    "MANY_POSITIONS",
    "N_COLOURS",
    "SHAPES",
    "Figure",
    "Glyph",
    "ablation_figure",
    "axis_title",
    "colour",
    "experiment_figures",
    "forests",
    "glyph",
    "rounded",
]
