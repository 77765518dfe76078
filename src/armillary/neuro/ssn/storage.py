"""A learned encoder as one ``.npz`` file: arrays and a JSON text, no pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.network import Network, Rules
from armillary.neuro.ssn.whitening import Whitening
from armillary.output import atomic_path

FORMAT = "armillary.ssn/1"


def save(
    encoder: SSNEncoder, path: str | os.PathLike[str], note: dict[str, Any] | None = None
) -> Path:
    """Write a learned encoder.

    Args:
        encoder: fitted.
        path: should end in ``.npz``.
        note: more that JSON can hold, for `read_note`.
    """
    parameters = encoder.get_params()
    if parameters["rules"] is not None:
        parameters["rules"] = dataclasses.asdict(parameters["rules"])
    if isinstance(parameters["random_state"], np.random.Generator | np.random.RandomState):
        parameters["random_state"] = None  # the generator's state goes with the numbers
    header = {
        "format": FORMAT,
        "parameters": parameters,
        "totals": encoder.network_.totals,
        "gain": encoder.network_.gain,
        "numbers": {
            "reference_norm_": encoder.reference_norm_,
            "n_batches_": encoder.n_batches_,
            "shrinks_": encoder.shrinks_,
            "unconverged_": encoder.unconverged_,
            "n_features_in_": encoder.n_features_in_,
        },
        "generator": encoder._rng.bit_generator.state,
        "note": note or {},
    }
    arrays: dict[str, NDArray] = {
        "header": np.array(json.dumps(header, default=_plain)),
        "basis": encoder.whitening_.basis,
        "scale": encoder.whitening_.scale,
        **{f"network.{name}": t.numpy() for name, t in encoder.network_.tensors().items()},
        **{f"decoder.{int(key)}": array for key, array in encoder.decoders_.items()},
    }
    if encoder._mean_rate is not None:
        arrays["mean_rate"] = encoder._mean_rate
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]
    return Path(path)


def _plain(value: Any) -> Any:
    """Numpy numbers and arrays as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    if not Path(path).is_file():
        raise FileNotFoundError(f"no ssn encoder at {str(path)!r}")
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
        header = json.loads(str(arrays.pop("header")))
    except (ValueError, KeyError, TypeError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{str(path)!r} is not an ssn encoder: write one with `armillary ssn fit`"
        ) from error
    if not isinstance(header, dict):
        raise ValueError(f"{str(path)!r} is not an ssn encoder: its header is no table")
    if header.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} has format {header.get('format')!r}, not {FORMAT}")
    return header, arrays


def read_note(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What was noted beside the encoder; empty if nothing was."""
    note = _read(path)[0].get("note")
    return note if isinstance(note, dict) else {}


def load(path: str | os.PathLike[str]) -> SSNEncoder:
    """Read an encoder that `save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no encoder of this format.
    """
    header, arrays = _read(path)
    try:
        return _built(header, arrays)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        lacks = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{str(path)!r} is a damaged ssn encoder ({lacks}): write it anew with "
            "`armillary ssn fit`"
        ) from error


def _built(header: dict[str, Any], arrays: dict[str, NDArray]) -> SSNEncoder:
    parameters = header["parameters"]
    for name in ("tau", "J", "contrast_range"):
        parameters[name] = tuple(parameters[name])
    if parameters["rules"] is not None:
        parameters["rules"] = Rules(**parameters["rules"])
    encoder = SSNEncoder(**parameters)
    for name, value in header["numbers"].items():
        setattr(encoder, name, value)
    encoder.whitening_ = Whitening(arrays["basis"], arrays["scale"])
    tensors = {
        name.removeprefix("network."): torch.from_numpy(array)
        for name, array in arrays.items()
        if name.startswith("network.")
    }
    j_ee, j_ei, j_ie, j_ii = header["totals"]
    encoder.network_ = Network(**tensors, totals=(j_ee, j_ei, j_ie, j_ii), gain=header["gain"])
    # An encoder that learned without lateral connections may have no decoder for codes with them.
    kinds = [0] if not encoder.lateral and "decoder.1" not in arrays else [0, 1]
    encoder.decoders_ = {bool(kind): arrays[f"decoder.{kind}"] for kind in kinds}
    encoder._mean_rate = arrays.get("mean_rate")
    encoder._rng = np.random.default_rng()
    encoder._rng.bit_generator.state = header["generator"]
    return encoder
