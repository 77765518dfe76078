"""Models of transformers: generate(), trainers, refusals."""

from __future__ import annotations

import copy

import pytest
import torch

from armillary.serving.tbik import logprobs, make_invariant, ops
from armillary.serving.tbik.generation import Setting, copied, generate
from armillary.serving.tbik.hf import UnsupportedModelError, attention_mask
from armillary.serving.tbik.modules import RotaryTable, TreeLinear

SETTINGS = (
    Setting(batch=4),
    Setting(batch=4, padding=9, shuffled=True),
    Setting(batch=2, chunk=16),
    Setting(batch=3, chunk=7, padding=5),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_answers_do_not_know_of_batch_padding_or_chunks(model, prompts, dtype):
    make_invariant(model.to(dtype))
    alone = generate(model, prompts, 6, Setting())
    for setting in SETTINGS:
        found = generate(model, prompts, 6, setting)
        assert [a.sha256 for a in found] == [a.sha256 for a in alone], setting


def test_plain_torch_does_know(model, prompts):
    alone = generate(model, prompts, 6, Setting())
    found = generate(model, prompts, 6, Setting(batch=4))
    assert [a.sha256 for a in found] != [a.sha256 for a in alone]


def test_threads_change_nothing(model, prompts):
    make_invariant(model)
    alone = generate(model, prompts[:2], 3, Setting(batch=2))
    torch.set_num_threads(2)
    found = generate(model, prompts[:2], 3, Setting(batch=2))
    torch.set_num_threads(1)
    assert [a.sha256 for a in found] == [a.sha256 for a in alone]


def test_trainer_has_the_logprobs_of_the_rollout(model, prompts):
    make_invariant(model)
    answers = generate(model, prompts, 6, Setting(batch=4))
    model.requires_grad_(True)
    width = max(len(p) for p in prompts) + 6
    ids = torch.zeros(4, width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        whole = torch.tensor([*prompt, *answer.tokens.tolist()])
        ids[row, : len(whole)] = whole  # padded on the right, as trainers do
        mask[row, : len(whole)] = 1
    found = logprobs(model, ids, mask)
    assert found.requires_grad
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        mine = found[row, len(prompt) - 1 : len(prompt) + 5].detach()
        assert torch.equal(mine, torch.from_numpy(answer.logprobs))
    found[mask[:, 1:].bool()].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_gradients_are_near_those_of_plain_torch(model, prompts):
    plain = model.float().requires_grad_(True)
    ours = make_invariant(copy.deepcopy(plain))
    ids = torch.tensor([prompts[2]])
    logprobs(ours, ids).sum().backward()
    logits = plain(ids).logits[:, :-1]
    torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).sum().backward()
    for p, q in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=2e-3, atol=2e-3 * q.grad.abs().max().item())


def test_logits_are_near_those_of_plain_torch(model, prompts):
    plain = model.float()
    ours = make_invariant(copied(plain))
    ids = torch.tensor([prompts[1]])
    with torch.no_grad():
        torch.testing.assert_close(ours(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-4)


def other(kind: str):
    import transformers

    common = {
        "vocab_size": 97, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
    }  # fmt: skip
    extra = {"Mistral": {"sliding_window": 8}, "Qwen3": {"head_dim": 32}}.get(kind, {})
    config = getattr(transformers, f"{kind}Config")(**common, **extra)
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


@pytest.mark.parametrize("kind", ["Mistral", "Qwen2", "Qwen3"])
def test_other_layouts_are_invariant_too(kind):
    plain = other(kind)
    ours = make_invariant(copy.deepcopy(plain))
    prompts = [[5, 6, 7], list(range(2, 33))]
    alone = generate(ours, prompts, 5, Setting())
    for setting in (Setting(batch=2, padding=2), Setting(batch=2, chunk=5)):
        found = generate(ours, prompts, 5, setting)
        assert [a.sha256 for a in found] == [a.sha256 for a in alone]
    ids = torch.tensor([prompts[1]])
    with torch.no_grad():
        torch.testing.assert_close(ours(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-4)


def test_an_unknown_architecture_is_refused_whole():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=50))
    with pytest.raises(UnsupportedModelError, match=r"gpt2.*h\.0\.ln_1 \(LayerNorm\)"):
        make_invariant(model)
    assert not any(isinstance(m, TreeLinear) for m in model.modules())


def test_an_unknown_module_is_named_and_nothing_is_changed(model):
    model.model.layers[1].mlp.extra = torch.nn.LayerNorm(4)
    with pytest.raises(UnsupportedModelError, match=r"layers\.1\.mlp\.extra \(LayerNorm\)"):
        make_invariant(model)
    assert type(model.model.layers[0].mlp.down_proj) is torch.nn.Linear


def test_quantised_layers_are_refused(model):
    class Linear4bit(torch.nn.Linear):
        pass

    model.model.layers[0].mlp.up_proj = Linear4bit(576, 768)
    with pytest.raises(TypeError, match="up_proj is a Linear4bit: dequantise first"):
        make_invariant(model)


def test_masks_with_holes_and_static_caches_are_refused():
    from transformers.masking_utils import causal_mask_function

    given = {"mask_function": causal_mask_function}
    holes = torch.tensor([[1, 0, 1]])
    with pytest.raises(ValueError, match="holes"):
        attention_mask(1, 3, 3, attention_mask=holes, **given)
    with pytest.raises(ValueError, match="static"):
        attention_mask(1, 3, 8, **given)
    with pytest.raises(ValueError, match="packed"):
        attention_mask(1, 3, 3, mask_function=lambda *_: True)
    left = attention_mask(2, 3, 3, attention_mask=torch.tensor([[0, 1, 1], [1, 1, 0]]), **given)
    assert left.tolist() == [1, 0]


def test_nan_and_infinity_are_counted(model, prompts):
    make_invariant(model)
    with torch.no_grad():
        model.lm_head.weight[3, 0] = torch.nan
        model.lm_head.weight[4, 0] = torch.inf
    found = generate(model, prompts[:1], 2, Setting())
    assert found[0].unfinite == 4


def test_rotary_table_is_right_and_grows_without_change():
    table = RotaryTable(torch.tensor([1.0, 0.1]), 1.0)
    x = torch.zeros(1)
    cos, _ = table(x, torch.tensor([[0, 7]]))
    expected = torch.tensor([[1.0, 1.0, 1.0, 1.0], [7.0, 0.7, 7.0, 0.7]], dtype=torch.float64)
    expected[1] = expected[1].cos()
    torch.testing.assert_close(cos[0].double(), expected, rtol=1e-6, atol=1e-7)
    table(x, torch.tensor([[900]]))
    assert torch.equal(table(x, torch.tensor([[0, 7]]))[0], cos)


def test_logprobs_needs_two_tokens(model):
    with pytest.raises(ValueError, match="at least 2 tokens"):
        logprobs(model, torch.tensor([[1]]))
    with pytest.raises(ValueError, match="wire_dtype"):
        make_invariant(model, wire_dtype=torch.float16)
    assert ops.LEAF == 64
