"""What a method states: claims, and the experiments that can refute them.

The shapes know no method. An experiment turns (case, seed) into *work*, gives the same work to
every contender, and each contender answers with metrics. A claim reads those metrics through
statistics and holds, or does not. Everything else (order, seeds, isolation, failures, storage,
intervals, verdicts, pages) is computed by the machinery.

The contender named ``"ours"`` is the method itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from armillary.evidence.table import Table

OURS = "ours"

ProfileName = Literal["smoke", "quick", "full", "long"]
PROFILES: tuple[ProfileName, ...] = ("smoke", "quick", "full", "long")

Better = Literal["lower", "higher", "neither"]
Form = Literal["level", "ratio", "difference", "slope"]
Pool = Literal["mean", "geomean", "ratio_of_means", "median", "max", "min"]
Unit = Literal["case", "seed"]


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclasses.dataclass(frozen=True)
class Need:
    """Something that must be present: ``hint`` is the exact command that brings it.

    Attributes:
        kind: ``extra`` (a module importable), ``venv`` (a peer's own environment), ``path`` (a file
            given by ``--peer NAME=PATH``), ``data`` (a file under ``--data``), ``endpoint``,
            ``gpu``.
        name: the module, peer, file or URL variable.
        hint: what to type to have it.
    """

    kind: Literal["extra", "venv", "path", "data", "endpoint", "gpu"]
    name: str
    hint: str


@dataclasses.dataclass(frozen=True)
class Case:
    """One setting of an experiment; ``x`` holds its covariates (n, depth, contrast, …)."""

    name: str
    x: Mapping[str, float] = dataclasses.field(default_factory=dict)
    needs: tuple[Need, ...] = ()


@dataclasses.dataclass(frozen=True)
class Cell:
    """One (case, seed) of a run. All randomness of setup and contenders comes from ``seed``."""

    case: Case
    seed: int
    profile: ProfileName
    threads: int = 1


@dataclasses.dataclass(frozen=True)
class Contender:
    """Someone who does the work: ours, a peer, or an ablation of ours.

    ``run(work, cell)`` returns metrics; what it raises is stored as its failure, and the others go
    on. A peer that is not ``required`` may be absent without changing a verdict.
    """

    name: str
    run: Callable[[Any, Cell], Mapping[str, float]]
    needs: tuple[Need, ...] = ()
    required: bool = True


@dataclasses.dataclass(frozen=True)
class Metric:
    """A number that contenders report."""

    name: str
    unit: str = ""
    better: Better = "lower"


@dataclasses.dataclass(frozen=True)
class Timing:
    """How a timed experiment is measured.

    Each (case, seed) runs in a fresh process with ``threads`` set before any import, after
    ``warmups`` unrecorded runs of every contender; contenders then alternate (ABBA…) for
    ``repeats`` runs each, and a cell's value is the median. ``metrics`` are those that are times:
    ``"seconds"`` is measured around ``run`` unless the contender reports it itself.
    """

    metrics: tuple[str, ...] = ("seconds",)
    warmups: int = 1
    repeats: int = 7
    threads: int = 1


@dataclasses.dataclass(frozen=True)
class Artefact:
    """Something costly that is prepared once: cached under ``key`` and timed apart.

    ``build(directory)`` writes its files into an empty directory; ``artefact_path(name)`` of the
    runner gives that directory to setups and contenders, in the profiles that ask for it.
    """

    name: str
    build: Callable[[Any], None]
    key: str
    max_seconds: float
    profiles: tuple[ProfileName, ...] = PROFILES


@dataclasses.dataclass(frozen=True)
class Stat:
    """A statistic of an experiment's table.

    Attributes:
        metric: which metric it reads.
        of: whose.
        over: the contenders it is compared with, one comparison each (``ratio``, ``difference``).
        form: ``level`` (of alone), ``ratio`` (of / peer), ``difference`` (of − peer), ``slope``
            (of the metric against the covariate ``along``, both in logarithms).
        pool: how cells become one number.
        where: which cases count; None: all.
        along: the covariate of a slope.
        fn: any other statistic of the table, resampled by unit; overrides the fields above.
        within: the least and the largest value that an ``fn`` can take: its interval is cut there.
    """

    metric: str = ""
    of: str = OURS
    over: tuple[str, ...] = ()
    form: Form = "level"
    pool: Pool = "mean"
    where: Callable[[Case], bool] | None = None
    along: str = ""
    fn: Callable[[Table], float | None] | None = None
    within: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.fn is not None:
            return
        _check(bool(self.metric), "Stat needs a metric (or fn)")
        compared = self.form in ("ratio", "difference")
        _check(
            bool(self.over) == compared,
            f"Stat({self.metric!r}, form={self.form!r}): `over` belongs to ratio and difference",
        )
        _check(
            bool(self.along) == (self.form == "slope"),
            f"Stat({self.metric!r}, form={self.form!r}): `along` belongs to slope",
        )


@dataclasses.dataclass(frozen=True)
class Condition:
    """What a statistic must satisfy: at least one bound; both make a band.

    ``every`` means that each single cell must satisfy it: then there is no interval.
    """

    stat: Stat
    at_most: float | None = None
    at_least: float | None = None
    every: bool = False

    def __post_init__(self) -> None:
        _check(
            self.at_most is not None or self.at_least is not None,
            f"Condition on {self.stat.metric!r} needs at_most or at_least",
        )
        _check(
            not (self.every and self.stat.form == "slope"),
            "a slope has no value in a single cell: every=True does not apply",
        )


@dataclasses.dataclass(frozen=True)
class Ablation:
    """A contender that lacks one part of ours. It warns beside the verdict when it does not hurt.

    Attributes:
        name: the contender's name.
        metric: what should get worse.
        margin: by how much at least, in units of the metric's ratio (0.02 = 2 %) for metrics whose
            better direction is lower or higher.
        expect: ``hurts``, or ``reported`` for one that need not.
        where: which cases count.
    """

    name: str
    metric: str
    margin: float = 0.0
    expect: Literal["hurts", "reported"] = "hurts"
    where: Callable[[Case], bool] | None = None


@dataclasses.dataclass(frozen=True)
class Claim:
    """A sentence that the experiment can refute.

    Attributes:
        id: unique within the method.
        statement: what is claimed, in words a user understands, with its figure.
        paper: what the paper reports, or how its claim differs; never mixed with ours.
        conditions: all must be met.
        ablations: parts that should matter.
    """

    id: str
    statement: str
    paper: str
    conditions: tuple[Condition, ...]
    ablations: tuple[Ablation, ...] = ()


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Cases, the work of each, those who do it, and the claims that read the outcome.

    Attributes:
        id: unique within the method.
        cases: the cases of each profile (a profile that is missing or empty runs nothing).
        setup: ``setup(cell) -> work``, deterministic from the cell.
        contenders: ours first by custom.
        metrics: every metric that a contender may report.
        claims: what is judged.
        seeds: number of seeds a profile.
        unit: the independent unit of the statistics; the other factor is averaged inside it.
        timed: how it is timed, or None for untimed work.
        prepare: artefacts that must be ready before.
        packages: distributions whose versions matter to the result.
        title: a short heading for pages.
        max_seconds: limit for one (case, seed) group; past it the contender that is running fails
            with a time-out, and the rest start afresh with the whole limit.
    """

    id: str
    cases: Mapping[str, Sequence[Case]]
    setup: Callable[[Cell], Any]
    contenders: tuple[Contender, ...]
    metrics: tuple[Metric, ...]
    claims: tuple[Claim, ...]
    seeds: Mapping[str, int]
    unit: Unit = "seed"
    timed: Timing | None = None
    prepare: tuple[Artefact, ...] = ()
    packages: tuple[str, ...] = ()
    title: str = ""
    max_seconds: float = 900.0

    def __post_init__(self) -> None:
        names = [c.name for c in self.contenders]
        _check(
            len(set(names)) == len(names), f"experiment {self.id!r}: two contenders share a name"
        )
        metrics = {m.name for m in self.metrics}
        for profile, cases in self.cases.items():
            _check(profile in PROFILES, f"experiment {self.id!r}: no profile {profile!r}")
            labels = [c.name for c in cases]
            _check(
                len(set(labels)) == len(labels),
                f"experiment {self.id!r}, profile {profile!r}: two cases share a name",
            )
        for claim in self.claims:
            used = [(c.stat.metric, (c.stat.of, *c.stat.over)) for c in claim.conditions]
            used = [
                (m, who)
                for (m, who), c in zip(used, claim.conditions, strict=True)
                if c.stat.fn is None
            ]
            used += [(a.metric, (a.name,)) for a in claim.ablations]
            for metric, who in used:
                _check(metric in metrics, f"claim {claim.id!r} reads unknown metric {metric!r}")
                for name in who:
                    _check(name in names, f"claim {claim.id!r} names unknown contender {name!r}")

    def metric(self, name: str) -> Metric:
        return next(m for m in self.metrics if m.name == name)


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement: a contender in a cell, once.

    Attributes:
        status: ``ok``, ``failed`` (the contender raised, timed out, died, or gave a non-finite
            value) or ``not run`` (something it needs is absent, or the machine was busy).
        reason: why it is not ``ok``: an error scrubbed of paths and secrets, or the hint.
        kind: of a failure: the exception's type, ``"nan"``, ``"inf"``, ``"timeout"``, ``"died"``;
            of a ``not run``: the need's kind or ``"busy"``.
        metrics: finite values only.
    """

    method: str
    experiment: str
    profile: str
    case: str
    seed: int
    contender: str
    repeat: int = 0
    status: Literal["ok", "failed", "not run"] = "ok"
    kind: str = ""
    reason: str = ""
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
