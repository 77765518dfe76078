"""Input that a user may give by mistake, and the word that helps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from armillary.cli import root
from armillary.errors import ExitCode
from armillary.uncertainty.recalibration import (
    ConstantOutcomes,
    ExtrapolatedPredictions,
    GaussianMixture,
    KernelRecalibrator,
    Quantiles,
    WeightedSamples,
)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table of 40 predictions with their outcomes, and the folder it stands in."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    mu = rng.normal(size=40)
    frame = pd.DataFrame(
        {"mu": mu, "sigma": 0.5, "s_0": mu - 1, "s_1": mu + 1, "y": rng.normal(mu, 1)}
    )
    frame.to_csv("cal.csv", index=False)
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "empty.csv").touch()
    return tmp_path


FIT = ["recalibration", "fit", "cal.csv", "--y", "y"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([*FIT, "--dist", "normal:y,sigma", "-o", "m.npz"], "column 'y', that of --y"),
        ([*FIT, "--dist", "samples:*", "-o", "m.npz"], "column 'y', that of --y"),
        ([*FIT, "--dist", "quantiles:0.5=y,0.9=mu", "-o", "m.npz"], "column 'y', that of --y"),
        ([*FIT, "--dist", "normal:mu,mu", "-o", "m.npz"], "a column is named twice"),
        ([*FIT, "--dist", "quantiles:0.5=mu,0.9=mu", "-o", "m.npz"], "a column is named twice"),
        ([*FIT, "--dist", "quantiles:0.5=mu,0.5=sigma", "-o", "m.npz"], "a level is named twice"),
        ([*FIT, "--dist", "normal:mu,sigma", "-o", "m.txt"], "must end in .npz"),
        ([*FIT, "--dist", "normal:mu,sigma", "-o", "no/m.npz"], "there is no such folder"),
        ([*FIT, "--dist", "normal:mu,sigma", "-o", "m.npz", "--seed", "-1"], "--seed"),
        (["recalibration", "fit", "folder.csv", *FIT[3:], "--dist", "normal:mu,sigma", "-o",
          "m.npz"], "is a folder"),
        (["recalibration", "fit", "empty.csv", *FIT[3:], "--dist", "normal:mu,sigma", "-o",
          "m.npz"], "is empty"),
        (["recalibration", "check", "cal.csv", *FIT[3:], "--dist", "normal:mu,sigma", "--chart",
          "c.xyz"], "must end in .svg"),
        (["recalibration", "check", "cal.csv", *FIT[3:], "--dist", "normal:mu,sigma", "-o",
          "c.pdf"], "must end in .html"),
    ],
)  # fmt: skip
def test_the_command_line_refuses_in_one_line(table, capsys, arguments, told):
    before = sorted(path.name for path in table.iterdir())
    assert root.run(arguments) == ExitCode.BAD_INPUT
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""
    assert sorted(path.name for path in table.iterdir()) == before


def test_a_level_is_given_once(table, capsys):
    fitted = [*FIT, "--dist", "normal:mu,sigma", "-o", "m.npz"]
    assert root.run(fitted) == ExitCode.OK
    asked = ["recalibration", "apply", "m.npz", "cal.csv", "-o", "o.csv", "--quantiles", ".5,.5"]
    assert root.run(asked) == ExitCode.BAD_INPUT
    assert "a level is given twice" in capsys.readouterr().err


def test_check_shows_four_digits_in_every_column(table, capsys):
    assert root.run([*FIT, "--dist", "normal:mu,sigma", "-o", "m.npz"]) == ExitCode.OK
    checked = ["recalibration", "check", "cal.csv", "--y", "y", "--model", "m.npz"]
    assert root.run(checked) == ExitCode.OK
    crps = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("CRPS"))
    for figure in crps.split("\t")[1:]:
        assert len(figure.replace(".", "").lstrip("0")) == 4


MU, STD = np.linspace(-1, 1, 40), np.full(40, 0.5)


@pytest.mark.parametrize(
    ("settings", "predictions", "y", "error", "told"),
    [
        ({}, (MU * 1e200, STD), MU, ValueError, "mean holds 1e.200"),
        ({}, (MU, STD * 1e200), MU, ValueError, "std holds 5e.199"),
        ({}, (MU, STD), MU * 1e200, ValueError, "y holds 1e.200"),
        ({}, (MU, STD), MU + 1j, TypeError, "y holds complex numbers"),
        ({}, np.ones((40, 3)) * 1j, MU, TypeError, "P holds complex numbers"),
        ({}, (MU, STD), ["a"] * 40, ValueError, "y holds something that is no number"),
        ({}, (MU, STD, STD), MU, ValueError, r"a tuple of 3: give \(mean, std\)"),
        ({"random_state": "q"}, (MU, STD), MU, ValueError, "random_state='q'"),
        ({"random_state": -1}, (MU, STD), MU, ValueError, "random_state=-1"),
        ({"device": "xx"}, (MU, STD), MU, ValueError, "device='xx' cannot be used"),
        ({}, (MU + 1j, STD), MU, TypeError, "mean holds complex numbers"),
        ({}, (MU, STD + 1j), MU, TypeError, "std holds complex numbers"),
        ({}, (["a"] * 40, STD), MU, ValueError, "mean holds something that is no number"),
    ],
)
def test_the_estimator_names_the_argument(settings, predictions, y, error, told):
    if "device" in settings:
        pytest.importorskip("torch")
    with pytest.raises(error, match=told):
        KernelRecalibrator(**settings).fit(predictions, y)


def test_mixture_weights_sum_to_one():
    with pytest.raises(ValueError, match=r"row 0 sums to 1\.8"):
        GaussianMixture(np.zeros((3, 2)), np.ones((3, 2)), np.full((3, 2), 0.9))
    assert GaussianMixture(np.zeros((3, 2)), np.ones((3, 2))).pi.sum() == pytest.approx(3)


def test_no_levels_are_refused_and_far_predictions_told():
    model = KernelRecalibrator(random_state=0).fit((MU, STD), MU + 0.1)
    with pytest.raises(ValueError, match="levels is empty"):
        model.predict_quantiles((MU, STD), [])
    with pytest.warns(ExtrapolatedPredictions, match="2 of 40 predictions"):
        model.predict((np.append(MU[:38], [1e3, -1e3]), STD))


def test_cuda_is_refused_where_there_is_none():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(ValueError, match="device='cuda' cannot be used here"):
        KernelRecalibrator(device="cuda").fit((MU, STD), MU)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda a: WeightedSamples(a), "values"),
        (lambda a: WeightedSamples(a.real, a), "weights"),
        (lambda a: Quantiles([0.1, 0.9], a), "values"),
        (lambda a: GaussianMixture(a, a.real), "mu"),
        (lambda a: GaussianMixture(a.real, a), "var"),
        (lambda a: GaussianMixture(a.real, a.real, a / 2), "pi"),
    ],
)
def test_no_form_of_prediction_drops_an_imaginary_part(make, name):
    with pytest.raises(TypeError, match=f"{name} holds complex numbers"):
        make(np.ones((3, 2)) + 1j)


def test_a_variance_too_large_is_told_as_a_standard_deviation():
    assert GaussianMixture(MU, STD * 1e199).std().max() < 1e100
    with pytest.raises(ValueError, match=r"standard deviation of 1e\+150.*up to 1e\+100"):
        GaussianMixture(MU, np.full(40, 1e300))


def test_constant_outcomes_are_told_and_given_back():
    with pytest.warns(ConstantOutcomes, match="y is 3 in every row"):
        model = KernelRecalibrator(anchor="y", random_state=0).fit((MU, STD), np.full(40, 3.0))
    np.testing.assert_allclose(model.predict_quantiles((MU, STD), [0.1, 0.9]), 3.0)


def test_huge_numbers_in_a_table_are_refused(table, capsys):
    frame = pd.read_csv("cal.csv")
    for column, told in (("mu", "mu holds"), ("sigma", "std holds"), ("y", "y holds")):
        frame.assign(**{column: 1e300}).to_csv("huge.csv", index=False)
        arguments = ["recalibration", "fit", "huge.csv", *FIT[3:], "--dist", "normal:mu,sigma"]
        assert root.run([*arguments, "-o", "m.npz"]) == ExitCode.BAD_INPUT
        assert f"{told} 1e+300: numbers up to 1e+100" in capsys.readouterr().err


def test_a_fitted_model_takes_no_outcome_as_a_prediction(table, capsys):
    assert root.run([*FIT, "--dist", "normal:mu,sigma", "-o", "m.npz"]) == ExitCode.OK
    asked = ["recalibration", "apply", "m.npz", "cal.csv", "-o", "o.csv"]
    assert root.run([*asked, "--dist", "normal:y,sigma"]) == ExitCode.BAD_INPUT
    assert "column 'y', the outcome that the model was fitted to" in capsys.readouterr().err
    assert not (table / "o.csv").exists()


def test_levels_that_would_share_a_column_are_refused(table, capsys):
    assert root.run([*FIT, "--dist", "normal:mu,sigma", "-o", "m.npz"]) == ExitCode.OK
    asked = ["recalibration", "apply", "m.npz", "cal.csv", "-o", "o.csv", "--quantiles"]
    assert root.run([*asked, ".5,.50000001"]) == ExitCode.BAD_INPUT
    assert "a level is given twice" in capsys.readouterr().err


def test_a_warning_is_one_plain_line(table, capsys):
    frame = pd.read_csv("cal.csv").assign(y=3.0)
    frame.to_csv("flat.csv", index=False)
    arguments = ["recalibration", "fit", "flat.csv", *FIT[3:], "--dist", "normal:mu,sigma"]
    assert root.run([*arguments, "-o", "m.npz"]) == ExitCode.OK
    told = [line for line in capsys.readouterr().err.splitlines() if "y is 3" in line]
    assert told == ["warning: y is 3 in every row: there is nothing to learn but that"]
