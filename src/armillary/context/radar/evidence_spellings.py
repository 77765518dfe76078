"""Values that people write in several ways, for what judges of agreement are compared on.

Each kind has six values (old, new, the attack's and three more that a reader may take by mistake),
and each value several spellings. A simulated reader gives a spelling of the value that it takes, at
random, as pages do.
"""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np

from armillary.context.radar.evidence_streams import Page, Step, Stream, Streams, simulated_work
from armillary.evidence.shapes import Cell

#: kind -> (question, six values, each as its spellings; the first stands for the value).
VALUES: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "share": (
        "What share of the voters took part?",
        tuple(
            (f"{n} %", f"{n}%", f"{n} percent", f"0.{n}", words)
            for n, words in (
                (15, "fifteen percent"),
                (16, "sixteen percent"),
                (32, "thirty-two percent"),
                (51, "fifty-one percent"),
                (19, "nineteen percent"),
                (61, "sixty-one percent"),
            )
        ),
    ),
    "count": (
        "How many people live on the island?",
        tuple(
            (f"{n},000", f"{n}000", f"{n} thousand", f"{n} 000", words)
            for n, words in (
                (1, "one thousand"),
                (2, "two thousand"),
                (10, "ten thousand"),
                (3, "three thousand"),
                (20, "twenty thousand"),
                (12, "twelve thousand"),
            )
        ),
    ),
    "offset": (
        "What is the standard time of the town?",
        tuple(
            (f"UTC{s}{h}", f"UTC{s}{h:02d}:00", f"GMT{s}{h}", f"UTC{s.replace('-', '−')}{h:02d}00")
            for s, h in (("+", 1), ("+", 2), ("+", 10), ("-", 1), ("+", 3), ("+", 11))
        ),
    ),
    "money": (
        "What is the currency of the country?",
        (
            ("euro", "EUR", "euros", "€", "the euro (EUR)"),
            ("US dollar", "USD", "US dollars", "the US dollar (USD)"),
            ("Croatian kuna", "HRK", "Croatian kunas", "the Croatian kuna (HRK)"),
            ("Polish zloty", "PLN", "Polish zlotys", "PLN (Polish zloty)"),
            (
                "Canadian dollar",
                "CAD (Canadian dollar)",
                "Canadian dollars",
                "the Canadian dollar (CAD)",
            ),
            ("Hungarian forint", "HUF", "Hungarian forints", "the Hungarian forint (HUF)"),
        ),
    ),
    "date": (
        "When did the bridge open?",
        tuple(
            (
                f"{d} {name} {y}",
                f"{y}-{m:02d}-{d:02d}",
                f"{name} {d}, {y}",
                f"the {d}th of {name} {y}",
            )
            for d, m, name, y in (
                (5, 5, "May", 2021),
                (5, 6, "June", 2021),
                (6, 5, "May", 2021),
                (5, 5, "May", 2022),
                (15, 5, "May", 2021),
                (16, 6, "June", 2021),
            )
        ),
    ),
}
_LABELS: tuple[str, ...] = ("old", "new", "attack", "error 0", "error 1", "error 2")


@cache
def value_of() -> dict[str, str]:
    """The spelling that stands for a value, by each of its spellings."""
    return {
        spelling: spellings[0]
        for _, values in VALUES.values()
        for spellings in values
        for spelling in spellings
    }


def spelled_work(cell: Cell) -> Streams:
    """Simulated streams (see `simulated_work`) whose labels are values, spelled at random."""
    rng = np.random.default_rng([6, cell.seed])
    kinds = list(VALUES)
    plain = simulated_work(cell).streams
    return Streams(tuple(_spelled(s, kinds[i % len(kinds)], rng) for i, s in enumerate(plain)))


def _spelled(stream: Stream, kind: str, rng: np.random.Generator) -> Stream:
    question, values = VALUES[kind]
    spellings: dict[str, tuple[str, ...]] = dict(zip(_LABELS, values, strict=True))
    spellings["error 3"] = spellings["error 2"]

    def page(one: Page) -> Page:
        if one.answer is None:
            return one
        written = spellings[one.answer]
        return dataclasses.replace(one, answer=written[int(rng.integers(len(written)))])

    return tuple(
        Step(
            question,
            spellings[step.truth][0],
            spellings[step.wrong][0],
            tuple(page(one) for one in step.pages),
            step.attacked,
            step.after,
        )
        for step in stream
    )
