"""The choice of ridge and anchor: scores by definition, leave-one-out against refits."""

from __future__ import annotations

import numpy as np

from armillary.uncertainty.recalibration import selection
from armillary.uncertainty.recalibration.distributions import WeightedSamples
from armillary.uncertainty.recalibration.embedding import Backend, project_on_simplex
from armillary.uncertainty.recalibration.selection import Scorer, Target

NUMPY = Backend()


def problem(n: int = 40, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    gram = np.exp(-np.sqrt(((x[:, None] - x) ** 2).sum(-1)))
    return gram, x[:, 0] + 0.3 * rng.normal(size=n)


def refit(gram, train, held, lam):
    solved = np.linalg.solve(
        gram[np.ix_(train, train)] + lam * len(train) * np.eye(len(train)),
        gram[np.ix_(train, held)],
    )
    return project_on_simplex(solved, NUMPY)


def test_leave_one_out_equals_forty_refits():
    gram, _ = problem()
    n = len(gram)
    lam = 0.01
    weights = selection.loo_split(gram, 0, NUMPY).weights(lam)
    for i in range(n):
        train = np.delete(np.arange(n), i)
        # A refit on n - 1 rows with the same ridge lam * n.
        expected = refit(gram, train, [i], lam * n / (n - 1))[:, 0]
        np.testing.assert_allclose(weights[train, i], expected, atol=1e-9)
        assert weights[i, i] == 0


def test_fold_weights_equal_a_refit_and_rows_are_held_out_once():
    gram, _ = problem(400)
    splits = list(selection.fold_splits(gram, 5, 0, NUMPY))
    assert sorted(np.concatenate([s.held for s in splits])) == list(range(400))
    split = splits[2]
    assert not set(split.train) & set(split.held)
    np.testing.assert_allclose(
        split.weights(1e-3), refit(gram, split.train, split.held, 1e-3), atol=1e-8
    )


def test_small_sets_are_folded_twice():
    gram, _ = problem(60)
    splits = list(selection.fold_splits(gram, 5, 0, NUMPY))
    assert len(splits) == 10
    assert set(splits[0].held) != set(splits[5].held)


def test_scores_are_their_definitions():
    gram, y = problem()
    split = selection.loo_split(gram, 0, NUMPY)
    weights = split.weights(0.05)
    target = Target("y", y, 0.7)
    outcome = np.exp(-np.abs(y[:, None] - y) / 0.7)
    expected = np.mean(
        [1 + w @ outcome @ w - 2 * w @ outcome[:, i] for i, w in enumerate(weights.T)]
    )
    scorer = Scorer.of(split, target)
    np.testing.assert_allclose(scorer.kernel_score(weights), expected)
    np.testing.assert_allclose(scorer.crps(weights), WeightedSamples(y, weights.T).crps(y).mean())


def test_the_ridge_is_at_least_as_good_as_the_grid():
    gram, y = problem(100)
    target = Target("y", y, 1.0)
    chosen = selection.select(gram, {"y": target}, lam="loo", folds=5, seed=0, backend=NUMPY)
    split = selection.loo_split(gram, 0, NUMPY)
    reached = Scorer.of(split, target).crps(split.weights(chosen.lam))
    assert reached <= min(chosen.scores["y"]) + 1e-12
    chosen = selection.select(gram, {"y": target}, lam="cv", folds=5, seed=0, backend=NUMPY)
    splits = list(selection.fold_splits(gram, 5, 0, NUMPY))
    reached = np.mean([Scorer.of(s, target).kernel_score(s.weights(chosen.lam)) for s in splits])
    assert reached <= min(chosen.scores["y"]) + 1e-12


def test_a_given_ridge_is_kept_while_the_anchor_is_chosen():
    gram, y = problem(100)
    targets = {"y": Target("y", y, 1.0), "residual": Target("residual", 10 * y, 1.0)}
    chosen = selection.select(gram, targets, lam=0.3, folds=5, seed=0, backend=NUMPY)
    np.testing.assert_allclose(chosen.lam, 0.3)
    assert chosen.anchor == "y"
    assert chosen.crps["y"] < chosen.crps["residual"]
