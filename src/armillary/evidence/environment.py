"""What a run depends on: machine, versions, code, and the fingerprint made of them."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import armillary
from armillary.catalog import Method
from armillary.evidence.shapes import Experiment

#: Parts of this package that no measured value depends on; the code that times contenders
#: (`_MEASURES`) is hashed by name instead.
_NEUTRAL = ("evidence", "cli", "report", "output", "catalog", "errors", "places", "__main__")
_MEASURES = ("worker.py", "sink.py")
_NOT_EVIDENCE = ("card.py", "command.py")


def machine() -> dict[str, Any]:
    """The processor's model, cores, memory (GiB) and operating system; no host name."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_gib": _memory_gib(),
        "os": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
    }


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown"


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Versions of Python, numpy, scipy and the given distributions; ``absent`` where not there."""
    found = {"python": platform.python_version()}
    for name in ("numpy", "scipy", *packages):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def git_commit(package: str) -> str | None:
    """The commit of the checkout that holds a package (``+`` appended if changed), or None."""
    folder = next(iter(_folders(package)), None)
    if folder is None:
        return None
    try:
        git = ["git", "-C", str(folder)]
        done = subprocess.run(
            [*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10, check=True
        )
        tracked = subprocess.run(
            [*git, "ls-files", "."], capture_output=True, text=True, timeout=10, check=True
        )
        if not tracked.stdout:  # installed into someone else's checkout
            return None
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() + ("+" if changed.stdout.strip() else "")


def fingerprint(method: Method, experiment: Experiment, profile: str) -> str:
    """A digest of everything that an experiment's rows depend on.

    It covers the files of the method's package (but for its card and its command), the modules of
    this package that those import, the code that measures, the artefacts' keys, the profile, the
    versions that matter, and the machine's processor and cores.
    """
    facts = {
        "method": method.card.slug,
        "experiment": experiment.id,
        "profile": profile,
        "code": code_digest(method),
        "artefacts": sorted((a.name, a.key) for a in experiment.prepare),
        "versions": versions(experiment.packages),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def code_digest(method: Method) -> str:
    """A digest of the files that a method's evidence runs."""
    files: set[Path] = set()
    for folder in _folders(method.package):
        files.update(_files_below(folder))
    files.update(_module_files(method.evidence_module))
    files = {f for f in files if f.name not in _NOT_EVIDENCE}
    files |= _imported(files)
    files.update(Path(__file__).with_name(name) for name in _MEASURES)
    whole = hashlib.sha256()
    for digest in sorted(_digest(file) for file in files):
        whole.update(digest.encode())
    return whole.hexdigest()


def _digest(file: Path) -> str:
    """Name and content; the folder is left out, so that a checkout and a wheel agree."""
    content = hashlib.sha256(file.read_bytes()).hexdigest()
    return f"{file.parent.name}/{file.name}:{content}"


def _files_below(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".pyc":
            yield file


def _spec(module: str) -> Any:
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None


def _folders(module: str) -> list[Path]:
    spec = _spec(module)
    if spec is None:
        return []
    return [Path(p) for p in spec.submodule_search_locations or ()]


def _module_files(module: str) -> list[Path]:
    """The files of a module; of a package every file below it (its data belong to it)."""
    spec = _spec(module)
    if spec is None:
        return []
    if spec.submodule_search_locations and module.count(".") >= 1:
        return [f for folder in spec.submodule_search_locations for f in _files_below(Path(folder))]
    return [Path(spec.origin)] if spec.origin and Path(spec.origin).is_file() else []


def _imported(files: Iterable[Path]) -> set[Path]:
    """Files of this package's shared modules that the given sources import, to any depth."""
    found: set[Path] = set()
    seen: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file.suffix != ".py":
            continue
        for module in _armillary_imports(file):
            if module in seen:
                continue
            seen.add(module)
            fresh = [f for f in _module_files(module) if f not in found]
            found.update(fresh)
            waiting.extend(fresh)
    return found


def _armillary_imports(file: Path) -> Iterator[str]:
    """Absolute names of this package's floor-1 modules that a source file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == armillary.__name__ and len(parts) > 1 and parts[1] not in _NEUTRAL:
                yield name
