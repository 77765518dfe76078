"""Real images for vision methods, read from installed packages or from the user's folder of data.

`photo` reads the photographs inside scikit-image's and scikit-learn's packages, `digits` is
scikit-learn's table of 8×8 digits, `fashion_mnist` the 28×28 articles of clothing of Zalando
(Debian's package ``dataset-fashion-mnist``, or the same four files inside the folder of data).
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import struct
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from armillary.corpora.registry import external
from armillary.errors import MissingExtra, require

#: Photographs by name: the package that holds each, and where in it.
PHOTOS: dict[str, tuple[str, str]] = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "brick": ("skimage", "data/brick.png"),
    "camera": ("skimage", "data/camera.png"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "coffee": ("skimage", "data/coffee.png"),
    "coins": ("skimage", "data/coins.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "grass": ("skimage", "data/grass.png"),
    "gravel": ("skimage", "data/gravel.png"),
    "hubble": ("skimage", "data/hubble_deep_field.jpg"),
    "moon": ("skimage", "data/moon.png"),
    "motorcycle_left": ("skimage", "data/motorcycle_left.png"),
    "motorcycle_right": ("skimage", "data/motorcycle_right.png"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
}


class Images(NamedTuple):
    """Labelled images.

    Attributes:
        pixels: (n, height, width), float32 in [0, 1].
        labels: (n,), int64.
    """

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]


def photo(name: str) -> NDArray[np.float64]:
    """One photograph as luminance.

    Args:
        name: a key of ``PHOTOS``.

    Returns:
        (height, width), float64 in [0, 1].

    Raises:
        LookupError: there is no such photograph.
        MissingExtra: the package that holds it is not installed.
    """
    if name not in PHOTOS:
        raise LookupError(f"name={name!r} is no photograph; there are: {', '.join(PHOTOS)}")
    package, inside = PHOTOS[name]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("corpora.images", "neuro", package)
    image = require("skimage.io", what="corpora.images", extra="neuro").imread(
        Path(next(iter(spec.submodule_search_locations))) / inside
    )
    return luminance(image)


def luminance(image: NDArray) -> NDArray[np.float64]:
    """Any grey, RGB or RGBA image as luminance (ITU-R BT.709), integers scaled by their range.

    Args:
        image: (height, width) or (height, width, 1, 3 or 4), integers or floats.

    Returns:
        (height, width), float64; in [0, 1] where the input was integers or in [0, 1].

    Raises:
        ValueError: the array is no image.
    """
    image = np.asarray(image)
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3, 4)):
        raise ValueError(
            f"image has the shape {image.shape}; expected (height, width) or (height, width, "
            "channels) with 1, 3 or 4 channels"
        )
    if np.issubdtype(image.dtype, np.integer):
        values = image.astype(np.float64) / np.iinfo(image.dtype).max
    else:
        values = image.astype(np.float64)
    if values.ndim == 2:
        return values
    if values.shape[2] == 1:
        return values[:, :, 0]
    return values[:, :, :3] @ np.array([0.2125, 0.7154, 0.0721])


def digits() -> Images:
    """The 1,797 digits of scikit-learn: 8×8 pixels, ten classes, in their published order."""
    bunch = require("sklearn.datasets", what="corpora.images", extra="neuro").load_digits()
    return Images((bunch.images / 16.0).astype(np.float32), bunch.target.astype(np.int64))


def fashion_mnist(
    part: Literal["train", "test"] = "train", data: str | os.PathLike[str] | None = None
) -> Images:
    """Fashion-MNIST: 28×28 pixels, ten kinds of clothing, in their published order.

    Args:
        part: ``train`` (60,000) or ``test`` (10,000).
        data: the folder of public data. Default: what ``ARMILLARY_DATA`` names; then where
            Debian's package ``dataset-fashion-mnist`` puts it.

    Raises:
        FileNotFoundError: the files are not there; says where they are had.
        ValueError: the part is unknown, or a file is damaged.
    """
    if part not in ("train", "test"):
        raise ValueError(f"part={part!r}; expected 'train' or 'test'")
    pixels = _idx(external(f"fashion-mnist-{part}-images", data))
    labels = _idx(external(f"fashion-mnist-{part}-labels", data))
    return Images((pixels / 255.0).astype(np.float32), labels.astype(np.int64))


def _idx(path: Path) -> NDArray[np.uint8]:
    """The bytes of a gzipped IDX file in their shape."""
    with gzip.open(path) as stream:
        content = stream.read()
    zero, kind, dimensions = struct.unpack(">HBB", content[:4])
    if zero != 0 or kind != 8:
        raise ValueError(f"{str(path)!r} is no IDX file of bytes")
    shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
