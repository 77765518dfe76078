"""Checksums of large files, computed once for each state of a file.

What was computed is remembered in ``checksums.json`` of the cache folder, under the file's path,
size, time of change and inode. A file that is written anew has another time, and is read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from armillary import places
from armillary.output.files import write_json


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, read from the disk (64 hexadecimal digits)."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, read from the disk only if the file changed since the last time.

    Where the cache folder cannot be written the sum is computed each time.

    Raises:
        FileNotFoundError: there is no such file.
    """
    resolved = Path(path).resolve()
    before = _state(resolved)
    memory = places.cache_dir() / "checksums.json"
    known = _read(memory)
    entry = known.get(str(resolved))
    if isinstance(entry, dict) and entry.get("state") == before:
        return str(entry.get("sha256"))
    digest = sha256(resolved)
    if _state(resolved) == before:
        with contextlib.suppress(OSError):
            write_json(
                memory, {**_read(memory), str(resolved): {"state": before, "sha256": digest}}
            )
    return digest


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _read(memory: Path) -> dict[str, object]:
    try:
        known = json.loads(memory.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
