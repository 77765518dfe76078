"""A configuration as arrays: `LatentParams` governs the world, `VisualParams` its look.

Both are pytrees of traced arrays, so that one compiled program serves every configuration with the
same `StaticCaps` (sizes, and which visual features are ever active). Lists of choices are padded to
fixed lengths with their count beside them, so that configurations can be stacked and mapped over.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from flax import struct

from armillary.rl.kage.config import Flat, Source, read
from armillary.rl.kage.errors import AssetError, ConfigError
from armillary.rl.kage.palettes import (
    CHARACTERS,
    FIELD_COLOURS,
    GROUND_FALLBACK,
    LIGHT_COLOURS,
    N_BACKGROUNDS,
    PRESETS,
    SHAPE_COLOURS,
    SHAPES,
)

#: NumPy's as loaded, JAX's where a program traces it.
Array: TypeAlias = Any
BLACK, IMAGE, NOISE, COLOUR = range(4)
RECTANGLE, SHAPE, SPRITE = range(3)
MODES = {"black": BLACK, "image": IMAGE, "noise": NOISE, "color": COLOUR}
PICTURES = (".png", ".jpg", ".jpeg", ".bmp")


@struct.dataclass
class LatentParams:
    """What governs level, dynamics and reward; speeds in pixels a step, heights in units."""

    episode_length: Array
    forward_reward_scale: Array
    jump_penalty: Array
    timestep_penalty: Array
    idle_penalty: Array
    dist_to_success: Array
    base_ground_y: Array
    pix_per_unit: Array
    ground_thickness: Array
    p_change: Array
    p_up: Array
    min_step: Array
    max_step: Array
    min_height: Array
    max_height: Array
    left_margin: Array
    right_margin: Array
    gravity: Array
    max_fall_speed: Array
    jump_force: Array
    coyote_time: Array
    ground_accel: Array
    air_accel: Array
    move_speed: Array
    ground_friction: Array
    air_resistance: Array
    ground_snap_dist: Array


@struct.dataclass
class Choice:
    """Ids of which one is drawn: (k,) int32, of which the first ``count`` are meant."""

    ids: Array
    count: Array


@struct.dataclass
class VisualParams:
    """What a frame looks like. Colours are uint8; angles degrees; intensities in [0, 255]."""

    background: Array
    images: Choice
    parallax: Array
    tile: Array
    fields: Array
    field_count: Array
    switch_frequency: Array
    agent: Array
    skins: Choice
    shapes: Choice
    shape_colours: Array
    shape_colour_count: Array
    rectangle: Array
    animate: Array
    agent_fps: Array
    idle_frame: Array
    rotation_speed: Array
    ground_colours: Array
    ground_colour_count: Array
    npc_enabled: Array
    npc_range: Array
    npc_skins: Choice
    npc_fps: Array
    npc_lift: Array
    sticky_enabled: Array
    sticky_range: Array
    sticky_skins: Choice
    sticky_jump: Array
    sticky_y: Array
    sticky_x: Array
    sticky_x_random: Array
    distractor_count: Array
    distractor_shapes: Choice
    distractor_colours: Array
    distractor_colour_count: Array
    distractor_speed: Array
    distractor_rotation: Array
    distractor_size: Array
    brightness: Array
    contrast: Array
    gamma: Array
    saturation: Array
    hue_shift: Array
    temperature: Array
    jitter: Array
    noise: Array
    poisson: Array
    blur: Array
    sharpen: Array
    pixelate: Array
    vignette: Array
    radial_light: Array
    radial_colour: Array
    presets: Choice
    light_count: Array
    light_intensity: Array
    light_radius: Array
    light_falloff: Array
    light_colours: Array


@dataclasses.dataclass(frozen=True)
class StaticCaps:
    """What a program is compiled for: sizes, and the visual features that may be active in it.

    Attributes:
        height: rows of a frame.
        width: columns of a frame.
        length: columns of the world.
        run_width: columns of a segment of ground.
        max_move: largest whole number of columns that the agent can move in a step.
        half_width: half the agent's box, rounded down.
        half_height: half the agent's box, rounded down.
        npcs: characters that stand in the world, at most.
        stickies: characters that follow the agent, at most.
        distractors: drifting shapes, at most.
        lights: point lights, at most.
        features: names of the visual features that are drawn at all.
        image_files: pictures of the user's own, after the library's 128.
    """

    height: int = 128
    width: int = 128
    length: int = 2048
    run_width: int = 25
    max_move: int = 1
    half_width: int = 8
    half_height: int = 12
    npcs: int = 0
    stickies: int = 0
    distractors: int = 0
    lights: int = 0
    features: frozenset[str] = frozenset()
    image_files: tuple[str, ...] = ()

    @property
    def segments(self) -> int:
        return math.ceil(self.length / self.run_width)

    def has(self, *names: str) -> bool:
        """Whether any of the features may be active."""
        return any(name in self.features for name in names)

    @classmethod
    def union(cls, caps: Sequence[StaticCaps]) -> StaticCaps:
        """The caps under which every configuration runs in one program.

        Raises:
            ConfigError: the configurations need worlds of different sizes, or different pictures.
        """
        first, *rest = caps
        largest = {
            name: max(getattr(c, name) for c in caps)
            for name in ("npcs", "stickies", "distractors", "lights", "max_move")
        }
        features = frozenset().union(*(c.features for c in caps))
        joined = dataclasses.replace(first, features=features, **largest)
        for other in rest:
            if dataclasses.replace(other, features=features, **largest) != joined:
                raise ConfigError(
                    "the configurations differ in the size of frame, world or agent, or bring "
                    "pictures of their own: run them in separate programs"
                )
        return joined


class Config(NamedTuple):
    """A configuration ready to run."""

    latent: LatentParams
    visual: VisualParams
    caps: StaticCaps


def load_config(source: Source) -> Config:
    """Read a configuration in KAGE-Bench's keys.

    Args:
        source: a YAML file, or a mapping with the same nesting.

    Returns:
        ``(latent, visual, caps)``.

    Raises:
        ConfigError: an unknown key or name, NaN, a negative size; with file, line and near names.
        AssetError: a background folder is empty or absent, or a picture cannot be read.
        FileNotFoundError: there is no such file.
    """
    flat = read(source)
    images, files = _images(flat)
    return Config(_latent(flat), _visual(flat, images), _caps(flat, files))


def _latent(flat: Flat) -> LatentParams:
    at = {
        "min_step": "layout.min_step_height",
        "max_step": "layout.max_step_height",
        "p_up": "layout.p_up_given_change",
    }
    homes = {name.rsplit(".", 1)[-1]: name for name in flat}
    values: dict[str, Any] = {}
    for field in dataclasses.fields(LatentParams):
        value = flat[at.get(field.name) or homes[field.name]]
        values[field.name] = _scalar(value)
    for name in ("move_speed", "coyote_time"):
        values[name] = np.float32(values[name]) if name == "move_speed" else values[name]
    values["episode_length"] = np.int32(flat["episode_length"])
    return LatentParams(**values)


def _scalar(value: Any) -> np.ndarray:
    kind = np.int32 if isinstance(value, int) and not isinstance(value, bool) else np.float32
    return np.asarray(value, dtype=kind)


def _f32(first: float, *rest: float) -> np.ndarray:
    return np.asarray((first, *rest) if rest else first, dtype=np.float32)


def _i32(first: int, *rest: int) -> np.ndarray:
    return np.asarray((first, *rest) if rest else first, dtype=np.int32)


def _choice(ids: Sequence[int], length: int) -> Choice:
    padded = np.zeros(length, dtype=np.int32)
    padded[: len(ids)] = ids
    return Choice(padded, np.int32(max(1, len(ids))))


def _colours(colours: Sequence[tuple[int, int, int]], length: int) -> tuple[np.ndarray, np.int32]:
    padded = np.zeros((length, 3), dtype=np.uint8)
    padded[: len(colours)] = colours
    return padded, np.int32(max(1, len(colours)))


def _visual(flat: Flat, images: list[int]) -> VisualParams:
    """Arrays of the visual keys."""
    agent = SPRITE if flat["character.use_sprites"] else RECTANGLE
    agent = SHAPE if flat["character.use_shape"] else agent
    fields, n_fields = _colours([FIELD_COLOURS[n] for n in flat["background.color_names"]], 16)
    shape_colours, n_shape = _colours(
        [SHAPE_COLOURS[n] for n in flat["character.shape_colors"]], 21
    )
    ground, n_ground = _colours(
        [SHAPE_COLOURS.get(n, GROUND_FALLBACK) for n in flat["layout.layout_colors"]], 16
    )
    drift, n_drift = _colours([SHAPE_COLOURS[n] for n in flat["distractors.shape_colors"]], 21)
    offsets, random_x = _sticky_offsets(flat)
    enabled = flat["distractors.enabled"]
    moves, turns = flat["distractors.can_move"], flat["distractors.can_rotate"]
    jumps = flat["npc.sticky_can_jump"]
    spread = flat["npc.sticky_y_randomize"]
    names = flat["effects.point_light_color_names"]
    lights = np.asarray([LIGHT_COLOURS[names[i % len(names)]] for i in range(5)], np.float32)
    return VisualParams(
        background=_i32(MODES[flat["background.mode"]]),
        images=_choice(images, max(N_BACKGROUNDS, len(images))),
        parallax=_f32(flat["background.parallax_factor"]),
        tile=np.bool_(flat["background.tile_horizontal"]),
        fields=fields,
        field_count=n_fields,
        switch_frequency=_f32(flat["background.switch_frequency"]),
        agent=_i32(agent),
        skins=_choice(_skins(flat, "character", "sprite_dir", "sprite_paths", "sprite_path"), 27),
        shapes=_choice([SHAPES.index(n) for n in flat["character.shape_types"]], len(SHAPES)),
        shape_colours=shape_colours,
        shape_colour_count=n_shape,
        rectangle=np.asarray(flat["character.fallback_color"], dtype=np.uint8),
        animate=np.bool_(flat["character.enable_animation"]),
        agent_fps=_f32(flat["character.animation_fps"]),
        idle_frame=_i32(flat["character.idle_sprite_idx"]),
        rotation_speed=_f32(
            flat["character.shape_rotation_speed"] if flat["character.shape_rotate"] else 0.0
        ),
        ground_colours=ground,
        ground_colour_count=n_ground,
        npc_enabled=np.bool_(flat["npc.enabled"]),
        npc_range=_i32(flat["npc.min_npc_count"], flat["npc.max_npc_count"]),
        npc_skins=_choice(_skins(flat, "npc", "sprite_dir", "sprite_paths", "sprite_path"), 27),
        npc_fps=_f32(flat["npc.animation_fps"]),
        npc_lift=_i32(flat["npc.spawn_y_offset"]),
        sticky_enabled=np.bool_(flat["npc.sticky_enabled"]),
        sticky_range=_i32(flat["npc.min_sticky_count"], flat["npc.max_sticky_count"]),
        sticky_skins=_choice(
            _skins(flat, "npc", "sticky_sprite_dir", "sticky_sprite_dirs", "sticky_sprite_path"), 27
        ),
        sticky_jump=_f32(flat["npc.sticky_jump_probability"] if jumps else 0.0),
        sticky_y=_i32(
            flat["layout.base_ground_y"]
            - flat["npc.spawn_y_offset"]
            + flat["npc.sticky_y_min_offset"],
            flat["layout.base_ground_y"]
            - flat["npc.spawn_y_offset"]
            + flat["npc.sticky_y_max_offset" if spread else "npc.sticky_y_min_offset"],
        ),
        sticky_x=offsets,
        sticky_x_random=np.bool_(random_x),
        distractor_count=_i32(flat["distractors.count"] if enabled else 0),
        distractor_shapes=_choice(
            [SHAPES.index(n) for n in flat["distractors.shape_types"]], len(SHAPES)
        ),
        distractor_colours=drift,
        distractor_colour_count=n_drift,
        distractor_speed=_f32(flat["distractors.max_speed"] if moves else 0.0),
        distractor_rotation=_f32(
            flat["distractors.min_rotation_speed"] if turns else 0.0,
            flat["distractors.max_rotation_speed"] if turns else 0.0,
        ),
        distractor_size=_i32(flat["distractors.min_size"], flat["distractors.max_size"]),
        brightness=_f32(flat["filters.brightness"]),
        contrast=_f32(flat["filters.contrast"]),
        gamma=_f32(flat["filters.gamma"]),
        saturation=_f32(flat["filters.saturation"]),
        hue_shift=_f32(flat["filters.hue_shift"]),
        temperature=_f32(flat["filters.color_temp"]),
        jitter=_f32(flat["filters.color_jitter_std"]),
        noise=_f32(flat["filters.gaussian_noise_std"]),
        poisson=_f32(flat["filters.poisson_noise_scale"]),
        blur=_f32(flat["filters.blur_sigma"]),
        sharpen=_f32(flat["filters.sharpen_amount"]),
        pixelate=_i32(flat["filters.pixelate_factor"]),
        vignette=_f32(flat["filters.vignette_strength"]),
        radial_light=_f32(flat["filters.radial_light_strength"]),
        radial_colour=np.asarray(flat["filters.radial_light_color"], dtype=np.float32),
        presets=_choice([PRESETS.index(n) for n in flat["filters.pop_filter_list"]], len(PRESETS)),
        light_count=_i32(
            flat["effects.point_light_count"] if flat["effects.point_light_enabled"] else 0
        ),
        light_intensity=_f32(flat["effects.point_light_intensity"]),
        light_radius=_f32(flat["effects.point_light_radius"]),
        light_falloff=_f32(flat["effects.point_light_falloff"]),
        light_colours=lights,
    )


def _sticky_offsets(flat: Flat) -> tuple[np.ndarray, bool]:
    """(5,) columns beside the agent, or their range in the first two entries."""
    given = flat["npc.sticky_x_offsets"]
    low, high = flat["npc.sticky_x_min"], flat["npc.sticky_x_max"]
    if given:
        return _i32(*(given[i % len(given)] for i in range(5))), False
    if low is not None and high is not None:
        return _i32(low, high, 0, 0, 0), True
    count = max(1, flat["npc.max_sticky_count"])
    return np.resize(np.linspace(-60, 60, count).astype(np.int32), 5), False


def _skins(flat: Flat, section: str, folder: str, folders: str, single: str) -> list[int]:
    """Ids of the characters that a configuration names by folder; all of them for the parent."""
    listed = flat[f"{section}.{folders}"] or [flat[f"{section}.{single}"]]
    if listed == [None]:
        return list(range(len(CHARACTERS)))
    names = [re.split(r"[/\\]", path.rstrip("/\\"))[-1] for path in listed]
    for name in names:
        if name not in CHARACTERS:
            raise ConfigError(
                f"{section}: no character {name!r}; there are: {', '.join(CHARACTERS)}"
            )
    return [CHARACTERS.index(name) for name in names]


def _images(flat: Flat) -> tuple[list[int], tuple[str, ...]]:
    """Ids of the backgrounds; files of the user's own get the ids after the library's."""
    if flat["background.mode"] != "image":
        return [0], ()
    folder = flat["background.image_dir"]
    if folder:
        if Path(folder).is_dir():
            listed = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in PICTURES)
            if not listed:
                raise AssetError(
                    f"background folder {folder!r} holds no picture ({', '.join(PICTURES)})"
                )
            return _own(listed)
        if Path(folder).name != "backgrounds":
            raise AssetError(f"background folder {folder!r} is no folder")
        return list(range(N_BACKGROUNDS)), ()
    paths = flat["background.image_paths"] or [flat["background.image_path"]]
    if paths == [None]:
        raise ConfigError(
            "background.mode='image' needs image_dir, image_paths or image_path; "
            "'bg-1' … 'bg-128' are the library's own"
        )
    if all(Path(path).is_file() for path in paths):
        return _own([Path(path) for path in paths])
    return [_known(path) for path in paths], ()


def _own(paths: list[Path]) -> tuple[list[int], tuple[str, ...]]:
    return [N_BACKGROUNDS + i for i in range(len(paths))], tuple(str(p) for p in paths)


def _known(path: str) -> int:
    found = re.fullmatch(r"bg-(\d+)", Path(path).stem)
    if not found or not 1 <= int(found[1]) <= N_BACKGROUNDS:
        raise AssetError(
            f"background {path!r}: no such file, and no picture of the library: "
            f"give a file, or bg-1 to bg-{N_BACKGROUNDS}"
        )
    return int(found[1]) - 1


#: Filters: feature name -> (key, value that leaves the frame as it is).
_NEUTRAL = {
    "brightness": ("filters.brightness", 0.0),
    "contrast": ("filters.contrast", 1.0),
    "gamma": ("filters.gamma", 1.0),
    "saturation": ("filters.saturation", 1.0),
    "hue": ("filters.hue_shift", 0.0),
    "temperature": ("filters.color_temp", 0.0),
    "jitter": ("filters.color_jitter_std", 0.0),
    "noise": ("filters.gaussian_noise_std", 0.0),
    "poisson": ("filters.poisson_noise_scale", 0.0),
    "blur": ("filters.blur_sigma", 0.0),
    "sharpen": ("filters.sharpen_amount", 0.0),
    "pixelate": ("filters.pixelate_factor", 1),
    "vignette": ("filters.vignette_strength", 0.0),
    "radial_light": ("filters.radial_light_strength", 0.0),
    "presets": ("filters.pop_filter_list", []),
}


def _caps(flat: Flat, files: tuple[str, ...]) -> StaticCaps:
    features = {name for name, (key, value) in _NEUTRAL.items() if flat[key] != value}
    mode = flat["background.mode"]
    features |= {f"background_{mode}"} if mode != "black" else set()
    if flat["background.switch_frequency"] > 0 and mode != "black":
        features.add("switching")
    if flat["character.use_sprites"]:
        features.add("agent_sprite")
    elif flat["character.use_shape"]:
        features.add("agent_shape")
        if flat["character.shape_rotate"]:
            features.add("agent_rotates")
    else:
        features.add("agent_rectangle")
    npcs = flat["npc.max_npc_count"] if flat["npc.enabled"] else 0
    stickies = flat["npc.max_sticky_count"] if flat["npc.sticky_enabled"] else 0
    lit = flat["effects.point_light_enabled"]
    return StaticCaps(
        height=flat["H"],
        width=flat["W"],
        length=flat["layout.length"],
        run_width=flat["layout.run_width"],
        max_move=flat["physics.move_speed"],
        half_width=flat["character.width"] // 2,
        half_height=flat["character.height"] // 2,
        npcs=npcs,
        stickies=stickies,
        distractors=flat["distractors.count"] if flat["distractors.enabled"] else 0,
        lights=flat["effects.point_light_count"] if lit else 0,
        features=frozenset(features),
        image_files=files,
    )


def stack(visuals: Sequence[VisualParams]) -> VisualParams:
    """Configurations along a new first axis, to map over."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *visuals)
