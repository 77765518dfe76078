"""``armillary tango``: train on a graph that stands in files, predict, and trace the energy."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import require

if TYPE_CHECKING:
    from armillary.graph.tango.files import Columns, Dataset

#: Whole numbers are taken for classes if there are at most so many different ones, each on so many
#: labelled rows on average.
CLASSES, ROWS_A_CLASS = 20, 2

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

GraphFile = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH",
        help="A .csv of edges (source, target, weight), .graphml, .npz (x, edge_index, y, batch) "
        "or a PyG .pt.",
    ),
]
Nodes = Annotated[Path | None, typer.Option(help="The table of nodes, for a .csv of edges.")]
Model = Annotated[Path, typer.Argument(help="A model that `train` wrote.")]


@app.callback()
def root() -> None:
    """Learn from graphs with features that travel far, and see what the energy does.

    Example: armillary tango train edges.csv --nodes nodes.csv --target label -o model.safetensors
    """


@app.command()
def train(
    graph: GraphFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="The model (.safetensors).")],
    nodes: Nodes = None,
    target: Annotated[str, typer.Option(help="Column or attribute that is learnt.")] = "",
    task: Annotated[
        str, typer.Option(help="node (a target a node, of one graph or many) or graph.")
    ] = "node",
    kind: Annotated[
        str,
        typer.Option(help="What targets are: classes or numbers; empty: seen from the column."),
    ] = "",
    node_id: Annotated[str, typer.Option("--id", help="Column of node names.")] = "id",
    graph_column: Annotated[str, typer.Option(help="Column of each node's graph.")] = "",
    features: Annotated[
        str, typer.Option(help="Numeric columns, by commas; default: all that are left.")
    ] = "",
    directed: Annotated[bool, typer.Option("--directed", help="Edges go one way.")] = False,
    layers: Annotated[int, typer.Option(min=1, help="Steps of the flow.")] = 8,
    hidden: Annotated[int, typer.Option(min=1, help="Channels.")] = 32,
    epochs: Annotated[int, typer.Option(min=1)] = 100,
    lr: Annotated[float, typer.Option(help="Learning rate at the start.")] = 5e-3,
    dropout: Annotated[float, typer.Option(min=0, max=0.95)] = 0.0,
    backbone: Annotated[str, typer.Option(help="gcn, gin, gatv2, gated or gps.")] = "gcn",
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Learn classes or values of nodes, or of whole graphs.

    Nodes whose target is empty are predicted, and take part in the flow while training. Text and
    booleans are classes, decimals are numbers; whole numbers (with gaps, too) are classes where at
    most 20 different ones stand on two rows each on average. --kind says otherwise.

    Example: armillary tango train edges.csv --nodes nodes.csv --target label -o model.safetensors
    """
    _need_extra()
    from armillary.graph.tango.estimator import SklearnTango
    from armillary.graph.tango.files import Columns
    from armillary.graph.tango.storage import save_model

    _check_target(out, ".safetensors")
    if task not in ("node", "graph"):
        raise ValueError(f"--task {task!r}: it must be node or graph")
    if kind not in ("", "classes", "numbers"):
        raise ValueError(f"--kind {kind!r}: it must be classes or numbers")
    chosen = tuple(part.strip() for part in features.split(",") if part.strip())
    columns = Columns(node_id, graph_column, target, chosen, directed, task)
    data = _read(graph, nodes, columns)
    if data.blanks:
        output.console().note(
            f"{task}s whose {target} reads {' or '.join(data.blanks)} are taken for unlabelled; if "
            "that is a class, write another word for it"
        )
    y, known, what = _labels(data, task, target, kind)
    model = SklearnTango(
        hidden, layers, epochs=epochs, lr=lr, dropout=dropout, backbone=backbone, random_state=seed
    )

    def bar(numbers: range) -> Any:
        return output.progress(numbers, "epochs", total=len(numbers))

    if task == "node":
        model.fit(data.graph, y, known, bar)
    else:
        kept = [g for g, k in zip(data.graphs, known, strict=True) if k]
        model.fit(kept, y[known], epochs=bar)
    note = {
        "node": node_id, "graph": graph_column, "target": target, "features": data.features,
        "directed": directed,
    }  # fmt: skip
    save_model(model, out, note)
    output.console().print(
        f"{int(known.sum())} labelled {task}s, {what}, {len(data.features)} features, "
        f"{model.n_epochs_} epochs -> {out}"
    )


@app.command()
def predict(
    model: Model,
    graph: GraphFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="Predictions (.csv or .json).")],
    nodes: Nodes = None,
) -> None:
    """Predict every node, or every graph, by the task that the model was trained for.

    Example: armillary tango predict model.safetensors edges.csv --nodes nodes.csv -o predicted.csv
    """
    _need_extra()
    from armillary.graph.tango.storage import load_model

    _check_target(out, ".csv", ".json")
    estimator, note = load_model(model)
    data = _matching(graph, nodes, note)
    if estimator.task_ == "node":
        names, found = data.nodes, estimator.predict(data.graph)
    else:
        graphs = data.graphs
        names = data.names or [str(i) for i in range(len(graphs))]
        found = estimator.predict(graphs)
    rows = [[name, value] for name, value in zip(names, found.tolist(), strict=True)]
    if out.suffix.lower() == ".csv":
        output.write_csv(out, [estimator.task_, "predicted"], rows)
    else:
        output.write_json(out, [{estimator.task_: name, "predicted": v} for name, v in rows])
    output.console().print(f"{len(rows)} {estimator.task_}s predicted -> {out}")


@app.command()
def trace(
    model: Model,
    graph: GraphFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="The trace (.csv or .json).")],
    nodes: Nodes = None,
    chart: Annotated[
        Path | None, typer.Option(help="Energy by step (.svg, .png, .html or .json).")
    ] = None,
) -> None:
    """What the energy does along the flow: V, ‖∇V‖, ‖T‖ and their cosine, step by step and graph
    by graph.

    Example: armillary tango trace model.safetensors edges.csv --nodes nodes.csv -o trace.csv
    """
    _need_extra()
    from armillary.graph.tango.storage import load_model

    _check_target(out, ".csv", ".json")
    if chart is not None:
        _check_target(chart, ".svg", ".png", ".html", ".json")
    estimator, note = load_model(model)
    data = _matching(graph, nodes, note)
    found = estimator.trace(data.graph)
    names = ["step", "graph", "energy", "change", "rising", "grad_norm", "tangent_norm", "cosine"]
    rows: list[list[Any]] = []
    steps, graphs = found.change.shape
    for i in range(steps):
        for g in range(graphs):
            columns = (
                found.change,
                found.rising,
                found.grad_norm,
                found.tangent_norm,
                found.cosine,
            )
            rows.append([i, g, found.energy[i, g].item(), *(c[i, g].item() for c in columns)])
    rows += [[steps, g, found.energy[-1, g].item(), *[None] * 5] for g in range(graphs)]
    if out.suffix.lower() == ".csv":
        output.write_csv(out, names, rows)
    else:
        output.write_json(out, [dict(zip(names, row, strict=True)) for row in rows])
    if chart is not None:
        output.save_chart(_chart(rows), chart)
    output.console().print(
        f"{steps} steps of {graphs} graphs: energy {float(found.energy[0].sum()):.6g} -> "
        f"{float(found.energy[-1].sum()):.6g}, rising steps {int(found.rising.sum())}, largest "
        f"|cosine| {float(found.cosine.abs().max()):.1e} -> {out}"
    )
    lost = int((~found.energy.isfinite()).any(0).sum())
    if lost:
        output.console().note(
            f"warning: the energies of {lost} of {graphs} graphs are not finite: their features "
            "lie far outside of those that were learnt from, and nothing can be told of their steps"
        )


def _chart(rows: list[list[Any]]) -> dict[str, Any]:
    values = [{"step": row[0], "graph": str(row[1]), "energy": row[2]} for row in rows]
    return {
        "data": {"values": values},
        "mark": {"type": "line", "opacity": 0.6},
        "encoding": {
            "x": {"field": "step", "type": "quantitative", "title": "step"},
            "y": {"field": "energy", "type": "quantitative", "title": "energy V",
                  "scale": {"zero": False}},
            "detail": {"field": "graph"},
        },
    }  # fmt: skip


def _need_extra() -> None:
    for module in ("torch", "sklearn", "pandas", "safetensors"):
        require(module, what="tango", extra="graph")


def _labels(data: Dataset, task: str, target: str, kind: str) -> tuple[Any, Any, str]:
    """Targets, which of them are known, and what they are taken for."""
    import numpy as np
    import pandas as pd

    if data.targets is None:
        hint = "name the column with --target" if not target else f"--target {target!r} has none"
        raise ValueError(f"there is nothing to learn: {hint}, or give a file that holds y")
    graphs = len(data.graphs) if task == "graph" else 0
    rows = graphs if task == "graph" else len(data.nodes)
    if len(data.targets) != rows:
        raise ValueError(
            f"--task {task}: there are {rows} {task}s and {len(data.targets)} targets; "
            "--task graph needs --graph-column, a batch in the file, or a list of graphs"
        )
    known = ~np.asarray(pd.isna(pd.DataFrame(data.targets))).any(axis=1)
    if not known.any():
        raise ValueError(f"no {task} has a target: there is nothing to learn from")
    y, what = targets_as(data.targets, known, kind)
    if y.dtype.kind != "f" and len(np.unique(y[known])) == 1:
        raise ValueError(
            f"every labelled {task} is of the class {str(y[known][0])!r}: nothing tells classes "
            "apart, two are needed at least"
        )
    return y, known, what


def targets_as(y: Any, known: Any, kind: str) -> tuple[Any, str]:
    """Targets as classes (integers, text) or as numbers (floats), and a word on why.

    Args:
        y: (rows,) or (rows, targets) as a file holds them.
        known: (rows,) booleans.
        kind: ``classes``, ``numbers``, or empty: text and booleans are classes, decimals numbers,
            whole numbers classes if at most ``CLASSES`` different ones stand on ``ROWS_A_CLASS``
            rows each on average.

    Raises:
        ValueError: the targets cannot be what ``kind`` says.
    """
    import numpy as np

    text = y.dtype.kind not in "iufb"
    whole = y.dtype.kind in "iub"
    if y.dtype.kind == "f" and not known.all():  # gaps turn whole numbers into floats
        whole = bool(np.isfinite(y[known]).all() and (y[known] == np.round(y[known])).all())
    different = len(np.unique(y[known].astype(str) if text else y[known]))
    few = different <= CLASSES and different * ROWS_A_CLASS <= int(known.sum())
    seems = "classes" if text or y.dtype.kind == "b" or (whole and few) else "numbers"
    chosen, why = kind or seems, f"--kind {kind}"
    if not kind:
        why = "text" if text else "booleans" if y.dtype.kind == "b" else "decimals"
        if whole and y.dtype.kind != "b":
            other = "numbers" if seems == "classes" else "classes"
            why = f"{different} different whole numbers; --kind {other} takes them otherwise"
    if chosen == "numbers":
        return _as_numbers(y, known), f"values ({why})"
    if y.ndim > 1:
        raise ValueError(f"--kind classes: targets have {y.shape[1]} columns, classes need one")
    if whole:
        found = np.where(known, y, 0).astype(y.dtype if y.dtype.kind in "iub" else np.int64)
    else:
        found = np.array([str(v) if k else "" for v, k in zip(y, known, strict=True)])
    return found, f"{different} classes ({why})"


def _as_numbers(y: Any, known: Any) -> Any:
    """Targets as floats, NaN where unknown."""
    import numpy as np

    found = np.full(y.shape, np.nan)
    for row in np.flatnonzero(known):
        try:
            found[row] = y[row].astype(float) if y.ndim > 1 else float(y[row])
        except (TypeError, ValueError):
            raise ValueError(
                f"--kind numbers: the target {str(y[row])!r} in row {row} (counted from 0) is no "
                "number"
            ) from None
    return found


def _read(graph: Path, nodes: Path | None, columns: Columns) -> Dataset:
    """A dataset from files; what is broken in them is told with their name."""
    import zipfile

    from armillary.graph.tango.files import read

    name = graph.name if nodes is None else f"{graph.name} or {nodes.name}"
    try:
        return read(graph, nodes, columns)
    except (EOFError, zipfile.BadZipFile, IndexError, KeyError, UnicodeError) as error:
        raise ValueError(
            f"{name}: the file is empty, cut off or not of its kind ({type(error).__name__}): "
            "write it anew"
        ) from None
    except ValueError as error:
        if "allow_pickle" in str(error) or "pickled" in str(error):
            raise ValueError(
                f"{name}: it holds pickled objects, which are not read: save plain numbers"
            ) from None
        if name.split(" ")[0] in str(error):
            raise
        raise ValueError(f"{name}: {error}") from None


def _matching(graph: Path, nodes: Path | None, note: dict[str, Any]) -> Dataset:
    """A dataset with the features that the model was trained on."""
    data = _read(graph, nodes, _columns(graph, note))
    if data.features != note["features"]:
        raise ValueError(
            f"{graph.name} gives the features {', '.join(data.features[:12])}; the model was "
            f"trained on {', '.join(note['features'][:12])}: give the same"
        )
    return data


def _columns(graph: Path, note: dict[str, Any]) -> Columns:
    from armillary.graph.tango.files import Columns

    tabular = graph.suffix.lower() in (".csv", ".graphml")
    features = tuple(note["features"]) if tabular else ()
    return Columns(note["node"], note["graph"], "", features, note["directed"])


def _check_target(path: Path, *suffixes: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{str(path)!r}: the name must end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{str(path)!r}: there is no such folder, make it first")
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: give the name of a file")
    try:  # permissions alone do not tell: a folder may belong to the system
        tempfile.TemporaryFile(dir=path.absolute().parent).close()
    except OSError as error:
        raise PermissionError(
            f"-o {str(path)!r}: its folder cannot be written ({error.strerror})"
        ) from None
