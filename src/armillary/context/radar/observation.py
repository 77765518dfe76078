"""What a call of `Radar` is given, checked: a question, documents, a key and a time."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from typing import Any

from armillary.context.radar.store import Time, as_number

#: Longest key that every database takes; longer ones are cut and end in their hash.
LONGEST_KEY = 512


@dataclasses.dataclass(frozen=True)
class Document:
    """A retrieved document; its place in the list is its rank.

    Attributes:
        text: what it says.
        id: how you call it.
        source: where it comes from.
    """

    text: str
    id: str = ""
    source: str = ""


@dataclasses.dataclass(frozen=True)
class Observation:
    """One checked call.

    Attributes:
        question: the question.
        documents: at least one, in rank order.
        key: under which the belief is kept.
        observed: when, as a number, or None.
        event: SHA-256 of all of it: the same observation again has the same.
    """

    question: str
    documents: tuple[Document, ...]
    key: str
    observed: float | None
    event: str

    @classmethod
    def of(
        cls,
        question: str,
        documents: Iterable[str | Document],
        key: str | None = None,
        time: Time | None = None,
    ) -> Observation:
        """Check a call.

        Raises:
            TypeError: something is of another type than `Radar.answer` says.
            ValueError: an empty question, no documents, a document without text, a time that is
                none, or a text that UTF-8 cannot hold.
        """
        whole = _documents(question, documents)
        if key is None:
            key = " ".join(question.lower().split())
        _text("key", key)
        if len(key) > LONGEST_KEY:
            digest = hashlib.sha256(key.encode()).hexdigest()
            key = f"{key[: LONGEST_KEY - len(digest) - 1]}…{digest}"
        observed = as_number(time)
        told = json.dumps([key, observed, question, [d.text for d in whole]])
        return cls(question, whole, key, observed, hashlib.sha256(told.encode()).hexdigest())


def _documents(question: Any, documents: Any) -> tuple[Document, ...]:
    _text("question", question)
    if isinstance(documents, (str, bytes, Document)) or not isinstance(documents, Iterable):
        given = "one string" if isinstance(documents, str) else f"a {type(documents).__name__}"
        raise TypeError(f"documents: got {given}, give a list of documents")
    whole = []
    for index, given in enumerate(documents):
        document = Document(given) if isinstance(given, str) else given
        if not isinstance(document, Document):
            raise TypeError(
                f"documents[{index}]: got a {type(given).__name__}, give a text or a Document"
            )
        if isinstance(document.text, str) and not document.text.strip():
            raise ValueError(f"documents[{index}] has no text; leave it out")
        _text(f"documents[{index}]", document.text)
        whole.append(document)
    if not whole:
        raise ValueError(f"radar: no documents for question {question!r}")
    return tuple(whole)


def _text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name}: got a {type(value).__name__}, give a text")
    if not value.strip():
        raise ValueError(f"{name}: got an empty text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: character {error.start} is half of a surrogate pair, which UTF-8 cannot hold"
        ) from None
