"""A slow simulator on a pixel mask, written from the rules of the world and from nothing else.

It knows no segments and no shortcuts: ground and walls are pixels, the agent is a box of pixels,
and it walks back one pixel at a time. Numbers are float32, rounded half to even.
"""

from __future__ import annotations

import numpy as np

F = np.float32


def solid_mask(tops: np.ndarray, run_width: int, length: int, height: int = 128) -> np.ndarray:
    """(height, length) bool: bands of two rows, walls in the first column of a new segment."""
    column_tops = np.repeat(tops.astype(int), run_width)[:length]
    solid = np.zeros((height, length), bool)
    for c, top in enumerate(column_tops):
        solid[top : top + 2, c] = True
        if c and column_tops[c - 1] != top:
            low, high = sorted((top, column_tops[c - 1]))
            solid[low:high, c] = True
    return solid


class Oracle:
    """One agent of 17 x 25 pixels in a world of pixels."""

    def __init__(self, solid: np.ndarray, x: float, y: float, rules: dict[str, float]) -> None:
        self.solid, self.rules = solid, rules
        self.x, self.y, self.vx, self.vy = F(x), F(y), F(0), F(0)
        self.grounded, self.coyote, self.x_max = False, 0, F(x)

    def _box(self, x: int, y: int) -> bool:
        return bool(self.solid[y - 12 : y + 13, x - 8 : x + 9].any())

    def _touches(self, x: int, y: int) -> bool:
        return bool(self.solid[y + 13 : y + 15, x - 8 : x + 9].any())

    def step(self, action: int) -> float:
        r = self.rules
        height, length = self.solid.shape
        x0, y0 = int(np.rint(self.x)), int(np.rint(self.y))
        grounded = self._touches(x0, y0) and self.vy >= 0
        self.coyote = 0 if grounded else min(self.coyote + 1, 4)
        pressed = bool(action & 4)
        vy = self.vy
        if pressed and self.coyote <= 3:
            vy, grounded, self.coyote = F(r["jump"]), False, 4
        direction = F(bool(action & 2)) - F(bool(action & 1))
        vx = self.vx * F(r["friction"] if grounded else r["air"])
        vx = vx + F(1.0 if grounded else 0.4) * direction
        vx = np.clip(vx, -F(r["speed"]), F(r["speed"]))
        vy = np.clip(vy + F(r["gravity"]), F(-100), F(8))
        x = np.clip(self.x + vx, F(8), F(length - 9))
        y = np.clip(self.y + vy, F(12), F(height - 13))
        x1, y1 = int(np.rint(x)), int(np.rint(y))
        x2 = x1
        while x2 != x0 and self._box(x2, y0):
            x2 -= int(np.sign(x2 - x0))
        y2 = y1
        while y2 != y0 and self._box(x2, y2):
            y2 -= int(np.sign(y2 - y0))
        before = self.x
        self.vx = vx if x2 == x1 else F(0)
        self.vy = vy if y2 == y1 else F(0)
        self.x, self.y, self.grounded = F(x2), F(y2), grounded
        forward = max(F(0), self.x - self.x_max) * F(0.2)
        self.x_max = max(self.x_max, self.x)
        return float(
            forward - F(10) * F(pressed) - F(0.1) - F(5) * F(self.x == before)
        )
