"""Histories of currencies and time zones say what CLDR and the tz database say."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pytest

pytest.importorskip("babel")
pytest.importorskip("tzdata")

from armillary.corpora import histories


def by_place(topic):
    return {change.place: change for change in histories.changes(topic)}


@pytest.mark.parametrize(
    ("place", "old", "new", "year"),
    [
        ("Croatia", "Croatian kuna", "euro", 2023),
        ("Bulgaria", "Bulgarian lev", "euro", 2026),
        ("Ecuador", "Ecuadorian sucre", "US dollar", 2000),
        ("Brazil", "Brazilian cruzeiro", "Brazilian real", 1994),
        ("Zimbabwe", "Zimbabwean dollar", "Zimbabwean gold", 2024),
    ],
)
def test_known_changes_of_currency(place, old, new, year):
    change = by_place("currency")[place]
    assert (change.old, change.new, change.year) == (old, new, year)
    assert change.value(year - 1) == old
    assert change.value(year) == new


@pytest.mark.parametrize(
    ("place", "old", "new", "year"),
    [
        ("Moscow", "UTC+4", "UTC+3", 2015),  # changed in October 2014: July 2015 is the first
        ("Istanbul", "UTC+2", "UTC+3", 2017),
        ("Colombo", "UTC+6", "UTC+5:30", 2006),
        ("Caracas", "UTC-4:30", "UTC-4", 2016),
    ],
)
def test_known_changes_of_offset(place, old, new, year):
    change = by_place("offset")[place]
    assert (change.old, change.new, change.year) == (old, new, year)


def test_redenominations_are_no_changes():
    places = by_place("currency")
    # Same name, fewer zeros: no page could be wrong about it.
    assert not {"Venezuela", "Türkiye", "Poland", "Zambia"} & set(places)


def test_every_change_is_usable():
    every = histories.changes()
    assert len({(c.topic, c.place) for c in every}) == len(every) >= 80
    for change in every:
        assert change.old != change.new
        values = {change.old, change.new, *change.others}
        assert len(values) == 5
        assert change.others == change.others  # drawn the same way each time
        assert "(" not in "".join(values)


def test_offsets_are_standard_time_by_another_route():
    """Winter time from zoneinfo on a northern city, a year before and after the change."""
    zone = zoneinfo.ZoneInfo("Europe/Istanbul")
    hours = [
        (dt.datetime(year, 1, 15, tzinfo=zone).utcoffset() or dt.timedelta()).seconds / 3600
        for year in (2015, 2018)
    ]
    change = by_place("offset")["Istanbul"]
    assert [change.old, change.new] == [histories.utc(h) for h in hours]


@pytest.mark.parametrize(
    ("hours", "text"), [(0, "UTC+0"), (5.5, "UTC+5:30"), (-4.5, "UTC-4:30"), (12, "UTC+12")]
)
def test_offsets_as_people_write_them(hours, text):
    assert histories.utc(hours) == text


@pytest.mark.parametrize("topic", ["currency", "offset"])
def test_pages_state_their_value_in_many_ways(topic):
    change = histories.changes(topic)[0]
    texts = histories.pages(change, change.old, 26)
    assert len(set(texts)) == 26
    assert all(change.old in text and change.place in text for text in texts)
    assert texts[:5] != histories.pages(change, change.new, 5)
    assert histories.pages(change, change.old, 3) == histories.pages(change, change.old, 3)
    with pytest.raises(ValueError, match="n=27: give 0 to 26"):
        histories.pages(change, change.old, 27)


def test_pages_beside_the_point_hold_no_value():
    for change in histories.changes():
        for text in histories.beside_the_point(change):
            bare = text.replace(change.place, "")
            assert not any(v in bare for v in (change.old, change.new, *change.others))
