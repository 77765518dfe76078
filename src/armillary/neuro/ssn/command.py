"""``armillary ssn``: learn from a folder of images, encode, and look at regimes."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from armillary import output
from armillary.errors import ExitCode, require

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from armillary.neuro.ssn.encoder import SSNEncoder

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

Model = Annotated[Path, typer.Argument(help="An encoder that `fit` wrote (.npz).")]
Patches = Annotated[
    Path, typer.Argument(help="An image, or patches: .npy of shape (n, pixels) or (n, h, w).")
]
Contrasts = Annotated[
    str, typer.Option(help="LOW:HIGH:COUNT in equal ratios, or numbers separated by commas.")
]
#: Patches that `regime` and `report` look at, drawn from an image.
LOOKED_AT = 400
#: They are blank up to this standard deviation, which is rounding.
BLANK = 1e-9


@app.callback()
def root() -> None:
    """Image codes that use many units for faint patches and few for strong ones, learned locally.

    Example: armillary ssn fit photographs/ -o encoder.npz
    """


@app.command()
def fit(
    folder: Annotated[Path, typer.Argument(help="A folder of images; folders in it count too.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the encoder goes (.npz).")],
    patch: Annotated[int, typer.Option(min=2, help="Side of a patch in pixels.")] = 10,
    patches: Annotated[int, typer.Option(min=48, help="Patches drawn from all images.")] = 20_000,
    units: Annotated[int, typer.Option(min=8, help="Excitatory units: length of a code.")] = 192,
    iterations: Annotated[int, typer.Option(min=0, help="Batches of 48 patches.")] = 1200,
    seed: Annotated[int, typer.Option(min=0, help="Of patches, weights and batches.")] = 0,
    skip_bad_files: Annotated[
        bool, typer.Option("--skip-bad-files", help="Leave out what cannot be used; exit code 3.")
    ] = False,
) -> None:
    """Learn fields and lateral connections from images, by local plasticity; no labels.

    A quarter as many inhibitory units are added. Images are read as luminance, integers scaled to
    [0, 1]. Twelve images or more are advised.

    Example: armillary ssn fit photographs/ -o encoder.npz --patch 10
    """
    _need_extra()
    import numpy as np

    from armillary.neuro.ssn import storage
    from armillary.neuro.ssn.encoder import SSNEncoder
    from armillary.neuro.ssn.patches import draw_patches

    _check_target(out, ".npz")
    images, skipped = _images(folder, patch, skip_bad_files)
    drawn = draw_patches(images, patch, patches, np.random.default_rng(seed))
    model = SSNEncoder(
        n_exc=units, n_inh=max(2, units // 4), n_iter=iterations, random_state=seed, verbose=True
    )
    model.fit(drawn.astype(np.float32))
    storage.save(model, out, note={"patch": patch, "images": len(images)})
    j_ee = f", J_EE lowered to {model.totals_[0]:.3g}" if model.shrinks_ else ""
    output.console().print(
        f"{len(drawn)} patches of {len(images)} images, {units} units{j_ee} -> {out}"
    )
    _exit(skipped)


@app.command()
def encode(
    model: Model,
    source: Patches,
    out: Annotated[Path, typer.Option("-o", "--out", help="Codes: .npy (n, units) in Hz.")],
    contrast: Annotated[
        float | None, typer.Option(help="Every patch enters at this contrast; default: its own.")
    ] = None,
    step: Annotated[int, typer.Option(min=1, help="Grid of an image's patches, in pixels.")] = 5,
    flags: Annotated[Path | None, typer.Option(help="A .csv with the flags of each patch.")] = None,
    lateral: Annotated[bool, typer.Option(help="--no-lateral cuts the connections.")] = True,
) -> None:
    """Rates of the excitatory units for each patch; an image's patches row by row on a grid.

    Example: armillary ssn encode encoder.npz photo.png -o codes.npy --flags flags.csv
    """
    _need_extra()
    import numpy as np

    from armillary.neuro.ssn.patches import grid_patches
    from armillary.neuro.ssn.responses import quietly_encoded

    _check_target(out, ".npy")
    _check_target(flags, ".csv")
    encoder, side = _load(model)
    x = _patches(source, side, lambda image: grid_patches(image, side, step))
    found = quietly_encoded(encoder.ablate(lateral=lateral), x, contrast)
    _note_contrasts(encoder, found.contrast[~found.blank])
    with output.atomic_path(out) as temporary, temporary.open("wb") as file:
        np.save(file, found.rates, allow_pickle=False)
    if flags is not None:
        names = ("contrast", "converged", "residual", "oscillating", "blank")
        columns = [np.asarray(getattr(found, name), dtype=float) for name in names]
        output.write_csv(flags, ["patch", *names], _numbered(columns))
    output.console().print(
        f"{len(found.rates)} patches, {int(found.blank.sum())} blank, "
        f"{int((~found.converged).sum())} not settled -> {out}"
    )


@app.command()
def regime(
    model: Model,
    source: Patches,
    out: Annotated[Path, typer.Option("-o", "--out", help="A .csv or .json table.")],
    contrasts: Contrasts = ".05:4:12",
    chart: Annotated[
        Path | None, typer.Option(help="A chart of it (.svg, .png, .html or .json).")
    ] = None,
) -> None:
    """How the code changes with contrast: active units, energy, exponent, stability.

    Example: armillary ssn regime encoder.npz photo.png --contrasts .05:4:12 -o regime.csv
    """
    _need_extra()
    from armillary.neuro.ssn.reporting import contrast_chart, contrast_levels
    from armillary.neuro.ssn.responses import contrast_response

    _check_target(out, ".csv", ".json")
    _check_target(chart, ".svg", ".png", ".html", ".json")
    levels = contrast_levels(contrasts)
    encoder, side = _load(model)
    response = contrast_response(encoder, _patches(source, side, _draw(side)), levels)
    _write_table(out, response.columns.tolist(), response.to_numpy().tolist())
    if chart is not None:
        output.save_chart(contrast_chart(response), chart)
    shown = ["contrast", "active", "energy", "exponent", "isn_index", "settled"]
    output.console().table(shown, [[f"{v:.3g}" for v in row] for row in response[shown].to_numpy()])


@app.command()
def report(
    model: Model,
    source: Patches,
    out: Annotated[Path, typer.Option("-o", "--out", help="A .csv or .json table.")],
    seed: Annotated[int, typer.Option(min=0, help="Of the noise.")] = 0,
) -> None:
    """Does this encoder keep more of *your* faint and noisy patches than without lateral ones?

    The left half of the image (of a .npy file: the first half of its patches) fits linear decoders
    and chooses between them; the right half is degraded and decoded.

    Example: armillary ssn report encoder.npz photo.png -o robustness.csv
    """
    _need_extra()
    from armillary.neuro.ssn.reporting import robustness

    _check_target(out, ".csv", ".json")
    encoder, side = _load(model)
    halves = [half[~encoder.whitening_.directions(half).blank] for half in _halves(source, side)]
    for half, x in zip(("first (left)", "second (right)"), halves, strict=True):
        if len(x) < 20:
            raise ValueError(
                f"{source}: {len(x)} patches of its {half} half are not constant; report needs 20"
            )
    found = robustness(encoder, halves[0], halves[1], seed)
    _write_table(out, found.columns.tolist(), found.to_numpy().tolist())
    output.console().table(
        ["contrast", "noise", "lateral", "without"],
        [[f"{v:.3g}" for v in row] for row in found.to_numpy()],
    )


def _need_extra() -> None:
    for module in ("torch", "sklearn", "skimage", "pandas"):
        require(module, what="ssn", extra="neuro")


def _images(folder: Path, patch: int, skip: bool) -> tuple[list[NDArray[np.float64]], int]:
    from armillary.neuro.ssn.patches import image_files, read_image, refuse_empty

    images, skipped = [], 0
    for path in image_files(folder):
        try:
            image = read_image(path)
            refuse_empty(image, patch)
        except ValueError as error:
            if not skip:
                raise ValueError(f"{path}: {error}; or pass --skip-bad-files") from error
            output.console().note(f"left out {path}: {error}")
            skipped += 1
            continue
        images.append(image)
    if not images:
        raise ValueError(f"{folder}: none of its {skipped} images can be used")
    return images, skipped


def _load(path: Path) -> tuple[SSNEncoder, int]:
    """The encoder and the side of its patches."""
    from armillary.neuro.ssn import storage

    encoder = storage.load(path)
    side = storage.read_note(path).get("patch") or round(encoder.n_features_in_**0.5)
    return encoder, int(side)


def _draw(side: int, count: int = LOOKED_AT):
    """Patches of an image, faint ones too: only blank ones are not drawn."""
    import numpy as np

    from armillary.neuro.ssn.patches import draw_patches

    rng = np.random.default_rng(0)
    return lambda image: draw_patches([image], side, count, rng, empty=BLANK)


def _halves(source: Path, side: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Patches of the left and of the right half of an image, which share no pixel; or of a file."""
    if source.suffix.lower() == ".npy":
        x = _patches(source, side, None)
        return x[: len(x) // 2], x[len(x) // 2 :]
    draw = _draw(side, LOOKED_AT // 2)

    def half(right: bool) -> NDArray[np.float64]:
        def cut(image):
            middle = image.shape[1] // 2
            return draw(image[:, middle:] if right else image[:, :middle])

        return _patches(source, side, cut)

    return half(False), half(True)


def _note_contrasts(encoder: SSNEncoder, contrast: NDArray[np.float64]) -> None:
    low, high = encoder.contrast_range
    outside = int(((contrast < low) | (contrast > high)).sum())
    if outside:
        output.console().note(
            f"warning: {outside} of {len(contrast)} patches enter at contrasts outside {low:g} to "
            f"{high:g}, which the encoder learned at"
        )


def _patches(source: Path, side: int, cut) -> NDArray[np.float64]:
    """(n, pixels) patches of a .npy file, or of an image through ``cut``."""
    import numpy as np

    from armillary.neuro.ssn.patches import read_image

    if source.suffix.lower() != ".npy":
        image = read_image(source)
        try:
            return cut(image)
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error
    if not source.is_file():
        raise FileNotFoundError(f"no file {str(source)!r}")
    try:
        found = np.load(source, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"{str(source)!r} is no .npy array of numbers: write it with numpy.save"
        ) from error
    if found.ndim == 3:
        found = found.reshape(len(found), -1)
    if found.ndim != 2 or found.shape[1] != side * side:
        raise ValueError(
            f"{str(source)!r} has the shape {found.shape}: expected (n, {side * side}) or "
            f"(n, {side}, {side}), as the encoder learned"
        )
    if not len(found):
        raise ValueError(f"{str(source)!r} holds no patches: its shape is {found.shape}")
    return _pixels(found, source)


def _pixels(found: NDArray, source: Path) -> NDArray[np.float64]:
    """Patches with unsigned integers scaled to [0, 1], as images are."""
    import numpy as np

    if np.issubdtype(found.dtype, np.unsignedinteger):
        return found / float(np.iinfo(found.dtype).max)
    if np.issubdtype(found.dtype, np.signedinteger):
        if found.size and (found.min() < 0 or found.max() > 255):
            raise ValueError(
                f"{str(source)!r} holds {found.dtype} numbers from {found.min()} to {found.max()}: "
                "expected floats in [0, 1], uint8 or uint16"
            )
        output.console().note(f"{source}: {found.dtype} numbers are taken as 0 to 255 and scaled")
        return found / 255.0
    if not np.issubdtype(found.dtype, np.floating):
        raise ValueError(
            f"{str(source)!r} holds {found.dtype} numbers: expected floats in [0, 1], uint8 or "
            "uint16"
        )
    low, high = (float(found.min()), float(found.max())) if np.isfinite(found).all() else (0.0, 1.0)
    if high - low > 2:
        output.console().note(
            f"warning: {source} holds floats from {low:g} to {high:g}, which are taken as they "
            "are; patches are learned in [0, 1]: bring them to that range, or save uint8"
        )
    return found.astype(np.float64)


def _numbered(columns: list[NDArray[np.float64]]) -> list[list[float]]:
    return [[i, *map(float, row)] for i, row in enumerate(zip(*columns, strict=True))]


def _write_table(path: Path, columns: list[str], rows: list[list[float]]) -> None:
    if path.suffix.lower() == ".json":
        output.write_json(path, [dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.write_csv(path, columns, rows)


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
    try:  # permissions alone do not tell: a folder may belong to the system
        tempfile.TemporaryFile(dir=path.absolute().parent).close()
    except OSError as error:
        raise PermissionError(
            f"-o {str(path)!r}: its folder cannot be written to ({error.strerror})"
        ) from None


def _exit(skipped: int) -> None:
    if skipped:
        output.console().note(f"{skipped} files were left out")
        raise typer.Exit(int(ExitCode.PARTIAL))
