"""A user's own case and her own method, measured beside a method's evidence.

What she brings is measured in experiments of its own, named ``own:<experiment>``: their rows have
fingerprints of their own, nothing of them enters a claim, and no verdict of a claim changes.

- A **contender** is ``function(work, cell) -> {metric: value}`` in a module that Python finds from
  the current folder or among the installed packages, named ``module:function``. It gets the work
  that ours gets. In an experiment whose work it does not know it may answer ``{}``.
- A **case** is a file. A method says how a file becomes a case by a function in its evidence
  module, ``case_from_file(path) -> (experiment id or ids, Case)``. It reads the file's shape and
  raises ValueError, in words for the user, where it cannot use it. The experiment's ``setup`` meets
  that case like any other and reads the file at `armillary.evidence.case_path`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from armillary.evidence.inputs import CASE_VARIABLE, CONTENDER_VARIABLE, Inputs
from armillary.evidence.shapes import (
    OURS,
    Case,
    Cell,
    Claim,
    Condition,
    Contender,
    Experiment,
    Pool,
    ProfileName,
    Stat,
)

PREFIX = "own:"


def experiments(
    module: str, chosen: Iterable[Experiment], profile: ProfileName, inputs: Inputs
) -> list[Experiment]:
    """The experiments that what the user brought asks for.

    Args:
        module: the method's evidence module.
        chosen: the experiments that are concerned.
        profile: the profile.
        inputs: with the user's ``case`` and ``contender``.

    Returns:
        Where there is a case, its experiments with every contender and hers; otherwise each chosen
        experiment with ours and hers. None where she brought nothing.

    Raises:
        ValueError: the method takes no file, or the file or the contender cannot be used.
        FileNotFoundError: there is no such file.
        ImportError: the contender's module cannot be imported.
    """
    if inputs.case is None and inputs.contender is None:
        return []
    hers = None if inputs.contender is None else Contender(
        inputs.contender, function(inputs.contender), required=False
    )  # fmt: skip
    if inputs.case is None:
        found = [_beside(e, profile, None, hers) for e in chosen if e.cases.get(profile)]
        found = [e for e in found if e is not None]
        if not found:
            raise ValueError(
                f"--contender {inputs.contender!r}: no experiment of profile {profile!r} has a "
                "contender to compare it with: choose a larger profile"
            )
        return found
    names, case = _case_of(importlib.import_module(module), inputs.case)
    known = {e.id: e for e in chosen}
    if not any(name in known for name in names):
        raise ValueError(
            f"--case {inputs.case.name!r} belongs to {', '.join(names)}, which is not among what "
            f"is asked for: {', '.join(known)}"
        )
    built = [_beside(known[name], profile, case, hers) for name in names if name in known]
    return [e for e in built if e is not None]


def find(module: str, name: str, profile: ProfileName) -> Experiment:
    """In a worker: the experiment of that name, from what the environment says was brought."""
    case = os.environ.get(CASE_VARIABLE)
    inputs = Inputs(
        case=Path(case) if case else None, contender=os.environ.get(CONTENDER_VARIABLE) or None
    )
    shipped = [
        e for e in importlib.import_module(module).EXPERIMENTS if PREFIX + e.id == name
    ]  # fmt: skip
    return next(e for e in experiments(module, shipped, profile, inputs) if e.id == name)


def _beside(
    experiment: Experiment, profile: ProfileName, case: Case | None, hers: Contender | None
) -> Experiment | None:
    """An experiment with the user's case, with her contender, or with both."""
    ours = next((c for c in experiment.contenders if c.name == OURS), None)
    if ours is None:
        return None
    shipped = (ours,) if case is None else experiment.contenders
    return dataclasses.replace(
        experiment,
        id=PREFIX + experiment.id,
        title=_title(experiment, case, hers),
        cases={profile: experiment.cases[profile] if case is None else (case,)},
        unit=experiment.unit if case is None else "seed",
        contenders=shipped if hers is None else (*shipped, hers),
        claims=(_statement(experiment, case, hers),),
    )


def _title(experiment: Experiment, case: Case | None, hers: Contender | None) -> str:
    about = experiment.title or experiment.id
    if case is None:
        return f"{about}: {hers.name if hers else OURS} beside ours"
    beside = f", with {hers.name}" if hers else ""
    return f"{about}: your case {case.name}{beside}"


def _statement(experiment: Experiment, case: Case | None, hers: Contender | None) -> Claim:
    """What is shown in the place of a claim: ratios, without a bound to meet."""
    directed = [m.name for m in experiment.metrics if m.better != "neither"]
    peers = tuple(c.name for c in experiment.contenders if c.name != OURS)
    if hers is not None:
        ratios = [(metric, hers.name, (OURS,)) for metric in directed]
    else:
        ratios = [(metric, OURS, peers) for metric in directed[:1] if peers]
    if not ratios:
        ratios = [(m.name, OURS, ()) for m in experiment.metrics[:1]]
    conditions = tuple(
        Condition(
            Stat(
                metric,
                of=of,
                over=over,
                form="ratio" if over else "level",
                pool=_pool(experiment, metric) if over else "mean",
            ),
            at_most=math.inf,
        )
        for metric, of, over in ratios
    )
    return Claim(PREFIX + experiment.id, _title(experiment, case, hers), "", conditions)


def _pool(experiment: Experiment, metric: str) -> Pool:
    """How the method's own claims pool ratios of a metric."""
    for claim in experiment.claims:
        for condition in claim.conditions:
            if condition.stat.metric == metric and condition.stat.form == "ratio":
                return condition.stat.pool
    return "ratio_of_means"


def shown(judged: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What `armillary.evidence.judge` says of such an experiment, as figures without a verdict."""
    return [
        {
            **record,
            "verdict": "none",
            "reason": "What you brought, shown by itself: no claim is judged by it.",
            "conditions": [
                {**condition, "status": "none", "tightest": False, "at_most": None}
                for condition in record["conditions"]
            ],
            "own": True,
        }
        for record in judged
    ]


# ---- the case ----------------------------------------------------------------------------------


def _case_of(module: ModuleType, path: Path) -> tuple[tuple[str, ...], Case]:
    """What a method makes of a file, checked."""
    reader = getattr(module, "case_from_file", None)
    if reader is None:
        raise ValueError(
            f"--case {path.name!r}: {module.__name__} does not say how a file becomes a case (it "
            "has no case_from_file)"
        )
    try:
        answer = reader(path)
    except Exception as error:
        raise ValueError(f"--case {path.name!r}: {_one_line(error)}") from error
    fault = f"{module.__name__}.case_from_file must give (experiment ids, Case)"
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Case):
        raise TypeError(f"{fault}, not {answer!r}")
    names = (answer[0],) if isinstance(answer[0], str) else tuple(answer[0])
    known = [e.id for e in module.EXPERIMENTS]
    if strangers := [name for name in names if name not in known]:
        raise TypeError(f"{fault}: {strangers} are not among {', '.join(known)}")
    return names, answer[1]


# ---- the contender -----------------------------------------------------------------------------


def function(name: str) -> Callable[[Any, Cell], Mapping[str, float]]:
    """The function that ``module:function`` names.

    Raises:
        ValueError: it is not of that form, or names nothing that can be called.
        ImportError: the module cannot be imported.
    """
    module, target = _halves(name)
    _see_current_folder()
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a script without a guard may do anything
        raise ImportError(f"--contender {name!r}: {_one_line(error)}") from error
    for part in target.split("."):
        if not hasattr(found, part):
            raise ValueError(f"--contender {name!r}: {module} has no {target!r}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(
            f"--contender {name!r} is a {type(found).__name__}: give a function(work, cell) that "
            "returns {metric: value}"
        )
    return cast("Callable[[Any, Cell], Mapping[str, float]]", found)


def _halves(name: str) -> tuple[str, str]:
    module, colon, target = name.partition(":")
    words = [*module.split("."), *target.split(".")]
    if not colon or not all(word.isidentifier() for word in words):
        raise ValueError(f"--contender {name!r}: give module:function, such as mine:recalibrate")
    return module, target


def _see_current_folder() -> None:
    """Let modules of the current folder be found, after all others."""
    here = os.getcwd()
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or "no message"
    plain = isinstance(error, ValueError | ImportError)
    return text if plain else f"{type(error).__name__}: {text}"


# ---- the fingerprint ---------------------------------------------------------------------------


def digest(inputs: Inputs) -> str:
    """What the rows of these experiments depend on besides: the file, and the contender's code.

    Of a contender in a package every Python file of the package counts, otherwise its one file.
    """
    whole = hashlib.sha256()
    if inputs.case is not None:
        whole.update(hashlib.sha256(inputs.case.read_bytes()).digest())
    if inputs.contender is not None:
        whole.update(inputs.contender.encode())
        for file in sorted(_sources(_halves(inputs.contender)[0])):
            whole.update(f"{file.name}:".encode() + hashlib.sha256(file.read_bytes()).digest())
    return whole.hexdigest()


def _sources(module: str) -> set[Path]:
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None:
        return set()
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if folders:
        return {file for folder in folders for file in folder.rglob("*.py")}
    return {Path(spec.origin)} if spec.origin and Path(spec.origin).is_file() else set()
