"""The types of value that an answer can have, and when two of one type agree."""

from __future__ import annotations

import dataclasses
import math

#: Numbers in one unit agree to this relative difference: only binary rounding is forgiven.
EXACT = 1e-9
#: Numbers that were written in different units agree to half a unit of the coarser one's last
#: digit, but never further apart than this share of them.
CONVERTED = 0.01


@dataclasses.dataclass(frozen=True)
class Number:
    """A number, with a unit or a counted thing or neither.

    Attributes:
        value: in the SI unit of its dimension (15 % is 0.15; 5 km is 5000; °F is kelvin).
        dimension: ``length``, ``mass``, … or empty.
        unit: the unit as written, in its usual sign, or empty.
        noun: what is counted ("apples"), in lower case, or empty.
        half_digit: half a unit of the last digit that was written, in the SI unit.
    """

    value: float
    dimension: str = ""
    unit: str = ""
    noun: str = ""
    half_digit: float = 0.0

    def agrees(self, other: Number) -> bool:
        """Whether both are the same quantity.

        A counted thing may be left out ("5" and "5 apples"), a unit may not ("5" and "5 km").
        """
        if self.dimension != other.dimension:
            return False
        if self.noun and other.noun and self.noun != other.noun:
            return False
        apart = abs(self.value - other.value)
        larger = max(abs(self.value), abs(other.value))
        if self.unit == other.unit or not self.dimension:
            return math.isclose(self.value, other.value, rel_tol=EXACT, abs_tol=0.0)
        allowed = min(max(self.half_digit, other.half_digit), CONVERTED * larger)
        return apart <= max(allowed, EXACT * larger)


@dataclasses.dataclass(frozen=True)
class Money:
    """An amount of money.

    Attributes:
        amount: in the currency's main unit.
        currencies: ISO 4217 codes that the sign or name may mean ("$" is any dollar).
    """

    amount: float
    currencies: frozenset[str]

    def agrees(self, other: Money) -> bool:
        """Whether the amounts are equal and one currency fits both."""
        equal = math.isclose(self.amount, other.amount, rel_tol=EXACT, abs_tol=0.0)
        return equal and bool(self.currencies & other.currencies)


@dataclasses.dataclass(frozen=True)
class Currency:
    """A currency without an amount.

    Attributes:
        codes: ISO 4217 codes that the name may mean ("dollar" is many).
    """

    codes: frozenset[str]

    def agrees(self, other: Currency) -> bool:
        """Whether both may mean exactly the same currencies ("dollar" is not "US dollar")."""
        return self == other


@dataclasses.dataclass(frozen=True)
class Offset:
    """A difference from UTC in minutes, east of it positive."""

    minutes: int

    def agrees(self, other: Offset) -> bool:
        """Whether both are the same difference."""
        return self == other


@dataclasses.dataclass(frozen=True)
class Clock:
    """A time of day, in seconds since midnight."""

    seconds: int

    def agrees(self, other: Clock) -> bool:
        """Whether both are the same time."""
        return self == other


@dataclasses.dataclass(frozen=True)
class Date:
    """A day, a month (``day`` is None) or a year (``month`` is None too).

    Months and years are spans: they agree with the same span only, not with a day inside.
    """

    year: int
    month: int | None = None
    day: int | None = None

    def agrees(self, other: Date) -> bool:
        """Whether both are the same span."""
        return self == other


@dataclasses.dataclass(frozen=True)
class YesNo:
    """Yes (True) or no."""

    value: bool

    def agrees(self, other: YesNo) -> bool:
        """Whether both say the same."""
        return self == other


@dataclasses.dataclass(frozen=True)
class Text:
    """Words without a type: a name, a phrase.

    Attributes:
        words: lower case, without accents, punctuation and articles.
    """

    words: tuple[str, ...]

    def agrees(self, other: Text) -> bool:
        """Whether the words are the same, in the same order."""
        return self == other


@dataclasses.dataclass(frozen=True)
class Items:
    """A list whose order and repeats do not matter.

    Attributes:
        members: each item's value.
    """

    members: tuple[Value, ...]

    def agrees(self, other: Items) -> bool:
        """Whether each side's every member agrees with one of the other's."""
        return all(
            any(agree(one, two) for two in right)
            for left, right in ((self.members, other.members), (other.members, self.members))
            for one in left
        )


Value = Number | Money | Currency | Offset | Clock | Date | YesNo | Text | Items


def is_typed(value: Value) -> bool:
    """Whether a value is more than words: a different one is then another answer for certain."""
    if isinstance(value, Items):
        return any(is_typed(member) for member in value.members)
    return not isinstance(value, Text)


def agree(one: Value, two: Value) -> bool:
    """Whether two values agree; a bare number may be a year."""
    for left, right in ((one, two), (two, one)):
        if isinstance(left, Number) and isinstance(right, Date):
            bare = not (left.dimension or left.noun)
            return bare and right.month is None and left.value == right.year
    return type(one) is type(two) and one.agrees(two)  # pyright: ignore[reportArgumentType]
