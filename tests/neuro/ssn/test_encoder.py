"""The encoder: conventions, contrast, bad input, files."""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from armillary.neuro.ssn import UnstableNetwork
from armillary.neuro.ssn.dynamics import FixedPoint, SSNDynamics
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.encoding import ContrastOutsideTraining, UnconvergedRates
from armillary.neuro.ssn.network import Rules
from armillary.neuro.ssn.whitening import Whitening

#: No check of scikit-learn's has to be excused.
EXPECTED_FAILURES: dict[str, str] = {}


@parametrize_with_checks(
    # Few units and weak totals: the checks' tables have as few as two columns.
    [SSNEncoder(n_exc=24, n_inh=8, n_iter=2, J=(0.5, 1.5, 1.5, 0.3), random_state=0)],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def small(**more) -> SSNEncoder:
    given = {"n_exc": 24, "n_inh": 6, "n_iter": 5, "J": (0.5, 1.5, 1.5, 0.3), "random_state": 0}
    return SSNEncoder(**{**given, **more})


def test_whitening_is_linear_and_white(patches):
    whitening = Whitening.fit(patches)
    w = whitening.vectors(patches)
    np.testing.assert_allclose(w.T @ w / len(w), np.eye(w.shape[1]), atol=1e-10)
    np.testing.assert_allclose(whitening.vectors(0.3 * patches + 5), 0.3 * w, atol=1e-10)
    np.testing.assert_allclose(whitening.vectors(whitening.patches(w)), w, atol=1e-9)


def test_a_patch_s_mean_is_not_coded(encoder, patches):
    np.testing.assert_allclose(
        encoder.transform(patches[:20]), encoder.transform(patches[:20] + 3.0), rtol=1e-6, atol=1e-9
    )


def test_without_lateral_connections_codes_follow_the_equation(encoder, patches):
    """r = k (g c [F x - b]_+)^2, unit by unit."""
    cut, x = encoder.ablate(), patches[:7]
    w = encoder.whitening_.vectors(x)
    directions = w / np.linalg.norm(w, axis=1, keepdims=True)
    f, b = encoder.network_.f_exc.double().numpy(), encoder.network_.threshold.double().numpy()
    expected = np.array(
        [
            [0.04 * (60 * 2 * max(f[i] @ d - b[i], 0)) ** 2 for i in range(len(f))]
            for d in directions
        ]
    )
    np.testing.assert_allclose(cut.transform(x, contrast=2), expected, rtol=1e-9, atol=1e-12)
    assert cut.network_ is encoder.network_
    assert encoder.lateral


@pytest.mark.filterwarnings("ignore::armillary.neuro.ssn.encoder.ContrastOutsideTraining")
def test_roots_of_rates_are_proportional_to_contrast_without_lateral_connections(encoder, patches):
    cut = encoder.ablate()
    one, four = (np.sqrt(cut.transform(patches[:50], contrast=c)) for c in (1, 4))
    np.testing.assert_allclose(four, 4 * one, rtol=1e-9)


def test_the_own_contrast_of_a_median_patch_is_the_middle_of_the_range(encoder, patches):
    found = encoder.encode(patches)
    assert float(np.median(found.contrast)) == pytest.approx(2.0)
    faint = encoder.encode(0.25 * patches)
    np.testing.assert_allclose(faint.contrast, found.contrast / 4, rtol=1e-9)


def test_fewer_units_answer_as_contrast_rises(encoder, patches):
    from armillary.neuro.ssn.responses import contrast_response

    found = contrast_response(encoder, patches[:120], [0.1, 1.0, 4.0])
    assert found["active"].iloc[2] < 0.6 * found["active"].iloc[0]
    assert found["sparseness"].iloc[2] > found["sparseness"].iloc[0] + 0.05
    assert found["exponent"].iloc[0] > 1.9
    assert found["exponent"].iloc[2] < 1
    cut = contrast_response(encoder.ablate(), patches[:120], [0.1, 1.0, 4.0])
    for name in ("active", "active_20", "sparseness"):
        np.testing.assert_allclose(cut[name], cut[name].iloc[0], rtol=1e-4)
    np.testing.assert_allclose(cut["exponent"], 2, rtol=1e-9)
    np.testing.assert_allclose(cut["energy"], cut["energy_without"])


def test_precision_follows_the_patches(encoder, patches):
    single = encoder.transform(patches[:30].astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, encoder.transform(patches[:30]), rtol=2e-2, atol=2e-2)


def test_the_seed_decides(patches):
    a, b, c = (small(random_state=s).fit(patches).transform(patches[:9]) for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.abs(a - c).max() > 0


def test_partial_fit_goes_on_from_where_it_was(patches):
    model = small().partial_fit(patches[:96])
    assert model.n_batches_ == 2
    first = model.network_.f_exc.clone()
    model.partial_fit(patches[96:244])
    assert model.n_batches_ == 6  # 148 patches: three batches of 48 and one of 4
    assert float((model.network_.f_exc - first).norm()) > 0
    assert model.whitening_ is not None


def test_reconstructions_look_like_the_patches(encoder, patches):
    for model in (encoder, encoder.ablate()):
        found = model.inverse_transform(model.transform(patches))
        centred = patches - patches.mean(axis=1, keepdims=True)
        cosine = (found * centred).sum(1) / (
            np.linalg.norm(found, axis=1) * np.linalg.norm(centred, axis=1) + 1e-12
        )
        assert cosine.mean() > 0.3


def test_components_and_filters_are_dual(encoder):
    """Filters applied to components give the products of afferents."""
    f = encoder.network_.f_exc.double().numpy()
    np.testing.assert_allclose(encoder.filters_ @ encoder.components_.T, f @ f.T, atol=1e-5)


def test_files_give_the_same_encoder_back(encoder, patches, tmp_path):
    path = encoder.save(tmp_path / "encoder.npz")
    again = SSNEncoder.load(path)
    np.testing.assert_array_equal(again.transform(patches[:20]), encoder.transform(patches[:20]))
    codes = encoder.transform(patches[:20])
    np.testing.assert_array_equal(again.inverse_transform(codes), encoder.inverse_transform(codes))
    assert again.get_params() == encoder.get_params()
    a, b = again.partial_fit(patches), SSNEncoder.load(path).partial_fit(patches)
    np.testing.assert_array_equal(a.network_.w_ei, b.network_.w_ei)
    odd = small(rules=Rules(threshold=0.0), random_state=np.random.default_rng(3)).fit(patches)
    assert SSNEncoder.load(odd.save(tmp_path / "odd.npz")).rules == Rules(threshold=0.0)


def test_what_is_no_encoder_is_told(tmp_path):
    (tmp_path / "text.npz").write_text("no")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(ValueError, match="is not an ssn encoder: write one with"):
            SSNEncoder.load(tmp_path / name)
    np.savez(tmp_path / "list.npz", header=np.array("[1]"))
    with pytest.raises(ValueError, match="its header is no table"):
        SSNEncoder.load(tmp_path / "list.npz")
    np.savez(tmp_path / "bare.npz", header=np.array('{"format": "armillary.ssn/1"}'))
    with pytest.raises(ValueError, match=r"damaged ssn encoder .it lacks 'parameters'"):
        SSNEncoder.load(tmp_path / "bare.npz")
    with pytest.raises(FileNotFoundError, match="no ssn encoder at"):
        SSNEncoder.load(tmp_path / "absent.npz")


@pytest.mark.parametrize("lost", ["basis", "network.w_ee", "decoder.1"])
def test_a_file_that_lacks_an_array_is_told(encoder, tmp_path, lost):
    with np.load(encoder.save(tmp_path / "e.npz")) as file:
        arrays = {name: array for name, array in file.items() if name != lost}
    np.savez(tmp_path / "e.npz", **arrays)
    with pytest.raises(ValueError, match="damaged ssn encoder"):
        SSNEncoder.load(tmp_path / "e.npz")


def test_it_stands_in_a_pipeline_and_can_be_cloned(patches):
    line = make_pipeline(small(), FunctionTransformer(np.sqrt))
    assert line.fit_transform(patches).shape == (600, 24)
    assert clone(small()).get_params() == small().get_params()
    assert list(small().fit(patches).get_feature_names_out()[:2]) == ["ssn0", "ssn1"]


# ---- bad input -----------------------------------------------------------------------------------


def test_constant_patches_have_rates_of_zero_and_are_flagged(encoder, patches):
    x = patches[:3].copy()
    x[1] = 0.7
    found = encoder.encode(x)
    np.testing.assert_array_equal(found.blank, [False, True, False])
    assert not found.rates[1].any()
    assert found.converged[1]
    assert found.contrast[1] == 0
    assert np.isfinite(found.rates).all()
    with pytest.raises(ValueError, match="constant patches only"):
        small().fit(np.ones((60, 16)))


def test_integer_images_are_scaled(patches):
    eight = (255 * patches).round().astype(np.uint8)
    model = small().fit(patches)
    np.testing.assert_allclose(model.transform(eight), model.transform(eight / 255.0))


def test_not_finite_is_refused(encoder, patches):
    for bad in (np.nan, np.inf):
        x = patches[:4].copy()
        x[2, 5] = bad
        with pytest.raises(ValueError, match=r"X\[2, 5\] is (nan|inf)"):
            encoder.transform(x)
        with pytest.raises(ValueError, match=r"X\[2, 5\] is (nan|inf)"):
            small().fit(x)


def test_before_fit_it_is_told():
    with pytest.raises(NotFittedError):
        small().transform(np.ones((2, 4)))
    with pytest.raises(NotFittedError):
        small().ablate()

    for read in ("components_", "filters_", "totals_"):
        with pytest.raises(NotFittedError):
            getattr(small(), read)


def test_nothing_is_saved_before_fit(tmp_path):
    with pytest.raises(NotFittedError):
        small().save(tmp_path / "e.npz")
    assert not list(tmp_path.iterdir())


def test_the_first_patch_that_is_too_bright_is_named(patches):
    wild = small().fit(patches)
    wild.network_ = dataclasses.replace(wild.network_, w_ee=20 * wild.network_.w_ee)
    with pytest.raises(UnstableNetwork) as told:
        wild.encode(patches[:600] * np.where(np.arange(600) >= 530, 1e3, 1e-3)[:, None])
    assert "X[530] enters at contrast " in str(told.value)
    assert "(learned: 1 to 3)" in str(told.value)
    assert "lower contrast=, scale the patch down" in str(told.value)


def test_a_fit_that_is_refused_changes_nothing(patches):
    bad = small(J=(8.0, 0.2, 0.2, 0.2))
    for learn in (bad.fit, bad.partial_fit):
        with pytest.raises(UnstableNetwork):
            learn(patches)
        with pytest.raises(NotFittedError):
            bad.transform(patches)
    assert sorted(vars(bad)) == sorted(vars(small()))
    good = small().fit(patches)
    before = good.transform(patches[:5])
    good.set_params(J=(8.0, 0.2, 0.2, 0.2))
    with pytest.raises(UnstableNetwork):
        good.fit(patches)
    np.testing.assert_array_equal(good.transform(patches[:5]), before)


@pytest.mark.parametrize(
    "seed",
    [
        np.random.RandomState(3),
        np.random.Generator(np.random.Philox(3)),
        np.random.default_rng(3),
    ],
)
def test_generators_seed_and_are_not_advanced(patches, tmp_path, seed):
    a, b = (small(random_state=seed).fit(patches) for _ in range(2))
    np.testing.assert_array_equal(a.network_.w_ei, b.network_.w_ei)
    again = SSNEncoder.load(a.save(tmp_path / "e.npz"))
    np.testing.assert_array_equal(
        again.partial_fit(patches).network_.w_ei, a.partial_fit(patches).network_.w_ei
    )


def test_a_view_draws_for_itself(patches):
    a, b = (small().fit(patches) for _ in range(2))
    a.ablate().partial_fit(patches)
    np.testing.assert_array_equal(
        a.partial_fit(patches).network_.w_ei, b.partial_fit(patches).network_.w_ei
    )


def test_complex_numbers_are_refused(encoder, patches):
    for call in (
        lambda: encoder.transform(patches[:2] * 1j),
        lambda: encoder.transform(patches[:2], contrast=2j),
        lambda: encoder.inverse_transform(np.ones((2, 64)) * 1j),
    ):
        with pytest.raises(ValueError, match=r"[Cc]omplex"):
            call()


def test_contrast_outside_the_trained_range_warns(encoder, patches):
    with pytest.warns(ContrastOutsideTraining, match="1 of 1 contrasts are outside 1 to 3"):
        encoder.transform(patches[:5], contrast=0.1)
    with pytest.warns(ContrastOutsideTraining, match="2 of 5 contrasts"):
        encoder.transform(patches[:5], contrast=[0.5, 1, 2, 3, 4])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder.transform(patches[:5], contrast=2)
        encoder.transform(0.1 * patches[:5])  # its own contrast: what the image holds


@pytest.mark.parametrize(
    ("contrast", "told"),
    [
        ([1.0, 2.0], r"contrast has the shape \(2,\): expected one number, or one for each of"),
        (-1.0, r"contrast\[0\] is -1"),
        ([1.0, np.nan, 2.0], r"contrast\[1\] is nan"),
    ],
)
def test_bad_contrasts_are_told(encoder, patches, contrast, told):
    with pytest.raises(ValueError, match=told):
        encoder.transform(patches[:3], contrast=contrast)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"n_exc": 1}, "n_exc=1: expected at least 2"),
        ({"n": 0.5}, r"n=0\.5: expected a number >= 1"),
        ({"J": (1.0, 1.0)}, r"J=\(1\.0, 1\.0\): expected four totals"),
        ({"J": (1.0, -1.0, 1.0, 1.0)}, "expected four totals >= 0"),
        ({"tau": (20.0, 0.0)}, "expected two times > 0"),
        ({"n_iter": -1}, "n_iter=-1"),
        ({"lateral": "no"}, "lateral='no'"),
        ({"rules": 3}, "rules=3"),
        ({"contrast_range": (0.0, 1.0)}, "expected two numbers, 0 < lowest <= highest"),
        ({"gain": 0.0}, "gain=0"),
        ({"gain": np.inf}, "gain=inf: expected a number > 0 in mV"),
        ({"k": "a"}, "k='a': expected a number > 0"),
        ({"n_exc": 24.5}, r"n_exc=24\.5: expected at least 2"),
        ({"n_inh": True}, "n_inh=True"),
        ({"tau": (20.0,)}, r"tau=\(20\.0,\): expected two times > 0"),
        ({"tau": 20.0}, "tau=20"),
        ({"contrast_range": (1.0,)}, r"contrast_range=\(1\.0,\): expected two numbers"),
        ({"contrast_range": (1.0, np.inf)}, "expected two numbers"),
    ],
)
def test_bad_settings_are_told(patches, setting, told):
    with pytest.raises(ValueError, match=told):
        small(**setting).fit(patches)


def test_totals_that_cannot_be_held_are_told_with_others_that_can(patches):
    with pytest.raises(UnstableNetwork, match=r"J_EE=8 with J_EI=0\.2 is unstable.*try J_EE=") as e:
        small(J=(8.0, 0.2, 0.2, 0.2)).fit(patches)
    suggested = float(str(e.value).split("try J_EE=")[1])
    model = small(J=(suggested, 0.2, 0.2, 0.2)).fit(patches)
    assert np.isfinite(model.transform(patches[:50])).all()


def test_excitation_that_is_a_little_too_strong_is_lowered_and_logged(patches):
    model = small(J=(3.2, 1.5, 2.0, 0.3), n_exc=64, n_inh=16).fit(patches)
    assert model.shrinks_
    assert model.totals_[0] == pytest.approx(3.2 * 0.98 ** len(model.shrinks_))
    assert model.J == (3.2, 1.5, 2.0, 0.3)


def test_rates_that_do_not_settle_are_returned_flagged_and_counted(encoder, patches, monkeypatch):
    settled = SSNDynamics.fixed_point

    def hurried(self, drive, **_) -> FixedPoint:
        return settled(self, drive, cap=20)

    monkeypatch.setattr(SSNDynamics, "fixed_point", hurried)
    with pytest.warns(UnconvergedRates, match=r"\d+ of 30 patches: rates had not settled"):
        found = encoder.encode(patches[:30])
    assert (~found.converged).sum() > 0
    assert np.isfinite(found.rates).all()
    assert found.residual[~found.converged].min() > 1e-5


def test_bad_codes_are_told(encoder):
    with pytest.raises(ValueError, match=r"shape \(2, 3\), expected \(n, 64\)"):
        encoder.inverse_transform(np.ones((2, 3)))
    with pytest.raises(ValueError, match="negative or non-finite"):
        encoder.inverse_transform(-np.ones((2, 64)))


def test_learning_without_lateral_connections_never_asks_whether_they_are_stable(patches, tmp_path):
    """Those of J_EE = 9 would run away; they took no part, and there is no decoder for them."""
    wild = (9.0, 0.5, 0.5, 0.3)
    model = SSNEncoder(16, 4, J=wild, n_iter=3, lateral=False, random_state=0).fit(patches[:100])
    codes = model.transform(patches[:5])
    assert model.inverse_transform(codes).shape == (5, 64)
    with pytest.raises(UnstableNetwork, match="lateral=True: this encoder learned without"):
        model.ablate(lateral=True).inverse_transform(codes)
    read = SSNEncoder.load(model.save(tmp_path / "encoder.npz"))
    np.testing.assert_array_equal(read.inverse_transform(codes), model.inverse_transform(codes))
    with pytest.raises(UnstableNetwork):
        SSNEncoder(16, 4, J=wild, n_iter=3, random_state=0).fit(patches[:100])
