"""How likely a language model finds each of several answers.

The log-likelihood of an option is the sum of the log-probabilities of its tokens after the prompt:
log p(o | x) = sum_t log p(o_t | x, o_<t). The prompt is read once; each option continues from the
same key-value cache.

Length: the sum is the probability of the option as written, so a longer option starts behind a
shorter one, and an option that begins another is never less likely than it. Where options differ in
length only by accident, divide ``log_likelihoods`` by ``tokens``, or calibrate, which takes away
what the option's own length and frequency cost.

Contextual calibration (Zhao et al., 2021, arXiv 2102.09690, section 5): the same prompt with its
content replaced by something void ("N/A", an empty string) says what the model prefers anyway; the
options' probabilities are divided by the mean of the void prompts' and normalised.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float64, Int64

    from armillary.models.local_model import Embedded


@dataclasses.dataclass(frozen=True)
class OptionScores:
    """Scores of n options.

    Attributes:
        options: the options.
        log_probs: log-probabilities among the options, (n,): their exponentials sum to one;
            calibrated where that was asked for.
        log_likelihoods: log p(option | prompt) in nats, (n,), never calibrated.
        tokens: how many tokens each option has, (n,), at least 1.
    """

    options: tuple[str, ...]
    log_probs: Float64[np.ndarray, " n"]
    log_likelihoods: Float64[np.ndarray, " n"]
    tokens: Int64[np.ndarray, " n"]

    @property
    def best(self) -> str:
        """The most likely option (the first of equals)."""
        return self.options[int(self.log_probs.argmax())]


def score(
    model: Embedded, prompt: str, options: Sequence[str], void_prompts: Sequence[str] = ()
) -> OptionScores:
    """Score options as continuations of a prompt.

    Args:
        model: the language model.
        prompt: the text before the options, not empty.
        options: at least one, all different; most tokenizers want a leading space at each instead
            of a trailing one at the prompt.
        void_prompts: prompts without content, for contextual calibration.

    Raises:
        ValueError: an option's tokens merge with the prompt's last token, an option adds no token,
            options repeat, or prompt and option exceed the model's window.
    """
    import numpy as np

    if isinstance(options, str) or not options:
        raise ValueError(f"options={options!r}: give a sequence of at least one string")
    options = tuple(options)
    if len(set(options)) < len(options):
        raise ValueError(f"options={options!r}: some are given twice")
    likelihoods, counts = _log_likelihoods(model, prompt, options)
    log_probs = _normalised(likelihoods)
    if void_prompts:
        void = [_normalised(_log_likelihoods(model, p, options)[0]) for p in void_prompts]
        log_probs = _normalised(log_probs - np.log(np.mean(np.exp(void), axis=0)))
    return OptionScores(options, log_probs, likelihoods, counts)


def option_tokens(tokenizer: Any, prompt: str, option: str) -> tuple[list[int], list[int]]:
    """The tokens of the prompt, and those that the option adds.

    Raises:
        ValueError: the boundary between them is not a boundary of tokens, or nothing is added.
    """
    before = _encode(tokenizer, prompt)
    both = _encode(tokenizer, prompt + option)
    if not before:
        raise ValueError("prompt: has no tokens; give the text that comes before the options")
    if both[: len(before)] != before:
        raise ValueError(
            f"options: the first characters of {option!r} merge with the prompt's last token "
            f"(it ends in {prompt[-12:]!r}); move spaces from the prompt's end to the option, or "
            "end the prompt where a token ends"
        )
    if len(both) == len(before):
        raise ValueError(f"options: {option!r} adds no token to the prompt; give text to score")
    return before, both[len(before) :]


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _normalised(log_weights: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    from scipy.special import log_softmax

    return log_softmax(log_weights)


def _log_likelihoods(
    model: Embedded, prompt: str, options: Sequence[str]
) -> tuple[Float64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    import numpy as np
    import torch

    pairs = [option_tokens(model.tokenizer, prompt, option) for option in options]
    before = pairs[0][0]
    window = model.model.config.max_position_embeddings
    longest = len(before) + max(len(added) for _, added in pairs)
    if longest > window:
        raise ValueError(f"prompt: {longest} tokens with its option, the model reads {window}")
    sums = []
    with torch.inference_mode():
        read = model.model(torch.tensor([before]), use_cache=True, logits_to_keep=1)
        cache, first = read.cache, read.logits[0, -1]
        for _, added in pairs:
            logits = first[None]
            if len(added) > 1:
                more = model.model(torch.tensor([added[:-1]]), cache=cache)
                cache.crop(1 - len(added))
                logits = torch.cat([logits, more.logits[0]])
            log_probs = logits.double().log_softmax(-1)
            sums.append(log_probs[torch.arange(len(added)), torch.tensor(added)].sum().item())
    return np.array(sums), np.array([len(added) for _, added in pairs])
