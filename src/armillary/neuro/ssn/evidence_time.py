"""The timed experiments: codes of one batch of patches, and how time grows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
    Timing,
)
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.evidence_data import Floats, encoder, fold
from armillary.neuro.ssn.peers import dictionary, lasso_code, lca_code
from armillary.neuro.ssn.responses import quietly_encoded

#: Not the tuned penalty, at which codes are dense and take far longer: this one favours the rivals.
PENALTY = 0.1


class Timed(NamedTuple):
    """An encoder, a dictionary of as many atoms, and patches to code."""

    encoder: SSNEncoder
    atoms: Floats
    patches: Floats
    whitened: Floats


def setup(cell: Cell) -> Timed:
    data = fold(cell)
    count = int(cell.case.x["batch"])
    patches = np.resize(data.fit, (count, data.fit.shape[1]))
    x = data.target(data.learn)
    atoms = dictionary(x, int(cell.case.x["n_exc"]), PENALTY, cell.seed)
    return Timed(encoder(cell), atoms, patches, data.whitening.vectors(patches))


def settled(work: Timed, cell: Cell) -> Mapping[str, float]:
    """Rates to a relative change below 1e-4 in 10 ms; double precision, as all contenders."""
    found = quietly_encoded(work.encoder, work.patches, None)
    return {"checksum": float(found.rates.sum()), "settled": float(found.converged.mean())}


def coordinate_descent(work: Timed, cell: Cell) -> Mapping[str, float]:
    """scikit-learn's lasso_cd at its default tolerance."""
    codes = lasso_code(work.whitened, work.atoms, PENALTY)
    return {"checksum": float(np.abs(codes).sum())}


def competitive(work: Timed, cell: Cell) -> Mapping[str, float]:
    """LCA until codes change by less than a thousandth."""
    codes = lca_code(work.whitened, work.atoms, PENALTY)
    return {"checksum": float(np.abs(codes).sum())}


def _case(name: str, batch: int, n_exc: int, n_iter: int) -> Case:
    x = {"size": 10, "n_exc": n_exc, "n_iter": n_iter, "patches": 1500, "held": 64, "batch": batch}
    if n_exc < 96:
        x |= {"patches": 200, "held": 16}
    return Case(name, x=x)


def _batches(n_exc: int, n_iter: int, *sizes: int) -> list[Case]:
    return [_case(f"{size} patches", size, n_exc, n_iter) for size in sizes]


def _units(n_iter: int, *sizes: int) -> list[Case]:
    return [_case(f"{size} units", 512, size, n_iter) for size in sizes]


METRICS = (
    Metric("seconds", "s"),
    Metric("checksum", "", "neither"),
    Metric("settled", "share of patches", "higher"),
)

SPEED = Experiment(
    id="speed",
    title="Time of the codes of a batch of patches",
    cases={
        "smoke": _batches(24, 5, 64),
        "quick": _batches(96, 60, 256, 1024),
        "full": _batches(192, 150, 256, 1024, 4096),
        "long": [],
    },
    setup=setup,
    contenders=(
        Contender("ours", settled),
        Contender("lasso-cd", coordinate_descent),
        Contender("lca", competitive),
    ),
    metrics=METRICS,
    claims=(
        Claim(
            id="faster-than-lasso",
            statement="Codes take at most a third of the time of lasso codes by coordinate descent "
            "with as many atoms.",
            paper="Not in the abstract.",
            conditions=(
                Condition(
                    Stat("seconds", over=("lasso-cd",), form="ratio", pool="geomean"),
                    at_most=1 / 3,
                ),
            ),
        ),
        Claim(
            id="faster-than-lca",
            statement="Codes take no more time than those of the locally competitive algorithm "
            "with as many atoms.",
            paper="Not in the abstract.",
            conditions=(
                Condition(
                    Stat("seconds", over=("lca",), form="ratio", pool="geomean"), at_most=1.0
                ),
            ),
        ),
        Claim(
            id="linear-in-patches",
            statement="The time grows with at most the power 1.15 of the number of patches.",
            paper="Not in the abstract.",
            conditions=(Condition(Stat("seconds", form="slope", along="batch"), at_most=1.15),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 0},
    timed=Timing(warmups=1, repeats=3),
    packages=("torch", "scikit-learn"),
)

SIZE = Experiment(
    id="size",
    title="Time of 512 codes against the number of units",
    cases={
        "smoke": [],
        "quick": [],
        "full": _units(60, 96, 192, 384),
        "long": [],
    },
    setup=setup,
    contenders=(Contender("ours", settled),),
    metrics=METRICS,
    claims=(
        Claim(
            id="quadratic-in-units",
            statement="The time grows with at most the power 2.2 of the number of units.",
            paper="Not in the abstract.",
            conditions=(Condition(Stat("seconds", form="slope", along="n_exc"), at_most=2.2),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 0},
    timed=Timing(warmups=1, repeats=3),
    packages=("torch",),
)
