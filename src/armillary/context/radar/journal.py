"""Answers that are written as they come, so that an abort loses none and a later run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from armillary import output


class Journal:
    """JSON lines beside a file that is not finished yet; each is on disk before the next is made.

    Use it in a ``with`` block: an error or Ctrl-C in it keeps the journal and says so.

    Args:
        out: the file that it becomes part of; the journal is ``out`` with ``.partial`` added.
        keep: whether lines of an earlier run are taken up, or it starts empty.

    Raises:
        ValueError: the journal of an earlier run cannot be read.
    """

    def __init__(self, out: Path, *, keep: bool = True) -> None:
        self.path = out.with_name(out.name + ".partial")
        if self.path.is_dir() or out.is_dir():
            raise IsADirectoryError(f"cannot write {str(out)!r}: it is a folder, give a file name")
        out.parent.mkdir(parents=True, exist_ok=True)
        self.lines: list[dict[str, Any]] = _whole_lines(self.path) if keep else []
        whole = "".join(_line(line) for line in self.lines)
        self._file = self.path.open("w", encoding="utf-8")
        self._write(whole)

    def add(self, line: dict[str, Any]) -> None:
        """Append a line."""
        self.lines.append(line)
        self._write(_line(line))

    def finish(self, out: Path) -> None:
        """The journal takes the name of the file, at once."""
        os.fsync(self._file.fileno())
        self._file.close()
        self.path.replace(out)

    def drop(self) -> None:
        """The journal is not needed any longer."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            return
        self._file.close()
        if not self.lines:
            self.path.unlink(missing_ok=True)
            return
        output.console().note(
            f"{len(self.lines)} answers so far are in {self.path}; the same command goes on there"
        )

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()


def _line(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a journal but for a torn last one."""
    if not path.is_file():
        return []
    found = []
    texts = path.read_bytes().split(b"\n")
    for number, text in enumerate(texts[:-1], start=1):
        try:
            found.append(json.loads(text))
        except ValueError:
            raise ValueError(
                f"{str(path)!r}, line {number} is no JSON: remove the file to start anew"
            ) from None
    return found
