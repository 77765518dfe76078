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


def fingerprint(slug: str, experiment: Experiment, profile: str, code: str) -> str:
    """A digest of everything that an experiment's rows depend on.

    Args:
        slug: the method.
        experiment: the experiment; its artefacts' keys and its packages' versions enter.
        profile: the profile.
        code: the method's `code_digest`.

    Returns:
        32 hexadecimal digits that change with any of these, with the version of Python, numpy or
        scipy, and with the machine's processor and number of cores.
    """
    facts = {
        "method": slug,
        "experiment": experiment.id,
        "profile": profile,
        "code": code,
        "artefacts": sorted((a.name, a.key) for a in experiment.prepare),
        "versions": versions(experiment.packages),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def code_digest(method: Method) -> str:
    """A digest of the files that a method's evidence runs.

    They are: the method's package but for its card and its command, the shared modules of this
    package that it imports (to any depth, with the data beside them), and the code that measures.
    """
    files: set[Path] = set()
    for folder in _folders(method.package):
        files.update(_files_below(folder))
    spec = _spec(method.evidence_module)
    if spec is not None and spec.origin:
        files.add(Path(spec.origin))
    files = {f for f in files if f.name not in _NOT_EVIDENCE}
    files |= _imported(files, besides=method.package)
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


def _imported(files: Iterable[Path], besides: str) -> set[Path]:
    """Files of this package's shared modules that the given sources import, to any depth.

    Modules of the package ``besides`` are left out.
    """
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file.suffix != ".py":
            continue
        for module in _armillary_imports(file):
            if f"{module}.".startswith(f"{besides}."):
                continue
            fresh = _shared_files(module) - found
            found |= fresh
            waiting.extend(fresh)
    return found


def _shared_files(module: str) -> set[Path]:
    """A module's file, those of the packages above it, and the data of its topmost package.

    The names are looked up in the folder, because asking the import system would import parents.
    """
    parts = module.split(".")[1:]
    folder = Path(str(armillary.__file__)).parent
    top = folder / parts[0]
    files: set[Path] = set()
    for part in parts:
        either = (folder / f"{part}.py", folder / part / "__init__.py")
        files.update(file for file in either if file.is_file())
        folder = folder / part
    if top.is_dir():
        files.update(f for f in _files_below(top) if f.suffix != ".py")
    return files


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
