"""The two memories: Bayes by hand, a slow twin of the filter, and what floods cannot do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.context.radar.memory import (
    CampaignSettings,
    CampaignState,
    PaperState,
    bayes,
    blended,
    classes,
    from_plain,
    log_likelihoods,
    to_plain,
    updated,
)

DEFAULT = CampaignSettings()


def slow_likelihood(counts, truth, mu, s):
    """The formula of the module's docstring, class by class."""
    n = counts[truth]
    total = n * math.log(mu) - mu - math.lgamma(n + 1)
    for b, m in enumerate(counts):
        if b != truth:
            campaign = math.log(s.campaign) + m * math.log(s.copy) if s.campaign else -math.inf
            total += max(m * math.log(s.mistake), campaign) if m else 0.0
    return total


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.floats(1, 15))
def test_likelihood_matches_its_slow_twin(counts, mu):
    for settings_ in (DEFAULT, CampaignSettings(campaign=0), CampaignSettings(campaign=1, copy=1)):
        found = log_likelihoods(np.array(counts, dtype=float), mu, settings_)
        slow = [slow_likelihood(counts, a, mu, settings_) for a in range(len(counts))]
        np.testing.assert_allclose(found, slow, atol=1e-9)


def test_bayes_by_hand():
    assert bayes(0.5, 0.8) == pytest.approx(0.8)
    assert bayes(0.8, 0.8) == pytest.approx(0.64 / 0.68)
    assert bayes(1.0, 0.5) == pytest.approx(0.99)  # the prior is clipped
    assert bayes(0.3, 0.0) == 0.0


def test_paper_node_updates_support_and_doubt_apart():
    support, doubt = PaperState("a", 0.8, 0.2).node(np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1]))
    assert (support, doubt) == (pytest.approx(0.8), pytest.approx(0.2))


def test_first_step_is_uniform_and_expects_the_largest_class():
    state = updated(None, ["a", "b"], [6, 2], DEFAULT)
    assert state.step == 1
    assert state.expected == pytest.approx(6.0)
    ratio = math.exp(
        slow_likelihood([6, 2], 0, 6, DEFAULT) - slow_likelihood([6, 2], 1, 6, DEFAULT)
    )
    assert state.belief[0] / state.belief[1] == pytest.approx(ratio)


def settled(answer="a", count=7, steps=4):
    state = None
    for _ in range(steps):
        state = updated(state, [answer], [count], DEFAULT)
    return state


@pytest.mark.parametrize("copies", [9, 20])
def test_a_flood_does_not_buy_belief(copies):
    after = updated(settled(), ["a", "w"], [7, copies], DEFAULT)
    assert after.best == "a"
    assert after.belief[0] > 0.9


def test_without_a_price_for_campaigns_the_flood_wins():
    after = updated(settled(), ["a", "w"], [7, 9], CampaignSettings(campaign=0))
    assert after.best == "w"


def test_a_true_change_is_followed_at_once():
    after = updated(settled(), ["a", "b"], [0, 7], DEFAULT)
    assert after.best == "b"
    assert after.belief[1] > 0.9


def test_takeover_of_all_sources_is_undecidable():
    """Honest sources that fall silent look like a change: the known limit of the method."""
    assert updated(settled(), ["a", "w"], [0, 9], DEFAULT).best == "w"


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 9), min_size=10, max_size=10), min_size=1, max_size=5))
def test_belief_is_a_distribution_over_at_most_eight(steps):
    state = None
    for counts in steps:
        counts[0] += 1
        known = list(state.answers) if state else []
        named = known + [a for a in map(str, range(10)) if a not in known]
        state = updated(state, named, counts, DEFAULT)
        assert len(state.belief) == len(state.answers) <= 8
        assert sum(state.belief) == pytest.approx(1.0)
        assert state.expected >= 1


def test_expectation_moves_only_when_sure():
    sure = updated(settled(count=7), ["a"], [2], DEFAULT)
    assert sure.expected == pytest.approx(0.8 * 7 + 0.2 * 2)
    doubtful = updated(None, ["a", "b"], [4, 4], DEFAULT)
    assert doubtful.expected == 4


def test_classes_are_connected_components():
    M = np.eye(4)
    M[0, 2] = M[2, 0] = 0.5
    M[2, 3] = M[3, 2] = 0.6
    M[0, 1] = M[1, 0] = 0.49
    np.testing.assert_array_equal(classes(M), [0, 1, 0, 0])


def test_blend():
    S, F = blended((np.array([0.9, 0.1]), np.array([0.1, 0.9])), np.array([0.0, 1.0]), 0.8)
    np.testing.assert_allclose(S, [0.18, 0.82])
    np.testing.assert_allclose(F, [0.82, 0.18])


@pytest.mark.parametrize(
    "state", [PaperState("a", 0.25, 0.5), CampaignState(("a", "b"), (0.75, 0.25), 6.5, 3)]
)
def test_states_survive_json(state):
    assert from_plain(to_plain(state)) == state


@pytest.mark.parametrize("plain", [{}, {"kind": "other"}, {"kind": "paper", "unknown": 1}])
def test_what_is_no_state_is_refused(plain):
    with pytest.raises(ValueError, match="no state of a memory"):
        from_plain(plain)


@pytest.mark.parametrize("bad", [{"hazard": 1.0}, {"mistake": 0.0}, {"copy": 0.0}, {"weight": 2}])
def test_prices_out_of_range_are_refused(bad):
    with pytest.raises(ValueError, match="give a probability"):
        CampaignSettings(**bad)
