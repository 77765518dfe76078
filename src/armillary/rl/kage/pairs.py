"""The 34 pairs of KAGE-Bench in six suites, as our own data: each changes one visual axis.

Values are read from the benchmark's configurations as facts; file names of its art stand for our
own pictures and characters of the same name. One pair differs: in ``distractors-6`` the benchmark
also recolours the agent, which is a second axis; here it stays teal.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from armillary.rl.kage.params import Config, load_config

Nested = dict[str, Any]

#: What all 68 configurations share.
BASE: Nested = {
    "background": {"parallax_factor": 0.5, "tile_horizontal": True},
    "character": {
        "use_shape": True,
        "shape_types": ["circle"],
        "shape_colors": ["teal"],
        "animation_fps": 12.0,
    },
    "npc": {
        "min_npc_count": 5,
        "max_npc_count": 20,
        "animation_fps": 12.0,
        "min_sticky_count": 1,
        "max_sticky_count": 5,
        "sticky_can_jump": True,
        "sticky_jump_probability": 0.01,
        "sticky_x_offsets": [],
        "sticky_x_min": -60,
        "sticky_x_max": 60,
        "sticky_y_min_offset": -40,
        "sticky_y_max_offset": -10,
    },
    "distractors": {
        "min_speed": 0.0,
        "max_speed": 1.0,
        "min_rotation_speed": -0.3,
        "max_rotation_speed": 0.3,
    },
    "effects": {
        "point_light_intensity": 1.0,
        "point_light_radius": 0.1,
        "point_light_falloff": 2,
        "point_light_count": 4,
        "point_light_color_names": ["blue", "pink", "gold"],
    },
    "layout": {
        "run_width": 25,
        "p_change": 0.7,
        "min_step_height": 5,
        "max_step_height": 17,
        "layout_colors": ["cyan"],
    },
    "physics": {
        "gravity": 0.75,
        "move_speed": 1,
        "jump_force": -7.5,
        "air_resistance": 0.95,
    },
}


def _merged(base: Nested, over: Nested) -> Nested:
    found = copy.deepcopy(base)
    for key, value in over.items():
        inner = found.get(key)
        if isinstance(inner, dict) and isinstance(value, dict):
            found[key] = _merged(inner, value)
        else:
            found[key] = copy.deepcopy(value)
    return found


_CIRCLE: Nested = {}
_SKELETON: Nested = {
    "character": {"use_shape": False, "use_sprites": True, "sprite_paths": ["skeleton"]}
}
_CLOWN: Nested = {"character": {"use_shape": False, "use_sprites": True, "sprite_paths": ["clown"]}}


def _picture(*numbers: int) -> Nested:
    return {"background": {"mode": "image", "image_paths": [f"bg-{n}" for n in numbers]}}


def _fields(*names: str) -> Nested:
    return {"background": {"mode": "color", "color_names": list(names)}}


def _character(**keys: Any) -> Nested:
    return {"character": keys}


def _npc(**keys: Any) -> Nested:
    return {"npc": keys}


def _teal_circles(count: int) -> Nested:
    return {
        "distractors": {
            "enabled": True,
            "count": count,
            "shape_types": ["circle"],
            "shape_colors": ["teal"],
            "min_size": 16,
            "max_size": 16,
        }
    }


def _light(**keys: Any) -> Nested:
    return {"effects": {"point_light_enabled": True, **keys}}


def _both(*parts: Nested) -> Nested:
    return functools.reduce(_merged, parts, {})


#: A picture behind a character: the look of every filter and effect pair.
_SCENE = _both(_SKELETON, _picture(1))
_FILTERS = (
    {"brightness": 1.0},
    {"contrast": 128.0},
    {"saturation": 0.0},
    {"hue_shift": 180.0},
    {"color_jitter_std": 2.0},
    {"gaussian_noise_std": 100.0},
    {"pixelate_factor": 3},
    {"vignette_strength": 10.0},
    {"radial_light_strength": 1.0},
)
#: Suite -> (look in training, what is changed for evaluation), in the benchmark's order.
_PAIRS: Mapping[str, tuple[tuple[Nested, Nested], ...]] = {
    "background": (
        (_CIRCLE, {"background": {"mode": "noise"}}),
        (_CIRCLE, _fields("purple")),
        (_CIRCLE, _fields("purple", "lime", "indigo")),
        (_fields("red", "green", "blue"), _fields("purple", "lime", "indigo")),
        (_CIRCLE, {"background": {"mode": "image", "image_dir": "backgrounds"}}),
        (_picture(1), _picture(128)),
        (_picture(1, 2, 3), _picture(128)),
        (_SKELETON, _fields("purple")),
        (_SCENE, _picture(128)),
        (_both(_SKELETON, _picture(1, 2, 3)), _picture(128)),
    ),
    "agent_appearance": (
        (_CIRCLE, _character(shape_types=["line"])),
        (_CIRCLE, _character(shape_colors=["pink"])),
        (_CIRCLE, _character(shape_types=["line"], shape_colors=["pink"])),
        (_CIRCLE, _SKELETON),
        (_SKELETON, _CLOWN),
    ),
    "distractors": (
        (_SKELETON, _npc(enabled=True, sprite_paths=["skeleton"])),
        (_SKELETON, _npc(enabled=True)),
        (_SKELETON, _npc(sticky_enabled=True, sticky_sprite_dirs=["skeleton"])),
        (_SKELETON, _npc(sticky_enabled=True)),
        (_CIRCLE, _teal_circles(7)),
        (_CIRCLE, _teal_circles(1)),
    ),
    "filters": tuple((_SCENE, {"filters": change}) for change in _FILTERS),
    "effects": (
        (_SCENE, _light(point_light_intensity=0.5)),
        (_SCENE, _light(point_light_falloff=4)),
        (_SCENE, _light()),
    ),
    "layout": ((_CIRCLE, {"layout": {"layout_colors": ["red"]}}),),
}


class Pair(NamedTuple):
    """A look to train under and one to evaluate under; nested configurations.

    Attributes:
        train: configuration of the training look.
        eval: the same with one axis changed.
        axis: the suite's name.
        id: such as ``"filters-3"``, numbered as in the benchmark.
    """

    train: Nested
    eval: Nested
    axis: str
    id: str


def suites() -> dict[str, list[Pair]]:
    """The pairs of every suite, in the benchmark's order."""
    found: dict[str, list[Pair]] = {}
    for axis, listed in _PAIRS.items():
        found[axis] = []
        for number, (train, change) in enumerate(listed, start=1):
            start = _merged(BASE, train)
            found[axis].append(Pair(start, _merged(start, change), axis, f"{axis}-{number}"))
    return found


def all_pairs() -> list[Pair]:
    """All 34, suite by suite."""
    return [pair for listed in suites().values() for pair in listed]


def select(names: str) -> list[Pair]:
    """Pairs by names separated by commas: ``all``, suites, or ids.

    Raises:
        ValueError: there is no such suite or pair.
    """
    known = suites()
    by_id = {pair.id: pair for pair in all_pairs()}
    found: list[Pair] = []
    for name in names.split(","):
        if name == "all":
            found += all_pairs()
        elif name in known:
            found += known[name]
        elif name in by_id:
            found.append(by_id[name])
        else:
            raise ValueError(
                f"no suite or pair {name!r}: give all, {', '.join(known)}, or an id such as "
                "filters-3"
            )
    return list({pair.id: pair for pair in found}.values())


@functools.lru_cache(maxsize=1)
def any_config() -> Config:
    """The benchmark's plainest look: a teal circle on black."""
    return load_config(BASE)
