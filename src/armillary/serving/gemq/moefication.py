"""Turn a dense Llama into a mixture of experts, and distil it from its parent.

A feed-forward layer of F neurons becomes E experts of F / E:

1. neurons that fire on the same tokens are grouped (balanced k-means on their activations);
2. the router is a ridge regression of the experts' output norms on their input;
3. with routing fixed, the down projections are fitted anew, by ridge regression, to what the dense
   layer gives on the same inputs; layer after layer, each on what the converted layers before give;
4. routers, norms and experts are trained end to end towards the parent's next-token distribution.

The result is a Mixtral of transformers. It is a conversion, not a mixture that was trained as one:
its routing may behave otherwise than that of a large model.

Source: the grouping follows "MoEfication" (Zhang et al., ACL Findings 2022, arXiv 2110.01786); the
fit of down projections is ours.

Shapes: T tokens, H hidden features, F neurons, E experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from armillary.serving.gemq.layouts import blocks, decoder_layers
from armillary.serving.gemq.quantization import call_layer, entering
from armillary.serving.gemq.regression import ridge

Bar = Callable[[Iterable[Any]], Iterable[Any]]
#: Router logits are this times the standardised prediction: chosen experts weigh nearly alike.
TEMPERATURE = 0.25


def moefy(
    dense: Any,
    tokens: Tensor,
    *,
    experts: int = 8,
    top_k: int = 4,
    steps: int = 0,
    learning_rate: float = 2e-4,
    seed: int = 0,
    bar: Bar = iter,
) -> Any:
    """A mixture of experts made from a dense Llama.

    Args:
        dense: a `LlamaForCausalLM` whose neurons ``experts`` divides; it stays as it is.
        tokens: (N, T) text to convert and distil on.
        experts: how many a layer.
        top_k: how many a token uses.
        steps: sequences of end-to-end distillation; 0: none.
        learning_rate: of the distillation (AdamW, warmed up over a tenth, then cosine to zero).
        seed: of clustering and of the order of sequences.
        bar: wraps layers and steps, for progress bars.

    Returns:
        A `MixtralForCausalLM` in float32.

    Raises:
        TypeError: the model is no Llama.
        ValueError: numbers that do not fit.
    """
    from transformers import MixtralConfig, MixtralForCausalLM

    config = dense.config
    if config.model_type != "llama":
        raise TypeError(f"dense is a {config.model_type!r} model: a 'llama' is needed")
    neurons = config.intermediate_size
    if experts < 2 or neurons % experts or not 1 <= top_k <= experts:
        raise ValueError(
            f"experts={experts}, top_k={top_k}: experts must be at least 2 and divide "
            f"{neurons} neurons, top_k lie between 1 and experts"
        )
    if getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        raise ValueError("a Llama with biases has no counterpart among Mixtrals")
    settings = MixtralConfig(
        vocab_size=config.vocab_size, hidden_size=config.hidden_size,
        intermediate_size=neurons // experts, num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads, head_dim=config.head_dim,
        hidden_act=config.hidden_act, max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps, rope_parameters=config.rope_parameters,
        tie_word_embeddings=config.tie_word_embeddings, num_local_experts=experts,
        num_experts_per_tok=top_k, bos_token_id=config.bos_token_id,
        eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = MixtralForCausalLM(settings).float().eval()
    model.requires_grad_(False)
    own = model.state_dict()
    model.load_state_dict({k: v for k, v in dense.state_dict().items() if k in own}, strict=False)
    model.tie_weights()
    with torch.no_grad():
        _convert(dense, model, tokens, experts, seed, bar)
    if steps:
        distil(model, dense, tokens, steps=steps, learning_rate=learning_rate, seed=seed, bar=bar)
    return model


def _convert(dense: Any, model: Any, tokens: Tensor, experts: int, seed: int, bar: Bar) -> None:
    states, arguments = entering(dense, tokens)
    found = blocks(model)
    generator = torch.Generator().manual_seed(seed)
    pairs = list(zip(decoder_layers(dense), decoder_layers(model), strict=True))
    for n, (parent, layer) in enumerate(bar(pairs)):
        inputs: list[Tensor] = []
        hook = layer.mlp.register_forward_pre_hook(
            lambda _, args, inputs=inputs: inputs.append(args[0].flatten(0, -2))
        )
        for state, others in zip(states, arguments, strict=True):
            call_layer(layer, state, others[n])
        hook.remove()
        _convert_layer(parent.mlp, found[n], torch.cat(inputs), experts, generator)
        states = [call_layer(layer, s, a[n]) for s, a in zip(states, arguments, strict=True)]


def _convert_layer(
    mlp: Any, block: Any, x: Tensor, experts: int, generator: torch.Generator
) -> None:
    gate, up, down = (
        m.weight.float() for m in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    )  # (F, H), (F, H), (H, F)
    inner = mlp.act_fn(x @ gate.T) * (x @ up.T)  # (T, F)
    groups = balanced_groups(inner, experts, generator)  # (E, F / E)
    order = groups.flatten()
    block.experts.gate_up_proj.data = torch.cat([gate[groups], up[groups]], 1)

    norms = torch.stack(
        [(inner[:, g] @ down[:, g].T).norm(dim=-1) for g in groups], dim=-1
    )  # (T, E)
    wanted = norms - norms.mean(-1, keepdim=True)
    wanted = TEMPERATURE * wanted / wanted.std().clamp_min(1e-12)
    block.router.weight.data = ridge(x, wanted, torch.zeros(x.shape[1], experts)).T.contiguous()

    _, weight, index = block.router(x)
    share = torch.zeros(len(x), experts).scatter_(1, index, weight.float())
    features = inner[:, order] * share.repeat_interleave(groups.shape[1], dim=1)
    start = down[:, order].T * index.shape[1]  # chosen experts weigh 1 / k each
    fitted = ridge(features, inner @ down.T, start)  # (F, H)
    block.experts.down_proj.data = fitted.unflatten(0, groups.shape).transpose(1, 2).contiguous()


def balanced_groups(
    inner: Tensor, count: int, generator: torch.Generator, rounds: int = 8
) -> Tensor:
    """Groups of equal size of neurons that fire together: (count, F / count) indices.

    Balanced k-means on the neurons' absolute activations, each scaled to length one; in each round
    neurons choose in the order of how much a second choice would cost them.
    """
    neurons = inner.shape[1]
    size = neurons // count
    rows = torch.randperm(len(inner), generator=generator)[:512]
    points = functional.normalize(inner[rows].abs().T, dim=-1)  # (F, tokens)
    centres = points[torch.randperm(neurons, generator=generator)[:count]]
    chosen = torch.zeros(neurons, dtype=torch.int64)
    for _ in range(rounds):
        distance = 2 - 2 * points @ functional.normalize(centres, dim=-1).T
        near = distance.sort(dim=-1)
        regret = near.values[:, 1] - near.values[:, 0]
        left = [size] * count
        preferences = near.indices.tolist()
        for i in regret.argsort(descending=True).tolist():
            group = next(g for g in preferences[i] if left[g])
            chosen[i] = group
            left[group] -= 1
        centres = torch.stack([points[chosen == g].mean(0) for g in range(count)])
    return torch.stack([torch.where(chosen == g)[0] for g in range(count)])


def distil(
    model: Any,
    parent: Any,
    tokens: Tensor,
    *,
    steps: int,
    learning_rate: float = 2e-4,
    seed: int = 0,
    bar: Bar = iter,
) -> list[float]:
    """Train routers, norms and experts towards the parent's next-token distribution, in place.

    Returns:
        The divergence of each step, nats a token.
    """
    trained = [p for block in blocks(model) for p in
               (*block.experts.parameters(), *block.router.parameters())]  # fmt: skip
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            trained += list(module.parameters())
    for p in trained:
        p.requires_grad = True
    adam = torch.optim.AdamW(trained, lr=learning_rate, weight_decay=0.0, betas=(0.9, 0.95))
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam,
        lambda s: (s + 1) / warm if s < warm else 0.5 * (
            1 + float(torch.cos(torch.tensor(torch.pi * (s - warm) / max(1, steps - warm))))
        ),
    )  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    order = torch.cat(
        [torch.randperm(len(tokens), generator=generator) for _ in range(steps // len(tokens) + 1)]
    )[:steps]
    losses = []
    for i in bar(order.tolist()):
        row = tokens[i : i + 1]
        with torch.no_grad():
            target = torch.log_softmax(parent(input_ids=row, use_cache=False).logits[0].float(), -1)
        with torch.enable_grad():
            logits = model(input_ids=row, use_cache=False).logits[0].float()
            loss = functional.kl_div(
                torch.log_softmax(logits, -1), target, log_target=True, reduction="batchmean"
            )
            adam.zero_grad(set_to_none=True)
            loss.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        adam.step()
        schedule.step()
        losses.append(float(loss.detach()))
    for p in trained:
        p.requires_grad = False
    return losses
