"""Predictions in a user's table: which columns hold them, and how they are read and written."""

from __future__ import annotations

import dataclasses
import fnmatch
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from armillary.output import atomic_path
from armillary.uncertainty.recalibration.distributions import (
    Predictive,
    Quantiles,
    WeightedSamples,
    normal,
)

FORMS = "samples:s_*, normal:MEAN,STD or quantiles:q05,q50,… (or quantiles:0.05=low,0.5=mid,…)"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a table holds predictive distributions.

    Attributes:
        kind: ``samples``, ``normal`` or ``quantiles``.
        columns: patterns (samples) or names of columns.
        levels: of quantiles.
    """

    kind: str
    columns: tuple[str, ...]
    levels: tuple[float, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Layout:
        """Read ``--dist``.

        Raises:
            ValueError: it is none of the accepted forms.
        """
        kind, _, rest = text.partition(":")
        columns = tuple(part.strip() for part in rest.split(",") if part.strip())
        if kind not in ("samples", "normal", "quantiles") or not columns:
            raise ValueError(f"--dist {text!r}: give {FORMS}")
        if len(set(columns)) < len(columns):
            raise ValueError(f"--dist {text!r}: a column is named twice; give each once")
        if kind == "normal" and len(columns) != 2:
            raise ValueError(f"--dist {text!r}: normal takes two columns, normal:MEAN,STD")
        if kind != "quantiles":
            return cls(kind, columns)
        named = [_level_of(column) for column in columns]
        for part, what in ((0, "level"), (1, "column")):
            given = [pair[part] for pair in named]
            if len(set(given)) < len(given):
                raise ValueError(f"--dist {text!r}: a {what} is named twice; give each once")
        order = np.argsort([level for level, _ in named], kind="stable")
        return cls(
            kind,
            tuple(named[i][1] for i in order),
            tuple(named[i][0] for i in order),
        )

    def __str__(self) -> str:
        if self.kind == "quantiles":
            pairs = zip(self.levels, self.columns, strict=True)
            return "quantiles:" + ",".join(f"{level:g}={name}" for level, name in pairs)
        return f"{self.kind}:{','.join(self.columns)}"

    def names(self, frame: pd.DataFrame) -> list[str]:
        """The columns of a table that hold the predictions.

        Raises:
            ValueError: one is missing.
        """
        found: list[str] = []
        for pattern in self.columns:
            matched = [
                str(c)
                for c in frame.columns
                if str(c) == pattern
                or (self.kind == "samples" and fnmatch.fnmatchcase(str(c), pattern))
            ]
            if not matched:
                raise ValueError(
                    f"--dist {self}: no column matches {pattern!r}; the table has "
                    f"{', '.join(map(str, frame.columns[:12]))}"
                )
            found += [name for name in matched if name not in found]
        if self.kind == "samples" and len(found) < 2:
            raise ValueError(f"--dist {self}: samples need at least two columns, found {found}")
        return found

    def numbers(self, frame: pd.DataFrame) -> NDArray[np.float64]:
        """(n, columns) values, NaN where a cell holds no number."""
        part = frame[self.names(frame)].apply(pd.to_numeric, errors="coerce")
        return part.to_numpy(dtype=float)

    def predictive(self, numbers: NDArray[np.float64]) -> Predictive:
        """The distributions of rows of `numbers`."""
        if self.kind == "normal":
            return normal(numbers[:, 0], numbers[:, 1])
        if self.kind == "quantiles":
            return Quantiles(self.levels, numbers)
        return WeightedSamples(numbers)

    def usable(self, numbers: NDArray[np.float64]) -> NDArray[np.bool_]:
        """(n,) whether a row describes a distribution."""
        fine = np.isfinite(numbers)
        if self.kind == "normal":
            fine[:, 1] &= numbers[:, 1] > 0
        return fine.sum(axis=1) == fine.shape[1]


def _level_of(column: str) -> tuple[float, str]:
    """``0.05=low`` or a name that ends in its level: ``q05``, ``q0.05``, ``p975``."""
    explicit, equals, name = column.partition("=")
    if equals:
        try:
            level = float(explicit)
        except ValueError:
            raise ValueError(f"--dist: {column!r} is not LEVEL=COLUMN") from None
    else:
        name = column
        found = re.search(r"(\d*\.\d+|\d{2,})$", column)
        if found is None:
            raise ValueError(
                f"--dist: cannot read a level from {column!r}; write it as LEVEL=COLUMN, "
                "such as 0.05=low"
            )
        digits = found.group(1)
        level = float(digits) if "." in digits else float(f"0.{digits}")
    if not 0 < level < 1:
        raise ValueError(f"--dist: level {level:g} of {column!r} must lie between 0 and 1")
    return level, name


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A CSV or Parquet file, by its suffix.

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix, or not readable as what the suffix says.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: give a .csv or .parquet file")
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file {str(path)!r}")
    if not Path(path).stat().st_size:
        raise ValueError(f"{str(path)!r} is empty: give a table with a header and rows")
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".csv":
            return pd.read_csv(path, dtype=object, keep_default_na=False, encoding="utf-8-sig")
        if suffix in (".parquet", ".pq"):
            return pd.read_parquet(path)
    except ValueError as error:  # pandas' and pyarrow's parse errors are ValueErrors
        raise ValueError(f"{str(path)!r} cannot be read as {suffix}: {error}") from error
    raise ValueError(f"{str(path)!r}: give a .csv or .parquet file, not {suffix!r}")


def write_table(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Write a CSV or Parquet file, by its suffix, whole or not at all."""
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise ValueError(f"{str(path)!r}: give a .csv or .parquet file, not {suffix!r}")
    with atomic_path(path) as temporary:
        if suffix == ".csv":
            frame.to_csv(temporary, index=False)
        else:
            frame.to_parquet(temporary, index=False)
    return Path(path)
