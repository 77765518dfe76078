"""A fitted recalibrator as one ``.npz`` file: arrays and a JSON text, no pickle."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.output import atomic_path
from armillary.uncertainty.recalibration.distributions import Predictive
from armillary.uncertainty.recalibration.embedding import Backend
from armillary.uncertainty.recalibration.energy import Embedded
from armillary.uncertainty.recalibration.estimator import KernelRecalibrator, Outcomes

FORMAT = "armillary.recalibration/2"
#: Models of format 1 were fitted about zero; they are read with that origin.
READABLE = ("armillary.recalibration/1", FORMAT)
_NUMBERS = (
    "n_calibration_", "origin_", "location_", "scale_", "rank_", "theta_", "lam_",
)  # fmt: skip


def save(
    model: KernelRecalibrator, path: str | os.PathLike[str], note: dict[str, Any] | None = None
) -> Path:
    """Write a fitted model.

    Args:
        model: fitted.
        path: should end in ``.npz``.
        note: more that JSON can hold, for `read_note`.
    """
    header = {
        "format": FORMAT,
        "parameters": model.get_params(),
        "numbers": {name: getattr(model, name) for name in _NUMBERS},
        "anchor": model.anchor_,
        "outcome_theta": model._outcomes.theta,
        "reference": type(model._reference).__name__,
        "note": note or {},
    }
    arrays: dict[str, NDArray] = {
        "header": np.array(json.dumps(header, default=float)),
        "outcomes": model._outcomes.values,
        "order": model._outcomes.order,
    }
    if model.knots_ is not None:
        arrays["knots"] = model.knots_
    reference = model._reference
    parts = vars(reference) if isinstance(reference, Embedded) else reference.arrays()
    arrays |= {f"reference.{name}": part for name, part in parts.items()}
    if model._map is not None:  # the dense factor is made anew from the reference rows
        factor = model._factor[0] if isinstance(model._factor, tuple) else model._factor
        arrays["factor"] = np.tril(Backend(model.device).take(factor))
        arrays["map"] = model._map
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    return Path(path)


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"no recalibration model at {str(path)!r}")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        header = json.loads(str(arrays.pop("header")))
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{str(path)!r} is not a recalibration model: write one with "
            "`armillary recalibration fit`"
        ) from error
    if header.get("format") not in READABLE:
        raise ValueError(
            f"{str(path)!r} has format {header.get('format')!r}, not {' or '.join(READABLE)}"
        )
    return header, arrays


def read_note(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What was noted beside the model."""
    return _read(path)[0]["note"]


def load(path: str | os.PathLike[str]) -> KernelRecalibrator:
    """Read a model that `save` wrote."""
    header, arrays = _read(path)
    model = KernelRecalibrator(**header["parameters"])
    model.origin_ = 0.0
    for name, value in header["numbers"].items():
        setattr(model, name, value)
    model.anchor_, model.selection_ = header["anchor"], None
    model.knots_ = arrays.get("knots")
    parts = {
        name.removeprefix("reference."): array
        for name, array in arrays.items()
        if name.startswith("reference.")
    }
    embedded = header["reference"] == "Embedded"
    model._reference = Embedded(**parts) if embedded else Predictive.from_arrays(parts)
    model._factor, model._map = None, arrays.get("map")
    if "factor" in arrays:
        factor = Backend(model.device).put(arrays["factor"])
        model._factor = (factor, True) if model.device is None else factor
    elif model.theta_ > 0:
        model._factor = model._dense_factor(model._squared(model._reference))
    outcomes = Outcomes(model.anchor_, arrays["outcomes"], arrays["order"], header["outcome_theta"])
    model._set_outcomes(outcomes)
    return model
