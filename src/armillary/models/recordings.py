"""Answers recorded once and replayed, so that a measurement can be repeated without the model.

A recording is a file of JSON lines, one answer each: ``{"key", "request", "answer"}``. The key is
the SHA-256 of the model's digest and the whole request, so another model, another message or
another setting is another key. Lines are only ever added; the first of a key counts. A writer
that died in the middle of a line harms that line alone. ``.jsonl.gz`` is for shipping: it is
replayed, not written.
"""

from __future__ import annotations

import dataclasses
import fcntl
import gzip
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from armillary.models import conversation
from armillary.models.conversation import Chat, Completion, Delta, Messages, Usage
from armillary.models.option_scores import OptionScores

Mode = Literal["replay", "record", "live-check"]
_MODES = ("replay", "record", "live-check")

#: Two scores of one option agree to this many nats: thread counts and versions move last digits.
SCORE_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """A live answer that differs from the recorded one."""

    request: dict[str, Any]
    recorded: dict[str, Any]
    live: dict[str, Any]


class Recording(conversation.ThreadedTwin):
    """A chat whose answers are recorded.

    Args:
        path: the file, ``.jsonl`` or ``.jsonl.gz``.
        chat: the chat behind it. To replay, its ``digest`` alone will do.
        mode: ``replay`` answers from the file only; ``record`` asks the chat what the file lacks
            and adds it; ``live-check`` answers from the file and asks the chat again for a share
            of the answers.
        share: how much of the file ``live-check`` asks again, 0 to 1. Which answers is drawn from
            their keys and ``seed``, so a repeat checks the same ones.
        seed: for the draw.

    Sampled answers (temperature over 0) are recorded like any other: a replay gives the same
    sample again. Streams are recorded as whole answers and replayed as one piece.

    Attributes:
        checked: how many answers ``live-check`` has compared.
        mismatches: those that differed: another text or finish reason, or scores further apart
            than ``SCORE_TOLERANCE``.

    Raises:
        ValueError: an unknown mode, a share outside 0 to 1, recording into gzip.
        TypeError: a mode that asks the chat, and only a digest.
        FileNotFoundError: there is no such file to replay.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        chat: Chat | str,
        mode: Mode = "replay",
        *,
        share: float = 0.1,
        seed: int = 0,
    ) -> None:
        if mode not in _MODES:
            raise ValueError(f"mode={mode!r}: give one of {', '.join(_MODES)}")
        if not 0 <= share <= 1:
            raise ValueError(f"share={share}: give a number from 0 to 1")
        if isinstance(chat, str) and mode != "replay":
            raise TypeError(f"chat: mode {mode!r} asks the chat itself, got only its digest")
        self.mode, self._share, self._seed = mode, share, seed
        self._chat = None if isinstance(chat, str) else chat
        self.digest = chat if isinstance(chat, str) else chat.digest
        self.name = "recording" if isinstance(chat, str) else chat.name
        self.usage = Usage()
        self.checked, self.mismatches = 0, list[Mismatch]()
        self._file = _Lines(Path(path), writable=mode == "record")
        self._lock = threading.Lock()

    def complete(self, messages: Messages, **settings: Any) -> Completion:
        """The recorded answer; see ``Chat.complete``.

        Raises:
            LookupError: the file has no answer to this request (``replay``, ``live-check``).
        """
        asked = dataclasses.asdict(conversation.request(messages, **settings))
        answer = self._answer(
            {"kind": "complete", **asked},
            lambda chat: dataclasses.asdict(chat.complete(messages, **settings)),
        )
        done = Completion(**answer)
        self.usage.add(done)
        return done

    def stream(self, messages: Messages, **settings: Any) -> Iterator[Delta]:
        """The recorded answer in one piece."""
        done = self.complete(messages, **settings)
        if done.text:
            yield Delta(done.text)
        yield Delta("", done)

    def score_options(
        self, prompt: Messages, options: Sequence[str], *, calibrate: Sequence[Messages] = ()
    ) -> OptionScores:
        """The recorded scores; see ``Chat.score_options``.

        Raises:
            LookupError: the file has no scores for this request (``replay``, ``live-check``).
        """
        import numpy as np

        def live(chat: Chat) -> dict[str, Any]:
            scores = chat.score_options(prompt, options, calibrate=calibrate)
            names = ("log_probs", "log_likelihoods", "tokens")
            return {name: getattr(scores, name).tolist() for name in names}

        asked = {
            "kind": "score_options",
            "prompt": prompt if isinstance(prompt, str) else [dict(m) for m in prompt],
            "options": list(options),
            "calibrate": [p if isinstance(p, str) else [dict(m) for m in p] for p in calibrate],
        }
        answer = self._answer(asked, live)
        return OptionScores(
            tuple(options),
            np.array(answer["log_probs"], np.float64),
            np.array(answer["log_likelihoods"], np.float64),
            np.array(answer["tokens"], np.int64),
        )

    def _answer(
        self, asked: dict[str, Any], live: Callable[[Chat], dict[str, Any]]
    ) -> dict[str, Any]:
        key = request_key(self.digest, asked)
        recorded = self._file.get(key)
        if recorded is None and self.mode == "record" and self._chat is not None:
            answer = live(self._chat)
            return self._file.add(key, asked, answer)
        if recorded is None:
            told = json.dumps(asked, ensure_ascii=False)
            raise LookupError(
                f"{self._file.path} has no answer of the model {self.digest[:12]} to this request: "
                f"{told[:200]}{'…' if len(told) > 200 else ''}; record it with mode='record'"
            )
        if self.mode == "live-check" and self._chat is not None and self._drawn(key):
            now = live(self._chat)
            with self._lock:
                self.checked += 1
                if not _agree(recorded, now):
                    self.mismatches.append(Mismatch(asked, recorded, now))
        return recorded

    def _drawn(self, key: str) -> bool:
        draw = hashlib.sha256(f"{self._seed} {key}".encode()).digest()
        return int.from_bytes(draw[:8], "big") < self._share * 2**64


def request_key(digest: str, asked: dict[str, Any]) -> str:
    """The key of a request to the model of that digest: SHA-256 over both as canonical JSON."""
    text = json.dumps([digest, asked], sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _agree(recorded: dict[str, Any], live: dict[str, Any]) -> bool:
    if "log_probs" not in recorded:
        return all(recorded.get(part) == live[part] for part in ("text", "finish_reason"))
    return recorded["tokens"] == live["tokens"] and all(
        abs(old - new) <= SCORE_TOLERANCE
        for part in ("log_probs", "log_likelihoods")
        for old, new in zip(recorded[part], live[part], strict=True)
    )


class _Lines:
    """The file of a recording, as a mapping from key to answer."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self._answers: dict[str, dict[str, Any]] = {}
        self._read_to = 0
        self._lock = threading.Lock()
        if path.suffix == ".gz":
            if writable:
                raise ValueError(f"path={str(path)!r}: record into a .jsonl and gzip it afterwards")
            with gzip.open(path, "rb") as file:
                self._take(file.read())
            return
        if writable:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.is_file():
            raise FileNotFoundError(f"no recording {str(path)!r}; make it with mode='record'")
        self._refresh()

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer of a key, or None."""
        return self._answers.get(key)

    def add(self, key: str, asked: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        """Add an answer, unless another writer did so meanwhile; the answer that counts."""
        line = json.dumps(
            {"key": key, "request": asked, "answer": answer}, ensure_ascii=True, allow_nan=False
        )
        with self._lock, self.path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._refresh()
            if key not in self._answers:
                end = file.seek(0, os.SEEK_END)
                torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
                file.write((b"\n" if torn else b"") + line.encode() + b"\n")
                file.flush()
                self._refresh()
            return self._answers[key]

    def _refresh(self) -> None:
        """Read the whole lines that were added since the last time."""
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_to += len(whole)
        self._take(whole)

    def _take(self, lines: bytes) -> None:
        for line in lines.split(b"\n"):
            try:
                entry = json.loads(line)
                self._answers.setdefault(entry["key"], entry["answer"])
            except (ValueError, KeyError, TypeError):
                continue  # torn by a writer that died
