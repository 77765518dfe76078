"""The experiments: statistics of their own on planted tables, and data that are split as said."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("crepes")

from armillary.evidence.shapes import Case, Cell, Row
from armillary.evidence.table import Table
from armillary.uncertainty.recalibration import evidence, evidence_time
from armillary.uncertainty.recalibration.evidence_data import (
    LARGE,
    SMALL,
    enough,
    real_case,
    split,
    two_samples,
)


def table(cells: dict[tuple[str, int], dict[str, dict[str, float]]], x=None) -> Table:
    names = sorted({case for case, _ in cells})
    rows = [
        Row("recalibration", "e", "full", case, seed, who, metrics=metrics)
        for (case, seed), contenders in cells.items()
        for who, metrics in contenders.items()
    ]
    return Table.from_rows(rows, [Case(name, x=(x or {}).get(name, {})) for name in names], "seed")


def test_rejections_count_only_where_pit_is_rejected():
    rejected = {
        ("a", 0): (1, 1), ("a", 1): (0, 1), ("a", 2): (0, 1), ("a", 3): (0, 1), ("a", 4): (0, 0),
        ("b", 0): (1, 0), ("b", 1): (1, 1), ("b", 2): (1, 0),
    }  # fmt: skip
    planted = table(
        {
            cell: {"ours": {"rejected": ours}, "pit": {"rejected": pit}}
            for cell, (ours, pit) in rejected.items()
        }
    )
    # Case a: PIT 4 of 5, ours 1 of 5. Case b does not count: PIT 1 of 3.
    assert evidence.rejections_where_pit_is_rejected(planted) == pytest.approx(0.2)


def test_break_even_is_the_size_from_which_on_ours_stays_ahead():
    ratio = {50: 1.1, 100: 0.9, 200: 1.01, 400: 0.99, 800: 0.9}
    planted = table(
        {
            (f"n={n}", seed): {"ours": {"crps": r}, "crude": {"crps": 1.0}}
            for n, r in ratio.items()
            for seed in range(3)
        },
        {f"n={n}": {"n_cal": n} for n in ratio},
    )
    assert evidence.break_even(planted) == 400


@pytest.mark.parametrize("name", ["boston", "diabetes"])
def test_small_sets_have_the_calibration_rows_that_their_case_says(name):
    case = real_case(name, "bagging", 2250)
    work = split(Cell(case, 0, "full"))
    assert len(work.y) == case.x["n_cal"] < 800
    assert len(work.calibration) == len(work.y)
    again = split(Cell(case, 0, "full"))
    np.testing.assert_array_equal(work.y_test, again.y_test)
    np.testing.assert_array_equal(work.test.mean(), again.test.mean())


def test_claims_speak_of_large_sets_and_small_ones_are_there():
    full = evidence.HEADLINE.cases["full"]
    large = {case.name.split("/")[0] for case in full if enough(case)}
    assert large == set(LARGE)
    assert {case.name.split("/")[0] for case in full} - large == set(SMALL)


def test_double_sums_take_the_time_of_all_pairs_from_some():
    samples = two_samples(300, 50, 0)
    cell = Cell(Case("m=50"), 0, "full")
    seconds = evidence_time.double_sums(samples, cell)["seconds"]
    assert seconds > 0
    # The merge and the double sums see the same distances on a small set.
    part = samples[:5]
    exact = evidence_time.merged(part, cell)["checksum"]
    x = part.values
    gaps = np.abs(x[:, None, :, None] - x[None, :, None, :]).mean(axis=(2, 3))
    own = np.diag(gaps)
    assert exact == pytest.approx((gaps - own[:, None] / 2 - own / 2).sum())
