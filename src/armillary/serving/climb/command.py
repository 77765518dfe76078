"""``armillary climb``: serve, simulate, calibrate, replay, and show the cliff."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import require

if TYPE_CHECKING:
    from armillary.serving.climb.config import ClimbConfig
    from armillary.serving.climb.engine_model import EngineModel

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Trace = Annotated[
    Path,
    typer.Argument(
        metavar="TRACE", help="A .csv of t_s, adapter, class, prompt_tokens, output_tokens."
    ),
]
Slots = Annotated[int, typer.Option(min=1, help="Adapters that the engine holds.")]
Engine = Annotated[
    Path | None, typer.Option(help="Figures of an engine that `calibrate` wrote (.json).")
]
Out = Annotated[Path, typer.Option("-o", "--out", help="The table (.csv or .json).")]


@app.callback()
def root() -> None:
    """Keep VIP requests quick when more LoRA adapters are in use than an engine holds.

    Example: armillary climb serve --upstream http://127.0.0.1:8000 --classes classes.yaml
    """


@app.command()
def serve(
    upstream: Annotated[list[str], typer.Option(help="An engine, http://host:port; repeat it.")],
    slots: Annotated[
        str, typer.Option(help="Adapters that each engine holds; auto: asked of its metrics.")
    ] = "auto",
    classes: Annotated[
        Path | None, typer.Option(help="A .yaml of adapter: vip, or {class:, path:}.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen at.")] = 8080,
    policy: Annotated[str, typer.Option(help="climb, or a rival's name.")] = "climb",
    in_flight: Annotated[
        int, typer.Option(min=1, help="Requests that each engine has at once.")
    ] = 256,
    load_by: Annotated[
        str, typer.Option(help="endpoint (vLLM's /v1/load_lora_adapter) or warm-up.")
    ] = "endpoint",
) -> None:
    """Serve OpenAI's routes before engines; SIGTERM finishes what is under way.

    vLLM needs VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 for --load-by endpoint, and --max-cpu-loras at
    least as large as --max-loras.

    Example: armillary climb serve --upstream http://127.0.0.1:8000 --classes classes.yaml
    """
    _need_extra()
    from armillary.serving.climb.app import serve as run
    from armillary.serving.climb.config import ClimbConfig, read_classes

    config = ClimbConfig(
        tuple(upstream),
        slots=_slots(slots),
        adapters=read_classes(classes) if classes is not None else {},
        policy=policy,
        in_flight=in_flight,
        load_by=load_by,  # pyright: ignore[reportArgumentType]
    )
    _check_upstreams(config)
    output.console().note(f"serving at http://{host}:{port}, state at /climb/state; Ctrl-C ends it")
    run(config, host, port)


def _check_upstreams(config: ClimbConfig) -> None:
    """Ask the engines before the server starts, so that what is wrong is told in one line."""
    from armillary.serving.climb.app import Ingress
    from armillary.serving.climb.loading import run_to_end

    async def ask() -> None:
        ingress = Ingress(config)
        await ingress.open()
        await ingress.close()

    run_to_end(ask())


@app.command()
def sim(
    trace: Trace,
    out: Out,
    slots: Slots = 8,
    engine: Engine = None,
    policies: Annotated[
        str, typer.Option(help="Names, by commas: climb, fcfs, priority, …; all: every one.")
    ] = "climb,fcfs",
    requests: Annotated[
        Path | None, typer.Option(help="Every request of the first policy (.csv).")
    ] = None,
) -> None:
    """Replay a trace before a simulated engine, under one policy or several.

    Example: armillary climb sim trace.csv --slots 4 --policies climb,fcfs -o compared.csv
    """
    _need_extra()
    from armillary.serving.climb.simulation import simulate
    from armillary.serving.climb.traces import read_trace

    _check_target(out, "-o", ".csv", ".json")
    _check_target(requests, "--requests", ".csv")
    names = _policies(policies)
    traffic = read_trace(trace)
    model = _engine(engine)
    rows = []
    for name, make in output.progress(list(names.items()), "policies"):
        result = simulate(traffic, model, make(), slots)
        rows.append({"policy": name, **_summary(result)})
        if requests is not None and len(rows) == 1:
            table = result.requests
            output.write_csv(requests, table.columns.tolist(), table.to_numpy().tolist())
    _write(out, rows)
    _show(rows)


@app.command()
def cliff(
    out: Out,
    slots: Slots = 8,
    engine: Engine = None,
    rate: Annotated[float, typer.Option(help="Requests a second.")] = 10.66,
    vip: Annotated[int, typer.Option(min=0, help="Adapters that are VIP.")] = 2,
    vip_share: Annotated[float, typer.Option(min=0, max=1, help="Of requests.")] = 0.3,
    seconds: Annotated[float, typer.Option(min=1, help="Length of the traffic.")] = 200,
    policies: Annotated[str, typer.Option(help="Names, by commas.")] = "climb,fcfs",
    chart: Annotated[
        Path | None, typer.Option(help="A chart of it (.svg, .png, .html or .json).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """The tail of waiting as the working set grows from one adapter to four times the slots.

    Example: armillary climb cliff --slots 8 --chart cliff.svg -o cliff.csv
    """
    _need_extra()
    from armillary.serving.climb.engine_model import cliff_loss
    from armillary.serving.climb.simulation import simulate
    from armillary.serving.climb.traces import multi_lora_trace

    _check_target(out, "-o", ".csv", ".json")
    _check_target(chart, "--chart", ".svg", ".png", ".html", ".json")
    model = _engine(engine)
    sizes = sorted({max(vip, 1), *range(max(1, slots // 2), 4 * slots + 1, max(1, slots // 4))})
    rows = []
    for size in output.progress(sizes, "working sets"):
        drawn = multi_lora_trace(
            seconds, rate, size, vip_adapters=min(vip, size), vip_share=vip_share, seed=seed
        )
        for name, make in _policies(policies).items():
            result = simulate(drawn, model, make(), slots, until=20 * seconds)
            lost = cliff_loss(rate, size, slots, model.load)
            head = {"working_set": size, "policy": name, "time_lost_to_loads": lost}
            rows.append({**head, **_summary(result)})
    _write(out, rows)
    if chart is not None:
        output.save_chart(_chart(rows), chart)
    _show([row for row in rows if row["working_set"] in (slots, sizes[-1])])


@app.command()
def calibrate(
    url: Annotated[str, typer.Option(help="The engine, http://host:port; it should be idle.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Its figures (.json).")],
    slots: Slots,
    adapters: Annotated[str, typer.Option(help="Two or more of its adapters, by commas.")],
    base_model: Annotated[str, typer.Option(help="Its model without an adapter.")],
    max_batch: Annotated[int, typer.Option(min=1, help="Requests it runs at once.")] = 256,
) -> None:
    """Measure an engine's steps and loads, for `sim` and `cliff`.

    Example: armillary climb calibrate --url http://127.0.0.1:8000 --slots 4 --adapters a,b,c,d,e
    --base-model smollm2 -o engine.json
    """
    _need_extra()
    from armillary.serving.climb.calibration import calibrate as measure

    _check_target(out, "-o", ".json")
    names = [name.strip() for name in adapters.split(",") if name.strip()]
    found = measure(url, names, base_model=base_model, slots=slots, max_batch=max_batch)
    output.write_text(out, found.to_json() + "\n")
    output.console().print(
        f"step {found.model.base * 1e3:.2f} ms + {found.model.per_request * 1e3:.3f} ms a request, "
        f"load {found.model.load * 1e3:.0f} ms; steps fitted to {found.step_error:.1%}, a burst "
        f"held out to {found.burst_error:+.1%} -> {out}"
    )


@app.command()
def replay(
    trace: Trace,
    target: Annotated[str, typer.Option(help="An ingress or an engine, http://host:port.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="One row a request (.csv, .parquet).")],
    base_model: Annotated[str, typer.Option(help="Sent where the adapter is empty.")] = "base",
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Leave out requests that are due later.")
    ] = None,
) -> None:
    """Send a trace's requests over HTTP when they are due, and write what came of each.

    Exit code 3 if some were not answered.

    Example: armillary climb replay trace.csv --target http://127.0.0.1:8080 -o runs.parquet
    """
    _need_extra()
    from armillary.serving.climb.loading import replay as send
    from armillary.serving.climb.loading import run_to_end, to_table
    from armillary.serving.climb.traces import read_trace

    _check_target(out, "-o", ".csv", ".parquet")
    if not target.startswith(("http://", "https://")):
        raise ValueError(f"--target {target!r}: expected http://host:port")
    traffic = read_trace(trace)
    results = run_to_end(
        send(traffic, target.rstrip("/"), base_model=base_model, most_seconds=seconds)
    )
    table = to_table(traffic, results)
    with output.atomic_path(out) as temporary:
        if out.suffix == ".parquet":
            table.to_parquet(temporary)
        else:
            table.to_csv(temporary, index=False)
    failed = int((table["status"] != 200).sum())
    waits = table.loc[table["status"] == 200].groupby("class")["ttft"]
    rows = [
        [name, f"{len(w)}", f"{w.median():.3f}", f"{w.quantile(0.99):.3f}"] for name, w in waits
    ]
    output.console().table(["class", "answered", "ttft p50, s", "p99, s"], rows)
    if failed:
        output.console().note(f"{failed} of {len(table)} requests were not answered")
        raise typer.Exit(3)


# ---- within ----------------------------------------------------------------------------------


def _need_extra() -> None:
    for module in ("pandas", "aiohttp", "starlette", "uvicorn"):
        require(module, what="climb", extra="serving")


def _slots(text: str) -> int | None:
    if text == "auto":
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError(f"--slots {text!r}: expected a whole number >= 1, or auto")
    return int(text)


def _policies(text: str) -> dict[str, Any]:
    from armillary.serving.climb.policies import POLICIES

    names = list(POLICIES) if text == "all" else [n.strip() for n in text.split(",") if n.strip()]
    unknown = [name for name in names if name not in POLICIES]
    if unknown or not names:
        raise ValueError(
            f"--policies {text!r}: unknown {', '.join(unknown) or 'nothing'}; "
            f"known are {', '.join(POLICIES)}"
        )
    return {name: POLICIES[name] for name in names}


def _engine(path: Path | None) -> EngineModel:
    from armillary.serving.climb.engine_model import EngineModel

    return EngineModel() if path is None else EngineModel.from_file(path)


def _summary(result: Any) -> dict[str, Any]:
    table = result.requests
    wait = table["first"] - table["arrived"]
    inside = table["first"] - table["sent"]
    row: dict[str, Any] = {}
    for klass in ("vip", "background"):
        mine = table["class"] == klass
        for q in (0.5, 0.99):
            value = float(wait[mine].quantile(q)) if mine.any() else None
            row[f"{klass}_ttft_p{q * 100:g}"] = value
    vip = table["class"] == "vip"
    row["vip_engine_ttft_p99"] = float(inside[vip].quantile(0.99)) if vip.any() else None
    last = float(table["done"].max()) if len(table) else 0.0
    row["requests_per_second"] = len(table) / last if last else 0.0
    return {**row, "loads": result.loads, "unasked_misses": result.misses}


def _show(rows: list[dict[str, Any]]) -> None:
    if rows:
        output.console().table(
            list(rows[0]), [["" if v is None else _shown(v) for v in row.values()] for row in rows]
        )


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _write(out: Path, rows: list[dict[str, Any]]) -> None:
    if out.suffix == ".json":
        output.write_json(out, rows)
    else:
        output.write_csv(out, list(rows[0]), [list(row.values()) for row in rows])


def _chart(rows: list[dict[str, Any]]) -> dict[str, Any]:
    long = [
        {
            "adapters in use": row["working_set"],
            "seconds": row[f"{klass}_ttft_p99"],
            "who": f"{klass}, {row['policy']}",
        }
        for row in rows
        for klass in ("vip", "background")
        if row[f"{klass}_ttft_p99"]
    ]
    return {
        "data": {"values": long},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "adapters in use", "type": "quantitative"},
            "y": {
                "field": "seconds",
                "type": "quantitative",
                "scale": {"type": "log"},
                "title": "99th percentile of the time to the first token, s",
            },
            "color": {"field": "who", "type": "nominal", "title": None},
        },
    }


def _check_target(path: Path | None, option: str, *suffixes: str) -> None:
    if path is None:
        return
    if path.suffix not in suffixes:
        ends = ", ".join(suffixes)
        raise ValueError(f"{option} {str(path)!r}: expected a file that ends in {ends}")
    if path.is_dir():
        raise IsADirectoryError(f"{option} {str(path)!r} is a folder: name a file")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{option} {str(path)!r}: there is no folder {str(path.parent)!r}")
