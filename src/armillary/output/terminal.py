"""Words, tables and progress bars: rich on a terminal, plain text in a pipe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO, TypeVar

T = TypeVar("T")


def _encodable(text: str, stream: TextIO) -> str:
    """Text that the stream's encoding can carry (``?`` for what it cannot)."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, errors="replace").decode(encoding, errors="replace")


class Console:
    """Prints results on stdout and remarks on stderr.

    Args:
        quiet: print results only.
        verbose: print remarks of detail too.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False) -> None:
        self.quiet, self.verbose = quiet, verbose

    @property
    def is_terminal(self) -> bool:
        return sys.stdout.isatty()

    def print(self, text: str = "") -> None:
        """A result, on stdout."""
        sys.stdout.write(_encodable(text, sys.stdout) + "\n")

    def note(self, text: str) -> None:
        """A remark, on stderr, unless quiet."""
        if not self.quiet:
            sys.stderr.write(_encodable(text, sys.stderr) + "\n")

    def detail(self, text: str) -> None:
        """A remark for those who asked for more."""
        if self.verbose and not self.quiet:
            sys.stderr.write(_encodable(text, sys.stderr) + "\n")

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = ""
    ) -> None:
        """A table: boxed and fitted to the width on a terminal, tab-separated in a pipe."""
        body = [["" if cell is None else str(cell) for cell in row] for row in rows]
        if not self.is_terminal:
            for line in [list(columns), *body]:
                self.print("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in line))
            return
        from rich.console import Console as RichConsole
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title or None, title_justify="left", show_lines=False)
        for name in columns:
            table.add_column(name, overflow="fold")
        for line in body:
            table.add_row(*(Text(_encodable(cell, sys.stdout)) for cell in line))
        RichConsole(file=sys.stdout).print(table)


_console = Console()


def configure(*, quiet: bool, verbose: bool) -> Console:
    """Set the console of this process (the command line does, from its options)."""
    global _console
    _console = Console(quiet=quiet, verbose=verbose)
    return _console


def console() -> Console:
    """The console of this process."""
    return _console


def progress(
    items: Iterable[T], description: str, total: int | None = None, *, quiet: bool = False
) -> Iterator[T]:
    """Iterate with a progress bar on stderr once the work has lasted two seconds.

    In a pipe, one plain line every 30 seconds takes the bar's place; ``ARMILLARY_QUIET`` silences
    both.
    """
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # pyright: ignore[reportArgumentType]
    if quiet or _console.quiet or os.environ.get("ARMILLARY_QUIET"):
        yield from items
        return
    if sys.stderr.isatty():
        yield from _bar(items, description, total)
        return
    start = last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - last > 30:
            last = now
            of = f"/{total}" if total is not None else ""
            sys.stderr.write(f"{description}: {done}{of} after {now - start:.0f} s\n")
            sys.stderr.flush()
        yield item


def _bar(items: Iterable[T], description: str, total: int | None) -> Iterator[T]:
    from rich.console import Console as RichConsole
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=RichConsole(file=sys.stderr),
        transient=True,
    )
    task = bar.add_task(description, total=total)
    start = time.monotonic()
    shown = False
    try:
        for item in items:
            yield item
            bar.advance(task)
            if not shown and time.monotonic() - start > 2:
                bar.start()
                shown = True
    finally:
        if shown:
            bar.stop()
