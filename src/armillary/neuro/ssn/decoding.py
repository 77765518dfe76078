"""How much of a clean patch a code keeps: linear decoders, fitted once, read degraded patches.

Decoders are fitted to clean patches of full contrast and nothing else. Two are fitted to every
code: a ridge with an intercept and one without. The choice matters: where a code is proportional to
contrast, a decoder without intercept loses nothing at low contrast, and one with an intercept
answers with its intercept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from jaxtyping import Float64, Int64

Floats = NDArray[np.float64]
#: Pixel patches to features.
Features = Callable[[Floats], Floats]


class Decoders(NamedTuple):
    """Linear maps from features to whitened directions.

    Attributes:
        plain: (F, D) without intercept.
        affine: (F + 1, D) with the intercept in the last row.
    """

    plain: Float64[NDArray, "F D"]
    affine: Float64[NDArray, "F1 D"]

    def decode(self, features: Floats, intercept: bool) -> Floats:
        """(n, D) decoded directions, of any norm."""
        if intercept:
            return features @ self.affine[:-1] + self.affine[-1]
        return features @ self.plain


def fit_decoders(features: Float64[NDArray, "n F"], target: Float64[NDArray, "n D"]) -> Decoders:
    """Two ridges, each with its penalty chosen by leave-one-out error."""
    from sklearn.linear_model import RidgeCV

    unit = len(features) * max(float((features**2).mean()), 1e-300)
    penalties = unit * np.logspace(-6, 1, 12)
    plain = RidgeCV(alphas=penalties, fit_intercept=False).fit(features, target)
    affine = RidgeCV(alphas=penalties, fit_intercept=True).fit(features, target)
    slopes = [np.atleast_2d(np.asarray(model.coef_)).T for model in (plain, affine)]
    rows = np.concatenate([slopes[1], np.atleast_2d(affine.intercept_)])
    return Decoders(np.ascontiguousarray(slopes[0]), rows)


def cosine(decoded: Float64[NDArray, "n D"], target: Float64[NDArray, "n D"]) -> float:
    """Mean cosine over items; an item decoded as nothing counts as 0."""
    norms = np.linalg.norm(decoded, axis=1) * np.linalg.norm(target, axis=1)
    return float(((decoded * target).sum(axis=1) / np.where(norms > 0, norms, 1)).mean())


def unit_codes(features: Float64[NDArray, "n F"]) -> Float64[NDArray, "n F"]:
    """Codes scaled to norm 1, so that a classifier sees no contrast in their size."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norms > 0, norms, 1)


def split_signs(codes: Float64[NDArray, "n F"]) -> Float64[NDArray, "n G"]:
    """Positive and negative parts of signed codes side by side; other codes as they are."""
    if (codes < 0).any():
        return np.concatenate([np.maximum(codes, 0), np.maximum(-codes, 0)], axis=1)
    return codes


#: Patches of one sample of a texture.
BAG = 9


def bags(features: Float64[NDArray, "n F"]) -> Float64[NDArray, "samples G"]:
    """Mean unit-norm code of every `BAG` patches in a row.

    Positive and negative parts of signed codes are averaged apart: their mean alone would be near
    zero for any texture.
    """
    codes = split_signs(unit_codes(features))
    return codes.reshape(-1, BAG, codes.shape[1]).mean(axis=1)


def classifier(
    features: Float64[NDArray, "n F"], labels: Int64[NDArray, " n"]
) -> Callable[[Floats, NDArray[np.int64]], float]:
    """A logistic regression on unit-norm codes; gives its accuracy on others."""
    from sklearn.linear_model import LogisticRegression

    scale = max(float(unit_codes(features).std()), 1e-12)
    model = LogisticRegression(C=1.0, max_iter=300, tol=1e-3)
    model.fit(unit_codes(features) / scale, labels)

    def accuracy(new: Floats, truth: NDArray[np.int64]) -> float:
        return float(np.mean(model.predict(unit_codes(new) / scale) == truth))

    return accuracy
