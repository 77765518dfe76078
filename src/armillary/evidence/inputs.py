"""What a user brings to a run (data, peers), and whether a need is met.

Setups and contenders ask `data_path` and `peer_path`; the values travel to worker processes in
their environment.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from armillary.corpora.registry import EXTERNAL
from armillary.evidence.shapes import Need

DATA_VARIABLE = "ARMILLARY_DATA"
PEERS_VARIABLE = "ARMILLARY_PEERS"
#: Set in worker processes only: what the user brought for this one run.
CASE_VARIABLE = "ARMILLARY_CASE"
CONTENDER_VARIABLE = "ARMILLARY_CONTENDER"


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the user gave.

    Attributes:
        data: folder of data files, or None.
        peers: path of each peer by its name.
        case: a file of the user's own, or None.
        contender: ``module:function`` of her own method, or None.
    """

    data: Path | None = None
    peers: Mapping[str, Path] = dataclasses.field(default_factory=dict)
    case: Path | None = None
    contender: str | None = None

    @classmethod
    def given(
        cls,
        data: str | os.PathLike[str] | None = None,
        peers: Mapping[str, str | os.PathLike[str]] | None = None,
        case: str | os.PathLike[str] | None = None,
        contender: str | None = None,
    ) -> Inputs:
        """From arguments, or from the environment where an argument is None.

        Raises:
            NotADirectoryError: ``data`` is no folder.
            FileNotFoundError: a peer's path or the case does not exist.
        """
        if data is None:
            data = os.environ.get(DATA_VARIABLE) or None
        folder = None if data is None else Path(data).expanduser().absolute()
        if folder is not None and not folder.is_dir():
            raise NotADirectoryError(f"data={str(data)!r} is no folder: give one that exists")
        if peers is None:
            peers = _peers_of_environment()
        found = {name: Path(path).expanduser().absolute() for name, path in (peers or {}).items()}
        for name, path in found.items():
            if not path.exists():
                raise FileNotFoundError(
                    f"peer {name!r}: nothing at {str(path)!r}: give --peer {name}=PATH with a path "
                    "that exists"
                )
        file = None if case is None else Path(case).expanduser().absolute()
        if file is not None and not file.is_file():
            raise FileNotFoundError(f"case={str(case)!r}: no such file")
        return cls(folder, found, file, contender)

    def environment(self) -> dict[str, str]:
        """Variables that carry these inputs to a child process."""
        variables = {PEERS_VARIABLE: json.dumps({n: str(p) for n, p in self.peers.items()})}
        if self.data is not None:
            variables[DATA_VARIABLE] = str(self.data)
        if self.case is not None:
            variables[CASE_VARIABLE] = str(self.case)
        if self.contender is not None:
            variables[CONTENDER_VARIABLE] = self.contender
        return variables

    def labels(self) -> dict[str, str]:
        """What each path is called where the path itself must not be shown."""
        labels = {str(path): f"<peer {name}>" for name, path in self.peers.items()}
        if self.data is not None:
            labels[str(self.data)] = "<data>"
        if self.case is not None:
            labels[str(self.case)] = "<case>"
        return labels

    def missing(self, needs: Iterable[Need]) -> Need | None:
        """The first need that is not met, or None."""
        return next((need for need in needs if not self.has(need)), None)

    def has(self, need: Need) -> bool:
        """Whether a need is met; nothing is imported, downloaded or started but for a GPU's look.

        Raises:
            ValueError: the need's kind is unknown.
        """
        if need.kind == "extra":
            return _importable(need.name)
        if need.kind == "path":
            return need.name in self.peers
        if need.kind == "venv":
            given = self.peers.get(need.name)
            return given is not None or Path(need.name).expanduser().is_dir()
        if need.kind == "data":
            brought = self.data is not None and (self.data / need.name).exists()
            return brought or _installed(need.name)
        if need.kind == "endpoint":
            return bool(os.environ.get(need.name))
        if need.kind == "gpu":
            return _gpu()
        raise ValueError(
            f"need {need.name!r} has kind {need.kind!r}: known are extra, venv, path, data, "
            "endpoint, gpu"
        )


def data_path(name: str) -> Path:
    """The path of a data file below ``--data`` (or ``ARMILLARY_DATA``).

    Raises:
        FileNotFoundError: no folder was given, or it has no such file.
    """
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(f"data {name!r}: give --data DIR or set {DATA_VARIABLE}")
    path = Path(folder).expanduser() / name
    if not path.exists():
        raise FileNotFoundError(f"data {name!r}: not in the folder given with --data")
    return path


def peer_path(name: str) -> Path:
    """The path that was given with ``--peer NAME=PATH``.

    Raises:
        KeyError: it was not given.
    """
    peers = _peers_of_environment()
    if name not in peers:
        raise KeyError(f"peer {name!r}: give --peer {name}=PATH")
    return Path(peers[name])


def case_path() -> Path:
    """The file that was given with ``--case``.

    Raises:
        FileNotFoundError: none was given.
    """
    file = os.environ.get(CASE_VARIABLE)
    if not file:
        raise FileNotFoundError("no case of the user's own: give --case FILE")
    return Path(file)


def _peers_of_environment() -> dict[str, str]:
    text = os.environ.get(PEERS_VARIABLE) or "{}"
    try:
        return {str(name): str(path) for name, path in json.loads(text).items()}
    except (ValueError, AttributeError):
        raise ValueError(
            f'{PEERS_VARIABLE} is no JSON object of paths: give {{"NAME": "PATH"}}, or --peer'
        ) from None


def _importable(module: str) -> bool:
    """Whether a module can be found; only the packages above a dotted name are imported."""
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError, AttributeError):
        return False


@lru_cache(maxsize=1)
def _gpu() -> bool:
    """Whether CUDA works: asked of the driver's tool, then of torch in a process of its own."""
    if shutil.which("nvidia-smi") is None or not _says("nvidia-smi", "-L", expect="GPU"):
        return False
    if not _importable("torch"):
        return True
    question = "import torch; print(torch.cuda.is_available())"
    return _says(sys.executable, "-c", question, expect="True")


def _says(*command: str, expect: str) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0 and expect in done.stdout


def _installed(inside: str) -> bool:
    """Whether a system package has put this file of public data on the machine."""
    return any(
        entry.path == inside and bool(entry.installed) and Path(entry.installed).is_file()
        for entry in EXTERNAL
    )
