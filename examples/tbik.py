"""Does a language model give one answer whatever runs beside it? Plain torch, then ours."""

import copy

import torch

from armillary import models
from armillary.serving.tbik import logprobs, make_invariant

embedded = models.embedded()
plain = embedded.model.to(torch.bfloat16)
plain.model.layers = plain.model.layers[:3]  # the first tenth, so that this runs in seconds
plain.config.num_hidden_layers = 3
ours = make_invariant(copy.deepcopy(plain))

texts = [
    "The capital of France is",
    "List three fruits that grow in warm countries.",
    "Write a short poem about the sea in winter, and say why it is cold.",
]
tokenizer = embedded.tokenizer
tokenizer.padding_side = "left"


def answers(model, texts):
    """Greedy tokens and their logits, all texts together."""
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    found = model.generate(
        **batch, max_new_tokens=8, do_sample=False, output_logits=True,
        return_dict_in_generate=True,
    )  # fmt: skip
    return found.sequences, torch.stack(found.logits, 1).float()


with torch.no_grad():
    for name, model in (("plain torch", plain), ("tbik", ours)):
        _, alone = answers(model, texts[:1])
        _, together = answers(model, texts)
        gap = (alone[0] - together[0]).abs().max()
        same = torch.equal(alone[0], together[0])
        print(f"{name}: alone or in a batch, the same bits: {same} (largest gap {gap:.3g})")

# What a trainer computes for the whole sequence is what the rollout had, bit for bit.
ids, logits = answers(ours, texts[:1])
rollout = torch.log_softmax(logits[0], -1).gather(-1, ids[0, -8:, None])[:, 0]
for parameter in ours.parameters():
    parameter.requires_grad_(True)
trainer = logprobs(ours, ids)[0, -8:]
assert trainer.requires_grad
largest = (trainer.detach() - rollout).abs().max()
print(f"trainer with gradients: {trainer.tolist()[:3]} ..., {largest:.1e} from torch's softmax")
