"""``armillary spikeinit``: numbers for a neuron, a check of your own model, a training run."""

from __future__ import annotations

import importlib
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from armillary import output
from armillary.errors import require

if TYPE_CHECKING:
    import torch

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness.")]


@app.callback()
def root() -> None:
    """Initialise deep spiking networks so that they train without any normalisation.

    Example: armillary spikeinit solve --tau 2 --theta .5 --rate .1 --steps 4
    """


@app.command()
def solve(
    tau: Annotated[float, typer.Option(help="Time constant >= 1; inf for IF neurons.")] = 2.0,
    theta: Annotated[float, typer.Option(help="Threshold > 0.")] = 0.5,
    rate: Annotated[
        str,
        typer.Option(
            help="Spikes a neuron and step, or auto: at least 0.1, less where tau is long."
        ),
    ] = "0.1",
    steps: Annotated[int | None, typer.Option(help="Time steps T, for simulations only.")] = None,
    decay_input: Annotated[
        bool, typer.Option(help="The input is divided by tau, as SpikingJelly's default.")
    ] = True,
    reset: Annotated[str, typer.Option(help="hard, soft or subtract.")] = "hard",
    surrogate: Annotated[
        str, typer.Option(help="piecewise_exp, atan, sigmoid or triangle.")
    ] = "piecewise_exp",
    method: Annotated[str, typer.Option(help="auto, moments, sim or correlated.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable.")] = False,
) -> None:
    """The scale of weights and the width of the surrogate for a neuron and a firing rate.

    Example: armillary spikeinit solve --tau 2 --theta .5 --rate .1 --steps 4
    """
    _need_extra()
    import dataclasses
    import json

    from armillary.neuro.spikeinit.solving import solve as solve_params

    if not tau >= 1:
        raise ValueError(f"--tau {tau}: expected a time constant >= 1, or inf for IF neurons")
    wanted: Any = "auto" if rate == "auto" else _number("--rate", rate)
    lam = 1 / tau if decay_input and tau != float("inf") else 1.0
    found = solve_params(
        1 - 1 / tau, lam, theta, wanted, steps, reset, surrogate, method  # pyright: ignore
    )  # fmt: skip
    if as_json:
        output.console().print(json.dumps(dataclasses.asdict(found)))
        return
    jelly = f" (SpikingJelly's PiecewiseExp: {2 * found.alpha:.4f})"
    output.console().table(
        ["figure", "value"],
        [
            ["sigma: weights are N(0, sigma^2/fan_in)", f"{found.sigma:.4f}"],
            ["sigma of a first layer under unchanging input", f"{found.sigma_static:.4f}"],
            [
                f"alpha of {found.surrogate}",
                f"{found.alpha:.4f}" + (jelly if found.surrogate == "piecewise_exp" else ""),
            ],
            ["rate", f"{found.rate:.4f}"],
            ["slope of the rate (stable below 1)", f"{found.slope:.3f}"],
            ["membrane, mean and standard deviation", f"{found.mu:.4f} {found.std:.4f}"],
            ["found by", found.method],
        ],
    )
    if steps is not None and found.method == "moments":
        output.console().note(
            "moments are those of the steady state: --steps does not count, --method sim heeds it"
        )
    if found.slope > 1:
        output.console().note(
            "an error of the rate grows from layer to layer: beyond 20 layers take --rate auto"
        )


@app.command()
def check(
    model: Annotated[str, typer.Argument(help="MODULE:FUNCTION that builds your network.")],
    inputs: Annotated[Path, typer.Option("--input", help="A batch of inputs, .npy.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The profile (.csv or .json).")],
    init: Annotated[
        bool, typer.Option("--init", help="Initialise the network first, and say how.")
    ] = False,
    rate: Annotated[
        float | None, typer.Option(help="Spikes a neuron and step, for --init; left out: 0.1.")
    ] = None,
    seed: Seed = 0,
    chart: Annotated[
        Path | None, typer.Option(help="Rates and gradients over depth (.svg, .png, .html).")
    ] = None,
) -> None:
    """Where do spikes die and gradients vanish in this network? One row a layer of neurons.

    Gradients are those of the cross-entropy against random classes.

    Example: armillary spikeinit check mypkg.mymodel:build --input batch.npy -o profile.csv
    """
    _need_extra()
    _check_target(out, "-o", ".csv", ".json")
    _check_target(chart, "--chart", ".svg", ".png", ".html", ".json")
    if rate is not None and not init:
        raise ValueError(f"--rate {rate} is what --init aims at: give --init too, or leave it out")
    batch = _read_batch(inputs)
    import torch

    def ran(work: Callable[[], Any]) -> Any:
        """What the network itself raises on this batch, in a line."""
        try:
            return work()
        except (
            RuntimeError,
            LookupError,
            AttributeError,
            ArithmeticError,
            AssertionError,
        ) as error:
            raise ValueError(
                f"model {model!r} does not run on --input {str(inputs)!r} of the shape "
                f"{tuple(batch.shape)}: {_line(error)}"
            ) from None

    from armillary.neuro.spikeinit.apply import init_
    from armillary.neuro.spikeinit.profile import depth_profile

    torch.manual_seed(seed)
    network = _build(model)
    for name, weight in () if init else network.named_parameters():
        if not bool(torch.isfinite(weight).all()):
            raise ValueError(
                f"model {model!r}: {name} holds NaN or infinite numbers, so that no layer says "
                "anything: mend it, or draw weights anew with --init"
            )
    if init:
        generator = torch.Generator().manual_seed(seed)
        wanted = 0.1 if rate is None else rate
        report = ran(lambda: init_(network, sample=batch, rate=wanted, generator=generator))
        output.console().print(str(report))

    def loss(answer: Any) -> torch.Tensor:
        logits = answer[0] if isinstance(answer, tuple) else answer
        if not isinstance(logits, torch.Tensor) or logits.ndim < 2 or not logits.numel():
            what = (
                tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
            )
            raise ValueError(
                f"model {model!r} answers with {what}: expected a tensor (batch, classes), or a "
                "tuple that begins with it"
            )
        logits = logits.flatten(0, -2)
        classes = torch.arange(len(logits)) % logits.shape[-1]
        return torch.nn.functional.cross_entropy(logits, classes)

    table = ran(lambda: depth_profile(network, batch, loss))
    records = [
        {k: (None if isinstance(v, float) and v != v else v) for k, v in row.items()}
        for row in table.to_dict("records")
    ]
    if out.suffix.lower() == ".json":
        output.write_json(out, records)
    else:
        output.write_csv(out, list(table.columns), [list(row.values()) for row in records])
    if chart is not None:
        output.save_chart(_chart(records), chart)
    silent = [layer for layer, r in zip(table.layer, table.rate, strict=True) if r < 1e-4]
    rates = f"rates {table.rate.min():.4g} to {table.rate.max():.4g}"
    output.console().print(f"{len(records)} layers of neurons, {rates} -> {out}")
    if silent:
        output.console().note(
            f"{len(silent)} layers are silent, the first is {silent[0]}: try --init"
        )


@app.command()
def train(
    data: Annotated[
        str,
        typer.Option(
            help="digits, fashion-mnist, a folder with the four files of that, or an .npz of x, y."
        ),
    ] = "digits",
    model: Annotated[
        str,
        typer.Option(
            help="deep_ms_resnet, deep_sew_resnet, plain_mlp or vgg9_snn, and :DEPTH for all but "
            "the last."
        ),
    ] = "deep_ms_resnet:101",
    width: Annotated[int, typer.Option(min=1, help="Channels or neurons of a layer.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Minibatches.")] = 100,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Rows a minibatch; left out: 32, or all if fewer.")
    ] = None,
    lr: Annotated[float, typer.Option(help="Adam's learning rate.")] = 3e-3,
    block_scale: Annotated[
        float | None,
        typer.Option(
            help="Factor on the learning rate inside residual blocks; left out: 50 over their "
            "number, at most 1."
        ),
    ] = None,
    time_steps: Annotated[int, typer.Option("--time-steps", min=1, help="T.")] = 2,
    checkpoint: Annotated[
        int, typer.Option(min=0, help="Recompute this many blocks at a time, to save memory.")
    ] = 0,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Weights, as .safetensors.")
    ] = None,
) -> None:
    """Train a deep spiking network without normalisation, and test it on rows held out.

    Example: armillary spikeinit train --data fashion-mnist --model deep_ms_resnet:201
    """
    _need_extra()
    _check_target(out, "-o", ".safetensors")
    import torch

    from armillary.neuro.spikeinit.apply import init_
    from armillary.neuro.spikeinit.training import Recipe, accuracy
    from armillary.neuro.spikeinit.training import train as fit

    scale = _block_scale(model) if block_scale is None else block_scale
    x, y, x_test, y_test = _images(data, seed)
    if batch is not None and batch > len(x):
        raise ValueError(
            f"--batch {batch}: there are {len(x)} rows to train on (a fifth is held out); give at "
            "most so many"
        )
    recipe = Recipe("adam", lr, steps, batch or min(32, len(x)), block_scale=scale)
    classes = int(max(y.max(), y_test.max())) + 1
    torch.manual_seed(seed)
    network = _named(model, width, classes, x, time_steps, checkpoint)
    try:
        init_(network, sample=x[:64], generator=torch.Generator().manual_seed(seed))
    except RuntimeError as error:
        raise ValueError(
            f"--model {model!r} does not run on images of {tuple(x.shape[2:])} pixels: "
            f"{_line(error)}"
        ) from None
    losses = fit(
        network, x, y, recipe, seed, progress=lambda batches: output.progress(batches, "training")
    )
    right = accuracy(network, x_test, y_test)
    if not math.isfinite(losses[-1]) or losses[-1] > 100 * max(1.0, losses[0]):
        output.console().note(f"the loss ran away: take a lower --lr than {lr:g}")
    tail = losses[-10:]
    output.console().print(
        f"{steps} steps, loss {sum(tail) / len(tail):.3f}, accuracy {100 * right:.1f} % of "
        f"{len(y_test)} rows held out"
    )
    if out is not None:
        from safetensors.torch import save

        output.write_bytes(out, save({k: v.contiguous() for k, v in network.state_dict().items()}))
        output.console().print(f"weights -> {out}")


def _need_extra() -> None:
    for module in ("torch", "pandas"):
        require(module, what="spikeinit", extra="neuro")


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{option} {text!r}: expected a number, or auto") from None


def _check_target(path: Path | None, option: str, *suffixes: str) -> None:
    """Refuse, before any work, a file that could not be written."""
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} {str(path)!r}: the name must end in {' or '.join(suffixes)}")
    if path.is_dir():
        raise IsADirectoryError(f"{option} {str(path)!r}: that is a folder, name a file")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{option} {str(path)!r}: there is no such folder, make it first")
    try:
        tempfile.TemporaryFile(dir=path.absolute().parent).close()
    except OSError as error:
        raise PermissionError(
            f"{option} {str(path)!r}: no file can be written there ({error.strerror})"
        ) from None


def _line(error: Exception) -> str:
    """What an exception says, in its first line."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def _read_batch(path: Path) -> torch.Tensor:
    import numpy as np
    import torch

    if not path.is_file():
        raise FileNotFoundError(f"--input {str(path)!r}: no such file")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError):
        raise ValueError(
            f"--input {str(path)!r}: no array of numbers; write one with numpy.save (.npy)"
        ) from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" or array.ndim < 2:
        raise ValueError(f"--input {str(path)!r}: expected one array of numbers, (batch, ...)")
    if not array.size:
        raise ValueError(f"--input {str(path)!r}: is empty, its shape is {array.shape}")
    batch = torch.from_numpy(array.astype(np.float32))
    if not bool(torch.isfinite(batch).all()):
        raise ValueError(f"--input {str(path)!r}: holds numbers that are not finite")
    return batch


def _build(name: str) -> torch.nn.Module:
    """The user's network, from MODULE:FUNCTION; modules of the current folder are found."""
    import torch

    module, _, function = name.partition(":")
    if not module or not function:
        raise ValueError(f"model {name!r}: expected MODULE:FUNCTION, such as mypkg.mymodel:build")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.import_module(module)
    except Exception as error:  # whatever the user's module does when it is imported
        raise ValueError(
            f"model {name!r}: the module {module} cannot be imported: {_line(error)}"
        ) from None
    build = getattr(found, function, None)
    if build is None:
        raise ValueError(f"model {name!r}: the module {module} has no {function}")
    if not callable(build):
        raise TypeError(f"model {name!r}: is a {type(build).__name__}, no function or module")
    try:
        network = build if isinstance(build, torch.nn.Module) else build()
    except Exception as error:  # and whatever its function does
        raise ValueError(f"model {name!r}: {function}() raised {_line(error)}") from None
    if not isinstance(network, torch.nn.Module):
        raise TypeError(f"model {name!r}: returned a {type(network).__name__}, no torch module")
    return network


def _images(name: str, seed: int) -> tuple[Any, Any, Any, Any]:
    """Standardised (n, 1, height, width) images and labels: to train on, and held out."""
    import numpy as np
    import torch

    from armillary.corpora import images

    if name == "digits":
        pixels, labels = images.digits()
    elif name == "fashion-mnist":
        pixels, labels = images.fashion_mnist("train")
    elif Path(name).is_dir():
        pixels, labels = _fashion_folder(Path(name))
    elif name.endswith(".npz") and Path(name).is_file():
        pixels, labels = _own_images(Path(name))
    else:
        raise FileNotFoundError(
            f"--data {name!r}: expected digits, fashion-mnist, a folder of data or an .npz file"
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    cut = max(1, len(order) // 5)
    x = torch.from_numpy(np.asarray(pixels, np.float32)).unsqueeze(1)
    y = torch.from_numpy(np.asarray(labels, np.int64))
    held, kept = torch.from_numpy(order[:cut]), torch.from_numpy(order[cut:])
    mean, std = x[kept].mean(), x[kept].std()
    if not float(std) > 0:
        raise ValueError(f"--data {name!r}: all pixels are the same")
    x = (x - mean) / std
    return x[kept], y[kept], x[held], y[held]


def _fashion_folder(folder: Path) -> tuple[Any, Any]:
    """Fashion-MNIST from this folder alone: where its files lie at once, or as public data."""
    from armillary.corpora import images
    from armillary.corpora.registry import EXTERNAL

    entries = [entry.path for entry in EXTERNAL if entry.name.startswith("fashion-mnist-")]
    if all((folder / path).is_file() for path in entries):
        return images.fashion_mnist("train", folder)
    flat = [folder / Path(path).name for path in entries]
    missing = [path.name for path in flat if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"--data {str(folder)!r}: this folder lacks {', '.join(missing)}; expected the four "
            "files of Fashion-MNIST in it, or in images/fashion-mnist/ below it"
        )
    with tempfile.TemporaryDirectory() as laid:  # as public data, by links
        for path, source in zip(entries, flat, strict=True):
            (Path(laid) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(laid) / path).symlink_to(source.absolute())
        return images.fashion_mnist("train", laid)


def _own_images(path: Path) -> tuple[Any, Any]:
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as content:
            if "x" not in content or "y" not in content:
                raise KeyError
            x, y = content["x"], content["y"]
    except KeyError:
        raise ValueError(
            f"--data {str(path)!r}: holds no arrays x (images) and y (labels)"
        ) from None
    except (ValueError, TypeError, OSError, EOFError, AttributeError, zipfile.BadZipFile):
        raise ValueError(
            f"--data {str(path)!r}: no arrays of numbers; write them with numpy.savez(..., x=, y=)"
        ) from None
    if x.dtype.kind not in "fiub" or not x.size:
        raise ValueError(
            f"--data {str(path)!r}: x is of {x.dtype}, shape {x.shape}; expected numbers, not empty"
        )
    if x.ndim != 3 or y.shape != x.shape[:1] or y.dtype.kind not in "iu" or len(y) < 10:
        raise ValueError(
            f"--data {str(path)!r}: x has the shape {x.shape} and y {y.shape} of {y.dtype}; "
            "expected (n, height, width) and (n,) whole numbers, n >= 10"
        )
    with np.errstate(over="ignore"):
        x = x.astype(np.float32)
    if not np.isfinite(x).all() or y.min() < 0:
        raise ValueError(
            f"--data {str(path)!r}: x must be finite in single precision, y at least 0"
        )
    different = len(np.unique(y))
    if different < 2 or int(y.max()) >= len(y):
        raise ValueError(
            f"--data {str(path)!r}: y holds {different} different labels, the largest is "
            f"{y.max()}; expected two classes at least, numbered from 0"
        )
    return x, y


def _named(
    name: str, width: int, classes: int, x: torch.Tensor, T: int, checkpoint: int
) -> torch.nn.Module:
    from armillary.neuro.spikeinit import models

    kind, _, depth = name.partition(":")
    if kind not in models.MODELS:
        raise ValueError(f"--model {name!r}: expected one of {', '.join(models.MODELS)}")
    if ":" in name and not (depth.isascii() and depth.isdigit()):
        raise ValueError(f"--model {name!r}: expected a whole number of layers after the colon")
    if kind == "vgg9_snn":
        if depth:
            raise ValueError(f"--model {name!r}: vgg9_snn has nine layers, it takes no depth")
        return models.vgg9_snn(width, classes, T=T)
    if kind == "plain_mlp":
        return models.plain_mlp(int(depth or 20), width, classes, inputs=x[0].numel(), T=T)
    strides = (2, 1, 1) if x.shape[-1] <= 8 else (2, 2, 1)
    layers = int(depth or (101 if kind == "deep_ms_resnet" else 51))
    return models.MODELS[kind](
        layers, width, classes, T=T, strides=strides, grid=4, checkpoint_segment=checkpoint
    )


def _block_scale(name: str) -> float:
    """50 over the number of residual blocks: steps of many branches add up."""
    kind, _, depth = name.partition(":")
    if not kind.endswith("_resnet") or not depth.isdigit():
        return 1.0
    return min(1.0, 50 / max(1, (int(depth) - 1) // 2))


def _chart(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates and gradients over depth, on logarithmic scales."""
    rows = [{"depth": i + 1, **row} for i, row in enumerate(records)]

    def panel(field: str, title: str) -> dict[str, Any]:
        return {
            "mark": {"type": "line", "point": len(rows) <= 60},
            "transform": [{"filter": f"datum.{field} > 0"}],
            "encoding": {
                "x": {"field": "depth", "type": "quantitative", "title": "layer of neurons"},
                "y": {
                    "field": field,
                    "type": "quantitative",
                    "scale": {"type": "log"},
                    "title": title,
                },
            },
        }

    return {
        "data": {"values": rows},
        "vconcat": [panel("rate", "firing rate"), panel("grad_rms", "gradient, RMS")],
    }
