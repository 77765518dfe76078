"""A trained estimator as one safetensors file: weights, scales and settings; no pickle."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from armillary.graph.tango.estimator import SklearnTango
from armillary.graph.tango.models import Tango
from armillary.output import write_bytes

_FORMAT = "armillary-tango-1"


def save_model(estimator: SklearnTango, path: str | os.PathLike[str], note: dict[str, Any]) -> None:
    """Write a fitted estimator.

    Args:
        estimator: fitted, with a backbone that has a name.
        path: the file.
        note: what else is remembered, as JSON can hold it.

    Raises:
        ValueError: the backbone is a module, whose class a file cannot hold.
    """
    if not isinstance(estimator.backbone, str):
        raise ValueError(
            "a model whose backbone is a module cannot be written: name one of "
            "armillary.graph.tango.backbones.BACKBONES"
        )
    tensors = {f"model.{k}": v.contiguous() for k, v in estimator.model_.state_dict().items()}
    tensors["x_mean"], tensors["x_scale"] = estimator._x_mean, estimator._x_scale
    settings = estimator.get_params()
    settings["random_state"] = estimator._seed  # what was drawn, where a generator was given
    about: dict[str, Any] = {
        "settings": settings,
        "task": estimator.task_,
        "flat": bool(estimator._flat),
        "classes": estimator.classes_.tolist() if estimator._has_classes else None,
        "outputs": estimator.model_.decoder.out_features,
        "note": note,
    }
    if not estimator._has_classes:
        tensors["y_mean"] = torch.from_numpy(estimator._y_mean)
        tensors["y_scale"] = torch.from_numpy(np.asarray(estimator._y_scale))
    write_bytes(path, save(tensors, {"format": _FORMAT, "about": json.dumps(about)}))


def load_model(path: str | os.PathLike[str]) -> tuple[SklearnTango, dict[str, Any]]:
    """Read what `save_model` wrote: the estimator and the note.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no model of tango.
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{os.fspath(path)!r}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            head = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError:
        head, tensors = {}, {}
    if head.get("format") != _FORMAT:
        raise ValueError(
            f"{os.fspath(path)!r} is no model of tango: give a file that `armillary tango train` "
            "wrote"
        )
    about = json.loads(head["about"])
    estimator = SklearnTango(**about["settings"])
    s = estimator
    s.task_, s._flat, s._seed = about["task"], about["flat"], about["settings"]["random_state"]
    s._has_classes = about["classes"] is not None
    s._x_mean, s._x_scale = tensors["x_mean"], tensors["x_scale"]
    s.n_features_in_ = len(s._x_mean)
    if s._has_classes:
        s.classes_ = np.array(about["classes"])
    else:
        s._y_mean, s._y_scale = tensors["y_mean"].numpy(), tensors["y_scale"].numpy()
    with torch.random.fork_rng(devices=[]):
        s.model_ = Tango(
            s.n_features_in_, s.hidden_channels, s.num_layers, about["outputs"], s.task_,  # pyright: ignore
            s.pool, dropout=s.dropout, backbone=s.backbone, stable=s.stable, step=s.step,
            alpha=s.alpha, beta=s.beta, rho=s.rho, share_weights=s.share_weights,
        )  # fmt: skip
    weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    s.model_.load_state_dict(weights)
    s.model_.eval()
    return estimator, about["note"]
