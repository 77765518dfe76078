"""Labels: whole images of digits and clothes, faint and noisy, told apart from their codes.

The independent unit is the seed: it draws which images are learned from and which are told apart,
weights and noise anew. The two sets of images are averaged inside it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.corpora import images
from armillary.corpora.registry import EXTERNAL
from armillary.evidence.shapes import (
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Metric,
    Need,
    Stat,
)
from armillary.neuro.ssn.decoding import Features, Floats, classifier, split_signs
from armillary.neuro.ssn.degrade import degrade
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.evidence_data import FULL
from armillary.neuro.ssn.evidence_robustness import Degradation, divided, rates_of
from armillary.neuro.ssn.peers import LEARNED, SETTINGS
from armillary.neuro.ssn.whitening import Whitening

FASHION = tuple(
    Need("data", entry.path, entry.how)
    for entry in EXTERNAL
    if entry.name.startswith("fashion-mnist-")
)
GRID = (
    *(Degradation(c, 0.0) for c in (1.0, 0.25, 0.1)),
    *(Degradation(c, 0.5) for c in (1.0, 0.25)),
)
LOW = tuple(by for by in GRID if by.contrast <= 0.25)


class Labelled(NamedTuple):
    """Images at full contrast, their classes, and an encoder that learned from the first ones.

    Attributes:
        learn, labels: (n, pixels) images that codes and classifiers learn from, and their classes.
        test: (m, pixels) others, by degradation.
        truth: their classes.
        whitening: of the first ones.
        encoder: learned from them.
    """

    learn: Floats
    labels: NDArray[np.int64]
    test: dict[Degradation, Floats]
    truth: NDArray[np.int64]
    whitening: Whitening
    encoder: SSNEncoder


def setup(cell: Cell) -> Labelled:
    x = cell.case.x
    rng = np.random.default_rng([cell.seed, 7])
    learn, labels, test, truth = _images(cell.case.name, int(x["learn"]), int(x["test"]), rng)
    n_exc = int(x["n_exc"])
    encoder = SSNEncoder(
        n_exc=n_exc, n_inh=n_exc // 4, n_iter=int(x["n_iter"]), random_state=cell.seed
    ).fit(learn.astype(np.float32))
    whitening = encoder.whitening_
    # Every image gets whitened norm 1: that is full contrast.
    encoder.reference_norm_ = 1 / FULL

    def full(pixels: Floats) -> Floats:
        mean = pixels.mean(axis=1, keepdims=True)
        return (pixels - mean) / whitening.directions(pixels).norm[:, None]

    learn, test = full(learn), full(test)
    shown = {
        by: degrade(test, *by, random_state=np.random.default_rng([cell.seed, 8, i]))
        for i, by in enumerate(GRID)
    }
    return Labelled(learn, labels, shown, truth, whitening, encoder)


def _images(
    name: str, learn: int, test: int, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Images to learn from and others, flat, with their classes."""
    if name == "digits":
        found = images.digits()
        order = rng.permutation(len(found.pixels))
        first, second = order[:learn], order[learn : learn + test]
        flat = found.pixels.reshape(len(found.pixels), -1).astype(np.float64)
        return flat[first], found.labels[first], flat[second], found.labels[second]
    parts = []
    for part, count in (("train", learn), ("test", test)):
        found = _clothes(part)
        drawn = rng.choice(len(found.pixels), count, replace=False)
        parts += [found.pixels[drawn].reshape(count, -1).astype(np.float64), found.labels[drawn]]
    return parts[0], parts[1], parts[2], parts[3]


@functools.lru_cache(maxsize=2)
def _clothes(part: str) -> images.Images:
    """Fashion-MNIST at 14 by 14 pixels: means of two by two."""
    found = images.fashion_mnist(part)  # pyright: ignore[reportArgumentType] - two parts exist
    halved = found.pixels.reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))
    return images.Images(halved, found.labels)


def told_apart(work: Labelled, features: Features) -> dict[str, float]:
    """Shares of images that a linear classifier, fitted at full contrast, names rightly."""
    accuracy = classifier(split_signs(features(work.learn)), work.labels)
    named = {
        by: accuracy(split_signs(features(pixels)), work.truth) for by, pixels in work.test.items()
    }
    return {
        **{f"accuracy, {by}": value for by, value in named.items()},
        "low-contrast accuracy": float(np.mean([named[by] for by in LOW])),
    }


def ours(work: Labelled, cell: Cell) -> Mapping[str, float]:
    return told_apart(work, rates_of(work.encoder))


def without_lateral(work: Labelled, cell: Cell) -> Mapping[str, float]:
    return told_apart(work, rates_of(work.encoder.ablate()))


def divisive(work: Labelled, cell: Cell) -> Mapping[str, float]:
    return told_apart(work, divided(work.encoder, None, SETTINGS["divisive"]))


def pixels(work: Labelled, cell: Cell) -> Mapping[str, float]:
    """No code at all: the image's own pixels, their mean taken off."""
    return told_apart(work, lambda x: x - x.mean(axis=1, keepdims=True))


def rival(name: str) -> Callable[[Labelled, Cell], Mapping[str, float]]:
    """A code learned from the same images, at the setting that was chosen on photographs."""

    def run(work: Labelled, cell: Cell) -> Mapping[str, float]:
        whitened = work.whitening.directions(work.learn).x
        code = LEARNED[name](whitened, int(cell.case.x["n_exc"]), cell.seed, SETTINGS[name])
        return told_apart(work, lambda x: code(work.whitening.vectors(x)))

    return run


def _case(name: str, n_exc: int, n_iter: int, learn: int, test: int) -> Case:
    x = {"n_exc": n_exc, "n_iter": n_iter, "learn": learn, "test": test}
    return Case(name, x=x, needs=FASHION if name == "clothes" else ())


_RIVALS = ("sparse-coding", "ica", "pca", "nmf")

LABELS = Experiment(
    id="labels",
    title="Digits and clothes told apart from their codes",
    cases={
        "smoke": [_case("digits", 24, 6, 100, 50)],
        "quick": [_case("digits", 96, 150, 400, 200)],
        "full": [_case(name, 192, 400, 700, 400) for name in ("digits", "clothes")],
        "long": [
            _case("digits", 192, 1200, 1200, 597),
            _case("clothes", 384, 600, 4000, 1000),
        ],
    },
    setup=setup,
    contenders=(
        Contender("ours", ours),
        Contender("no-lateral", without_lateral),
        Contender("divisive", divisive),
        Contender("pixels", pixels),
        *(Contender(name, rival(name)) for name in _RIVALS),
    ),
    metrics=(
        Metric("low-contrast accuracy", "", "higher"),
        *(Metric(f"accuracy, {by}", "", "higher") for by in GRID),
    ),
    claims=(
        Claim(
            id="labels-at-low-contrast",
            statement="At a quarter of full contrast and less, a linear classifier of unit-norm "
            "codes, fitted at full contrast, names digits and clothes no less often than without "
            "lateral connections.",
            paper="The abstract: better features at low contrast; no figures.",
            conditions=(
                Condition(
                    Stat("low-contrast accuracy", over=("no-lateral",), form="difference"),
                    at_least=0.0,
                ),
            ),
        ),
        Claim(
            id="labels-against-all",
            statement="The same against every rival: divisive normalisation, the pixels "
            "themselves, sparse coding, ICA, PCA, NMF.",
            paper="The abstract: more robust than sparse coding, ICA and others; no figures.",
            conditions=(
                Condition(
                    Stat(
                        "low-contrast accuracy",
                        over=("divisive", "pixels", *_RIVALS),
                        form="difference",
                    ),
                    at_least=0.0,
                ),
            ),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 4, "long": 3},
    packages=("torch", "scikit-learn"),
)
