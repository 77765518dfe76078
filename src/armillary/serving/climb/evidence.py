"""The experiments of climb.

`evidence_simulated` has the cliff in simulated time, a rare adapter, and what simulating costs;
`evidence_ingress` what the ingress does and costs over HTTP. The independent unit is the seed: it
draws traffic anew.
"""

from __future__ import annotations

from armillary.evidence.shapes import Experiment
from armillary.serving.climb.evidence_ingress import MEMORY, OVERHEAD, THROUGHPUT, UNASKED
from armillary.serving.climb.evidence_simulated import CLIFF, RARE, SPEED

EXPERIMENTS: tuple[Experiment, ...] = (
    CLIFF,
    RARE,
    UNASKED,
    MEMORY,
    SPEED,
    OVERHEAD,
    THROUGHPUT,
)
