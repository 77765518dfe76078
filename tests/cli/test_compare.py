"""`armillary compare`: what it reads, what it shows, and when the gate closes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.cli import root
from armillary.evidence.compare import ORDER, Figure, compare, read_claims

VERDICTS = (*ORDER, "not run", "none")


def condition(estimate=0.9, low=0.85, high=0.95, **more):
    return {
        "metric": "error", "form": "ratio", "of": "ours", "over": "peer", "at_most": 0.97,
        "at_least": None, "estimate": estimate, "low": low, "high": high, "status": "met",
    } | more  # fmt: skip


def claim(name="better", verdict="holds", method="m", profile="full", conditions=None, **more):
    found = [condition()] if conditions is None else conditions
    return {
        "method": method, "claim": name, "verdict": verdict, "profile": profile,
        "conditions": found,
    } | more  # fmt: skip


def save(path, *claims):
    path.write_text(json.dumps(list(claims)), "utf-8")
    return str(path)


@pytest.fixture
def run(capsys):
    """The command in this process: exit code, stdout, stderr."""

    def go(*arguments):
        code = root.run(["compare", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return go


# ---- the gate ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("old", "new"), list(itertools.product(VERDICTS, repeat=2)))
def test_the_gate_closes_exactly_when_a_judged_verdict_got_worse(tmp_path, run, old, new):
    files = save(tmp_path / "a", claim(verdict=old)), save(tmp_path / "b", claim(verdict=new))
    worse = (old, new) in {
        ("holds", "partly"), ("holds", "unclear"), ("holds", "fails"), ("partly", "unclear"),
        ("partly", "fails"), ("unclear", "fails"),
    }  # fmt: skip
    assert run(*files, "--gate")[0] == int(worse)
    assert run(*files)[0] == 0


def test_a_claim_that_was_not_run_is_told_and_opens_no_gate_silently(tmp_path, run):
    old = save(tmp_path / "old", claim(), claim("other"))
    new = save(tmp_path / "new", claim(verdict="not run"), claim("third"))
    code, out, err = run(old, new, "--gate")
    assert code == 0
    changes = {line.split("\t")[2]: line.split("\t")[0] for line in out.splitlines()[1:]}
    assert changes == {"better": "apart", "other": "vanished", "third": "appeared"}
    assert "1 not judged on one side, 1 appeared, 1 vanished" in err
    assert "the gate is open for want of a claim that was judged on both sides" in err


@given(
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from(VERDICTS)),
    st.dictionaries(st.sampled_from("abcde"), st.sampled_from(VERDICTS)),
)
def test_looking_from_the_other_side_turns_every_change_round(old, new):
    there = compare(*([claim(n, v) for n, v in side.items()] for side in (old, new)))
    back = compare(*([claim(n, v) for n, v in side.items()] for side in (new, old)))
    turned = {"worse": "better", "better": "worse", "appeared": "vanished", "vanished": "appeared"}
    assert {d.claim: turned.get(d.change, d.change) for d in there} == {
        d.claim: d.change for d in back
    }
    assert {d.claim for d in there} == {*old, *new}


# ---- figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "overlap"),
    [
        ((0.8, 0.9), (0.9, 1.0), True),
        ((0.8, 0.9), (0.91, 1.0), False),
        ((0.91, 1.0), (0.8, 0.9), False),
        ((0.7, 1.0), (0.8, 0.9), True),
        ((None, None), (0.8, 0.9), None),
    ],
)
def test_intervals_overlap_when_they_share_a_value(old, new, overlap):
    sides = (condition(low=low, high=high) for low, high in (old, new))
    assert Figure(*sides).overlap is overlap


def test_a_figure_that_moved_is_shown_with_both_values(tmp_path, run):
    old = save(tmp_path / "old", claim())
    new = save(tmp_path / "new", claim(verdict="unclear", conditions=[condition(0.99, 0.97, 1.0)]))
    code, out, _ = run(old, new)
    assert code == 0
    assert out.splitlines()[1].split("\t") == [
        "worse", "m", "better", "full", "holds", "unclear", "error ours/peer",
        "0.9 [0.85, 0.95]", "0.99 [0.97, 1]", "apart",
    ]  # fmt: skip


def test_a_target_that_was_loosened_is_told(tmp_path, run):
    old = save(tmp_path / "old", claim())
    new = save(tmp_path / "new", claim(conditions=[condition(at_most=1.1)]))
    line = run(old, new)[1].splitlines()[1].split("\t")
    assert line[0] == "figures"
    assert line[7].endswith("(target <= 0.97)")
    assert line[8].endswith("(target <= 1.1)")


def test_json_holds_every_figure_and_its_overlap(tmp_path, run):
    old = save(tmp_path / "old", claim(conditions=[condition(), condition(over="second")]))
    new = save(tmp_path / "new", claim(conditions=[condition(), condition(over="third")]))
    (found,) = json.loads(run(old, new, "--json")[1])
    assert found["old"] == {"profile": "full", "verdict": "holds"}
    figures = {f["over"]: (f["moved"], f["overlap"], f["old"] is None) for f in found["figures"]}
    assert figures == {
        "peer": (False, True, False), "second": (True, None, False), "third": (True, None, True),
    }  # fmt: skip


def test_profiles_are_paired_and_others_are_told(tmp_path, run):
    old = save(tmp_path / "old", claim(), claim(verdict="fails", profile="quick"))
    new = save(tmp_path / "new", claim(), claim(verdict="unclear", profile="quick"))
    assert [d.change for d in compare(read_claims(old), read_claims(new))] == ["same", "better"]
    quick = save(tmp_path / "quick", claim(verdict="fails", profile="quick"))
    long = save(tmp_path / "long", claim(profile="smoke"), claim(profile="long"))
    code, out, err = run(long, quick, "--gate")
    assert code == 1
    assert "long -> quick" in out
    assert "compare like with like" in err


def test_what_a_user_brought_herself_is_no_claim(tmp_path, run):
    old = save(tmp_path / "old", claim())
    new = save(tmp_path / "new", claim(), claim("own", verdict="none", own=True))
    assert "1 the same" in run(old, new)[2]


# ---- what it reads -----------------------------------------------------------------------------


def test_folders_bundles_files_and_stores_say_the_same(planted, tmp_path):
    planted.here()
    folder = tmp_path / "evidence"
    planted.bench("--write-evidence", str(folder), "--json", str(tmp_path / "new.json"))
    sources = [
        folder, folder / "planted", tmp_path / "new.json", planted.store,
        f"sqlite:///{planted.store}",
    ]  # fmt: skip
    first = read_claims(str(sources[0]))
    assert [c["verdict"] for c in first] == ["holds"]
    for source in sources:
        changes = compare(first, read_claims(str(source)))
        assert [d.change for d in changes] == ["same"], source


def test_in_a_process_of_its_own_a_worse_verdict_fails_the_build(planted, tmp_path):
    planted.here()
    planted.bench("--write-evidence", str(tmp_path / "evidence"))
    planted.here("EXPERIMENTS = (experiment(contenders=(Contender('ours', peer),"
                 " Contender('peer', ours))),)")  # fmt: skip
    planted.bench("--json", str(tmp_path / "new.json"))
    done = subprocess.run(
        [sys.executable, "-m", "armillary", "compare", "evidence", "new.json", "--gate"],
        cwd=tmp_path, env=planted.environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split("\t")[:6] == [
        "worse", "planted", "better", "quick", "holds", "fails",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "nothing at"),
        ("folder", "no evidence in"),
        ("not json", "holds no claims"),
        ("{}", "holds no claims"),
        ('[{"method": "m"}]', "method, claim and verdict"),
        ("[1]", "holds no claims"),
    ],
)
def test_what_is_no_evidence_is_refused_in_one_line(tmp_path, run, content, match):
    old = save(tmp_path / "old", claim())
    new = tmp_path / "new"
    if content == "folder":
        new.mkdir()
    elif content is not None:
        new.write_text(content)
    code, out, err = run(old, str(new), "--gate")
    assert (code, out) == (2, "")
    assert match in err
    assert len(err.splitlines()) == 1


def test_a_binary_file_is_refused(tmp_path, run):
    (tmp_path / "new").write_bytes(b"\xff\xfe\x00")
    code, _, err = run(save(tmp_path / "old", claim()), str(tmp_path / "new"))
    assert code == 2
    assert "holds no claims" in err


def test_a_url_of_another_database_is_refused_without_its_password(tmp_path, run):
    code, _, err = run(save(tmp_path / "old", claim()), "mysql://me:word@host/d")
    assert code == 2
    assert "word" not in err


def test_one_side_is_not_enough(run, tmp_path):
    code, out, err = run(save(tmp_path / "old", claim()))
    assert (code, out) == (2, "")
    assert "NEW" in err
