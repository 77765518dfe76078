"""The experiments of tango.

The independent unit is the seed (weights and, where they are drawn, graphs) or the fold; cases
(distances, depths, data sets) are fixed settings that a claim speaks of.
"""

from __future__ import annotations

from armillary.evidence.shapes import Experiment
from armillary.graph.tango.evidence_citation import CITATION
from armillary.graph.tango.evidence_flow import FLOW
from armillary.graph.tango.evidence_graphs import MOLECULES, PROPERTIES
from armillary.graph.tango.evidence_time import ATTENTION, COST
from armillary.graph.tango.evidence_transfer import CORRECTED, PARTS, TRANSFER

EXPERIMENTS: tuple[Experiment, ...] = (
    TRANSFER,
    PARTS,
    CORRECTED,
    PROPERTIES,
    CITATION,
    MOLECULES,
    FLOW,
    COST,
    ATTENTION,
)
