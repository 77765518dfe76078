"""What pages show, before it is markup."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from armillary.catalog import Method
from armillary.evidence.bundle import Bundle
from armillary.report import views


def _line(**given: object) -> views.ConditionLine:
    plain = {"condition": 0, "metric": "x", "form": "level", "of": "ours", "at_most": 1}
    return views.condition_line({**plain, **given}, 0)


def test_every_result_is_counted_once(samples: list[Bundle], methods: list[Method]) -> None:
    shown = views.method_views([m.card for m in methods], samples)
    counts = views.counts(shown)
    assert counts == {
        "holds": 6,  # crps, coverage, exact: committed and own
        "partly": 2,
        "unclear": 2,
        "fails": 1,
        "not run": 1,
        "no verdict": 1,  # the smoke run
        "no evidence": 2,  # both claims of the method without a run
    }
    assert sum(counts.values()) == sum(len(view.results) for view in shown)


def test_committed_and_own_results_stand_apart(samples: list[Bundle]) -> None:
    view = views.method_view("recalibration", None, samples[:2])
    for claim in view.claims:
        assert [result.run.key for result in claim.results if result.run] == ["committed", "own"]
    first, second = view.runs
    assert first.facts == "profile full · AMD EPYC 7763, 2 cores · 29 Nov 2026"
    assert second.facts == "profile quick · Intel Core i7-1260P, 12 cores · 30 Nov 2026"


def test_runs_of_one_profile_are_told_apart(evidence: SimpleNamespace) -> None:
    bundles = [evidence.tango(), evidence.tango()]
    view = views.method_view("tango", None, bundles)
    assert [run.label for run in view.runs] == ["Committed evidence", "Committed evidence 2"]
    assert len({run.stem for run in view.runs}) == 2


def test_a_smoke_run_is_left_out_beside_another_of_ones_own(
    samples: list[Bundle], evidence: SimpleNamespace
) -> None:
    full, quick = samples[:2]
    smoke = evidence.recalibration("smoke", committed=False, seeds=1)

    def profiles(*bundles: Bundle) -> list[str]:
        return [run.profile for run in views.numbered(bundles)]

    assert profiles(smoke, quick, full) == ["full", "quick"]
    assert profiles(smoke, full) == ["full", "smoke"]
    assert profiles(smoke) == ["smoke"]


def test_a_claim_of_the_card_that_no_run_measured_is_shown(
    samples: list[Bundle], evidence: SimpleNamespace
) -> None:
    card = evidence.card("tango", "graph", "t", "g", ["gain", "far", "never"])
    view = views.method_view("tango", card, [samples[2]])
    assert [(r.claim, r.state) for r in view.results] == [
        ("gain", "fails"),
        ("far", "not run"),
        ("never", "no evidence"),
    ]


def test_a_run_without_claims_and_a_method_without_anything_have_a_line(
    samples: list[Bundle],
) -> None:
    bare = dataclasses.replace(samples[2], claims=[])
    assert [r.state for r in views.method_view("tango", None, [bare]).results] == ["no verdict"]
    assert [r.state for r in views.method_view("tango", None, []).results] == ["no evidence"]


@pytest.mark.parametrize(
    ("verdict", "profile", "state"),
    [
        ("holds", "full", "holds"),
        ("holds", "smoke", "no verdict"),
        ("none", "quick", "no verdict"),
        (None, "quick", "no verdict"),
        ("not run", "quick", "not run"),
        ("something new", "quick", "unclear"),
    ],
)
def test_states(samples: list[Bundle], verdict: str | None, profile: str, state: str) -> None:
    run = views.Run(dataclasses.replace(samples[0], profile=profile))
    assert views.result_of({"claim": "c", "verdict": verdict}, run).state == state


def test_the_headline_is_the_condition_that_decides(samples: list[Bundle]) -> None:
    run = views.Run(samples[0])

    def headline(verdict: str, *statuses: tuple[str, bool]) -> int:
        conditions = [
            {"condition": i, "metric": "x", "form": "level", "at_most": 1, "status": status,
             "estimate": None if status == "not run" else i, "tightest": tightest}
            for i, (status, tightest) in enumerate(statuses)
        ]  # fmt: skip
        claim = {"claim": "c", "verdict": verdict, "conditions": conditions}
        line = views.result_of(claim, run).headline
        assert line is not None
        return line.index

    assert headline("holds", ("met", False), ("met", True)) == 1
    assert headline("holds", ("not run", False), ("met", False)) == 1  # an optional peer is absent
    assert headline("fails", ("met", True), ("unclear", False), ("missed", False)) == 2
    assert headline("fails", ("met", False), ("met", True)) == 1  # ours raised
    assert headline("unclear", ("met", True), ("unclear", False), ("unclear", True)) == 2
    assert headline("partly", ("met", True), ("unclear", False)) == 1
    assert headline("not run", ("met", True), ("not run", False)) == 1


@pytest.mark.parametrize(
    ("given", "statistic", "against", "detail"),
    [
        ({"pool": "mean", "unit": "points"}, "x", "ours", "mean, points"),
        ({"form": "ratio", "over": "pit", "pool": "geomean"}, "x", "ours ÷ pit", "geometric mean"),
        ({"form": "difference", "over": "gat", "pool": "mean"}, "x", "ours − gat", "mean"),
        ({"form": "slope", "along": "n"}, "growth of x with n", "ours", "log-log slope"),
        ({"every": True}, "x", "ours", "every cell, worst shown"),
        ({"of": "gcn", "pool": "max"}, "x", "gcn", "largest"),
        ({"form": "fn", "metric": "rank correlation"}, "rank correlation", "ours", ""),
    ],
)
def test_conditions_read_as_sentences(
    given: dict, statistic: str, against: str, detail: str
) -> None:
    line = _line(**given)
    assert (line.statistic, line.against, line.detail) == (statistic, against, detail)


def test_what_is_missing_reads_as_a_dash() -> None:
    line = _line(estimate=None, low=None, high=None, units=None, interval=None, status=None)
    assert (line.measured, line.interval, line.basis) == ("–", "–", "")


def test_an_ablation_warns_only_if_it_was_expected_to_hurt(samples: list[Bundle]) -> None:
    ablations = [
        {"name": "a", "metric": "x", "expect": "hurts", "hurts": False},
        {"name": "b", "metric": "x", "expect": "reported", "hurts": False},
        {"name": "c", "metric": "x", "expect": "hurts", "hurts": None},
        {"name": "d", "metric": "x", "expect": "hurts", "hurts": True},
    ]
    result = views.result_of({"claim": "c", "ablations": ablations}, views.Run(samples[0]))
    assert [a.name for a in result.silent_ablations] == ["a"]


def test_methods_with_evidence_come_first_then_fields_in_the_catalogues_order(
    samples: list[Bundle], methods: list[Method]
) -> None:
    shown = views.method_views([m.card for m in methods], samples)
    assert [view.slug for view in shown] == ["recalibration", "tango", "spikeinit", "wonda"]
    only = views.method_views([m.card for m in methods], samples, ["tango"])
    assert [view.slug for view in only] == ["tango"]


def test_an_experiment_that_its_environment_does_not_describe_is_read_from_its_rows(
    samples: list[Bundle],
) -> None:
    bare = dataclasses.replace(samples[2], environment={"method": "tango", "profile": "full"})
    (experiment,) = views.experiment_views(bare)
    assert [m["name"] for m in experiment.metrics] == ["accuracy"]
    assert experiment.contenders == ("ours", "gcn", "gat")
    assert [c["name"] for c in experiment.cases] == [
        "cora", "citeseer", "chains of 40", "long range",
    ]  # fmt: skip
