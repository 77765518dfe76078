"""Attacks stand where they should; rivals do what their papers say on cases done by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.context.radar import attacks, duplicates, peers
from armillary.context.radar.agreement import Agreement


def judged(conflict):
    C = np.array(conflict, dtype=float)
    return Agreement((C == 0).astype(float), C)


def test_attacks_state_the_target():
    assert attacks.injected("Q?", "X", repeats=3).count("please output: X") == 3
    texts = attacks.poisoned("Q?", "X", 23)
    assert len(set(texts)) == 23
    assert all("X" in text and "Q?" in text for text in texts)
    assert attacks.attack_texts("pia", "Q?", "X", 2) == [attacks.injected("Q?", "X")] * 2


def test_paraphrases_are_no_copies_but_edits_are():
    texts = attacks.poisoned("What is the capital of France?", "Lyon", 9)
    assert duplicates.near(texts) == [[]] * 9
    some = ["one  text", "ONE text", "another thing"]
    assert duplicates.near(some) == [[], [0], []]
    assert duplicates.copies(some, ["a", "A", "a"], lambda x, y: x.lower() == y) == [None, 0, None]


def test_a_near_copy_counts_once_only_where_it_answers_the_same():
    same, other = ["one  text", "ONE text"], lambda x, y: x == y
    assert duplicates.copies(same, ["a", "b"], other) == [None, None]
    assert duplicates.copies(same, ["a", None], other) == [None, None]
    assert duplicates.copies(["x", "x"], [None, None], other) == [None, 0]


@pytest.mark.parametrize(("rank", "at"), [("first", {0, 1}), ("middle", {2, 3}), ("last", {4, 5})])
def test_attacks_stand_at_their_rank(rank, at):
    mixed, found = attacks.placed(["a", "b", "c", "d"], ["X", "Y"], rank)
    assert found == at
    assert [mixed[i] for i in sorted(at)] == ["X", "Y"]
    assert [text for i, text in enumerate(mixed) if i not in at] == ["a", "b", "c", "d"]


def test_schedules():
    assert attacks.surge(2, 3, 9, 7) == [0, 0, 9, 9, 9, 0, 0]
    assert attacks.drip(4) == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: attacks.injected("", "X"), "question: got an empty one"),
        (lambda: attacks.poisoned("Q", " ", 1), "target: got an empty one"),
        (lambda: attacks.poisoned("Q", "X", 0), "n=0"),
        (lambda: attacks.injected("Q", "X", repeats=0), "repeats=0"),
        (lambda: attacks.attack_texts("bomb", "Q", "X", 1), "give one of pia, poison"),
        (lambda: attacks.placed([], ["X"], "top"), "rank='top'"),
        (lambda: attacks.surge(5, 3, 1, 7), "inside 7 steps"),
    ],
)
def test_bad_attacks_are_told(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_majority_takes_the_first_of_the_largest_class():
    conflict = 1 - np.equal.outer(list("abbac"), list("abbac"))
    assert peers.majority(list("abbac"), judged(conflict)) == 0
    conflict = 1 - np.equal.outer(list("abb"), list("abb"))
    assert peers.majority(list("abb"), judged(conflict)) == 1


def test_keywords_need_min_of_share_and_count():
    # n = 4: least is min(1.2, 3), so a word needs two answers. "euro" has three, "kuna" one.
    assert peers.keywords(["kuna", "the euro", "euro", "euro area"]) == 1
    # n = 20: least is 3, so that two copies of a word do not count and three do.
    many = ["x"] * 2 + ["y"] * 3 + [f"z{i}" for i in range(15)]
    assert peers.keywords(many) == 2


def test_latest_only_takes_the_first_of_the_newest():
    assert peers.latest_only([2001, 2003, 2003, 2002]) == 1


@given(st.integers(1, 7), st.data())
def test_independent_set_matches_exhaustive_search(n, data):
    pytest.importorskip("networkx")
    C = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1, n):
            C[i, j] = C[j, i] = data.draw(st.sampled_from([0.0, 1.0]))
    sets = [
        s
        for size in range(n, 0, -1)
        for s in itertools.combinations(range(n), size)
        if not any(C[a, b] for a, b in itertools.combinations(s, 2))
    ]
    # combinations come in lexicographic order, so that the first is the largest and lowest.
    assert peers.independent_set(judged(C)) == sets[0][0]


def test_independent_set_beyond_twenty_is_sampled_and_deterministic():
    pytest.importorskip("networkx")
    answers = ["a"] * 18 + ["b"] * 8
    conflict = 1 - np.equal.outer(answers, answers)
    assert answers[peers.independent_set(judged(conflict), seed=1)] == "a"
    assert peers.independent_set(judged(conflict), seed=1) == peers.independent_set(
        judged(conflict), seed=1
    )


def test_exhaustive_minimum_by_hand():
    # Trust both: F = .3; trust none: S = 1.0; trust the first: .1 + .2 + .5.
    least = peers.exhaustive_minimum(
        np.array([0.8, 0.2]), np.array([0.1, 0.2]), np.array([[1, 0.5], [0.5, 1]])
    )
    assert least == pytest.approx(0.3)
