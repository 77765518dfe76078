"""``armillary report``: all evidence as a static site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from armillary import catalog, output
from armillary.errors import ExitCode

if TYPE_CHECKING:
    from armillary.evidence.bundle import Bundle

app = typer.Typer(rich_markup_mode=None)


@app.command()
def report(
    slugs: Annotated[
        list[str] | None, typer.Argument(metavar="[SLUG]...", help="Only these methods.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The site's folder.")] = (
        Path("armillary-report")
    ),
    store: Annotated[
        str | None, typer.Option(help="Path or URL of the store; the user's own if left out.")
    ] = None,
    bundle: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="A folder of evidence to show as well; repeatable."),
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    serve: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            metavar="PORT",
            help="Serve it on 127.0.0.1 until Ctrl-C; 0: any port.",
        ),
    ] = None,
) -> None:
    """Build the static report of all evidence: what came with Armillary and your own runs.

    The site needs no network and no server: it can be opened, sent or published as a folder.

    Example: armillary report --open
    """
    from armillary.report import build, open_site

    console = output.console()
    slugs = list(dict.fromkeys(slugs or []))
    bundles = [*_committed(slugs), *_own(store), *_given(bundle or [])]
    index = build(bundles, out, slugs=slugs)
    console.print(str(index))
    if serve is not None:
        _serve(index.parent, serve, open_it)
    elif open_it and not open_site(index.parent):
        console.note("no browser was found: open that file yourself, or use --serve 0")


def _committed(slugs: Sequence[str]) -> list[Bundle]:
    """The evidence that ships with the package, of the given methods or of all."""
    from armillary.evidence.bundle import committed

    names = slugs or [method.card.slug for method in catalog.methods()]
    found = (committed(slug) for slug in names)
    return [bundle for bundle in found if bundle is not None]


def _own(store: str | None) -> list[Bundle]:
    """The user's own runs; none when there is no store yet and none was asked for."""
    from armillary.evidence.store import Store

    try:
        with Store(store, read_only=True) as opened:
            return list(opened.bundles())
    except FileNotFoundError:
        if store is not None:
            raise
        output.console().detail("no run of your own is stored yet")
        return []


def _given(folders: Sequence[Path]) -> list[Bundle]:
    from armillary.evidence.bundle import Bundle

    return [Bundle.read(folder) for folder in folders]


def _serve(site: Path, port: int, open_it: bool) -> None:
    """Serve until interrupted; the address goes to stdout so that scripts can read it."""
    import sys
    import webbrowser

    from armillary.report import Server

    console = output.console()
    with Server(site, port) as server:
        console.print(server.url)
        sys.stdout.flush()
        console.note("Ctrl-C stops it")
        if open_it:
            webbrowser.open(server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None
