"""The experiments of hexgen.

Fluid capacities steer the planner and are never evidence: what a fleet serves is measured in the
simulator, and the simulator against closed forms (and, in the tests, a twin that takes every step).
The independent unit is the seed (requests, arrivals, random instances).
"""

from __future__ import annotations

from armillary.evidence.shapes import Experiment
from armillary.serving.hexgen.evidence_dynamic import DYNAMIC
from armillary.serving.hexgen.evidence_planner import EXACT, SEARCH
from armillary.serving.hexgen.evidence_queues import QUEUES
from armillary.serving.hexgen.evidence_speed import SPEED
from armillary.serving.hexgen.evidence_split import OVERLAP, SPLIT
from armillary.serving.hexgen.evidence_static import LIST_PRICES, STATIC

EXPERIMENTS: tuple[Experiment, ...] = (
    EXACT,
    SEARCH,
    STATIC,
    LIST_PRICES,
    DYNAMIC,
    QUEUES,
    SPLIT,
    OVERLAP,
    SPEED,
)
