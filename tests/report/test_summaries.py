"""Rows reduced for charts, against an obvious twin."""

from __future__ import annotations

import statistics

from hypothesis import given
from hypothesis import strategies as st

from armillary.evidence.shapes import Row
from armillary.report import summaries

_rows = st.lists(
    st.builds(
        lambda case, seed, who, repeat, value, status: Row(
            "m", "e", "quick", case, seed, who, repeat, status, metrics={"x": value}
        ),
        st.sampled_from("ab"),
        st.integers(0, 3),
        st.sampled_from(["ours", "peer"]),
        st.integers(0, 2),
        st.floats(-1e6, 1e6),
        st.sampled_from(["ok", "failed"]),
    ),
    max_size=40,
    unique_by=lambda row: (row.case, row.seed, row.contender, row.repeat),
)


@given(_rows)
def test_a_point_is_the_mean_over_seeds_of_the_median_over_repeats(rows: list[Row]) -> None:
    points = {(p.case, p.contender): p for p in summaries.by_case(rows)}
    for case in "ab":
        for who in ("ours", "peer"):
            mine = [r for r in rows if (r.case, r.contender, r.status) == (case, who, "ok")]
            seeds = {r.seed for r in mine}
            medians = [
                statistics.median(r.metrics["x"] for r in mine if r.seed == seed) for seed in seeds
            ]
            assert ((case, who) in points) == bool(medians)
            if medians:
                point = points[case, who]
                assert point.cells == len(medians)
                assert abs(point.mean - statistics.fmean(medians)) <= 1e-9 * 1e6
                assert min(medians) - 1e-6 <= point.low <= point.high <= max(medians) + 1e-6


def test_the_band_is_the_quantiles_of_seeds() -> None:
    rows = [Row("m", "e", "quick", "a", s, "ours", metrics={"x": float(s)}) for s in range(11)]
    (point,) = summaries.by_case(rows)
    assert (point.low, point.mean, point.high) == (1.0, 5.0, 9.0)


def test_tallies_count_every_way_to_end_and_name_ours_first() -> None:
    rows = [
        Row("m", "e", "quick", "a", 0, "peer", status="not run", kind="extra"),
        Row("m", "e", "quick", "a", 0, "ours", metrics={"x": 1.0}),
        Row("m", "e", "quick", "b", 0, "ours", status="failed", kind="timeout"),
    ]
    assert summaries.tallies(rows) == [
        summaries.Tally("ours", 1, 1, 0),
        summaries.Tally("peer", 0, 0, 1),
    ]
