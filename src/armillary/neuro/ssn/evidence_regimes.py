"""The switch of coding strategy with contrast, the regimes behind it, and the parts it needs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import torch

from armillary.evidence.shapes import (
    Ablation,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
)
from armillary.neuro.ssn.dynamics import UnstableNetwork
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.evidence_data import (
    FULL,
    LINEAR,
    NO_HOMEOSTASIS,
    Fold,
    encoder,
    fold,
    patch_case,
)
from armillary.neuro.ssn.metrics import code_kurtosis, field_similarity, rate_variation
from armillary.neuro.ssn.network import Network
from armillary.neuro.ssn.responses import (
    contrast_response,
    cross_orientation_suppression,
    quietly_encoded,
)

#: The weak end, the low and the high contrast of the claims, and between them.
WEAK, LOW, HIGH = 0.05, 0.1, 4.0
CONTRASTS = (WEAK, LOW, 0.25, 0.5, 1.0, 2.0, HIGH)
#: Times that J_EE is lowered by 2 % at most: to an eighth.
MOST_SHRINKS = 100


def setup(cell: Cell) -> Fold:
    return fold(cell)


def cut(model: SSNEncoder, data: Fold) -> SSNEncoder:
    return model.ablate()


def even_inhibition(model: SSNEncoder) -> SSNEncoder:
    """Every inhibitory unit inhibits every excitatory one alike; totals stay."""
    w = model.network_.w_ei
    even = torch.full_like(w, model.network_.totals[1] / w.shape[1])
    return with_network(model, dataclasses.replace(model.network_, w_ei=even))


def uniform_inhibition(data: Fold, cell: Cell) -> Mapping[str, float]:
    """Inhibition that is not tuned may not hold the excitation.

    J_EE is then lowered by 2 % at a time until no patch or grating that is looked at runs away
    ("excitation held" tells how far).
    """
    view = even_inhibition(encoder(cell))
    for _ in range(MOST_SHRINKS):
        try:
            return figures(view, data)
        except UnstableNetwork:
            held = dataclasses.replace(view.network_)
            held.shrink_excitation()
            view = with_network(view, held)
    return figures(view, data)


def no_excitation(model: SSNEncoder, data: Fold) -> SSNEncoder:
    """No excitatory unit drives another."""
    none = torch.zeros_like(model.network_.w_ee)
    totals = (0.0, *model.network_.totals[1:])
    return with_network(model, dataclasses.replace(model.network_, w_ee=none, totals=totals))


def with_network(model: SSNEncoder, network: Network) -> SSNEncoder:
    view = copy.copy(model)
    view.network_ = network
    return view


def learned(**settings: object) -> Callable[[Fold, Cell], Mapping[str, float]]:
    """A contender: an encoder learned with some settings."""
    return lambda data, cell: figures(encoder(cell, **settings), data)


def changed(
    change: Callable[[SSNEncoder, Fold], SSNEncoder],
) -> Callable[[Fold, Cell], Mapping[str, float]]:
    """A contender: our encoder, changed after it has learned."""
    return lambda data, cell: figures(change(encoder(cell), data), data)


def figures(model: SSNEncoder, data: Fold) -> dict[str, float]:
    """Every metric of an encoder on the patches of test images."""
    found = contrast_response(model, data.test, CONTRASTS).set_index("contrast")
    low, high = found.loc[LOW], found.loc[HIGH]
    ratios = found[["active", "active_20", "sparseness"]].to_numpy()
    # At the contrast of full patches: how units differ in what they do.
    rates = quietly_encoded(model, data.test, FULL).rates
    exponents = found["exponent"].to_numpy()
    return {
        "active ratio": float(high["active"] / low["active"]),
        "active ratio, fifth": float(high["active_20"] / low["active_20"]),
        "sparseness gained": float(high["sparseness"] - low["sparseness"]),
        "energy ratio": float(high["energy"] / high["energy_without"]),
        "weak exponent": float(found.loc[WEAK, "exponent"]),
        "top exponent": float(exponents[-1]),
        "exponent range": float(exponents.max() - exponents.min()),
        "weak isn index": float(found.loc[WEAK, "isn_index"]),
        "top isn index": float(high["isn_index"]),
        "crossing contrast": crossing(found.index.to_numpy(), exponents),
        "slowest mode": float(found["abscissa"].max()),
        "settled": float(found["settled"].min()),
        "silent": float(found["silent"].max()),
        "excitation held": model.totals_[0] / model.J[0],
        "flatness": float(np.abs(ratios / ratios[0] - 1).max()),
        "doubling": float(high["energy"] / found.loc[HIGH / 2, "energy"]),
        "cross-orientation": cross_orientation_suppression(model, data.size),
        "kurtosis": code_kurtosis(rates),
        "rate variation": rate_variation(rates),
        "field similarity": field_similarity(model.network_.f_exc.numpy()),
    }


def crossing(contrasts: np.ndarray, exponents: np.ndarray) -> float:
    """The contrast at which the exponent falls through 1, on a logarithmic scale.

    The highest (lowest) contrast looked at if it stays above (below) 1.
    """
    above = exponents > 1
    if above.all():
        return float(contrasts[-1])
    first = int(np.argmin(above))
    if first == 0:
        return float(contrasts[0])
    share = (exponents[first - 1] - 1) / (exponents[first - 1] - exponents[first])
    low, high = np.log(contrasts[first - 1]), np.log(contrasts[first])
    return float(np.exp(low + share * (high - low)))


def _level(metric: str, of: str = "ours", **bounds: float) -> Condition:
    return Condition(Stat(metric, of=of), **bounds)  # pyright: ignore[reportArgumentType]


_ABSTRACT = (
    "The abstract: the code turns from a population code to a sparse one as contrast rises, with "
    "fewer active neurons; no figures."
)
_THEORY = "Ahmadian, Rubin, Miller 2013 and Rubin, Van Hooser, Miller 2015; the abstract has none."
_OURS_ALONE = "Not in the abstract."

REGIMES = Experiment(
    id="regimes",
    title="From many units to few as contrast rises",
    cases={
        "smoke": [patch_case(8, 24, 6, 300, 12)],
        "quick": [patch_case(10, 96, 150, 1500, 80)],
        "full": [patch_case(10, 192, 1200, 12_000, 240)],
        "long": [patch_case(16, 384, 600, 8000, 160)],
    },
    setup=setup,
    contenders=(
        Contender("ours", learned()),
        Contender("no-lateral", changed(cut)),
        Contender("uniform-inhibition", uniform_inhibition),
        Contender("no-excitation", changed(no_excitation)),
        Contender("linear", learned(**LINEAR)),
        Contender("random", learned(n_iter=0)),
        Contender("no-homeostasis", learned(rules=NO_HOMEOSTASIS)),
    ),
    metrics=(
        Metric("active ratio"),
        Metric("active ratio, fifth"),
        Metric("sparseness gained", "", "higher"),
        Metric("energy ratio"),
        Metric("weak exponent", "", "higher"),
        Metric("top exponent"),
        Metric("exponent range", "", "higher"),
        Metric("weak isn index", "", "neither"),
        Metric("top isn index", "", "higher"),
        Metric("crossing contrast", "", "neither"),
        Metric("slowest mode", "1/ms", "neither"),
        Metric("settled", "share of patches", "higher"),
        Metric("silent", "share of patches"),
        Metric("excitation held", "share of J_EE", "higher"),
        Metric("flatness", "", "neither"),
        Metric("doubling"),
        Metric("cross-orientation", "", "higher"),
        Metric("kurtosis", "", "higher"),
        Metric("rate variation"),
        Metric("field similarity"),
    ),
    claims=(
        Claim(
            id="switches-code",
            statement="From contrast 0.1 to 4 the share of active units falls to at most 0.55 of "
            "what it was (units above a thousandth of the largest rate, and units above a fifth of "
            "it), Treves and Rolls' sparseness rises by at least 0.08, and the code at "
            "contrast 4 costs at most 0.35 of the rates that it costs without lateral "
            "connections.",
            paper=_ABSTRACT,
            conditions=(
                _level("active ratio", at_most=0.55),
                _level("active ratio, fifth", at_most=0.55),
                _level("sparseness gained", at_least=0.08),
                _level("energy ratio", at_most=0.35),
            ),
            ablations=(
                Ablation("no-lateral", "active ratio"),
                Ablation("uniform-inhibition", "active ratio"),
                Ablation("uniform-inhibition", "excitation held", expect="reported"),
                Ablation("linear", "active ratio"),
                Ablation("no-excitation", "active ratio", expect="reported"),
                Ablation("random", "active ratio"),
                Ablation("random", "active ratio, fifth"),
                Ablation("no-homeostasis", "active ratio", expect="reported"),
            ),
        ),
        Claim(
            id="supralinear-then-saturating",
            statement="The summed rate grows with at least the power 1.95 of contrast at 0.05, and "
            "with less than the power 1 at 4.",
            paper=_THEORY,
            conditions=(
                _level("weak exponent", at_least=1.95),
                _level("top exponent", at_most=1.0),
            ),
            ablations=(
                Ablation("linear", "exponent range"),
                Ablation("no-excitation", "weak exponent", expect="reported"),
                Ablation("random", "top exponent", expect="reported"),
            ),
        ),
        Claim(
            id="inhibition-stabilised",
            statement="Excitatory units alone are stable at contrast 0.05 and would be unstable at "
            "4, where inhibition holds them; rates settle for at least 95 % of patches at every "
            "contrast between, and there the slowest mode of the network, in the mean over "
            "patches, decays.",
            paper=_THEORY,
            conditions=(
                _level("weak isn index", at_most=0.0),
                _level("top isn index", at_least=0.0),
                _level("settled", at_least=0.95),
                _level("slowest mode", at_most=0.0),
            ),
            ablations=(Ablation("no-excitation", "top isn index"),),
        ),
        Claim(
            id="flat-without-lateral",
            statement="Without lateral connections the shares of active units and the sparseness "
            "are the same at all contrasts, to 1e-4.",
            paper="It follows from the equations.",
            conditions=(Condition(Stat("flatness", of="no-lateral"), at_most=1e-4, every=True),),
        ),
        Claim(
            id="cortical-responses",
            statement="Responses saturate: doubling the contrast to 4 raises the summed rate by a "
            "factor of at most 1.5 (of 4 without lateral connections); and a second grating at "
            "right angles lowers the response to the first, more than without lateral connections.",
            paper=_THEORY,
            conditions=(
                _level("doubling", at_most=1.5),
                _level("cross-orientation", at_least=0.0),
                Condition(
                    Stat("cross-orientation", over=("no-lateral",), form="difference"),
                    at_least=0.0,
                ),
            ),
            ablations=(Ablation("no-lateral", "doubling"),),
        ),
        Claim(
            id="power-law-matters",
            statement="With a linear transfer function there is no change of regime: the exponent "
            "moves by at most 0.05 over all contrasts. (It follows from the equations: "
            "where drives are in proportion to contrast, so are rates that are linear in them.)",
            paper="It follows from the equations.",
            conditions=(_level("exponent range", "linear", at_most=0.05),),
            ablations=(Ablation("linear", "exponent range"),),
        ),
        Claim(
            id="learning-matters",
            statement="With random weights the kurtosis of the code is at most 0.8 of what it is "
            "after learning.",
            paper=_OURS_ALONE,
            conditions=(
                Condition(Stat("kurtosis", of="random", over=("ours",), form="ratio"), at_most=0.8),
            ),
            ablations=(
                Ablation("random", "kurtosis"),
                Ablation("uniform-inhibition", "kurtosis", expect="reported"),
            ),
        ),
        Claim(
            id="homeostasis-matters",
            statement="Without homeostasis mean rates vary over units by more than 0.5 of their "
            "mean.",
            paper=_OURS_ALONE,
            conditions=(_level("rate variation", "no-homeostasis", at_least=0.5),),
            ablations=(
                Ablation("no-homeostasis", "rate variation"),
                Ablation("no-homeostasis", "field similarity", expect="reported"),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 7, "long": 3},
    packages=("torch", "scikit-learn", "scikit-image"),
)
