"""Claims, experiments, trials, statistics, the runner and the store.

A method states experiments in its ``evidence.py``; everything else is computed here::

    from armillary import evidence

    result = evidence.run("recalibration", profile="quick")
    result.claims      # one line a claim: verdict, estimate, interval
    result.rows        # one line a measurement
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.evidence.artefacts import artefact_path as artefact_path
    from armillary.evidence.bundle import Bundle as Bundle
    from armillary.evidence.inputs import case_path as case_path
    from armillary.evidence.inputs import data_path as data_path
    from armillary.evidence.inputs import peer_path as peer_path
    from armillary.evidence.runner import run as run
    from armillary.evidence.shapes import Ablation as Ablation
    from armillary.evidence.shapes import Artefact as Artefact
    from armillary.evidence.shapes import Case as Case
    from armillary.evidence.shapes import Cell as Cell
    from armillary.evidence.shapes import Claim as Claim
    from armillary.evidence.shapes import Condition as Condition
    from armillary.evidence.shapes import Contender as Contender
    from armillary.evidence.shapes import Experiment as Experiment
    from armillary.evidence.shapes import Metric as Metric
    from armillary.evidence.shapes import Need as Need
    from armillary.evidence.shapes import Row as Row
    from armillary.evidence.shapes import Stat as Stat
    from armillary.evidence.shapes import Timing as Timing
    from armillary.evidence.sink import consume as consume
    from armillary.evidence.store import Store as Store
    from armillary.evidence.table import Table as Table
    from armillary.evidence.verdicts import judge as judge

_HOMES = {
    **dict.fromkeys(
        (
            "Ablation", "Artefact", "Case", "Cell", "Claim", "Condition", "Contender",
            "Experiment", "Metric", "Need", "Row", "Stat", "Timing",
        ),
        "shapes",
    ),
    "Bundle": "bundle",
    "artefact_path": "artefacts",
    "consume": "sink",
    "case_path": "inputs",
    "data_path": "inputs",
    "peer_path": "inputs",
    "Store": "store",
    "Table": "table",
    "judge": "verdicts",
    "run": "runner",
}  # fmt: skip

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES)
