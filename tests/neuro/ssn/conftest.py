"""Patches and a small encoder that the tests share."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("skimage")

from armillary.corpora import images
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.patches import draw_patches


@pytest.fixture(scope="session")
def patches() -> np.ndarray:
    photos = [images.photo(name) for name in ("camera", "coffee", "grass", "brick")]
    return draw_patches(photos, 8, 600, np.random.default_rng(1000))


@pytest.fixture(scope="session")
def encoder(patches) -> SSNEncoder:
    """Learned for 80 batches: enough for the regimes, not for good fields."""
    return SSNEncoder(n_exc=64, n_inh=16, n_iter=80, random_state=0).fit(patches)
