"""Patches as a poor sensor would give them: low contrast, noise, blur, parts hidden."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def degrade(
    X: ArrayLike,
    contrast: float = 1.0,
    noise: float = 0.0,
    blur: float = 0.0,
    occlusion: float = 0.0,
    *,
    shape: tuple[int, int] | None = None,
    random_state: int | np.random.Generator | None = None,
) -> NDArray[np.float64]:
    """Degraded copies of patches.

    In this order: blur, contrast (about each patch's own mean), occlusion, noise. Noise is the
    sensor's: its level does not follow the contrast, so that a faint patch drowns in it.

    Args:
        X: (n, height * width) or (n, height, width) patches.
        contrast: factor on each patch's deviations from its mean, at least 0.
        noise: standard deviation of white Gaussian noise, in units of the typical standard
            deviation of the pixels of a patch in ``X`` (the root of the mean variance).
        blur: standard deviation of a Gaussian blur in pixels; edges are mirrored.
        occlusion: share of the patch's area, in [0, 1], that a square at a random place sets to
            the patch's mean.
        shape: (height, width) of flat patches; default: square.
        random_state: seed or generator of noise and places.

    Returns:
        Patches of the shape of ``X``.

    Raises:
        ValueError: a figure is out of its range, or flat patches are not square and no shape is
            given.
    """
    patches = np.array(X, dtype=np.float64)
    for name, value in (("contrast", contrast), ("noise", noise), ("blur", blur)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}={value}: expected a number >= 0")
    if not 0 <= occlusion <= 1:
        raise ValueError(f"occlusion={occlusion}: expected a share of the area in [0, 1]")
    rng = np.random.default_rng(random_state)
    images = patches.reshape(len(patches), *_sides(patches, shape))
    level = float(np.sqrt(images.var(axis=(1, 2)).mean())) if len(images) else 0.0
    if blur > 0:
        from scipy.ndimage import gaussian_filter

        images = gaussian_filter(images, (0, blur, blur), mode="reflect")
    mean = images.mean(axis=(1, 2), keepdims=True)
    images = mean + contrast * (images - mean)
    if occlusion > 0:
        images = _hide(images, mean, occlusion, rng)
    if noise > 0:
        images = images + noise * level * rng.standard_normal(images.shape)
    return images.reshape(patches.shape)


def _sides(patches: NDArray, shape: tuple[int, int] | None) -> tuple[int, int]:
    if patches.ndim == 3:
        return patches.shape[1], patches.shape[2]
    if patches.ndim != 2:
        raise ValueError(f"X has the shape {patches.shape}, expected (n, pixels) or (n, h, w)")
    pixels = patches.shape[1]
    side = math.isqrt(pixels)
    height, width = shape or (side, side)
    if height * width != pixels:
        raise ValueError(
            f"patches of {pixels} pixels are not {height} by {width}: give shape=(height, width)"
        )
    return height, width


def _hide(
    images: NDArray, mean: NDArray, occlusion: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    count, height, width = images.shape
    h, w = (max(1, round(side * math.sqrt(occlusion))) for side in (height, width))
    top = rng.integers(0, height - h + 1, count)[:, None, None]
    left = rng.integers(0, width - w + 1, count)[:, None, None]
    rows, columns = np.arange(height)[:, None], np.arange(width)
    hidden = (rows >= top) & (rows < top + h) & (columns >= left) & (columns < left + w)
    return np.where(hidden, mean, images)
