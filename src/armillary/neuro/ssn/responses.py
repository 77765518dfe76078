"""How a learned encoder answers: contrast response, orientation, and patches that are degraded."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from armillary.neuro.ssn.encoder import (
    ContrastOutsideTraining,
    Encoding,
    SSNEncoder,
    UnconvergedRates,
)
from armillary.neuro.ssn.metrics import active_fraction, energy, treves_rolls

if TYPE_CHECKING:
    import pandas as pd

#: Patches whose eigenvalues `contrast_response` computes: the costly part.
REGIME_PATCHES = 32


def quietly_encoded(encoder: SSNEncoder, X: ArrayLike, contrast: ArrayLike | None) -> Encoding:
    """`encode` without warnings, for callers that read the flags and mean the contrasts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastOutsideTraining)
        warnings.simplefilter("ignore", UnconvergedRates)
        return encoder.encode(X, contrast)


def contrast_response(
    encoder: SSNEncoder, X: ArrayLike, contrasts: Sequence[float]
) -> pd.DataFrame:
    """What happens to codes as contrast rises, with the same patches at every contrast.

    Args:
        encoder: fitted.
        X: (n, pixels) patches; constant ones are left out.
        contrasts: at which each patch enters, whatever its own.

    Returns:
        One row a contrast: ``contrast``; ``rate`` (mean, Hz); ``energy`` (sum of rates, Hz);
        ``silent`` (share of patches that no excitatory unit answers); over the others, ``active``
        and ``active_20`` (share of units above a thousandth and a fifth of the item's largest rate)
        and ``sparseness`` (Treves and Rolls); ``exponent`` of the summed rate against contrast (up
        to 32 patches: sum of slopes over sum of rates); ``isn_index`` and ``abscissa`` (means over
        the same; the latter in 1/ms); ``regime_patches`` (how many of them settled: the others are
        left out of those three, which are NaN if none did); ``settled`` (share of patches);
        ``energy_without`` (the same weights without lateral connections).

    Raises:
        ValueError: no patch is left, or a contrast is not finite and positive.
    """
    import pandas as pd

    patches = np.asarray(X)
    blank = quietly_encoded(encoder.ablate(), patches, 1.0).blank
    if blank.all():
        raise ValueError("X holds constant patches only: they have no contrast response")
    patches = patches[~blank]
    cut = encoder.ablate()
    rows = []
    for contrast in contrasts:
        if not (np.isfinite(contrast) and contrast > 0):
            raise ValueError(f"contrasts holds {contrast}: expected finite numbers > 0")
        found = quietly_encoded(encoder, patches, float(contrast))
        rates, without = found.rates, quietly_encoded(cut, patches, float(contrast)).rates
        spoken = rates[rates.any(axis=1)] if rates.any() else rates
        some = patches[:: max(1, len(patches) // REGIME_PATCHES)][:REGIME_PATCHES]
        rows.append(
            {
                "contrast": float(contrast),
                "rate": float(rates.mean()),
                "energy": float(energy(rates).mean()),
                "silent": float((~rates.any(axis=1)).mean()),
                "active": float(active_fraction(spoken).mean()),
                "active_20": float(active_fraction(spoken, 0.2).mean()),
                "sparseness": float(treves_rolls(spoken).mean()),
                **_regime(encoder, some, float(contrast)),
                "settled": float(found.converged.mean()),
                "energy_without": float(energy(without).mean()),
            }
        )
    return pd.DataFrame(rows)


def _regime(encoder: SSNEncoder, X: NDArray, contrast: float) -> dict[str, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ContrastOutsideTraining)
        drive = encoder.drive(X, contrast)
    dynamics = encoder.dynamics()
    regime = dynamics.regime(drive)
    known = ~regime.abscissa.isnan()
    if not known.any():
        return {"exponent": np.nan, "isn_index": np.nan, "abscissa": np.nan, "regime_patches": 0}
    total = dynamics.fixed_point(drive).rates[known, : encoder.n_exc].sum(1)
    slopes = (regime.exponent[known] * total)[total > 0]
    return {
        "exponent": float(slopes.sum() / total.sum().clamp(min=1e-12)),
        "isn_index": float(regime.isn_index[known].mean()),
        "abscissa": float(regime.abscissa[known].mean()),
        "regime_patches": int(known.sum()),
    }


def grating(
    size: int, orientation: float, cycles: float, phase: float = 0.0
) -> NDArray[np.float64]:
    """(size, size) sinusoidal grating between -1 and 1.

    Args:
        size: side in pixels.
        orientation: of the bars' normal, radians.
        cycles: periods across the patch.
        phase: radians.
    """
    at = (np.arange(size) - (size - 1) / 2) / size
    along = at[None, :] * np.cos(orientation) + at[:, None] * np.sin(orientation)
    return np.sin(2 * np.pi * cycles * along + phase)


def cross_orientation_suppression(encoder: SSNEncoder, size: int, contrast: float = 2.0) -> float:
    """How much a second grating at right angles lowers the response to the first.

    For each of 8 orientations by 4 phases, at 2 cycles a patch, the 5 units that answer the grating
    most are looked at; the plaid holds the grating at its full contrast and the other one besides.

    Args:
        encoder: fitted on patches of ``size`` by ``size``.
        size: side of a patch in pixels.
        contrast: of the single grating.

    Returns:
        1 - (summed response to the plaids) / (summed response to the gratings): above 0 is
        suppression.
    """
    alone = both = 0.0
    for orientation in np.arange(8) * np.pi / 8:
        for phase in np.arange(4) * np.pi / 2:
            one = grating(size, orientation, 2.0, phase).ravel()
            other = grating(size, orientation + np.pi / 2, 2.0, phase).ravel()
            x = np.stack([one, one + other])
            # The plaid's norm is larger: the grating inside it keeps its own contrast.
            norms = encoder.whitening_.directions(x).norm
            rates = quietly_encoded(encoder, x, contrast * norms / norms[0]).rates
            best = np.argsort(rates[0])[-5:]
            alone += float(rates[0, best].sum())
            both += float(rates[1, best].sum())
    return 1 - both / alone if alone > 0 else 0.0
