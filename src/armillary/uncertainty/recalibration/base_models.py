"""Base models that give predictive distributions, at their library's defaults.

They are overconfident to different degrees, as such models are.

Each is a function ``(X, y, parts, seed) -> [Predictive, …]``: it trains on ``X, y`` and predicts
for every array in ``parts``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from armillary.errors import require
from armillary.uncertainty.recalibration.distributions import (
    Floats,
    GaussianMixture,
    Predictive,
    SupportWeights,
    WeightedSamples,
    normal,
)

BaseModel = Callable[[Floats, Floats, Sequence[Floats], int], list[Predictive]]


def _package(module: str) -> Any:
    return require(module, what="evidence of recalibration", extra="uncertainty-peers")


def gaussian_net(
    X: Floats, y: Floats, parts: Sequence[Floats], seed: int, components: int = 1
) -> list[Predictive]:
    """A network of two layers of 50 units with Gaussian (mixture) output; Adam, 100 epochs."""
    torch = _package("torch")
    torch.manual_seed(seed)
    centre, unit = X.mean(axis=0), X.std(axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    location, scale = y.mean(), y.std()

    def features(part: Floats) -> Any:
        return torch.tensor((part - centre) / unit, dtype=torch.float32)

    nn = torch.nn
    net = nn.Sequential(
        nn.Linear(X.shape[1], 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(),
        nn.Linear(50, 3 * components),
    )  # fmt: skip

    def parameters(output: Any) -> tuple[Any, Any, Any]:
        mean, raw, logit = output.chunk(3, dim=1)
        return mean, 0.01 + nn.functional.softplus(raw), torch.log_softmax(logit, dim=1)

    inputs, target = features(X), torch.tensor((y - location) / scale, dtype=torch.float32)[:, None]
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(100):
        for batch in torch.randperm(len(y), generator=generator).split(32):
            mean, deviation, log_weight = parameters(net(inputs[batch]))
            z = (target[batch] - mean) / deviation
            loss = -torch.logsumexp(log_weight - deviation.log() - z * z / 2, dim=1).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    found: list[Predictive] = []
    with torch.no_grad():
        for part in parts:
            mean, deviation, log_weight = (
                a.double().numpy() for a in parameters(net(features(part)))
            )
            found.append(
                GaussianMixture(
                    location + scale * mean, (scale * deviation) ** 2, np.exp(log_weight)
                )
            )
    return found


def boosting(X: Floats, y: Floats, parts: Sequence[Floats], seed: int) -> list[Predictive]:
    """NGBoost with a Gaussian output."""
    ngboost = _package("ngboost")
    model = ngboost.NGBRegressor(verbose=False, random_state=seed)
    model.fit(X, y)
    laws = [model.pred_dist(part) for part in parts]
    return [normal(law.params["loc"], law.params["scale"]) for law in laws]


def forest(X: Floats, y: Floats, parts: Sequence[Floats], seed: int) -> list[Predictive]:
    """quantile-forest: the weights of its 100 trees on the training outcomes."""
    model = _package("quantile_forest").RandomForestQuantileRegressor(random_state=seed)
    model.fit(X, y)
    training = model.apply(X)
    return [SupportWeights(leaf_weights(training, model.apply(part)), y) for part in parts]


def leaf_weights(training: Any, leaves: Any) -> Floats:
    """(t, n) mean over trees of 1/(leaf size) for the training rows in the same leaf.

    Args:
        training: (n, trees) leaf of each training row.
        leaves: (t, trees) leaf of each new row.
    """
    sparse = require("scipy.sparse", what="recalibration", extra="uncertainty")
    weights = np.zeros((len(leaves), len(training)))
    for tree in range(training.shape[1]):
        names, column = np.unique(training[:, tree], return_inverse=True)
        size = np.bincount(column)
        member = sparse.csr_matrix(
            (1 / size[column], (column, np.arange(len(column)))), shape=(len(names), len(column))
        )
        at = np.searchsorted(names, leaves[:, tree])
        known = (at < len(names)) & (names[np.minimum(at, len(names) - 1)] == leaves[:, tree])
        weights[known] += member[at[known]].toarray()
    return weights / training.shape[1]


def bagging(X: Floats, y: Floats, parts: Sequence[Floats], seed: int) -> list[Predictive]:
    """The predictions of 100 bagged trees, read as samples (they show model variance only)."""
    ensemble = _package("sklearn.ensemble")
    model = ensemble.BaggingRegressor(n_estimators=100, random_state=seed).fit(X, y)
    return [
        WeightedSamples(np.stack([member.predict(part) for member in model.estimators_], axis=1))
        for part in parts
    ]


BASE_MODELS: dict[str, BaseModel] = {
    "net": gaussian_net,
    "boosting": boosting,
    "forest": forest,
    "bagging": bagging,
}
