"""Tiny mixtures of experts of every layout, with random weights."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("transformers")

import torch

from armillary.serving.gemq.tasks import small_moe


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def _mixtral():
    return small_moe()


@pytest.fixture
def model(_mixtral):
    return copy.deepcopy(_mixtral)


@pytest.fixture(scope="session")
def tokens():
    return torch.randint(1, 97, (6, 32), generator=torch.Generator().manual_seed(5))
