"""Convert two layers of a language model into experts, plan their widths, quantise, compare."""

import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM

from armillary import corpora, models
from armillary.serving.gemq import (
    allocate,
    collect,
    evaluate,
    moefy,
    quantize,
    sequences,
    uniform_plan,
)

embedded = models.embedded()
dense, tokenizer = embedded.model, embedded.tokenizer
dense.model.layers = dense.model.layers[:2]  # of thirty, so that this runs in seconds
dense.config.num_hidden_layers = 2

text = corpora.split(corpora.python_topics(), {"calibrate": 0.7, "evaluate": 0.3})
tokens = sequences(tokenizer, text["calibrate"], 64, 4)
unseen = sequences(tokenizer, text["evaluate"], 64, 2)

moe = moefy(dense, tokens, experts=4, top_k=2)
importance = collect(moe, tokens[:2], bits=(2, 3, 4))
plan = allocate(importance, avg_bits=3.0)
print("mean bits of layers:", plan.layer_means, f"damage within {plan.gap:.2%} of the best plan's")

for name, chosen in (("one width", uniform_plan(importance, 3.0)), ("planned", plan)):
    small = quantize(moe, chosen, tokens, quantizer="rtn", attention_bits=None)
    found = evaluate(small.model, moe, unseen)
    share = small.report["expert_bytes"] / small.report["bf16_bytes"]
    print(f"{name}: {share:.3f} of bfloat16, divergence from the full model {found['kl']:.4f} nats")

with tempfile.TemporaryDirectory() as folder:
    small.save(Path(folder) / "small", tokenizer)
    again: Any = AutoModelForCausalLM.from_pretrained(Path(folder) / "small")
    prompt = tokenizer("The import statement", return_tensors="pt")
    answer = again.generate(**prompt, max_new_tokens=4, do_sample=False, pad_token_id=0)
    print("loaded again:", repr(tokenizer.decode(answer[0])))
