"""Quantised models: every layout, saved and loaded, resumed, dense again; routers tuned."""

from __future__ import annotations

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch

from armillary.serving.gemq import (
    Reference,
    RouterFT,
    allocate,
    choose_trust,
    collect,
    evaluate,
    progressive,
    quantize,
    to_dense,
    tune_routers,
    uniform_plan,
)
from armillary.serving.gemq.layouts import blocks, expert_weights
from armillary.serving.gemq.pack import PackedExperts, PackedLinear
from armillary.serving.gemq.router_ft import align_routers
from armillary.serving.gemq.tasks import small_moe
from armillary.serving.gemq.trust import fake


@pytest.fixture
def importance(model, tokens):
    return collect(model, tokens[:3], bits=(2, 3, 4))


@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v2"])
def test_every_layout_quantises_saves_loads_and_generates(kind, tokens, tmp_path):
    from transformers import AutoModelForCausalLM

    model = small_moe(kind)
    plan = allocate(collect(model, tokens[:3], bits=(2, 3, 4)), avg_bits=3.0)
    small = quantize(model, plan, tokens[:3])
    assert isinstance(small.model, type(model))
    for i, block in enumerate(blocks(small.model)):
        assert [m.bits for m in block.experts.down] == plan.bits[i].tolist()
    assert small.report["expert_bytes"] == plan.bytes
    assert small.report["expert_bytes"] < 0.23 * small.report["bf16_bytes"]
    left = {n: m for n, m in small.model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert all(n == "lm_head" or n.endswith("shared_expert_gate") for n in left)
    shared = [m for n, m in small.model.named_modules() if "shared_expert" in n
              and isinstance(m, PackedLinear)]  # fmt: skip
    assert all(m.matrix.bits == 4 for m in shared)

    folder = small.save(tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, small.model(tokens).logits)
        # Packed experts give what their plain values give, whatever the number of tokens.
        plain = to_dense(copy.deepcopy(small.model))
        short = tokens[:1, :8]
        torch.testing.assert_close(again(short).logits, plain(short).logits, rtol=1e-4, atol=1e-4)
    given = {"max_new_tokens": 4, "do_sample": False}
    assert again.generate(tokens[:1], **given).shape == (1, 36)
    with pytest.raises(FileExistsError, match="give another folder"):
        small.save(folder)


def test_a_dense_copy_loads_without_us(model, tokens, tmp_path):
    from transformers import AutoModelForCausalLM

    small = quantize(model, uniform_plan(collect(model, tokens[:2]), 3), tokens[:2])
    with torch.no_grad():
        before = small.model(tokens).logits
        plain = small.model.dequantize()
        assert type(plain.model.layers[0].mlp.experts).__name__ == "MixtralExperts"
        plain.save_pretrained(tmp_path / "plain")
        assert "gemq" not in (tmp_path / "plain" / "config.json").read_text()
        again = AutoModelForCausalLM.from_pretrained(tmp_path / "plain")
        torch.testing.assert_close(again(tokens).logits, before, rtol=1e-4, atol=1e-4)


def test_half_precision_models_keep_their_type(tokens, tmp_path):
    from transformers import AutoModelForCausalLM

    model = small_moe().bfloat16()
    small = quantize(model, uniform_plan(collect(model, tokens[:2]), 2), tokens[:2])
    again = AutoModelForCausalLM.from_pretrained(small.save(tmp_path / "out"))
    assert again.dtype == torch.bfloat16
    assert again.model.layers[0].mlp.experts.down[0].scales.dtype == torch.float16
    for (name, a), (_, b) in zip(
        again.named_parameters(), small.model.named_parameters(), strict=True
    ):
        assert a.dtype == b.dtype, name
        assert torch.equal(a, b), name
    with torch.no_grad():
        assert again(tokens).logits.dtype == torch.bfloat16


def test_gptq_on_quantised_inputs_beats_rounding_to_nearest(model, tokens, importance):
    plan = uniform_plan(importance, 2)
    reference = Reference.of(model, tokens)
    kl = {
        name: evaluate(fake(model, plan, tokens, name), reference)["kl"] for name in ("gptq", "rtn")
    }
    assert kl["gptq"] < kl["rtn"]
    exact = evaluate(model, reference)
    assert exact["kl"] == pytest.approx(0, abs=1e-4)
    assert (exact["top1"], exact["overlap"], exact["set_change"]) == (1, 1, 0)
    assert exact["excess"] == pytest.approx(0, abs=1e-6)


def test_hqq_packs_like_any_other_rounding(model, tokens, importance):
    pytest.importorskip("hqq")
    plan = uniform_plan(importance, 4)
    small = quantize(model, plan, tokens, quantizer="hqq", attention_bits=None)
    assert small.report["expert_bytes"] == plan.bytes
    found = evaluate(small.model, model, tokens)
    nearest = evaluate(fake(model, plan, tokens, "rtn"), model, tokens)
    assert found["kl"] < 2 * nearest["kl"]
    one = uniform_plan(collect(model, tokens[:2], bits=(1, 2)), 1)
    with pytest.raises(ValueError, match="has no one-bit form here"):
        quantize(model, one, tokens, quantizer="hqq")


def test_bytes_that_differ_from_the_plan_are_an_error(model, tokens, importance):
    plan = uniform_plan(importance, 3)
    wrong = dataclasses.replace(plan, bytes=plan.bytes * 2)
    with pytest.raises(RuntimeError, match=r"experts take 43,008 bytes, the plan says 86,016"):
        quantize(model, wrong, tokens[:1], quantizer="rtn")


def test_half_split_experts_are_measured_alike(model, tokens):
    """Importance is a property of the model: two halves of a text rank experts alike."""
    from scipy.stats import spearmanr

    halves = [collect(model, tokens[i::2], bits=(2, 3)).fisher.ravel() for i in (0, 1)]
    assert spearmanr(*halves).statistic > 0.8


def test_the_given_model_is_left_alone_and_a_foreign_plan_is_refused(model, tokens, importance):
    before = copy.deepcopy(model.state_dict())
    plan = allocate(importance, avg_bits=3.0)
    quantize(model, plan, tokens[:1], quantizer="rtn", attention_bits=None)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    with pytest.raises(ValueError, match=r"the plan is of 2 blocks of 4 experts; .* 1 of 4"):
        quantize(small_moe("deepseek_v2"), plan, tokens[:1])
    with pytest.raises(ValueError, match="quantizer='int8'"):
        quantize(model, plan, tokens[:1], quantizer="int8")  # type: ignore


def test_an_interrupted_run_goes_on(model, tokens, importance, tmp_path):
    plan = allocate(importance, avg_bits=3.0)
    whole = quantize(model, plan, tokens[:2])

    class Stop(Exception):
        pass

    def stopping(layers):
        yield layers[0]
        raise Stop

    with pytest.raises(Stop):
        quantize(model, plan, tokens[:2], resume=tmp_path, bar=stopping)
    assert len(list(tmp_path.rglob("layer_*.safetensors"))) == 1
    done = quantize(model, plan, tokens[:2], resume=tmp_path)
    for (name, a), (_, b) in zip(
        whole.model.named_parameters(), done.model.named_parameters(), strict=True
    ):
        assert torch.equal(a, b), name


def test_a_matrix_that_no_group_divides_is_padded_and_reported(tokens):
    model = small_moe(hidden_size=72, num_attention_heads=4, head_dim=16)
    plan = uniform_plan(collect(model, tokens[:2]), 2)
    small = quantize(model, plan, tokens[:2], attention_bits=None)
    assert small.report["padded"] == ["gate_up: 72 features are no multiple of 64, 4 bits"]
    experts = blocks(small.model)[0].experts
    assert isinstance(experts, PackedExperts)
    assert (experts.gate_up[0].bits, experts.down[0].bits) == (4, 2)
    assert small.report["expert_bytes"] == plan.bytes
    with torch.no_grad():
        assert torch.isfinite(small.model(tokens[:1, :5]).logits).all()


def test_router_tuning_touches_routers_alone_and_lowers_the_loss(model, tokens, importance):
    work = fake(model, uniform_plan(importance, 2), tokens[:2])
    before = copy.deepcopy(work.state_dict())
    settings = RouterFT(align=False, learning_rate=3e-3, epochs=6)
    losses = tune_routers(work, tokens[:4], settings, reference=model)
    assert len(losses) == 24
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    changed = {k for k, v in work.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {f"model.layers.{i}.mlp.gate.weight" for i in (0, 1)}
    with pytest.raises(ValueError, match="kd=True and align=True need reference="):
        tune_routers(work, tokens, RouterFT())


def test_packed_routers_learn_what_plain_ones_learn(model, tokens, importance):
    plan = uniform_plan(importance, 3)
    packed = quantize(model, plan, tokens[:2], attention_bits=None).model
    plain = fake(model, plan, tokens[:2])
    for work in (packed, plain):
        tune_routers(work, tokens[:3], RouterFT(align=False, kd=False, learning_rate=1e-3))
    for a, b in zip(blocks(packed), blocks(plain), strict=True):
        torch.testing.assert_close(a.router.weight, b.router.weight, rtol=1e-3, atol=1e-4)


def test_the_chosen_cap_is_the_best_on_the_held_out_text(model, tokens, importance):
    choice = choose_trust(model, importance, tokens[:2], tokens[4:], avg_bits=3.0)
    reference = Reference.of(model, tokens[4:])
    mine = evaluate(fake(model, choice.plan, tokens[:2], "rtn"), reference)["kl"]
    assert mine == pytest.approx(min(choice.kl.values()))
    assert 0.0 in choice.kl


def test_progressive_stages_end_when_they_stop_helping(model, tokens):
    plan, stages = progressive(
        model, tokens[:2], tokens[4:], avg_bits=2.0, budgets=(3.0, 2.5, 2.0), quantizer="rtn",
        router_ft=RouterFT(),
    )  # fmt: skip
    losses = [stage.held_out_loss for stage in stages]
    assert (plan.bits == stages[int(np.argmin(losses))].plan.bits).all()
    assert all(later < earlier for earlier, later in itertools.pairwise(losses[:-1]))
    assert plan.bytes <= plan.budget


def test_experts_weights_come_back(model, tokens):
    small = quantize(model, uniform_plan(collect(model, tokens), 3), tokens).model
    packed, full = blocks(small)[0].experts, blocks(model)[0].experts
    for e in range(4):
        for a, b in zip(expert_weights(packed, e), expert_weights(full, e), strict=True):
            assert float((a - b).norm() / b.norm()) < 0.45


def test_aligned_routers_choose_more_as_the_full_model_does(model, tokens, importance):
    work = fake(model, uniform_plan(importance, 2), tokens)
    before = copy.deepcopy(work.state_dict())
    reference = Reference.of(model, tokens)
    change = evaluate(work, reference)["set_change"]
    align_routers(work, tokens, model)
    assert evaluate(work, reference)["set_change"] < change
    changed = {k for k, v in work.state_dict().items() if not torch.equal(v, before[k])}
    assert changed <= {f"model.layers.{i}.mlp.gate.weight" for i in (0, 1)}
    # A model that was not rounded is left as it is.
    full = copy.deepcopy(model)
    align_routers(full, tokens, model)
    for a, b in zip(blocks(full), blocks(model), strict=True):
        torch.testing.assert_close(a.router.weight, b.router.weight, rtol=1e-3, atol=1e-4)
