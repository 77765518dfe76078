"""Question sets that users bring: read, attacked harmlessly, and turned into steps.

Two forms are read, both JSON lists. *Single*: one step a question, as RobustRAG's RealTimeQA file
has it (``question``, ``correct answer``, ``incorrect answer``, ``context``, ``incorrect_context``).
*Yearly*: a step a year, as RADAR's authors describe theirs (``question``, and ``yearly_contexts``:
year -> ``docs``, ``answer``, ``incorrect_answer``, ``incorrect_context``). Neither set carries a
licence, so none is shipped.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from armillary.context.radar.attacks import KINDS, attack_texts, placed
from armillary.context.radar.radar import Document


@dataclasses.dataclass(frozen=True)
class Asked:
    """One question at one time.

    Attributes:
        question: the question.
        answers: texts that are right.
        wrong: what an attack wants; empty where the set names none.
        documents: in rank order.
        poison: wrong documents that came with the set.
        time: a year, or None.
    """

    question: str
    answers: tuple[str, ...]
    wrong: str
    documents: tuple[Document, ...]
    poison: tuple[str, ...] = ()
    time: float | None = None


def read_questions(path: str | os.PathLike[str]) -> list[Asked]:
    """Read a question set of either form, in its order; years ascend within a question.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is no JSON list of questions; the message names the first bad entry.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file {os.fspath(path)!r}")
    try:
        entries = json.loads(Path(path).read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{os.fspath(path)!r} is no JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"{os.fspath(path)!r}: give a JSON list of questions")
    found: list[Asked] = []
    for number, entry in enumerate(entries):
        try:
            found += _asked(entry)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            told = f"has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{os.fspath(path)!r}, entry {number}: {told}") from error
    return found


def _asked(entry: dict[str, Any]) -> Iterator[Asked]:
    question = _text(entry["question"], "question")
    if "yearly_contexts" not in entry:
        right = _right(entry, "correct answer") + _texts(entry.get("expanded answer"))
        yield Asked(
            question,
            right,
            next(iter(_texts(entry.get("incorrect answer"))), ""),
            _documents(entry["context"]),
            _texts(entry.get("incorrect_context", entry.get("incorrect context"))),
        )
        return
    yearly = entry["yearly_contexts"]
    if not isinstance(yearly, dict) or not yearly:
        raise ValueError("'yearly_contexts' must be an object: year -> docs and answer, not empty")
    for year in sorted(yearly, key=float):
        step = yearly[year]
        yield Asked(
            question,
            _right(step, "answer"),
            next(iter(_texts(step.get("incorrect_answer"))), ""),
            _documents(step["docs"]),
            _texts(step.get("incorrect_context")),
            float(year),
        )


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name!r} must be a text, got {value!r}")
    return value


def _right(record: dict[str, Any], name: str) -> tuple[str, ...]:
    found = _texts(record[name])
    if not found:
        raise ValueError(f"{name!r} is empty: a question needs at least one right answer")
    return found


def _texts(value: Any) -> tuple[str, ...]:
    """One text, or a list of them; nothing where there is none."""
    if value is None or value == "":
        return ()
    values = value if isinstance(value, list) else [value]
    return tuple(str(item) for item in values if str(item).strip())


def _documents(found: Sequence[Any]) -> tuple[Document, ...]:
    if not isinstance(found, list) or not found:
        raise ValueError("there are no documents")
    documents = []
    for record in found:
        if isinstance(record, str):
            record = {"text": record}
        text = ". ".join(part for part in (record.get("title"), record["text"]) if part)
        source = str(record.get("link") or record.get("source") or "")
        documents.append(Document(_text(text, "text"), source, source))
    return tuple(documents)


def attacked(
    asked: Asked, kind: str, *, copies: int = 1, rank: str = "last", top: int = 10
) -> tuple[list[Document], int]:
    """The best documents of a question with an attack among them.

    Args:
        asked: the question; it must name a wrong answer.
        kind: ``none``, ``pia`` (an injected instruction) or ``poison`` (the wrong documents of the
            set, or where it has too few our own statements).
        copies: poisoned documents.
        rank: ``first``, ``middle`` or ``last``.
        top: how many honest documents are kept.

    Returns:
        The documents in rank order, and how many of them are poisoned.

    Raises:
        ValueError: an attack on a question without a wrong answer, or an unknown kind or rank.
    """
    honest = list(asked.documents[:top])
    if kind == "none":
        return honest, 0
    if kind not in KINDS:
        raise ValueError(f"attack: kind={kind!r}: give one of none, {', '.join(KINDS)}")
    if not asked.wrong:
        raise ValueError(
            f"question {asked.question!r} names no wrong answer: attack it with 'none'"
        )
    own = list(asked.poison[:copies]) if kind == "poison" else []
    missing = copies - len(own)
    texts = own + (attack_texts(kind, asked.question, asked.wrong, missing) if missing > 0 else [])
    mixed, at = placed([document.text for document in honest], texts, rank)
    rest, poison = iter(honest), iter(texts)
    documents = [
        Document(next(poison), source="attack") if i in at else next(rest)
        for i in range(len(mixed))
    ]
    return documents, len(texts)
