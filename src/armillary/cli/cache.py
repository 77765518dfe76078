"""``armillary cache``: what is cached, and how to be rid of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from armillary import output, places

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.callback()
def cache() -> None:
    """Show or clear what is cached: all of it can be built again.

    Example: armillary cache list
    """


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def _entries() -> list[Path]:
    folder = places.cache_dir()
    return sorted(folder.iterdir()) if folder.is_dir() else []


@app.command("path")
def show_path() -> None:
    """Print the cache's folder."""
    output.console().print(str(places.cache_dir()))


@app.command("list")
def list_entries() -> None:
    """List what is cached and its size."""
    rows = [(entry.name, f"{_size(entry) / 2**20:.1f} MiB") for entry in _entries()]
    if not rows:
        output.console().note(f"nothing is cached in {places.cache_dir()}")
        return
    output.console().table(("entry", "size"), rows)


@app.command()
def clear(
    name: Annotated[str, typer.Argument(help="One entry; all, if left out.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove one entry of the cache, or all of them.

    Results are not touched: they are in the store, not in the cache.
    """
    entries = [entry for entry in _entries() if not name or entry.name == name]
    if name and not entries:
        known = ", ".join(entry.name for entry in _entries()) or "none"
        raise ValueError(f"no cache entry {name!r}; there are: {known}")
    if not entries:
        output.console().note("nothing is cached")
        return
    total = sum(_size(entry) for entry in entries) / 2**20
    if not yes and not typer.confirm(f"remove {len(entries)} entries, {total:.1f} MiB?"):
        raise typer.Exit(1)
    for entry in entries:
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    output.console().note(f"removed {len(entries)} entries, {total:.1f} MiB")
