"""Settings of every contender of the evidence, chosen by `tuning` on seeds from 1000 on.

Reported seeds start at 0. The grid is the same for all: two learning rates and two steps (where a
contender has one), and for GPS also its depth, since attention needs no receptive field.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is chosen for one contender.

    Attributes:
        lr: learning rate at the start.
        step: step of a residual or a flow.
        share: one layer for all steps.
        depth: layers; 0: as many as the experiment's course says.
    """

    lr: float = 5e-3
    step: float = 0.5
    share: bool = True
    depth: int = 0


#: Distance 8 of the ring, seeds 1000 and 1001.
TRANSFER: dict[str, Setting] = {
    "ours": Setting(5e-3),
    "gcn": Setting(5e-3),
    "gcn-residual": Setting(5e-3),
    "gcn-virtual-node": Setting(5e-3),
    "gatv2": Setting(5e-3),
    "gcn2": Setting(5e-3),
    "gps": Setting(5e-3, share=False, depth=2),
    "a-dgn": Setting(5e-3),
    "swan": Setting(5e-3),
    "graff": Setting(5e-3),
}
PROPERTIES: dict[str, Setting] = dict(TRANSFER)
CITATION: dict[str, Setting] = dict(TRANSFER)
MOLECULES: dict[str, Setting] = dict(TRANSFER)
