"""Statistics of a table: closed forms, a slow twin, invariants, and what is told instead of NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.evidence.shapes import Case, Row, Stat, Unit
from armillary.evidence.statistics import Estimate, estimate, units_to_decide
from armillary.evidence.table import Table

T2 = 4.302652729911275  # the 97.5 % quantile of Student's t with 2 degrees of freedom

RATIO = Stat("m", over=("peer",), form="ratio", pool="geomean")
MEANS = Stat("m", over=("peer",), form="ratio", pool="ratio_of_means")
GAIN = Stat("m", over=("peer",), form="difference")
SLOPE = Stat("m", form="slope", along="n")


def table(unit: Unit = "seed", x=(1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0), **values) -> Table:
    """A table from ``who=[[case 0's seeds], [case 1's seeds], …]``; None is a failed cell."""
    cases = [Case(f"c{i}", {"n": float(n)}) for i, n in enumerate(x)]
    rows = [
        Row("m", "e", "full", f"c{c}", s, who, metrics={} if v is None else {"m": v})
        for who, per_case in values.items()
        for c, per_seed in enumerate(per_case)
        for s, v in enumerate(per_seed)
    ]
    return Table.from_rows(rows, cases, unit)


def bounds(found: Estimate) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def test_mean_of_three_units_has_students_interval():
    found = estimate(table(ours=[[1.0, 2.0, 3.0]]), Stat("m"))
    assert (found.value, found.interval, found.units) == (2.0, "t", 3)
    half = T2 / math.sqrt(3)
    assert bounds(found) == pytest.approx((2 - half, 2 + half))


def test_cells_are_averaged_inside_their_unit():
    ours = [[1.0, 2.0, 3.0], [3.0, 8.0, 1.0]]
    by_seed = estimate(table(ours=ours), Stat("m"))
    assert by_seed == estimate(table(ours=[[2.0, 5.0, 2.0]]), Stat("m"))
    by_case = estimate(table("case", ours=[*ours, [0.0, 6.0, 0.0]]), Stat("m"))
    assert by_case == estimate(table("case", ours=[[2.0], [4.0], [2.0]]), Stat("m"))


def test_geometric_mean_of_ratios_is_made_on_logarithms():
    found = estimate(table(ours=[[1.0, 2.0, 4.0]], peer=[[1.0, 1.0, 1.0]]), RATIO)
    half = T2 * math.log(2) / math.sqrt(3)
    assert found.value == pytest.approx(2)
    assert found.log
    assert bounds(found) == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))


def test_a_plain_mean_of_ratios_is_the_geometric_one():
    cells = table(ours=[[1.0, 2.0, 5.0]], peer=[[2.0, 1.0, 4.0]])
    assert estimate(cells, Stat("m", over=("peer",), form="ratio")) == estimate(cells, RATIO)


def test_ratio_of_means_where_a_quantity_reaches_zero():
    found = estimate(table(ours=[[0.0, 1.0, 2.0, 3.0]], peer=[[4.0, 3.0, 4.0, 5.0]]), MEANS)
    assert found.value == pytest.approx(6 / 16)
    assert found.interval == "fieller"


def test_difference_is_paired_cell_by_cell():
    found = estimate(table(ours=[[11.0, 102.0, 1003.0]], peer=[[10.0, 100.0, 1000.0]]), GAIN)
    half = T2 / math.sqrt(3)
    assert found.value == pytest.approx(2)
    assert bounds(found) == pytest.approx((2 - half, 2 + half))


def test_only_cells_that_all_finished_count():
    ours = [[1.0, 2.0, 3.0, None, 9.0]]
    cells = table(ours=ours, peer=[[1.0, 1.0, 1.0, 1.0, None]], other=[[1.0, 1.0, 1.0, 1.0, 1.0]])
    stat = Stat("m", over=("peer", "other"), form="difference")
    found = estimate(cells, stat, "other")
    assert (found.value, found.units) == (1.0, 3)


def test_power_law_has_its_exponent_as_slope():
    n = np.array([1.0, 2.0, 4.0, 8.0])
    exact = table(x=n, ours=[[3 * v**1.5, 5 * v**1.5, 7 * v**1.5] for v in n])
    found = estimate(exact, SLOPE)
    assert found.value == pytest.approx(1.5)
    assert bounds(found) == pytest.approx((1.5, 1.5))


def test_slope_across_cases_where_the_case_is_the_unit():
    from scipy import stats

    n, y = np.array([1.0, 2.0, 4.0, 8.0, 16.0]), np.array([1.0, 3.0, 3.5, 9.0, 20.0])
    found = estimate(table("case", n, ours=[[v] for v in y]), SLOPE)
    fit = stats.linregress(np.log(n), np.log(y))
    half = stats.t.ppf(0.975, 3) * fit.stderr
    assert found.value == pytest.approx(fit.slope)
    assert bounds(found) == pytest.approx((fit.slope - half, fit.slope + half))
    assert found.units == 5


def test_slope_of_ours_only_where_a_unit_lacks_a_point_uses_what_it_has():
    n = (1.0, 2.0, 4.0)
    found = estimate(table(x=n, ours=[[1.0, 1.0, 1.0], [2.0, None, 2.0], [4.0, 4.0, 4.0]]), SLOPE)
    assert found.value == pytest.approx(1)
    assert found.units == 3


def test_maximum_is_the_worst_cell_and_no_unit_softens_it():
    cells = table(ours=[[1.0, 2.0, 3.0], [0.0, 9.0, 0.0]])
    found = estimate(cells, Stat("m", pool="max"))
    assert (found.value, found.low, found.high, found.interval) == (9.0, 9.0, 9.0, "observed")
    assert estimate(cells, Stat("m", pool="min")).value == 0.0


def test_median_is_over_units():
    ten = table(ours=[[float(v) for v in (5, 1, 9, 3, 7, 2, 8, 4, 10, 6)]])
    found = estimate(ten, Stat("m", pool="median"))
    # Ranks 2 and 9 of 10 are the tabulated 95 % interval of a median.
    assert (found.value, found.low, found.high, found.interval) == (5.5, 2.0, 9.0, "order")
    five = estimate(table(ours=[[1.0, 2.0, 3.0, 4.0, 5.0]]), Stat("m", pool="median"))
    assert (five.value, five.low, five.interval) == (3.0, None, "none")


def test_two_units_give_a_value_and_no_interval():
    for stat in (Stat("m"), RATIO, MEANS, GAIN, SLOPE, Stat("m", pool="max")):
        found = estimate(table(ours=[[1.0, 2.0], [2.0, 4.0]], peer=[[1.0, 1.0], [1.0, 1.0]]), stat)
        assert found.value is not None
        assert (found.low, found.high, found.interval, found.units) == (None, None, "none", 2)


@pytest.mark.parametrize("units", [3, 25])
def test_constant_values_have_an_interval_of_no_width(units: int):
    found = estimate(table(ours=[[0.1] * units]), Stat("m"))
    assert bounds(found) == pytest.approx((0.1, 0.1), rel=1e-15)
    ratio = estimate(table(ours=[[0.3] * units], peer=[[0.1] * units]), RATIO)
    assert bounds(ratio) == pytest.approx((3.0, 3.0), rel=1e-12)


@pytest.mark.parametrize(
    ("stat", "ours", "told"),
    [
        (RATIO, [[1.0, 0.0, 1.0]], "m of ours is 0 in case 'c0', seed 1"),
        (RATIO, [[1.0, 1.0, -2.0]], "m of ours is -2 in case 'c0', seed 2"),
        (Stat("m", pool="geomean"), [[0.0, 1.0, 1.0]], "geometric mean needs positive"),
        (SLOPE, [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]], "log-log slope needs positive"),
        (SLOPE, [[1.0, 1.0, 1.0]], "two values of it"),
        (Stat("m", form="slope", along="depth"), [[1.0, 1.0, 1.0]], "along 'depth'"),
        (Stat("m", over=("peer",), form="difference", pool="geomean"), [[1.0] * 3], "use pool="),
        (Stat("absent"), [[1.0, 1.0, 1.0]], "no cell was finished"),
        (Stat("m", where=lambda case: False), [[1.0, 1.0, 1.0]], "no cell was finished"),
        (RATIO, [[1e308, 1e308, 1e308]], "too large or too small"),
    ],
)
def test_what_has_no_value_is_told(stat: Stat, ours, told: str):
    peer = [[1e-308] * 3 if ours[0][0] > 1e300 else [1.0] * 3] * len(ours)
    found = estimate(table(ours=ours, peer=peer), stat)
    assert found.value is None
    assert (found.low, found.high) == (None, None)
    assert told in found.problem


def test_a_peer_whose_mean_is_zero_is_told():
    zero = estimate(table(ours=[[1.0, 1.0, 1.0]], peer=[[0.0, 0.0, 0.0]]), MEANS)
    assert zero.value is None
    assert "mean m of peer is zero" in zero.problem
    near = estimate(table(ours=[[1.0, 1.0, 1.0]], peer=[[-1.0, 0.0, 2.0]]), MEANS)
    assert near.value == pytest.approx(3)
    assert near.low is None
    assert "cannot be told from zero" in near.problem


def test_counts_are_declared_and_checked():
    hits = table(ours=[[1.0, 0.0, 1.0, 1.0, 1.0]], peer=[[0.0, 0.0, 1.0, 0.0, 1.0]])
    assert estimate(hits, Stat("m"), counts=True).interval == "wilson"
    assert estimate(hits, GAIN, counts=True).interval == "mcnemar"
    assert estimate(hits, Stat("m")).interval == "t"
    half = estimate(table(ours=[[1.0, 0.5, 0.0]]), Stat("m"), counts=True)
    assert half.value is None
    assert "has the unit '0/1', and ours gave 0.5 in case 'c0', seed 1" in half.problem


def test_counts_that_all_agree_still_have_a_width():
    all_hit = estimate(table(ours=[[1.0] * 20], peer=[[1.0] * 20]), Stat("m"), counts=True)
    assert all_hit.value == 1.0
    assert bounds(all_hit) == pytest.approx((1 / (1 + 1.959964**2 / 20), 1.0), abs=1e-6)
    tie = estimate(table(ours=[[1.0] * 20], peer=[[1.0] * 20]), GAIN, counts=True)
    low, high = bounds(tie)
    assert low == pytest.approx(-high)
    assert high == pytest.approx(1.959964**2 / (20 + 1.959964**2), abs=1e-6)


def test_cells_of_one_unit_are_not_independent_trials():
    # Every unit is all hits or all misses: ten cells of a unit say no more than one.
    one = [[1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]]
    alone = estimate(table(ours=one), Stat("m"), counts=True)
    together = estimate(table(x=np.arange(1, 11), ours=one * 10), Stat("m"), counts=True)
    low, high = bounds(alone)
    assert together.value == alone.value
    assert bounds(together)[0] <= low
    assert bounds(together)[1] >= high


def test_function_of_the_table_is_resampled_by_unit():
    def mean(cells: Table) -> float:
        return float(np.mean(cells.value("m")))

    few = table(ours=[[1.0, 2.0, 3.0, 7.0, 5.0]])
    found, plain = estimate(few, Stat(fn=mean)), estimate(few, Stat("m"))
    assert found.value == pytest.approx(plain.value)
    # The jackknife of a mean is Student's t; the bootstrap may only widen it.
    assert bounds(found)[0] <= bounds(plain)[0] + 1e-9
    assert bounds(found)[1] >= bounds(plain)[1] - 1e-9
    rng = np.random.default_rng(0)
    many = table(ours=rng.exponential(1, (2, 40)).tolist())
    found, plain = estimate(many, Stat(fn=mean)), estimate(many, Stat("m"))
    assert found.interval == plain.interval == "bca"
    assert bounds(found) == pytest.approx(bounds(plain), abs=0.03)


def test_function_that_raises_or_gives_nothing_is_told():
    cells = table(ours=[[1.0, 2.0, 3.0]])
    raised = estimate(cells, Stat(fn=lambda t: 1 / 0))
    assert "ZeroDivisionError" in raised.problem
    for nothing in (None, math.nan, math.inf):
        assert estimate(cells, Stat(fn=lambda t, v=nothing: v)).value is None
    sometimes = Stat(fn=lambda t: 1.0 if 1.0 in t.value("m") else None)
    found = estimate(cells, sometimes)
    assert (found.value, found.low) == (1.0, None)
    assert "some resamples" in found.problem


def test_function_with_a_metric_sees_survivors_only():
    cells = table(ours=[[1.0, 2.0, None, 4.0]], peer=[[1.0, 1.0, 1.0, None]])
    count = Stat("m", over=("peer",), form="ratio", fn=lambda t: float(len(t)))
    assert estimate(cells, count).value == 2.0
    assert estimate(cells, Stat(fn=lambda t: float(len(t)))).value == 4.0


def test_bad_arguments_are_refused():
    cells = table(ours=[[1.0]], a=[[1.0]], b=[[1.0]])
    several = Stat("m", over=("a", "b"), form="ratio")
    with pytest.raises(ValueError, match="peer must be one of a, b, got 'c'"):
        estimate(cells, several, "c")
    with pytest.raises(ValueError, match="peer must be one of a, b, got None"):
        estimate(cells, several)
    with pytest.raises(ValueError, match="confidence must lie between 0 and 1, got 95"):
        estimate(cells, Stat("m"), confidence=95)


def test_same_table_same_interval():
    rng = np.random.default_rng(3)
    cells = table(ours=rng.exponential(1, (3, 30)).tolist())
    for stat in (Stat("m"), Stat(fn=lambda t: float(np.median(t.value("m"))))):
        assert estimate(cells, stat) == estimate(cells, stat)


def slow_unit_means(ours: list[list[float | None]], peer: list[list[float | None]]) -> list[float]:
    """By loops: for each seed, the mean difference over the cases that both finished."""
    means = []
    for seed in range(len(ours[0])):
        pairs = [(o[seed], p[seed]) for o, p in zip(ours, peer, strict=True)]
        gains = [o - p for o, p in pairs if o is not None and p is not None]
        if gains:
            means.append(sum(gains) / len(gains))
    return means


cell_value = st.one_of(st.none(), st.floats(-100, 100).map(lambda v: round(v, 2)))
grids = st.tuples(st.integers(1, 4), st.integers(1, 9)).flatmap(
    lambda shape: st.tuples(
        *[
            st.lists(
                st.lists(cell_value, min_size=shape[1], max_size=shape[1]),
                min_size=shape[0],
                max_size=shape[0],
            )
        ]
        * 2
    )
)


@settings(deadline=None, max_examples=60)
@given(grids)
def test_paired_mean_matches_its_slow_twin(grid):
    ours, peer = grid
    means = slow_unit_means(ours, peer)
    found = estimate(table(ours=ours, peer=peer), GAIN)
    assert found.units == len(means)
    if not means:
        assert found.value is None
        return
    assert found.value == pytest.approx(float(np.mean(means)), abs=1e-9)
    if len(means) >= 3:
        half = np.std(means, ddof=1) / math.sqrt(len(means))
        from scipy import stats

        half *= stats.t.ppf(0.975, len(means) - 1)
        assert bounds(found) == pytest.approx((found.value - half, found.value + half), abs=1e-6)


positive = st.lists(st.floats(0.01, 100), min_size=3, max_size=24)


@settings(deadline=None, max_examples=40)
@given(positive, st.floats(0.1, 10), st.sampled_from([RATIO, MEANS]))
def test_ratios_do_not_depend_on_the_scale(values: list[float], scale: float, stat: Stat):
    peer = [v * (1 + 0.3 * math.sin(i)) for i, v in enumerate(values)]
    plain = estimate(table(ours=[values], peer=[peer]), stat)
    scaled = estimate(
        table(ours=[[v * scale for v in values]], peer=[[v * scale for v in peer]]), stat
    )
    assert scaled.value == pytest.approx(plain.value)
    if plain.low is not None:
        assert bounds(scaled) == pytest.approx(bounds(plain), rel=1e-6)


@settings(deadline=None, max_examples=40)
@given(positive)
def test_geometric_ratio_turned_over_is_its_inverse_under_twenty_units(values: list[float]):
    values = values[:19]
    peer = [1.0 + i % 3 for i in range(len(values))]
    one = estimate(table(ours=[values], peer=[peer]), RATIO)
    other = estimate(table(ours=[peer], peer=[values]), RATIO)
    assert one.value is not None
    assert other.value == pytest.approx(1 / one.value)
    low, high = bounds(one)
    assert bounds(other) == pytest.approx((1 / high, 1 / low))


@pytest.mark.parametrize(("units", "bound"), [(5, 1.0), (5, 0.4), (100, 0.1), (100, 1.0)])
def test_units_to_decide_is_the_least_that_solves_the_power_equation(units: int, bound: float):
    from scipy import stats

    # A spread of 1 between units, an estimate of 0.
    half = stats.t.ppf(0.975, units - 1) / math.sqrt(units)
    n = units_to_decide(Estimate(0.0, -half, half, "t", units), bound, None)
    assert n is not None

    def decides(n: int) -> bool:
        return (stats.t.ppf(0.975, n - 1) + stats.norm.ppf(0.9)) / math.sqrt(n) <= bound

    assert decides(n)
    assert n == 3 or not decides(n - 1)


def test_units_to_decide_looks_at_the_bound_in_question():
    found = Estimate(0.9, 0.7, 1.1, "t", 10)
    assert units_to_decide(found, 0.9, None) is None
    assert units_to_decide(Estimate(1.0), 2.0, None) is None
    near, far = units_to_decide(found, None, 0.85), units_to_decide(found, 1.0, None)
    assert near is not None
    assert far is not None
    assert near > far
    # Inside a band the nearer edge decides; over it, the edge that is missed.
    assert units_to_decide(found, 1.0, 0.85) == near
    assert units_to_decide(found, 0.8, 0.1) == far
    assert units_to_decide(found, 0.8, -9.0) == far


def test_units_to_decide_works_on_logarithms_where_the_interval_does():
    log = Estimate(0.9, 0.9 / 1.2, 0.9 * 1.2, "t", 10, log=True)
    plain = Estimate(math.log(0.9), math.log(0.75), math.log(1.08), "t", 10)
    assert units_to_decide(log, 0.97, None) == units_to_decide(plain, math.log(0.97), None)
