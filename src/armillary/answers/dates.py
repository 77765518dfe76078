"""Dates as people write them, read by python-dateutil and told apart by what they leave open."""

from __future__ import annotations

import datetime
import re
from typing import Any

from armillary.answers.values import Date
from armillary.errors import require

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"\d{4}"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\.?,?\s+)?"
_NAMED = re.compile(
    rf"{_WEEKDAY}(?:(?:the\s+)?{_DAY}\s+(?:of\s+)?{_MONTH},?\s+{_YEAR}"
    rf"|{_MONTH}\s+(?:the\s+)?{_DAY},?\s+{_YEAR}"
    rf"|{_DAY}-{_MONTH}-{_YEAR}"
    rf"|{_YEAR},?\s+{_MONTH}\s+{_DAY}"
    rf"|(?P<month>{_MONTH},?\s+(?:of\s+)?{_YEAR}|{_YEAR},?\s+{_MONTH}))"
)
_ISO = re.compile(r"(\d{4})([-/.])(\d{1,2})(?:\2(\d{1,2}))?(?:[t ]00:00(?::00)?z?)?")
_SLASHED = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4})")
_YEAR_ONLY = re.compile(r"(?:the\s+)?year\s+(?:of\s+)?(\d{4})")


def read(text: str) -> tuple[Date, ...]:
    """The dates that a whole text may mean: none, one, or both orders of "5/6/2023".

    A number alone is no date, though four digits may be a year: see ``values.agree``.
    """
    text = " ".join(text.lower().split())
    text = re.sub(r"^(?:on|in|at|since|during)\s+", "", text)
    if match := _YEAR_ONLY.fullmatch(text):
        return (Date(int(match.group(1))),)
    if match := _ISO.fullmatch(text):
        year, month, day = match.group(1), match.group(3), match.group(4)
        if day is None and match.group(2) != "-":
            return ()  # "2023/5" is as well a fraction, "2023.5" a number
        return _valid(year, month, day)
    if match := _SLASHED.fullmatch(text):
        one, two, year = match.group(1), match.group(3), match.group(4)
        return tuple(dict.fromkeys((*_valid(year, one, two), *_valid(year, two, one))))
    if match := _NAMED.fullmatch(text):
        return _named(text, whole_month=match.group("month") is not None)
    return ()


def _named(text: str, *, whole_month: bool) -> tuple[Date, ...]:
    parser: Any = require("dateutil.parser", what="comparing answers", extra="models")
    plain = re.sub(r"\bthe\b|\bof\b|,", " ", text)
    try:
        read_as = parser.parse(plain, default=datetime.datetime(2000, 1, 1))
    except (ValueError, OverflowError):
        return ()
    return (Date(read_as.year, read_as.month, None if whole_month else read_as.day),)


def _valid(year: str, month: str, day: str | None) -> tuple[Date, ...]:
    try:
        datetime.date(int(year), int(month), int(day or 1))
    except ValueError:
        return ()
    return (Date(int(year), int(month), int(day) if day else None),)
