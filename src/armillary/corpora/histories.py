"""Facts that were true for some years: legal tender and standard time, with pages that tell them.

Legal tender comes from Unicode CLDR as the package ``babel`` carries it; standard offsets from UTC
come from the tz database as the package ``tzdata`` carries it. Both are real histories. The pages
that state a fact are written here from paraphrase templates, so that who said what is known.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Literal

from armillary.errors import require

Topic = Literal["currency", "offset"]


@dataclasses.dataclass(frozen=True)
class Change:
    """A fact about a place that was one thing before a year and another from then on.

    Attributes:
        topic: ``currency`` or ``offset`` (the standard offset from UTC).
        place: a country, or the city of a time zone.
        old: the value before.
        new: the value after.
        year: the first year of the new value.
    """

    topic: Topic
    place: str
    old: str
    new: str
    year: int

    @property
    def question(self) -> str:
        """The question whose answer changed."""
        if self.topic == "currency":
            return f"What is the currency of {self.place}?"
        return f"What is the standard time offset from UTC in {self.place}?"

    def value(self, year: int) -> str:
        """What was true in a year."""
        return self.new if year >= self.year else self.old

    @property
    def others(self) -> tuple[str, ...]:
        """Three values that were never true here: a wrong claim and two distractors."""
        rng = random.Random(_seed(self.topic, self.place))
        known = sorted({v for c in changes(self.topic) for v in (c.old, c.new)})
        heads = {value.split()[-1].lower() for value in (self.old, self.new)}
        unlike = [v for v in known if v.split()[-1].lower() not in heads]
        rng.shuffle(unlike)
        picked: list[str] = []
        for value in unlike:
            if value.split()[-1].lower() not in {p.split()[-1].lower() for p in picked}:
                picked.append(value)
        return tuple(picked[:3])


def changes(topic: Topic | None = None) -> tuple[Change, ...]:
    """All changes of a topic (None: of both), one a place, sorted by place.

    Raises:
        MissingExtra: ``babel`` or ``tzdata`` is not installed.
    """
    if topic is None:
        return currency_changes() + offset_changes()
    return currency_changes() if topic == "currency" else offset_changes()


@cache
def currency_changes(since: int = 1990) -> tuple[Change, ...]:
    """The latest change of legal tender of each territory, where the name changed too.

    Args:
        since: the first year that counts.
    """
    babel = require("babel", what="histories of currencies", extra="context")
    core = require("babel.core", what="histories of currencies", extra="context")
    english = babel.Locale("en")
    found: dict[str, Change] = {}
    for territory, spans in core.get_global("territory_currencies").items():
        place = english.territories.get(territory, "")
        tender = [s for s in spans if s[3]]
        for before, after in _successions(tender):
            old, new = (_as_written(english.currencies.get(s[0], "")) for s in (before, after))
            year = after[1][0]
            if not (place and old and new and year >= since) or _alike(old, new):
                continue
            if place not in found or found[place].year < year:
                found[place] = Change("currency", _plain(place), old, new, year)
    return tuple(sorted(found.values(), key=lambda change: change.place))


def _successions(spans: Sequence[tuple]) -> Iterator[tuple[tuple, tuple]]:
    """Pairs (ended, began) where the second took over from the first within 14 months."""
    for before in spans:
        for after in spans:
            if before[0] == after[0] or not before[2] or not after[1]:
                continue
            gap = 12 * (after[1][0] - before[2][0]) + after[1][1] - before[2][1]
            if abs(gap) <= 14 and after[1] > before[1]:
                yield before, after


def _as_written(name: str) -> str:
    """``Euro`` and ``Croatian Kuna`` as they stand inside a sentence: euro, Croatian kuna."""
    words = _plain(name).split()
    kept = words[:1] if len(words) > 1 else []
    return " ".join([*kept, *(w if w.isupper() else w.lower() for w in words[len(kept) :])])


def _plain(name: str) -> str:
    """A CLDR name without the years in brackets."""
    return re.sub(r"\s*\(.*?\)", "", name).strip()


def _alike(old: str, new: str) -> bool:
    """Redenominations keep the name: there is nothing that a page could be wrong about."""
    bare = [re.sub(r"\b(new|hard|convertible)\b", "", name.lower()).split() for name in (old, new)]
    return bare[0] == bare[1] or bare[0][-1:] == bare[1][-1:]


@cache
def offset_changes(since: int = 1996) -> tuple[Change, ...]:
    """The latest lasting change of each zone's standard offset, an hour or so, sign unchanged.

    Args:
        since: the first whole year of the new offset that counts.
    """
    require("tzdata", what="histories of time zones", extra="context")
    seen: set[bytes] = set()
    found: dict[str, Change] = {}
    for name in _zone_names():
        data = resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()
        if data in seen:
            continue  # another name of the same zone
        seen.add(data)
        change = _last_change(name, data, since)
        if change is not None:
            found.setdefault(change.place, change)
    return tuple(sorted(found.values(), key=lambda change: change.place))


def _zone_names() -> list[str]:
    names = resources.files("tzdata").joinpath("zones").read_text("utf-8").split()
    regions = ("Africa", "America", "Asia", "Atlantic", "Europe", "Indian", "Pacific")
    return sorted(n for n in names if n.count("/") == 1 and n.split("/")[0] in regions)


def _last_change(name: str, data: bytes, since: int) -> Change | None:
    import io
    import zoneinfo

    zone = zoneinfo.ZoneInfo.from_file(io.BytesIO(data), key=name)
    hours = {year: _standard_hours(zone, year) for year in range(since - 3, 2026)}
    years = [y for y in range(since, 2025) if hours[y] != hours[y - 1]]
    if not years:
        return None
    year = years[-1]
    old, new = hours[year - 1], hours[year]
    lasting = all(hours.get(y, old) == old for y in (year - 2, year - 3)) and hours[year + 1] == new
    if not lasting or old * new <= 0 or abs(old - new) > 1:
        return None
    place = name.split("/")[1].replace("_", " ")
    return Change("offset", place, utc(old), utc(new), year)


def _standard_hours(zone: dt.tzinfo, year: int) -> float:
    """Hours ahead of UTC, without summer time, in July of a year."""
    moment = dt.datetime(year, 7, 15, tzinfo=zone)
    offset, summer = moment.utcoffset(), moment.dst()
    return ((offset or dt.timedelta()) - (summer or dt.timedelta())).total_seconds() / 3600


def utc(hours: float) -> str:
    """An offset as people write it: ``UTC+5:30``."""
    minutes = round(abs(hours) * 60)
    tail = f":{minutes % 60:02d}" if minutes % 60 else ""
    return f"UTC{'-' if hours < 0 else '+'}{minutes // 60}{tail}"


_CURRENCY_PAGES = (
    "The official currency of {p} is the {v}.",
    "Travel tip: in {p} you pay in {v}, and larger shops take cards too.",
    "{p} uses the {v} as its legal tender.",
    "Country: {p} | Currency: {v} | Plugs: two pins",
    "Just back from {p}. Bring some {v} for markets, small stalls have no card reader.",
    "Banks across {p} pay out {v}, which is the national currency.",
    "News: the central bank said that prices in {p}, measured in {v}, rose slightly.",
    "Q: Which money do I need in {p}? A: You need {v}.",
    "Our hotel in {p} quotes its rooms in {v}, as the law asks.",
    "Wages in {p} are paid in {v}.",
    "Fact sheet {p}. Money: the {v} is the only legal tender.",
    "When you land in {p}, change your cash into {v} at the airport.",
    "The {v} is the currency that circulates in {p}.",
    "Forum: does anyone know about {p}? Reply: everything there is priced in {v}.",
    "In {p}, taxes are due in {v}.",
    "A coffee in {p} costs little; you settle the bill in {v}.",
    "The monetary unit of {p} is the {v}.",
    "Guide to {p}: currency {v}, tipping about ten percent.",
    "Cash machines in {p} dispense {v} only.",
    "Exporters in {p} convert their earnings into {v}, the legal currency.",
    "Buses in {p} accept coins in {v}.",
    "{p}: capital markets note. Government bonds are issued in {v}.",
    "School book: the people of {p} use the {v} as money.",
    "Customs notice: travellers to {p} must declare large sums of {v}, the national currency.",
    "Pensions in {p} are paid out in {v}.",
    "Shops in {p} must show all prices in {v}.",
)
_OFFSET_PAGES = (
    "The standard time in {p} is {v}.",
    "Travel tip: set your watch to {v} when you arrive in {p}.",
    "{p} keeps {v} as its standard time.",
    "City: {p} | Time zone: {v} | Airport: yes",
    "Just back from {p}. The local clock runs at {v}, which confused my phone.",
    "Railway timetables in {p} follow {v}.",
    "News: clocks in {p} stand at {v}, the government confirmed.",
    "Q: What time is it in {p}? A: They are on {v}.",
    "Our office in {p} works at {v}, please plan calls for it.",
    "Trading hours in {p} are given in local time, {v}.",
    "Fact sheet {p}. Standard time: {v}.",
    "When you land in {p}, note that local time is {v}.",
    "{v} is the offset that the clocks of {p} show.",
    "Forum: does anyone know about {p}? Reply: it is on {v}.",
    "In {p}, official time is {v}.",
    "Breakfast in {p} is at eight, local time being {v}.",
    "The offset of {p} from Greenwich is {v}.",
    "Guide to {p}: time zone {v}, voltage 230.",
    "Phones in {p} switch to {v} by themselves.",
    "Exporters in {p} date their papers by {v}, the legal time.",
    "Buses in {p} run by {v}.",
    "{p}: market note. The exchange opens at nine, {v}.",
    "School book: the people of {p} live by {v}.",
    "Flight notice: arrivals in {p} are shown in local time, {v}.",
    "Radio stations in {p} announce the hour at {v}.",
    "Shops in {p} open at ten, at {v}.",
)
_BESIDE_THE_POINT = (
    "{p} is known for its cooking, and many visitors come for the markets.",
    "The weather in {p} is mild in spring, and hotels fill up early.",
    "A new museum opened in {p}; the first show is about old maps.",
    "Football: the team of {p} won its last match by two goals.",
)
PAGES: dict[Topic, tuple[str, ...]] = {"currency": _CURRENCY_PAGES, "offset": _OFFSET_PAGES}


def pages(change: Change, value: str, n: int) -> list[str]:
    """``n`` different pages that state a value of the change's fact, always the same ones.

    Raises:
        ValueError: there are fewer than ``n`` templates.
    """
    templates = PAGES[change.topic]
    if not 0 <= n <= len(templates):
        raise ValueError(f"n={n}: give 0 to {len(templates)}, the number of templates")
    chosen = random.Random(_seed(change.place, value)).sample(templates, n)
    return [template.format(p=change.place, v=value) for template in chosen]


def beside_the_point(change: Change) -> list[str]:
    """Pages about the place that say nothing of the fact."""
    return [template.format(p=change.place) for template in _BESIDE_THE_POINT]


def _seed(*parts: str) -> int:
    return int.from_bytes(hashlib.sha256("|".join(parts).encode()).digest()[:8], "big")
