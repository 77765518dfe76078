"""A user's own table in the evidence: what is read, how it is dealt, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from armillary.evidence import Cell
from armillary.uncertainty.recalibration import evidence_case
from armillary.uncertainty.recalibration.evidence_case import case_from_file, read, split_table

#: Predictions whose spread is half of what it should be.
N = 300


def table(**more) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    mean = rng.normal(50, 10, N)
    columns = {"mu": mean, "sigma": np.full(N, 1.0), "wage": mean + rng.normal(0, 2, N)}
    return pd.DataFrame(columns | more)


@pytest.fixture
def save(tmp_path):
    def go(frame, name="mine.csv"):
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return go


def test_a_table_of_predictions_becomes_a_case_of_the_real_data(save):
    name, case = case_from_file(save(table()))
    assert name == "real-data"
    assert case.name == "yours/mine.csv"
    assert case.x == {"rows": N, "n_cal": 200}  # two thirds calibrate, one tests


def test_a_table_of_features_keeps_rows_to_train_on(save):
    _, case = case_from_file(save(table().rename(columns={"mu": "age", "sigma": "years"})))
    assert case.x == {"rows": N, "n_cal": 120}


def test_parts_are_disjoint_whole_and_in_standard_deviations_of_the_outcome(save):
    path = save(table())
    numbers, outcomes, layout = read(path)
    work = split_table(numbers, outcomes, layout, N, seed=1)
    both = np.concatenate([work.y, work.y_test]) * outcomes.std()
    np.testing.assert_allclose(np.sort(both), np.sort(outcomes))
    # A prediction stays with its outcome: the error is that of the table, two spreads.
    errors = (work.y - work.calibration.mean()) * outcomes.std()
    assert np.sort(np.abs(errors))[-1] <= np.abs(outcomes - numbers[:, 0]).max() + 1e-9
    assert errors.std() == pytest.approx(2, rel=0.2)
    np.testing.assert_allclose(work.test.std() * outcomes.std(), 1.0, rtol=1e-3)


def test_the_seed_alone_decides_the_split(save):
    numbers, outcomes, layout = read(save(table()))
    first, again, other = (split_table(numbers, outcomes, layout, 200, s).y for s in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(first) == 133


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"mean": 1.0, "std": 2.0}, "normal"),
        ({"s_1": 1.0, "s_2": 2.0, "s_3": 3.0}, "samples"),
        ({"q05": 1.0, "q50": 2.0, "q95": 3.0}, "quantiles"),
        ({"q0.05": 1.0, "q0.5": 2.0}, "quantiles"),
        ({"quality": 1.0, "std": 2.0}, None),
    ],
)
def test_predictions_are_found_by_the_names_of_columns(save, columns, kind):
    frame = pd.DataFrame({"y": np.arange(N), **{k: np.full(N, v) for k, v in columns.items()}})
    numbers, outcomes, layout = read(save(frame))
    assert (layout.kind if layout else None) == kind
    assert numbers.shape == (N, len(columns))
    np.testing.assert_array_equal(outcomes, np.arange(N))  # the column y, though it is the first


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (table(wage="much"), "'wage' holds no number in row 1"),
        (table(sigma=[1.0] * 9 + [0.0] + [1.0] * (N - 10)), "row 10 holds no distribution"),
        (table(wage=3.0), "'wage' is the same in every row"),
        (table()[:99], "99 rows: at least 100"),
        (table()[["wage"]], "one column"),
        (table(mu=[np.nan] + [1.0] * (N - 1)), "'mu' holds no number in row 1"),
    ],
)
def test_a_table_that_will_not_do_is_refused_in_words(save, frame, match):
    with pytest.raises(ValueError, match=match):
        case_from_file(save(frame))


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("a")
    with pytest.raises(ValueError, match=r"\.csv or \.parquet"):
        case_from_file(tmp_path / "mine.txt")


def test_the_setup_reads_the_file_of_this_run(save, monkeypatch):
    path = save(table())
    monkeypatch.setenv("ARMILLARY_CASE", str(path))
    _, case = case_from_file(path)
    work = evidence_case.split_any(Cell(case, 2, "quick"))
    numbers, outcomes, layout = read(path)
    np.testing.assert_array_equal(work.y, split_table(numbers, outcomes, layout, N, 2).y)


HERS = '''
from armillary.uncertainty.recalibration.distributions import normal
from armillary.uncertainty.recalibration.evidence_data import score

def wider(work, cell):
    """Every spread times the one factor that makes errors of calibration rows fit."""
    errors = (work.y - work.calibration.mean()) / work.calibration.std()
    return score(normal(work.test.mean(), work.test.std() * errors.std()), work, cell)
'''


@pytest.mark.slow
def test_her_table_and_her_recalibrator_beside_ours(save, tmp_path):
    save(table())
    (tmp_path / "mine.py").write_text(HERS)
    done = subprocess.run(
        [
            sys.executable, "-m", "armillary", "bench", "recalibration", "--profile", "smoke",
            "--claim", "sharper-than-remaps", "--case", "mine.csv", "--contender", "mine:wider",
            "--json", "-",
        ],
        cwd=tmp_path, env=os.environ | {"ARMILLARY_HOME": str(tmp_path / "home")},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    own = next(record for record in json.loads(done.stdout) if record.get("own"))
    by_metric = {condition["metric"]: condition for condition in own["conditions"]}
    crps = by_metric["crps"]
    assert (crps["of"], crps["over"]) == ("mine:wider", "ours")
    # The truth is Gaussian with one factor, which is all that hers learns: she is hard to beat.
    assert 0.9 < crps["estimate"] < 1.05
    assert own["verdict"] == "none"
