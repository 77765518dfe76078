"""Rivals against each other and against what their papers say."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.neuro.ssn.decoding import cosine, fit_decoders
from armillary.neuro.ssn.peers import (
    LEARNED,
    SETTINGS,
    autoencoder,
    dictionary,
    divisive,
    lasso_code,
    lca_code,
    normalised,
)
from armillary.neuro.ssn.whitening import Whitening


@pytest.fixture(scope="module")
def whitened(patches) -> tuple[np.ndarray, Whitening]:
    whitening = Whitening.fit(patches)
    return whitening.directions(patches).x, whitening


def lasso(w: np.ndarray, a: np.ndarray, atoms: np.ndarray, penalty: float) -> np.ndarray:
    return 0.5 * ((w - a @ atoms) ** 2).sum(1) + penalty * np.abs(a).sum(1)


def test_lca_and_coordinate_descent_solve_the_same_lasso(whitened):
    w = whitened[0][:40]
    atoms = dictionary(whitened[0], 48, 0.1, 0)
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1, rtol=1e-6)
    a = lca_code(w, atoms, 0.1, tolerance=1e-4, steps=5_000)
    b = lasso_code(w, atoms, 0.1)
    assert (np.abs(a) > 0).any()
    np.testing.assert_allclose(lasso(w, a, atoms, 0.1), lasso(w, b, atoms, 0.1), rtol=1e-3)
    loose = lca_code(w, atoms, 0.1)
    np.testing.assert_allclose(lasso(w, loose, atoms, 0.1), lasso(w, b, atoms, 0.1), rtol=1e-2)


def test_sparse_codes_of_a_fixed_penalty_vanish_at_low_contrast_and_normalised_ones_do_not(
    whitened,
):
    w = whitened[0][:60]
    code = LEARNED["sparse-coding"](whitened[0], 48, 0, 0.1)
    assert not code(0.05 * w).any()
    np.testing.assert_allclose(normalised(code)(0.05 * w), code(w), atol=1e-6)


@pytest.mark.parametrize("name", ["ica", "pca"])
def test_complete_linear_codes_keep_all(name, whitened):
    w = whitened[0]
    code = LEARNED[name](w, 192, 0, 1.0)
    assert code(w).shape[1] == w.shape[1]
    decoders = fit_decoders(code(w[:400]), w[:400])
    for intercept in (False, True):
        assert cosine(decoders.decode(code(w[400:]), intercept), w[400:]) > 0.999
    np.testing.assert_allclose(code(0.25 * w), 0.25 * code(w), atol=1e-12)


@pytest.mark.slow
def test_every_rival_has_a_setting_and_codes_of_the_size_asked_for(whitened):
    w, whitening = whitened
    for name, learn in LEARNED.items():
        code = learn(w[:200], 24, 0, SETTINGS[name])
        assert code(w[:5]).shape == (5, min(24, w.shape[1]) if name in ("ica", "pca") else 24)
        assert f"{name}-normalised" in SETTINGS
    basis = whitening.basis * whitening.scale[:, None]
    deep = autoencoder(w[:200], 24, 0, 0.5, basis=basis, steps=3)
    assert deep(w[:5]).shape == (5, 24)
    again = autoencoder(w[:200], 24, 0, 0.5, basis=basis, steps=3)
    np.testing.assert_array_equal(deep(w[:5]), again(w[:5]))


def test_divisive_normalisation_saturates_and_keeps_ratios():
    d = np.array([[1.0, 2.0, 0.0, 4.0]])
    weak, strong = divisive(1e-4 * d, 2.0, 1.0), divisive(1e4 * d, 2.0, 1.0)
    np.testing.assert_allclose(weak, (1e-4 * d) ** 2, rtol=1e-6)  # the feed-forward square
    np.testing.assert_allclose(strong.mean(), 1, rtol=1e-6)  # the pool's mean is held
    np.testing.assert_allclose(strong / strong.max(), weak / weak.max(), rtol=1e-12)
