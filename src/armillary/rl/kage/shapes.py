"""Shapes as tests of a point, and as bits: a picture of 32 x 32 yes or no in 32 whole numbers.

Every test works on offsets from the shape's centre, for NumPy and JAX alike. Half-planes have their
normals at equal angles; a five-pointed star is where at least four of its five lines are passed.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np

from armillary.rl.kage.palettes import SHAPES

#: Side of a patch, and where its centre lies.
PATCH, CENTRE = 32, 16
#: A rectangle follows the nine shapes in tables.
N_TABLES = len(SHAPES) + 1
_STAR = math.cos(2 * math.pi / 5)


def inside(dx: Any, dy: Any, rx: Any, ry: Any, xp: ModuleType = np) -> list[Any]:
    """Whether points lie in each of the nine shapes.

    Args:
        dx: columns right of the centre.
        dy: rows below the centre.
        rx: half the width; the radius of regular shapes.
        ry: half the height of the ellipse.
        xp: ``numpy`` or ``jax.numpy``.

    Returns:
        Nine masks, in the order of `SHAPES`.
    """
    ax, ay = xp.abs(dx), xp.abs(dy)
    bar = xp.maximum(0.5, rx / 8)
    return [
        dx * dx + dy * dy <= rx * rx,
        (ax <= rx) & (ay <= rx),
        (ax <= rx) & (ay <= bar),
        (dx / rx) ** 2 + (dy / ry) ** 2 <= 1,
        _passed(dx, dy, 3, rx * 0.5) == 3,
        _passed(dx, dy, 5, rx * _STAR) >= 4,
        _passed(dx, dy, 6, rx * math.cos(math.pi / 6)) == 6,
        ((ax <= rx) & (ay <= bar)) | ((ay <= rx) & (ax <= bar)),
        ax + ay <= rx,
    ]


def _passed(dx: Any, dy: Any, sides: int, inradius: Any) -> Any:
    """How many of the lines of a regular polygon with a corner on top have the point within."""
    total: Any = 0
    for k in range(sides):
        angle = math.pi / 2 + (2 * k + 1) * math.pi / sides
        if sides % 2:  # a side at the bottom, opposite the corner on top
            angle = math.pi / 2 + 2 * k * math.pi / sides
        total = total + (dx * math.cos(angle) + dy * math.sin(angle) <= inradius + 1e-4)
    return total


def patch(kind: Any, rx: Any, ry: Any, angle: Any, xp: ModuleType = np) -> Any:
    """The bits of one shape.

    Args:
        kind: id of the shape.
        rx: half the width in pixels, below 16.
        ry: half the height in pixels, below 16.
        angle: degrees, clockwise on the screen.
        xp: ``numpy`` or ``jax.numpy``.

    Returns:
        (32,) uint32: bit c of word r is the pixel (r, c); the centre is (16, 16).
    """
    offset = xp.arange(PATCH) - float(CENTRE)
    x, y = offset[None, :], offset[:, None]
    turn = angle * (math.pi / 180)
    ca, sa = xp.cos(turn), xp.sin(turn)
    masks = inside(x * ca + y * sa, y * ca - x * sa, rx, ry, xp)
    chosen: Any = masks[0]
    for i, mask in enumerate(masks[1:], start=1):
        chosen = xp.where(kind == i, mask, chosen)
    return pack(chosen, 1, xp)


def pack(codes: Any, width: int, xp: ModuleType = np) -> Any:
    """Rows of codes, ``width`` bits each, as words."""
    shift = xp.arange(codes.shape[-1], dtype=xp.uint32) * xp.uint32(width)
    return (codes.astype(xp.uint32) << shift).sum(axis=-1).astype(xp.uint32)


def tables(half_width: int, half_height: int) -> np.ndarray:
    """Bits of an agent that does not turn.

    Returns:
        (10, 32) uint32: the nine shapes, then the agent's box.
    """
    radius = float(min(half_width, half_height))
    rows = [patch(i, radius, float(half_height), 0.0) for i in range(len(SHAPES))]
    offset = np.arange(PATCH) - CENTRE
    box = (np.abs(offset) <= half_width)[None, :] & (np.abs(offset) <= half_height)[:, None]
    return np.stack([*rows, pack(box, 1)])
