"""``armillary maxmin-morl``: solve a finite process from a file, train a policy, show a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def root() -> None:
    """Lift the worst-off objective while hard limits hold: exact on tables, learned elsewhere.

    Example: armillary maxmin-morl solve mdp.npz --threshold 12.5 -o policy.npz
    """


@app.command()
def solve(
    process: Annotated[Path, typer.Argument(help="An .npz with P, r and, for limits, c.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the policy goes (.npz).")],
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="J_c >= this, one a limit; default: the file's C."),
    ] = None,
    gamma: Annotated[
        float | None, typer.Option(help="Discount; default: the file's or 0.99.")
    ] = None,
    method: Annotated[str, typer.Option(help="bundle, lp or pgd.")] = "bundle",
    scale: Annotated[str | None, typer.Option(help="Sizes of objectives, by commas.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
) -> None:
    """The exact policy of a finite process, with its proof.

    Example: armillary maxmin-morl solve mdp.npz --threshold 12.5 -o policy.npz
    """
    require("scipy", what="maxmin-morl", extra="rl")
    from armillary.rl.maxmin_morl.files import read_process, write_solution
    from armillary.rl.maxmin_morl.tabular import solve_tabular

    _check_target(out, "-o", ".npz")
    _check_target(json_out, "--json", ".json")
    arguments = read_process(process)
    if threshold:
        arguments["C"] = threshold
    if gamma is not None:
        arguments["gamma"] = gamma
    solution = solve_tabular(**arguments, method=method, scale=_numbers(scale, "--scale"))  # pyright: ignore
    write_solution(out, solution)
    objectives = enumerate(zip(solution.J, solution.w, strict=True))
    limits = enumerate(zip(solution.slack, solution.u, strict=True))
    rows = [[f"objective {k}", f"{J:.6g}", f"w {w:.4g}"] for k, (J, w) in objectives]
    rows += [[f"limit {i}", f"slack {s:.4g}", f"u {u:.4g}"] for i, (s, u) in limits]
    output.console().table(["what", "return", "multiplier"], rows)
    output.console().print(
        f"worst {solution.value_min:.6g}; no policy exceeds {solution.certificate.upper:.6g} "
        f"(gap {solution.gap:.2g}) -> {out}"
    )
    if json_out is not None:
        output.write_json(
            json_out,
            {
                "value_min": solution.value_min,
                "upper": solution.certificate.upper,
                "gap": solution.gap,
                "bias_bound": solution.certificate.bias_bound,
                "J": solution.J,
                "w": solution.w,
                "slack": solution.slack,
                "u": solution.u,
                "seconds": solution.seconds,
            },
        )


@app.command()
def train(
    env: Annotated[
        str, typer.Option(help="An id, such as mo-hopper-v5 or armillary/BuildingZones-v0.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="A folder for the run.")],
    constraint: Annotated[
        list[str] | None,
        typer.Option(help='SOURCE>=NUMBER@KIND, such as "info:energy>=-180@discounted".'),
    ] = None,
    algo: Annotated[str, typer.Option(help="ppo or sac.")] = "ppo",
    steps: Annotated[float, typer.Option(help="Environment steps.")] = 2e5,
    n_envs: Annotated[int, typer.Option(min=1, help="Copies of the environment.")] = 8,
    processes: Annotated[bool, typer.Option(help="One process a copy (SUMO needs it).")] = False,
    gamma: Annotated[float, typer.Option(help="Discount.")] = 0.99,
    scale: Annotated[str | None, typer.Option(help="Sizes of objectives, by commas.")] = None,
    episodes: Annotated[int, typer.Option(min=2, help="Evaluation episodes.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Train a policy and evaluate it; the folder gets model, dual variables, report and chart.

    Example: armillary maxmin-morl train --env armillary/BuildingZones-v0 --constraint "info:energy>=-180@discounted" --steps 1e5 -o run
    """  # noqa: E501
    _need_extra()
    from armillary.rl.maxmin_morl import files
    from armillary.rl.maxmin_morl.ppo import ConstrainedMaxMinPPO
    from armillary.rl.maxmin_morl.sac import ConstrainedMaxMinSAC

    learners: dict[str, Any] = {"ppo": ConstrainedMaxMinPPO, "sac": ConstrainedMaxMinSAC}
    if algo not in learners:
        raise ValueError(f"--algo {algo!r}: known are ppo and sac")
    if steps < 1:
        raise ValueError(f"--steps {steps:g}: at least 1 is needed")
    if not 0 <= gamma < 1:
        raise ValueError(f"--gamma {gamma:g}: discounted returns need 0 <= gamma < 1")
    if out.exists() and any(out.iterdir()):
        raise FileExistsError(f"-o {out}: the folder is not empty, give another")
    sizes = _numbers(scale, "--scale")
    model = learners[algo](
        env, constraint or [], n_envs=n_envs, processes=processes, gamma=gamma, seed=seed,
        device=device, scale=None if sizes is None else tuple(sizes),
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    model.learn(int(steps), callback=_progress(int(steps)))
    reports = {
        policy: model.evaluate(episodes, model.env.venv if processes else None, policy, seed)
        for policy in ("mixture", "last")
    }
    model.env.close()
    model.save(out / "model.safetensors")
    files.write_dual(out / "dual.csv", model.dual_history)
    output.write_json(
        out / "settings.json",
        {
            "env": env, "constraints": [str(c) for c in model.constraints], "algo": algo,
            "steps": int(steps), "n_envs": n_envs, "gamma": gamma, "seed": seed,
            "stopped": model.stopped,
        },
    )  # fmt: skip
    output.write_json(
        out / "report.json",
        {policy: {**r.to_dict(), "lines": r.lines()} for policy, r in reports.items()},
    )
    if model.dual_history:
        output.save_chart(files.dual_chart(out), out / "dual.svg")
    _show(out)
    model.raise_if_stopped()


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A folder that `train` wrote.")],
    chart: Annotated[
        Path | None, typer.Option(help="Write the chart (.svg, .png, .html or .json).")
    ] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the figures.")] = None,
) -> None:
    """Show a run: objectives, limits, weights and prices of the mixture and of the last policy.

    Example: armillary maxmin-morl report run --chart dual.png
    """
    from armillary.rl.maxmin_morl import files

    _check_target(chart, "--chart", ".svg", ".png", ".html", ".json")
    _check_target(json_out, "--json", ".json")
    found = files.read_run(run)
    _show(run)
    if chart is not None:
        output.save_chart(files.dual_chart(run), chart)
    if json_out is not None:
        output.write_json(json_out, found)


def _show(run: Path) -> None:
    from armillary.rl.maxmin_morl import files

    found = files.read_run(run)
    settings = found["settings"]
    console = output.console()
    console.print(f"{settings['env']}, {settings['algo']}, {settings['steps']} steps -> {run}")
    for policy, figures in found["report"].items():
        console.print(
            f"\n{policy}: worst {figures['minimum']:.4g} (objective {figures['worst']}), violation "
            f"{figures['violation']:.1%}, Jain {figures['jain']:.3f}"
        )
        console.table(["what", "mean", "interval or slack", "multiplier"], figures["lines"])
    if settings["stopped"]:
        console.note(settings["stopped"])


def _need_extra() -> None:
    for module in ("gymnasium", "torch", "stable_baselines3", "safetensors"):
        require(module, what="maxmin-morl", extra="rl")


def _progress(steps: int) -> Any:
    """A Stable-Baselines3 callback that moves the project's bar."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Bar(BaseCallback):
        def _on_training_start(self) -> None:
            self.bar: Iterator[int] = output.progress(range(steps), "learning", steps)
            self.shown = 0

        def _on_step(self) -> bool:
            while self.shown < min(self.num_timesteps, steps):
                next(self.bar, None)
                self.shown += 1
            return True

        def _on_training_end(self) -> None:
            for _ in self.bar:
                pass

    return Bar()


def _numbers(text: str | None, option: str) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} {text!r}: give numbers, separated by commas") from None


def _check_target(path: Path | None, option: str, *suffixes: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {str(path)!r}: the name must end in {' or '.join(suffixes)}")
    if not os.path.isdir(path.absolute().parent):
        raise FileNotFoundError(f"{option} {str(path)!r}: there is no such folder, make it first")
