"""The embedded model (or another one on this machine) as a chat, in process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from armillary.models import conversation
from armillary.models.conversation import Chat, Completion, Delta, Messages, Request, Usage
from armillary.models.local_model import Embedded, embedded
from armillary.models.option_scores import OptionScores, score


def chat(
    url: str | None = None,
    model: str | os.PathLike[str] | Embedded | None = None,
    *,
    api_key: str | None = None,
    timeout: float = 60.0,
    retries: int = 3,
) -> Chat:
    """Open a chat: with an endpoint if a URL is given, else with a model in process.

    Args:
        url: the base of an OpenAI-compatible endpoint, such as ``http://localhost:8000/v1``.
        model: with ``url``, the model's name there; without, a model of this machine as
            ``embedded`` takes it, or one that it returned. Default: the embedded model.
        api_key: the endpoint's key. Default: ``OPENAI_API_KEY``, else none.
        timeout: seconds that an endpoint may be silent, at each attempt.
        retries: attempts after the first when an endpoint is busy, fails or drops the connection.

    Raises:
        ValueError: a URL without a model name or that is no http address, a bad ``timeout`` or
            ``retries``.
        FileNotFoundError: there is no such model on this machine.
        MissingExtra: the extra ``models`` is not installed.
    """
    if url is None:
        return LocalChat(model if isinstance(model, Embedded) else embedded(model))
    from armillary.models.endpoints import EndpointChat

    if not isinstance(model, str) or not model:
        raise ValueError(f"model={model!r}: name the model that {url!r} should use")
    return EndpointChat(url, model, api_key=api_key, timeout=timeout, retries=retries)


class LocalChat(conversation.ThreadedTwin):
    """A model in process. Greedy answers are deterministic; sampled ones follow their seed.

    Calls from several threads wait for one another.
    """

    def __init__(self, model: Embedded) -> None:
        self.embedded = model
        self.name, self.digest = model.name, model.digest
        self.usage = Usage()
        self._lock = threading.Lock()

    def complete(self, messages: Messages, **settings: Any) -> Completion:
        """The whole answer; see ``Chat.complete``."""
        return conversation.whole(self.stream(messages, **settings))

    def stream(self, messages: Messages, **settings: Any) -> Iterator[Delta]:
        """The answer piece by piece; see ``Chat.stream``."""
        asked = conversation.request(messages, **settings)
        prompt = self._tokens(asked)
        return self._pieces(asked, prompt)

    def score_options(
        self, prompt: Messages, options: Sequence[str], *, calibrate: Sequence[Messages] = ()
    ) -> OptionScores:
        """The log-probability of each option as the prompt's continuation.

        Args:
            prompt: plain text that the options continue, or a conversation (a list of messages),
                after which the options begin the assistant's turn.
            options: at least one, all different.
            calibrate: prompts of the same form without content, for contextual calibration.

        Raises:
            ValueError: an option does not begin at a boundary of tokens, or adds no token.
        """
        with self._lock:
            return score(
                self.embedded, self._text(prompt), options, [self._text(p) for p in calibrate]
            )

    def _text(self, prompt: Messages) -> str:
        if isinstance(prompt, str):
            return prompt
        turns = [dict(message) for message in conversation.checked(prompt)]
        return self._templated(turns)

    def _templated(self, turns: list[dict[str, str]]) -> str:
        tokenizer = self.embedded.tokenizer
        if not tokenizer.chat_template:
            return "\n\n".join(f"{t['role']}: {t['content']}" for t in turns) + "\n\nassistant:"
        return tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)

    def _tokens(self, asked: Request) -> list[int]:
        text = self._templated(asked.conversation)
        tokens = self.embedded.tokenizer(text, add_special_tokens=False)["input_ids"]
        window = self.embedded.model.config.max_position_embeddings
        if len(tokens) >= window:
            raise ValueError(f"messages: {len(tokens)} tokens, the model reads {window}")
        return list(tokens)

    def _pieces(self, asked: Request, prompt: list[int]) -> Iterator[Delta]:
        held = max((len(stop) - 1 for stop in asked.stop), default=0)
        written: list[int] = []
        text, given, reason = "", 0, "length"
        for token, ends in self._continuation(asked, prompt):
            written.append(token)
            if ends:
                reason = "stop"
                break
            text = self.embedded.tokenizer.decode(written, skip_special_tokens=True)
            cut = [at for at in (text.find(stop) for stop in asked.stop) if at >= 0]
            if cut:
                text, reason = text[: min(cut)], "stop"
                break
            # A character of several tokens is not whole yet; a stop string may have begun.
            if not text.endswith("�") and len(text) - held > given:
                yield Delta(text[given : len(text) - held])
                given = len(text) - held
        if len(text) > given:
            yield Delta(text[given:])
        done = Completion(text, len(prompt), len(written), reason, self.name)
        self.usage.add(done)
        yield Delta("", done)

    def _continuation(self, asked: Request, prompt: list[int]) -> Iterator[tuple[int, bool]]:
        """Tokens after the prompt, and whether each ends the answer."""
        import torch

        model = self.embedded.model
        ends = _end_tokens(self.embedded)
        generator = torch.Generator()
        if asked.seed is None:
            generator.seed()
        else:
            generator.manual_seed(asked.seed)
        cache, tokens = None, prompt
        room = model.config.max_position_embeddings - len(prompt)
        for _ in range(min(asked.max_tokens, room)):
            with self._lock, torch.inference_mode():
                read = model(torch.tensor([tokens]), cache=cache, use_cache=True, logits_to_keep=1)
                cache, logits = read.cache, read.logits[0, -1]
                if asked.temperature:
                    weights = (logits.double() / asked.temperature).softmax(-1)
                    token = int(torch.multinomial(weights, 1, generator=generator))
                else:
                    token = int(logits.argmax())
            yield token, token in ends
            tokens = [token]


def _end_tokens(model: Embedded) -> set[int]:
    named = model.model.generation_config.eos_token_id
    ends = set(named) if isinstance(named, list) else {named}
    return {end for end in (*ends, model.tokenizer.eos_token_id) if end is not None}
