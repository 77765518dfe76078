"""What an encoder's settings may be, and the generator that its seed makes."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np

from armillary.neuro.ssn.network import Rules


def check_settings(encoder: Any) -> None:
    """Refuse settings of an encoder that are out of their range.

    Raises:
        ValueError: with the setting, its value and what is accepted.
    """
    tau, span, totals = (_numbers(v) for v in (encoder.tau, encoder.contrast_range, encoder.J))
    wrong = {
        "n_exc": not _whole(encoder.n_exc, 2),
        "n_inh": not _whole(encoder.n_inh, 1),
        "n": not all(v >= 1 for v in _numbers([encoder.n])),
        "k": not all(v > 0 for v in _numbers([encoder.k])),
        "tau": len(tau) != 2 or not min(tau) > 0,
        "J": len(totals) != 4 or not min(totals) >= 0,
        "gain": not all(v > 0 for v in _numbers([encoder.gain])),
        "n_iter": not _whole(encoder.n_iter, 0),
        "contrast_range": len(span) != 2 or not 0 < span[0] <= span[1],
        "lateral": not isinstance(encoder.lateral, bool | np.bool_),
        "rules": not (encoder.rules is None or isinstance(encoder.rules, Rules)),
    }
    accepted = {
        "n_exc": "at least 2 units", "n_inh": "at least 1 unit", "n": "a number >= 1",
        "k": "a number > 0", "tau": "two times > 0 in ms",
        "J": "four totals >= 0: EE, EI, IE, II", "gain": "a number > 0 in mV",
        "n_iter": "a number of batches >= 0",
        "contrast_range": "two numbers, 0 < lowest <= highest",
        "lateral": "True or False", "rules": "None or Rules",
    }  # fmt: skip
    for name, bad in wrong.items():
        if bad:
            raise ValueError(f"{name}={getattr(encoder, name)!r}: expected {accepted[name]}")


def _numbers(values: Any) -> list[float]:
    """Finite real numbers; [NaN], which is in no range, for anything else."""
    try:
        found = [float(value) for value in values]
    except (TypeError, ValueError):
        return [math.nan]
    return found if all(map(math.isfinite, found)) else [math.nan]


def _whole(value: Any, least: int) -> bool:
    return (
        isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= least
    )


def own_generator(seed: Any) -> np.random.Generator:
    """A PCG64 generator of a seed; a generator that is given stays as it is."""
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(int(copy.deepcopy(seed).randint(2**31)))
    if isinstance(seed, np.random.Generator):
        own = copy.deepcopy(seed)
        if isinstance(own.bit_generator, np.random.PCG64):
            return own
        return np.random.default_rng(int(own.integers(2**62)))
    return np.random.default_rng(seed)
