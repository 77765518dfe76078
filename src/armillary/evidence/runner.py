"""Run a method's evidence: plan, measure, store, judge."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from armillary import __version__, catalog, output
from armillary.catalog import Method
from armillary.errors import MissingExtra
from armillary.evidence import environment, lock, own
from armillary.evidence.bundle import ROW_COLUMNS, Bundle
from armillary.evidence.execution import Execution
from armillary.evidence.inputs import Inputs
from armillary.evidence.schedule import Plan, Trial, plan
from armillary.evidence.shapes import PROFILES, Experiment, ProfileName, Row
from armillary.evidence.store import Store
from armillary.evidence.worker import FIRST_SECONDS

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run has found.

    Attributes:
        bundle: claims, rows and environment, as the report reads them.
    """

    bundle: Bundle

    @property
    def claim_records(self) -> list[dict[str, Any]]:
        """One mapping a claim, as `armillary.evidence.bundle` describes it."""
        return self.bundle.claims

    @property
    def row_records(self) -> list[dict[str, Any]]:
        """One mapping a metric of a measurement; a measurement without a value has one too."""
        records = []
        for row in self.bundle.rows:
            head = {name: getattr(row, name) for name in ROW_COLUMNS[:-2]}
            for metric, value in row.metrics.items() or [(None, None)]:
                records.append({**head, "metric": metric, "value": value})
        return records

    @property
    def claims(self) -> pd.DataFrame:
        """One line a claim. Needs pandas; `claim_records` does not."""
        return _pandas().DataFrame(self.claim_records)

    @property
    def rows(self) -> pd.DataFrame:
        """One line a metric of a measurement. Needs pandas; `row_records` does not."""
        return _pandas().DataFrame(self.row_records, columns=list(ROW_COLUMNS))

    @property
    def measured(self) -> int:
        """How many measurements gave values."""
        return sum(row.status == "ok" for row in self.bundle.rows)

    @property
    def failed(self) -> list[Row]:
        """Measurements that failed."""
        return [row for row in self.bundle.rows if row.status == "failed"]


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ModuleNotFoundError:
        raise ImportError(
            "Result.claims and Result.rows are pandas data frames: pip install pandas, or use "
            "Result.claim_records and Result.row_records"
        ) from None


def run(
    slug: str,
    profile: str = "quick",
    seed_base: int = 0,
    store: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    claim: str | None = None,
    data: str | os.PathLike[str] | None = None,
    peers: Mapping[str, str | os.PathLike[str]] | None = None,
    progress: bool = True,
    case: str | os.PathLike[str] | None = None,
    contender: str | None = None,
    ray: str | None = None,
) -> Result:
    """Measure and judge the claims of a method on this machine.

    What is stored already under the same code, versions and machine is not measured again, so an
    interrupted run goes on where it was.

    Args:
        slug: the method, as the catalogue names it.
        profile: ``smoke`` (seconds, no verdict), ``quick``, ``full`` or ``long``.
        seed_base: the first seed; at least 0.
        store: path or URL of the store; None: the user's own.
        workers: processes for untimed work, at least 1; None: one a core, at most 4. Results do not
            depend on their number.
        claim: only the experiment of this claim.
        data: folder of data files that do not ship with the package.
        peers: paths of peers that the user has, by name.
        progress: whether to tell on stderr how far it is.
        case: a file of the user's own, shown beside the claims; see `armillary.evidence.own`.
        contender: ``module:function`` of her own method, shown beside ours.
        ray: address of a Ray cluster for untimed work, in the place of ``workers``; ``local``: one
            of this machine's own.

    Returns:
        Claims and rows.

    Raises:
        UnknownMethod: no such slug.
        ValueError: an argument is out of range, or there is no such claim.
        MissingExtra: the method's own packages are not installed.
        StoreUnavailable: the store cannot be opened or written.
        StoreFull: its disk is full.
    """
    request = prepare(slug, profile, seed_base, claim, data, peers, case, contender)
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers}: at least 1")
    if workers is not None and ray is not None:
        raise ValueError("give workers or ray, not both")
    with Store(store) as opened:
        return measure(request, opened, workers, progress, ray)


@dataclasses.dataclass(frozen=True)
class Request:
    """What is asked for, read and checked.

    Attributes:
        method: whose evidence.
        profile: the profile.
        seed_base: the first seed.
        claim: the only claim, or None for all.
        inputs: what the user gave.
        trials: the experiments that are concerned.
    """

    method: Method
    profile: ProfileName
    seed_base: int
    claim: str | None
    inputs: Inputs
    trials: tuple[Trial, ...]

    def command(self, brought: bool = False) -> str:
        """The command that asks for the same; paths stand as placeholders.

        Args:
            brought: with what the user brought of her own.
        """
        words = ["armillary", "bench", self.method.card.slug, "--profile", self.profile]
        if self.seed_base:
            words += ["--seed-base", str(self.seed_base)]
        if self.claim is not None:
            words += ["--claim", self.claim]
        if self.inputs.data is not None and self._needs_data():
            words += ["--data", "DIR"]
        for name in sorted(self.inputs.peers):
            words += ["--peer", f"{name}=PATH"]
        if brought and self.inputs.case is not None:
            words += ["--case", "FILE"]
        if brought and self.inputs.contender is not None:
            words += ["--contender", self.inputs.contender]
        return shlex.join(words)

    def _needs_data(self) -> bool:
        experiments = [trial.experiment for trial in self.trials]
        cases = [c for t in self.trials for c in t.cases]
        contenders = [c for e in experiments for c in e.contenders]
        return any(need.kind == "data" for part in (*cases, *contenders) for need in part.needs)

    def plan(self, store: Store | None) -> Plan:
        """What is still to be measured."""
        return plan(self.trials, store, self.inputs)


def prepare(
    slug: str,
    profile: str = "quick",
    seed_base: int = 0,
    claim: str | None = None,
    data: str | os.PathLike[str] | None = None,
    peers: Mapping[str, str | os.PathLike[str]] | None = None,
    case: str | os.PathLike[str] | None = None,
    contender: str | None = None,
) -> Request:
    """Read a method's experiments and check what is asked of them; see `run`."""
    if profile not in PROFILES:
        raise ValueError(f"profile={profile!r}: choose one of {', '.join(PROFILES)}")
    name: ProfileName = PROFILES[PROFILES.index(profile)]
    if not 0 <= seed_base < 2**62:
        raise ValueError(f"seed_base={seed_base}: at least 0 and below 2**62")
    method = catalog.get(slug)
    inputs = Inputs.given(data, peers, case, contender)
    chosen = experiments(method)
    if claim is not None:
        known = [c.id for e in chosen for c in e.claims]
        if claim not in known:
            raise ValueError(f"claim={claim!r}: {slug} claims {', '.join(known)}")
        chosen = [e for e in chosen if claim in {c.id for c in e.claims}]
    if any(e.timed is not None for e in chosen):
        lock.patience()  # a wrong setting is told before hours of untimed work
    code = environment.code_digest(method)
    with_code = [(e, code) for e in chosen]
    if brought := own.experiments(method.evidence_module, chosen, name, inputs):
        with_code += [(e, f"{code} {own.digest(inputs)}") for e in brought]
    trials = tuple(
        Trial(
            slug, e, name, environment.fingerprint(slug, e, profile, digest),
            tuple(range(seed_base, seed_base + e.seeds.get(profile, 0))),
        )
        for e, digest in with_code
    )  # fmt: skip
    return Request(method, name, seed_base, claim, inputs, trials)


def experiments(method: Method) -> list[Experiment]:
    """A method's experiments.

    Raises:
        MissingExtra: the method's own packages are not installed.
        ImportError: its evidence cannot be imported, whatever it raises.
        ValueError: two experiments, or two claims, share a name.
    """
    if missing := method.missing_modules():
        raise MissingExtra(method.card.slug, method.card.extra, missing[0])
    try:
        found = list(importlib.import_module(method.evidence_module).EXPERIMENTS)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split()) or "no message"
        raise ImportError(
            f"the evidence of {method.card.slug}, of the package {method.source}, cannot be "
            f"imported: {type(error).__name__}: {text}"
        ) from error
    for what, names in (
        ("experiments", [e.id for e in found]),
        ("claims", [c.id for e in found for c in e.claims]),
    ):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"{method.evidence_module}: two {what} are named {twice[0]!r}")
    return found


def default_workers() -> int:
    """One process a usable core, at most four: more would ask for a lot of memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, 4))


def measure(
    request: Request,
    store: Store,
    workers: int | None = None,
    progress: bool = True,
    ray: str | None = None,
) -> Result:
    """Measure what a request still lacks in a store, judge, and store the verdicts."""
    clock = time.monotonic()
    workers = default_workers() if workers is None else workers
    about = describe(request, workers)
    about["cluster"] = None if ray is None else "ray"
    where = {
        t.experiment.id: {"fingerprint": t.fingerprint, "seeds": list(t.seeds)}
        for t in request.trials
    }
    number = store.begin_run(
        request.method.card.slug, request.profile,
        plan=where, environment=about, whole=request.claim is None,
    )  # fmt: skip
    artefact_seconds = _measure_groups(request, store, workers, progress, ray)
    rows = {
        name: store.ordered_rows(name, place, about["experiments"][name])
        for name, place in where.items()
    }
    claims = judged(request, rows, artefact_seconds)
    about["finished"] = _now()
    about["seconds"] = round(time.monotonic() - clock, 3)
    about["artefact_seconds"] = round(artefact_seconds, 3)
    store.finish_run(number, seconds=about["seconds"], environment=about, claims=claims)
    everything = [row for found in rows.values() for row in found]
    return Result(Bundle(request.method.card.slug, request.profile, claims, everything, about))


def _measure_groups(
    request: Request, store: Store, workers: int, progress: bool, ray: str | None
) -> float:
    """Measure the groups of a request's plan; gives the seconds of its artefacts."""
    work = request.plan(store)
    for trial in request.trials:
        absent = [row for whose, row in work.absent if whose is trial]
        if absent:
            store.put(trial.fingerprint, absent)
    slug = request.method.card.slug
    note = _note if progress else _silent
    modules = {slug: request.method.evidence_module}
    cluster = None
    if ray is not None and any(group.timing is None for group in work.groups):
        from armillary.evidence.cluster import Cluster

        cluster = Cluster(ray, workers)
    with Execution(store, modules, request.inputs, workers, note, cluster) as execution:
        groups = execution.run(work.groups)
        for _ in output.progress(groups, slug, len(work.groups), quiet=not progress):
            pass
        return execution.artefact_seconds


def judged(
    request: Request, rows: Mapping[str, Sequence[Row]], artefact_seconds: float
) -> list[dict[str, Any]]:
    """The claims of a request, judged by its rows."""
    from armillary.evidence.verdicts import judge

    slug = request.method.card.slug
    found: list[dict[str, Any]] = []
    for trial in request.trials:
        claims: Sequence[dict[str, Any]] = judge(
            trial.experiment,
            rows[trial.experiment.id],
            request.profile,
            artefact_seconds=artefact_seconds,
            command=request.command(trial.own),
            seed_base=request.seed_base,
        )
        claims = own.shown(claims) if trial.own else claims
        found += [claim | {"method": slug} for claim in claims]
    if request.claim is not None:
        found = [claim for claim in found if claim["claim"] == request.claim or claim.get("own")]
    return found


def describe(request: Request, workers: int) -> dict[str, Any]:
    """The environment of a run, as `armillary.evidence.bundle` stores it."""
    packages = sorted({p for t in request.trials for p in t.experiment.packages})
    timed = [t.experiment.timed for t in request.trials if t.experiment.timed is not None]
    return {
        "method": request.method.card.slug,
        "profile": request.profile,
        "machine": environment.machine(),
        "python": environment.versions()["python"],
        "versions": {"armillary": __version__, **environment.versions(packages)},
        "threads": max((t.threads for t in timed), default=1),
        "workers": workers,
        "busy_seconds": os.environ.get(lock.BUSY_VARIABLE, "60") if timed else None,
        "git_commit": environment.git_commit(request.method.package),
        "seed_base": request.seed_base,
        "seeds": {t.experiment.id: len(t.seeds) for t in request.trials},
        "command": request.command(),
        "started": _now(),
        "finished": None,
        "seconds": None,
        "artefact_seconds": None,
        "experiments": {t.experiment.id: _described(t) for t in request.trials},
    }


def _described(trial: Trial) -> dict[str, Any]:
    """What the names in an experiment's rows mean."""
    experiment = trial.experiment
    metrics = [{"name": m.name, "unit": m.unit, "better": m.better} for m in experiment.metrics]
    if experiment.timed is not None:
        named = {m["name"] for m in metrics}
        extra = [n for n in (*experiment.timed.metrics, FIRST_SECONDS) if n not in named]
        metrics += [{"name": name, "unit": "s", "better": "lower"} for name in extra]
    timed = experiment.timed
    return {
        "title": experiment.title,
        "own": trial.own,
        "unit": experiment.unit,
        "timed": None if timed is None else dataclasses.asdict(timed),
        "metrics": metrics,
        "contenders": [{"name": c.name, "required": c.required} for c in experiment.contenders],
        "cases": [{"name": c.name, "x": dict(c.x)} for c in trial.cases],
        "fingerprint": trial.fingerprint,
    }


def _now() -> str:
    """The time of day for a reader; nothing is ordered by it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _note(text: str) -> None:
    output.console().note(text)


def _silent(text: str) -> None:
    del text
