"""``armillary list``: all methods."""

from __future__ import annotations

from typing import Annotated

import typer

from armillary import catalog, output
from armillary.output.files import to_json

app = typer.Typer(rich_markup_mode=None)


@app.command()
def list_methods(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
    field: Annotated[str, typer.Option(help="Only methods of this field.")] = "",
) -> None:
    """List all methods, one a line.

    Example: armillary list --field uncertainty
    """
    if field and field not in catalog.FIELDS:
        raise ValueError(f"--field {field!r}: there are {', '.join(sorted(catalog.FIELDS))}")
    console = output.console()
    methods = [m for m in catalog.methods() if not field or m.card.field == field]
    if as_json:
        console.print(
            to_json(
                [
                    {
                        "slug": m.card.slug,
                        "field": m.card.field,
                        "title": m.card.title,
                        "extra": m.card.extra,
                        "installed": m.installed,
                    }
                    for m in methods
                ]
            )
        )
    else:
        rows = [
            (m.card.slug, m.card.field, "yes" if m.installed else f"[{m.card.extra}]", m.card.gift)
            for m in methods
        ]
        console.table(("method", "field", "installed", "gift"), rows)
    for failure in catalog.broken():
        console.note(f"left out: {failure.name} of {failure.source}: {failure.reason}")
