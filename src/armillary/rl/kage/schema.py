"""The keys of a configuration: defaults, what each accepts, and which of them govern the world.

The keys, defaults and units are KAGE-Bench's, so that its files load unchanged. A benchmark's value
may lie outside the range that its documentation recommends (contrast 128): only what has no meaning
(NaN, a negative size, an unknown name) is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from armillary.rl.kage.palettes import (
    FIELD_COLOURS,
    LIGHT_COLOURS,
    PRESETS,
    SHAPE_COLOURS,
    SHAPES,
)

Kind = Literal["number", "integer", "flag", "name", "names", "paths", "path", "integers", "colour"]


@dataclasses.dataclass(frozen=True)
class Key:
    """One key: its default, what kind of value it holds, its least value, or the names it takes."""

    default: Any
    kind: Kind = "number"
    low: float | None = None
    high: float | None = None
    names: tuple[str, ...] = ()
    #: Whether it governs the world (dynamics, reward, level) rather than its look.
    latent: bool = False
    #: The name under which the file's key is kept, where that is another.
    alias: str = ""


def _latent(default: Any, kind: Kind = "number", low: float | None = None, **rest: Any) -> Key:
    return Key(default, kind, low, latent=True, **rest)


def _names(default: list[str], accepted: Any) -> Key:
    return Key(default, "names", names=tuple(accepted))


_FIELD, _SHAPE_COLOUR = tuple(FIELD_COLOURS), tuple(SHAPE_COLOURS)

SCHEMA: Mapping[str, Key | Mapping[str, Key]] = {
    "H": _latent(128, "integer", 16),
    "W": _latent(128, "integer", 16),
    "episode_length": _latent(500, "integer", 1),
    "forward_reward_scale": _latent(0.2),
    "jump_penalty": _latent(10.0),
    "timestep_penalty": _latent(0.1),
    "idle_penalty": _latent(5.0),
    "dist_to_success": _latent(490.0),
    "background": {
        "mode": Key("black", "name", names=("black", "image", "noise", "color")),
        "image_path": Key(None, "path"),
        "image_dir": Key(None, "path"),
        "image_paths": Key([], "paths"),
        "parallax_factor": Key(0.5),
        "tile_horizontal": Key(True, "flag"),
        "color_names": _names(["black"], _FIELD),
        "switch_frequency": Key(0.0, low=0, high=1),
    },
    "character": {
        "width": _latent(16, "integer", 1),
        "height": _latent(24, "integer", 1),
        "use_sprites": Key(False, "flag"),
        "sprite_dir": Key(None, "path"),
        "sprite_paths": Key([], "paths"),
        "sprite_path": Key(None, "path"),
        "enable_animation": Key(True, "flag"),
        "animation_fps": Key(10.0, low=0),
        "idle_sprite_idx": Key(0, "integer", 0),
        "use_shape": Key(False, "flag"),
        "shape_types": _names(["circle"], SHAPES),
        "shape_colors": _names(["red"], _SHAPE_COLOUR),
        "shape_rotate": Key(False, "flag"),
        "shape_rotation_speed": Key(2.0),
        "fallback_color": Key([255, 0, 0], "colour"),
    },
    "npc": {
        "enabled": Key(False, "flag"),
        "sprite_dir": Key(None, "path"),
        "sprite_paths": Key([], "paths"),
        "sprite_path": Key(None, "path"),
        "min_npc_count": Key(2, "integer", 0),
        "max_npc_count": Key(5, "integer", 0, 20),
        "animation_fps": Key(8.0, low=0),
        "spawn_y_offset": Key(0, "integer"),
        "sticky_enabled": Key(False, "flag"),
        "min_sticky_count": Key(1, "integer", 0),
        "max_sticky_count": Key(3, "integer", 0, 5),
        "sticky_sprite_dir": Key(None, "path"),
        "sticky_sprite_dirs": Key([], "paths"),
        "sticky_sprite_path": Key(None, "path"),
        "sticky_can_jump": Key(False, "flag"),
        "sticky_jump_probability": Key(0.01, low=0, high=1),
        "sticky_x_offsets": Key([-40, 40], "integers"),
        "sticky_y_randomize": Key(True, "flag"),
        "sticky_y_min_offset": Key(-30, "integer"),
        "sticky_y_max_offset": Key(0, "integer"),
        "sticky_x_min": Key(None, "integer"),
        "sticky_x_max": Key(None, "integer"),
    },
    "distractors": {
        "enabled": Key(False, "flag"),
        "count": Key(3, "integer", 0, 16),
        "shape_types": _names(["circle"], SHAPES),
        "shape_colors": _names(["red"], _SHAPE_COLOUR),
        "can_move": Key(True, "flag"),
        "min_speed": Key(0.5, low=0),
        "max_speed": Key(2.0, low=0),
        "can_rotate": Key(True, "flag"),
        "min_rotation_speed": Key(-10.0),
        "max_rotation_speed": Key(10.0),
        "min_size": Key(3, "integer", 1),
        "max_size": Key(8, "integer", 1, 30),
    },
    "filters": {
        "brightness": Key(0.0),
        "contrast": Key(1.0, low=0),
        "gamma": Key(1.0, low=0),
        "saturation": Key(1.0, low=0),
        "hue_shift": Key(0.0),
        "color_temp": Key(0.0),
        "color_jitter_std": Key(0.0, low=0),
        "gaussian_noise_std": Key(0.0, low=0),
        "poisson_noise_scale": Key(0.0, low=0),
        "blur_sigma": Key(0.0, low=0),
        "sharpen_amount": Key(0.0, low=0),
        "pixelate_factor": Key(1, "integer", 1),
        "vignette_strength": Key(0.0, low=0),
        "radial_light_strength": Key(0.0, low=0),
        "radial_light_color": Key([255, 255, 200], "colour"),
        "pop_filter_list": _names([], PRESETS),
    },
    "effects": {
        "point_light_enabled": Key(False, "flag"),
        "point_light_intensity": Key(3.0, low=0),
        "point_light_radius": Key(0.1, low=1e-6),
        "point_light_falloff": Key(2.0, low=0),
        "point_light_count": Key(1, "integer", 1, 5),
        "point_light_color_names": _names(["warm_white"], LIGHT_COLOURS),
    },
    "layout": {
        "length": _latent(2048, "integer", 64, high=30_000),
        "height_px": _latent(128, "integer", 16),
        "base_ground_y": _latent(96, "integer", 0),
        "pix_per_unit": _latent(2, "integer", 0),
        "ground_thickness": _latent(2, "integer", 1),
        "run_width": _latent(20, "integer", 1),
        "p_change": _latent(0.5, low=0, high=1),
        "p_up_given_change": _latent(0.5, low=0, high=1),
        "min_step_height": _latent(5, "integer", 0),
        "max_step_height": _latent(10, "integer", 0),
        "min_height": _latent(0, "integer", 0),
        "max_height": _latent(20, "integer", 0),
        "layout_colors": _names(["gray"], _FIELD),
    },
    "camera": {
        "left_margin": _latent(40, "integer", 0),
        "right_margin": _latent(40, "integer", 0),
    },
    "physics": {
        "gravity": _latent(0.5),
        "max_fall_speed": _latent(8.0, low=0),
        "terminal_velocity": _latent(None, low=0, alias="max_fall_speed"),
        "jump_force": _latent(-6.0),
        "jump_velocity": _latent(None, alias="jump_force"),
        "coyote_time": _latent(3, "integer", 0),
        "ground_accel": _latent(1.0),
        "air_accel": _latent(0.4),
        "move_speed": _latent(3, "integer", 1),
        "max_speed_x": _latent(None, "integer", 1, alias="move_speed"),
        "ground_friction": _latent(0.8, low=0),
        "air_resistance": _latent(0.98, low=0),
        "ground_snap_dist": _latent(2, "integer", 0),
    },
}

#: The axis that each section's visual keys belong to.
AXES: Mapping[str, str] = {
    "background": "background",
    "character": "agent_appearance",
    "npc": "distractors",
    "distractors": "distractors",
    "filters": "filters",
    "effects": "effects",
    "layout": "layout",
}


def flat_schema() -> dict[str, Key]:
    """Every key by its dotted name."""
    found: dict[str, Key] = {}
    for name, entry in SCHEMA.items():
        if isinstance(entry, Key):
            found[name] = entry
        else:
            found |= {f"{name}.{key}": about for key, about in entry.items()}
    return found


def defaults() -> dict[str, Any]:
    """Every dotted key with its default, aliases left out."""
    return {name: key.default for name, key in flat_schema().items() if not key.alias}
