"""``armillary recalibration``: recalibrate predictions that stand in a CSV or Parquet table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from armillary import output
from armillary.errors import ExitCode, require

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from armillary.uncertainty.recalibration.tabular import Layout

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Table = Annotated[Path, typer.Argument(help="A .csv or .parquet table.")]
Outcome = Annotated[str, typer.Option("--y", help="The column of outcomes.")]
Dist = Annotated[
    str,
    typer.Option(
        help="Columns that hold the predictions: samples:s_*, normal:MEAN,STD or "
        "quantiles:q05,q50,q95 (or quantiles:0.05=low,...)."
    ),
]
Skip = Annotated[
    bool,
    typer.Option("--skip-bad-rows", help="Leave out rows without usable numbers; exit code 3."),
]


@app.callback()
def root() -> None:
    """Make predictive distributions trustworthy, from a held-out table of predictions and outcomes.

    Example: armillary recalibration fit cal.csv --y wage --dist normal:mu,sigma -o model.npz
    """


@app.command()
def fit(
    table: Table,
    y: Outcome,
    dist: Dist,
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the model goes (.npz).")],
    anchor: Annotated[str, typer.Option(help="auto, y or residual.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds.")] = 0,
    skip_bad_rows: Skip = False,
) -> None:
    """Learn a recalibration from rows that the base model has not seen.

    Example: armillary recalibration fit cal.csv --y wage --dist normal:mu,sigma -o model.npz
    """
    _need_extra()
    from armillary.uncertainty.recalibration import storage
    from armillary.uncertainty.recalibration.estimator import KernelRecalibrator
    from armillary.uncertainty.recalibration.tabular import Layout, read_table

    layout = Layout.parse(dist)
    _check_target(out, "-o", ".npz")
    numbers, outcomes, kept = _pairs(read_table(table), y, layout, skip_bad_rows)
    model = KernelRecalibrator(anchor=anchor, random_state=seed)
    model.fit(layout.predictive(numbers), outcomes)
    storage.save(model, out, note={"dist": str(layout), "y": y})
    output.console().print(
        f"{len(outcomes)} rows, anchor {model.anchor_}, ridge {model.lam_:.2g} -> {out}"
    )
    _exit(skipped=len(kept) - int(kept.sum()))


@app.command()
def apply(
    model: Annotated[Path, typer.Argument(help="A model that `fit` wrote.")],
    table: Table,
    out: Annotated[Path, typer.Option("-o", "--out", help="A .csv or .parquet table.")],
    quantiles: Annotated[str, typer.Option(help="Levels, separated by commas.")] = ".05,.5,.95",
    dist: Annotated[
        str | None, typer.Option(help="As for fit, if the columns have other names.")
    ] = None,
    skip_bad_rows: Skip = False,
) -> None:
    """Recalibrate a table: its rows and columns, in their order, and new columns beside them.

    The new columns are recal_mean, one recal_qLEVEL a level, and extrapolated (1 where a prediction
    is unlike all calibration rows).

    Example: armillary recalibration apply model.npz test.csv -o out.csv --quantiles .05,.5,.95
    """
    _need_extra()
    import numpy as np

    from armillary.uncertainty.recalibration import storage
    from armillary.uncertainty.recalibration.tabular import Layout, read_table, write_table

    recalibrator = storage.load(model)
    note = storage.read_note(model)
    layout = Layout.parse(dist or note.get("dist", ""))
    levels = _levels(quantiles)
    _check_target(out, "-o", ".csv", ".parquet", ".pq")
    frame = read_table(table)
    _refuse_outcome(layout, frame, note.get("y", ""), "the outcome that the model was fitted to")
    numbers = layout.numbers(frame)
    kept = _usable(layout, numbers, layout.usable(numbers), skip_bad_rows)
    columns = {"recal_mean": np.full(len(frame), np.nan)}
    columns |= {f"recal_q{level:g}": np.full(len(frame), np.nan) for level in levels}
    columns["extrapolated"] = np.full(len(frame), np.nan)
    _refuse_existing(frame, list(columns))
    if kept.any():
        blocks = [
            np.column_stack([law.mean(), law.quantile(levels), far])
            for law, far in recalibrator.blocks(layout.predictive(numbers[kept]))
        ]
        found = np.concatenate(blocks).T
        for column, values in zip(columns.values(), found, strict=True):
            column[kept] = values
    far = int(np.nansum(columns["extrapolated"]))
    write_table(_with_columns(frame, columns), out)
    output.console().print(f"{int(kept.sum())} of {len(frame)} rows recalibrated -> {out}")
    if far:
        output.console().note(f"{far} rows are unlike all calibration rows: see `extrapolated`")
    _exit(skipped=len(kept) - int(kept.sum()))


@app.command()
def check(
    table: Table,
    y: Outcome,
    dist: Annotated[str | None, typer.Option(help="As for fit; default: the model's.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Also show the predictions as this model recalibrates them.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write the report (.html or .json).")
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Write the chart (.svg, .png, .html or .json).")
    ] = None,
    skip_bad_rows: Skip = False,
) -> None:
    """Are these predictions calibrated? Tests, coverage and a chart; nothing is changed.

    Give held-out rows: with --model, rows that the model was not fitted on.

    Example: armillary recalibration check test.csv --y wage --dist normal:mu,sigma --chart c.svg
    """
    _need_extra()
    from armillary.uncertainty.recalibration import storage
    from armillary.uncertainty.recalibration.reporting import Report, diagnose
    from armillary.uncertainty.recalibration.tabular import Layout, read_table

    _check_target(out, "-o", ".html", ".json")
    _check_target(chart, "--chart", ".svg", ".png", ".html", ".json")
    if dist is None and model is None:
        raise ValueError("check needs --dist (or --model, which remembers it)")
    recalibrator = None if model is None else storage.load(model)
    text = dist if dist is not None else storage.read_note(model or "").get("dist", "")
    layout = Layout.parse(text)
    numbers, outcomes, kept = _pairs(read_table(table), y, layout, skip_bad_rows)
    p = layout.predictive(numbers)
    diagnoses = {"before": diagnose(p, outcomes)}
    if recalibrator is not None:
        diagnoses["after"] = diagnose(recalibrator.predict(p), outcomes)
    report = Report(diagnoses)
    names = list(diagnoses)
    output.console().table(
        ["figure", *names], [[label, *(row[n] for n in names)] for label, row in report.lines()]
    )
    if out is not None:
        report.write(out)
    if chart is not None:
        output.save_chart(report.chart(), chart)
    _exit(skipped=len(kept) - int(kept.sum()))


def _need_extra() -> None:
    for module in ("sklearn", "pandas"):
        require(module, what="recalibration", extra="uncertainty")


def _pairs(
    frame: pd.DataFrame, y: str, layout: Layout, skip: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """((k, columns) predictions, (k,) outcomes, (n,) which rows they are)."""
    import numpy as np
    import pandas as pd

    if y not in frame.columns:
        raise ValueError(
            f"--y {y!r}: no such column; the table has {', '.join(map(str, frame.columns[:12]))}"
        )
    _refuse_outcome(layout, frame, y, "that of --y")
    numbers = layout.numbers(frame)
    outcomes = np.asarray(pd.to_numeric(frame[y], errors="coerce"), dtype=float)
    usable = layout.usable(numbers) & np.isfinite(outcomes)
    kept = _usable(layout, np.column_stack([numbers, outcomes]), usable, skip)
    return numbers[kept], outcomes[kept], kept


def _refuse_outcome(layout: Layout, frame: pd.DataFrame, y: str, what: str) -> None:
    if y in layout.names(frame):
        raise ValueError(
            f"--dist {layout} takes in the column {y!r}, {what}: a prediction must not hold the "
            "outcome; name the columns of predictions alone"
        )


def _usable(
    layout: Layout, numbers: NDArray[np.float64], usable: NDArray[np.bool_], skip: bool
) -> NDArray[np.bool_]:
    """The rows to work on; without ``--skip-bad-rows`` all must be usable."""
    import numpy as np

    if skip or usable.all():
        return usable
    row = int(np.argmin(usable))
    what = "a standard deviation <= 0" if np.isfinite(numbers[row]).all() else "no finite number"
    raise ValueError(
        f"{int((~usable).sum())} of {len(usable)} rows cannot be used, first data row {row} "
        f"(counted from 0) with {what} in --dist {layout} or --y: mend them, or pass "
        "--skip-bad-rows"
    )


def _levels(text: str) -> list[float]:
    try:
        levels = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        levels = []
    if not levels or not all(0 < level < 1 for level in levels):
        raise ValueError(f"--quantiles {text!r}: give levels between 0 and 1, such as .05,.5,.95")
    if len({f"{level:g}" for level in levels}) < len(levels):  # as the columns are named
        raise ValueError(f"--quantiles {text!r}: a level is given twice; give each once")
    return levels


def _check_target(path: Path | None, option: str, *suffixes: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {str(path)!r}: the name must end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{option} {str(path)!r}: there is no such folder, make it first")


def _refuse_existing(frame: pd.DataFrame, names: list[str]) -> None:
    taken = [name for name in names if name in frame.columns]
    if taken:
        raise ValueError(f"the table already has the columns {', '.join(taken)}: rename them")


def _with_columns(frame: pd.DataFrame, columns: dict[str, NDArray[np.float64]]) -> pd.DataFrame:
    import pandas as pd

    flag = pd.array(columns.pop("extrapolated"), dtype="Int8")
    return frame.assign(**columns, extrapolated=flag)


def _exit(*, skipped: int) -> None:
    if skipped:
        output.console().note(f"{skipped} rows were skipped")
        raise typer.Exit(int(ExitCode.PARTIAL))
