"""Common units and their worth in SI units (BIPM, The International System of Units, 9th ed.).

Feet, pounds, gallons and the like are the international and US customary units of NIST Special
Publication 811, appendix B.8.
"""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """A unit: SI value = written value * factor + offset."""

    sign: str
    dimension: str
    factor: float
    offset: float = 0.0


#: dimension -> sign -> (factor, names); names are matched in lower case, plurals with s too.
_TABLE: dict[str, dict[str, tuple[float, str]]] = {
    "length": {
        "m": (1.0, "meter metre"),
        "km": (1e3, "kilometer kilometre"),
        "cm": (1e-2, "centimeter centimetre"),
        "mm": (1e-3, "millimeter millimetre"),
        "µm": (1e-6, "um micrometer micrometre micron"),
        "nm": (1e-9, "nanometer nanometre"),
        "mi": (1609.344, "mile"),
        "ft": (0.3048, "foot feet"),
        "in": (0.0254, "inch inches"),
        "yd": (0.9144, "yard"),
        "nmi": (1852.0, "nautical-mile"),
        "ly": (9.4607304725808e15, "light-year lightyear"),
    },
    "mass": {
        "kg": (1.0, "kilogram kilogramme kilo"),
        "g": (1e-3, "gram gramme"),
        "mg": (1e-6, "milligram"),
        "µg": (1e-9, "ug microgram"),
        "t": (1e3, "tonne metric-ton"),
        "lb": (0.45359237, "lbs pound"),
        "oz": (0.028349523125, "ounce"),
    },
    "time": {
        "s": (1.0, "sec second"),
        "ms": (1e-3, "millisecond"),
        "µs": (1e-6, "us microsecond"),
        "ns": (1e-9, "nanosecond"),
        "min": (60.0, "mins minute"),
        "h": (3600.0, "hr hrs hour"),
        "d": (86400.0, "day"),
        "wk": (604800.0, "week"),
        "yr": (31557600.0, "year"),
    },
    "speed": {
        "m/s": (1.0, "meters-per-second metres-per-second"),
        "km/h": (1 / 3.6, "kph kmh kilometers-per-hour kilometres-per-hour"),
        "mph": (0.44704, "mi/h miles-per-hour"),
        "kn": (1852 / 3600, "knot"),
    },
    "area": {
        "m²": (1.0, "m2 m^2 sq-m square-meter square-metre"),
        "km²": (1e6, "km2 km^2 sq-km square-kilometer square-kilometre"),
        "ha": (1e4, "hectare"),
        "ac": (4046.8564224, "acre"),
        "mi²": (2589988.110336, "mi2 mi^2 sq-mi square-mile"),
        "ft²": (0.09290304, "ft2 ft^2 sq-ft square-foot square-feet"),
    },
    "volume": {
        "L": (1e-3, "l liter litre"),
        "mL": (1e-6, "ml milliliter millilitre"),
        "m³": (1.0, "m3 m^3 cubic-meter cubic-metre"),
        "gal": (0.003785411784, "gallon"),
    },
    "energy": {
        "J": (1.0, "j joule"),
        "kJ": (1e3, "kj kilojoule"),
        "cal": (4.184, "calorie"),
        "kcal": (4184.0, "kilocalorie"),
        "kWh": (3.6e6, "kwh kilowatt-hour"),
    },
    "power": {"W": (1.0, "w watt"), "kW": (1e3, "kw kilowatt"), "hp": (745.699872, "horsepower")},
    "frequency": {"Hz": (1.0, "hz hertz"), "kHz": (1e3, "khz"), "GHz": (1e9, "ghz")},
    "pressure": {
        "Pa": (1.0, "pa pascal"),
        "kPa": (1e3, "kpa kilopascal"),
        "bar": (1e5, ""),
        "atm": (101325.0, "atmosphere"),
        "psi": (6894.757293168, ""),
    },
}
_TEMPERATURES = {
    "K": (1.0, 0.0, "k kelvin"),
    "°C": (1.0, 273.15, "c celsius degrees-celsius degree-celsius degrees-c deg-c centigrade"),
    "°F": (
        5 / 9,
        273.15 - 32 * 5 / 9,
        "f fahrenheit degrees-fahrenheit degree-fahrenheit degrees-f deg-f",
    ),
}


def _by_name() -> dict[str, Unit]:
    units = {}
    for dimension, signs in _TABLE.items():
        for sign, (factor, names) in signs.items():
            unit = Unit(sign, dimension, factor)
            for name in (sign.lower(), *(name.replace("-", " ") for name in names.split())):
                units.setdefault(name, unit)
                units.setdefault(f"{name}s", unit)
    for sign, (factor, offset, names) in _TEMPERATURES.items():
        unit = Unit(sign, "temperature", factor, offset)
        for name in (sign.lower(), *(name.replace("-", " ") for name in names.split())):
            units.setdefault(name, unit)
    return units


#: Units by every name they go by, in lower case.
BY_NAME = _by_name()


def find(name: str) -> Unit | None:
    """The unit of a sign or name, whatever its case, or None."""
    key = " ".join(name.lower().replace("-", " ").replace("μ", "µ").split()).rstrip(".")
    return BY_NAME.get(key.replace("° ", "°").replace("º", "°"))
