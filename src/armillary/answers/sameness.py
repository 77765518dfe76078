"""Whether two answers are the same, and why."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from armillary.answers import names, numerals, units
from armillary.answers.parsing import readings
from armillary.answers.values import Number, Text, Value, YesNo, agree, is_typed

#: Cosine from which two untyped answers are taken as the same. Chosen to refuse rather than to
#: accept: with all-MiniLM-L6-v2 "Mount Everest" and "Everest" (0.91) pass; "Kim Jong-un" and
#: "Kim Jong-il" (0.87) do not, nor do "car" and "automobile" (0.86).
THRESHOLD = 0.9


#: Signs of two letters that are no words ("in" is one) and so name a unit within a question.
_SHORT = frozenset(("km", "cm", "mm", "mi", "ft", "kg", "mg", "lb", "oz", "ms", "°c", "°f", "kw"))


class TextEncoder(Protocol):
    """What gives texts unit vectors; ``armillary.models.encoder()`` does."""

    def encode(self, texts: Sequence[str]) -> Any:
        """Vectors of shape (n, width), rows of length one."""
        ...


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether two answers are the same.

    Attributes:
        same: the verdict.
        why: what decided: ``value`` (typed values, or numbers within the text), ``text`` (the same
            words, or no encoder to look further), ``alias`` (title, initials, acronym, surname),
            ``embedding``.
        score: 1 or 0, or for ``embedding`` the cosine.
    """

    same: bool
    why: Literal["value", "text", "alias", "embedding"]
    score: float


def same(
    one: str,
    two: str,
    *,
    encoder: TextEncoder | None = None,
    question: str = "",
    threshold: float = THRESHOLD,
) -> Verdict:
    """Judge whether two answers are the same; symmetric, whatever the case and white space.

    Typed values decide first: two numbers, dates, amounts of money or lists of them that differ are
    never the same, whatever an embedding says. Words are compared as names next. Embeddings are
    asked last, and only where neither answer is typed, the numbers inside both agree, and no words
    exclude each other (a negation, other initials, "north" and "south").

    Args:
        one: an answer.
        two: another answer.
        encoder: gives sentence embeddings; without one, other words are another answer.
        question: what was asked. A unit named in it is understood where an answer leaves it out
            ("how many kilometres": 5 is 5 km), and a bare surname counts only where it asks for a
            person.
        threshold: the cosine from which texts are the same; it belongs to the encoder.

    Raises:
        TypeError: an answer is no string.
    """
    lefts, rights = _asked(readings(one), question), _asked(readings(two), question)
    agreeing = [left for left in lefts for right in rights if agree(left, right)]
    numbers = numerals.all_in(one), numerals.all_in(two)
    if agreeing and isinstance(agreeing[0], YesNo) and all(numbers) and numbers[0] != numbers[1]:
        return Verdict(False, "value", 0.0)  # "yes, 5" and "yes, 6"
    if agreeing:
        return Verdict(True, "value" if is_typed(agreeing[0]) else "text", 1.0)
    left, right = lefts[0], rights[0]
    words = names.words(one), names.words(two)
    if is_typed(left) or is_typed(right):
        return Verdict(False, "value", 0.0)
    if isinstance(left, Text) and isinstance(right, Text):
        words = left.words, right.words
        if not all(words):
            return Verdict(False, "text", 0.0)
        if names.alias(*words, question):
            return Verdict(True, "alias", 1.0)
    if numbers[0] != numbers[1]:
        return Verdict(False, "value", 0.0)
    if encoder is None or names.contradict(*words):
        return Verdict(False, "text", 0.0)
    first, second = encoder.encode([" ".join(words[0]), " ".join(words[1])])
    cosine = float(first @ second)
    return Verdict(cosine >= threshold, "embedding", cosine)


def _asked(found: tuple[Value, ...], question: str) -> tuple[Value, ...]:
    """The readings, and that of a bare number in the unit that the question names."""
    value = found[0]
    if not question or not isinstance(value, Number) or value.dimension or value.noun:
        return found
    tokens = question.lower().replace("?", " ").replace(",", " ").split()
    if {"percent", "percentage", "%"} & set(tokens):
        return (*found, dataclasses.replace(value, value=value.value / 100))
    pairs = [" ".join(pair) for pair in itertools.pairwise(tokens)]
    for name in (*pairs, *(token for token in tokens if len(token) > 2 or token in _SHORT)):
        if unit := units.find(name):
            scaled = value.value * unit.factor + unit.offset
            half = value.half_digit * unit.factor
            return (*found, Number(scaled, unit.dimension, unit.sign, half_digit=half))
    return found
