"""The page "How verdicts are computed" says what the code does."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from scipy import stats

from armillary.evidence.statistics import BOOTSTRAP_UNITS, COUNT_UNIT, MIN_UNITS
from armillary.evidence.verdicts import MAX_RAISED, Verdict

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"


def test_worked_examples_give_the_figures_on_the_page():
    found = doctest.testfile(str(PAGE), module_relative=False)
    assert found.attempted >= 12
    assert found.failed == 0


def test_intervals_of_the_examples_by_hand():
    """Wilson's and the exact bound, and the first example's interval, from numpy and scipy."""
    wilson = stats.binomtest(1, 40).proportion_ci(method="wilson")
    assert (wilson.low, wilson.high) == pytest.approx((0.004, 0.129), abs=5e-4)
    assert stats.beta.ppf(0.05, 1, 40) == pytest.approx(0.00128, abs=5e-6)
    logs = np.log([0.80, 0.82, 0.78, 0.81, 0.79])
    assert logs.mean() == pytest.approx(-0.2233, abs=5e-5)
    assert stats.sem(logs) == pytest.approx(0.0088, abs=5e-5)
    half = stats.t.ppf(0.975, 4) * stats.sem(logs)
    assert half == pytest.approx(0.0245, abs=5e-5)
    ends = np.exp(logs.mean() + np.array([-half, half]))
    assert ends == pytest.approx([0.780, 0.820], abs=1e-3)


def test_every_verdict_and_threshold_is_on_the_page():
    page = PAGE.read_text("utf-8")
    for verdict in get_args(Verdict):
        assert f"`{verdict}`" in page
    assert f'`"{COUNT_UNIT}"`' in page
    assert f"more than {MAX_RAISED:.0%}".replace("%", " %") in page
    assert f"from {BOOTSTRAP_UNITS}" in page
    assert MIN_UNITS == 3
    assert "fewer than three units" in page
    assert len(re.findall(r"^\d\. ", page, re.MULTILINE)) == 8
