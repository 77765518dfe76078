"""What all charts of the report share: their form, axes, colours and shapes.

Colours and fonts are not in the specifications: the page gives them by its theme. Field names are
fixed, so that no name that comes from data is ever read as an expression. Every chart has a
description for those who do not see it, and its figures stand in a table of the page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: Vega's point shapes, in the order in which contenders take them.
SHAPES = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross")
#: How many colours the page's theme has for series; the first is for ours alone.
N_COLOURS = 8
#: Values of one sign that span more than this factor are shown on a logarithmic axis.
LOG_SPAN = 30.0


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


def scale(values: Iterable[float | None]) -> dict[str, Any]:
    if spans_decades(values):
        return {"type": "log", "nice": False, "padding": 6}
    return {"zero": False, "nice": True, "padding": 6}


def specification(description: str, values: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {
        "description": description,
        "data": {"values": values},
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        **rest,
    }


def series(names: Sequence[str], channel: str) -> dict[str, Any]:
    """An encoding by contender whose colours and shapes are the same all over the page."""
    scale: dict[str, Any] = {"domain": list(names)}
    if channel == "shape":
        scale["range"] = [SHAPES[i % len(SHAPES)] for i in range(len(names))]
    return {"field": "who", "type": "nominal", "scale": scale, "legend": None}


def tooltip(*pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"field": field, "title": title, "type": "nominal" if field in NAMES else "quantitative"}
        for field, title in pairs
    ]


NAMES = ("who", "case", "row", "run")
#: From the low to the high end; scale and axis of x stand above the layers.
ENDS: dict[str, Any] = {"x": {"field": "l"}, "x2": {"field": "h"}}


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
