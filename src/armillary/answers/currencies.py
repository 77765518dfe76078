"""Currencies by ISO 4217 code, sign and English name, from the Unicode CLDR by way of Babel."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from typing import Any

from armillary.errors import MissingExtra, require

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
#: Codes that are words or first names too: by themselves they name no currency.
_WORD_CODES = "all amd ang bam bob cad cup gel mad mop pen ron rub sos top try"
_WORDS = frozenset(_WORD_CODES.split())
#: Precious metals, drawing rights, bonds and test codes: codes of no country's money.
_NO_MONEY_CODES = "XAG XAU XBA XBB XBC XBD XDR XFO XFU XPD XPT XRE XSU XTS XUA XXX"
_NO_MONEY = frozenset(_NO_MONEY_CODES.split())
_NAME = re.compile(r"(?:the\s+)?(?P<name>[^\d()]{1,40}?)(?:\s?\((?P<beside>[^\d()]{1,40})\))?")


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


def bare(text: str) -> tuple[frozenset[str], bool]:
    """The codes that a whole text names without an amount, and whether it can mean nothing else.

    "EUR", "euros", "€" and "the euro (EUR)" name one currency and nothing else; "kuna" and "real"
    are words that name one too. Nothing where Babel is absent.
    """
    match = _NAME.fullmatch(" ".join(text.split()))
    if match is None:
        return frozenset(), False
    try:
        both = match["beside"] is not None
        codes, certain = _named(match["name"], words=both)
        if both:
            beside, sure = _named(match["beside"], words=True)
            codes, certain = codes & beside, certain or sure
    except MissingExtra:
        return frozenset(), False
    return codes, certain and bool(codes)


def _named(name: str, *, words: bool) -> tuple[frozenset[str], bool]:
    plain = " ".join(name.lower().split())
    codes = find(plain) or frozenset()
    codes -= _NO_MONEY
    if (plain in _WORDS and not words) or len(plain) == 2:
        return frozenset(), False
    return codes, len(codes) == 1 and (plain in _full_names())


@functools.cache
def _full_names() -> frozenset[str]:
    """Codes, signs and whole names; not the last words of names."""
    babel: Any = require("babel", what="comparing answers", extra="models")
    numbers: Any = require("babel.numbers", what="comparing answers", extra="models")
    english = babel.Locale("en")
    names = {
        numbers.get_currency_name(code, count=count, locale=english).lower()
        for code in english.currencies
        for count in (1, 2)
    }
    codes = {code.lower() for code in english.currencies}
    return frozenset(names | codes | {"€", "£"})
