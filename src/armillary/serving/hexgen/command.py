"""``armillary hexgen``: plan a fleet for a trace, and simulate what it serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import require

if TYPE_CHECKING:
    from armillary.serving.hexgen.catalog import Catalog
    from armillary.serving.hexgen.planner import Plan
    from armillary.serving.hexgen.simulator import SimResult
    from armillary.serving.hexgen.traces import Workload

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A plan that `plan` wrote (.json).")]
TraceFile = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE",
        help="t_s,input_tokens,output_tokens (.csv), Azure's (.csv) or Mooncake's (.jsonl).",
    ),
]
Gpus = Annotated[Path | None, typer.Option(help="GPUs and prices (.yaml); default: shipped.")]
Prices = Annotated[str, typer.Option(help="Price book: list, spot, paper, or one of --gpus.")]
Router = Annotated[str, typer.Option(help="least, round-robin or two.")]
Seed = Annotated[int, typer.Option(min=0)]


@app.callback()
def root() -> None:
    """Find the cheapest mix of GPUs for a language model's traffic, and see what it serves.

    Example: armillary hexgen plan --model config.json --trace trace.csv --slo 2s,50ms --budget 60
    """


@app.command()
def plan(
    model: Annotated[str, typer.Option(help="A config.json, or a name such as Qwen/Qwen3-32B.")],
    trace: Annotated[Path, typer.Option(help="The traffic; see `sim` for formats.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The plan (.json).")] = Path("plan.json"),
    slo: Annotated[
        str, typer.Option(help="p99 targets: first token, then each token.")
    ] = "2s,50ms",
    budget: Annotated[
        float | None, typer.Option(help="Most that an hour may cost: the plan carries the most.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests/s to carry at least cost; default: the trace's rate."),
    ] = None,
    gpus: Gpus = None,
    prices: Prices = "list",
    modes: Annotated[str, typer.Option(help="Of agg, pd, afd, by commas.")] = "agg,pd,afd",
    solver: Annotated[str, typer.Option(help="milp or anneal.")] = "milp",
    close: Annotated[
        bool, typer.Option(help="With a rate: check in the simulator, plan for the highest load.")
    ] = True,
    seconds: Annotated[float, typer.Option(help="Time limit of the solver.", min=0.01)] = 10.0,
    seed: Seed = 0,
) -> None:
    """The fleet of most throughput for a budget, or the cheapest one for a rate.

    Example: armillary hexgen plan --model config.json --gpus gpus.yaml --trace t.csv --slo 2s,50ms
    --budget 60
    """
    _need_extra()
    from armillary.serving.hexgen.closing import close_loop
    from armillary.serving.hexgen.planner import plan as make_plan
    from armillary.serving.hexgen.traces import Slo

    _check_target(out, ".json")
    if budget is not None and rate is not None:
        raise ValueError("--budget and --rate: give one of them")
    catalog, workload = _catalog(gpus, prices), _trace(trace)
    targets, kinds = Slo.parse(slo), tuple(m.strip() for m in modes.split(",") if m.strip())
    console = output.console()
    if budget is None and close and solver == "milp":
        wanted = rate if rate is not None else workload.rate
        closed = close_loop(model, catalog, workload, targets, rate=wanted, modes=kinds, seed=seed)
        found = closed.plan
        console.print(
            f"planned for a load of {closed.rho:.2f}: {closed.run.attainment():.2%} of the trace's "
            f"requests meet both targets at {wanted:.3g} requests/s"
        )
    else:
        found = make_plan(
            model, catalog, workload, targets, budget_per_hour=budget,
            rate=None if budget is not None else (rate or workload.rate), modes=kinds,
            solver=solver, time_limit=seconds, seed=seed,
        )  # fmt: skip
    found.save(out)
    _tell(found, catalog)
    console.print(f"-> {out}")


@app.command()
def sim(
    plan: PlanFile,
    trace: TraceFile,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Every request (.parquet or .csv).")
    ] = None,
    summary: Annotated[Path | None, typer.Option(help="The figures (.json).")] = None,
    rate: Annotated[
        float | None, typer.Option(help="Stretch the trace to so many requests/s.", min=1e-9)
    ] = None,
    router: Router = "least",
    chart: Annotated[
        Path | None, typer.Option(help="Time to first token by time (.svg, .png, .html).")
    ] = None,
    gpus: Gpus = None,
    prices: Prices = "list",
    seed: Seed = 0,
) -> None:
    """What a plan's fleet serves of a trace, request by request.

    Example: armillary hexgen sim plan.json trace.csv -o requests.parquet --summary summary.json
    """
    _need_extra()
    from armillary.serving.hexgen.planner import Plan
    from armillary.serving.hexgen.simulator import simulate

    for path, suffixes in (
        (out, (".parquet", ".csv")), (summary, (".json",)), (chart, (".svg", ".png", ".html"))
    ):  # fmt: skip
        if path is not None:
            _check_target(path, *suffixes)
    fleet = Plan.load(plan, _catalog(gpus, prices) if gpus is not None else None)
    workload = _trace(trace)
    if rate is not None:
        workload = workload.at_rate(rate)
    run = simulate(fleet, workload, router=router, seed=seed)
    figures = run.summary()
    output.console().print(fleet.describe())
    for name, value in figures.items():
        output.console().print(f"  {name:24s} {value:.6g}")
    if fleet.estimated:
        output.console().print(f"  no measurement, a roofline: {', '.join(fleet.estimated)}")
    if out is not None:
        _write_requests(run, out)
    if summary is not None:
        output.write_json(summary, {"plan": fleet.to_json(), "figures": figures})
    if chart is not None:
        output.save_chart(_chart(run), chart)


@app.command()
def autoscale(
    model: Annotated[str, typer.Option(help="A config.json, or a name such as Qwen/Qwen3-32B.")],
    trace: TraceFile,
    slo: Annotated[
        str, typer.Option(help="p99 targets: first token, then each token.")
    ] = "2s,50ms",
    policy: Annotated[
        str, typer.Option(help="transition-aware, hpa, proportional or static-peak.")
    ] = "transition-aware",
    yesterday: Annotated[
        Path | None, typer.Option(help="The trace of an earlier period (transition-aware).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Every request (.parquet or .csv).")
    ] = None,
    summary: Annotated[Path | None, typer.Option(help="The figures (.json).")] = None,
    gpus: Gpus = None,
    prices: Prices = "list",
    router: Router = "least",
    seed: Seed = 0,
) -> None:
    """What a fleet that follows the trace would serve and cost, in the simulator.

    Example: armillary hexgen autoscale trace.csv --model Qwen/Qwen3-30B-A3B --prices paper
    """
    _need_extra()
    from armillary.serving.hexgen import autoscaler as auto
    from armillary.serving.hexgen.model_shape import ModelShape
    from armillary.serving.hexgen.traces import Slo

    for path, suffixes in ((out, (".parquet", ".csv")), (summary, (".json",))):
        if path is not None:
            _check_target(path, *suffixes)
    workload, shape, targets = _trace(trace), ModelShape.load(model), Slo.parse(slo)
    catalog = _catalog(gpus, prices)
    if yesterday is not None and policy != "transition-aware":
        raise ValueError(f"--yesterday: --policy {policy} does not look at an earlier period")
    if policy == "transition-aware":
        earlier = None if yesterday is None else _trace(yesterday)
        chosen: auto.Policy = auto.TransitionAware(
            auto.Market(shape, catalog, targets), earlier=earlier
        )
    elif policy == "hpa":
        chosen = auto.HpaLike(auto.Market(shape, catalog, targets, ("agg",)))
    elif policy == "proportional":
        chosen = auto.Proportional(auto.Market(shape, catalog, targets, ("pd",)))
    elif policy == "static-peak":
        peak = auto.peak_rate(workload)
        chosen = auto.StaticPeak(auto.Market(shape, catalog, targets), peak, workload)
    else:
        raise ValueError(
            f"--policy {policy!r}: it must be transition-aware, hpa, proportional or static-peak"
        )
    run = auto.autoscale(workload, chosen, shape, targets, router=router, seed=seed)
    figures = {**run.summary(), "changes": run.changes, "replicas_in_all": run.replicas}
    for name, value in figures.items():
        output.console().print(f"  {name:24s} {value:.6g}")
    if out is not None:
        _write_requests(run, out)
    if summary is not None:
        output.write_json(summary, {"policy": policy, "figures": figures})


@app.command()
def deploy(
    plan: PlanFile,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="A script (.sh), or Ray's configuration (.json).")
    ],
    target: Annotated[str, typer.Option(help="vllm-cmd or ray.")] = "vllm-cmd",
    model: Annotated[str | None, typer.Option(help="What the engine loads.")] = None,
    first_port: Annotated[int, typer.Option(min=1, max=65000)] = 8100,
) -> None:
    """Write what starts a plan's replicas: vLLM commands, or a configuration for `serve deploy`.

    Example: armillary hexgen deploy plan.json --target vllm-cmd -o start.sh
    """
    _need_extra()
    import shlex

    from armillary.serving.hexgen.planner import Plan

    if target not in ("vllm-cmd", "ray"):
        raise ValueError(f"--target {target!r}: it must be vllm-cmd or ray")
    _check_target(out, ".sh" if target == "vllm-cmd" else ".json")
    fleet = Plan.load(plan)
    if target == "ray":
        output.write_json(out, fleet.to_ray_serve(model=model))
    else:
        lines = [
            " ".join([*(f"{k}={v}" for k, v in b.env.items()), shlex.join(b.argv)]) + " &"
            for b in fleet.to_vllm(model=model, first_port=first_port)
        ]
        output.write_text(out, "\n".join(["#!/bin/sh", *lines, "wait", ""]))
    output.console().print(f"{sum(fleet.counts)} replicas -> {out}")


def _tell(found: Plan, catalog: Catalog) -> None:
    console = output.console()
    console.print(found.describe())
    bound = "" if found.gap != found.gap else f", proven within {found.gap:.2%} of the best"
    late = " (the solver ran out of time)" if found.timed_out else ""
    console.print(
        f"{found.price:.2f} {catalog.currency} an hour, {found.throughput:.3g} requests/s by the "
        f"planner's account{bound}{late}; stopped by: {', '.join(found.binding)}"
    )
    worth = {gpu: value for gpu, value in found.shadow.items() if value > 1e-9}
    if worth:
        text = ", ".join(f"{gpu} {value:.3g}" for gpu, value in sorted(worth.items()))
        console.print(f"one more GPU would be worth: {text}")
    if found.estimated:
        console.print(f"no measurement, a roofline: {', '.join(found.estimated)}")


def _write_requests(run: SimResult, out: Path) -> None:
    import io

    table = run.table()
    if out.suffix.lower() == ".csv":
        output.write_csv(out, list(table.columns), table.to_numpy().tolist())
        return
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    output.write_bytes(out, buffer.getvalue())


def _chart(run: SimResult) -> dict[str, Any]:
    """Quantiles of the time to first token over a hundred stretches of the trace."""
    import numpy as np

    values = []
    for part in np.array_split(np.arange(len(run.t)), min(100, len(run.t))):
        for q in (0.5, 0.99):
            value = float(np.quantile(run.ttft[part], q))
            if np.isfinite(value):
                values.append(
                    {"t": float(run.t[part[0]]), "ttft": value, "quantile": f"p{100 * q:g}"}
                )
    return {
        "data": {"values": values},
        "mark": "line",
        "encoding": {
            "x": {"field": "t", "type": "quantitative", "title": "time (s)"},
            "y": {"field": "ttft", "type": "quantitative", "title": "time to first token (s)"},
            "color": {"field": "quantile", "type": "nominal"},
        },
    }


def _need_extra() -> None:
    for module in ("pandas", "pyarrow", "yaml", "aiconfigurator_core"):
        require(module, what="hexgen", extra="serving")


def _catalog(gpus: Path | None, prices: str) -> Catalog:
    from armillary.serving.hexgen.catalog import Catalog

    return Catalog.load(gpus, book=prices)


def _trace(path: Path) -> Workload:
    """A trace of any known form."""
    from armillary.serving.hexgen.traces import Workload

    if path.suffix.lower() in (".jsonl", ".json"):
        return Workload.from_mooncake(path)
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r}: there is no such trace")
    with path.open(encoding="utf-8") as file:
        head = file.readline()
    return Workload.from_azure(path) if "ContextTokens" in head else Workload.from_csv(path)


def _check_target(path: Path, *suffixes: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{str(path)!r}: the name must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder: give the name of a file")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{str(path)!r}: there is no such folder, make it first")
