"""Operators: values, gradients, subtrees, compilers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from armillary.serving.tbik import ops
from armillary.serving.tbik.dist import tree_all_reduce
from armillary.serving.tbik.modules import TreeLinear
from armillary.serving.tbik.plan import TreePlan, even_shards


def test_value_is_the_product():
    x, w, b = torch.randn(3, 4, 100), torch.randn(30, 100), torch.randn(30)
    exact = F.linear(x.double(), w.double(), b.double())
    torch.testing.assert_close(ops.tree_linear(x, w, bias=b).double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types_are_widened_exactly_and_rounded_once(dtype):
    x, w = torch.randn(5, 96).to(dtype), torch.randn(7, 96).to(dtype)
    found = ops.tree_linear(x, w)
    assert found.dtype == dtype
    assert torch.equal(found, ops.tree_linear(x.float(), w.float()).to(dtype))


def test_bfloat16_panels_give_the_bits_of_the_widened_weight():
    x, w = torch.randn(40, 200), torch.randn(50, 200).to(torch.bfloat16)
    assert torch.equal(ops.tree_linear(x, ops.pack(w)), ops.tree_linear(x, ops.pack(w.float())))


@pytest.mark.parametrize("world", [2, 3, 4, 8, 9])
@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_parts_of_ranks_give_the_bits_of_the_whole(world, wire):
    k = 64 * 24
    x, w = torch.randn(3, k), torch.randn(20, k)
    alone = TreePlan(k, 64, tp_max=9, wire=wire)
    [(_, whole)] = ops.tree_parts(x, ops.pack(w), alone, 0)
    plan = TreePlan(k, 64, even_shards(k, 64, world), tp_max=9, wire=wire)
    from armillary import native

    parts = [
        value.numpy()
        for rank, (a, b) in enumerate(plan.shards)
        for _, value in ops.tree_parts(x[:, a:b], ops.pack(w[:, a:b]), plan, rank)
    ]
    program = plan.combination()
    found = native.combine(parts, program.merges, program.rounded if program.rounds else None)
    assert torch.equal(torch.from_numpy(found), whole)
    assert torch.equal(tree_all_reduce([((0, 24), whole)], alone), whole)
    if wire == "bfloat16":
        assert torch.equal(whole, whole.to(torch.bfloat16).float())


def test_a_subtree_can_be_evaluated_alone():
    x, w = torch.randn(3, 256), torch.randn(20, 256)
    halves = [ops.tree_linear(x[:, a:b], w, k_range=(a, b)) for a, b in ((0, 128), (128, 256))]
    assert torch.equal(halves[0] + halves[1], ops.tree_linear(x, w))
    with pytest.raises(ValueError, match=r"no subtree of 4 leaves.*\(1, 2\), \(2, 4\)"):
        ops.tree_linear(x[:, 64:], w, k_range=(64, 256))


def test_gradients_are_those_of_the_formulas():
    torch.manual_seed(1)
    x, w, b = (torch.randn(*s, requires_grad=True) for s in ((2, 5, 70), (9, 70), (9,)))
    g, z = torch.randn(70, requires_grad=True), torch.randn(4, 33, requires_grad=True)

    def ours():
        y = ops.rms_norm(x, g, 1e-5)
        return (
            ops.tree_linear(y, w, bias=b).square().mean()
            + (ops.log_softmax(z) * ops.silu(z)).mean()
        )

    def plain():
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * g
        return F.linear(y, w, b).square().mean() + (torch.log_softmax(z, -1) * F.silu(z)).mean()

    leaves = (x, w, b, g, z)
    for a, c in zip(
        torch.autograd.grad(ours(), leaves), torch.autograd.grad(plain(), leaves), strict=True
    ):
        torch.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)


def test_gradient_of_attention_is_that_of_the_dense_formula():
    q, k, v = (torch.randn(2, h, t, 32, requires_grad=True) for h, t in ((4, 5), (2, 9), (2, 9)))
    first = torch.tensor([0, 6], dtype=torch.int32)
    found = ops.attention(q, k, v, scale=0.2, first=first)
    mask = ops.visible(5, 9, first, 0)
    dense = F.scaled_dot_product_attention(
        q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), attn_mask=mask, scale=0.2
    ).transpose(1, 2)
    seen = mask.any(-1).transpose(1, 2)[..., None]
    torch.testing.assert_close(found * seen, dense.nan_to_num() * seen, rtol=1e-4, atol=1e-5)
    up = torch.randn(2, 5, 4, 32) * seen
    for a, c in zip(
        torch.autograd.grad(found, (q, k, v), up),
        torch.autograd.grad((dense.nan_to_num() * up).sum(), (q, k, v)),
        strict=True,
    ):
        torch.testing.assert_close(a, c.nan_to_num(), rtol=1e-3, atol=1e-4)


def test_a_step_of_training_repeats_bit_for_bit():
    layer = TreeLinear(torch.randn(30, 100))
    x = torch.randn(40, 100)
    grads = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        layer.weight.grad = None
        layer(x).square().sum().backward()
        grads.append(layer.weight.grad.clone())
    torch.set_num_threads(1)
    assert torch.equal(*grads)


def test_a_changed_weight_is_packed_again():
    layer = TreeLinear(torch.randn(8, 64))
    x = torch.randn(2, 64)
    with torch.no_grad():
        before = layer(x)
        layer.weight.mul_(2)
        assert torch.equal(layer(x), before * 2)


@pytest.mark.slow
def test_operators_pass_the_checks_of_torch_library():
    x, w = torch.randn(3, 70, requires_grad=True), torch.randn(5, 70, requires_grad=True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    operators = torch.ops.armillary
    for operator, arguments in (
        (operators.tree_linear, (x, w, None, 64)),
        (operators.rms_norm, (x, w[0], 1e-5)),
        (operators.silu, (x,)),
    ):
        found = torch.library.opcheck(operator, arguments, test_utils=tests)
        assert found == dict.fromkeys(tests, "SUCCESS")


@pytest.mark.slow
def test_a_compiled_layer_gives_the_same_bits():
    layer = TreeLinear(torch.randn(8, 64), torch.randn(8))
    compiled = torch.compile(layer, dynamic=True, backend="aot_eager", fullgraph=True)
    for rows in (1, 3, 7):
        x = torch.randn(rows, 64)
        assert torch.equal(compiled(x), layer(x))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ops.tree_linear(torch.ones(2, 3), torch.ones(4, 5)), ValueError, "3 features"),
        (lambda: ops.pack(torch.ones(3, 4, dtype=torch.int8)), TypeError, "dequantise first"),
        (lambda: ops.pack(torch.ones(3)), ValueError, r"\(N, K\)"),
        (lambda: ops.pack(torch.ones(3, 4), torch.float16), TypeError, "float32 or bfloat16"),
        (lambda: ops.tree_linear([1.0], torch.ones(1, 1)), TypeError, "give a tensor"),
        (
            lambda: ops.pack(
                torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)
            ),
            TypeError,
            "dequantise first",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_told(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
