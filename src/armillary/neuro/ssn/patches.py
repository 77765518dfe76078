"""Patches of images: drawn at random, or on a grid."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from armillary.corpora.images import luminance
from armillary.errors import require

if TYPE_CHECKING:
    from jaxtyping import Float64

#: Files that are read as images.
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".webp")
#: A patch whose standard deviation is below this (pixels in [0, 1]) is taken to be empty.
EMPTY = 0.01
#: Patches by which an image is judged to be empty, about.
LOOKED_AT = 10_000


def read_image(path: str | os.PathLike[str]) -> Float64[np.ndarray, "height width"]:
    """An image file as luminance; integers are scaled to [0, 1].

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no image, or holds NaN or infinite numbers.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"no image at {str(path)!r}")
    reader = require("skimage.io", what="ssn", extra="neuro")
    try:
        image = luminance(reader.imread(path))
    except Exception as error:  # readers raise what they like
        told = first_line(error)
        raise ValueError(f"{str(path)!r} cannot be read as an image: {told}") from error
    if not np.isfinite(image).all():
        row, column = np.argwhere(~np.isfinite(image))[0]
        raise ValueError(f"{str(path)!r} holds NaN or infinite numbers, first at {row}, {column}")
    return image


def first_line(error: Exception) -> str:
    """What a reader says, without the advice that it prints below."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def image_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The image files of a folder and the folders in it, by name.

    Raises:
        FileNotFoundError: there is no such folder, or no image in it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"no folder {str(folder)!r}: give a folder of images")
    found = sorted(p for p in root.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not found:
        raise FileNotFoundError(f"no image in {str(folder)!r}: looked for {', '.join(SUFFIXES)}")
    return found


def all_patches(image: NDArray, size: int) -> NDArray:
    """(rows, columns, size, size) view of every patch of an image.

    Raises:
        ValueError: the image is smaller than a patch.
    """
    if min(image.shape) < size:
        raise ValueError(
            f"an image of {image.shape[0]} by {image.shape[1]} pixels holds no patch of {size} by "
            f"{size}: take smaller patches or leave it out"
        )
    return sliding_window_view(image, (size, size))


def draw_patches(
    images: Sequence[NDArray],
    size: int,
    count: int,
    rng: np.random.Generator,
    *,
    empty: float = EMPTY,
) -> Float64[np.ndarray, "count pixels"]:
    """Patches at random places, as many from each image (to within one), none of them empty.

    Args:
        images: (height, width) each, pixels in [0, 1].
        size: side of a patch.
        count: how many in all.
        rng: draws images and places.
        empty: the standard deviation up to which a patch is empty.

    Raises:
        ValueError: an image is smaller than a patch, or nearly all of it is empty; there is no
            image, or ``size`` or ``count`` is below 1.
    """
    if not len(images):
        raise ValueError("no images were given: give at least one")
    for name, value in (("size", size), ("count", count)):
        if value < 1:
            raise ValueError(f"{name}={value!r}: expected a whole number >= 1")
    shares = np.full(len(images), count // len(images))
    shares[rng.permutation(len(images))[: count % len(images)]] += 1
    found = [
        np.stack(list(_drawn(image, size, int(share), rng, empty)))
        for image, share in zip(images, shares, strict=True)
        if share
    ]
    return np.concatenate(found)


def refuse_empty(image: NDArray, size: int, empty: float = EMPTY) -> None:
    """Refuse an image that `draw_patches` could hardly draw a patch from.

    Raises:
        ValueError: the image is smaller than a patch, or more than 99 % of its patches are empty.
    """
    grid = all_patches(image, size)
    step = max(1, int((grid.shape[0] * grid.shape[1] / LOOKED_AT) ** 0.5))
    if (grid[::step, ::step].std(axis=(2, 3)) > empty).mean() < 0.01:
        raise _emptiness(image)


def _emptiness(image: NDArray) -> ValueError:
    return ValueError(
        f"an image of {image.shape[0]} by {image.shape[1]} pixels is empty nearly everywhere: "
        "leave it out"
    )


def _drawn(
    image: NDArray, size: int, count: int, rng: np.random.Generator, empty: float
) -> Iterator[NDArray]:
    every, misses = all_patches(image, size), 0
    while count:
        patch = every[rng.integers(every.shape[0]), rng.integers(every.shape[1])]
        if patch.std() <= empty:
            misses += 1
            if misses > 10_000:
                raise _emptiness(image)
            continue
        count, misses = count - 1, 0
        yield patch.astype(np.float64).ravel()


def grid_patches(image: NDArray, size: int, step: int) -> Float64[np.ndarray, "patches pixels"]:
    """Patches on a grid of ``step`` pixels, row by row; empty ones too.

    Raises:
        ValueError: the image is smaller than a patch.
    """
    grid = all_patches(image, size)[::step, ::step]
    return grid.reshape(-1, size * size).astype(np.float64)
