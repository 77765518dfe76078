"""A small Llama with uneven heads, and prompts, that the tests share."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("transformers")

import torch

from armillary.serving.tbik.tasks import small_config


@pytest.fixture(autouse=True)
def _seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(dtype=torch.bfloat16, **changes):
    """A Llama of two layers, 9 query and 3 key heads of 64 features, 12 leaves in the MLP."""
    from transformers import LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return LlamaForCausalLM(small_config(2, **changes)).to(dtype).eval()


@pytest.fixture(scope="session")
def _built():
    return build()


@pytest.fixture
def model(_built):
    return copy.deepcopy(_built)


@pytest.fixture(scope="session")
def folder(_built, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    _built.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="session")
def prompts():
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(2, 211, (n,), generator=generator).tolist() for n in (5, 70, 31, 12)]
