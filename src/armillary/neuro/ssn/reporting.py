"""What an encoder does with a user's own images: with and without lateral connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.neuro.ssn.decoding import cosine, fit_decoders
from armillary.neuro.ssn.degrade import degrade
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.responses import quietly_encoded
from armillary.output.charts import PALETTE

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Float64

#: Degradations of `robustness`: contrast by noise.
CONTRASTS, NOISES = (1.0, 0.5, 0.25, 0.1), (0.0, 0.5, 1.0, 2.0)


def robustness(
    encoder: SSNEncoder,
    fit: Float64[np.ndarray, "n pixels"],
    test: Float64[np.ndarray, "m pixels"],
    seed: int = 0,
) -> pd.DataFrame:
    """What linear decoders find of degraded patches in the code, with and without lateral ones.

    Decoders are fitted to three in four of the patches of ``fit`` as they are, one with and one
    without an intercept for each code; the other quarter, degraded, decides for each degradation
    and code which of the two reads ``test``.

    Args:
        encoder: fitted.
        fit: at least 8 patches for the decoders, not constant.
        test: patches to be degraded, not constant.
        seed: of the noise.

    Returns:
        A row a degradation: ``contrast``, ``noise``, ``lateral`` and ``no_lateral`` (mean cosine
        with the clean whitened patch).
    """
    import pandas as pd

    codes = {"lateral": encoder.ablate(lateral=True), "no_lateral": encoder.ablate()}
    whitening = encoder.whitening_
    chosen_on = np.arange(len(fit)) % 4 == 3
    fit, choice = fit[~chosen_on], fit[chosen_on]

    def features(model: SSNEncoder, patches: np.ndarray) -> np.ndarray:
        return np.sqrt(quietly_encoded(model, patches, None).rates)

    decoders = {
        name: fit_decoders(features(model, fit), whitening.directions(fit).x)
        for name, model in codes.items()
    }
    targets = [whitening.directions(patches).x for patches in (choice, test)]
    rng = np.random.default_rng(seed)
    rows: list[dict[str, float]] = []
    for contrast in CONTRASTS:
        for noise in NOISES:
            seen = [
                degrade(patches, contrast, noise, shape=(1, test.shape[1]), random_state=rng)
                for patches in (choice, test)
            ]
            row = {"contrast": contrast, "noise": noise}
            for name, model in codes.items():
                choice_code, test_code = (features(model, patches) for patches in seen)
                plain, affine = (
                    cosine(decoders[name].decode(choice_code, i), targets[0]) for i in (False, True)
                )
                row[name] = cosine(decoders[name].decode(test_code, affine > plain), targets[1])
            rows.append(row)
    return pd.DataFrame(rows)


def contrast_chart(response: pd.DataFrame) -> dict[str, Any]:
    """A Vega-Lite chart of active units, energy and the exponent against contrast."""
    values = response.to_dict("records")
    x = {
        "field": "contrast",
        "type": "quantitative",
        "scale": {"type": "log"},
        "title": "contrast",
    }

    def panel(field: str, title: str, colour: str, log: bool = False) -> dict[str, Any]:
        y: dict[str, Any] = {"field": field, "type": "quantitative", "title": title}
        if log:
            y["scale"] = {"type": "log"}
        return {
            "width": 220,
            "height": 180,
            "mark": {"type": "line", "point": True, "color": colour},
            "encoding": {"x": x, "y": y},
        }

    return {
        "data": {"values": values},
        "hconcat": [
            panel("active", "share of units active", PALETTE[0]),
            panel("energy", "sum of rates (Hz)", PALETTE[1], log=True),
            panel("exponent", "exponent of the summed rate", PALETTE[2]),
        ],
    }


def contrast_levels(text: str) -> list[float]:
    """Contrasts from ``LOW:HIGH:COUNT`` (equal ratios) or ``A,B,C``.

    Raises:
        ValueError: the text is neither, a contrast is not positive, or LOW is not below HIGH.
    """
    try:
        if ":" in text:
            low, high, count = text.split(":")
            rises = 0 < float(low) < float(high) and int(count) > 1
            levels: Sequence[float] = (
                np.geomspace(float(low), float(high), int(count)).tolist() if rises else []
            )
        else:
            levels = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        levels = []
    if not levels or not all(np.isfinite(level) and level > 0 for level in levels):
        raise ValueError(
            f"--contrasts {text!r}: give LOW:HIGH:COUNT with LOW < HIGH, such as .05:4:12, or "
            "numbers > 0 separated by commas"
        )
    return list(levels)
