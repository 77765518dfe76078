"""The grid that chose each contender's settings, on seed 1000: ``python -m`` this module.

Example: python -m armillary.neuro.spikeinit.tuning --family plain --who ours --who tdbn -o t.csv
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from armillary import output
from armillary.neuro.spikeinit.evidence_networks import (
    CONTENDERS,
    GRID,
    Family,
    build,
    fashion,
    recipe,
)
from armillary.neuro.spikeinit.training import accuracy, train

SEED = 1000
#: Family -> depth, width, side of the images, steps. Residual networks are tuned at half the depth
#: that is reported, all contenders alike.
SIZES: dict[Family, tuple[int, int, int, int]] = {
    "plain": (20, 128, 14, 300),
    "residual": (51, 8, 7, 50),
    "sew": (31, 8, 7, 50),
    "sequence": (10, 64, 8, 200),
}


def main(
    family: Annotated[str, typer.Option(help="plain, residual, sew or sequence.")],
    who: Annotated[list[str], typer.Option(help="Contenders, repeatable.")],
    out: Annotated[Path, typer.Option("-o", help="A .csv table.")],
) -> None:
    """Train every contender at every point of the grid; print and write the accuracies."""
    if family not in get_args(Family):
        raise typer.BadParameter(f"{family!r}: expected one of {', '.join(get_args(Family))}")
    unknown = [name for name in who if name not in CONTENDERS]
    if unknown:
        raise typer.BadParameter(f"{unknown}: expected contenders of {', '.join(CONTENDERS)}")
    kind: Family = family  # pyright: ignore[reportAssignmentType]
    depth, width, side, steps = SIZES[kind]
    data = fashion(SEED, side)
    rows = []
    for name in who:
        for setting in GRID:
            model = build(name, kind, depth, width, data.x, SEED, setting.alpha)
            losses = train(model, data.x, data.y, recipe(setting, steps, 64), SEED)
            found = accuracy(model, data.x_test, data.y_test)
            rows.append([family, name, setting.optimiser, setting.lr, setting.alpha, found])
            output.console().print("\t".join(map(str, [*rows[-1], round(losses[-1], 3)])))
            output.write_csv(
                out, ["family", "contender", "optimiser", "lr", "alpha", "accuracy"], rows
            )


if __name__ == "__main__":
    typer.run(main)
