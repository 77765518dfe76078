"""Charts as Vega-Lite specifications: the same one is a picture file and a live chart in a page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.output.files import finite, to_json, write_bytes, write_text

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_CONVERTER_VERSION = "5.21"

#: Colours that stay apart for the colour-blind (Okabe and Ito), ours first.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#f0e442")


def save_chart(spec: Mapping[str, Any], path: str | os.PathLike[str], *, scale: float = 2) -> Path:
    """Write a Vega-Lite specification as a picture, by the suffix of ``path``.

    Args:
        spec: a Vega-Lite v5 specification whose data stand in it; non-finite values become null.
        path: ``.svg``, ``.png``, ``.json`` (the specification) or ``.html`` (a page of its own).
        scale: pixels a unit, for PNG.

    Raises:
        ValueError: the suffix is none of these.
    """
    suffix = Path(path).suffix.lower()
    chart = {"$schema": SCHEMA, "background": "white", **finite(spec)}
    if suffix == ".json":
        return write_text(path, to_json(chart) + "\n")
    if suffix not in (".svg", ".png", ".html"):
        raise ValueError(
            f"path={str(path)!r}: a chart is written as .svg, .png, .html or .json, not {suffix!r}"
        )
    import vl_convert

    if suffix == ".svg":
        return write_text(path, vl_convert.vegalite_to_svg(chart, vl_version=_CONVERTER_VERSION))
    if suffix == ".png":
        return write_bytes(
            path, vl_convert.vegalite_to_png(chart, vl_version=_CONVERTER_VERSION, scale=scale)
        )
    return write_text(
        path, vl_convert.vegalite_to_html(chart, vl_version=_CONVERTER_VERSION, bundle=True)
    )
