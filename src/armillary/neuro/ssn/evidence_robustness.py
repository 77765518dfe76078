"""Robustness: what codes keep of faint, noisy and blurred patches; and what they cost.

The independent unit is the split of the images (seed), which also draws patches, weights and
noise anew. A condition of the table (a contrast, a noise, a blur) is a metric of its own, so that
every cell is shown, those that are lost too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from armillary.evidence.shapes import (
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Stat,
)
from armillary.neuro.ssn.decoding import (
    Decoders,
    Features,
    Floats,
    bags,
    classifier,
    cosine,
    fit_decoders,
)
from armillary.neuro.ssn.degrade import degrade
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.evidence_data import FULL, Fold, encoder, fold, patch_case
from armillary.neuro.ssn.peers import LEARNED, SETTINGS, Code, autoencoder, divisive, normalised
from armillary.neuro.ssn.responses import quietly_encoded


class Degradation(NamedTuple):
    """How patches are degraded."""

    contrast: float
    noise: float
    blur: float = 0.0

    def __str__(self) -> str:
        blur = f", blur {self.blur:g}" if self.blur else ""
        return f"contrast {self.contrast:g}, noise {self.noise:g}{blur}"


CLEAN = Degradation(1.0, 0.0)
GRID = (
    *(Degradation(c, noise) for c in (1.0, 0.5, 0.25, 0.1) for noise in (0.0, 0.5, 1.0, 2.0)),
    Degradation(1.0, 0.0, 1.0),
    Degradation(0.25, 0.0, 1.0),
)
LOW = tuple(d for d in GRID if d.contrast <= 0.25)
NOISE_FREE = tuple(d for d in LOW if not d.noise)
#: Where textures are told apart too.
TEXTURED = (
    CLEAN, Degradation(0.25, 0.0), Degradation(0.1, 0.0),
    Degradation(1.0, 0.5), Degradation(0.25, 0.5),
)  # fmt: skip


# ---- work --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Work:
    """A fold, its degraded patches, and who reads them.

    Attributes:
        fold: patches and targets.
        encoder: learned; `lateral` as it learned.
        validation, test, textures: degraded patches by degradation.
        intercept: which decoder serves the network without lateral connections best, by
            degradation, on validation patches.
        learned: rivals learned so far; a rival and its normalised twin share one.
    """

    fold: Fold
    encoder: SSNEncoder
    validation: dict[Degradation, Floats]
    test: dict[Degradation, Floats]
    textures: dict[Degradation, Floats]
    intercept: dict[Degradation, bool] = dataclasses.field(default_factory=dict)
    learned: dict[str, Code] = dataclasses.field(default_factory=dict)


def setup(cell: Cell) -> Work:
    data = fold(cell)

    def degraded(patches: Floats, by: Degradation, draw: int) -> Floats:
        rng = np.random.default_rng([cell.seed, draw, GRID.index(by)])
        return degrade(patches, *by, random_state=rng)

    work = Work(
        data,
        encoder(cell),
        {by: degraded(data.validation, by, 0) for by in GRID},
        {by: degraded(data.test, by, 1) for by in GRID},
        {by: degraded(data.texture_test[0], by, 2) for by in TEXTURED},
    )
    cut = rates_of(work.encoder.ablate())
    decoders = fit_decoders(cut(data.fit), data.target(data.fit))
    work.intercept = best_intercept(cut, decoders, work)
    return work


def best_intercept(features: Features, decoders: Decoders, work: Work) -> dict[Degradation, bool]:
    """Whether the decoder with an intercept finds more of validation patches, by degradation."""
    target = work.fold.target(work.fold.validation)
    found = {}
    for by, patches in work.validation.items():
        coded = features(patches)
        plain, affine = (cosine(decoders.decode(coded, i), target) for i in (False, True))
        found[by] = affine > plain
    return found


# ---- contenders --------------------------------------------------------------------------------


def rates_of(model: SSNEncoder, contrast: float | None = None) -> Features:
    """The root of the rates: proportional to contrast where rates are supralinear."""
    return lambda patches: np.sqrt(quietly_encoded(model, patches, contrast).rates)


def score(
    work: Work,
    features: Features,
    intercept: dict[Degradation, bool] | None = None,
    *,
    textures: bool = True,
) -> dict[str, float]:
    """Every metric of a code.

    Args:
        work: see `Work`.
        features: the code.
        intercept: which decoder reads which degradation; None: the better one on validation
            patches.
        textures: tell textures apart too.
    """
    decoders = fit_decoders(features(work.fold.fit), work.fold.target(work.fold.fit))
    if intercept is None:
        intercept = best_intercept(features, decoders, work)
    target = work.fold.target(work.fold.test)
    coded = {by: features(patches) for by, patches in work.test.items()}
    found = {by: cosine(decoders.decode(coded[by], intercept[by]), target) for by in GRID}
    affine = [cosine(decoders.decode(coded[by], True), target) for by in NOISE_FREE]
    return {
        **{f"cosine, {by}": value for by, value in found.items()},
        "low-contrast cosine": float(np.mean([found[by] for by in LOW])),
        "low-contrast cosine, noise-free": float(np.mean([found[by] for by in NOISE_FREE])),
        "low-contrast cosine, intercept": float(np.mean(affine)),
        **(_told_apart(work, features) if textures else {}),
    }


def _told_apart(work: Work, features: Features) -> dict[str, float]:
    """Shares of texture patches that a classifier fitted at full contrast names rightly."""
    patches, labels = work.fold.texture_fit
    accuracy = classifier(bags(features(patches)), labels)
    truth = work.fold.texture_test[1]
    named = {by: accuracy(bags(features(work.textures[by])), truth) for by in TEXTURED}
    low = float(np.mean([value for by, value in named.items() if by in LOW]))
    return {
        **{f"accuracy, {by}": value for by, value in named.items()},
        "low-contrast accuracy": low,
    }


def ours(work: Work, cell: Cell) -> Mapping[str, float]:
    found = score(work, rates_of(work.encoder), work.intercept)
    return {**found, "settled": settled_share(work)}


def settled_share(work: Work) -> float:
    """The share of test patches whose rates settle, where it is lowest."""
    flags = (quietly_encoded(work.encoder, x, None).converged for x in work.test.values())
    return min(float(settled.mean()) for settled in flags)


def ours_own_decoder(work: Work, cell: Cell) -> Mapping[str, float]:
    """Read as each rival is: by the decoder that serves it best on validation patches."""
    return score(work, rates_of(work.encoder), textures=False)


def ours_normalised(work: Work, cell: Cell) -> Mapping[str, float]:
    """Every patch enters at full contrast, as the normalised rivals' do."""
    return score(work, rates_of(work.encoder, FULL), work.intercept)


def without_lateral(work: Work, cell: Cell) -> Mapping[str, float]:
    return score(work, rates_of(work.encoder.ablate()), work.intercept)


def pooled(name: str) -> Callable[[Work, Cell], Mapping[str, float]]:
    """Divisive normalisation of the drives of the network without lateral connections."""
    contrast = FULL if name.endswith(TWIN) else None

    def run(work: Work, cell: Cell) -> Mapping[str, float]:
        return score(work, divided(work.encoder, contrast, SETTINGS[name]))

    return run


def divided(model: SSNEncoder, contrast: float | None, setting: float) -> Features:
    """The root of divisively normalised responses of the excitatory units' drives."""
    cut = model.ablate()
    # The semi-saturation is in units of the root mean square drive of a full-contrast patch.
    unit = FULL * model.gain / np.sqrt(model.network_.f_exc.shape[1])

    def features(patches: Floats) -> Floats:
        drives = np.sqrt(quietly_encoded(cut, patches, contrast).rates / model.k)
        return np.sqrt(divisive(drives, model.n, setting * unit))

    return features


def rival(name: str) -> Callable[[Work, Cell], Mapping[str, float]]:
    def run(work: Work, cell: Cell) -> Mapping[str, float]:
        return score(work, features_of(name, work, cell, SETTINGS[name]))

    return run


def features_of(name: str, work: Work, cell: Cell, setting: float) -> Features:
    """A rival's code of pixel patches; a normalised twin shares what was learned if it can."""
    plain = name.removesuffix(TWIN)
    key = f"{plain} {setting:g}"
    if key not in work.learned:
        work.learned[key] = learned(plain, work, cell, setting)
    code = normalised(work.learned[key]) if name.endswith(TWIN) else work.learned[key]
    return lambda patches: code(work.fold.whitening.vectors(patches))


def learned(name: str, work: Work, cell: Cell, setting: float) -> Code:
    w = work.fold.target(work.fold.learn)
    features = int(cell.case.x["n_exc"])
    if name != "autoencoder":
        return LEARNED[name](w, features, cell.seed, setting)
    whitening = work.fold.whitening
    basis = whitening.basis * whitening.scale[:, None]
    steps = max(4, int(cell.case.x["n_iter"]) // 2)
    return autoencoder(w, features, cell.seed, setting, basis=basis, steps=steps)


TWIN = "-normalised"
#: LCA gives the codes of the lasso (a test shows it): it is timed beside it, not decoded again.
_RIVALS = (*(name for name in LEARNED if name != "lca"), "autoencoder")
_NORMALISED = (*(name + TWIN for name in _RIVALS), "divisive-normalised")
_ALL = ("no-lateral", "divisive", *_RIVALS, *_NORMALISED)

CASES = {
    "smoke": [patch_case(8, 24, 6, 300, 12)],
    "quick": [patch_case(10, 96, 150, 1500, 80)],
    "full": [patch_case(10, 192, 1200, 8000, 160)],
    "long": [patch_case(16, 384, 600, 8000, 160)],
}


def _difference(metric: str, over: tuple[str, ...], at_least: float, of: str = "ours") -> Condition:
    return Condition(Stat(metric, of=of, over=over, form="difference"), at_least=at_least)


def _ratio(metric: str, over: tuple[str, ...], at_least: float, of: str = "ours") -> Condition:
    return Condition(
        Stat(metric, of=of, over=over, form="ratio", pool="ratio_of_means"), at_least=at_least
    )


#: Against rivals, ours too is read by its own best decoder.
_OWN = "ours-own-decoder"


_ABSTRACT = (
    "The abstract: more robust to low contrast and noise than sparse coding, ICA and others, and "
    "not so when lateral connections are cut; no figures."
)
_OURS_ALONE = "Not in the abstract."

ROBUSTNESS = Experiment(
    id="robustness",
    title="What linear decoders find of degraded patches",
    cases=CASES,
    setup=setup,
    contenders=(
        Contender("ours", ours),
        Contender(_OWN, ours_own_decoder),
        Contender("ours-normalised", ours_normalised, required=False),
        Contender("no-lateral", without_lateral),
        Contender("divisive", pooled("divisive")),
        *(Contender(name, rival(name)) for name in _RIVALS),
        Contender("divisive-normalised", pooled("divisive-normalised")),
        *(Contender(name + TWIN, rival(name + TWIN)) for name in _RIVALS),
    ),
    metrics=(
        Metric("low-contrast cosine", "", "higher"),
        Metric("low-contrast cosine, noise-free", "", "higher"),
        Metric("low-contrast cosine, intercept", "", "higher"),
        *(Metric(f"cosine, {by}", "", "higher") for by in GRID),
        Metric("low-contrast accuracy", "", "higher"),
        *(Metric(f"accuracy, {by}", "", "higher") for by in TEXTURED),
        Metric("settled", "share of patches", "higher"),
    ),
    claims=(
        Claim(
            id="low-contrast-features",
            statement="At a quarter of full contrast and less, over all noise levels, decoders "
            "fitted at full contrast find at least 15 % more (cosine with the clean patch) in its "
            "code than in the same network's without lateral connections, each degradation read "
            "by the decoder (with or without intercept) that serves the latter best.",
            paper=_ABSTRACT,
            conditions=(_ratio("low-contrast cosine", ("no-lateral",), 1.15),),
        ),
        Claim(
            id="low-contrast-noise-free",
            statement="The same where there is no noise: at a quarter of full contrast and less, "
            "decoders find at least 15 % more in its code than without lateral connections, each "
            "degradation read by the decoder that serves the latter best.",
            paper=_ABSTRACT,
            conditions=(_ratio("low-contrast cosine, noise-free", ("no-lateral",), 1.15),),
        ),
        Claim(
            id="low-contrast-with-intercept",
            statement="Where the decoder has an intercept, and at a quarter of full contrast and "
            "less without noise, it finds at least 15 % more in its code than without lateral "
            "connections: the code's size changes less with contrast. (A decoder without "
            "intercept needs no such help: see low-contrast-features.)",
            paper=_ABSTRACT,
            conditions=(_ratio("low-contrast cosine, intercept", ("no-lateral",), 1.15),),
        ),
        Claim(
            id="low-contrast-against-sparse-coding",
            statement="At a quarter of full contrast and less, over all noise levels, decoders "
            "find no less in its code than in sparse codes (lasso) of patches that are not "
            "normalised, each code read by its own best decoder.",
            paper=_ABSTRACT,
            conditions=(_ratio("low-contrast cosine", ("sparse-coding",), 1.0, _OWN),),
        ),
        Claim(
            id="low-contrast-against-all",
            statement="At a quarter of full contrast and less, over all noise levels, decoders "
            "find no less in its code than in any rival's, patches normalised or not, each code "
            "read by its own best decoder.",
            paper=_ABSTRACT,
            conditions=(_ratio("low-contrast cosine", _ALL, 1.0, _OWN),),
        ),
        Claim(
            id="clean-cost",
            statement="On clean patches of full contrast decoders find at most 0.05 less "
            "(cosine) than without lateral connections.",
            paper=_OURS_ALONE,
            conditions=(_difference(f"cosine, {CLEAN}", ("no-lateral",), -0.05),),
        ),
        Claim(
            id="every-degradation-without-lateral",
            statement="In every cell of contrast, noise and blur, decoders find no less than "
            "without lateral connections.",
            paper=_ABSTRACT,
            conditions=tuple(_difference(f"cosine, {by}", ("no-lateral",), 0.0) for by in GRID),
        ),
        Claim(
            id="every-degradation-against-all",
            statement="In every cell of contrast, noise and blur, decoders find no less than in "
            "the best rival's code, patches normalised or not, each code read by its own best "
            "decoder.",
            paper=_ABSTRACT,
            conditions=tuple(_difference(f"cosine, {by}", _ALL, 0.0, _OWN) for by in GRID),
        ),
        Claim(
            id="textures-at-low-contrast",
            statement="At a quarter of full contrast and less, six textures are told apart by a "
            "linear classifier of the mean unit-norm code of nine patches no less often than "
            "without lateral connections.",
            paper=_ABSTRACT,
            conditions=(_difference("low-contrast accuracy", ("no-lateral",), 0.0),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 5, "long": 3},
    packages=("torch", "scikit-learn", "scikit-image"),
)
