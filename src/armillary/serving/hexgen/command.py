"""``armillary hexgen``: the method on the user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from armillary import output

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def root() -> None:
    """One line on what it does for a user.

    Example: armillary hexgen run samples.txt
    """


@app.command()
def run(
    samples: Annotated[Path, typer.Argument(help="A text file, one number a line.")],
) -> None:
    """Run the method on a file of samples.

    Example: armillary hexgen run samples.txt
    """
    import numpy as np

    from armillary.serving.hexgen.estimator import Hexgen

    output.console().print(str(Hexgen().fit(np.loadtxt(samples, ndmin=1)).location_))
