"""The command line on files: what comes out, in which order, and how it fails."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest

from armillary.cli.root import run
from armillary.uncertainty.recalibration import KernelRecalibrator
from armillary.uncertainty.recalibration.tabular import Layout


@pytest.fixture
def files(tmp_path, calibration, held_out):
    def frame(problem, rows):
        return pd.DataFrame(
            {
                "id": [f"{i:04d}" for i in range(rows)],
                "mu": problem.mean[:rows],
                "sigma": problem.std[:rows],
                "y": problem.y[:rows],
            }
        )

    frame(calibration, 120).to_csv(tmp_path / "cal.csv", index=False)
    frame(held_out, 60).to_csv(tmp_path / "test.csv", index=False)
    return tmp_path


def fit(files, *more, table="cal.csv", dist="normal:mu,sigma") -> int:
    return run(
        ["recalibration", "fit", str(files / table), "--y", "y", "--dist", dist,
         "-o", str(files / "model.npz"), *more]
    )  # fmt: skip


def apply(files, *more, table="test.csv", out="out.csv") -> int:
    return run(
        ["recalibration", "apply", str(files / "model.npz"), str(files / table),
         "-o", str(files / out), *more]
    )  # fmt: skip


def test_rows_columns_and_their_order_are_kept(files, calibration, held_out):
    assert fit(files) == 0
    assert apply(files, "--quantiles", ".05,.5,.95") == 0
    before, after = (
        pd.read_csv(files / "test.csv", dtype=str),
        pd.read_csv(files / "out.csv", dtype=str),
    )
    pd.testing.assert_frame_equal(after[before.columns], before)
    added = ["recal_mean", "recal_q0.05", "recal_q0.5", "recal_q0.95", "extrapolated"]
    assert list(after.columns) == [*before.columns, *added]
    model = KernelRecalibrator(random_state=0).fit(
        (calibration.mean[:120], calibration.std[:120]), calibration.y[:120]
    )
    expected = model.predict_quantiles((held_out.mean[:60], held_out.std[:60]), [0.05, 0.5, 0.95])
    np.testing.assert_allclose(after[added[1:4]].astype(float), expected, atol=1e-9)
    assert set(after["extrapolated"]) == {"0"}


def test_parquet_goes_in_and_out(files):
    assert fit(files) == 0
    pd.read_csv(files / "test.csv").to_parquet(files / "test.parquet")
    assert apply(files, table="test.parquet", out="out.parquet") == 0
    assert apply(files) == 0
    a, b = pd.read_parquet(files / "out.parquet"), pd.read_csv(files / "out.csv")
    np.testing.assert_allclose(a["recal_mean"], b["recal_mean"])


def test_samples_and_quantiles_are_read_from_columns(files):
    table = pd.read_csv(files / "cal.csv")
    from scipy.special import ndtri

    levels = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
    for name, level in levels.items():
        table[name] = table.mu + table.sigma * ndtri(level)
    for i, level in enumerate((np.arange(20) + 0.5) / 20):
        table[f"s_{i}"] = table.mu + table.sigma * ndtri(level)
    table.to_csv(files / "wide.csv", index=False)
    means = []
    for dist in ("samples:s_*", "quantiles:q05,q25,q50,q75,q95", "normal:mu,sigma"):
        assert fit(files, table="wide.csv", dist=dist) == 0
        assert apply(files, table="wide.csv") == 0
        means.append(pd.read_csv(files / "out.csv")["recal_mean"])
    assert np.corrcoef(means[0], means[2])[0, 1] > 0.97
    assert np.corrcoef(means[1], means[2])[0, 1] > 0.97


def test_unusable_rows_are_refused_or_skipped(files, capsys):
    assert fit(files) == 0
    table = pd.read_csv(files / "test.csv", dtype=str)
    table.loc[3, "sigma"] = "-1"
    table.loc[5, "mu"] = "n/a"
    table.to_csv(files / "gaps.csv", index=False)
    assert apply(files, table="gaps.csv") == 2
    assert "2 of 60 rows cannot be used, first data row 3" in capsys.readouterr().err
    assert not (files / "out.csv").exists()
    assert apply(files, "--skip-bad-rows", table="gaps.csv") == 3
    after = pd.read_csv(files / "out.csv", dtype=str)
    assert after["recal_mean"].isna().to_numpy().nonzero()[0].tolist() == [3, 5]
    assert after["mu"].fillna("n/a").tolist() == table["mu"].tolist()
    assert fit(files, "--skip-bad-rows", table="gaps.csv") == 3


def test_check_prints_figures_and_writes_a_report_and_a_chart(files, capsys):
    assert fit(files) == 0
    capsys.readouterr()
    code = run(
        ["recalibration", "check", str(files / "test.csv"), "--y", "y",
         "--model", str(files / "model.npz"), "-o", str(files / "r.json"),
         "--chart", str(files / "c.svg")]
    )  # fmt: skip
    assert code == 0
    lines = dict(line.split("\t", 1) for line in capsys.readouterr().out.splitlines())
    read = json.loads((files / "r.json").read_text())
    assert lines["CRPS"].split("\t") == [
        f"{read['before']['crps']:.4g}", f"{read['after']['crps']:.4g}"
    ]  # fmt: skip
    assert read["after"]["crps"] < read["before"]["crps"]
    assert (files / "c.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.csv", "--y", "y", "--dist", "normal:mu,sigma", "-o", "m.npz"], "no file"),
        (["fit", "cal.csv", "--y", "z", "--dist", "normal:mu,sigma", "-o", "m.npz"], "--y 'z'"),
        (["fit", "cal.csv", "--y", "y", "--dist", "normal:mu", "-o", "m.npz"], "two columns"),
        (["fit", "cal.csv", "--y", "y", "--dist", "normal:mu,sd", "-o", "m.npz"], "matches 'sd'"),
        (["fit", "cal.csv", "--y", "y", "--dist", "gamma:mu", "-o", "m.npz"], "--dist 'gamma:mu'"),
        (["apply", "cal.csv", "cal.csv", "-o", "o.csv"], "is not a recalibration model"),
        (["check", "cal.csv", "--y", "y"], "--dist"),
    ],
)
def test_bad_input_exits_2_with_what_to_do(files, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(files)
    assert run(["recalibration", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("quantiles", ["0,1", "a", ""])
def test_levels_out_of_range_exit_2(files, capsys, quantiles):
    assert fit(files) == 0
    assert apply(files, "--quantiles", quantiles) == 2
    assert "--quantiles" in capsys.readouterr().err


def test_columns_that_are_there_already_are_not_overwritten(files, capsys):
    assert fit(files) == 0
    assert apply(files) == 0
    assert apply(files, table="out.csv", out="again.csv") == 2
    assert "already has the columns" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "columns", "levels"),
    [
        ("quantiles:q95,q05,q50", ("q05", "q50", "q95"), (0.05, 0.5, 0.95)),
        ("quantiles:p0.025,p975", ("p0.025", "p975"), (0.025, 0.975)),
        ("quantiles:0.1=low,0.9=high", ("low", "high"), (0.1, 0.9)),
    ],
)
def test_levels_are_read_from_names(text, columns, levels):
    layout = Layout.parse(text)
    assert (layout.columns, layout.levels) == (columns, levels)
    assert Layout.parse(str(layout)) == layout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("quantiles:low,high", "LEVEL=COLUMN"),
        ("quantiles:x=low", "LEVEL=COLUMN"),
        ("quantiles:1.5=a,0.5=b", "between 0 and 1"),
        ("samples:", "give samples"),
    ],
)
def test_layouts_that_cannot_be_read_are_told(text, message):
    with pytest.raises(ValueError, match=message):
        Layout.parse(text)


def test_the_command_loads_nothing_heavy():
    import subprocess

    code = (
        "import sys, armillary.uncertainty.recalibration.command\n"
        "print([m for m in ('numpy', 'pandas', 'sklearn', 'torch') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
