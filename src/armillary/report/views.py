"""What pages show, worked out before any of it is markup.

A *run* is one bundle with its label; a *result* is one claim in one run. A claim's committed
result and the user's own stand apart: nothing here averages or merges them.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from armillary.catalog import FIELDS, Card
from armillary.evidence.bundle import Bundle
from armillary.evidence.shapes import OURS, PROFILES
from armillary.report import formats, summaries
from armillary.report.formats import real

#: Every state in which a claim can be shown, in the order of the page, with its meaning.
STATES: dict[str, str] = {
    "holds": "the whole interval meets every condition",
    "partly": "a real gain, but not all that is claimed",
    "unclear": "the interval is too wide to tell",
    "fails": "a condition is missed, or the method raised",
    "not run": "something required is absent",
    "no verdict": "a smoke run checks that things work and judges nothing",
    "no evidence": "nothing has been measured yet",
}

#: Conditions of which status decide a state; any other state is decided by the tightest.
_DECIDES = {
    "partly": ("missed", "unclear"),
    "unclear": ("unclear", "missed"),
    "fails": ("missed", "unclear"),
    "not run": ("not run",),
}
_FORMS = {"ratio": " ÷ ", "difference": " − "}
_POOLS = {
    "mean": "mean",
    "geomean": "geometric mean",
    "ratio_of_means": "ratio of means",
    "median": "median",
    "max": "largest",
    "min": "smallest",
}
_INTERVALS = {
    "t": "Student t",
    "bca": "BCa bootstrap",
    "wilson": "Wilson",
    "mcnemar": "McNemar",
    "fieller": "Fieller",
    "order": "order statistics",
    "observed": "observed extremes",
    "none": "",
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One bundle and how it is told from the others.

    Attributes:
        bundle: its evidence.
        number: 1, or more where another run of the same origin and profile stands before it.
    """

    bundle: Bundle
    number: int = 1

    @property
    def label(self) -> str:
        """Whose run it is."""
        name = "Committed evidence" if self.bundle.committed else "Your run"
        return name if self.number == 1 else f"{name} {self.number}"

    @property
    def machine(self) -> str:
        """Processor and cores; empty when the run did not say."""
        return machine_label(self.bundle.environment)

    @property
    def when(self) -> str:
        """The day on which it ended, or began if it did not say when it ended."""
        said = self.bundle.environment
        return formats.day(said.get("finished") or said.get("started"))

    @property
    def key(self) -> str:
        """``committed`` or ``own``: what the filter and the colours go by."""
        return "committed" if self.bundle.committed else "own"

    @property
    def profile(self) -> str:
        """The profile that ran."""
        return self.bundle.profile

    @property
    def stem(self) -> str:
        """The start of the names of its files."""
        parts = [formats.file_stem(self.bundle.slug), self.key, formats.file_stem(self.profile)]
        return "-".join(parts if self.number == 1 else [*parts, str(self.number)])

    @property
    def facts(self) -> str:
        """Profile, machine and day in one line."""
        known = (f"profile {self.profile}", self.machine, self.when)
        return " · ".join(part for part in known if part and part != formats.DASH)


@dataclasses.dataclass(frozen=True)
class ConditionLine:
    """One condition of a claim against one peer (or against its bound alone)."""

    index: int
    statistic: str
    against: str
    detail: str
    at_most: float | None
    at_least: float | None
    estimate: float | None
    low: float | None
    high: float | None
    form: str
    method: str
    units: str
    status: str
    tightest: bool

    @property
    def bound(self) -> str:
        """What the statistic must satisfy."""
        return formats.bound(self.at_most, self.at_least)

    @property
    def measured(self) -> str:
        """The estimate, or a dash."""
        return formats.number(self.estimate)

    @property
    def interval(self) -> str:
        """The ends of the interval, or a dash."""
        return formats.interval(self.low, self.high)

    @property
    def basis(self) -> str:
        """From how many units and how the interval was made."""
        known = (f"{self.units} units" if self.units != formats.DASH else "", self.method)
        return ", ".join(part for part in known if part)


@dataclasses.dataclass(frozen=True)
class AblationLine:
    """One part taken away from ours, and whether that made it worse."""

    claim: str
    name: str
    metric: str
    better: str
    ratio: float | None
    low: float | None
    high: float | None
    margin: float
    expect: str
    hurts: bool | None

    @property
    def answer(self) -> str:
        """Whether it hurts, in words."""
        return {True: "hurts", False: "does not hurt", None: "unclear"}[self.hurts]

    @property
    def warns(self) -> bool:
        """Whether the part was expected to matter and did not."""
        return self.expect == "hurts" and self.hurts is False


@dataclasses.dataclass(frozen=True)
class Result:
    """One claim in one run, or a claim that no run has measured (``run`` is None)."""

    claim: str
    statement: str
    paper: str
    state: str
    run: Run | None
    reason: str = ""
    experiment: str = ""
    conditions: tuple[ConditionLine, ...] = ()
    contenders: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    ablations: tuple[AblationLine, ...] = ()
    absent: tuple[Mapping[str, Any], ...] = ()
    errors: tuple[Mapping[str, Any], ...] = ()
    seeds: str = formats.DASH
    command: str = ""

    @property
    def headline(self) -> ConditionLine | None:
        """The condition that decides the state: one that is not met, else the tightest."""
        lines = sorted(self.conditions, key=lambda line: (not line.tightest, line.estimate is None))
        for status in _DECIDES.get(self.state, ()):
            if found := [line for line in lines if line.status == status]:
                return found[0]
        return lines[0] if lines else None

    @property
    def metrics(self) -> list[str]:
        """Metrics for which some contender has a level, in their order."""
        names: dict[str, None] = {}
        for _, levels in self.contenders:
            names.update(dict.fromkeys(levels))
        return list(names)

    @property
    def silent_ablations(self) -> list[AblationLine]:
        """Parts that were expected to matter and did not."""
        return [a for a in self.ablations if a.warns]


@dataclasses.dataclass(frozen=True)
class ClaimView:
    """A claim with its results, the committed one first."""

    id: str
    statement: str
    paper: str
    results: tuple[Result, ...]


@dataclasses.dataclass(frozen=True)
class MethodView:
    """A method with its runs and claims."""

    slug: str
    field: str
    title: str
    gift: str
    card: Card | None
    runs: tuple[Run, ...]
    claims: tuple[ClaimView, ...]

    @property
    def file(self) -> str:
        """The name of its page."""
        return f"{formats.file_stem(self.slug)}.html"

    @property
    def field_title(self) -> str:
        """What its field is about."""
        return FIELDS.get(self.field, self.field)

    @property
    def results(self) -> list[Result]:
        """Every claim in every run."""
        return [result for claim in self.claims for result in claim.results]

    @property
    def command(self) -> str:
        """What makes evidence for it."""
        return f"armillary bench {shlex.quote(self.slug)} --profile quick"


def machine_label(environment: Mapping[str, Any]) -> str:
    """Processor and cores in a few words; empty when the run did not say."""
    machine = environment.get("machine")
    if isinstance(machine, str):
        return machine
    if not isinstance(machine, Mapping):
        return ""
    cpu, cores = machine.get("cpu"), machine.get("cores")
    said = [str(cpu)] if cpu else []
    if isinstance(cores, int):
        said.append(f"{cores} core{'s' if cores != 1 else ''}")
    return ", ".join(said)


def numbered(bundles: Iterable[Bundle]) -> list[Run]:
    """Runs, the committed one first, then the larger profiles; namesakes are numbered.

    A smoke run judges nothing: it is left out beside any other run of the user's own.
    """
    bundles = list(bundles)
    if any(not b.committed and b.profile != "smoke" for b in bundles):
        bundles = [b for b in bundles if b.committed or b.profile != "smoke"]
    seen: Counter[tuple[bool, str]] = Counter()
    runs = []
    for bundle in bundles:
        seen[bundle.committed, bundle.profile] += 1
        runs.append(Run(bundle, seen[bundle.committed, bundle.profile]))
    return sorted(runs, key=_run_order)


def _statistic(condition: Mapping[str, Any]) -> str:
    metric = str(condition.get("metric") or "statistic")
    if condition.get("form") == "slope":
        along = condition.get("along") or "size"
        return f"growth of {metric} with {along}"
    return metric


def _against(condition: Mapping[str, Any]) -> str:
    over = condition.get("over")
    peers = [over] if isinstance(over, str) else list(over or ())
    of = str(condition.get("of") or OURS)
    if peers and any(peers):
        return of + _FORMS.get(str(condition.get("form")), " / ") + ", ".join(map(str, peers))
    return of


def _detail(condition: Mapping[str, Any]) -> str:
    if condition.get("every"):
        return "every cell, worst shown"
    if condition.get("form") == "slope":
        return "log-log slope"
    pool = str(condition.get("pool") or "")
    unit = str(condition.get("unit") or "")
    words = [_POOLS.get(pool, pool)]
    if condition.get("form") != "ratio" and unit:
        words.append(unit)
    return ", ".join(word for word in words if word)


def condition_line(condition: Mapping[str, Any], index: int) -> ConditionLine:
    """A condition object of a bundle as a page shows it."""
    made = str(condition.get("interval") or "none")
    units = real(condition.get("units"))
    return ConditionLine(
        index=int(real(condition.get("condition")) or 0) if "condition" in condition else index,
        statistic=_statistic(condition),
        against=_against(condition),
        detail=_detail(condition),
        at_most=real(condition.get("at_most")),
        at_least=real(condition.get("at_least")),
        estimate=real(condition.get("estimate")),
        low=real(condition.get("low")),
        high=real(condition.get("high")),
        form=str(condition.get("form") or "level"),
        method=" + ".join(_INTERVALS.get(part, part) for part in made.split("+")),
        units=formats.number(units),
        status=str(condition.get("status") or ""),
        tightest=bool(condition.get("tightest")),
    )


def _ablation_line(claim: str, ablation: Mapping[str, Any], better: str) -> AblationLine:
    hurts = ablation.get("hurts")
    return AblationLine(
        claim=claim,
        name=str(ablation.get("name") or ""),
        metric=str(ablation.get("metric") or ""),
        better=better,
        ratio=real(ablation.get("ratio")),
        low=real(ablation.get("low")),
        high=real(ablation.get("high")),
        margin=real(ablation.get("margin")) or 0.0,
        expect=str(ablation.get("expect") or "hurts"),
        hurts=hurts if isinstance(hurts, bool) else None,
    )


def _state(claim: Mapping[str, Any], profile: str) -> str:
    verdict = claim.get("verdict")
    if profile == "smoke" or verdict in (None, "", "none"):
        return "no verdict"
    return str(verdict) if verdict in STATES else "unclear"


def result_of(claim: Mapping[str, Any], run: Run) -> Result:
    """A claim object of a bundle as a page shows it."""
    better = {
        str(metric.get("name")): str(metric.get("better") or "lower")
        for experiment in (run.bundle.environment.get("experiments") or {}).values()
        for metric in experiment.get("metrics") or ()
    }
    name = str(claim.get("claim") or "")
    contenders = claim.get("contenders") or {}
    return Result(
        claim=name,
        statement=str(claim.get("statement") or ""),
        paper=_paper(claim.get("paper")),
        state=_state(claim, run.profile),
        run=run,
        reason=str(claim.get("reason") or ""),
        experiment=str(claim.get("experiment") or ""),
        conditions=tuple(condition_line(c, i) for i, c in enumerate(claim.get("conditions") or ())),
        contenders=tuple(
            sorted(contenders.items(), key=lambda item: item[0] != OURS)  # ours first
        ),
        ablations=tuple(
            _ablation_line(name, a, better.get(str(a.get("metric")), "lower"))
            for a in claim.get("ablations") or ()
        ),
        absent=tuple(claim.get("absent") or ()),
        errors=tuple(claim.get("errors") or ()),
        seeds=_seeds(claim.get("seeds")),
        command=str(claim.get("command") or ""),
    )


def _paper(paper: Any) -> str:
    if isinstance(paper, Mapping):
        return "; ".join(f"{key} {value}" for key, value in formats.flatten(paper))
    return formats.number(paper) if real(paper) is not None else str(paper or "")


def _seeds(seeds: Any) -> str:
    if isinstance(seeds, (list, tuple)):
        whole = [s for s in seeds if isinstance(s, int)]
        if len(whole) > 2 and whole == list(range(whole[0], whole[0] + len(whole))):
            return f"{whole[0]} to {whole[-1]}"
        return ", ".join(str(seed) for seed in seeds) or formats.DASH
    return formats.number(seeds)


def _run_order(run: Run) -> tuple[bool, int]:
    rank = PROFILES.index(run.profile) if run.profile in PROFILES else 0
    return (not run.bundle.committed, -rank)


def method_view(slug: str, card: Card | None, bundles: Iterable[Bundle]) -> MethodView:
    """A method's claims, in the order of its card, each with a result a run."""
    runs = tuple(numbered(bundles))
    found: dict[str, list[Result]] = {claim: [] for claim in (card.claims if card else ())}
    for run in runs:
        for claim in run.bundle.claims:
            result = result_of(claim, run)
            found.setdefault(result.claim, []).append(result)
    if not found:  # nothing is stated: what was measured is shown all the same
        found[""] = [
            Result("", "measured, but no claim was judged", "", "no verdict", r) for r in runs
        ]
    claims = [_claim_view(name, results) for name, results in found.items()]
    return MethodView(
        slug=slug,
        field=card.field if card else "other",
        title=card.title if card else slug,
        gift=card.gift if card else "This method is not in the catalogue of this installation.",
        card=card,
        runs=runs,
        claims=tuple(claims),
    )


def _claim_view(name: str, results: Sequence[Result]) -> ClaimView:
    if not results:
        unmeasured = Result(name, "", "", "no evidence", None)
        return ClaimView(name, "", "", (unmeasured,))
    return ClaimView(name, results[0].statement, results[0].paper, tuple(results))


def method_views(
    cards: Iterable[Card], bundles: Iterable[Bundle], slugs: Sequence[str] = ()
) -> list[MethodView]:
    """Every method of the catalogue or with a bundle: measured ones first, by field and name.

    Args:
        cards: the catalogue.
        bundles: committed and own runs, in any order.
        slugs: show only these; all when empty.
    """
    by_slug: dict[str, list[Bundle]] = {}
    for bundle in bundles:
        by_slug.setdefault(bundle.slug, []).append(bundle)
    known = {card.slug: card for card in cards}
    names = [slug for slug in {**known, **by_slug} if not slugs or slug in slugs]
    fields = {name: at for at, name in enumerate(FIELDS)}
    views = [method_view(slug, known.get(slug), by_slug.get(slug, ())) for slug in names]
    return sorted(views, key=lambda v: (not v.runs, fields.get(v.field, len(fields)), v.slug))


def counts(views: Iterable[MethodView]) -> dict[str, int]:
    """How many results are in each state, every state named even when none is in it."""
    tally = dict.fromkeys(STATES, 0)
    for view in views:
        for result in view.results:
            tally[result.state] += 1
    return tally


@dataclasses.dataclass(frozen=True)
class ExperimentView:
    """What an experiment's rows mean: its metrics, contenders and cases."""

    id: str
    title: str
    unit: str
    timed: bool
    metrics: tuple[Mapping[str, Any], ...]
    contenders: tuple[str, ...]
    cases: tuple[Mapping[str, Any], ...]
    points: tuple[summaries.Point, ...]
    tallies: tuple[summaries.Tally, ...]


def experiment_views(bundle: Bundle) -> list[ExperimentView]:
    """The experiments of a bundle, from what its environment says and what its rows hold."""
    by_id: dict[str, list[Any]] = {}
    for row in bundle.rows:
        by_id.setdefault(row.experiment, []).append(row)
    described = bundle.environment.get("experiments") or {}
    views = []
    for name in {**described, **by_id}:
        said, rows = described.get(name) or {}, by_id.get(name, [])
        points = summaries.by_case(rows)
        tallies = summaries.tallies(rows)
        seen = dict.fromkeys(p.metric for p in points)
        metrics = [dict(metric) for metric in said.get("metrics") or ()]
        metrics += [{"name": m} for m in seen if m not in {x.get("name") for x in metrics}]
        contenders = [str(c.get("name")) for c in said.get("contenders") or ()]
        contenders += [t.contender for t in tallies if t.contender not in contenders]
        cases = [dict(case) for case in said.get("cases") or ()]
        cases += [
            {"name": case, "x": {}}
            for case in dict.fromkeys(row.case for row in rows)
            if case not in {x.get("name") for x in cases}
        ]
        views.append(
            ExperimentView(
                id=str(name),
                title=str(said.get("title") or name),
                unit=str(said.get("unit") or ""),
                timed=bool(said.get("timed")),
                metrics=tuple(metrics),
                contenders=tuple(sorted(contenders, key=lambda c: c != OURS)),
                cases=tuple(cases),
                points=tuple(points),
                tallies=tuple(tallies),
            )
        )
    return views
