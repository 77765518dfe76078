"""A chat that says what it is told to say, for tests."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from armillary.models import conversation
from armillary.models.conversation import (
    CannotScore,
    Completion,
    Delta,
    Messages,
    Request,
    Usage,
)
from armillary.models.option_scores import OptionScores

Script = Mapping[str, str] | Callable[[list[dict[str, str]]], str] | Sequence[str]


def scripted(answers: Script) -> Scripted:
    """A chat that answers from a script.

    Args:
        answers: a mapping from the text of the last message to its answer; or a function from the
            list of messages to an answer; or a sequence of answers, given in turn.
    """
    return Scripted(answers)


class Scripted(conversation.ThreadedTwin):
    """A chat with a script. Its tokens are words: runs of characters without white space.

    Attributes:
        asked: every request so far.
    """

    name = "scripted"

    def __init__(self, answers: Script) -> None:
        if isinstance(answers, str):
            raise TypeError("answers: got one string, give a list, a mapping or a function")
        self._answers = answers
        self.digest = _digest(answers)
        self.usage = Usage()
        self.asked: list[Request] = []
        self._lock = threading.Lock()

    def complete(self, messages: Messages, **settings: Any) -> Completion:
        """The script's answer, cut at a stop string and at ``max_tokens`` words.

        Raises:
            LookupError: the script has no answer to this, or none left.
        """
        asked = conversation.request(messages, **settings)
        with self._lock:
            text = self._answer(asked)
            self.asked.append(asked)
        reason = "stop"
        cut = [at for at in (text.find(stop) for stop in asked.stop) if at >= 0]
        text = text[: min(cut)] if cut else text
        if len(text.split()) > asked.max_tokens:
            text, reason = " ".join(text.split()[: asked.max_tokens]), "length"
        read = sum(len(dict(message)["content"].split()) for message in asked.messages)
        done = Completion(text, read, len(text.split()), reason, self.name)
        self.usage.add(done)
        return done

    def stream(self, messages: Messages, **settings: Any) -> Iterator[Delta]:
        """The answer, line by line."""
        done = self.complete(messages, **settings)
        for line in done.text.splitlines(keepends=True):
            yield Delta(line)
        yield Delta("", done)

    def score_options(
        self, prompt: Messages, options: Sequence[str], *, calibrate: Sequence[Messages] = ()
    ) -> OptionScores:
        """A script has no probabilities.

        Raises:
            CannotScore: always.
        """
        raise CannotScore("a scripted chat has no log-probabilities; take one in process")

    def _answer(self, asked: Request) -> str:
        if callable(self._answers):
            return self._answers(asked.conversation)
        if isinstance(self._answers, Mapping):
            if asked.last not in self._answers:
                raise LookupError(f"the script has no answer to {asked.last!r}")
            return self._answers[asked.last]
        if len(self.asked) >= len(self._answers):
            raise LookupError(f"the script's {len(self._answers)} answers are used up")
        return self._answers[len(self.asked)]


def _digest(answers: Script) -> str:
    if callable(answers):
        told: Any = getattr(answers, "__qualname__", type(answers).__name__)
    else:
        told = dict(answers) if isinstance(answers, Mapping) else list(answers)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
