"""Planted experiments: what is true by construction, and what `judge` makes of it.

The normal tests run a hundred simulations of each null, the slow ones a thousand.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from armillary.evidence import judge
from armillary.evidence.shapes import (
    Ablation,
    Better,
    Case,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Row,
    Stat,
)

Outcome = Mapping[str, NDArray]
SIZES = (8.0, 16.0, 32.0, 64.0)


def trial(
    condition: Condition | Sequence[Condition],
    outcome: Outcome,
    *,
    unit: str = "",
    better: Better = "lower",
    by: str = "seed",
    ablations: tuple[Ablation, ...] = (),
) -> dict[str, Any]:
    """Judge one claim on ``outcome[contender]`` (cases, seeds); NaN is a contender that raised."""
    shape = next(iter(outcome.values())).shape
    sizes = [*SIZES, *(64.0 + i for i in range(shape[0]))]
    cases = [Case(f"c{i}", {"n": sizes[i]}) for i in range(shape[0])]
    conditions = (condition,) if isinstance(condition, Condition) else tuple(condition)
    experiment = Experiment(
        "e",
        {"full": cases},
        lambda cell: None,
        tuple(Contender(who, lambda work, cell: {}) for who in outcome),
        (Metric("m", unit, better),),
        (Claim("c", "s", "p", conditions, ablations),),
        {"full": shape[1]},
        by,  # type: ignore[arg-type]
    )
    rows = [
        Row("m", "e", "full", f"c{c}", s, who, metrics={"m": float(values[c, s])})
        if math.isfinite(values[c, s])
        else Row("m", "e", "full", f"c{c}", s, who, 0, "failed", "ValueError", "too hard")
        for who, values in outcome.items()
        for c, s in np.ndindex(shape)
    ]
    return judge(experiment, rows, "full")[0]


def lognormal(rng: np.random.Generator, shape: tuple[int, int], **level: float) -> Outcome:
    """Contenders on shared work: difficulties differ by e, each cell has 10 % of noise."""
    shared = np.exp(rng.normal(0, 1, shape))
    return {who: mean * shared * np.exp(rng.normal(0, 0.1, shape)) for who, mean in level.items()}


def against(*peers: str, at_most: float, **given: Any) -> Condition:
    form = {"form": "ratio", "pool": "geomean"} | given
    return Condition(Stat("m", over=peers, **form), at_most=at_most)


# what is true is found ---------------------------------------------------------------------------


def test_a_true_gain_holds():
    rng = np.random.default_rng(0)
    outcome = lognormal(rng, (4, 30), ours=0.8, peer=1.0, rival=0.9)
    found = trial(against("peer", "rival", at_most=0.97), outcome)
    assert found["verdict"] == "holds"
    peer, rival = found["conditions"]
    assert peer["low"] <= 0.8 <= peer["high"]
    assert rival["low"] <= 0.8 / 0.9 <= rival["high"]
    assert (peer["tightest"], rival["tightest"]) == (False, True)


def test_a_losing_claim_fails():
    outcome = lognormal(np.random.default_rng(1), (4, 10), ours=1.2, peer=1.0)
    found = trial(against("peer", at_most=0.97), outcome)
    assert found["verdict"] == "fails"


def test_a_smaller_gain_than_claimed_is_partly():
    outcome = lognormal(np.random.default_rng(2), (4, 25), ours=0.9, peer=1.0)
    found = trial(against("peer", at_most=0.8), outcome)
    assert (found["verdict"], found["conditions"][0]["status"]) == ("partly", "missed")


def test_a_useless_part_is_told_and_a_useful_one_is_not():
    outcome = lognormal(np.random.default_rng(3), (4, 40), ours=0.8, peer=1.0, a=0.8, b=0.95)
    parts = (Ablation("a", "m", 0.05), Ablation("b", "m", 0.05))
    found = trial(against("peer", at_most=0.97), outcome, ablations=parts)
    assert found["verdict"] == "holds"
    assert [part["hurts"] for part in found["ablations"]] == [False, True]
    assert "Warning: a does not hurt" in found["reason"]
    assert "b " not in found["reason"].split("Warning")[1]


def test_growth_with_size():
    rng = np.random.default_rng(4)
    noise = np.exp(rng.normal(0, 0.1, (4, 8)))
    outcome = {"ours": np.array(SIZES)[:, None] ** 1.05 * noise}
    linear = Condition(Stat("m", form="slope", along="n"), at_most=1.15)
    assert trial(linear, outcome)["verdict"] == "holds"
    square = {"ours": np.array(SIZES)[:, None] ** 2 * noise}
    assert trial(linear, square)["verdict"] == "fails"


def test_a_band():
    rng = np.random.default_rng(5)
    band = Condition(Stat("m"), at_least=0.88, at_most=0.92)
    right = {"ours": rng.normal(0.9, 0.014, (2, 12))}
    assert trial(band, right, better="neither")["verdict"] == "holds"
    wide = {"ours": rng.normal(0.97, 0.014, (2, 12))}
    assert trial(band, wide, better="neither")["verdict"] == "fails"


def test_a_worst_case_is_not_softened_by_the_others():
    outcome = {"ours": np.full((4, 10), 0.01), "peer": np.ones((4, 10))}
    outcome["ours"][2, 7] = 1.3
    worst = against("peer", at_most=1.0, pool="max")
    found = trial(worst, outcome)
    assert (found["verdict"], found["conditions"][0]["estimate"]) == ("fails", 1.3)
    assert trial(against("peer", at_most=1.0), outcome)["verdict"] == "holds"


def test_a_peer_that_must_fail():
    rng = np.random.default_rng(6)
    outcome = {"ours": rng.normal(0.9, 0.02, (1, 10)), "gcn": rng.normal(0.3, 0.02, (1, 10))}
    claim = [
        Condition(Stat("m"), at_least=0.85),
        Condition(Stat("m", of="gcn"), at_most=0.4),
    ]
    assert trial(claim, outcome, better="higher")["verdict"] == "holds"
    outcome["gcn"] = rng.normal(0.7, 0.02, (1, 10))
    assert trial(claim, outcome, better="higher")["verdict"] == "partly"


def test_exactness_is_broken_by_one_cell_of_many():
    exact = Condition(Stat("m"), at_most=0, every=True)
    outcome = {"ours": np.zeros((10, 100))}
    assert trial(exact, outcome)["verdict"] == "holds"
    outcome["ours"][9, 99] = 1
    assert trial(exact, outcome)["verdict"] == "fails"


def test_a_contender_that_raises_does_not_stop_the_rest():
    outcome = lognormal(np.random.default_rng(7), (4, 10), ours=0.8, peer=1.0, rival=1.0)
    outcome["rival"][3, :2] = math.nan
    found = trial(against("peer", "rival", at_most=0.97), outcome)
    assert found["verdict"] == "holds"
    assert len(found["errors"]) == 2
    # 38 of 40 cells remain for both comparisons, in all ten units.
    assert [c["units"] for c in found["conditions"]] == [10, 10]


# survivors do not win ----------------------------------------------------------------------------


def test_ours_cannot_gain_by_failing_on_hard_work():
    outcome = lognormal(np.random.default_rng(8), (4, 10), ours=0.8, peer=1.0)
    outcome["ours"][3] = math.nan
    assert trial(against("peer", at_most=0.97), outcome)["verdict"] == "fails"


def test_a_peer_that_fails_on_hard_work_neither_gains_nor_loses_by_it():
    # Ours ties with the peer but for hard work, where the peer gives up.
    rng = np.random.default_rng(9)
    outcome = lognormal(rng, (10, 10), ours=1.0, peer=1.0)
    hard = lognormal(rng, (1, 10), ours=100.0, peer=100.0)
    outcome = {who: np.vstack([values, hard[who]]) for who, values in outcome.items()}
    full = trial(against("peer", at_most=0.97), outcome)
    outcome["peer"][-1] = math.nan
    cut = trial(against("peer", at_most=0.97), outcome)
    assert cut["verdict"] != "holds"
    # The level shown beside it is over the same cells for both.
    levels = cut["contenders"]
    ratio = levels["ours"]["m"]["estimate"] / levels["peer"]["m"]["estimate"]
    assert ratio == pytest.approx(1, abs=0.1)
    assert full["contenders"]["ours"]["m"]["estimate"] > 3 * levels["ours"]["m"]["estimate"]


def test_a_peer_that_gives_up_on_a_quarter_lets_nothing_hold():
    outcome = lognormal(np.random.default_rng(10), (4, 10), ours=0.5, peer=1.0)
    outcome["peer"][3] = math.nan
    found = trial(against("peer", at_most=0.97), outcome)
    assert found["verdict"] == "partly"
    assert "peer gave no result in 10 of 40 cells" in found["reason"]


# unclear says how many units would decide --------------------------------------------------------


def test_the_number_of_units_told_decides():
    # Eight seeds whose logarithms have a mean of log 0.9 and a spread of 0.2 exactly.
    steps = np.array([-1, 1, -1, 1, -1, 1, -1, 1]) * 0.2 * math.sqrt(7 / 8)
    outcome = {"ours": 0.9 * np.exp(steps)[None], "peer": np.ones((1, 8))}
    claim = against("peer", at_most=0.97)
    found = trial(claim, outcome)
    assert found["verdict"] == "unclear"
    told = re.search(r"About (\d+) seeds would decide \(8 ran\)", found["reason"])
    assert told, found["reason"]
    units = int(told[1])
    # ((1.99 + 1.28) * 0.2 / log(0.97 / 0.9)) ** 2, where 1.99 is Student's quantile there.
    assert units == 77

    def decides(rng: np.random.Generator, units: int) -> bool:
        values = 0.9 * np.exp(rng.normal(0, 0.2, (1, units)))
        return trial(claim, {"ours": values, "peer": np.ones((1, units))})["verdict"] == "holds"

    rng = np.random.default_rng(11)
    assert sum(decides(rng, units) for _ in range(60)) >= 0.8 * 60
    assert sum(decides(rng, units // 4) for _ in range(60)) <= 0.6 * 60


# what is not true does not hold ------------------------------------------------------------------


def gains(units: int) -> Callable[[np.random.Generator], dict[str, Any]]:
    """Ours is exactly as far ahead as the bound, which is not further."""
    return lambda rng: trial(
        against("peer", at_most=0.97), lognormal(rng, (3, units), ours=0.97, peer=1.0)
    )


def several(rng: np.random.Generator) -> dict[str, Any]:
    """Two peers tie with ours, one is far behind."""
    outcome = lognormal(rng, (3, 10), ours=1.0, peer=1.0, rival=1.0, weak=2.0)
    return trial(against("peer", "rival", "weak", at_most=1.0), outcome)


def cases_differ(rng: np.random.Generator) -> dict[str, Any]:
    """The case is the unit, and cases differ in the gain; on average there is none."""
    gain = np.exp(rng.normal(0, 0.3, (12, 1)))
    outcome = lognormal(rng, (12, 4), ours=1.0, peer=1.0)
    outcome = {"ours": outcome["ours"] * gain, "peer": outcome["peer"]}
    return trial(against("peer", at_most=1.0), outcome, by="case")


def zeros(units: int) -> Callable[[np.random.Generator], dict[str, Any]]:
    """A quantity that is zero in a third of the cells, of the same mean for both."""

    def draw(rng: np.random.Generator) -> dict[str, Any]:
        shared = rng.gamma(4, 0.25, (3, units)) * (rng.random((3, units)) > 1 / 3)
        both = {who: shared * rng.gamma(8, 1 / 8, (3, units)) for who in ("ours", "peer")}
        return trial(against("peer", at_most=1.0, pool="ratio_of_means"), both)

    return draw


def successes(rng: np.random.Generator) -> dict[str, Any]:
    """Paired successes at one rate: no points are gained."""
    share = rng.beta(4, 2, (1, 40))
    both = {who: (rng.random((1, 40)) < share).astype(float) for who in ("ours", "peer")}
    gained = Condition(Stat("m", over=("peer",), form="difference"), at_least=0)
    return trial(gained, both, unit="0/1", better="higher")


def rate(rng: np.random.Generator) -> dict[str, Any]:
    """A rate of rejections that lies on its bound."""
    outcome = {"ours": (rng.random((1, 60)) < 0.25).astype(float)}
    return trial(Condition(Stat("m"), at_most=0.25), outcome, unit="0/1")


def edge(rng: np.random.Generator) -> dict[str, Any]:
    """A coverage that lies on the edge of its band."""
    outcome = {"ours": rng.normal(0.92, 0.014, (2, 10))}
    return trial(Condition(Stat("m"), at_least=0.88, at_most=0.92), outcome, better="neither")


def growth(rng: np.random.Generator) -> dict[str, Any]:
    """Growth with the exponent of the bound."""
    outcome = {"ours": np.array(SIZES)[:, None] ** 1.15 * np.exp(rng.normal(0, 0.2, (4, 6)))}
    return trial(Condition(Stat("m", form="slope", along="n"), at_most=1.15), outcome)


def giving_up(rng: np.random.Generator) -> dict[str, Any]:
    """No gain, and the peer raises on the 15 % of the cells that are hardest for both."""
    outcome = lognormal(rng, (4, 10), ours=1.0, peer=1.0)
    both = outcome["ours"] * outcome["peer"]
    hard = both >= np.quantile(both, 0.85)
    outcome = {"ours": outcome["ours"], "peer": np.where(hard, math.nan, outcome["peer"])}
    return trial(against("peer", at_most=1.0), outcome)


NULLS: dict[str, Callable[[np.random.Generator], dict[str, Any]]] = {
    "ratio on its bound, 5 units": gains(5),
    "ratio on its bound, 25 units": gains(25),
    "three peers": several,
    "cases that differ": cases_differ,
    "zeros, 12 units": zeros(12),
    "zeros, 30 units": zeros(30),
    "paired successes": successes,
    "rate on its bound": rate,
    "band's edge": edge,
    "growth on its bound": growth,
    "a peer that gives up": giving_up,
}


def false_holds(name: str, runs: int) -> float:
    rng = np.random.default_rng(20260706)
    return sum(NULLS[name](rng)["verdict"] == "holds" for _ in range(runs)) / runs


@pytest.mark.parametrize("name", NULLS)
def test_a_null_does_not_hold(name: str):
    # At a true rate of 5 %, eleven or more of a hundred come in about one of a hundred seeds.
    assert false_holds(name, 100) <= 0.10


@pytest.mark.slow
@pytest.mark.parametrize("name", NULLS)
def test_a_null_holds_in_at_most_one_of_twenty_of_a_thousand_runs(name: str):
    assert false_holds(name, 1000) <= 0.05


def useless(rng: np.random.Generator) -> bool | None:
    outcome = lognormal(rng, (3, 8), ours=1.0, peer=2.0, part=1.0)
    claim = against("peer", at_most=0.97)
    return trial(claim, outcome, ablations=(Ablation("part", "m"),))["ablations"][0]["hurts"]


def test_a_useless_part_is_rarely_said_to_matter():
    rng = np.random.default_rng(12)
    assert sum(useless(rng) is True for _ in range(100)) <= 8
