"""A dense Llama becomes a mixture of experts that says nearly the same."""

from __future__ import annotations

import pytest
import torch

from armillary.serving.gemq import moefy, sequences
from armillary.serving.gemq.evaluation import Reference, evaluate, log_ppl
from armillary.serving.gemq.layouts import blocks
from armillary.serving.gemq.moefication import balanced_groups, distil
from armillary.serving.gemq.regression import ridge
from armillary.serving.gemq.tasks import small_moe


@pytest.fixture
def dense():
    from transformers import LlamaConfig, LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=97, hidden_size=64, intermediate_size=256, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
            )
        ).eval()  # fmt: skip
        for p in model.parameters():
            if p.ndim == 2:
                p.data = torch.randn_like(p) * 0.12
    return model.requires_grad_(False)


def test_all_experts_at_once_are_the_dense_layer(dense, tokens):
    """With top_k = experts nothing is left out: only router weights stand between."""
    whole = moefy(dense, tokens, experts=4, top_k=4)
    with torch.no_grad():
        a, b = whole(tokens).logits, dense(tokens).logits
    assert float((a - b).norm() / b.norm()) < 0.1
    assert type(whole).__name__ == "MixtralForCausalLM"
    assert whole.lm_head.weight is whole.model.embed_tokens.weight


def test_distillation_brings_a_damaged_mixture_back(dense, tokens):
    moe = moefy(dense, tokens, experts=4, top_k=2)
    for block in blocks(moe):
        block.experts.down_proj.data *= 0.3
    before = copy_state(moe)
    losses = distil(moe, dense, tokens, steps=24, learning_rate=2e-3)
    assert sum(losses[-6:]) < 0.8 * sum(losses[:6])
    attention = [k for k in before if "self_attn" in k or "embed" in k]
    assert all(torch.equal(moe.state_dict()[k], before[k]) for k in attention)
    assert not any(p.requires_grad for p in moe.parameters())


def copy_state(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_groups_are_balanced_and_find_neurons_that_fire_together():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(300, 4, generator=generator).relu()
    owner = torch.randperm(32, generator=generator) % 4
    inner = hidden[:, owner] * (0.5 + torch.rand(32, generator=generator))
    groups = balanced_groups(inner, 4, torch.Generator().manual_seed(3))
    assert groups.shape == (4, 8)
    assert sorted(groups.flatten().tolist()) == list(range(32))
    pure = sum(len(set(owner[g].tolist())) == 1 for g in groups)
    assert pure >= 2


def test_ridge_is_least_squares_in_the_limit_and_the_start_without_data():
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(50, 6, generator=generator), torch.randn(50, 2, generator=generator)
    start = torch.randn(6, 2, generator=generator)
    expected = torch.linalg.lstsq(x, y).solution
    torch.testing.assert_close(ridge(x, y, start, 0.0), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ridge(x, y, start, 1e9), start, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("asked", "kind", "message"),
    [
        ({"experts": 3}, ValueError, "experts=3, top_k=4: experts must .* divide 256 neurons"),
        ({"experts": 4, "top_k": 5}, ValueError, "top_k lie between 1 and experts"),
    ],
)
def test_what_cannot_be_converted_is_told(dense, tokens, asked, kind, message):
    with pytest.raises(kind, match=message):
        moefy(dense, tokens, **asked)
    with pytest.raises(TypeError, match="a 'llama' is needed"):
        moefy(small_moe(), tokens)


def test_perplexity_is_the_exponential_of_mean_surprise(dense, tokens):
    with torch.no_grad():
        logits = dense(tokens).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert log_ppl(dense, tokens) == pytest.approx(float(expected), rel=1e-5)
    model = small_moe()
    reference = Reference.of(model, tokens)
    moved = evaluate(small_moe(num_experts_per_tok=1), reference)
    assert moved["kl"] > 0
    assert moved["set_change"] == 1.0  # one expert is never the set of two
    assert len(blocks(model)) == len(reference.chosen)


# ---- text ---------------------------------------------------------------------------------------


class Letters:
    """A tokenizer of characters."""

    def __call__(self, text, **_):
        return {"input_ids": [ord(c) % 97 for c in text]}


def test_documents_are_not_joined_and_too_little_text_is_told():
    found = sequences(Letters(), ["a" * 10, "b" * 7], 4)
    assert found.tolist() == [[0] * 4, [0] * 4, [1] * 4]
    drawn = sequences(Letters(), ["a" * 40, "b" * 40], 4, 5, seed=1)
    assert drawn.shape == (5, 4)
    with pytest.raises(ValueError, match="17 tokens in 2 documents, 1 whole sequences of 8; 3 are"):
        sequences(Letters(), ["a" * 10, "b" * 7], 8, 3)
