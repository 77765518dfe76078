"""Which answers are the same: tables of pairs, and what holds for any pair."""

from __future__ import annotations

import datetime
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary import answers
from armillary.answers import currencies
from armillary.errors import MissingExtra

SAME_VALUES = [
    ("15 %", "0.15"),
    ("15%", "15 percent"),
    ("15 per cent", "fifteen percent"),
    ("1,000", "1000"),
    ("1 000 000", "1 million"),
    ("1.5 million", "1,500,000"),
    ("3e5", "300000"),
    ("3 × 10^5", "3×10⁵"),
    ("½", "0.5"),
    ("2½", "2.5"),
    ("3 1/2", "3.5"),
    ("12 million", "1.2e7"),
    ("1.234,5", "1234.5"),
    ("twenty-one", "21"),
    ("two hundred and five", "205"),
    ("three million", "3,000,000"),
    ("The answer is 42.", "42"),
    ("about 42", "42"),
    ("−4", "-4"),
    ("minus four", "-4"),
    ("5 apples", "5"),
    ("5 apples", "five apple"),
    ("5 km", "5000 m"),
    ("5 km", "5 kilometres"),
    ("1 mile", "1.609344 km"),
    ("3.1 mi", "5 km"),
    ("10 lb", "4.5359237 kg"),
    ("100 °C", "212 °F"),
    ("37.8 °C", "100 °F"),
    ("0 degrees Celsius", "273.15 K"),
    ("90 min", "1.5 hours"),
    ("100 km/h", "62.1 mph"),
    ("2 l", "2000 mL"),
    ("5 May 2023", "2023-05-05"),
    ("May 5th, 2023", "2023-05-05"),
    ("the 5th of May 2023", "Friday, May 5, 2023"),
    ("on 5 May 2023", "5-May-2023"),
    ("31/12/2023", "December 31, 2023"),
    ("5/6/2023", "5 June 2023"),
    ("5/6/2023", "May 6, 2023"),
    ("May 2023", "2023-05"),
    ("the year 1999", "1999"),
    ("€5", "5 EUR"),
    ("€5", "5 euros"),
    ("EUR 5", "5 euro"),
    ("$5", "5 USD"),
    ("$5", "5 dollars"),
    ("$5", "C$5"),
    ("5 Canadian dollars", "CAD 5.00"),
    ("$1.5M", "1.5 million dollars"),
    ("5M", "5 million"),
    ("5m", "5 metres"),
    ("a hundred", "100"),
    ("10^6", "a million"),
    ("Rs 500", "500 INR"),
    ("£3.2 million", "3,200,000 British pounds"),
    ("5 pounds", "£5"),
    ("5 pounds", "5 lb"),
    ("¥100", "100 yen"),
    ("-$4", "-4 dollars"),
    ("3rd", "3"),
    ("1 day", "24 hours"),
    ("yes", "Yes."),
    ("Yes, it does", "true"),
    ("No, because it is late", "no"),
    ("3, 4 and 5", "5; 4; 3"),
    ("UTC+1", "UTC+01:00"),
    ("UTC+1", "GMT+1"),
    ("UTC+0530", "GMT +5:30"),
    ("UTC−3", "UTC-3"),
    ("UTC", "GMT+0"),
    ("UTC±0", "UTC"),
    ("EUR", "euro"),
    ("euros", "the euro (EUR)"),
    ("euro", "€"),
    ("EUR (euro)", "Euro."),
    ("Croatian kuna", "HRK"),
    ("US dollar", "USD"),
    ("CAD (Canadian dollar)", "Canadian dollars"),
    ("12:00", "12 pm"),
    ("noon", "12:00 p.m."),
    ("3:30 pm", "15:30"),
    ("midnight", "12 am"),
]

SAME_WORDS = [
    ("Paris", "paris."),
    ("The Beatles", "Beatles"),
    ("São Paulo", "Sao Paulo"),
    ("U.S.A.", "USA"),
    ("rock 'n' roll", "rock n roll"),
    ("It was Napoleon", "Napoleon"),
    ("France, Spain and Italy", "Italy, France, Spain"),
    ("- France\n- Spain", "Spain; France"),
]

#: Short words that name a currency and may mean something else.
SAME_MONEY = [("kuna", "Croatian kuna"), ("kuna", "HRK"), ("zloty", "Polish zloty")]

ALIASES = [
    ("Obama", "Barack Obama"),
    ("President Obama", "Barack Obama"),
    ("B. Obama", "Barack Obama"),
    ("J. R. R. Tolkien", "John Ronald Reuel Tolkien"),
    ("JRR Tolkien", "John Ronald Reuel Tolkien"),
    ("Dr. Marie Curie", "Marie Curie"),
    ("John Kennedy", "John F. Kennedy"),
    ("UN", "United Nations"),
    ("USA", "United States of America"),
    ("USA", "United States"),
    ("U.S.", "USA"),
    ("UK", "the United Kingdom of Great Britain"),
]

DIFFERENT = [
    ("32 %", "15 %"),
    ("15 %", "15"),
    ("1,000", "1,001"),
    ("1.5 million", "1.5 billion"),
    ("5 km", "5 mi"),
    ("5 km", "3 mi"),
    ("5 km", "5"),
    ("5 kg", "5 km"),
    ("100 °C", "100 °F"),
    ("5 apples", "5 oranges"),
    ("5 May 2023", "6 May 2023"),
    ("5 May 2023", "May 2023"),
    ("May 2023", "2023"),
    ("May 2023", "June 2023"),
    ("13/6/2023", "6 December 2023"),
    ("€5", "$5"),
    ("€5", "€6"),
    ("C$5", "5 USD"),
    ("£5", "5"),
    ("yes", "no"),
    ("1980s", "1980"),
    ("3rd", "4th"),
    ("yes, 5", "yes, 6"),
    ("5 m", "5 million"),
    ("$1M", "$1B"),
    ("World War I", "World War II"),
    ("yes", "Paris"),
    ("7", "Paris"),
    ("3, 4 and 5", "3 and 4"),
    ("France and Spain", "France"),
    ("France and Spain", "France and Italy"),
    ("Paris", "London"),
    ("York", "New York"),
    ("Korea", "South Korea"),
    ("dog", "hot dog"),
    ("guilty", "not guilty"),
    ("Michelle Obama", "Barack Obama"),
    ("John Adams", "Jane Adams"),
    ("", "Paris"),
    ("UTC+1", "UTC+10"),
    ("UTC+1", "UTC-1"),
    ("UTC+1", "UTC"),
    ("UTC+1", "1"),
    ("UTC+5:30", "UTC+5:45"),
    ("UTC+130", "UTC+1:30"),
    ("UTC+99", "UTC+9"),
    ("EUR", "Europe"),
    ("euro", "eurozone"),
    ("EUR", "EUR 5"),
    ("euro", "dollar"),
    ("dollar", "US dollar"),
    ("US dollar", "Canadian dollar"),
    ("the euro (USD)", "EUR"),
    ("all", "Albanian lek"),
    ("try", "Turkish lira"),
    ("gold", "XAU"),
    ("12:00", "12 am"),
    ("12:00", "12"),
    ("3:30", "3:30 pm"),
    ("3 pm", "3"),
    ("25:00", "1 am"),
    ("USA", "USSR"),
    ("United States", "United Arab Emirates"),
    ("United States", "United Mexican States"),
]


class Flatterer:
    """An encoder for which everything is the same."""

    def encode(self, texts):
        return np.ones((len(texts), 1), np.float32)


@pytest.mark.parametrize(("one", "two"), SAME_VALUES)
def test_the_same_value(one, two):
    verdict = answers.same(one, two)
    assert (verdict.same, verdict.why, verdict.score) == (True, "value", 1.0)


@pytest.mark.parametrize(("one", "two"), SAME_WORDS)
def test_the_same_words(one, two):
    verdict = answers.same(one, two)
    assert (verdict.same, verdict.why) == (True, "text")


@pytest.mark.parametrize(("one", "two"), SAME_MONEY)
def test_a_short_name_of_money(one, two):
    assert answers.same(one, two).same
    assert answers.same(two, one).same


@pytest.mark.parametrize(("one", "two"), ALIASES)
def test_names_of_the_same(one, two):
    verdict = answers.same(one, two)
    assert (verdict.same, verdict.why) == (True, "alias")


@pytest.mark.parametrize(("one", "two"), DIFFERENT)
def test_different(one, two):
    assert not answers.same(one, two).same
    assert not answers.same(two, one).same


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("32 %", "15 %"),
        ("2019", "2020"),
        ("yes", "no"),
        ("5 May 2023", "5 June 2023"),
        ("€5", "€6"),
        ("3 and 4", "4 and 5"),
        ("7", "Paris"),
        ("32 % of all people asked in Ohio", "15 % of all people asked in Ohio"),
        ("it is legal", "it is not legal"),
        ("it isn't legal", "it is legal"),
        ("Henry VIII", "Henry VII"),
        ("Monday", "Tuesday"),
        ("North Korea", "South Korea"),
        ("more than 5", "less than 5"),
        ("at most 5", "at least 5"),
        ("George H. W. Bush", "George W. Bush"),
    ],
)
def test_no_embedding_makes_two_values_one(one, two):
    assert not answers.same(one, two, encoder=Flatterer()).same


def test_an_embedding_decides_between_words():
    assert not answers.same("automobile", "car", encoder=Flatterer(), threshold=1.1).same
    verdict = answers.same("automobile", "car", encoder=Flatterer())
    assert (verdict.same, verdict.why, verdict.score) == (True, "embedding", 1.0)
    assert answers.same("automobile", "car").why == "text"


def test_the_question_gives_the_unit_that_an_answer_leaves_out():
    assert answers.same("5", "5 km", question="How many kilometres is it?").same
    assert answers.same("5", "5000 m", question="How many km is it?").same
    assert not answers.same("5", "5000 m", question="How many miles is it?").same
    assert answers.same("15", "0.15", question="What percentage voted?").same
    assert not answers.same("15", "15 %", question="How many voted?").same


def test_a_surname_is_a_name_only_of_a_person():
    assert answers.same("Hilton", "Paris Hilton", question="Who owned it?").same
    assert not answers.same("Hilton", "Paris Hilton", question="Which hotel was it?").same


def test_values_are_in_si_units():
    fahrenheit = answers.parse("212 °F")
    assert isinstance(fahrenheit, answers.Number)
    assert fahrenheit.value == pytest.approx(373.15)  # water boils
    assert fahrenheit.dimension == "temperature"
    mile = answers.parse("1 mi")
    assert isinstance(mile, answers.Number)
    assert mile.value == 1609.344  # exact by definition (1959)
    assert not isinstance(answers.parse("February 30, 2023"), answers.Date)
    assert answers.readings("5/6/2023") == (answers.Date(2023, 5, 6), answers.Date(2023, 6, 5))


def test_what_is_no_string_is_refused():
    with pytest.raises(TypeError, match="give a string"):
        answers.parse(5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000,
        "1" + "0" * 299 + " trillion",
        "9e299 million",
        "1/" + "3" * 5000,
        "½" * 500,
        "one " + "hundred " * 400,
        "1e-9999",
        "$" + "9" * 400,
        "a" + "7" * 9000,
    ],
    ids=range(9),
)
def test_numbers_too_wide_for_a_float_are_compared_as_they_are_written(text):
    assert answers.same(text, text).same
    assert not answers.same(text, "5", encoder=Flatterer()).same


def test_a_missing_library_names_the_extra(monkeypatch):
    currencies.table.cache_clear()
    monkeypatch.setitem(sys.modules, "babel", None)
    with pytest.raises(MissingExtra, match=r"pip install 'armillary\[models\]'"):
        answers.same("5 EUR", "€5")


def test_names_are_compared_without_babel(monkeypatch):
    currencies.table.cache_clear()
    monkeypatch.setitem(sys.modules, "babel", None)
    assert answers.same("Paris", "paris").same
    assert not answers.same("Paris", "London").same


def test_nothing_heavy_is_loaded_for_values():
    code = (
        "import sys; from armillary import answers, corpora, models; "
        "models.Recording, models.scripted, models.Completion, corpora.EXTERNAL; "
        "assert answers.same('15 %', '0.15 ').same; "
        "print(sorted({'torch', 'transformers', 'pandas', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


texts = st.one_of(
    st.text(max_size=30),
    st.sampled_from([text for pair in SAME_VALUES + ALIASES + DIFFERENT for text in pair]),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.dates(min_value=datetime.date(1000, 1, 1)).map(str),
)


@given(texts)
def test_every_answer_is_the_same_as_itself(text):
    assert answers.same(text, text).same


@given(texts, texts)
def test_the_order_of_two_answers_does_not_matter(one, two):
    first, second = answers.same(one, two), answers.same(two, one)
    assert (first.same, first.why) == (second.same, second.why)


def blank_and_case(text: str) -> str:
    return f"  {text.upper() if text.upper().lower() == text.lower() else text} \t"


@given(texts, texts)
def test_case_and_white_space_do_not_matter(one, two):
    assert answers.same(one, two).same == answers.same(blank_and_case(one), two).same
    assert answers.same(one, blank_and_case(one)).same


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{:,}", "{:_}", "{}", "{}.0", "{:e}"]))
@settings(max_examples=200)
def test_a_number_is_read_from_every_way_to_write_it(number, form):
    written = form.format(number)
    if form == "{:e}" and float(written) != number:
        return
    value = answers.parse(written)
    assert isinstance(value, answers.Number)
    assert value.value == number


@given(st.integers(0, 9999), st.integers(0, 9999))
def test_different_numbers_are_never_the_same(one, two):
    assert answers.same(f"{one} km", f"{two} km", encoder=Flatterer()).same == (one == two)
    assert answers.same(f"${one}", f"{two} dollars", encoder=Flatterer()).same == (one == two)


PAGE = Path(__file__).parents[2] / "docs" / "answers.md"


def test_the_table_of_the_page_is_true():
    rows = [line.split("|")[1:4] for line in PAGE.read_text("utf-8").splitlines() if "·" in line]
    assert len(rows) >= 5
    for _, equal, unequal in rows:
        for chain in equal.split("·"):
            parts = [part.strip() for part in chain.split(" = ")]
            for one, two in itertools.pairwise(parts):
                assert answers.same(one, two).same, (one, two)
        for pair in filter(str.strip, unequal.split("·")):
            one, two = (part.strip() for part in pair.split(";" if ";" in pair else " and "))
            assert not answers.same(one, two).same, (one, two)
