"""``armillary doctor``: what is there, what is missing, and the exact command that mends it."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from armillary import __version__, catalog, output, places
from armillary.models import inventory
from armillary.output.files import to_json

app = typer.Typer(rich_markup_mode=None)

#: Extras that are groups of other extras, or tools of those who work on Armillary itself.
_GROUPS = ("all", "peers", "dev", "docs")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the doctor: ``state`` is ``ok``, ``missing`` (optional) or ``broken``."""

    part: str
    state: str
    detail: str
    mend: str = ""


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Name what is installed, what is missing, and the command that mends it.

    Exit code 1 if something that Armillary cannot do without is broken.

    Example: armillary doctor
    """
    findings = [
        *_machine(),
        *_extras(),
        *_methods(),
        _folder("results", places.data_dir()),
        _folder("cache", places.cache_dir()),
        *_models(),
        _data(),
    ]
    console = output.console()
    if as_json:
        console.print(to_json([dataclasses.asdict(finding) for finding in findings]))
    else:
        console.table(
            ("part", "state", "detail", "to mend"),
            [(f.part, f.state, f.detail, f.mend) for f in findings],
        )
    if any(f.state == "broken" for f in findings):
        raise typer.Exit(1)


def _machine() -> list[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    enough = sys.version_info >= (3, 11)
    return [
        Finding("armillary", "ok", f"{__version__} in {Path(__file__).parents[1]}"),
        Finding(
            "python",
            "ok" if enough else "broken",
            f"{python} on {platform.platform()}",
            "" if enough else "install Python 3.11 or newer",
        ),
        Finding("cores", "ok", f"{cores} usable"),
        Finding("memory", "ok", f"{memory:.1f} GiB"),
        _gpu(),
    ]


def _gpu() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding("gpu", "missing", "none seen; nothing here needs one")
    try:
        names = subprocess.run(
            [tool, "--query-gpu=name,memory.total", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        ).stdout.split("\n")
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("gpu", "missing", f"nvidia-smi does not answer: {error}")
    found = "; ".join(name.strip() for name in names if name.strip())
    return Finding("gpu", "ok" if found else "missing", found or "none")


def _requirements() -> dict[str, list[str]]:
    """Distribution names by extra (``""``: the core), as this package's metadata tells them."""
    try:
        lines = importlib.metadata.requires("armillary") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    by_extra: dict[str, list[str]] = {}
    for line in lines:
        name = re.match(r"[A-Za-z0-9._-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", line)
        if name and name.group() != "armillary":
            by_extra.setdefault(extra.group(1) if extra else "", []).append(name.group())
    return by_extra


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extras() -> list[Finding]:
    by_extra = _requirements()
    if not by_extra:
        return [
            Finding(
                "package",
                "missing",
                "armillary runs from source without being installed: extras are not known",
                "pip install -e .",
            )
        ]
    findings = []
    for extra, names in sorted(by_extra.items()):
        if extra in _GROUPS:
            continue
        absent = [name for name in names if _version(name) is None]
        there = ", ".join(f"{name} {_version(name)}" for name in names if name not in absent)
        command = f"pip install 'armillary[{extra}]'" if extra else "pip install armillary"
        if absent:
            state = "missing" if extra else "broken"
            detail = f"without {', '.join(absent)}"
            findings.append(Finding(f"extra {extra}" if extra else "core", state, detail, command))
        else:
            findings.append(Finding(f"extra {extra}" if extra else "core", "ok", there))
    return findings


def _methods() -> list[Finding]:
    findings = []
    for method in catalog.methods():
        absent = method.missing_modules()
        if absent:
            findings.append(
                Finding(
                    method.card.slug,
                    "missing",
                    f"cannot import {', '.join(absent)}",
                    f"pip install 'armillary[{method.card.extra}]'",
                )
            )
        else:
            findings.append(Finding(method.card.slug, "ok", "usable"))
    for failure in catalog.broken():
        findings.append(
            Finding(
                failure.name, "missing", failure.reason, f"pip install --upgrade {failure.source}"
            )
        )
    return findings


def _folder(part: str, folder: Path) -> Finding:
    """Whether the nearest existing folder above can be written."""
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    try:
        if not nearest.is_dir():
            raise NotADirectoryError(20, "Not a directory", str(nearest))
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        reason = error.strerror or "cannot be written"
        return Finding(
            part,
            "broken",
            f"{folder}: {reason}",
            f"export {places.HOME_VARIABLE}=/a/folder/you/can/write",
        )
    free = shutil.disk_usage(nearest).free / 2**30
    return Finding(part, "ok", f"{folder} ({free:.1f} GiB free)")


def _models() -> list[Finding]:
    """Which models packages carry, which are converted, and which one is chosen instead."""
    findings = []
    for shipped in inventory.SHIPPED:
        path = shipped.path()
        if path is None:
            finding = Finding(shipped.name, "missing", "a model", shipped.command)
        else:
            finding = Finding(shipped.name, "ok", str(path))
        findings.append(finding)
    folder = places.cache_dir() / "models"
    visible = folder.glob("[!.]*") if folder.is_dir() else ()
    cached = ", ".join(sorted(entry.name for entry in visible))
    findings.append(Finding("models", "ok", cached or "none cached; converted when first used"))
    if chosen := inventory.chosen():
        detail = f"{inventory.MODEL_VARIABLE}={chosen!r} takes the embedded model's place"
        findings.append(Finding("model", "ok", detail))
    return findings


def _data() -> Finding:
    value = os.environ.get("ARMILLARY_DATA")
    if not value:
        return Finding(
            "data", "missing", "no folder of public data", "export ARMILLARY_DATA=/your/data"
        )
    if not Path(value).is_dir():
        return Finding(
            "data",
            "missing",
            f"ARMILLARY_DATA={value!r} is no folder",
            "export ARMILLARY_DATA=/your/data",
        )
    return Finding("data", "ok", value)
