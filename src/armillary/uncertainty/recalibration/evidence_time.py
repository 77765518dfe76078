"""The timed experiments of recalibration: distances against samples, fits against rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

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
from armillary.uncertainty.recalibration.distributions import WeightedSamples
from armillary.uncertainty.recalibration.embedding import Backend, squared_distances
from armillary.uncertainty.recalibration.energy import embed, energy_distances, place_knots
from armillary.uncertainty.recalibration.estimator import KernelRecalibrator
from armillary.uncertainty.recalibration.evidence_data import two_samples

ROWS = 300


def draw_samples(cell: Cell) -> WeightedSamples:
    return two_samples(int(cell.case.x["rows"]), int(cell.case.x["m"]), cell.seed)


def merged(p: WeightedSamples, cell: Cell) -> Mapping[str, float]:
    return {"checksum": float(energy_distances(p).sum())}


def embedded(p: WeightedSamples, cell: Cell) -> Mapping[str, float]:
    at = embed(p, place_knots(p, 513))
    return {"checksum": float(squared_distances(at, at, Backend()).sum())}


def double_sums(p: WeightedSamples, cell: Cell) -> Mapping[str, float]:
    """All |x - y| of a pair, for some pairs; the time is scaled to all n (n + 1)/2 of them.

    Every pair does the same work, so that a part of them is enough (half an hour otherwise).
    """
    n, m = p.values.shape
    pairs = max(2, min(200, 20_000_000 // m**2))
    # In blocks that stay in the cache and are written once: five times as fast as m x m arrays.
    block = max(1, min(m, 32_000 // m))
    gaps = np.empty((block, m))
    total = 0.0
    start = time.perf_counter()
    for i in range(pairs):
        x, y = p.values[i], p.values[(7 * i + 1) % n]
        for first in range(0, m, block):
            part = x[first : first + block]
            out = gaps[: len(part)]
            np.subtract.outer(part, y, out=out)
            np.abs(out, out=out)
            total += float(out.sum()) / m**2
    seconds = (time.perf_counter() - start) * (n * (n + 1) / 2) / pairs
    return {"checksum": total, "seconds": seconds}


def _draws(*sizes: int) -> list[Case]:
    return [Case(f"m={m}", x={"rows": ROWS, "m": m}) for m in sizes]


GRAM = Experiment(
    id="gram-time",
    title="Time of all distances between 300 distributions of m samples",
    cases={
        "smoke": _draws(50),
        "quick": _draws(100, 1000),
        "full": _draws(50, 200, 1000, 5000),
        "long": _draws(50, 100, 200, 500, 1000, 2000, 5000),
    },
    setup=draw_samples,
    contenders=(
        Contender("ours", merged),
        Contender("embedding", embedded),
        Contender("double-sums", double_sums),
    ),
    metrics=(Metric("seconds", "s"), Metric("checksum", "", "neither")),
    claims=(
        Claim(
            id="near-linear-in-samples",
            statement="Exact energy distances take time that grows with at most the power 1.15 of "
            "the samples a prediction, and at most a hundredth of the double sums' at 1000.",
            paper="O(m log m) against O(m^2) a pair.",
            conditions=(
                Condition(Stat("seconds", form="slope", along="m"), at_most=1.15),
                Condition(
                    Stat(
                        "seconds",
                        over=("double-sums",),
                        form="ratio",
                        pool="geomean",
                        where=lambda case: case.x["m"] == 1000,
                    ),
                    at_most=0.01,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
    timed=Timing(warmups=1, repeats=3),
)


def draw_pairs(cell: Cell) -> tuple[WeightedSamples, np.ndarray]:
    p = two_samples(int(cell.case.x["n"]), 50, cell.seed)
    return p, p.sample(1, cell.seed)[:, 0]


def fitted(work: tuple[WeightedSamples, np.ndarray], cell: Cell) -> Mapping[str, float]:
    """The whole fit: embedding, choice of ridge and anchor, factor."""
    model = KernelRecalibrator(random_state=0, n_knots=513).fit(*work)
    return {"checksum": model.lam_}


def fitted_with_landmarks(
    work: tuple[WeightedSamples, np.ndarray], cell: Cell
) -> Mapping[str, float]:
    """The fit through 500 landmarks with a given ridge, so that only the growth in n is timed."""
    model = KernelRecalibrator("y", lam=1e-3, n_knots=513, nystroem=500, random_state=0)
    return {"checksum": model.fit(*work).theta_}


def _fits(*sizes: int) -> list[Case]:
    return [Case(f"n={n}", x={"n": n}) for n in sizes]


def _fit_experiment(
    name: str, run: Callable, limit: float, sizes: Mapping[str, list[Case]], claim: str, text: str
) -> Experiment:
    return Experiment(
        id=name,
        title=text,
        cases=sizes,
        setup=draw_pairs,
        contenders=(Contender("ours", run),),
        metrics=(Metric("seconds", "s"), Metric("checksum", "", "neither")),
        claims=(
            Claim(
                id=claim,
                statement=f"{text} grows with at most the power {limit:g} of the calibration rows.",
                paper="O(n^3) for the dense solve; the paper has no approximation.",
                conditions=(Condition(Stat("seconds", form="slope", along="n"), at_most=limit),),
            ),
        ),
        seeds={"smoke": 1, "quick": 3, "full": 3, "long": 5},
        timed=Timing(warmups=0, repeats=1),
    )


FIT = _fit_experiment(
    "fit-time",
    fitted,
    3.0,
    {
        "smoke": [],
        "quick": [],
        "full": _fits(400, 800, 1600),
        "long": _fits(500, 1000, 2000, 4000),
    },
    "dense-fit-cubic",
    "The time of a dense fit",
)
LANDMARKS = _fit_experiment(
    "landmark-fit-time",
    fitted_with_landmarks,
    1.2,
    {
        "smoke": [],
        "quick": [],
        "full": _fits(4000, 12_000, 40_000),
        "long": _fits(4000, 12_000, 40_000, 120_000),
    },
    "landmark-fit-linear",
    "The time of a fit through 500 landmarks at a given ridge",
)
