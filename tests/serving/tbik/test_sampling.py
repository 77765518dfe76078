"""Sampling: Philox's published words, noise of the right law, draws that know of no batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from armillary.serving.tbik.sampling import RequestSampler, gumbel, philox


def test_philox_gives_the_published_words():
    """Known answers of the Random123 distribution for philox4x32-10."""
    zeros = philox(0, np.zeros((1, 4), np.uint64))[0]
    assert [hex(w) for w in zeros] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    ones = np.full((1, 4), 0xFFFFFFFF, np.uint64)
    assert [hex(w) for w in philox(2**64 - 1, ones)[0]] == [
        "0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd",
    ]  # fmt: skip


def test_noise_is_gumbel():
    noise = gumbel(1, 0, 100_000).double()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.05)


def test_draws_follow_the_probabilities():
    scores = torch.tensor([0.5, 0.3, 0.2]).log().repeat(4000, 1)
    sampler = RequestSampler(list(range(4000)), prompt=3)
    drawn = sampler(torch.zeros(4000, 3, dtype=torch.long), scores).argmax(-1)
    shares = torch.bincount(drawn, minlength=3) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.5, 0.3, 0.2]), rtol=0, atol=0.03)


def test_a_request_draws_the_same_in_any_batch():
    scores = torch.randn(3, 50)
    ids = torch.zeros(3, 7, dtype=torch.long)
    together = RequestSampler([4, 5, 6], 5)(ids, scores)
    alone = RequestSampler([5], 5)(ids[:1], scores[1:2])
    assert torch.equal(together[1], alone[0])
    other_position = RequestSampler([5], 4)(ids[:1], scores[1:2])
    assert not torch.equal(alone, other_position)


def test_requests_without_a_seed_differ():
    sampler = RequestSampler([None, None], 0)
    assert sampler.seeds[0] != sampler.seeds[1]


def test_bad_settings_are_told():
    with pytest.raises(ValueError, match="temperature"):
        RequestSampler([1], 0, temperature=0)
    with pytest.raises(ValueError, match="2 requests and 1 seeds"):
        RequestSampler([1], 0)(torch.zeros(2, 1, dtype=torch.long), torch.zeros(2, 5))
