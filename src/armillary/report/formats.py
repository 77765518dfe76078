"""How numbers, names and dates read on a page: a missing number is a dash, never a crash."""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

DASH = "–"
_MINUS, _THIN = "\u2212", "\u202f"


def real(value: Any) -> float | None:
    """The value as a finite float, or None when it is no finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def number(value: Any, digits: int = 3) -> str:
    """A number to ``digits`` significant digits; a dash when there is none.

    Magnitudes from 1e-4 up to 1e6 are written out (thousands apart by a thin space, and no digit
    before the decimal point is dropped), others with a power of ten. Whole numbers below 1e6 keep
    all their digits.
    """
    x = real(value)
    if x is None:
        return DASH
    if x == 0:
        return "0"
    if x == round(x) and abs(x) < 1e6:
        return _signed(f"{abs(x):,.0f}".replace(",", _THIN), x)
    mantissa, exponent = f"{abs(x):.{digits - 1}e}".split("e")
    if -4 <= int(exponent) < 6:
        places = max(digits - 1 - int(exponent), 0)
        return _signed(f"{abs(x):,.{places}f}".replace(",", _THIN), x)
    power = str(int(exponent)).replace("-", _MINUS)
    return _signed(f"{mantissa}e{power}", x)


def _signed(digits: str, x: float) -> str:
    return f"{_MINUS}{digits}" if x < 0 else digits


def interval(low: Any, high: Any) -> str:
    """``[low, high]``, or a dash when neither end is known."""
    if real(low) is None and real(high) is None:
        return DASH
    return f"[{number(low)}, {number(high)}]"


def stated(value: Any) -> str:
    """A number as someone wrote it (a bound, a margin): no digit more, none less (up to six)."""
    x = real(value)
    return DASH if x is None else f"{x:.6g}".replace("-", _MINUS)


def bound(at_most: Any, at_least: Any) -> str:
    """``≤ 0.97``, ``≥ 4``, or a band ``0.88 to 0.92``."""
    most, least = real(at_most), real(at_least)
    if most is not None and least is not None:
        return f"{stated(least)} to {stated(most)}"
    if most is not None:
        return f"≤ {stated(most)}"
    return DASH if least is None else f"≥ {stated(least)}"


def duration(seconds: Any) -> str:
    """Seconds as a person says them: ``0.42 s``, ``3 min 5 s``, ``2 h 10 min``."""
    s = real(seconds)
    if s is None:
        return DASH
    if s < 60:
        return f"{number(s)} s"
    minutes, rest = divmod(round(s), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def day(moment: Any) -> str:
    """The date of an ISO time or of seconds since 1970: ``30 Nov 2026``; a dash if unknown."""
    try:
        if isinstance(moment, str):
            when = datetime.datetime.fromisoformat(moment)
        elif (seconds := real(moment)) is not None:
            when = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        else:
            return DASH
    except (ValueError, OverflowError, OSError):
        return moment if isinstance(moment, str) and moment else DASH
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    return f"{when.day} {months[when.month - 1]} {when.year}"


def file_stem(name: str) -> str:
    """A file name that is safe on any system and differs for names that differ.

    Plain slugs stay as they are; anything else is reduced to plain letters and carries a digest
    of the whole name.
    """
    if re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name) and name != "index":
        return name
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40].strip("-")
    digest = hashlib.sha256(name.encode("utf-8", errors="surrogatepass")).hexdigest()[:10]
    return f"{plain}-{digest}" if plain else digest


def flatten(value: Any, prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as (dotted name, text) pairs, in their order."""
    if isinstance(value, Mapping):
        pairs: list[tuple[str, str]] = []
        for key, item in value.items():
            pairs += flatten(item, f"{prefix}.{key}" if prefix else str(key))
        return pairs
    if isinstance(value, (list, tuple)):
        return [(prefix, ", ".join(_plain(item) for item in value) or DASH)]
    return [(prefix, _plain(value))]


def _plain(value: Any) -> str:
    if value is None or value == "":
        return DASH
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:.6g}" if isinstance(value, float) else str(value)
    return str(value)
