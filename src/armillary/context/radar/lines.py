"""Lines of documents and events from files: what cannot be read is named, the rest goes on."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from armillary import output
from armillary.context.radar.observation import Document, Observation


class BadLine(ValueError):
    """A line that is not what it should be."""


class Lines:
    """Readable JSON lines of a file with their numbers; the others are named and counted.

    Args:
        path: UTF-8, with or without a byte order mark.

    Raises:
        FileNotFoundError: no such file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.bad = path, 0
        if not path.is_file():
            raise FileNotFoundError(f"no file {str(path)!r}")

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, _, record in self.with_digests():
            yield number, record

    def with_digests(self) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Number, a digest of the line, and the object in it."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.strip():
                    continue
                try:
                    record = _object(line)
                except BadLine as bad:
                    self.refuse(number, str(bad))
                    continue
                yield number, hashlib.sha256(line.strip()).hexdigest()[:16], record

    def documents(self) -> Iterator[tuple[dict[str, Any], Document]]:
        """Each record that is a document, and the document."""
        for number, record in self:
            try:
                yield record, document(record)
            except BadLine as bad:
                self.refuse(number, str(bad))

    def refuse(self, number: int, why: str) -> None:
        """Name a line that is left out."""
        self.bad += 1
        output.console().note(f"{self.path}, line {number}: {why}")


def _object(line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise BadLine(f"no UTF-8 (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"no JSON ({error.msg} at column {error.colno})") from None
    except RecursionError:
        raise BadLine("no JSON that can be read (too deeply nested)") from None
    except ValueError as error:  # a constant that is no JSON, a number of thousands of digits
        raise BadLine(f"no JSON ({error})") from None
    if not isinstance(record, dict):
        raise BadLine(f"a JSON object is wanted, got {type(record).__name__}")
    return record


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def document(record: Any) -> Document:
    """A document from a text or an object with ``text``, ``id`` and ``source``.

    Raises:
        BadLine: it is none.
    """
    if isinstance(record, str):
        record = {"text": record}
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        raise BadLine(f"a document needs 'text', got {str(record)[:80]}")
    text = record["text"]
    if not text.strip():
        raise BadLine("a document has no text")
    _sound("text", text)
    names = []
    for name in ("id", "source"):
        value = record.get(name)
        names.append("" if value is None else str(value))
        _sound(name, names[-1])
    return Document(text, *names)


def event(record: dict[str, Any]) -> tuple[str, list[Document], str | None, Any]:
    """Question, documents by rank, key and time of an event.

    Raises:
        BadLine: a field is not what it should be.
    """
    question, docs, key = record.get("question"), record.get("docs"), record.get("key")
    if not isinstance(question, str) or not question.strip():
        raise BadLine("an event needs 'question', a text")
    if not isinstance(docs, list) or not docs:
        raise BadLine(f"radar: no documents for question {question!r}")
    if key is not None and not isinstance(key, str):
        raise BadLine(f"'key' must be a text, got {str(key)[:60]}")
    documents = [document(record) for record in _ranked(docs)]
    time = record.get("time")
    try:
        Observation.of(question, documents, key, time)
    except (TypeError, ValueError) as error:
        raise BadLine(str(error)) from None
    return question, documents, key, time


def _ranked(docs: list[Any]) -> list[Any]:
    """The documents by their ranks, where all have one; in their order where none has."""
    ranks = [doc.get("rank") if isinstance(doc, dict) else None for doc in docs]
    if all(rank is None for rank in ranks):
        return docs
    for rank in ranks:
        number = isinstance(rank, (int, float)) and not isinstance(rank, bool)
        if not number or (isinstance(rank, float) and not math.isfinite(rank)):
            raise BadLine(f"'rank' must be a number in all documents or in none, got {rank!r:.60}")
    return [docs[i] for i in sorted(range(len(docs)), key=lambda i: ranks[i] or 0)]


def _sound(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadLine(f"{name!r} holds half of a surrogate pair, which is no text") from None
