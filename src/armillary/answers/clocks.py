"""Times of day and offsets from UTC, as people write them."""

from __future__ import annotations

import re

from armillary.answers.values import Clock, Offset

_OFFSET = re.compile(
    r"(?:utc|gmt)(?:\s?(?P<sign>[-+−–±])\s?"
    r"(?:(?P<hours>\d{1,2})(?::(?P<minutes>\d{2}))?|(?P<whole>\d{4})))?"
)
_TIME = re.compile(
    r"(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?\s?([ap])\.?\s?m\.?|(\d{1,2}):(\d{2})(?::(\d{2}))?"
)
_NAMED = {"noon": 12 * 3600, "midday": 12 * 3600, "midnight": 0}
#: The widest offset in use is +14:00 (Line Islands).
_WIDEST = 14 * 60


def read(text: str) -> tuple[Clock | Offset, ...]:
    """The offset or time of day that a whole text names, or nothing.

    "UTC+1", "GMT+01:00" and "UTC+0100" are one offset; "12 pm", "12:00" and "noon" one time. A time
    without am or pm is one of 24 hours.
    """
    text = " ".join(text.lower().split())
    if match := _OFFSET.fullmatch(text):
        return _offset(match)
    text = re.sub(r"^at\s+", "", text)
    if text in _NAMED:
        return (Clock(_NAMED[text]),)
    if match := _TIME.fullmatch(text):
        return _clock(match)
    return ()


def _offset(match: re.Match[str]) -> tuple[Offset, ...]:
    whole = match["whole"]
    hours = int((whole[:2] if whole else match["hours"]) or 0)
    minutes = int((whole[2:] if whole else match["minutes"]) or 0)
    total = 60 * hours + minutes
    if minutes > 59 or total > _WIDEST or (match["sign"] == "±" and total):
        return ()
    return (Offset(-total if match["sign"] in ("-", "−", "–") else total),)


def _clock(match: re.Match[str]) -> tuple[Clock, ...]:
    half = match[4]
    hours, minutes, seconds = (
        int(part or 0) for part in match.groups()[slice(0, 3) if half else slice(4, 7)]
    )
    if minutes > 59 or seconds > 59 or not (1 <= hours <= 12 if half else hours <= 23):
        return ()
    if half:
        hours = hours % 12 + (12 if half == "p" else 0)
    return (Clock(3600 * hours + 60 * minutes + seconds),)
