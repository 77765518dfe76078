"""What the tests share: networks that are initialised, and their spike rates."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Small layers are slower on several threads, and tests run side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _denormals():
    """Networks of the evidence flush denormal numbers for good; Hypothesis needs them."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture
def rates():
    """The rate of each layer of neurons of this package or SpikingJelly on a batch."""
    from armillary.neuro.spikeinit import depth_profile

    def measure(model, batch):
        return depth_profile(model, batch).rate.tolist()

    return measure


@pytest.fixture
def rows():
    """256 standardised rows of 64."""
    return torch.randn(256, 64, generator=torch.Generator().manual_seed(5))
