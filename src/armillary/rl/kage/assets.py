"""Pictures that all environments share: backgrounds, characters, shapes; no state holds a copy.

Nothing is taken from KAGE-Bench's art. Characters come from a small drawing grammar (hat, head,
body, arms, legs, in three colours); backgrounds are drawn from seeds (tiles, value noise,
gradients), every fourth one being a photograph where scikit-image is installed. A configuration can
name its own picture files instead.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from flax import struct

from armillary.rl.kage import shapes
from armillary.rl.kage.errors import AssetError
from armillary.rl.kage.palettes import CHARACTERS, N_BACKGROUNDS
from armillary.rl.kage.params import PICTURES, StaticCaps

#: Rows, columns and frames of a character; codes 1, 2, 3 are its colours, 0 is transparent.
ROWS, COLUMNS, FRAMES = 24, 16, 2
#: Columns after which a background repeats.
PERIOD = 128


@struct.dataclass
class Assets:
    """Tables that frames are drawn from.

    Attributes:
        backgrounds: (B, height, 2 * PERIOD) uint32 of packed colours, each picture twice side by
            side, so that any window of it is one slice; (1, 1, 1) where none is shown.
        characters: (27, 2, 24) uint32, two bits a pixel.
        colours: (27, 3, 3) uint8, the characters' colours by code - 1.
        shapes: (10, 32) uint32, one bit a pixel: the nine shapes and the agent's box.
    """

    backgrounds: jax.Array | np.ndarray
    characters: jax.Array | np.ndarray
    colours: jax.Array | np.ndarray
    shapes: jax.Array | np.ndarray


@functools.lru_cache(maxsize=8)
def load(caps: StaticCaps) -> Assets:
    """The tables that a program needs.

    Raises:
        AssetError: a picture of the user's own cannot be read.
    """
    if caps.has("background_image"):
        backgrounds = _backgrounds(caps.height)
        if caps.image_files:
            own = [read_background(Path(p), caps.height) for p in caps.image_files]
            backgrounds = np.concatenate([backgrounds, np.stack(own)])
        parts = backgrounds.astype(np.uint32)
        words = parts[..., 0] | (parts[..., 1] << 8) | (parts[..., 2] << 16)
        backgrounds = np.concatenate([words, words], axis=2)
    else:
        backgrounds = np.zeros((1, 1, 1), np.uint32)
    characters, colours = _characters()
    return Assets(
        backgrounds, characters, colours, shapes.tables(caps.half_width, caps.half_height)
    )


def read_background(path: Path, height: int) -> np.ndarray:
    """A picture, resized to one period.

    Returns:
        (height, PERIOD, 3) uint8.

    Raises:
        AssetError: the file cannot be read as a picture.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            resized = image.convert("RGB").resize((PERIOD, height), Image.Resampling.LANCZOS)
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError) as error:
        raise AssetError(
            f"background {str(path)!r} cannot be read as a picture: {error}"
        ) from error
    return np.asarray(resized, dtype=np.uint8)


def load_backgrounds(folder: str | Path, height: int = 128) -> np.ndarray:
    """Every picture of a folder, in the order of their names.

    Returns:
        (n, height, PERIOD, 3) uint8.

    Raises:
        AssetError: the folder holds no picture, or one cannot be read.
    """
    root = Path(folder)
    paths = sorted(p for p in root.glob("*") if p.suffix.lower() in PICTURES)
    if not paths:
        raise AssetError(
            f"background folder {str(root)!r} holds no picture ({', '.join(PICTURES)})"
        )
    return np.stack([read_background(path, height) for path in paths])


# Backgrounds ----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def _backgrounds(height: int) -> np.ndarray:
    """(128, height, PERIOD, 3) uint8; all repeat without a seam."""
    photographs = _photographs(height)
    drawn = []
    for i in range(N_BACKGROUNDS):
        rng = np.random.default_rng([2026, i])
        kind = i % 4
        if kind == 0 and photographs:
            drawn.append(photographs[(i // 4) % len(photographs)])
        else:
            drawn.append(_PAINTERS[kind % 3](rng, height))
    return np.stack(drawn)


def _photographs(height: int) -> list[np.ndarray]:
    """Colour photographs that ship in scikit-image, mirrored so that they repeat."""
    try:
        import skimage
    except ImportError:
        return []
    root = Path(str(skimage.__file__)).parent / "data"
    names = ("coffee.png", "astronaut.png", "chelsea.png", "rocket.jpg")
    found = [root / name for name in names if (root / name).is_file()]
    halves = [read_background(path, height)[:, ::2] for path in found]
    return [np.concatenate([half, half[:, ::-1]], axis=1) for half in halves]


def _value_noise(rng: np.random.Generator, height: int) -> np.ndarray:
    """Clouds of two colours: three octaves of smooth random values."""
    rows, columns = np.mgrid[0:height, 0:PERIOD].astype(float)
    total = np.zeros((height, PERIOD))
    for octave, cells in enumerate((4, 8, 16)):
        grid = rng.random((cells, cells))
        r, c = rows * cells / height, columns * cells / PERIOD
        r0, c0 = r.astype(int), c.astype(int)
        fr, fc = _smooth(r - r0), _smooth(c - c0)
        a, b = grid[r0 % cells, c0 % cells], grid[r0 % cells, (c0 + 1) % cells]
        d, e = grid[(r0 + 1) % cells, c0 % cells], grid[(r0 + 1) % cells, (c0 + 1) % cells]
        total += ((1 - fr) * ((1 - fc) * a + fc * b) + fr * ((1 - fc) * d + fc * e)) / 2**octave
    return _between(rng, (total - total.min()) / np.ptp(total))


def _tiles(rng: np.random.Generator, height: int) -> np.ndarray:
    """A wall of bricks in shades of one colour, with joints."""
    side = int(rng.choice([8, 16, 32]))
    rows, columns = np.mgrid[0:height, 0:PERIOD]
    shifted = columns + (rows // side % 2) * (side // 2)
    shade = rng.random((height // side + 1, PERIOD // side))
    value = shade[rows // side, shifted // side % (PERIOD // side)]
    joint = (rows % side == 0) | (shifted % side == 0)
    return _between(rng, np.where(joint, 0.0, 0.35 + 0.65 * value))


def _gradient(rng: np.random.Generator, height: int) -> np.ndarray:
    """A sky over hills: a gradient from top to bottom, and two ridges."""
    rows, columns = np.mgrid[0:height, 0:PERIOD].astype(float)
    image = _between(rng, rows / (height - 1)).astype(float)
    for depth in (0.5, 0.7):
        waves = rng.integers(1, 5, 3)
        phases = rng.random(3) * 2 * np.pi
        ridge = sum(
            np.sin(columns * w * 2 * np.pi / PERIOD + p) / w
            for w, p in zip(waves, phases, strict=True)
        )
        below = rows > height * (depth + 0.08 * ridge)
        image[below] = rng.integers(20, 236, 3)
    return image.astype(np.uint8)


_PAINTERS = (_gradient, _tiles, _value_noise)


def _smooth(t: np.ndarray) -> np.ndarray:
    return t * t * (3 - 2 * t)


def _between(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    """Values in [0, 1] as colours between two random ones, uint8."""
    a, b = rng.integers(0, 256, (2, 3)).astype(float)
    return (a + value[..., None] * (b - a)).astype(np.uint8)


# Characters -----------------------------------------------------------------------------------


class Figure(NamedTuple):
    """How a character is drawn: kinds of hat and body, and its three colours."""

    hat: str
    body: str
    dark: tuple[int, int, int]
    skin: tuple[int, int, int]
    clothes: tuple[int, int, int]


_PALE, _TAN, _BONE, _STEEL = (236, 188, 150), (176, 120, 80), (226, 222, 200), (150, 160, 176)
_FIGURES: dict[str, Figure] = {
    "boy": Figure("hair", "plain", (84, 52, 28), _PALE, (60, 110, 200)),
    "chibi": Figure("tall", "wide", (240, 150, 190), _PALE, (250, 210, 90)),
    "clown": Figure("tall", "wide", (220, 40, 40), (250, 250, 250), (250, 200, 40)),
    "cowboy": Figure("brim", "plain", (110, 70, 30), _TAN, (160, 60, 40)),
    "cowboy_2": Figure("brim", "plain", (40, 40, 44), _PALE, (70, 90, 60)),
    "dark_knight": Figure("horns", "armour", (24, 24, 32), (90, 90, 110), (60, 20, 80)),
    "dark_knight_2": Figure("horns", "armour", (50, 10, 10), (100, 90, 90), (30, 30, 40)),
    "dark_skeleton": Figure("bare", "ribs", (40, 20, 50), (150, 130, 170), (70, 50, 90)),
    "dog": Figure("ears", "wide", (90, 60, 30), (190, 140, 80), (150, 100, 50)),
    "elder_skeleton": Figure("horns", "ribs", (90, 70, 40), (200, 190, 150), (120, 100, 60)),
    "elf": Figure("ears", "plain", (230, 210, 110), _PALE, (40, 140, 70)),
    "enchanter": Figure("cone", "robe", (50, 40, 120), _PALE, (90, 60, 190)),
    "farmer": Figure("brim", "plain", (210, 180, 90), _TAN, (60, 90, 150)),
    "girl": Figure("long", "robe", (110, 60, 30), _PALE, (220, 90, 140)),
    "girl_2": Figure("long", "robe", (230, 200, 90), _PALE, (90, 170, 200)),
    "girl_3": Figure("long", "plain", (40, 30, 30), _TAN, (200, 60, 60)),
    "knight": Figure("helmet", "armour", (80, 90, 110), _STEEL, (180, 40, 40)),
    "man": Figure("hair", "plain", (30, 26, 24), _TAN, (90, 90, 100)),
    "robot": Figure("antenna", "armour", (60, 70, 80), (170, 190, 200), (60, 160, 200)),
    "scientist": Figure("hair", "robe", (150, 150, 150), _PALE, (240, 244, 248)),
    "skeleton": Figure("bare", "ribs", (60, 60, 60), _BONE, (170, 165, 150)),
    "spy": Figure("brim", "robe", (20, 20, 24), _PALE, (50, 50, 60)),
    "thief": Figure("helmet", "plain", (40, 50, 40), _TAN, (70, 80, 60)),
    "warrior": Figure("horns", "wide", (150, 90, 40), _TAN, (120, 130, 140)),
    "woman": Figure("long", "robe", (160, 70, 30), _PALE, (60, 120, 110)),
    "woman_2": Figure("hair", "robe", (60, 40, 30), _TAN, (210, 150, 60)),
    "woman_wizard": Figure("cone", "robe", (100, 30, 110), _PALE, (160, 60, 160)),
}


@functools.lru_cache(maxsize=1)
def _characters() -> tuple[np.ndarray, np.ndarray]:
    """(27, 2, 24) uint32 rows and (27, 3, 3) uint8 colours."""
    figures = [_FIGURES[name] for name in CHARACTERS]
    rows = [[shapes.pack(draw_character(f, frame), 2) for frame in range(FRAMES)] for f in figures]
    colours = [[f.dark, f.skin, f.clothes] for f in figures]
    return np.asarray(rows, np.uint32), np.asarray(colours, np.uint8)


def draw_character(figure: Figure, frame: int) -> np.ndarray:
    """(24, 16) codes of one frame of a walk."""
    grid = np.zeros((ROWS, COLUMNS), np.uint8)
    grid[4:11, 5:11] = 2
    grid[7, (6, 9)] = 1  # eyes
    _dress(grid, figure.body)
    _cover(grid, figure.hat)
    step = (4, 9) if frame else (5, 8)
    for foot, left in enumerate(step):
        height = ROWS - (1 if frame and foot else 0)
        if figure.body != "robe":
            grid[19:height, left : left + 3] = 2 if figure.body == "ribs" else 1
        grid[height - 2 : height, left : left + 4] = 1
    return grid


def _dress(grid: np.ndarray, body: str) -> None:
    left, right = (3, 13) if body in ("wide", "armour") else (4, 12)
    if body == "ribs":
        grid[11:19:2, left:right] = 2
        grid[11:19, 7:9] = 2
        return
    grid[11:19, left:right] = 3
    grid[12:17, (left - 1, right)] = 2  # arms
    if body == "robe":
        for row in range(15, 22):
            grid[row, left - (row - 14) // 3 : right + (row - 14) // 3] = 3
    if body == "armour":
        grid[11:13, left:right] = 1
        grid[15, left:right] = 1


def _cover(grid: np.ndarray, hat: str) -> None:
    if hat in ("hair", "long", "helmet"):
        grid[3:6, 4:12] = 1
    if hat == "long":
        grid[5:13, 4], grid[5:13, 11] = 1, 1
    elif hat == "helmet":
        grid[3:11, (4, 11)] = 1
    elif hat == "brim":
        grid[3:5, 2:14] = 1
        grid[0:3, 5:11] = 1
    elif hat == "tall":
        grid[0:5, 4:12] = 1
        grid[1, 5:11] = 3
    elif hat == "cone":
        for row in range(6):
            grid[row, 8 - row // 2 - 1 : 8 + row // 2 + 1] = 3
        grid[5, 3:13] = 1
    elif hat == "horns":
        grid[3:6, 4:12] = 1
        grid[0:4, (3, 12)] = 1
    elif hat == "ears":
        grid[1:6, (4, 11)] = 1
        grid[3:5, 5:11] = 1
    elif hat == "antenna":
        grid[0:4, 7:9] = 1
        grid[4, 4:12] = 1
