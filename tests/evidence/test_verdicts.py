"""The rules of verdicts, one by one and at their corners."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.evidence import judge
from armillary.evidence.shapes import (
    Ablation,
    Case,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Row,
    Stat,
)

CASES = tuple(Case(f"n={n}", {"n": float(n)}) for n in (10, 100, 1000))
RATIO = Condition(Stat("error", over=("peer", "rival"), form="ratio", pool="geomean"), at_most=0.9)
EXACT = Condition(Stat("mismatches"), at_most=0, every=True)
NEED = Need("venv", "rival", "sh scripts/peers/rival.sh")
DATA = Need("data", "cora", "get cora and pass --data DIR")
CONTENDERS = (
    Contender("ours", lambda work, cell: {}),
    Contender("peer", lambda work, cell: {}),
    Contender("rival", lambda work, cell: {}, needs=(NEED,)),
    Contender("guest", lambda work, cell: {}, required=False),
    Contender("no-prior", lambda work, cell: {}),
)
METRICS = (
    Metric("error"),
    Metric("accuracy", better="higher"),
    Metric("mismatches"),
    Metric("covered", "0/1", "neither"),
    Metric("solved", "0/1", "higher"),
    Metric("coverage", better="neither"),
)


def stated(
    *conditions: Condition, seeds: int = 5, cases=CASES, ablations=(), **changed
) -> Experiment:
    claim = Claim("gain", "It gains.", "nothing", conditions, ablations)
    settings = {
        "cases": dict.fromkeys(("smoke", "quick", "full"), cases),
        "seeds": dict.fromkeys(("smoke", "quick", "full"), seeds),
        "contenders": CONTENDERS,
        "metrics": METRICS,
        "unit": "seed",
    }
    return Experiment("e", setup=lambda cell: None, claims=(claim,), **(settings | changed))


Change = Callable[[Row], Row | None]


def measured(experiment: Experiment, change: Change = lambda row: row, profile="full") -> list[Row]:
    """Ours has errors of 0.8 of everyone's, a little noise, and no mismatch."""
    noise, rows = np.random.default_rng(0), []
    for case in experiment.cases[profile]:
        for seed in range(experiment.seeds[profile]):
            for contender in experiment.contenders:
                good = contender.name == "ours"
                error = (0.8 if good else 1.0) * np.exp(noise.normal(0, 0.02))
                metrics = {
                    "error": float(error),
                    "accuracy": float(1 - error / 2),
                    "mismatches": 0.0 if good else 3.0,
                    "covered": float(noise.random() < 0.9),
                    "solved": float(noise.random() < 0.9),
                    "coverage": 0.9 + float(noise.normal(0, 0.005)),
                }
                row = change(
                    Row("m", "e", profile, case.name, seed, contender.name, 0, metrics=metrics)
                )
                rows += [row] if row is not None else []
    return rows


def verdict(experiment: Experiment, change: Change = lambda row: row) -> dict[str, Any]:
    (found,) = judge(experiment, measured(experiment, change), "full")
    json.dumps(found, allow_nan=False)
    return found


def failing(who: str, where: Callable[[Row], bool] = lambda row: True) -> Change:
    def change(row: Row) -> Row:
        if row.contender != who or not where(row):
            return row
        return dataclasses.replace(
            row, status="failed", kind="ValueError", reason="it broke", metrics={}
        )

    return change


def without(who: str, need: Need, where: Callable[[Row], bool] = lambda row: True) -> Change:
    def change(row: Row) -> Row:
        if who not in ("*", row.contender) or not where(row):
            return row
        busy = need.kind == "busy"  # type: ignore[comparison-overlap]
        reason = need.hint if busy else f"{need.name} is absent: {need.hint}"
        return dataclasses.replace(row, status="not run", kind=need.kind, reason=reason, metrics={})

    return change


def valued(metric: str, value: Callable[[Row], float], who: str = "ours") -> Change:
    def change(row: Row) -> Row:
        if row.contender != who:
            return row
        return dataclasses.replace(row, metrics={**row.metrics, metric: value(row)})

    return change


# holds, partly, fails, unclear ---------------------------------------------------------------


def test_the_object_of_a_claim_has_the_form_of_a_bundle():
    experiment = stated(RATIO, ablations=(Ablation("no-prior", "error", 0.05),))
    (found,) = judge(
        experiment, measured(experiment), "full", artefact_seconds=2.5, command="armillary bench m"
    )
    assert list(found) == [
        "method", "claim", "experiment", "statement", "profile", "verdict", "reason", "paper",
        "conditions", "contenders", "ablations", "absent", "errors", "seeds", "seconds",
        "artefact_seconds", "command",
    ]  # fmt: skip
    assert [list(c) for c in found["conditions"]] == [
        [
            "condition", "metric", "unit", "better", "form", "pool", "of", "over", "along",
            "at_most", "at_least", "every", "estimate", "low", "high", "interval", "units",
            "status", "tightest",
        ]
    ] * 2  # fmt: skip
    assert [(c["over"], c["status"]) for c in found["conditions"]] == [
        ("peer", "met"), ("rival", "met"),
    ]  # fmt: skip
    assert list(found["ablations"][0]) == [
        "name", "metric", "expect", "margin", "ratio", "low", "high", "hurts",
    ]  # fmt: skip
    assert (found["method"], found["seeds"], found["artefact_seconds"]) == ("m", [*range(5)], 2.5)
    assert set(found["contenders"]) == {"ours", "peer", "rival", "no-prior"}
    assert set(found["contenders"]["ours"]["error"]) == {"estimate", "low", "high"}
    assert found["verdict"] == "holds"


def test_the_tightest_peer_is_named():
    found = verdict(stated(RATIO), valued("error", lambda row: 0.93, "rival"))
    tight = [c["over"] for c in found["conditions"] if c["tightest"]]
    assert tight == ["rival"]
    assert "times that of rival, the nearest of 2 peers; asked: at most 0.9" in found["reason"]


def test_one_peer_that_is_not_beaten_by_enough_makes_it_partly():
    found = verdict(stated(RATIO), valued("error", lambda row: 0.85, "rival"))
    assert found["verdict"] == "partly"
    assert found["reason"].startswith("Better than every peer, but not by what is claimed: error")


def test_a_peer_that_is_better_makes_it_fail():
    found = verdict(stated(RATIO), valued("error", lambda row: 0.7, "rival"))
    assert found["verdict"] == "fails"
    assert [c["status"] for c in found["conditions"]] == ["met", "missed"]
    assert found["reason"].startswith("Missed: error is 1.12 (1.1 to 1.14) times that of rival")


def test_no_difference_is_unclear_only_where_the_bound_is_inside_the_interval():
    spread = valued("error", lambda row: 0.9 + 0.3 * (-1) ** row.seed)
    found = verdict(stated(RATIO), spread)
    assert found["verdict"] == "unclear"
    assert "seeds would decide (5 ran)" in found["reason"]


def test_bands_need_the_whole_interval_inside():
    inside = Condition(Stat("coverage"), at_least=0.88, at_most=0.92)
    assert verdict(stated(inside))["verdict"] == "holds"
    outside = Condition(Stat("coverage"), at_least=0.8, at_most=0.89)
    assert verdict(stated(outside))["verdict"] == "fails"
    through = Condition(Stat("coverage"), at_least=0.9, at_most=0.92)
    assert verdict(stated(through))["verdict"] == "unclear"


def test_rounding_does_not_miss_a_bound():
    third = Condition(Stat("error"), at_most=0.3)
    assert verdict(stated(third), valued("error", lambda row: 0.1 + 0.2))["verdict"] == "holds"
    each = dataclasses.replace(third, every=True)
    assert verdict(stated(each), valued("error", lambda row: 0.1 + 0.2))["verdict"] == "holds"


def test_partly_asks_for_every_metric_of_the_claim():
    more = Condition(Stat("accuracy"), at_least=0.99)
    assert verdict(stated(RATIO, more))["verdict"] == "partly"
    worse = valued("accuracy", lambda row: 0.3)
    assert verdict(stated(RATIO, more), worse)["verdict"] == "fails"


def test_partly_does_not_forgive_a_missed_band():
    band = Condition(Stat("coverage"), at_least=0.95, at_most=1)
    assert verdict(stated(RATIO, band))["verdict"] == "fails"


def test_without_peers_there_is_no_partly():
    assert verdict(stated(Condition(Stat("error"), at_most=0.5)))["verdict"] == "fails"


def test_a_peer_that_must_fail():
    fails = Condition(Stat("accuracy", of="peer"), at_most=0.6)
    assert verdict(stated(fails))["verdict"] == "holds"
    found = verdict(stated(dataclasses.replace(fails, at_most=0.4)))
    assert found["verdict"] == "partly"
    assert "accuracy of peer is 0.5" in found["reason"]


def test_one_good_cell_is_not_better_than_a_peer():
    best = Condition(Stat("accuracy", over=("peer",), form="difference", pool="max"), at_least=0.9)
    change = valued("accuracy", lambda row: 0.8 if row.seed == 0 else 0.1)
    assert verdict(stated(best), change)["verdict"] == "fails"


# every ---------------------------------------------------------------------------------------


def test_exactness_holds_without_an_interval():
    (condition,) = verdict(stated(EXACT))["conditions"]
    assert (condition["estimate"], condition["low"], condition["interval"]) == (0.0, None, "none")
    assert (condition["every"], condition["status"]) == (True, "met")


def test_one_broken_cell_fails_and_is_named():
    change = valued("mismatches", lambda row: 2.0 * (row.case == "n=100" and row.seed == 3))
    found = verdict(stated(EXACT), change)
    assert found["verdict"] == "fails"
    assert "mismatches is 2 in case 'n=100', seed 3; asked of every cell" in found["reason"]
    assert found["conditions"][0]["estimate"] == 2.0


def test_a_broken_cell_outweighs_a_large_gain():
    change = valued("mismatches", lambda row: float(row.seed == 0))
    assert verdict(stated(RATIO, EXACT), change)["verdict"] == "fails"


def test_every_cell_against_a_peer():
    each = Condition(Stat("error", over=("peer",), form="difference"), at_most=0, every=True)
    assert verdict(stated(each))["verdict"] == "holds"
    found = verdict(stated(each), valued("error", lambda row: 2.0 * (row.seed == 1)))
    assert found["verdict"] == "fails"
    assert "and 2 more of 15 cells" in found["reason"]


def test_every_cell_of_a_function():
    each = Condition(Stat(fn=lambda t: float(t.value("error")[0])), at_most=0.9, every=True)
    assert verdict(stated(each))["verdict"] == "holds"
    assert verdict(stated(dataclasses.replace(each, at_most=0.5)))["verdict"] == "fails"


# not run -------------------------------------------------------------------------------------


def test_nothing_measured():
    (found,) = judge(stated(RATIO), [], "full", seed_base=7, command="armillary bench m")
    assert (found["verdict"], found["reason"]) == ("not run", "Nothing was measured.")
    assert found["seeds"] == [7, 8, 9, 10, 11]
    assert [c["status"] for c in found["conditions"]] == ["not run", "not run"]
    assert (found["contenders"], found["absent"], found["errors"]) == ({}, [], [])


def test_a_required_peer_that_is_absent():
    found = verdict(stated(RATIO), without("rival", NEED))
    assert found["verdict"] == "not run"
    assert found["reason"] == "rival could not run: rival is absent: sh scripts/peers/rival.sh."
    assert found["absent"] == [
        {"contender": "rival", "kind": "venv", "name": "rival", "hint": NEED.hint}
    ]
    # What could be compared is still shown.
    assert [c["status"] for c in found["conditions"]] == ["met", "not run"]


def test_ours_absent():
    found = verdict(stated(RATIO), without("ours", Need("extra", "torch", "pip install torch")))
    assert found["verdict"] == "not run"
    assert "pip install torch" in found["reason"]


def test_a_case_whose_data_is_absent_for_everyone():
    cases = (*CASES[:2], Case("cora", {"n": 5.0}, (DATA,)))
    found = verdict(stated(RATIO, cases=cases), without("*", DATA, lambda row: row.case == "cora"))
    assert found["verdict"] == "not run"
    assert "ours could not run in 5 of 15 cells: cora is absent: get cora" in found["reason"]
    assert found["absent"] == [{"contender": "", "kind": "data", "name": "cora", "hint": DATA.hint}]
    aside = dataclasses.replace(
        RATIO, stat=dataclasses.replace(RATIO.stat, where=lambda case: case.name != "cora")
    )
    found = verdict(stated(aside, cases=cases), without("*", DATA, lambda row: row.case == "cora"))
    assert (found["verdict"], found["absent"]) == ("holds", [])


def test_a_busy_machine():
    busy = dataclasses.replace(NEED, kind="busy", hint="machine busy: others used 1.3 cores")  # type: ignore[arg-type]
    found = verdict(stated(RATIO), without("*", busy, lambda row: row.seed == 4))
    assert found["verdict"] == "not run"
    assert found["reason"] == ("The machine was busy in 3 of 15 cells: others used 1.3 cores.")


@pytest.mark.parametrize("seeds", [1, 2])
def test_fewer_than_three_units(seeds: int):
    found = verdict(stated(RATIO, seeds=seeds))
    assert found["verdict"] == "not run"
    assert "a verdict needs 3 seeds" in found["reason"]
    assert all(c["estimate"] is not None and c["low"] is None for c in found["conditions"])


def test_one_case_where_the_case_is_the_unit():
    found = verdict(stated(RATIO, cases=CASES[:1], unit="case"))
    assert (found["verdict"], found["conditions"][0]["units"]) == ("not run", 1)


def test_where_that_keeps_nothing():
    nowhere = Condition(Stat("error", where=lambda case: False), at_most=1)
    found = verdict(stated(nowhere))
    assert found["verdict"] == "not run"
    assert "None of the full profile's cases belongs to this claim" in found["reason"]


def test_where_that_cannot_read_a_case_names_it():
    lost = Condition(Stat("error", where=lambda case: case.x["depth"] > 1), at_most=1)
    with pytest.raises(ValueError, match="claim 'gain': `where` cannot read case 'n=10'"):
        verdict(stated(lost))


def test_a_profile_without_cases():
    experiment = stated(RATIO)
    (found,) = judge(experiment, measured(experiment), "long")
    assert found["verdict"] == "not run"
    assert "The long profile has no cases" in found["reason"]


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="profile must be one of smoke, quick, full, long"):
        judge(stated(RATIO), [], "medium")  # type: ignore[arg-type]


def test_an_interrupted_run_is_not_judged():
    found = verdict(stated(RATIO), lambda row: row if row.seed < 4 else None)
    assert found["verdict"] == "not run"
    assert "12 of 15 cells: run the same command again" in found["reason"]


def test_smoke_shows_figures_and_judges_nothing():
    experiment = stated(RATIO, EXACT)
    (found,) = judge(experiment, measured(experiment, profile="smoke"), "smoke")
    assert found["verdict"] == "none"
    assert {c["status"] for c in found["conditions"]} == {"none"}
    assert found["conditions"][0]["estimate"] == pytest.approx(0.8, abs=0.02)


def test_rows_of_others_are_left_aside():
    experiment = stated(RATIO)
    rows = measured(experiment)
    bad = {"error": 99.0}
    others = [
        dataclasses.replace(rows[0], experiment="other", metrics=bad),
        dataclasses.replace(rows[0], profile="quick", metrics=bad),
        dataclasses.replace(rows[0], case="gone", metrics=bad),
    ]
    assert judge(experiment, [*others, *rows], "full") == judge(experiment, rows, "full")


# failures ------------------------------------------------------------------------------------


def test_ours_that_raises_once_fails():
    found = verdict(
        stated(RATIO), failing("ours", lambda row: row.seed == 2 and row.case == "n=10")
    )
    assert found["verdict"] == "fails"
    assert "Ours gave no result in 1 of 15 cells, first in case 'n=10', seed 2" in found["reason"]
    assert found["errors"] == [
        {
            "contender": "ours",
            "case": "n=10",
            "seed": 2,
            "kind": "ValueError",
            "reason": "it broke",
        }
    ]


def test_ours_that_raises_everywhere_fails():
    assert verdict(stated(RATIO), failing("ours"))["verdict"] == "fails"


def test_ours_that_leaves_a_metric_out_fails():
    def silent(row: Row) -> Row:
        return dataclasses.replace(row, metrics={}) if _hard(row) else row

    found = verdict(stated(RATIO), lambda row: silent(row) if row.contender == "ours" else row)
    assert found["verdict"] == "fails"
    assert "it gave no error" in found["reason"]


def _hard(row: Row) -> bool:
    return row.case == "n=1000"


def test_ours_that_raises_outside_the_claims_cases_does_not_matter():
    small = dataclasses.replace(
        RATIO, stat=dataclasses.replace(RATIO.stat, where=lambda case: case.x["n"] < 1000)
    )
    assert verdict(stated(small), failing("ours", _hard))["verdict"] == "holds"


@pytest.mark.parametrize(("cells", "expected"), [(3, "holds"), (4, "partly")])
def test_a_required_peer_that_raises_in_more_than_a_fifth(cells: int, expected: str):
    lost = {("n=10", 0), ("n=100", 1), ("n=1000", 2), ("n=10", 3)}
    lost = set(sorted(lost)[:cells])
    found = verdict(stated(RATIO), failing("rival", lambda row: (row.case, row.seed) in lost))
    assert found["verdict"] == expected
    if expected == "partly":
        assert "But rival gave no result in 4 of 15 cells" in found["reason"]


def test_a_required_peer_that_raises_everywhere_leaves_nothing_to_judge():
    found = verdict(stated(RATIO), failing("rival"))
    assert found["verdict"] == "not run"
    assert "rival gave no result in 15 of 15 cells" in found["reason"]
    assert found["conditions"][0]["status"] == "met"


def test_a_repeat_that_failed_takes_its_cell_away():
    experiment = stated(RATIO)
    rows = measured(experiment)
    again = [dataclasses.replace(row, repeat=1) for row in rows]
    again = [failing("ours", lambda row: row.seed == 0)(row) for row in again]
    (found,) = judge(experiment, rows + again, "full")
    assert found["verdict"] == "fails"
    assert found["conditions"][0]["units"] == 4


# optional peers ------------------------------------------------------------------------------

GUEST = Condition(dataclasses.replace(RATIO.stat, over=("peer", "guest")), at_most=0.9)


def test_an_absent_optional_peer_changes_no_verdict():
    gone = Need("gpu", "cuda", "run on a machine with a GPU")
    found = verdict(stated(GUEST), without("guest", gone))
    assert found["verdict"] == "holds"
    assert [(a["contender"], a["kind"]) for a in found["absent"]] == [("guest", "gpu")]
    assert [c["status"] for c in found["conditions"]] == ["met", "not run"]
    never = verdict(stated(GUEST), lambda row: None if row.contender == "guest" else row)
    assert (never["verdict"], never["absent"][0]["hint"]) == ("holds", "not measured")


def test_a_present_optional_peer_must_be_beaten_too():
    assert verdict(stated(GUEST))["verdict"] == "holds"
    assert verdict(stated(GUEST), valued("error", lambda r: 0.5, "guest"))["verdict"] == "fails"


def test_an_optional_peer_takes_no_cell_from_the_others():
    found = verdict(stated(GUEST), failing("guest", lambda row: row.seed > 0))
    assert found["verdict"] == "holds"
    assert [c["units"] for c in found["conditions"]] == [5, 1]


def test_a_claim_over_absent_optional_peers_only_is_not_run():
    alone = Condition(dataclasses.replace(RATIO.stat, over=("guest",)), at_most=0.9)
    found = verdict(stated(alone), without("guest", Need("gpu", "cuda", "find a GPU")))
    assert found["verdict"] == "not run"
    assert "find a GPU" in found["reason"]


# told problems -------------------------------------------------------------------------------


def test_zero_under_a_geometric_mean_is_told():
    found = verdict(stated(RATIO), valued("error", lambda row: float(row.seed > 0)))
    assert found["verdict"] == "unclear"
    assert "error of ours is 0 in case 'n=10', seed 0" in found["reason"]
    assert found["conditions"][0]["estimate"] is None


def test_a_function_that_raises_is_told():
    broken = Condition(Stat(fn=lambda t: t.values["nobody"]["error"][0]), at_most=1)
    found = verdict(stated(broken))
    assert found["verdict"] == "unclear"
    assert "KeyError" in found["reason"]


def test_a_median_of_five_units_is_unclear():
    found = verdict(stated(Condition(Stat("error", pool="median"), at_most=0.9)))
    assert found["verdict"] == "unclear"
    assert "An interval of a median needs 6 seeds" in found["reason"]
    assert (
        verdict(stated(Condition(Stat("error", pool="median"), at_most=0.9), seeds=6))["verdict"]
        == "holds"
    )


# ablations -----------------------------------------------------------------------------------


def ablated(change: Change = lambda row: row, metric="error", condition=RATIO, **given):
    experiment = stated(condition, ablations=(Ablation("no-prior", metric, **given),))
    found = verdict(experiment, change)
    return found, found["ablations"][0]


def test_an_ablation_hurts_when_its_whole_interval_is_beyond_the_margin():
    found, ablation = ablated(margin=0.1)
    assert (found["verdict"], ablation["hurts"]) == ("holds", True)
    assert ablation["ratio"] == pytest.approx(1.25, abs=0.04)
    assert "Warning" not in found["reason"]


def test_a_useless_part_is_told_beside_the_verdict():
    change = valued("error", lambda row: 0.8 + 0.002 * (row.seed % 2), "no-prior")
    found, ablation = ablated(change, margin=0.05)
    assert (found["verdict"], ablation["hurts"]) == ("holds", False)
    assert "Warning: no-prior does not hurt: its error is 1" in found["reason"]
    quiet, ablation = ablated(change, margin=0.05, expect="reported")
    assert ablation["hurts"] is False
    assert "Warning" not in quiet["reason"]


def test_an_unclear_ablation_is_null():
    change = valued("error", lambda row: 0.9 + 0.3 * (-1) ** row.seed, "no-prior")
    found, ablation = ablated(change, margin=0.05)
    assert ablation["hurts"] is None
    assert "whether no-prior hurts is unclear" in found["reason"]


def test_higher_is_better_turns_an_ablation_round():
    _, ablation = ablated(metric="accuracy", margin=0.1)
    assert ablation["ratio"] == pytest.approx(0.5 / 0.6, abs=0.02)
    assert ablation["hurts"] is True
    _, ablation = ablated(valued("accuracy", lambda row: 0.9, "no-prior"), metric="accuracy")
    assert ablation["hurts"] is False


def test_an_ablation_of_an_exact_claim_hurts_when_it_breaks_a_cell():
    _, ablation = ablated(metric="mismatches", condition=EXACT)
    assert (ablation["hurts"], ablation["ratio"]) == (True, None)
    _, ablation = ablated(
        valued("mismatches", lambda row: 0.0, "no-prior"), metric="mismatches", condition=EXACT
    )
    assert ablation["hurts"] is False


def test_an_ablation_of_a_perfect_score_is_read_as_a_difference():
    _, ablation = ablated(metric="mismatches")
    assert (ablation["hurts"], ablation["ratio"]) == (True, None)


def test_an_absent_ablation_is_listed_and_null():
    found, ablation = ablated(without("no-prior", Need("extra", "torch", "pip install torch")))
    assert (found["verdict"], ablation["hurts"], ablation["ratio"]) == ("holds", None, None)
    assert [a["contender"] for a in found["absent"]] == ["no-prior"]


# whatever the rows ---------------------------------------------------------------------------

VERDICTS = {"not run", "fails", "holds", "partly", "unclear"}
values = st.sampled_from([0.0, -1.0, 1.0, 0.5, 1e-300, 1e300, -1e308, 1e308, 3.0, 7.0])
outcomes = st.one_of(values, values, values, st.sampled_from(["failed", "not run", "gone"]))


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 6), st.sampled_from(["case", "seed"]))
def test_any_rows_give_valid_json_and_a_verdict(data: st.DataObject, seeds: int, unit: str):
    many = (
        RATIO, GUEST, EXACT,
        Condition(dataclasses.replace(RATIO.stat, pool="ratio_of_means"), at_most=1),
        Condition(Stat("error", over=("peer",), form="difference"), at_most=1),
        Condition(Stat("error", over=("peer",), form="ratio", pool="max"), at_most=1),
        Condition(Stat("error", over=("peer",), form="ratio"), at_most=1, every=True),
        Condition(Stat("error", form="slope", along="n"), at_most=1),
        Condition(Stat("error", pool="median"), at_least=0, at_most=2),
        Condition(Stat("solved", over=("peer",), form="difference"), at_least=0),
    )  # fmt: skip
    claims = tuple(
        Claim(f"c{i}", "s", "p", (c,), (Ablation("no-prior", "error"),)) for i, c in enumerate(many)
    )
    experiment = stated(seeds=seeds, unit=unit)
    experiment = dataclasses.replace(experiment, claims=claims)

    def change(row: Row) -> Row | None:
        outcome = data.draw(outcomes)
        if outcome == "gone":
            return None
        if isinstance(outcome, str):
            return dataclasses.replace(row, status=outcome, kind="k", metrics={})  # type: ignore[arg-type]
        return dataclasses.replace(row, metrics={**row.metrics, "error": outcome})

    rows = measured(experiment, change)
    found = judge(experiment, rows, "full")
    json.dumps(found, allow_nan=False)
    assert len(found) == len(claims)
    for claim in found:
        assert claim["verdict"] in VERDICTS
        assert claim["reason"]
        counted = [c for c in claim["conditions"] if c["status"] != "not run"]
        if claim["verdict"] == "holds":
            assert {c["status"] for c in counted} == {"met"}
            assert all(c["units"] >= 3 for c in counted)
        for c in claim["conditions"]:
            if c["low"] is not None:
                assert c["low"] <= c["high"]
            assert sum(o["tightest"] for o in claim["conditions"]) <= 1
