"""How numbers and names read: exact texts, and properties over all numbers and names."""

from __future__ import annotations

import datetime
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.report import formats

_TO_PLAIN = str.maketrans({"\u2212": "-", "\u202f": None})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.96543, "0.965"),
        (0.97, "0.970"),
        (1234.7, "1\u202f235"),
        (12, "12"),
        (300_000, "300\u202f000"),
        (-0.5, "\u22120.500"),
        (0.000012345, "1.23e\u22125"),
        (2.5e9, "2.50e9"),
        (9.996, "10.0"),
        (999999.7, "1.00e6"),
        (0, "0"),
        (-0.0, "0"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        ("0.3", "–"),
        (True, "–"),
    ],
)
def test_numbers_keep_three_digits_and_missing_ones_are_a_dash(value: object, text: str) -> None:
    assert formats.number(value) == text


@given(st.floats(-1e307, 1e307))
def test_a_written_number_is_within_half_a_unit_of_its_third_digit(value: float) -> None:
    text = formats.number(value).translate(_TO_PLAIN)
    assert math.isclose(float(text), value, rel_tol=5.1e-3, abs_tol=1e-320)


@pytest.mark.parametrize(
    ("at_most", "at_least", "text"),
    [
        (0.97, None, "≤ 0.97"),
        (None, 4, "≥ 4"),
        (0.92, 0.88, "0.88 to 0.92"),
        (None, None, "–"),
        (0, None, "≤ 0"),
    ],
)
def test_bounds_read_as_they_were_stated(at_most: object, at_least: object, text: str) -> None:
    assert formats.bound(at_most, at_least) == text


def test_an_interval_shows_the_end_that_it_has() -> None:
    assert formats.interval(0.1, 0.25) == "[0.100, 0.250]"
    assert formats.interval(None, 0.25) == "[–, 0.250]"
    assert formats.interval(None, None) == "–"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.417, "0.417 s"), (59.4, "59.4 s"), (185, "3 min 5 s"), (7800, "2 h 10 min"), (None, "–")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


def test_days_from_iso_times_and_from_seconds() -> None:
    moment = datetime.datetime(2026, 11, 3, 23, 59, tzinfo=datetime.UTC)
    assert formats.day(moment.isoformat()) == "3 Nov 2026"
    assert formats.day(moment.timestamp()) == "3 Nov 2026"
    assert formats.day("last week") == "last week"
    assert formats.day(None) == "–"
    assert formats.day(1e300) == "–"


def test_a_slug_is_its_own_file_name() -> None:
    assert formats.file_stem("maxmin-morl") == "maxmin-morl"
    assert formats.file_stem("index") != "index"


@given(st.text(max_size=300))
def test_any_name_gives_a_safe_file_name(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", formats.file_stem(name))


@given(st.text(max_size=60), st.text(max_size=60))
def test_names_that_differ_get_files_that_differ(one: str, other: str) -> None:
    assert (formats.file_stem(one) == formats.file_stem(other)) == (one == other)


def test_settings_are_flattened_in_their_order() -> None:
    nested = {"machine": {"cpu": "x", "memory_gib": 7.8}, "seeds": [0, 1], "commit": None}
    assert formats.flatten(nested) == [
        ("machine.cpu", "x"),
        ("machine.memory_gib", "7.8"),
        ("seeds", "0, 1"),
        ("commit", "–"),
    ]
