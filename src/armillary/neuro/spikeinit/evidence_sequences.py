"""Sequences: images that are read a row a time step, where statistics differ from step to step."""

from __future__ import annotations

from armillary.evidence.shapes import Ablation, Case, Claim, Condition, Experiment, Stat
from armillary.neuro.spikeinit.evidence_trained import (
    BATCH_NORMS,
    FASHION,
    METRICS,
    clothes,
    contenders,
)

#: Other initialisations, torch's default among them.
_INITS = ("torch-default", "kaiming", "fluctuation", "ding")


def _scanned(
    depth: int, width: int, steps: int, side: int = 8, rows: int = 10_000, batch: int = 64
) -> Case:
    return Case(
        f"depth={depth} steps={side}",
        x={"depth": depth, "width": width, "steps": steps, "batch": batch, "side": side,
           "rows": rows},
        needs=FASHION,
    )  # fmt: skip


SEQUENCES = Experiment(
    id="sequences",
    title="Fashion-MNIST read a row a time step by networks of 10 layers",
    cases={
        "smoke": [_scanned(3, 16, 3, rows=200, batch=16)],
        "quick": [],
        "full": [_scanned(10, 64, 200)],
        "long": [_scanned(10, 64, 200, side=28)],
    },
    setup=clothes,
    contenders=contenders("sequence", ("ours", "theory-alpha", *_INITS, *BATCH_NORMS)),
    metrics=METRICS,
    claims=(
        Claim(
            id="sequences-match-batch-norm",
            statement="Networks of 10 layers that read images a row a time step are, without "
            "normalisation, at most half a point less accurate than with tdBN or with TEBN, BNTT "
            "or MPBN, which learn weights for each step or normalise each, after as many steps.",
            paper="Reports event data (DVS), where every step differs; no rows of images.",
            conditions=(
                Condition(Stat("accuracy", over=BATCH_NORMS, form="difference"), at_least=-0.5),
            ),
            ablations=(Ablation("theory-alpha", "accuracy", expect="reported"),),
        ),
        Claim(
            id="sequences-beat-other-inits",
            statement="They are at least 2 points more accurate than with torch's default, He's, "
            "the fluctuation-driven or Ding's initialisation, which were not tuned: they run at "
            "ours' setting.",
            paper="Does not report sequences with other initialisations.",
            conditions=(Condition(Stat("accuracy", over=_INITS, form="difference"), at_least=2.0),),
        ),
    ),
    seeds={"smoke": 1, "quick": 3, "full": 3, "long": 3},
    packages=("torch",),
)
