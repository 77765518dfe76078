"""Processes, solutions and training runs as files: npz, JSON, CSV and charts; no pickle."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from armillary import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from armillary.rl.maxmin_morl.dual_ascent import DualStep
    from armillary.rl.maxmin_morl.tabular import TabularSolution


def read_process(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The arguments of `solve_tabular` that a file holds.

    The file is an npz with ``P`` (S, A, S), or ``P_data``, ``P_indices`` and ``P_indptr`` of the
    CSR matrix (S A, S) whose row s A + a is P(. | s, a); ``r`` (S, A, K); and, if there are limits,
    ``c`` (S, A, L) and ``C`` (L,). ``mu`` (S,) and ``gamma`` may be given.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no npz, or an array is missing.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        with np.load(path, allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no npz of arrays: {error}") from None
    if "r" not in held:
        raise ValueError(f"{path} has no array 'r' (S, A, K); it has {', '.join(held) or 'none'}")
    found: dict[str, Any] = {name: held.get(name) for name in ("r", "c", "C", "mu")}
    found["P"] = _transitions(path, held)
    if "gamma" in held:
        found["gamma"] = float(held["gamma"])
    return found


def _transitions(path: Any, held: dict[str, np.ndarray]) -> Any:
    if "P" in held:
        return held["P"]
    parts = ("P_data", "P_indices", "P_indptr")
    absent = [name for name in parts if name not in held]
    if absent:
        raise ValueError(
            f"{path} has no array 'P' (S, A, S), nor {', '.join(absent)} of a sparse one; it has "
            f"{', '.join(held)}"
        )
    states, actions = held["r"].shape[:2]
    whole = sparse.csr_array(tuple(held[name] for name in parts), shape=(states * actions, states))
    return [sparse.csr_array(whole[np.arange(states) * actions + a]) for a in range(actions)]


def write_solution(path: str | os.PathLike[str], solution: TabularSolution) -> None:
    """Write a policy with its multipliers and its proof (npz)."""
    held = io.BytesIO()
    np.savez_compressed(
        held,
        policy=solution.policy,
        visited=solution.visited,
        w=solution.w,
        u=solution.u,
        J=solution.J,
        slack=solution.slack,
        value_min=solution.value_min,
        upper=solution.certificate.upper,
        gap=solution.gap,
    )
    output.write_bytes(path, held.getvalue())


def dual_columns(objectives: int, limits: int) -> list[str]:
    """The columns of `write_dual`."""
    names = ["timesteps"]
    for prefix, count in (("J", objectives), ("w", objectives), ("slack", limits), ("u", limits)):
        names += [f"{prefix}_{i}" for i in range(count)]
    return names


def write_dual(path: str | os.PathLike[str], history: Sequence[DualStep]) -> None:
    """Write the dual variables of a training run, a row a step (CSV)."""
    first = history[0] if history else None
    columns = dual_columns(len(first.w), len(first.u)) if first else ["timesteps"]
    rows = [[s.timesteps, *s.J, *s.w, *s.slack, *s.u] for s in history]
    output.write_csv(path, columns, rows)


def read_run(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings and the figures of a training run's folder.

    Raises:
        FileNotFoundError: the folder is none that `train` wrote.
    """
    found = {}
    for name in ("settings", "report"):
        path = Path(folder) / f"{name}.json"
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such file; give a folder that `train` wrote")
        found[name] = json.loads(path.read_text("utf-8"))
    return found


def dual_chart(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """A Vega-Lite chart of weights and slacks over a training run."""
    import csv

    with (Path(folder) / "dual.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    values = [
        {"step": int(row["timesteps"]), "name": name, "value": float(value)}
        for row in rows
        for name, value in row.items()
        if name != "timesteps"
    ]

    def panel(prefix: str, title: str) -> dict[str, Any]:
        return {
            "width": 480,
            "height": 140,
            "transform": [{"filter": f"indexof(datum.name, '{prefix}') == 0"}],
            "mark": "line",
            "encoding": {
                "x": {"field": "step", "type": "quantitative", "title": "environment steps"},
                "y": {"field": "value", "type": "quantitative", "title": title},
                "color": {"field": "name", "type": "nominal", "title": None},
            },
        }

    titles = {"J_": "objectives", "w_": "weights", "slack_": "slack of limits", "u_": "prices"}
    panels = [panel(prefix, title) for prefix, title in titles.items()]
    return {
        "data": {"values": values},
        "vconcat": panels,
        "resolve": {"scale": {"color": "independent"}},
    }
