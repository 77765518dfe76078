"""A user's own table as a case of the evidence: which columns it must have, and how it is split."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from armillary.evidence import case_path
from armillary.evidence.shapes import Case, Cell
from armillary.uncertainty.recalibration.base_models import BASE_MODELS
from armillary.uncertainty.recalibration.distributions import Floats, Predictive
from armillary.uncertainty.recalibration.evidence_data import SHARES, Work, split
from armillary.uncertainty.recalibration.tabular import Layout, read_table

#: The first part of the case's name; the second is the file's.
YOURS = "yours"
OUTCOME = "y"
MIN_ROWS, MAX_ROWS = 100, 3000
#: Trained where the table has features and no predictions: it needs no further package.
BASE_MODEL = "bagging"

_NORMAL = (("mean", "std"), ("mu", "sigma"))
_EXPERIMENT = "real-data"


def case_from_file(path: Path) -> tuple[str, Case]:
    """What a table becomes: a case of the experiment on real data.

    The outcome is the column ``y``, or the last one where there is no ``y``. Predictions are read
    from ``mean`` and ``std`` (or ``mu`` and ``sigma``), from samples ``s_*`` or from quantiles
    ``q05``, ``q50``, …; where there are none, all other columns are features and a bagged
    ensemble of trees is trained on 40 % of the rows.

    Raises:
        FileNotFoundError: no such file.
        ValueError: it is no table of numbers, or has under 100 rows.
    """
    _, outcomes, layout = read(path)
    rows = min(len(outcomes), MAX_ROWS)
    calibrated = len(_parts(rows, layout, np.random.default_rng(0))[1])
    return _EXPERIMENT, Case(f"{YOURS}/{path.name}", {"rows": rows, "n_cal": calibrated})


def read(path: Path) -> tuple[Floats, Floats, Layout | None]:
    """A table's columns of predictions or features, its outcomes, and how predictions are held.

    Returns:
        (n, columns) numbers, (n,) outcomes, and None for features.
    """
    frame = read_table(path)
    if len(frame.columns) < 2:
        raise ValueError("it has one column: give an outcome and predictions or features")
    target = OUTCOME if OUTCOME in frame.columns else str(frame.columns[-1])
    others = [str(c) for c in frame.columns if str(c) != target]
    layout = _layout(others)
    used = layout.names(frame.drop(columns=target)) if layout else others
    if len(frame) < MIN_ROWS:
        raise ValueError(f"it has {len(frame)} rows: at least {MIN_ROWS} are needed")
    columns = {name: _column(frame[name], name) for name in [*used, target]}
    numbers = np.stack([columns[name] for name in used], axis=1)
    if layout is not None and not layout.usable(numbers).all():
        row = int(np.argmin(layout.usable(numbers)))
        raise ValueError(f"row {row + 1} holds no distribution: the spread must be above 0")
    if np.ptp(columns[target]) == 0:
        raise ValueError(f"the outcome {target!r} is the same in every row")
    return numbers, columns[target], layout


def _layout(names: list[str]) -> Layout | None:
    for mean, spread in _NORMAL:
        if mean in names and spread in names:
            return Layout("normal", (mean, spread))
    if sum(name.startswith("s_") for name in names) >= 2:
        return Layout("samples", ("s_*",))
    quantiles = [name for name in names if re.fullmatch(r"q\d*\.?\d+", name)]
    return Layout.parse(f"quantiles:{','.join(quantiles)}") if len(quantiles) >= 2 else None


def _column(column: object, name: str) -> Floats:
    import pandas as pd

    values = np.asarray(pd.to_numeric(column, errors="coerce"), dtype=float)  # pyright: ignore
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise ValueError(
            f"column {name!r} holds no number in row {row + 1}: leave such rows or columns out"
        )
    return values


def split_any(cell: Cell) -> Work:
    """The work of a case of the evidence, or of the user's own."""
    if not cell.case.name.startswith(f"{YOURS}/"):
        return split(cell)
    numbers, outcomes, layout = read(case_path())
    return split_table(numbers, outcomes, layout, int(cell.case.x["rows"]), cell.seed)


def split_table(
    numbers: Floats, outcomes: Floats, layout: Layout | None, rows: int, seed: int
) -> Work:
    """Draw rows, deal them to parts, and have predictions for calibration and test rows."""
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(len(outcomes))[:rows]
    train, calibration, test = (drawn[part] for part in _parts(rows, layout, rng))
    y = outcomes / outcomes.std()
    if layout is None:
        held = [numbers[calibration], numbers[test]]
        predictions = BASE_MODELS[BASE_MODEL](numbers[train], y[train], held, seed)
    else:
        predictions = [_scaled(layout, numbers[part], outcomes) for part in (calibration, test)]
    before, new = predictions
    return Work(before, y[calibration], new, y[test])


def _scaled(layout: Layout, numbers: Floats, outcomes: Floats) -> Predictive:
    """Predictions in standard deviations of y; every form that a table can hold is linear in y."""
    return layout.predictive(numbers / outcomes.std())


def _parts(rows: int, layout: Layout | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Which of the drawn rows train, calibrate and test; none train where predictions are given."""
    shares = np.array(SHARES) if layout is None else np.array([0.0, SHARES[1], SHARES[2]])
    ends = np.floor(np.cumsum(shares / shares.sum())[:-1] * rows).astype(int)
    return np.split(rng.permutation(rows), ends)
