"""The core over isolated answers: who is trusted, and what two memories do under a flood."""

from __future__ import annotations

import numpy as np
import pytest

from armillary.context.radar.decision import Rules, decide
from armillary.context.radar.memory import CampaignState, PaperState

CAMPAIGN, PAPER, STATIC = Rules(), Rules(memory="paper"), Rules(memory=None)


def run(steps, rules, scorer):
    """The decisions over steps of answers; None is an abstention."""
    state, found = None, []
    for answers in steps:
        ranks = [i for i, a in enumerate(answers) if a is not None]
        given = [answers[i] for i in ranks]
        found.append(decide("q", given, ranks, len(answers), scorer, rules=rules, state=state))
        state = found[-1].state
    return found


QUIET = ["a"] * 7 + ["b", None, None]
FLOOD = QUIET + ["w"] * 9


def test_one_poisoned_document_is_cut_at_any_rank(doubles):
    for rank in range(8):
        answers = ["a"] * 7
        answers.insert(rank, "w")
        (found,) = run([answers], STATIC, doubles.Equal())
        assert found.answer == "a"
        np.testing.assert_array_equal(~found.trusted, [a == "w" for a in answers])
        assert found.reasons[rank] == "cut"


def test_campaign_memory_stands_a_flood_that_sways_the_others(doubles):
    steps = [QUIET] * 4 + [FLOOD] * 2
    by = {
        r: run(steps, rules, doubles.Equal())
        for r, rules in {"campaign": CAMPAIGN, "paper": PAPER, "static": STATIC}.items()
    }
    assert [d.answer for d in by["campaign"]] == ["a"] * 6
    assert [d.answer for d in by["static"]] == ["a"] * 4 + ["w"] * 2
    # The paper's memory joins as one node and does not outweigh nine; reported as it is.
    assert by["paper"][-1].answer == "w"


def test_campaign_memory_follows_a_true_change(doubles):
    changed = ["b"] * 7 + ["a", None, None]
    found = run([QUIET] * 4 + [changed] * 2, CAMPAIGN, doubles.Equal())
    assert [d.answer for d in found] == ["a"] * 4 + ["b"] * 2


def test_trust_follows_the_belief(doubles):
    last = run([QUIET] * 4 + [FLOOD], CAMPAIGN, doubles.Equal())[-1]
    kept = [a for a in FLOOD if a is not None]
    np.testing.assert_array_equal(last.trusted, [a == "a" for a in kept])
    assert isinstance(last.state, CampaignState)
    assert last.state.best == "a"


def test_remembered_classes_that_answers_join_are_merged(doubles):
    class Bridge(doubles.Equal):
        """ "c" is both "a" and "b": from then on they are one class."""

        def compare(self, question, answers):
            found = super().compare(question, answers)
            for i, one in enumerate(answers):
                for j, two in enumerate(answers):
                    if i != j and "c" in (one, two):
                        found.agreement[i, j], found.conflict[i, j] = 1.0, 0.0
            return found

    before = CampaignState(("a", "b"), (0.6, 0.4), 5.0, 1)
    after = decide("q", ["c"] * 5, range(5), 5, Bridge(), state=before).state
    assert after is not None
    assert isinstance(after, CampaignState)
    assert after.answers == ("a",)
    assert after.belief == (1.0,)


def test_paper_state_is_the_final_answers_mean_agreement_and_conflict(doubles):
    (found,) = run([["a", "a", "a", "b"]], PAPER, doubles.Equal())
    assert found.state == PaperState("a", pytest.approx(0.75), pytest.approx(0.25))


def test_the_remembered_answer_may_win_in_the_papers_memory(doubles):
    before = PaperState("a", 0.9, 0.1)
    found = decide("q", ["a", "b"], [0, 1], 2, doubles.Equal(), rules=PAPER, state=before)
    assert found.answer == "a"
    assert len(found.trusted) == len(found.support) == 2  # the remembered one is no document


def test_isolation_filter_drops_a_trusted_answer_unlike_the_others(doubles):
    class Loose(doubles.Equal):
        """Everything agrees."""

        def compare(self, question, answers):
            n = len(answers)
            from armillary.context.radar.agreement import Agreement

            return Agreement(np.ones((n, n)), np.zeros((n, n)))

    vectors = doubles.Vectors({"a": [1, 0], "b": [1, 0.1], "x": [0, 1]})
    before = CampaignState(("a",), (1.0,), 3.0, 5)
    found = decide("q", ["a", "b", "a", "x"], range(4), 4, Loose(), state=before, embedder=vectors)
    assert found.reasons == ("", "", "", "isolated")


def test_nothing_to_trust_falls_back_to_all(doubles):
    found = decide("q", ["a", "b"], [0, 1], 2, doubles.Equal(), rules=STATIC)
    # Equal centrality: F is a half for both, S separates by rank: only the first is trusted.
    assert not found.fallback
    before = CampaignState(("z",), (1.0,), 8.0, 9)
    lost = decide("q", ["a", "b", "c"], [0, 1, 2], 3, doubles.Equal(), state=before)
    assert lost.fallback
    assert not lost.trusted.any()
    assert lost.answer in ("a", "b", "c")


def test_margin_of_a_certain_answer_is_larger(doubles):
    (clear,) = run([["a"] * 6], CAMPAIGN, doubles.Equal())
    (close,) = run([["a"] * 3 + ["b"] * 3], CAMPAIGN, doubles.Equal())
    assert clear.margin > close.margin >= 0


def test_states_of_the_two_memories_do_not_mix(doubles):
    with pytest.raises(ValueError, match="not interchangeable"):
        decide(
            "q",
            ["a"],
            [0],
            1,
            doubles.Equal(),
            rules=PAPER,
            state=CampaignState(("a",), (1.0,), 1.0, 1),
        )


def test_no_answers_are_refused(doubles):
    with pytest.raises(ValueError, match="answers: got none"):
        decide("q", [], [], 3, doubles.Equal())
