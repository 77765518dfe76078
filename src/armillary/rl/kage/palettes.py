"""Names that a configuration may use: colours, shapes, lights, presets, and the characters.

Values are those of KAGE-Bench; the characters' pictures are our own (`armillary.rl.kage.assets`).
"""

from __future__ import annotations

Colour = tuple[int, int, int]

#: Shapes, in the order of their ids.
SHAPES = (
    "circle",
    "square",
    "line",
    "ellipse",
    "triangle",
    "star",
    "polygon",
    "cross",
    "diamond",
)

#: Colours of shapes (agent and distractors).
SHAPE_COLOURS: dict[str, Colour] = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "orange": (255, 165, 0),
    "yellow": (255, 255, 0),
    "violet": (128, 0, 128),
    "magenta": (255, 0, 255),
    "cyan": (0, 255, 255),
    "pink": (255, 192, 203),
    "brown": (165, 42, 42),
    "purple": (128, 0, 128),
    "lime": (0, 255, 0),
    "navy": (0, 0, 128),
    "maroon": (128, 0, 0),
    "olive": (128, 128, 0),
    "teal": (0, 128, 128),
    "indigo": (75, 0, 130),
    "coral": (255, 127, 80),
    "gold": (255, 215, 0),
    "silver": (192, 192, 192),
    "white": (255, 255, 255),
}

#: Colours of backgrounds and of the ground that the configuration may name.
FIELD_COLOURS: dict[str, Colour] = {
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "red": (220, 20, 60),
    "orange": (255, 140, 0),
    "yellow": (255, 215, 0),
    "green": (34, 139, 34),
    "cyan": (0, 206, 209),
    "blue": (30, 144, 255),
    "purple": (138, 43, 226),
    "pink": (255, 105, 180),
    "brown": (139, 69, 19),
    "gray": (128, 128, 128),
    "lime": (50, 205, 50),
    "teal": (0, 128, 128),
    "indigo": (75, 0, 130),
    "magenta": (255, 0, 255),
}

#: The ground is painted with a shape's colour of that name where there is one, else in this grey.
GROUND_FALLBACK: Colour = (80, 80, 80)

LIGHT_COLOURS: dict[str, Colour] = {
    "warm_white": (255, 245, 230),
    "cool_white": (230, 240, 255),
    "yellow": (255, 255, 100),
    "orange": (255, 160, 50),
    "red": (255, 80, 80),
    "green": (100, 255, 100),
    "cyan": (100, 255, 255),
    "blue": (100, 150, 255),
    "purple": (200, 100, 255),
    "pink": (255, 150, 200),
    "gold": (255, 215, 0),
    "fire": (255, 140, 0),
}

#: Filter presets, in the order of their ids; ``none`` leaves the frame as it is.
PRESETS = ("none", "vintage", "horror", "retro", "cyberpunk", "noir")

#: The characters by the names that configurations use for their folders.
CHARACTERS = (
    "boy",
    "chibi",
    "clown",
    "cowboy",
    "cowboy_2",
    "dark_knight",
    "dark_knight_2",
    "dark_skeleton",
    "dog",
    "elder_skeleton",
    "elf",
    "enchanter",
    "farmer",
    "girl",
    "girl_2",
    "girl_3",
    "knight",
    "man",
    "robot",
    "scientist",
    "skeleton",
    "spy",
    "thief",
    "warrior",
    "woman",
    "woman_2",
    "woman_wizard",
)

#: Backgrounds that the library draws itself, known to configurations as ``bg-1`` … ``bg-128``.
N_BACKGROUNDS = 128
