"""Specifications of charts: what is drawn, on which axis, and that Vega-Lite accepts them."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.evidence.bundle import Bundle
from armillary.report import charts, views


def _results(bundle: Bundle, claim: str) -> list[views.Result]:
    return [r for r in views.method_view(bundle.slug, None, [bundle]).results if r.claim == claim]


def _values(figure: charts.Figure) -> list[dict[str, Any]]:
    return figure.spec["data"]["values"]


def _style(figure: charts.Figure, style: str) -> list[dict[str, Any]]:
    return [layer for layer in figure.spec["layer"] if layer["mark"]["style"] == style]


def test_a_forest_has_a_line_a_peer_and_shades_the_good_side(samples: list[Bundle]) -> None:
    (figure,) = charts.forests(_results(samples[0], "crps"))
    assert [v["row"] for v in _values(figure)] == [
        "ours ÷ pit", "ours ÷ gp-beta", "ours ÷ crude", "ours ÷ crepes-mondrian",
    ]  # fmt: skip
    left, right = figure.spec["encoding"]["x"]["scale"]["domain"]
    (good,) = _style(figure, "good")
    shaded = good["data"]["values"][0]
    assert shaded["h"] == 0.97  # at most 0.97: everything to the left of it is good
    assert shaded["l"] == pytest.approx(left, rel=1e-4)
    assert left < min(v["l"] for v in _values(figure))
    assert right > 1.0  # the line of no difference is on the chart
    assert _style(figure, "neutral")[0]["data"]["values"] == [{"m": 1.0}]


def test_a_band_is_shaded_between_its_bounds(samples: list[Bundle]) -> None:
    (figure,) = charts.forests(_results(samples[0], "coverage"))
    (good,) = _style(figure, "good")
    assert good["data"]["values"] == [{"l": 0.88, "h": 0.92}]
    assert [b["data"]["values"][0]["m"] for b in _style(figure, "bound")] == [0.88, 0.92]


def test_both_runs_of_a_claim_are_in_one_forest_and_told_apart(samples: list[Bundle]) -> None:
    view = views.method_view("recalibration", None, samples[:2])
    (figure,) = charts.forests(view.claims[0].results)
    assert {(v["run"], v["key"]) for v in _values(figure)} == {
        ("committed evidence, full", "committed"),
        ("your run, quick", "own"),
    }


def test_runs_whose_bounds_differ_are_in_plots_apart(
    samples: list[Bundle], evidence: SimpleNamespace
) -> None:
    rows = [row for row in samples[0].rows if row.experiment == "quality"]
    stricter = evidence.claim(
        "crps", "s", "p", "holds", [evidence.condition(rows, "crps", over="pit", at_most=0.95)]
    )
    own = dataclasses.replace(samples[1], claims=[stricter])
    claim = views.method_view("recalibration", None, [samples[0], own]).claims[0]
    figures = charts.forests(claim.results)
    assert [figure.title for figure in figures] == ["crps (≤ 0.95)", "crps (≤ 0.97)"]


def test_conditions_without_an_estimate_draw_nothing(evidence: SimpleNamespace) -> None:
    assert charts.forests(_results(evidence.spikeinit(), "rate")) == []


def test_cases_with_a_covariate_become_lines_on_logarithmic_axes(samples: list[Bundle]) -> None:
    _, scaling = views.experiment_views(samples[0])
    (figure,) = charts.experiment_figures(scaling, ["n"])
    assert figure.title == "seconds against n"
    assert {v["x"] for v in _values(figure)} == {50, 100, 200, 500, 1000, 2000, 5000}
    assert figure.spec["encoding"]["x"]["scale"]["type"] == "log"
    assert figure.spec["encoding"]["y"]["scale"]["type"] == "log"


def test_cases_without_one_become_points_by_case(samples: list[Bundle]) -> None:
    quality, _ = views.experiment_views(samples[0])
    crps, skce, cov90 = charts.experiment_figures(quality)
    assert len(_values(crps)) == 5 * 8
    assert "type" not in crps.spec["encoding"]["x"]["scale"]  # 0.09 to 0.8 spans no decades
    assert skce.spec["encoding"]["x"]["scale"]["type"] == "log"
    domains = [f.spec["encoding"]["color"]["scale"]["domain"] for f in (crps, skce, cov90)]
    assert domains == [list(quality.contenders)] * 3  # a contender keeps its colour


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ({"name": "crps", "unit": "", "better": "lower"}, "crps, lower is better"),
        ({"name": "seconds", "unit": "s", "better": "lower"}, "seconds (s), lower is better"),
        ({"name": "cov90", "unit": "rate", "better": "neither"}, "cov90 (rate)"),
        ({"name": "rate", "unit": "rate", "better": "higher"}, "rate, higher is better"),
        ({"name": "", "unit": "s", "better": "lower"}, "s, lower is better"),
        ({"name": "x"}, "x"),
    ],
)
def test_axes_say_the_unit_and_the_good_direction(metric: dict, words: str) -> None:
    assert charts.axis_title(metric) == words


def test_many_cases_become_a_spread_and_many_positions_neighbours(
    evidence: SimpleNamespace,
) -> None:
    cases = {f"case {i}": {"n": float(i)} for i in range(1, 501)}

    def value(case: str, x: dict, who: str, rng: Any) -> dict:
        return {"loss": x["n"] + (who == "peer")}

    rows = evidence.measured("m", "e", "quick", cases, ("ours", "peer"), 1, value)
    metrics = {"loss": ("", "lower")}
    lines = evidence.described("e", metrics, ("ours", "peer"), cases)
    spread = evidence.described("e", metrics, ("ours", "peer"), {c: {} for c in cases})
    (figure,) = charts.experiment_figures(
        views.experiment_views(evidence.bundle("m", "quick", [], rows, {"e": lines}))[0]
    )
    ours = [v for v in _values(figure) if v["who"] == "ours"]
    assert len(ours) == charts.MANY_POSITIONS
    assert sum(v["n"] for v in ours) == 500
    assert all(v["m"] == pytest.approx(v["x"], rel=1e-4) for v in ours)  # loss is n itself
    (figure,) = charts.experiment_figures(
        views.experiment_views(evidence.bundle("m", "quick", [], rows, {"e": spread}))[0]
    )
    assert [(v["who"], v["m"], v["n"]) for v in _values(figure)] == [
        ("ours", 250.5, 500),
        ("peer", 251.5, 500),
    ]


def test_no_two_contenders_look_alike_and_ours_has_a_colour_of_its_own() -> None:
    looks = [(charts.colour(i), charts.SHAPES[i % len(charts.SHAPES)]) for i in range(43)]
    assert len(set(looks)) == 43
    assert [i for i, (colour, _) in enumerate(looks) if colour == 1] == [0]


def test_an_ablation_chart_tells_its_answers_by_shape(samples: list[Bundle]) -> None:
    figure = charts.ablation_figure(_results(samples[0], "crps")[0].ablations)
    assert figure is not None
    assert [(v["row"], v["who"]) for v in _values(figure)] == [
        ("no kernel", "hurts"),
        ("shuffled", "hurts"),
        ("clip", "does not hurt"),
    ]
    assert charts.ablation_figure([]) is None
    twice = [
        dataclasses.replace(_results(samples[0], "crps")[0].ablations[0], claim=c) for c in "ab"
    ]
    figure = charts.ablation_figure(twice)
    assert figure is not None
    assert [v["row"] for v in _values(figure)] == ["no kernel: crps, a", "no kernel: crps, b"]


def test_vega_lite_compiles_every_chart_without_a_warning(samples: list[Bundle]) -> None:
    import vl_convert

    view = views.method_view("recalibration", None, samples[:2])
    figures = [f for claim in view.claims for f in charts.forests(claim.results)]
    for experiment in views.experiment_views(samples[0]):
        figures += charts.experiment_figures(experiment)
    ablations = charts.ablation_figure(_results(samples[0], "crps")[0].ablations)
    for figure in [*figures, ablations]:
        assert figure is not None
        compiled = json.dumps(vl_convert.vegalite_to_vega({**figure.spec, "width": 300}))
        for style in ("estimate", "dot"):
            if _style(figure, style):
                assert f'"{style}"' in compiled
        assert figure.spec["description"]


@given(
    st.floats(-1e6, 1e6),
    st.tuples(st.floats(0, 1e3), st.floats(0, 1e3)),
    st.one_of(st.none(), st.floats(-1e6, 1e6)),
    st.floats(-1e6, 1e6),
)
def test_a_glyph_stays_in_its_frame_and_keeps_the_order(
    estimate: float, around: tuple[float, float], at_least: float | None, at_most: float
) -> None:
    given = {
        "form": "level", "metric": "x", "estimate": estimate, "low": estimate - around[0],
        "high": estimate + around[1], "at_least": at_least, "at_most": at_most,
    }  # fmt: skip
    glyph = charts.glyph(views.condition_line(given, 0))
    assert glyph is not None
    assert 0 <= glyph.low <= glyph.estimate <= glyph.high <= 100
    assert all(0 <= edge <= 100 for edge in glyph.edges)
    assert glyph.good_to == glyph.edges[-1]
