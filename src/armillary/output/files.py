"""Files that are either whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its name when the block ends well.

    Yields:
        A path of the same suffix (numpy and pandas choose formats by it). If the block raises,
        the temporary file is removed and ``path`` is as it was.

    Raises:
        FileNotFoundError: the folder of ``path`` does not exist and cannot be made.
        IsADirectoryError: ``path`` is a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {str(target)!r}: it is a folder, give a file name")
    target.parent.mkdir(parents=True, exist_ok=True)
    # A name of at most 255 bytes, whatever the length of the target's.
    handle, name = tempfile.mkstemp(prefix=".armillary-", suffix=target.suffix, dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_bytes(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write bytes whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text whole or not at all, with newlines as given."""
    return write_bytes(path, text.encode("utf-8", errors="surrogatepass"))


def finite(value: Any) -> Any:
    """The value as JSON can hold it: numpy scalars unwrapped, non-finite numbers to None."""
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [finite(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return finite(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    raise TypeError(f"no JSON form for a {type(value).__name__}: {value!r}")


def to_json(value: Any, indent: int | None = 1) -> str:
    """Valid JSON always: NaN and infinities become null."""
    return json.dumps(finite(value), indent=indent, ensure_ascii=False, allow_nan=False)


def write_json(path: str | os.PathLike[str], value: Any) -> Path:
    """Write a value as valid JSON, whole or not at all."""
    return write_text(path, to_json(value) + "\n")


def write_csv(
    path: str | os.PathLike[str], columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> Path:
    """Write rows as CSV, whole or not at all; None becomes an empty field."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return Path(path)
