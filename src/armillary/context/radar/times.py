"""When something was observed, as one number that can be compared."""

from __future__ import annotations

import calendar
import contextlib
import datetime as dt
import math
import re
from typing import Any

#: When something was observed: a number (a year, a Unix time), an ISO date or date-time, or a date.
Time = int | float | str | dt.date

#: Years end here, Unix times begin there: what lies on both sides is not comparable.
_LAST_YEAR, _FIRST_UNIX = 10_000, 1e8


def as_number(time: Time | None) -> float | None:
    """A time as a number: numbers and bare years as they are, dates as years with a fraction.

    Raises:
        TypeError: it is no number, text or date.
        ValueError: it is no finite number and no ISO date.
    """
    if time is None:
        return None
    if isinstance(time, bool) or not isinstance(time, (int, float, str, dt.date)):
        raise TypeError(f"time: got a {type(time).__name__}, give a number, an ISO date or a date")
    if isinstance(time, str):
        time = _read(time.strip())
    if isinstance(time, (int, float)):
        return _finite(time)
    moment = time if isinstance(time, dt.datetime) else dt.datetime(*time.timetuple()[:3])
    if moment.tzinfo is not None:
        with contextlib.suppress(OverflowError):  # the first and last day of the calendar
            moment = moment.astimezone(dt.UTC)
        moment = moment.replace(tzinfo=None)
    days = 366 if calendar.isleap(moment.year) else 365
    return moment.year + (moment - dt.datetime(moment.year, 1, 1)) / dt.timedelta(days=days)


def unlike(one: float, two: float) -> bool:
    """Whether one is a year or date and the other a Unix time."""
    low, high = sorted((one, two))
    return low < _LAST_YEAR and high >= _FIRST_UNIX


def _finite(time: Any) -> float:
    try:
        number = float(time)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"time={str(time)[:40]}: give a finite number or a date")
    return number


def _read(text: str) -> dt.datetime | float:
    """A number, or an ISO date; eight digits that are a date are one ("20230131")."""
    if not re.fullmatch(r"[12]\d{7}", text):
        with contextlib.suppress(ValueError):
            return float(text)
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        with contextlib.suppress(ValueError):
            return float(text)
        raise ValueError(
            f"time={text[:60]!r}: give a number, a year or an ISO date such as 2023-01-31"
        ) from None
