"""One specification becomes a picture file of each kind."""

from __future__ import annotations

import json
import math

import pytest

from armillary.output import save_chart

SPEC = {
    "data": {"values": [{"n": 1, "error": 2.0}, {"n": 2, "error": math.nan}]},
    "mark": {"type": "point"},
    "encoding": {
        "x": {"field": "n", "type": "quantitative"},
        "y": {"field": "error", "type": "quantitative"},
    },
}


def test_the_suffix_chooses_the_format(tmp_path):
    assert save_chart(SPEC, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n")
    svg = save_chart(SPEC, tmp_path / "a.svg").read_text("utf-8")
    assert svg.startswith("<svg")
    assert "error" in svg
    spec = json.loads(save_chart(SPEC, tmp_path / "a.json").read_text("utf-8"))
    assert spec["data"]["values"][1]["error"] is None


def test_an_unknown_suffix_is_told(tmp_path):
    with pytest.raises(ValueError, match=r"written as \.svg, \.png, \.html or \.json, not '\.gif'"):
        save_chart(SPEC, tmp_path / "a.gif")
