"""Read a configuration: YAML or a mapping in KAGE-Bench's keys, faults told with their line.

`read` gives a flat dict of every key; `load_config` turns it into arrays. `differences` compares
two configurations and knows which keys govern the world.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from armillary.rl.kage.errors import AxisLeakError, ConfigError
from armillary.rl.kage.schema import AXES, SCHEMA, Key, defaults, flat_schema

Source = str | os.PathLike[str] | Mapping[str, Any]
Flat = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a value was read, for messages."""

    file: str
    lines: Mapping[str, int]

    def of(self, key: str) -> str:
        line = self.lines.get(key)
        return f"{self.file}, line {line}" if line else self.file


def read(source: Source) -> Flat:
    """Every dotted key of a configuration, defaults filled in.

    Args:
        source: a YAML file, or a mapping with the same nesting (or with dotted keys).

    Raises:
        ConfigError: an unknown key or name, a value of another kind, NaN, a negative size; with
            file, line, key and the nearest names that exist.
        FileNotFoundError: there is no such file.
    """
    nested, place, base = _nested(source)
    schema = flat_schema()
    found = defaults()
    given: dict[str, str] = {}
    for name, value in _flatten(nested, place):
        key = schema[name]
        checked = _checked(name, key, value, place)
        target = f"{name.rsplit('.', 1)[0]}.{key.alias}" if key.alias else name
        if target in given:
            raise ConfigError(
                f"{place.of(name)}: {name!r} and {given[target]!r} mean the same: give one"
            )
        given[target] = name
        found[target] = _absolute(checked, key, base)
    _check_together(found, given, place)
    return found


def _nested(source: Source) -> tuple[Mapping[str, Any], _Place, Path]:
    if isinstance(source, Mapping):
        return source, _Place("the configuration", {}), Path()
    path = Path(source)
    if not path.is_file():
        raise FileNotFoundError(f"no configuration file {str(path)!r}")
    import yaml

    text = path.read_text("utf-8")
    try:
        values = yaml.safe_load(text) or {}
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path} holds a {type(values).__name__}: a mapping of keys is expected")
    return values, _Place(str(path), _lines(node)), path.absolute().parent


def _lines(node: Any, prefix: str = "") -> dict[str, int]:
    """Line of each key by its dotted name."""
    found: dict[str, int] = {}
    for key, value in getattr(node, "value", None) or []:
        name = f"{prefix}{key.value}"
        found[name] = key.start_mark.line + 1
        if value.id == "mapping":
            found |= _lines(value, f"{name}.")
    return found


def _flatten(nested: Mapping[str, Any], place: _Place) -> list[tuple[str, Any]]:
    schema = flat_schema()
    pairs: list[tuple[str, Any]] = []
    for name, value in nested.items():
        section = SCHEMA.get(name)
        if isinstance(section, Mapping):
            if value is None:
                continue
            if not isinstance(value, Mapping):
                raise ConfigError(f"{place.of(name)}: {name!r} holds keys, got {value!r}")
            for key, inner in value.items():
                if f"{name}.{key}" not in schema:
                    raise _unknown(f"{name}.{key}", [f"{name}.{k}" for k in section], place)
                pairs.append((f"{name}.{key}", inner))
        elif name in schema:
            pairs.append((name, value))
        else:
            known = [*SCHEMA, *schema]
            raise _unknown(str(name), known, place)
    return pairs


def _unknown(name: str, known: list[str], place: _Place) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {sorted(known)}"
    return ConfigError(f"{place.of(name)}: unknown key {name!r}: {hint}")


def _checked(name: str, key: Key, value: Any, place: _Place) -> Any:
    """The value in its own kind; whatever has no meaning is refused."""

    def refuse(expected: str) -> ConfigError:
        return ConfigError(f"{place.of(name)}: {name}={value!r}: {expected} is expected")

    if value is None:
        if key.default is None:
            return None
        raise refuse(f"a value (default {key.default!r})")
    if key.kind in ("number", "integer"):
        return _number(key, value, refuse)
    if key.kind == "flag":
        if not isinstance(value, bool):
            raise refuse("true or false")
        return value
    if key.kind == "colour":
        if not _is_colour(value):
            raise refuse("three whole numbers from 0 to 255")
        return list(value)
    if key.kind == "path":
        if not isinstance(value, (str, os.PathLike)):
            raise refuse("a path")
        return str(value)
    if key.kind == "name":
        _check_names(name, key, [value], place)
        return value
    listed: Any = [value] if isinstance(value, (str, os.PathLike, int)) else value
    if not isinstance(listed, (list, tuple)):
        raise refuse("a list")
    if key.kind == "integers":
        if not all(isinstance(v, int) and not isinstance(v, bool) for v in listed):
            raise refuse("a list of whole numbers")
    elif key.kind == "names":
        _check_names(name, key, listed, place)
    return [str(v) if key.kind in ("names", "paths") else v for v in listed]


def _number(key: Key, value: Any, refuse: Any) -> float | int:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse("a number")
    if not math.isfinite(value):
        raise refuse("a finite number")
    if key.kind == "integer":
        if value != int(value):
            raise refuse("a whole number")
        value = int(value)
    if key.low is not None and value < key.low:
        raise refuse(f"a number of at least {key.low:g}")
    if key.high is not None and value > key.high:
        raise refuse(f"a number of at most {key.high:g}")
    return value


def _is_colour(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 3
        and all(isinstance(v, int) and 0 <= v <= 255 for v in value)
    )


def _check_names(name: str, key: Key, values: Any, place: _Place) -> None:
    for value in values:
        if value not in key.names:
            near = difflib.get_close_matches(str(value), key.names, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise ConfigError(
                f"{place.of(name)}: {name}: unknown {value!r}: {hint}known: {', '.join(key.names)}"
            )


def _absolute(value: Any, key: Key, base: Path) -> Any:
    """Paths relative to the file become absolute where something lies there."""
    if value is None:
        return None
    if key.kind == "path":
        return _resolved(value, base)
    if key.kind == "paths":
        return [_resolved(v, base) for v in value]
    return value


def _resolved(path: str, base: Path) -> str:
    beside = base / path
    return str(beside.absolute()) if beside.exists() else path


def _check_together(found: Flat, given: Mapping[str, str], place: _Place) -> None:
    """What single values cannot show."""
    for low, high in (
        ("npc.min_npc_count", "npc.max_npc_count"),
        ("npc.min_sticky_count", "npc.max_sticky_count"),
        ("npc.sticky_y_min_offset", "npc.sticky_y_max_offset"),
        ("distractors.min_size", "distractors.max_size"),
        ("layout.min_step_height", "layout.max_step_height"),
        ("layout.min_height", "layout.max_height"),
    ):
        if found[low] > found[high]:
            raise ConfigError(
                f"{place.of(given.get(low, low))}: {low}={found[low]} exceeds {high}={found[high]}"
            )
    for group in (
        ("background.image_path", "background.image_dir", "background.image_paths"),
        ("character.sprite_path", "character.sprite_dir", "character.sprite_paths"),
        ("npc.sprite_path", "npc.sprite_dir", "npc.sprite_paths"),
        ("npc.sticky_sprite_path", "npc.sticky_sprite_dir", "npc.sticky_sprite_dirs"),
    ):
        present = [name for name in group if found[name]]
        if len(present) > 1:
            raise ConfigError(f"{place.of(present[1])}: give one of {', '.join(present)}, not more")
    if found["character.use_sprites"] and found["character.use_shape"]:
        raise ConfigError(
            f"{place.of('character.use_shape')}: use_shape and use_sprites are both true: "
            "set one of them"
        )
    if found["W"] > found["layout.length"]:
        raise ConfigError(f"{place.of('W')}: W={found['W']} exceeds layout.length")
    if found["layout.height_px"] != found["H"]:
        raise ConfigError(f"{place.of('layout.height_px')}: it must equal H={found['H']}")


@dataclasses.dataclass(frozen=True)
class Difference:
    """One key in which two configurations differ; ``axis`` is ``"latent"`` for the world's."""

    key: str
    axis: str
    a: Any
    b: Any


#: Keys that are read only if another has this value: unread ones cannot differ.
_READ_IF = {
    "background.color_names": ("background.mode", "color"),
    "background.image_path": ("background.mode", "image"),
    "background.image_dir": ("background.mode", "image"),
    "background.image_paths": ("background.mode", "image"),
    "background.parallax_factor": ("background.mode", "image"),
    "background.tile_horizontal": ("background.mode", "image"),
    "character.sprite_dir": ("character.use_sprites", True),
    "character.sprite_paths": ("character.use_sprites", True),
    "character.sprite_path": ("character.use_sprites", True),
    "character.shape_types": ("character.use_shape", True),
    "character.shape_colors": ("character.use_shape", True),
}


def differences(a: Source, b: Source) -> list[Difference]:
    """The keys in which two configurations differ, in what a frame or the world can show.

    A key that neither configuration reads (the image of a black background) does not count.
    """
    left, right = read(a), read(b)
    schema = flat_schema()
    found = []
    for name, value in left.items():
        if value == right[name] or not (_is_read(name, left) or _is_read(name, right)):
            continue
        axis = "latent" if schema[name].latent else AXES[name.split(".")[0]]
        found.append(Difference(name, axis, value, right[name]))
    return found


def _is_read(name: str, flat: Flat) -> bool:
    section = name.split(".")[0]
    if section == "distractors" and name != "distractors.enabled":
        return flat["distractors.enabled"]
    if section == "effects" and name != "effects.point_light_enabled":
        return flat["effects.point_light_enabled"]
    if section == "npc" and name not in ("npc.enabled", "npc.sticky_enabled"):
        return flat["npc.sticky_enabled" if "sticky" in name else "npc.enabled"]
    if name in _READ_IF:
        switch, value = _READ_IF[name]
        return flat[switch] == value
    return True


def check_pair(a: Source, b: Source) -> str:
    """The one visual axis in which two configurations differ.

    Raises:
        AxisLeakError: they differ in a key that governs the world, or in several axes, or in none.
    """
    found = differences(a, b)
    latent = tuple(d.key for d in found if d.axis == "latent")
    if latent:
        told = ", ".join(f"{d.key} ({d.a!r} and {d.b!r})" for d in found if d.axis == "latent")
        raise AxisLeakError(
            f"the pair differs in what governs the world: {told}: make them equal", latent
        )
    axes = sorted({d.axis for d in found})
    if len(axes) != 1:
        told = f"in {', '.join(axes)}" if axes else "in nothing that is drawn"
        raise AxisLeakError(f"the pair differs {told}: exactly one axis may differ")
    return axes[0]
