"""``armillary kage``: speed, frames, training, evaluation and comparison of configurations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import require

if TYPE_CHECKING:
    from armillary.rl.kage.params import Config

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

ConfigFile = Annotated[Path, typer.Argument(help="A configuration in KAGE-Bench's keys (.yaml).")]
Seed = Annotated[int, typer.Option(min=0, help="Of levels, looks and actions.")]


@app.callback()
def root() -> None:
    """A 2D platformer whose look changes one visual axis at a time: which one breaks a policy?

    Example: armillary kage render --suite all -o sheet.png
    """


@app.command()
def bench(
    config: Annotated[
        Path | None, typer.Option(help="A .yaml; default: the plainest look.")
    ] = None,
    envs: Annotated[int, typer.Option(min=1, help="Environments in one batch.")] = 64,
    consume: Annotated[
        bool, typer.Option("--consume/--physics", help="Read every frame, or draw none.")
    ] = True,
    index: Annotated[bool, typer.Option("--index", help="Index maps instead of RGB.")] = False,
    seconds: Annotated[float, typer.Option(min=0.0, help="About so long.")] = 2.0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A .json with the figures.")
    ] = None,
) -> None:
    """Steps a second, every frame consumed; compilation is told apart.

    Example: armillary kage bench --envs 1024
    """
    _need_extra()
    import dataclasses

    from armillary.rl.kage import throughput

    _check_target(out, ".json")
    mode: throughput.Mode = "physics" if not consume else "index" if index else "rgb"
    speed = throughput.measure(_config(config), envs, mode, seconds)
    if out is not None:
        output.write_json(out, dataclasses.asdict(speed))
    what = "no frame is drawn" if mode == "physics" else f"every {mode} frame is consumed"
    output.console().print(
        f"{speed.steps_per_second:,.0f} steps/s of {envs} environments, {what}; "
        f"{speed.bytes_per_second / 1e9:.2f} GB/s of frames; "
        f"compiled in {speed.compile_seconds:.1f} s"
    )


@app.command()
def render(
    config: Annotated[Path | None, typer.Argument(help="A configuration (.yaml).")] = None,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="A folder of .png, a .gif, or a .png of a suite.")
    ] = Path("frames"),
    suite: Annotated[
        str, typer.Option(help="Instead of a file: all, a suite, or ids such as filters-3.")
    ] = "",
    steps: Annotated[int, typer.Option(min=1, max=500, help="Of the expert's walk.")] = 120,
    seed: Seed = 0,
) -> None:
    """Frames of the expert's walk under a configuration, or a sheet of both looks of every pair.

    Example: armillary kage render --suite all -o sheet.png
    """
    _need_extra()
    from armillary.rl.kage import pairs, pictures

    if bool(suite) == (config is not None):
        raise ValueError("give a configuration file, or --suite, and not both")
    if suite:
        _check_target(out, ".png")
        image = pictures.sheet(pairs.select(suite), steps, seed)
        pictures.write_picture(out, image)
    elif out.suffix.lower() == ".gif":
        _check_target(out, ".gif")
        pictures.write_film(out, list(pictures.frames(_config(config), steps, seed)))
    else:
        out.mkdir(parents=True, exist_ok=True)
        for i, frame in enumerate(pictures.frames(_config(config), steps, seed)):
            pictures.write_picture(out / f"{i:03d}.png", frame)
    output.console().print(f"{steps} steps of the expert -> {out}")


@app.command()
def train(
    config: ConfigFile,
    out: Annotated[Path, typer.Option("-o", "--out", help="The policy (.safetensors).")],
    by: Annotated[
        str, typer.Option(help="imitation (seconds) or ppo (hours on a CPU).")
    ] = "imitation",
    steps: Annotated[int, typer.Option(min=1, help="Environment steps of PPO.")] = 25_000_000,
    size: Annotated[int, typer.Option(help="Side of the observation: 128, 64 or 32.")] = 32,
    augment: Annotated[str, typer.Option(help="Of imitation: shift, jitter, …")] = "none",
    seed: Seed = 0,
) -> None:
    """Train a pixel policy under a configuration.

    Example: armillary kage train look.yaml -o policy.safetensors
    """
    _need_extra()
    from armillary.rl.kage import imitation, ppo
    from armillary.rl.kage.engine import Kage

    _check_target(out, ".safetensors")
    if by not in ("imitation", "ppo"):
        raise ValueError(f"--by {by}: give imitation or ppo")
    ready = _config(config)
    env = Kage(ready.caps, size=size)
    params = env.params(ready)
    if by == "imitation":
        settings = imitation.Settings(rounds=1, augmentation=augment)
        policy = imitation.train(env, params, settings, seed)
        told = f"{settings.walks * (settings.rounds + 1)} walks labelled by the expert"
    else:
        settings = ppo.Settings(total_steps=steps)
        result = ppo.train(
            env, params, settings, seed, lambda updates: output.progress(updates, "PPO")
        )
        policy = result.policy
        told = f"{result.steps:,} steps, success at the end {result.success[-1]:.2f}"
    policy.save(out)
    output.console().print(f"{told} -> {out}")


@app.command("eval")
def evaluate(
    policy: Annotated[Path, typer.Argument(help="A .safetensors of `train`, or an SB3 .zip.")],
    suite: Annotated[str, typer.Option(help="all, suites, or ids, separated by commas.")] = "all",
    episodes: Annotated[int, typer.Option(min=1, help="Of each look.")] = 32,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A .json or .csv, a row a pair.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Success, distance, return and policy gap under both looks of each pair.

    Example: armillary kage eval policy.safetensors --suite filters -o report.json
    """
    _need_extra()
    from armillary.rl.kage import evaluation
    from armillary.rl.kage.pairs import select

    _check_target(out, ".json", ".csv")
    pairs = select(suite)
    if policy.suffix.lower() == ".zip":
        from armillary.rl.kage import sb3

        found = sb3.evaluate(policy, pairs, episodes, seed)
    else:
        from armillary.rl.kage import policies

        found = evaluation.evaluate(policies.load(policy), pairs, episodes, seed)
    rows: list[dict[str, Any]] = found.to_dict("records")
    if out is not None and out.suffix.lower() == ".json":
        output.write_json(out, rows)
    elif out is not None:
        output.write_csv(out, list(rows[0]), [list(row.values()) for row in rows])
    shown = ["id", "success_train", "success_eval", "success_drop", "policy_gap"]
    output.console().table(
        shown, [[row["id"], *(f"{row[name]:.2f}" for name in shown[1:])] for row in rows]
    )


@app.command()
def diff(
    a: ConfigFile,
    b: Annotated[Path, typer.Argument(help="Another.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A .json of the keys.")] = None,
) -> None:
    """The axes in which two configurations differ; an error if one governs the world.

    Example: armillary kage diff train.yaml eval.yaml
    """
    _need_extra()
    import dataclasses

    from armillary.rl.kage.config import differences
    from armillary.rl.kage.errors import AxisLeakError

    _check_target(out, ".json")
    found = differences(a, b)
    if out is not None:
        output.write_json(out, [dataclasses.asdict(d) for d in found])
    if not found:
        output.console().print("nothing that is drawn or played differs")
        return
    output.console().table(
        ["axis", "key", str(a), str(b)], [[d.axis, d.key, str(d.a), str(d.b)] for d in found]
    )
    latent = tuple(d.key for d in found if d.axis == "latent")
    if latent:
        raise AxisLeakError(
            f"what governs the world differs: {', '.join(latent)}: make them equal", latent
        )


@app.command()
def suites(
    out: Annotated[Path, typer.Option("-o", "--out", help="A folder for the 68 .yaml files.")],
) -> None:
    """Write the 34 pairs as configuration files: SUITE-N_train.yaml and SUITE-N_eval.yaml.

    Example: armillary kage suites -o configurations/
    """
    _need_extra()
    import yaml

    from armillary.rl.kage.pairs import all_pairs

    out.mkdir(parents=True, exist_ok=True)
    for pair in all_pairs():
        for name, look in (("train", pair.train), ("eval", pair.eval)):
            output.write_text(out / f"{pair.id}_{name}.yaml", yaml.safe_dump(look, sort_keys=False))
    output.console().print(f"{len(all_pairs())} pairs -> {out}")


def _need_extra() -> None:
    for module in ("jax", "flax", "optax", "yaml", "PIL", "pandas"):
        require(module, what="kage", extra="rl")


def _config(path: Path | None) -> Config:
    from armillary.rl.kage.pairs import any_config
    from armillary.rl.kage.params import load_config

    return any_config() if path is None else load_config(path)


def _check_target(path: Path | None, *suffixes: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{str(path)!r}: the name must end in {' or '.join(suffixes)}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{str(path)!r}: there is no such folder, make it first")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder: give the name of a file")
    if not os.access(path.absolute().parent, os.W_OK):
        raise PermissionError(f"{str(path)!r}: its folder cannot be written to")
