"""``armillary info``: one method in full."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from armillary import catalog, output
from armillary.output.files import to_json

app = typer.Typer(rich_markup_mode=None)


@app.command()
def info(
    slug: Annotated[str, typer.Argument(help="A method, as `armillary list` names it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show what a method gives, where it comes from, and how its claims stand.

    Example: armillary info recalibration
    """
    from armillary.evidence import bundle

    method = catalog.get(slug)
    found = bundle.committed(slug)
    claims: list[dict[str, Any]] = found.claims if found else []
    if as_json:
        output.console().print(to_json(_record(method, claims)))
        return
    _show(method, claims)


def _record(method: catalog.Method, claims: list[dict[str, Any]]) -> dict[str, Any]:
    card = method.card
    return {
        "slug": card.slug,
        "field": card.field,
        "title": card.title,
        "gift": card.gift,
        "paper": {
            "title": card.paper.title,
            "authors": card.paper.authors,
            "venue": card.paper.venue,
            "url": card.paper.url,
        },
        "package": method.package,
        "extra": card.extra,
        "installed": method.installed,
        "claims": [
            {"id": claim["claim"], "verdict": claim["verdict"], "statement": claim["statement"]}
            for claim in claims
        ]
        or [{"id": claim, "verdict": None, "statement": None} for claim in card.claims],
    }


def _show(method: catalog.Method, claims: list[dict[str, Any]]) -> None:
    console, card = output.console(), method.card
    console.print(f"{card.slug}: {card.title}")
    console.print(card.gift)
    console.print()
    console.print(f"field     {card.field}: {catalog.FIELDS.get(card.field, '')}")
    console.print(f"paper     {card.paper.title}. {card.paper.authors}. {card.paper.venue}")
    if card.paper.url:
        console.print(f"          {card.paper.url}")
    console.print(f"import    {method.package}")
    console.print(f"command   armillary {card.slug} --help")
    if method.installed:
        console.print("installed yes")
    else:
        console.print(f"installed no: pip install 'armillary[{card.extra}]'")
    console.print()
    if not claims:
        console.print(f"claims (not measured yet): {', '.join(card.claims)}")
        console.print(f"measure   armillary bench {card.slug} --profile quick")
        return
    console.print(f"claims, as committed with the package ({claims[0]['profile']} profile):")
    console.table(
        ("claim", "verdict", "statement"),
        [(c["claim"], c["verdict"], c["statement"]) for c in claims],
    )
