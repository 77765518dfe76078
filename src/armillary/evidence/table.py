"""An experiment's finished cells as arrays, ready to be pooled and resampled by unit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from armillary.evidence.shapes import Case, Row, Unit


@dataclasses.dataclass(frozen=True)
class Table:
    """One line a (case, seed) cell; repeats are already reduced to their median.

    Attributes:
        case: (C,) index into ``cases``.
        seed: (C,) seeds.
        unit: (C,) label of the independent unit; cells of one label are averaged together.
        cases: the cases by index.
        values: ``values[contender][metric]`` is (C,), NaN where the cell has no finished value.
    """

    case: NDArray[np.intp]
    seed: NDArray[np.int64]
    unit: NDArray[np.intp]
    cases: tuple[Case, ...]
    values: Mapping[str, Mapping[str, NDArray[np.float64]]]

    @classmethod
    def from_rows(cls, rows: Sequence[Row], cases: Sequence[Case], unit: Unit) -> Table:
        """Arrange rows of one experiment; only rows whose status is ``ok`` give values."""
        index = {case.name: i for i, case in enumerate(cases)}
        cells = sorted({(index[r.case], r.seed) for r in rows if r.case in index})
        position = {cell: i for i, cell in enumerate(cells)}
        repeats: dict[tuple[str, str, int], list[float]] = {}
        for row in rows:
            if row.status != "ok" or row.case not in index:
                continue
            at = position[index[row.case], row.seed]
            for metric, value in row.metrics.items():
                repeats.setdefault((row.contender, metric, at), []).append(value)
        values: dict[str, dict[str, NDArray[np.float64]]] = {}
        for (contender, metric, at), found in repeats.items():
            column = values.setdefault(contender, {}).setdefault(
                metric, np.full(len(cells), np.nan)
            )
            column[at] = float(np.median(found))
        case = np.array([c for c, _ in cells], dtype=np.intp)
        seed = np.array([s for _, s in cells], dtype=np.int64)
        label = case if unit == "case" else seed
        _, unit_index = np.unique(label, return_inverse=True)
        return cls(case, seed, unit_index.astype(np.intp), tuple(cases), values)

    def __len__(self) -> int:
        return len(self.case)

    @property
    def n_units(self) -> int:
        return len(np.unique(self.unit))

    def value(self, metric: str, contender: str = "ours") -> NDArray[np.float64]:
        """(C,) the metric of a contender, NaN where it has none."""
        column = self.values.get(contender, {}).get(metric)
        return np.full(len(self), np.nan) if column is None else column

    def x(self, covariate: str) -> NDArray[np.float64]:
        """(C,) a covariate of each cell's case, NaN where the case has none."""
        return np.array([self.cases[i].x.get(covariate, np.nan) for i in self.case])

    def pick(self, cells: NDArray) -> Table:
        """The table of some cells (a boolean mask or indices)."""
        values = {
            who: {metric: column[cells] for metric, column in metrics.items()}
            for who, metrics in self.values.items()
        }
        return dataclasses.replace(
            self,
            case=self.case[cells],
            seed=self.seed[cells],
            unit=self.unit[cells],
            values=values,
        )

    def where(self, keep: Callable[[Case], bool] | None) -> Table:
        """The cells whose case satisfies ``keep`` (all, if None)."""
        if keep is None:
            return self
        kept = np.array([keep(self.cases[i]) for i in self.case], dtype=bool)
        return self.pick(kept)

    def finished(self, metric: str, contenders: Sequence[str]) -> Table:
        """The cells in which every one of the contenders has a value of the metric."""
        ok = np.ones(len(self), dtype=bool)
        for who in contenders:
            ok &= np.isfinite(self.value(metric, who))
        return self.pick(ok)

    def resample(self, units: NDArray[np.intp]) -> Table:
        """The cells of the given units; a unit drawn twice counts as two."""
        cells = [np.flatnonzero(self.unit == u) for u in units]
        picked = self.pick(np.concatenate(cells) if cells else np.empty(0, dtype=np.intp))
        fresh = np.repeat(np.arange(len(units)), [len(c) for c in cells]).astype(np.intp)
        return dataclasses.replace(picked, unit=fresh)
