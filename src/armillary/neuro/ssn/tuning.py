"""How the settings were chosen: a grid for each, on seeds that no reported figure uses.

    python -m armillary.neuro.ssn.tuning -o settings.csv

The score is the mean cosine over all degradations of `evidence_robustness.GRID`, each read by the
better of the two decoders. Rivals and the network choose by the same score on the same patches; of
the network's totals only those are eligible that make it inhibition-stabilised at contrast 4 with
all rates settled. The chosen values stand in `peers.SETTINGS` and in `SSNEncoder`'s defaults.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from armillary import output
from armillary.evidence.shapes import Cell
from armillary.neuro.ssn.decoding import Features
from armillary.neuro.ssn.evidence_data import FULL, encoder, patch_case
from armillary.neuro.ssn.evidence_robustness import (
    GRID,
    Work,
    divided,
    features_of,
    rates_of,
    score,
    setup,
)
from armillary.neuro.ssn.responses import contrast_response

#: Reported seeds start at 0.
SEEDS = (1000, 1001)
CASE = patch_case(10, 192, 600, 6000, 120)

PENALTIES = (0.0025, 0.005, 0.02, 0.05, 0.1)
SHARES = (0.25, 0.5, 0.75, 1.0)
GRIDS: dict[str, Sequence[float]] = {
    "sparse-coding": PENALTIES,
    "lca": PENALTIES,
    "ica": SHARES,
    "pca": SHARES,
    "nmf": (0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0),
    "divisive": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    "autoencoder": (0.0, 0.03, 0.1, 0.25, 0.5, 1.0),
}
TOTALS = (
    (1.5, 1.25, 1.75, 0.3), (1.5, 1.5, 2.0, 0.3), (1.75, 1.25, 2.0, 0.3), (1.5, 1.0, 1.5, 0.3),
)  # fmt: skip

#: A contender, a setting, its score, and a remark.
Tried = tuple[str, str, float, str]


def rivals_tried(
    work: Work, cell: Cell, names: Sequence[str], values: Sequence[float] | None = None
) -> Iterator[Tried]:
    for name in names:
        for value in values or GRIDS[name]:
            for twin in (name, f"{name}-normalised"):
                yield twin, f"{value:g}", mean_cosine(work, _features(twin, value, work, cell)), ""


def totals_tried(work: Work, cell: Cell) -> Iterator[Tried]:
    for totals in TOTALS:
        model = encoder(cell, J=totals)
        found = contrast_response(model, work.fold.test, [0.1, 1.0, 4.0])
        active, energy = found["active"], found["energy"] / found["energy_without"]
        remark = (
            f"ISN index {found['isn_index'].iloc[-1]:.2f}, settled {found['settled'].min():.3f}, "
            f"silent {found['silent'].max():.3f}, active {active.iloc[-1] / active.iloc[0]:.2f}, "
            f"energy {energy.iloc[-1]:.2f}"
        )
        yield "ours", str(totals), mean_cosine(work, rates_of(model)), remark


def _features(name: str, value: float, work: Work, cell: Cell) -> Features:
    if name.startswith("divisive"):
        return divided(work.encoder, FULL if name.endswith("-normalised") else None, value)
    return features_of(name, work, cell, value)


def mean_cosine(work: Work, features: Features) -> float:
    found = score(work, features, textures=False)
    return float(np.mean([found[f"cosine, {by}"] for by in GRID]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-o", "--out", default="settings.csv")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--values", type=float, nargs="+", help="instead of a rival's grid")
    parser.add_argument("--who", nargs="+", choices=["ours", *GRIDS], default=["ours", *GRIDS])
    given = parser.parse_args()
    scores: dict[tuple[str, str], list[float]] = {}
    remarks: dict[tuple[str, str], list[str]] = {}
    for seed in given.seeds:
        cell = Cell(CASE, seed, "long")
        work = setup(cell)
        tried = rivals_tried(
            work, cell, [name for name in given.who if name != "ours"], given.values
        )
        if "ours" in given.who:
            tried = itertools.chain(tried, totals_tried(work, cell))
        for name, setting, value, remark in output.progress(tried, f"seed {seed}"):
            scores.setdefault((name, setting), []).append(value)
            remarks.setdefault((name, setting), []).append(remark)
    rows = [
        (name, setting, float(np.mean(values)), " | ".join(filter(None, remarks[name, setting])))
        for (name, setting), values in scores.items()
    ]
    output.write_csv(given.out, ["contender", "setting", "mean cosine", "remarks"], rows)


if __name__ == "__main__":
    main()
