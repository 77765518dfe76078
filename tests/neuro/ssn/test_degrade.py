"""Degraded patches: each step by hand, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.neuro.ssn import degrade


@pytest.fixture
def flat() -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(400, 36))


def test_nothing_asked_for_changes_nothing(flat):
    np.testing.assert_allclose(degrade(flat), flat, atol=1e-12)
    assert degrade(flat) is not flat


def test_contrast_acts_about_each_patch_s_mean(flat):
    found = degrade(flat, contrast=0.25)
    np.testing.assert_allclose(found.mean(1), flat.mean(1))
    np.testing.assert_allclose(found.std(1), flat.std(1) / 4)


def test_noise_is_in_units_of_a_typical_patch_and_does_not_follow_the_contrast(flat):
    typical = np.sqrt(flat.var(axis=1).mean())
    for contrast in (1.0, 0.1):
        added = degrade(flat, contrast, 0.5, random_state=0) - degrade(flat, contrast)
        assert added.std() == pytest.approx(0.5 * typical, rel=0.03)
    a, b = (degrade(flat, noise=1, random_state=s) for s in (3, 3))
    np.testing.assert_array_equal(a, b)


def test_blur_keeps_constants_and_lowers_the_finest_stripes_most():
    columns = np.arange(12)
    fine, coarse = np.tile(columns % 2, (12, 1)), np.tile(columns // 6, (12, 1))
    x = np.stack([np.ones((12, 12)), fine, coarse]).astype(float)
    found = degrade(x, blur=1.0)
    np.testing.assert_allclose(found[0], 1)
    assert found[1].std() < 0.2 * x[1].std()
    assert found[2].std() > 0.7 * x[2].std()


def test_occlusion_hides_a_square_of_the_share_asked_for(flat):
    found = degrade(flat, occlusion=0.25, random_state=1)
    hidden = np.isclose(found, flat.mean(1, keepdims=True)) & ~np.isclose(found, flat)
    assert hidden.mean() == pytest.approx(0.25, abs=0.01)  # 3 by 3 of 6 by 6
    np.testing.assert_array_equal(found[~hidden], degrade(flat)[~hidden])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"contrast": -1}, "contrast=-1: expected a number >= 0"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"occlusion": 1.5}, r"occlusion=1\.5: expected a share"),
        ({"shape": (5, 5)}, "patches of 36 pixels are not 5 by 5"),
    ],
)
def test_bad_settings_are_told(flat, settings, told):
    with pytest.raises(ValueError, match=told):
        degrade(flat, **settings)


def test_patches_that_are_not_square_need_a_shape():
    with pytest.raises(ValueError, match="patches of 12 pixels are not 3 by 3: give shape"):
        degrade(np.ones((2, 12)), blur=1)
    assert degrade(np.ones((2, 12)), blur=1, shape=(3, 4)).shape == (2, 12)
    with pytest.raises(ValueError, match=r"X has the shape \(4,\)"):
        degrade(np.ones(4))
