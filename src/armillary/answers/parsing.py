"""From an answer's text to its value: yes or no, date, money, number, list, else words."""

from __future__ import annotations

import re

from armillary.answers import clocks, currencies, dates, names, numerals, units
from armillary.answers.values import Currency, Items, Money, Number, Text, Value, YesNo

_YES = {"yes", "y", "true", "yeah", "yep", "correct", "affirmative", "right"}
_NO = {"no", "n", "false", "nope", "incorrect", "negative", "wrong"}
_LEAD = re.compile(
    r"^(?:(?:so|thus|therefore|hence),?\s+)?(?:(?:the\s+)?(?:final\s+|correct\s+)?answer\s*(?:is|:|=)|"
    r"it(?:'s|’s|\s+is|\s+was)|that\s+(?:is|was)|they\s+(?:are|were))\s*:?\s+",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"^(?:(?:about|around|approximately|approx\.?|roughly|nearly|almost|ca\.?|circa|exactly)\s+"
    r"|[~≈]\s*)",
    re.IGNORECASE,
)
_DECADE = re.compile(r"\d{2,4}['’]?s")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b", re.IGNORECASE)
_PERCENT = re.compile(r"^(?:%|percent|per\s?cent|pct\.?)(?:\s+|$)", re.IGNORECASE)
_PER_MILLE = re.compile(r"^(?:‰|per\s?mille)(?:\s+|$)", re.IGNORECASE)
_BETWEEN_ITEMS = re.compile(
    r"\s*[;\n]\s*(?:and\s+|or\s+)?|,\s+(?:and\s+|or\s+)?|\s+and\s+|\s*&\s*", re.IGNORECASE
)
#: Letters that scale an amount of money and, set close ("5M"), may scale a number.
_LETTER_SCALES = {"m": 10**6, "b": 10**9}
_BULLET = re.compile(r"^\s*(?:[-*•–]\s+|\d{1,2}[.)]\s+)")


def parse(text: str) -> Value:
    """The value of an answer.

    Args:
        text: a short answer: a number, a date, a name, a list; a lead such as "The answer is" and
            a full stop at the end are left out.

    Returns:
        The first of ``readings``.

    Raises:
        TypeError: ``text`` is no string.
    """
    return readings(text)[0]


def readings(text: str) -> tuple[Value, ...]:
    """Everything that an answer may mean, likeliest first; at least one value.

    Several where writing is ambiguous: "5/6/2023" is two days, "5 pounds" a mass or money.

    Raises:
        TypeError: ``text`` is no string.
    """
    if not isinstance(text, str):
        raise TypeError(f"text: got a {type(text).__name__}, give a string")
    plain = _plain(text)
    typed = _yes_no(plain) or _one_value(plain) or _quantities(_ABOUT.sub("", plain))
    if typed:
        return typed
    items = _items(text)
    if items:
        return (items,)
    words = Text(names.words(plain))
    codes, certain = currencies.bare(plain)
    if not codes:
        return (words,)
    # "real" and "won" are words as well: an embedding may still find them to be others.
    return (Currency(codes),) if certain else (words, Currency(codes))


def _one_value(text: str) -> tuple[Value, ...]:
    """Dates, times of day and offsets from UTC."""
    return dates.read(text) or clocks.read(text)


def _plain(text: str) -> str:
    """One line without lead, quotes, emphasis and the full stop at the end."""
    text = " ".join(text.split())
    text = _LEAD.sub("", text).strip(" \t\"'`“”‘’*_")
    while text and text[-1] in ".!":
        if re.search(r"(?:\b\w\.){2,}$", text):
            break
        text = text[:-1].rstrip(" \"'`“”‘’*_")
    return text


def _yes_no(text: str) -> tuple[Value, ...]:
    first = re.match(r"([a-z]+)(?:$|[,.;:!]\s)", text, re.IGNORECASE)
    word = first.group(1).lower() if first else ""
    if word in ("yes", "no") or (word == text.lower() and word in _YES | _NO):
        return (YesNo(word in _YES),)
    return ()


def _quantities(text: str) -> tuple[Value, ...]:
    """Numbers and money; none if anything but a number, a unit and a counted thing is there."""
    if money := _money_before(text):
        return money
    if _DECADE.fullmatch(text.lower()):
        return ()  # "1980s" are no seconds
    read = numerals.read(_ORDINAL.sub("th", text))
    if read is None:
        return ()
    value, digit, rest = float(read.value), float(read.last_digit), read.rest
    if not rest:
        return (Number(value, half_digit=digit / 2),)
    for sign, worth in ((_PERCENT, 100), (_PER_MILLE, 1000)):
        if match := sign.match(rest):
            noun = _noun(rest[match.end() :])
            if noun is None:
                return ()
            return (Number(value / worth, noun=noun, half_digit=digit / worth / 2),)
    found: list[Value] = []
    if unit := units.find(rest):
        found.append(
            Number(
                value * unit.factor + unit.offset,
                unit.dimension,
                unit.sign,
                half_digit=digit * unit.factor / 2,
            )
        )
    if codes := currencies.find(rest):
        found.append(Money(value, codes))
    if rest.lower() in _LETTER_SCALES and not text[-2].isspace():
        scale = _LETTER_SCALES[rest.lower()]
        found.append(Number(value * scale, half_digit=digit * scale / 2))
    if not found and (noun := _noun(rest)) is not None:
        found.append(Number(value, noun=noun, half_digit=digit / 2))
    return tuple(found)


def _money_before(text: str) -> tuple[Value, ...]:
    """Money whose sign or code stands before the amount: "€5", "USD 3.2 million", "-$4"."""
    match = re.match(r"(?P<sign>[-−–+]\s?)?(?P<mark>[^\d\s.,+−–-]{1,4})\s?(?=[\d.])", text)
    codes = currencies.find(match.group("mark")) if match else None
    if match is None or codes is None:
        return ()
    read = numerals.read(text[match.end() :])
    if read is None:
        return ()
    amount = float(read.value) * (-1 if (match.group("sign") or "+").strip() != "+" else 1)
    rest = read.rest
    if rest.lower() in _LETTER_SCALES:
        amount, rest = amount * _LETTER_SCALES[rest.lower()], ""
    after = currencies.find(rest) if rest else codes
    if after is None or not codes & after:
        return ()
    return (Money(amount, codes & after),)


def _noun(rest: str) -> str | None:
    """What is counted: at most two words of letters, singular; None if it is more than that."""
    counted = re.sub(r"^(?:of\s+)?(?:the\s+)?", "", rest, flags=re.IGNORECASE).casefold().split()
    if len(counted) > 2 or not all(re.fullmatch(r"[^\W\d_]{2,}", word) for word in counted):
        return None
    if not counted:
        return ""
    last = counted[-1]
    if len(last) > 3 and last.endswith("s") and not last.endswith("ss"):
        last = last[:-1]
    return " ".join([*counted[:-1], last])


def _items(text: str) -> Items | None:
    """A list of at least two items, or None."""
    lines = [_BULLET.sub("", line) for line in text.strip().splitlines()]
    joined = "\n".join(_LEAD.sub("", line) for line in lines if line.strip())
    parts = [part for part in _BETWEEN_ITEMS.split(joined.strip("[](){} ")) if part.strip()]
    if len(parts) < 2 or any(len(part.split()) > 6 for part in parts):
        return None
    members: list[Value] = []
    for part in parts:
        plain = _plain(part)
        typed = _yes_no(plain) or _one_value(plain) or _quantities(plain)
        member = typed[0] if typed else Text(names.words(plain))
        if isinstance(member, Text) and not member.words:
            return None
        members.append(member)
    return Items(tuple(dict.fromkeys(members)))
