"""The recalibrator: what it repairs, its symmetries, its approximations and its refusals."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from armillary.uncertainty.recalibration import (
    CalibrationLeakWarning,
    DegeneratePredictions,
    KernelRecalibrator,
    WeightedSamples,
    skce,
)
from armillary.uncertainty.recalibration.distributions import GaussianMixture, Quantiles, normal


def fitted(problem, **settings) -> KernelRecalibrator:
    return KernelRecalibrator(random_state=0, **settings).fit(problem.pair, problem.y)


@pytest.fixture(scope="module")
def model(calibration):
    return fitted(calibration)


def test_it_repairs_what_a_remap_cannot(model, calibration, held_out):
    """The base model is too narrow by a factor that depends on x, and misses two modes."""
    base = normal(*held_out.pair)
    found = model.predict(held_out.pair)
    assert found.crps(held_out.y).mean() < 0.87 * base.crps(held_out.y).mean()
    assert abs(found.interval(0.9).covers(held_out.y).mean() - 0.9) < 0.04
    assert skce(found, held_out.y).statistic < 0.1 * skce(base, held_out.y).statistic


def test_two_modes_come_back(model):
    """Where x > 0 there are two modes at plus and minus 1.2; at the mean there is a valley."""
    x = 0.4
    one = ([np.sin(2 * x)], [(0.2 + 0.3 * x) * 0.35])
    below, upto = (
        model.predict(one).cdf_bounds(np.array([np.sin(2 * x) + shift]))[1][0]
        for shift in (-0.4, 0.4)
    )
    middle, tail = upto - below, 1 - upto
    assert tail > 1.5 * middle


def test_one_row_s_weights_solve_the_regularised_system(calibration, held_out):
    """The slow twin: distances by quadrature, a dense solve, a projection by bisection."""
    from scipy import stats

    n = 40
    mean, std, y = calibration.mean[:n], calibration.std[:n], calibration.y[:n]
    model = KernelRecalibrator("y", lam=0.02, n_knots=None).fit((mean, std), y)
    grid = np.linspace(-12, 12, 8001)
    cdf = stats.norm.cdf(grid, mean[:, None], std[:, None])
    new = stats.norm.cdf(grid, held_out.mean[0], held_out.std[0])

    def distance(f, g):
        return np.sqrt(np.trapezoid((f - g) ** 2, grid, axis=-1) / y.std())

    within = distance(cdf[:, None], cdf[None])
    theta = np.median(within[np.triu_indices(n, 1)])
    np.testing.assert_allclose(model.theta_, theta, rtol=1e-3)
    raw = np.linalg.solve(
        np.exp(-within / theta) + 0.02 * n * np.eye(n), np.exp(-distance(cdf, new) / theta)
    )
    low, high = raw.min() - 1, raw.max()
    for _ in range(100):
        tau = (low + high) / 2
        low, high = (tau, high) if np.maximum(raw - tau, 0).sum() > 1 else (low, tau)
    expected = np.maximum(raw - tau, 0)[np.argsort(y, kind="stable")]
    found = model.predict((held_out.mean[:1], held_out.std[:1]))
    np.testing.assert_allclose(found.weights[0], expected, atol=2e-3)
    np.testing.assert_allclose(found.values, np.sort(y))


@pytest.mark.parametrize("anchor", ["y", "residual"])
def test_an_affine_change_of_units_changes_only_the_units(anchor, calibration, held_out):
    def levels(a, b):
        model = KernelRecalibrator(anchor, lam=1e-2).fit(
            (a * calibration.mean + b, a * calibration.std), a * calibration.y + b
        )
        return model.predict_quantiles(
            (a * held_out.mean[:50] + b, a * held_out.std[:50]), [0.1, 0.5, 0.9]
        )

    np.testing.assert_allclose(levels(7.0, -3.0), 7 * levels(1.0, 0.0) - 3, atol=1e-6)


def test_order_of_calibration_and_test_rows_does_not_matter(calibration, held_out):
    order = np.random.default_rng(0).permutation(400)
    kept, new = np.arange(0, 60), np.random.default_rng(1).permutation(60)
    a = KernelRecalibrator("residual", lam=1e-2).fit(calibration.pair, calibration.y)
    b = KernelRecalibrator("residual", lam=1e-2).fit(
        (calibration.mean[order], calibration.std[order]), calibration.y[order]
    )
    rows = (held_out.mean[kept], held_out.std[kept])
    expected = a.predict_quantiles(rows, [0.05, 0.5, 0.95])
    found = b.predict_quantiles((rows[0][new], rows[1][new]), [0.05, 0.5, 0.95])
    np.testing.assert_allclose(found, expected[new], atol=1e-6)


def test_quantiles_never_cross_and_blocks_agree_with_the_whole(model, held_out):
    pair = (np.tile(held_out.mean, 2), np.tile(held_out.std, 2))  # more than a block
    levels = np.linspace(0.01, 0.99, 25)
    found = model.predict_quantiles(pair, levels)
    assert (np.diff(found, axis=1) >= 0).all()
    np.testing.assert_allclose(found, model.predict(pair).quantile(levels))
    y = np.tile(held_out.y, 2)
    np.testing.assert_allclose(model.crps(pair, y), model.predict(pair).crps(y))
    interval = model.predict_interval(pair, 0.8)
    np.testing.assert_allclose(interval.lower, model.predict_quantiles(pair, [0.1])[:, 0])
    assert (interval.width >= 0).all()


def test_residuals_move_with_the_prediction(calibration):
    """With a huge ridge every residual weighs nearly the same: pooled residuals, moved."""
    model = KernelRecalibrator("residual", lam=1e6).fit(calibration.pair, calibration.y)
    residuals = np.sort(calibration.y - calibration.mean)
    found = model.predict(([0.5], [1.0]))
    np.testing.assert_allclose(found.values[0], 0.5 + residuals, atol=1e-9)
    np.testing.assert_allclose(found.weights[0], 1 / 400, atol=1e-5)
    assert model.weights_support_[0] == pytest.approx(residuals[0])


def test_landmarks_approach_the_dense_solution(calibration, held_out):
    def weights(landmarks):
        model = KernelRecalibrator(
            "y", lam=0.05, n_knots=513, nystroem=landmarks, random_state=0
        ).fit(calibration.pair, calibration.y)
        return model.predict(held_out.pair).weights, model.rank_

    dense, rank = weights(None)
    assert rank == 400
    errors = [np.abs(weights(m)[0] - dense).sum(axis=1).mean() for m in (20, 100, 399)]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 0.02


@pytest.mark.slow
def test_large_sets_go_through_landmarks_by_themselves(many, held_out):
    model = fitted(many)
    assert model.rank_ == 1000
    dense = fitted(many, nystroem=None, lam=model.lam_, anchor=model.anchor_)
    found, expected = (m.crps(held_out.pair, held_out.y).mean() for m in (model, dense))
    assert found == pytest.approx(expected, rel=0.01)


def test_exact_distances_and_the_embedding_agree(calibration, held_out):
    samples = normal(*calibration.pair).sample(60, seed=0)
    new = normal(*held_out.pair).sample(60, seed=1)
    found = [
        KernelRecalibrator("y", lam=1e-2, n_knots=knots)
        .fit(samples, calibration.y)
        .predict_mean(new)
        for knots in (None, 513)
    ]
    np.testing.assert_allclose(found[0], found[1], atol=0.03)  # y has deviation 1.3


@pytest.mark.parametrize("form", ["samples", "quantiles", "mixture", "pair"])
def test_forms_of_the_same_prediction_give_nearly_the_same(form, calibration, held_out):
    levels = (np.arange(200) + 0.5) / 200

    def read(problem):
        p = normal(*problem.pair)
        return {
            "samples": lambda: p.quantile(levels),
            "quantiles": lambda: Quantiles(levels, p.quantile(levels)),
            "mixture": lambda: GaussianMixture(p.mu.repeat(2, 1), p.var.repeat(2, 1)),
            "pair": lambda: problem.pair,
        }[form]()

    expected = KernelRecalibrator("y", lam=1e-2).fit(calibration.pair, calibration.y)
    found = KernelRecalibrator("y", lam=1e-2).fit(read(calibration), calibration.y)
    np.testing.assert_allclose(
        found.predict_mean(read(held_out)), expected.predict_mean(held_out.pair), atol=0.02
    )


def test_torch_on_the_cpu_gives_what_numpy_gives(calibration, held_out):
    pytest.importorskip("torch")
    found = [fitted(calibration, device=device).predict(held_out.pair) for device in (None, "cpu")]
    np.testing.assert_allclose(found[0].weights, found[1].weights, atol=1e-6)


def test_auto_takes_the_anchor_of_least_held_out_crps(model):
    crps = model.selection_.crps
    assert model.anchor_ == min(crps, key=crps.get)
    assert set(crps) == {"y", "residual"}


def test_saved_and_loaded_it_predicts_the_same(model, calibration, held_out, tmp_path):
    few = KernelRecalibrator("residual", lam=1e-2).fit(
        (calibration.mean[:60], calibration.std[:60]), calibration.y[:60]
    )
    landmarks = fitted(calibration, anchor="y", lam=0.01, nystroem=50)
    for i, each in enumerate((model, few, landmarks)):
        path = each.save(tmp_path / f"{i}.npz")
        with np.load(path, allow_pickle=False) as file:
            assert "header" in file
        loaded = KernelRecalibrator.load(path)
        np.testing.assert_array_equal(
            loaded.predict(held_out.pair).weights, each.predict(held_out.pair).weights
        )
        np.testing.assert_array_equal(loaded.weights_support_, each.weights_support_)
        assert loaded.get_params() == each.get_params()


def test_a_model_of_the_first_format_is_read_about_zero(calibration, held_out, tmp_path):
    """Format 1 had no origin: what it holds is what is now fitted where the median of y is 0."""
    origin = np.median(calibration.y)
    pair = calibration.mean - origin, calibration.std
    model = KernelRecalibrator(random_state=0).fit(pair, calibration.y - origin)
    assert model.origin_ == 0
    with np.load(model.save(tmp_path / "new.npz"), allow_pickle=False) as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    header["format"] = "armillary.recalibration/1"
    del header["numbers"]["origin_"]
    np.savez(tmp_path / "old.npz", **(arrays | {"header": np.array(json.dumps(header))}))
    loaded = KernelRecalibrator.load(tmp_path / "old.npz")
    for part in ("values", "weights"):
        np.testing.assert_array_equal(
            getattr(loaded.predict(held_out.pair), part),
            getattr(model.predict(held_out.pair), part),
        )


def test_files_that_are_no_model_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no recalibration model"):
        KernelRecalibrator.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match="is not a recalibration model"):
        KernelRecalibrator.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(ValueError, match="is not a recalibration model"):
        KernelRecalibrator.load(tmp_path / "other.npz")


# ---- bad input -------------------------------------------------------------------------------


def test_too_few_rows_are_counted():
    with pytest.raises(ValueError, match="19 calibration rows: at least 20"):
        KernelRecalibrator().fit((np.arange(19.0), np.ones(19)), np.arange(19.0))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_gaps_are_located(value):
    p, y = np.random.default_rng(0).normal(size=(30, 8)), np.arange(30.0)
    broken = y.copy()
    broken[7] = value
    with pytest.raises(ValueError, match=r"y holds NaN or infinity.*first in row 7"):
        KernelRecalibrator().fit(p, broken)
    p[11, 3] = value
    with pytest.raises(ValueError, match=r"P holds NaN or infinity.*first in row 11"):
        KernelRecalibrator().fit(p, y)


@pytest.mark.parametrize(
    "P",
    [
        np.ones((30, 5)),
        (np.full(30, 2.0), np.full(30, 0.5)),
        WeightedSamples(np.arange(4.0), np.ones((30, 4))),
    ],
    ids=["samples", "normal", "weights"],
)
@pytest.mark.parametrize("knots", [None, 64])
def test_identical_predictions_give_the_marginal_with_a_warning(P, knots, tmp_path):
    y = np.random.default_rng(0).normal(size=30)
    with pytest.warns(DegeneratePredictions, match="marginal of y"):
        model = KernelRecalibrator(n_knots=knots).fit(P, y)
    found = model.predict(P)
    np.testing.assert_allclose(found.weights, 1 / 30)
    np.testing.assert_allclose(found.values, np.sort(y))
    loaded = KernelRecalibrator.load(model.save(tmp_path / "m.npz"))
    np.testing.assert_allclose(loaded.predict(P).weights, 1 / 30)


def test_duplicates_and_ties_do_no_harm(calibration):
    mean = np.repeat([0.0, 1.0], 30)
    y = np.tile([0.0, 1.0, 1.0], 20) + mean
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = KernelRecalibrator("y", random_state=0).fit((mean, np.ones(60)), y)
    found = model.predict(([0.0, 1.0], [1.0, 1.0]))
    np.testing.assert_allclose(found.mean(), [2 / 3, 5 / 3], atol=0.1)
    constant = KernelRecalibrator("y").fit((np.arange(30.0), np.ones(30)), np.full(30, 4.0))
    assert constant.predict_quantiles(([3.0], [1.0]), [0.1, 0.9]).tolist() == [[4.0, 4.0]]


def test_training_rows_among_calibration_rows_are_noticed(calibration):
    rng = np.random.default_rng(0)
    n = 60
    seen = np.arange(30)
    y = rng.normal(size=n)
    mean = np.where(np.arange(n) < 30, y + 0.01 * rng.normal(size=n), 0.0)
    with pytest.warns(CalibrationLeakWarning, match="30 of 60 calibration rows were training rows"):
        KernelRecalibrator("y", lam=0.1).fit((mean, np.ones(n)), y, train_index=seen)
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationLeakWarning)
        KernelRecalibrator("y", lam=0.1).fit((np.zeros(n) + mean[30], y**2 + 1), y)
        KernelRecalibrator("y", lam=0.1).fit(
            (0.1 * rng.normal(size=n), np.ones(n)), y, train_index=seen
        )


def test_too_many_rows_for_a_dense_solve_are_refused_with_the_memory():
    n = 20_001
    with pytest.raises(ValueError, match=r"3\.0 GiB each.*nystroem='auto'"):
        KernelRecalibrator(nystroem=None).fit(
            (np.arange(float(n)), np.ones(n)), np.arange(float(n))
        )


def test_predictions_unlike_all_others_are_flagged(model, held_out):
    far = (np.array([held_out.mean[0], 500.0]), np.array([held_out.std[0], 1.0]))
    assert model.extrapolated(far).tolist() == [False, True]


def test_transposed_samples_are_told():
    with pytest.raises(ValueError, match=r"\(8, 30\).*\(30,\).*P\.T"):
        KernelRecalibrator().fit(np.ones((8, 30)), np.arange(30.0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"anchor": "mean"}, "anchor='mean'"),
        ({"kernel": "gaussian"}, "kernel='gaussian'"),
        ({"lam": 0.0}, "lam=0.0"),
        ({"lam": "best"}, "lam='best'"),
        ({"n_knots": 4}, "n_knots=4"),
        ({"nystroem": 1}, "nystroem=1"),
        ({"cv": 1}, "cv=1"),
        ({"cv": "auto"}, "cv='auto'"),
    ],
)
def test_settings_out_of_range_are_told(settings, message, calibration):
    with pytest.raises(ValueError, match=message):
        KernelRecalibrator(**settings).fit(calibration.pair, calibration.y)


def test_it_is_an_estimator():
    model = KernelRecalibrator("y", lam=0.1, cv=3)
    assert clone(model).get_params() == model.get_params()
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        model.predict((np.zeros(3), np.ones(3)))


def _dyadic(*arrays: np.ndarray) -> list[np.ndarray]:
    """Multiples of 1/1024, so that adding a whole number up to 1e12 loses nothing."""
    return [np.round(array * 1024) / 1024 for array in arrays]


@pytest.mark.parametrize("offset", [1e6, 1e9, 1e12])
@pytest.mark.parametrize("anchor", ["y", "residual"])
@pytest.mark.parametrize("form", ["normal", "samples"])
def test_a_common_offset_moves_the_result_and_nothing_else(
    calibration, held_out, offset, anchor, form, tmp_path
):
    def predictions(problem, by):
        mean, std = _dyadic(problem.mean, problem.std)
        if form == "normal":
            return mean + by, np.maximum(std, 1 / 1024)
        spread = np.array([-1.5, -0.5, 0.5, 1.5])
        return _dyadic(mean[:, None] + std[:, None] * spread)[0] + by

    (y,) = _dyadic(calibration.y)
    (new_y,) = _dyadic(held_out.y)
    fitted = [
        KernelRecalibrator(anchor=anchor, random_state=0).fit(predictions(calibration, by), y + by)
        for by in (0.0, offset)
    ]
    fitted[1] = KernelRecalibrator.load(fitted[1].save(tmp_path / "moved.npz"))
    assert fitted[1].lam_ == fitted[0].lam_
    assert fitted[1].theta_ == fitted[0].theta_
    plain, moved = (
        model.predict(predictions(held_out, by))
        for model, by in zip(fitted, (0.0, offset), strict=True)
    )
    np.testing.assert_array_equal(moved.weights, plain.weights)
    rounding = 4 * np.spacing(offset)  # of numbers near the offset, in which the results are given
    np.testing.assert_allclose(moved.values - offset, plain.values, rtol=0, atol=rounding)
    np.testing.assert_allclose(moved.mean() - offset, plain.mean(), rtol=0, atol=rounding)
    np.testing.assert_allclose(
        moved.crps(new_y + offset), plain.crps(new_y), rtol=0, atol=2 * rounding
    )
