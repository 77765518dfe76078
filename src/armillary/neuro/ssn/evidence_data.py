"""The work of the experiments: real patches split by image, a learned encoder, textures.

Decoding is tested on images that no contender has seen. Six images serve as textures: unlabelled
learning sees their left halves, as the classifiers do, and the right halves are what they are
tested on. Every patch is scaled to the same whitened norm ("full contrast", 2 in the encoder's
units), so that contrast is what an experiment sets and nothing else.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from armillary.corpora import images
from armillary.evidence.shapes import Case, Cell
from armillary.neuro.ssn.decoding import BAG
from armillary.neuro.ssn.encoder import SSNEncoder
from armillary.neuro.ssn.network import Rules
from armillary.neuro.ssn.patches import draw_patches
from armillary.neuro.ssn.whitening import Whitening

Floats = NDArray[np.float64]

TEXTURES = ("brick", "coins", "grass", "gravel", "moon", "retina")
#: Scenes; two views of one scene stay on one side of the split.
SCENES = (
    ("astronaut",), ("camera",), ("chelsea",), ("china",), ("coffee",), ("flower",), ("hubble",),
    ("motorcycle_left", "motorcycle_right"), ("rocket",),
)  # fmt: skip
TEST_SCENES = 3
#: Contrast of a full-contrast patch, in the encoder's units.
FULL = 2.0


@dataclasses.dataclass(frozen=True)
class Fold:
    """Patches of one split of the images, all at full contrast.

    Attributes:
        size: side of a patch.
        learn: (n, pixels) patches that encoders learn from, at their own contrasts.
        fit, validation, test: (n, pixels) for decoders: of training images, of training images,
            of test images.
        texture_fit, texture_test: ((n, pixels) patches, (n / BAG,) classes): `BAG` patches in a row
            are of one texture.
        whitening: learned from ``learn``: gives the targets of decoding.
    """

    size: int
    learn: Floats
    fit: Floats
    validation: Floats
    test: Floats
    texture_fit: tuple[Floats, NDArray[np.int64]]
    texture_test: tuple[Floats, NDArray[np.int64]]
    whitening: Whitening

    def target(self, patches: Floats) -> Floats:
        """(n, D) whitened directions: what decoders are to find."""
        return self.whitening.directions(patches).x


def patch_case(size: int, n_exc: int, n_iter: int, patches: int, held: int) -> Case:
    """Photographs cut into patches.

    Args:
        size: side of a patch in pixels.
        n_exc: excitatory units; a quarter as many are inhibitory.
        n_iter: batches that encoders learn from.
        patches: that encoders and dictionaries learn from.
        held: patches that decoders are tested on; four times as many fit them, half as many choose
            between them; there are a sixteenth as many samples of each texture.
    """
    covariates = {
        "size": size, "n_exc": n_exc, "n_iter": n_iter, "patches": patches, "held": held,
    }  # fmt: skip
    return Case(f"photographs {size}x{size}", x=covariates)


def fold(cell: Cell) -> Fold:
    x = cell.case.x
    return _fold(int(x["size"]), int(x["patches"]), int(x["held"]), cell.seed)


@functools.lru_cache(maxsize=2)
def _fold(size: int, patches: int, held: int, seed: int) -> Fold:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(SCENES))
    tested = [images.photo(n) for i in order[:TEST_SCENES] for n in SCENES[i]]
    scenes = [images.photo(n) for i in order[TEST_SCENES:] for n in SCENES[i]]
    textures = [images.photo(name) for name in TEXTURES]
    left = [image[:, : image.shape[1] // 2] for image in textures]
    right = [image[:, image.shape[1] // 2 :] for image in textures]
    seen = scenes + left
    learn = draw_patches(seen, size, patches, rng)
    whitening = Whitening.fit(learn)

    def full(found: Floats) -> Floats:
        mean = found.mean(axis=1, keepdims=True)
        return (found - mean) / whitening.directions(found).norm[:, None]

    def labelled(halves: list[NDArray]) -> tuple[Floats, NDArray[np.int64]]:
        each = max(4, held // 16)
        found = draw_patches(halves, size, BAG * each * len(halves), rng)
        return full(found), np.repeat(np.arange(len(halves)), each)

    return Fold(
        size,
        learn,
        full(draw_patches(seen, size, 4 * held, rng)),
        full(draw_patches(seen, size, held // 2, rng)),
        full(draw_patches(tested, size, held, rng)),
        labelled(left),
        labelled(right),
        whitening,
    )


def encoder(cell: Cell, **settings: object) -> SSNEncoder:
    """A learned encoder of the cell's size; equal settings are learned once a process."""
    return _encoder(tuple(sorted(cell.case.x.items())), cell.seed, tuple(sorted(settings.items())))


@functools.lru_cache(maxsize=4)
def _encoder(
    x: tuple[tuple[str, float], ...], seed: int, settings: tuple[tuple[str, object], ...]
) -> SSNEncoder:
    size = dict(x)
    n_exc = int(size["n_exc"])
    given: dict[str, object] = {
        "n_exc": n_exc, "n_inh": n_exc // 4, "n_iter": int(size["n_iter"]), "random_state": seed,
    }  # fmt: skip
    found = SSNEncoder(**{**given, **dict(settings)})  # pyright: ignore[reportArgumentType]
    learn = _fold(int(size["size"]), int(size["patches"]), int(size["held"]), seed).learn
    found.fit(learn.astype(np.float32))
    # A patch of whitened norm 1, which is every standardised one, has full contrast.
    found.reference_norm_ = 1 / FULL
    return found


#: The linear network of the ablation: n = 1 at a gain that makes the coupling as strong.
LINEAR: dict[str, object] = {"n": 1.0, "k": 1.0}
NO_HOMEOSTASIS = Rules(threshold=0.0)
