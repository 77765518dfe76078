"""A chat in process: greedy and sampled answers, streams, stops, scores of options."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from armillary import models
from armillary.models.option_scores import option_tokens

torch = pytest.importorskip("torch")


@pytest.fixture
def chat(tiny) -> models.Chat:
    return models.chat(model=tiny)


def greedy_twin(tiny, text: str, steps: int) -> list[int]:
    """Greedy decoding without a cache: the whole text is read again for each token."""
    tokens = tiny.tokenizer(text, add_special_tokens=False)["input_ids"]
    written = []
    with torch.inference_mode():
        for _ in range(steps):
            logits = tiny.model(torch.tensor([tokens + written]), use_cache=False).logits[0, -1]
            written.append(int(logits.argmax()))
            if written[-1] == 0:
                break
    return written


def test_greedy_answers_match_decoding_without_a_cache(tiny, chat):
    expected = greedy_twin(tiny, "<|user|>abc<|end|><|assistant|>", 20)
    answer = chat.complete("abc", max_tokens=20)
    assert answer.text == tiny.tokenizer.decode(expected, skip_special_tokens=True)
    assert answer.completion_tokens == len(expected)
    assert answer.finish_reason == ("stop" if expected[-1] == 0 else "length")
    assert answer == chat.complete("abc", max_tokens=20)
    # The template's marks are letters to this tokenizer, except <|end|>, and "ab" is one token.
    assert answer.prompt_tokens == len("<|user|>") + len("abc") - 1 + 1 + len("<|assistant|>")


def test_samples_follow_their_seed_and_leave_the_global_generator_alone(chat):
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    answers = [
        chat.complete("abc", max_tokens=12, temperature=1.5, seed=seed).text for seed in (3, 3, 4)
    ]
    assert torch.equal(torch.rand(3), expected)
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_brings_what_complete_gives(chat, seed):
    settings = {"max_tokens": 30, "temperature": 1.2, "seed": seed}
    whole = chat.complete("abc", **settings)
    pieces = list(chat.stream("abc", **settings))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [piece.done for piece in pieces] == [None] * (len(pieces) - 1) + [whole]
    # A stop string, wherever it lies across tokens, ends the answer before it.
    stop = whole.text[4:7]
    stopped = list(chat.stream("abc", stop=stop, **settings))
    assert "".join(piece.text for piece in stopped) == whole.text[: whole.text.index(stop)]
    assert stopped[-1].done is not None
    assert stopped[-1].done.finish_reason == "stop"


def test_asynchronous_twins_agree(chat):
    async def both() -> tuple[models.Completion, list[models.Delta]]:
        answer = await chat.acomplete("abc", max_tokens=5)
        return answer, [piece async for piece in chat.astream("abc", max_tokens=5)]

    answer, pieces = asyncio.run(both())
    assert answer == chat.complete("abc", max_tokens=5)
    assert pieces[-1].done == answer


def test_tokens_are_counted_in_one_place(chat):
    answers = [chat.complete("abc", max_tokens=n) for n in (1, 3)]
    assert chat.usage.answers == 2
    assert chat.usage.completion_tokens == sum(a.completion_tokens for a in answers)
    assert chat.usage.prompt_tokens == sum(a.prompt_tokens for a in answers)


def test_the_window_is_kept(chat):
    answer = chat.complete("c" * 30, max_tokens=1000, temperature=2.0, seed=0)
    assert answer.prompt_tokens + answer.completion_tokens <= 64
    with pytest.raises(ValueError, match="the model reads 64"):
        chat.complete("c" * 100)
    with pytest.raises(ValueError, match="the model reads 64"):
        chat.score_options("c" * 60, ["defgh"])


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"messages": []}, "got none"),
        ({"messages": [{"role": "oracle", "content": "x"}]}, "role 'oracle'"),
        ({"messages": [{"role": "user"}]}, "no text"),
        ({"messages": "x", "max_tokens": 0}, "max_tokens=0"),
        ({"messages": "x", "temperature": -1}, "temperature=-1"),
        ({"messages": "x", "stop": ["a", ""]}, "stop: an empty string"),
    ],
)
def test_bad_requests_are_told(chat, bad, told):
    with pytest.raises(ValueError, match=told):
        chat.complete(**bad)


def log_likelihood_twin(tiny, prompt: str, option: str) -> float:
    """The whole text at once, without a cache, token by token."""
    before = tiny.tokenizer(prompt, add_special_tokens=False)["input_ids"]
    tokens = tiny.tokenizer(prompt + option, add_special_tokens=False)["input_ids"]
    with torch.inference_mode():
        logits = tiny.model(torch.tensor([tokens]), use_cache=False).logits[0].double()
    return sum(
        logits[at - 1].log_softmax(-1)[tokens[at]].item() for at in range(len(before), len(tokens))
    )


def test_scores_match_reading_every_option_in_full(tiny, chat):
    options = (" x", "cde", "ab", " ab ab ab", "é漢")
    scores = chat.score_options("ab c:", options)
    expected = np.array([log_likelihood_twin(tiny, "ab c:", option) for option in options])
    np.testing.assert_allclose(scores.log_likelihoods, expected, atol=1e-4)
    np.testing.assert_allclose(
        scores.log_probs, expected - np.log(np.exp(expected).sum()), atol=1e-4
    )
    assert scores.tokens.tolist() == [2, 3, 1, 6, 5]  # é is two bytes, 漢 three
    assert scores.best == options[int(np.argmax(expected))]


def test_an_options_score_does_not_depend_on_its_company(chat):
    together = chat.score_options("ab c:", ["cde", " x", "ab"])
    for at, option in enumerate(together.options):
        alone = chat.score_options("ab c:", [option])
        assert alone.log_likelihoods[0] == together.log_likelihoods[at]
        assert alone.log_probs.tolist() == [0.0]


def test_calibration_divides_by_what_is_preferred_anyway(tiny, chat):
    options, void = ["cd", "x"], ["N/A:", ":"]
    scores = chat.score_options("ab c:", options, calibrate=void)

    def among(prompt: str) -> np.ndarray:
        p = np.exp([log_likelihood_twin(tiny, prompt, option) for option in options])
        return p / p.sum()

    expected = among("ab c:") / np.mean([among(prompt) for prompt in void], axis=0)
    np.testing.assert_allclose(np.exp(scores.log_probs), expected / expected.sum(), rtol=1e-3)
    # A prompt calibrated by itself says nothing.
    flat = chat.score_options("ab c:", options, calibrate=["ab c:"])
    np.testing.assert_allclose(np.exp(flat.log_probs), [0.5, 0.5])


@pytest.mark.parametrize(
    ("prompt", "options", "told"),
    [
        ("xa", ["c", "b"], "'b' merge with the prompt's last token"),
        ("x ", ["c", "a"], "'a' merge"),
        ("x ", ["c", ""], "'' adds no token"),
        ("x", ["c", "c"], "given twice"),
        ("x", [], "at least one"),
        ("x", "cd", "at least one"),
        ("", ["c"], "prompt: has no tokens"),
    ],
)
def test_options_off_the_boundary_of_tokens_are_refused(chat, prompt, options, told):
    with pytest.raises(ValueError, match=told):
        chat.score_options(prompt, options)


def test_a_trailing_space_that_would_score_no_token_is_refused(smollm):
    # "is " ends in the token of a space; " Paris" is one token with its space, so that the text
    # with the option has as many tokens as the text without.
    tokenizer = smollm.tokenizer
    assert len(tokenizer("It is ")["input_ids"]) == len(tokenizer("It is Paris")["input_ids"])
    with pytest.raises(ValueError, match="'Paris' merge"):
        option_tokens(tokenizer, "It is ", "Paris")
    before, added = option_tokens(tokenizer, "It is", " Paris")
    assert (len(before), len(added)) == (2, 1)


def test_the_embedded_model_knows_a_capital(smollm):
    chat = models.chat(model=smollm)
    answer = chat.complete("What is the capital of France?", max_tokens=16)
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"
    cities = [" Rome", " Paris", " Tokyo"]
    assert chat.score_options("The capital of France is", cities).best == " Paris"
    turn = [{"role": "user", "content": "Name the capital of Japan. One word."}]
    assert chat.score_options(turn, ["Rome", "Paris", "Tokyo"]).best == "Tokyo"
