"""Numbers as people write them: digits, fractions, scales and words; in English conventions."""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

SCALES = {
    "hundred": 10**2,
    "k": 10**3,
    "thousand": 10**3,
    "mn": 10**6,
    "million": 10**6,
    "bn": 10**9,
    "billion": 10**9,
    "tn": 10**12,
    "trillion": 10**12,
    "quadrillion": 10**15,
    "dozen": 12,
}
_SMALL = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen
"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: value for value, word in enumerate(_SMALL.split())} | {
    word: 10 * value for value, word in enumerate(_TENS.split(), start=2)
}
_SIGNS = map(chr, range(0xBC, 0x2190))
_VULGAR = "".join(sign for sign in _SIGNS if unicodedata.name(sign, "").startswith("VULGAR"))
_SIGN = r"(?P<sign>[-+−–]\s?)?"
_NUMERAL = re.compile(
    _SIGN
    + r"(?:(?P<whole>\d+)\s+)?(?P<over>\d+)\s?[/⁄]\s?(?P<under>[1-9]\d*)(?![\d/])"
    + rf"|(?P<sign2>[-+−–]\s?)?(?P<whole2>\d+)?\s?(?P<vulgar>[{_VULGAR}])"
    + r"|(?P<sign3>[-+−–]\s?)?(?P<digits>\d[\d.,'  _]*\d|\d|\.\d+)"
    + r"(?:\s?[x×*]\s?10\s?(?:\^|\*\*)?\s?(?P<power>[-+−]?\d+|[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)"
    + r"|e(?P<exponent>[-+−]?\d+)(?![a-z\d]))?",
    re.IGNORECASE,
)
_POWER = re.compile(r"^10\s?(?:\^|\*\*)\s?([-+−]?\d{1,3})(?!\d)")
_ONE = re.compile(
    r"^an?\s+(?=(?:hundred|thousand|million|billion|trillion|dozen)\b)", re.IGNORECASE
)
#: The widest power of ten that is read: beyond it a float is infinite or zero.
_WIDEST = 300


class Numeral(NamedTuple):
    """A number read at the start of a text.

    Attributes:
        value: exact.
        last_digit: the worth of the last digit written (0.1 for "2.5"); 0 for a fraction.
        rest: what follows, stripped.
    """

    value: Fraction
    last_digit: Fraction
    rest: str


def read(text: str) -> Numeral | None:
    """Read the number that a text starts with, or None."""
    text = _POWER.sub(r"1e\1", text)
    text = _ONE.sub("one ", text)
    found = _read_digits(text) or _read_words(text)
    return None if found is None or abs(found.value) > 10**_WIDEST else found


def all_in(text: str) -> list[str]:
    """Every number written in digits in a text, in one form and order, to be compared."""
    found = []
    for match in re.finditer(r"\d[\d.,]*", text):
        written = match.group().rstrip(".,")
        read_as = _digits(written) if len(written) <= _WIDEST else None
        found.append(str(read_as[0]) if read_as else written)
    return sorted(found)


def _read_digits(text: str) -> Numeral | None:
    match = _NUMERAL.match(text)
    if match is None:
        return None
    part = match.groupdict()
    if len(match.group()) > _WIDEST:
        return None
    last_digit = Fraction(0)
    if part["over"]:
        value = Fraction(int(part["whole"] or 0)) + Fraction(int(part["over"]), int(part["under"]))
    elif part["vulgar"]:
        tenth = unicodedata.numeric(part["vulgar"])
        value = int(part["whole2"] or 0) + Fraction(tenth).limit_denominator(1000)
    else:
        plain = _digits(part["digits"])
        power = int(_ascii_power(part["power"] or part["exponent"] or "0"))
        if plain is None or abs(power) > _WIDEST:
            return None
        value, last_digit = plain[0] * Fraction(10) ** power, plain[1] * Fraction(10) ** power
    if (part["sign"] or part["sign2"] or part["sign3"] or "+").strip() != "+":
        value = -value
    return _scaled(value, last_digit, text[match.end() :])


def _scaled(value: Fraction, last_digit: Fraction, rest: str) -> Numeral:
    while match := re.match(r"([\s-]*)([a-z]+)\b", rest, re.IGNORECASE):
        scale = SCALES.get(match.group(2).lower())
        if scale is None or (match.group(2) in "kK" and match.group(1)):
            break  # "5k" is five thousand, "5 K" are kelvin
        value, last_digit, rest = value * scale, last_digit * scale, rest[match.end() :]
    return Numeral(value, last_digit, rest.strip())


def _ascii_power(text: str) -> str:
    return text.translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺−", "0123456789-+-"))


def _digits(text: str) -> tuple[Fraction, Fraction] | None:
    """The value of digits with separators and the worth of the last digit; None if malformed."""
    text = re.sub(r"[  _']", "_", text)
    if re.fullmatch(r"\d{1,3}(_\d{3})+([.,]\d+)?", text):
        text = text.replace("_", "").replace(",", ".")
    elif "_" in text:
        return None
    elif re.fullmatch(r"\d{1,3}(\.\d{3})+,\d+|\d{1,3}(\.\d{3}){2,}", text):
        text = text.replace(".", "").replace(",", ".")  # 1.234,5 and 1.234.567
    elif re.fullmatch(r"\d{1,3}(,\d{2,3})*,\d{3}(\.\d+)?", text):
        text = text.replace(",", "")  # 1,234.5 and, in India, 12,34,567
    elif re.fullmatch(r"\d+,\d{1,2}", text):
        text = text.replace(",", ".")  # 1,5
    if not re.fullmatch(r"\d*\.?\d+|\d+\.", text):
        return None
    decimals = len(text.partition(".")[2])
    return Fraction(text.rstrip(".")), Fraction(1, 10**decimals)


def _read_words(text: str) -> Numeral | None:
    """Numbers in words: "twenty-one", "two hundred and five", "three million"."""
    total = current = Fraction(0)
    end, seen = 0, False
    sign = re.match(r"(minus|negative)\s+", text, re.IGNORECASE)
    position = sign.end() if sign else 0
    for match in re.finditer(r"[\s-]*([a-z]+)\b", text[position:], re.IGNORECASE):
        if match.start() != end and seen:
            break
        word = match.group(1).lower()
        if word in _WORDS and (match.start() == end):
            current += _WORDS[word]
        elif word in SCALES and seen and SCALES[word] < 1000:
            current *= SCALES[word]
        elif word in SCALES and seen:
            total, current = total + current * SCALES[word], Fraction(0)
        elif word == "and" and seen and _continues(text[position + match.end() :]):
            end = match.end()
            continue
        else:
            break
        end, seen = match.end(), True
    if not seen:
        return None
    value = -(total + current) if sign else total + current
    return Numeral(value, Fraction(1), text[position + end :].strip())


def _continues(rest: str) -> bool:
    match = re.match(r"[\s-]*([a-z]+)\b", rest, re.IGNORECASE)
    return bool(match) and match.group(1).lower() in _WORDS
