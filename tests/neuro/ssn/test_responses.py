"""Contrast responses, gratings and the table of degraded patches."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.neuro.ssn import contrast_response
from armillary.neuro.ssn.reporting import contrast_levels, robustness
from armillary.neuro.ssn.responses import cross_orientation_suppression, grating


def test_the_exponent_of_the_table_is_the_slope_of_its_rates(encoder, patches):
    few = patches[:20]
    near = contrast_response(encoder, few, [0.99, 1.0, 1.01])
    slope = np.log(near["rate"].iloc[2] / near["rate"].iloc[0]) / np.log(1.01 / 0.99)
    assert near["exponent"].iloc[1] == pytest.approx(slope, rel=0.02)


def test_blank_patches_are_left_out(encoder, patches):
    few = patches[:10].copy()
    whole = contrast_response(encoder, few, [1.0])
    with_blank = contrast_response(encoder, np.concatenate([np.ones((3, 64)), few]), [1.0])
    assert with_blank["active"].iloc[0] == pytest.approx(whole["active"].iloc[0])
    with pytest.raises(ValueError, match="constant patches only"):
        contrast_response(encoder, np.ones((3, 64)), [1.0])
    with pytest.raises(ValueError, match=r"contrasts holds 0\.0"):
        contrast_response(encoder, few, [0.0])


def test_gratings_have_the_orientation_and_period_asked_for():
    upright = grating(12, 0.0, 3.0)
    np.testing.assert_allclose(upright, np.tile(upright[0], (12, 1)))
    np.testing.assert_allclose(upright[0, :8], upright[0, 4:12], atol=1e-12)
    np.testing.assert_allclose(grating(12, np.pi / 2, 3.0), upright.T, atol=1e-12)


def test_a_second_grating_suppresses_more_through_lateral_connections(encoder):
    cut = cross_orientation_suppression(encoder.ablate(), 8)
    assert cross_orientation_suppression(encoder, 8) > cut


def test_the_table_of_degraded_patches_has_the_null_in_it(encoder, patches):
    found = robustness(encoder, patches[:200], patches[200:300])
    clean = found[found["noise"] == 0]["no_lateral"].to_numpy()
    np.testing.assert_allclose(clean, clean[0], atol=1e-3)  # the same at all contrasts


def test_contrasts_of_the_command_line():
    np.testing.assert_allclose(contrast_levels("1:4:3"), [1, 2, 4])
    assert contrast_levels(".5, 2") == [0.5, 2.0]
    for bad in ("", "a", "0:1:3", "-1", "1:2", "4:1:3", "1:1:3"):
        with pytest.raises(ValueError, match="give LOW:HIGH:COUNT"):
            contrast_levels(bad)
