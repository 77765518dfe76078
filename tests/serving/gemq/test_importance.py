"""Importance against its definition: one expert rounded, the block's output compared."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from armillary.serving.gemq import Importance, UnsupportedModelError, allocate, collect
from armillary.serving.gemq.gptq import rounded
from armillary.serving.gemq.importance import SINKS, CalibrationWarning
from armillary.serving.gemq.layouts import blocks, expert_weights
from armillary.serving.gemq.tasks import small_moe


def by_definition(model, row, layer, expert, bits, *, weighted):
    """Round one expert in the model, run the block on the same inputs, sum over all positions."""
    block = blocks(model)[layer]
    kept = {}
    hooks = [
        block.module.register_forward_pre_hook(lambda _, args: kept.update(x=args[0].detach())),
        block.module.register_forward_hook(
            lambda _, __, out: out.register_hook(lambda g: kept.update(g=g)) and None
        ),
    ]
    inputs = model.get_input_embeddings()(row[None]).requires_grad_(True)
    logits = model(inputs_embeds=inputs, use_cache=False).logits[0, :-1]
    functional.cross_entropy(logits, row[1:], reduction="sum").backward()
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        exact = block.module(kept["x"])
        gate_up, down = expert_weights(block.experts, expert)
        saved = gate_up.clone(), down.clone()
        block.experts.gate_up_proj[expert] = rounded(gate_up, bits, 64).dequantised()
        block.experts.down_proj[expert] = rounded(down, bits, 64).dequantised()
        change = (block.module(kept["x"]) - exact).double().square()
        block.experts.gate_up_proj[expert], block.experts.down_proj[expert] = saved
    factor = kept["g"].double().square() if weighted else 1.0
    return float((factor * change).sum())


@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "deepseek_v2"])
def test_coefficients_are_those_of_the_definition(kind, tokens):
    model = small_moe(kind)
    found = collect(model, tokens[:2], bits=(1, 3), group=64, rounding="nearest")
    for layer, expert, s in ((0, 0, 0), (0, 3, 1), (len(found.layers) - 1, 2, 1)):
        for table, weighted in ((found.fisher_raw, True), (found.recon, False)):
            expected = sum(
                by_definition(model, row, layer, expert, (1, 3)[s], weighted=weighted)
                for row in tokens[:2]
            )
            assert table[layer, expert, s] == pytest.approx(expected, rel=2e-3)


def test_nothing_in_the_model_changes_and_more_bits_hurt_less(model, tokens):
    before = {name: p.clone() for name, p in model.named_parameters()}
    found = collect(model, tokens, bits=(2, 3, 4))
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert not any(p.requires_grad for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert (np.diff(found.fisher, axis=2) < 0).mean() > 0.9
    assert (found.fisher <= found.fisher_raw * (1 + 1e-9)).all()  # clipped, sinks dropped
    assert found.counts.sum(axis=1).tolist() == [found.tokens * 2] * 2
    assert found.tokens == 6 * (32 - SINKS)


def test_it_survives_its_file(model, tokens, tmp_path):
    found = collect(model, tokens[:2])
    again = Importance.load(found.save(tmp_path / "imp.npz"))
    assert again.layers == found.layers
    np.testing.assert_array_equal(again.fisher, found.fisher)
    assert (allocate(again, avg_bits=2.0).bits == allocate(found, avg_bits=2.0).bits).all()
    (tmp_path / "bad.npz").write_bytes(b"no")
    with pytest.raises(ValueError, match="is no file of `armillary gemq collect`"):
        Importance.load(tmp_path / "bad.npz")


def test_experts_that_no_token_reaches_get_a_prior_and_are_named(model, tokens):
    with torch.no_grad():
        for block in blocks(model):
            block.router.weight[1] = 0
            block.router.weight[[0, 2, 3]] *= 10
        # The router's bias-free logits of expert 1 stay at 0: it is chosen now and then. Bar it.
        for block in blocks(model):
            block.router.register_forward_hook(never_one)
    with pytest.warns(CalibrationWarning, match=r"2 of 8 experts saw no .*mlp: \[1\]"):
        found = collect(model, tokens, bits=(2, 3))
    assert found.uncalibrated[:, 1].all()
    assert (found.fisher[:, 1] > 0).all()
    # In proportion to the rounding error of weights, as the layer's other experts are.
    low, high = found.fisher[0].min(axis=0), found.fisher[0].max(axis=0)
    assert ((low <= found.fisher[0, 1]) & (found.fisher[0, 1] <= high)).all()
    assert allocate(found, avg_bits=2.5, diversity=False).bits[:, 1].tolist() == [2, 2]
    with pytest.raises(ValueError, match="give more text"):
        collect(model, tokens, bits=(2, 3), strict=True)


def never_one(_, __, out):
    logits, scores, index = out
    other = torch.where(index.flip(-1) == 0, 2, 0)
    return logits, scores, torch.where(index == 1, other, index)


def test_what_cannot_be_measured_is_told(model, tokens):
    from transformers import LlamaConfig, LlamaForCausalLM

    dense = LlamaForCausalLM(
        LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, vocab_size=97,
                    num_attention_heads=2)
    )  # fmt: skip
    with pytest.raises(TypeError, match=r"dense: it has no experts.*moefy"):
        collect(dense, tokens)
    with pytest.raises(ValueError, match="give some of 1, 2, 3 and 4"):
        collect(model, tokens, bits=(2, 8))
    with pytest.raises(ValueError, match="at least one sequence of 6 tokens"):
        collect(model, tokens[:, :3])
    model.model.layers[1].mlp.experts.down_proj.data[0] = float("nan")
    with pytest.raises(ValueError, match=r"the gradient at model\.layers\.\d\.mlp is not a number"):
        collect(model, tokens)
    model.config.model_type = "other"
    with pytest.raises(UnsupportedModelError, match="experts of a 'other' model"):
        collect(model, tokens)
