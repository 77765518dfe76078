"""What all chats share: messages, completions, counts of tokens, and the protocol itself."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from armillary.models.option_scores import OptionScores

Message = Mapping[str, str]
#: A conversation, or one message of the user.
Messages = str | Sequence[Message]

_ROLES = ("system", "developer", "user", "assistant", "tool")


class CannotScore(ValueError):
    """The chat's backend does not give log-probabilities of a text that it did not write."""


@dataclasses.dataclass(frozen=True)
class Completion:
    """A whole answer.

    Attributes:
        text: the answer, without the stop string that ended it.
        prompt_tokens: tokens read.
        completion_tokens: tokens written.
        finish_reason: ``stop`` (the model or a stop string ended it), ``length`` (``max_tokens``
            or the model's window did), or what an endpoint says.
        model: who answered.
    """

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    model: str


@dataclasses.dataclass(frozen=True)
class Delta:
    """A piece of an answer as it arrives; the last one has no text and the whole answer."""

    text: str
    done: Completion | None = None


class Usage:
    """Tokens and answers of a chat so far; may be read and added to from several threads."""

    def __init__(self) -> None:
        self.prompt_tokens = self.completion_tokens = self.answers = 0
        self._lock = threading.Lock()

    def add(self, completion: Completion) -> None:
        """Count a completion."""
        with self._lock:
            self.prompt_tokens += completion.prompt_tokens
            self.completion_tokens += completion.completion_tokens
            self.answers += 1


@dataclasses.dataclass(frozen=True)
class Request:
    """A checked request: what a backend answers, and what a recording is keyed by."""

    messages: tuple[tuple[tuple[str, str], ...], ...]
    max_tokens: int
    temperature: float
    stop: tuple[str, ...]
    seed: int | None

    @property
    def conversation(self) -> list[dict[str, str]]:
        """The messages as a chat template and an endpoint take them."""
        return [dict(message) for message in self.messages]

    @property
    def last(self) -> str:
        """The text of the last message."""
        return dict(self.messages[-1])["content"]


def request(
    messages: Messages,
    *,
    max_tokens: int = 256,
    temperature: float = 0.0,
    stop: str | Sequence[str] | None = None,
    seed: int | None = None,
) -> Request:
    """Check a request.

    Raises:
        ValueError: no messages, an unknown role, a message without content, ``max_tokens`` under
            1, a negative temperature, or an empty stop string.
    """
    if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
        raise ValueError(f"max_tokens={max_tokens!r}: give a whole number, at least 1")
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature={temperature}: give 0 (greedy) or a positive number")
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if "" in stops:
        raise ValueError("stop: an empty string would end every answer at once, leave it out")
    return Request(checked(messages), max_tokens, float(temperature), stops, seed)


def checked(messages: Messages) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The messages as nested tuples; a string is one message of the user."""
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not messages:
        raise ValueError("messages: got none, give at least one")
    for message in messages:
        if message.get("role") not in _ROLES:
            raise ValueError(f"messages: role {message.get('role')!r} is none of {_ROLES}")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"messages: a message of {message['role']} has no text as 'content'")
    return tuple(tuple(sorted(message.items())) for message in messages)


@runtime_checkable
class Chat(Protocol):
    """What every chat offers.

    Attributes:
        name: the model's name.
        digest: what decides its answers: the SHA-256 of its weights, or endpoint and model name.
        usage: tokens so far.
    """

    name: str
    digest: str
    usage: Usage

    def complete(
        self,
        messages: Messages,
        *,
        max_tokens: int = 256,
        temperature: float = 0.0,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
    ) -> Completion:
        """The whole answer.

        Args:
            messages: a conversation (``role`` and ``content`` each), or one message of the user.
            max_tokens: most tokens to write, at least 1.
            temperature: 0 is greedy.
            stop: strings that end the answer and are not part of it.
            seed: for sampling; the same seed gives the same answer where the backend can.
        """
        ...

    def stream(self, messages: Messages, **settings: Any) -> Iterator[Delta]:
        """The answer piece by piece; takes what ``complete`` takes."""
        ...

    async def acomplete(self, messages: Messages, **settings: Any) -> Completion:
        """``complete`` for asynchronous code."""
        ...

    def astream(self, messages: Messages, **settings: Any) -> AsyncIterator[Delta]:
        """``stream`` for asynchronous code."""
        ...

    def score_options(
        self, prompt: Messages, options: Sequence[str], *, calibrate: Sequence[Messages] = ()
    ) -> OptionScores:
        """The log-probability of each option as the prompt's continuation.

        Raises:
            CannotScore: the backend cannot.
        """
        ...


class ThreadedTwin:
    """The asynchronous half of a chat whose work is synchronous, run in threads."""

    async def acomplete(self, messages: Messages, **settings: Any) -> Completion:
        """``complete``, in a thread."""
        return await asyncio.to_thread(self.complete, messages, **settings)  # pyright: ignore

    async def astream(self, messages: Messages, **settings: Any) -> AsyncIterator[Delta]:
        """``stream``, each piece awaited in a thread."""
        pieces: Iterator[Delta] = self.stream(messages, **settings)  # pyright: ignore
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece


def whole(pieces: Iterator[Delta]) -> Completion:
    """The completion at the end of a stream."""
    for piece in pieces:
        if piece.done is not None:
            return piece.done
    raise RuntimeError("a stream ended without its completion")
