"""Plans: whatever is stored, the plan is exactly the rest."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.evidence.inputs import Inputs
from armillary.evidence.schedule import Trial, plan
from armillary.evidence.shapes import Case, Contender, Experiment, Metric, Need, Timing
from armillary.evidence.store import Store

REPEATS = 2
GONE = (Need("extra", "no_such_module", "pip install no-such"),)


def trial(timed: bool) -> Trial:
    experiment = Experiment(
        id="e",
        cases={"quick": (Case("one"), Case("two"), Case("far", needs=GONE))},
        setup=lambda cell: None,
        contenders=tuple(
            Contender(name, lambda work, cell: {}, GONE if name == "lab" else ())
            for name in ("ours", "peer", "lab")
        ),
        metrics=(Metric("error"),),
        claims=(),
        seeds={"quick": 2},
        timed=Timing(repeats=REPEATS) if timed else None,
    )
    return Trial("m", experiment, "quick", "f", (0, 1))


CELLS = list(itertools.product(("one", "two", "far"), (0, 1), ("ours", "peer", "lab")))
ABLE = {cell for cell in CELLS if cell[0] != "far" and cell[2] != "lab"}


def stored_rows(what: Trial, states: dict) -> list:
    """Rows of cells that are ``whole``, ``half`` measured, ``failed`` or ``not run``."""
    rows = []
    for (case, seed, who), state in states.items():
        repeats = REPEATS if what.experiment.timed else 1
        if state in ("whole", "half"):
            count = repeats if state == "whole" else repeats - 1
            rows += [
                what.row(case, seed, who, repeat=i, metrics={"error": 1.0}) for i in range(count)
            ]
        elif state in ("failed", "not run"):
            rows.append(what.row(case, seed, who, status=state, kind="x"))
    return rows


@settings(max_examples=25, deadline=None)
@given(
    timed=st.booleans(),
    states=st.fixed_dictionaries(
        {cell: st.sampled_from(["", "whole", "half", "failed", "not run"]) for cell in CELLS}
    ),
)
def test_the_plan_is_what_is_able_and_not_finished(tmp_path_factory, timed, states):
    what = trial(timed)
    with Store(tmp_path_factory.mktemp("s") / "s.sqlite") as store:
        store.put("f", stored_rows(what, states))
        found = plan([what], store, Inputs())
    finished = {cell for cell, state in states.items() if state in ("whole", "failed")}
    planned = {(g.case, g.seed, who) for g in found.groups for who in g.contenders}
    absent = {(r.case, r.seed, r.contender) for _, r in found.absent}
    assert absent == set(CELLS) - ABLE - finished
    if not timed:
        assert planned == ABLE - finished
        assert found.stored == len(finished)
        return
    for case, seed in itertools.product(("one", "two", "far"), (0, 1)):
        able = {cell for cell in ABLE if cell[:2] == (case, seed)}
        here = {cell for cell in planned if cell[:2] == (case, seed)}
        assert here == (able if able - finished else set()), "a timed group is planned whole"


def test_untimed_groups_come_first():
    found = plan([trial(True), trial(False)], None, Inputs())
    assert [group.timing is None for group in found.groups] == [True] * 4 + [False] * 4


def test_each_need_is_named_once_for_whom_it_concerns():
    found = plan([trial(False)], None, Inputs())
    assert found.missing == (("e: lab", GONE[0]), ("e: ours", GONE[0]), ("e: peer", GONE[0]))


def test_an_unknown_kind_of_need_is_refused():
    with pytest.raises(ValueError, match=r"'magic'.*extra, venv, path, data, endpoint, gpu"):
        Inputs().has(Need("magic", "x", "y"))  # pyright: ignore
