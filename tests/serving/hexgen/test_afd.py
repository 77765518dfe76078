"""The split of attention and feed-forward blocks: the same tokens from separate processes."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from armillary.serving.hexgen import afd


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    path = tmp_path_factory.mktemp("tiny")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=100,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randint(0, 100, (n,), generator=generator).tolist()
        for n in (3, 7, 5, 9, 1, 6, 8, 2, 3, 5, 7, 11)
    ]


@pytest.mark.parametrize("n_attn", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_split_gives_the_tokens_of_the_whole(folder, prompts, n_attn: int) -> None:
    truth = afd.monolithic(folder, prompts, 6)
    with afd.AfdGroup(folder, n_attn=n_attn) as group:
        for micro in (1, 2, 3):
            found = group.run(prompts, 6, micro)
            assert found.tokens == truth
            assert found.cycle_s > 0
            assert found.attention_s > 0
            assert found.ffn_s > 0
        with pytest.raises(ValueError, match="cannot be dealt evenly"):
            group.run(prompts[:5], 6, 3)
        with pytest.raises(ValueError, match="max_tokens 2"):
            group.run(prompts, 1, 1)
        workers = list(group._workers)
    assert not any(worker.is_alive() for worker in workers)


@pytest.mark.slow
def test_a_dead_worker_is_told_and_nothing_stays(folder, prompts) -> None:
    group = afd.AfdGroup(folder)
    workers = list(group._workers)
    workers[1].kill()
    with pytest.raises(RuntimeError, match="of the group"):
        group.run(prompts, 6, 1)
    group.close()
    assert not any(worker.is_alive() for worker in workers)


def test_cycle_of_the_planner() -> None:
    """m = 1 waits for the whole trip; with enough micro-batches the slower side decides."""
    assert afd.predicted_cycle(2.0, 3.0, 0.5, 1) == pytest.approx(6.0)
    assert afd.predicted_cycle(2.0, 3.0, 0.5, 2) == pytest.approx(3.5)
    assert afd.predicted_cycle(2.0, 3.0, 2.5, 2) == pytest.approx(5.5)


def test_what_cannot_be_split_is_refused(folder, tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="no model"):
        afd.AfdGroup(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ValueError, match="only Llama"):
        afd.AfdGroup(tmp_path)
    with pytest.raises(ValueError, match="n_attn=0"):
        afd.AfdGroup(folder, 0)
