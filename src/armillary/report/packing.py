"""Charts in fewer words, so that a page with dozens of them stays small.

The page's script (``spelled`` and ``unpacked`` in ``report.js``) does the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def packed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A Vega-Lite specification whose data and repeated lists of names are said once.

    Returns:
        ``columns``: the fields of the data; ``levels``: the names that a column of names takes;
        ``rows``: the data, a name as its place in ``levels``; ``spec``: the rest, where a list
        that equals a column's levels is ``{"level": column}``.
    """
    values = spec["data"]["values"]
    columns = list(values[0]) if values else []
    series = spec["encoding"].get("color", {}).get("scale", {}).get("domain", [])
    levels: dict[str, list[str]] = {}
    for column in columns:
        found = [value[column] for value in values]
        if all(isinstance(name, str) for name in found):
            levels[column] = list(dict.fromkeys([*series, *found] if column == "who" else found))
    places = {column: {name: i for i, name in enumerate(levels[column])} for column in levels}
    rows = [[places[c][value[c]] if c in places else value[c] for c in columns] for value in values]
    rest = {key: value for key, value in spec.items() if key != "data"}
    return {"columns": columns, "levels": levels, "rows": rows, "spec": _shortened(rest, levels)}


def _shortened(value: Any, levels: Mapping[str, list[str]]) -> Any:
    """A specification whose lists of names are references to columns' levels."""
    if isinstance(value, Mapping):
        return {key: _shortened(item, levels) for key, item in value.items()}
    if isinstance(value, list):
        for column, names in levels.items():
            if value == names and len(names) > 1:
                return {"level": column}
        return [_shortened(item, levels) for item in value]
    return value
