"""Fronts that morl-baselines learns in its own environment (``scripts/peers/morl.sh``)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np

from armillary.evidence.inputs import peer_path

VENV = ".venv-morl"


def python_of_peer() -> Path:
    """The interpreter of morl-baselines: ``--peer .venv-morl=PATH``, or ``.venv-morl`` here."""
    try:
        folder = peer_path(VENV)
    except KeyError:
        folder = Path(VENV).absolute()
    return folder / "bin" / "python"


def learned_front(steps: int, gamma: float, seed: int) -> np.ndarray:
    """(n, 3) discounted gold, gem and steps of the policies that GPI-LS found.

    Raises:
        RuntimeError: the other environment's run failed.
    """
    script = Path(__file__).with_name("gpi_ls.py")
    run = subprocess.run(
        [str(python_of_peer()), str(script), str(steps), str(gamma), str(seed)],
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise RuntimeError(f"morl-baselines failed: {run.stderr.strip()[-400:]}")
    return np.array(json.loads(run.stdout.strip().splitlines()[-1]), dtype=float).reshape(-1, 3)
