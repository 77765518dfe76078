"""Costly things that an experiment prepares once: cached by key, built whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from armillary import places
from armillary.evidence.shapes import Artefact
from armillary.output.files import write_json

ARTEFACTS_VARIABLE = "ARMILLARY_ARTEFACTS"
_RECORD = ".artefact.json"


def artefact_path(name: str) -> Path:
    """The folder of a prepared artefact: for setups and contenders of the experiment it belongs to.

    Raises:
        KeyError: the experiment that is running prepares no artefact of that name.
    """
    prepared = json.loads(os.environ.get(ARTEFACTS_VARIABLE) or "{}")
    if name not in prepared:
        raise KeyError(
            f"artefact {name!r} is not prepared here; prepared are {sorted(prepared) or 'none'}"
        )
    return Path(prepared[name])


def folder(slug: str, artefact: Artefact) -> Path:
    """Where an artefact lies, whether or not it is built."""
    digest = hashlib.sha256(artefact.key.encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", artefact.name)[:60]
    label = hashlib.sha256(artefact.name.encode()).hexdigest()[:8]
    return places.cache_dir() / "artefacts" / slug / f"{name}-{label}-{digest}"


def built_seconds(slug: str, artefact: Artefact) -> float | None:
    """Seconds that building took, or None if the artefact is not built."""
    try:
        record = json.loads((folder(slug, artefact) / _RECORD).read_text("utf-8"))
        return float(record["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def scratch(slug: str, artefact: Artefact) -> Path:
    """A fresh empty folder to build an artefact in, on the disk where it will lie."""
    above = folder(slug, artefact).parent
    above.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=".building-", dir=above))


def build(slug: str, artefact: Artefact, into: Path) -> float:
    """Build an artefact in a scratch folder and move it to its place; gives the seconds it took.

    Two builders at once both work; the first to finish wins and the other's copy is left in its
    scratch folder, which the caller removes.
    """
    target = folder(slug, artefact)
    start = time.monotonic()
    artefact.build(into)
    seconds = time.monotonic() - start
    write_json(into / _RECORD, {"name": artefact.name, "seconds": seconds})
    if target.is_dir() and built_seconds(slug, artefact) is None:
        shutil.rmtree(target)
    try:
        into.rename(target)
    except OSError:
        if built_seconds(slug, artefact) is None:
            raise
    return seconds
