"""Currencies by ISO 4217 code, sign and English name, from the Unicode CLDR by way of Babel."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from typing import Any

from armillary.errors import require

#: Signs and names in daily use that CLDR's English does not give.
_SIGNS = {
    "us$": "USD",
    "c$": "CAD",
    "au$": "AUD",
    "¥": "CNY",
    "₽": "RUB",
    "zł": "PLN",
    "pounds sterling": "GBP",
}


@functools.cache
def table() -> dict[str, frozenset[str]]:
    """Currency codes by every code, sign and name that may mean them, in lower case.

    The last word of a name means all currencies that end in it ("dollar": any dollar) unless it is
    a whole name itself ("euro"); a sign means all that share it.
    """
    babel: Any = require("babel", what="comparing answers", extra="models")
    numbers: Any = require("babel.numbers", what="comparing answers", extra="models")
    english = babel.Locale("en")
    full: defaultdict[str, set[str]] = defaultdict(set)
    short: defaultdict[str, set[str]] = defaultdict(set)
    for code in english.currencies:
        names = {
            numbers.get_currency_name(code, count=count, locale=english).lower() for count in (1, 2)
        }
        if any("(" in name for name in names):
            continue  # no longer in use, or no money: CLDR says so in brackets
        for name in names:
            full[name].add(code)
            short[name.split()[-1]].add(code)
            if name.startswith("us "):
                full[f"u.s. {name[3:]}"].add(code)
                full[f"american {name[3:]}"].add(code)
        full[code.lower()].add(code)
        sign = numbers.get_currency_symbol(code, locale=english).lower()
        full[sign].add(code)
        if narrow := re.search(r"[^\w\s.]$", sign):
            full[narrow.group()].add(code)
    for sign, code in _SIGNS.items():
        full[sign].add(code)
    full["kr"] |= {"SEK", "NOK", "DKK", "ISK"}
    full["$"] |= short["dollar"]
    full["rs"] |= short["rupee"]
    full.pop("¤", None)  # CLDR's sign for a currency that has none
    return {name: frozenset(codes) for name, codes in (short | full).items()}


def find(name: str) -> frozenset[str] | None:
    """The codes that a code, sign or name may mean, or None."""
    return table().get(" ".join(name.lower().split()))
