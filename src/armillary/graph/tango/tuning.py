"""How the settings in `tuned` were chosen: the same grid for every contender, on seeds from 1000.

    python -m armillary.graph.tango.tuning transfer

prints, for each contender, the validation error of each setting and the one of the lowest error:
the loss, or on citation networks the share of papers whose class is not named.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Iterator

from armillary.evidence.shapes import Case, Cell
from armillary.graph.tango import evidence_citation, evidence_graphs, evidence_transfer
from armillary.graph.tango.evidence_training import Course, Problem, fitted, validation
from armillary.graph.tango.tuned import Setting

LEARNING_RATES = {
    "transfer": (3e-3, 1e-2),
    "properties": (1e-2, 3e-2),
    "citation": (3e-2, 1e-1),
    "molecules": (1e-2, 3e-2),
}
STEPS = {
    "transfer": (0.25, 0.5, 1.0),
    "properties": (0.5, 1.0),
    "citation": (0.5, 1.0),
    "molecules": (0.5, 1.0),
}
#: Sums of all steps that are tried beside the steps, where networks are reported at many depths.
HORIZONS = {"citation": (1.0, 2.0)}
#: Weight decays that are tried at the best of the rates and steps.
DECAYS = {"citation": (0.0, 1e-2)}
#: Attention needs no layer a hop: its depth is tuned in the place of the step, among depths at
#: which some width gives the wanted number of parameters. One shared layer is tried beside them.
ATTENTION_DEPTHS = {"transfer": (1, 2), "properties": (1, 3), "molecules": (1, 3)}
#: Convolutions that are tried inside ours and the rivals that are built around one.
CONVOLUTIONS = {"properties": ("gcn", "gin"), "molecules": ("gcn", "gin")}
AROUND = ("ours", "gps", "a-dgn")
#: Contenders that have no step.
STEPLESS = ("gcn", "gcn2")
SEEDS = (1000, 1001)


def grid(task: str, name: str) -> Iterator[Setting]:
    """The settings that are tried for a contender."""
    kinds = CONVOLUTIONS.get(task, ("gcn",)) if name in AROUND else ("gcn",)
    rates = LEARNING_RATES[task]
    if name == "gps":
        for lr, depth in itertools.product(rates, (*ATTENTION_DEPTHS[task], 0)):
            for kind in kinds:  # the last depth: one layer, as often as the others' have steps
                yield Setting(lr, share=not depth, depth=depth, convolution=kind)
    else:
        steps = STEPS[task][:1] if name in STEPLESS else STEPS[task]
        for lr, step in itertools.product(rates, steps):
            for kind in kinds:
                yield Setting(lr, step, convolution=kind)
        horizons = () if name in STEPLESS else HORIZONS.get(task, ())
        for lr, horizon in itertools.product(rates, horizons):
            yield Setting(lr, horizon=horizon)


def problem(task: str, seed: int) -> tuple[Problem, Course]:
    """The work of a task at one of the tuning's seeds, with a shorter course than `full`."""
    if task == "transfer":
        case = Case("ring/12", x={"distance": 12, "topology": 0})
        return (
            evidence_transfer.ring(Cell(case, seed, "full")),
            Course(200, 12, width=32, every=5, enough=0.02, memory=0.99),
        )
    if task == "properties":
        case = Case("eccentricity", x={"property": 0, "graphs": 200, "depth": 8})
        return (
            evidence_graphs.property_graphs(Cell(case, seed, "full")),
            Course(30, 8, width=32, every=5),
        )
    if task == "citation":
        case = Case("cora", x={"set": 0, "depth": 8})
        cell = Cell(case, seed, "full")
        return evidence_citation.network(cell), evidence_citation.course(cell)
    if task == "molecules":
        case = Case("solubility", x={"molecules": 2000})
        return (
            evidence_graphs.molecules(Cell(case, seed, "full")),
            Course(20, 4, width=32, every=2),
        )
    raise ValueError(f"task={task!r}: it must be transfer, properties, citation or molecules")


def contenders(task: str) -> tuple[str, ...]:
    experiment = {
        "transfer": evidence_transfer.TRANSFER,
        "properties": evidence_graphs.PROPERTIES,
        "citation": evidence_citation.CITATION,
        "molecules": evidence_graphs.MOLECULES,
    }[task]
    return tuple(c.name for c in experiment.contenders)


def tune(task: str, name: str, seeds: tuple[int, ...] = SEEDS) -> tuple[Setting, list[float]]:
    """The setting of the lowest mean validation error, and the error of each in turn.

    Weight decays, where they are tuned, are tried at the best of the other settings.
    """

    def error(setting: Setting) -> float:
        found = []
        for seed in seeds:
            work, course = problem(task, seed)
            model = fitted(name, work, course, setting, seed)
            found.append(validation(model, work, course))
        return math.fsum(found) / len(found)

    errors = {setting: error(setting) for setting in grid(task, name)}
    first = min(errors, key=errors.__getitem__)
    for decay in DECAYS.get(task, ()):
        setting = dataclasses.replace(first, weight_decay=decay)
        errors[setting] = error(setting)
    return min(errors, key=errors.__getitem__), list(errors.values())


def main(task: str, names: tuple[str, ...] = ()) -> None:
    for name in names or contenders(task):
        best, errors = tune(task, name, SEEDS if task == "transfer" else SEEDS[:1])
        shown = " ".join(f"{error:.4g}" for error in errors)
        sys.stdout.write(f'    "{name}": {best},  # {shown}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], tuple(sys.argv[2:]))
