"""``armillary bench``: measure a method's claims on this machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from armillary import catalog, output
from armillary.errors import ExitCode, require
from armillary.output.files import to_json

if TYPE_CHECKING:
    from armillary.evidence.bundle import Bundle
    from armillary.evidence.runner import Request, Result
    from armillary.evidence.store import Store

app = typer.Typer(rich_markup_mode=None)


@app.command()
def bench(
    slugs: Annotated[
        list[str] | None, typer.Argument(metavar="[SLUG]...", help="Methods to measure.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Measure every method.")] = False,
    claims: Annotated[
        list[str] | None,
        typer.Option("--claim", metavar="ID", help="Only the experiment of this claim."),
    ] = None,
    profile: Annotated[
        str, typer.Option(help="smoke (seconds, no verdict), quick, full or long.")
    ] = "quick",
    seed_base: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    store: Annotated[
        str | None, typer.Option(help="Path or URL of the store; the user's own if left out.")
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", help="Write the verdicts as JSON; - is stdout.")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes for untimed work; one a core, at most 4, if left out."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Ray cluster for untimed work: local, auto, HOST:PORT or ray://HOST:PORT.",
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder of data files; ARMILLARY_DATA if left out.")
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(metavar="NAME=PATH", help="Where a peer is; repeatable.")
    ] = None,
    case: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your own data, shown beside the claims.")
    ] = None,
    contender: Annotated[
        str | None,
        typer.Option(metavar="MODULE:FUNCTION", help="Your own method, shown beside ours."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, how long, what is missing.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a claim fails.")] = False,
    write_evidence: Annotated[
        Path | None,
        typer.Option(
            help="For maintainers: write DIR/SLUG/{claims,rows,environment} (DIR/SLUG/long/… of "
            "the profile long).",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Run a method's evidence on this machine and judge its claims.

    What is measured is stored: the same command goes on where it was interrupted.
    Exit code: 0 whatever the verdicts (--strict: 1 if one fails), 1 if a contender raised, 3 if
    nothing was measured.

    Example: armillary bench recalibration --profile quick
    """
    wanted = _wanted(slugs or [], every)
    _check_cluster(ray, workers)
    brought = case is not None or contender is not None
    claim = _one(claims)
    _check(wanted, claim, brought, json_file, dry_run, write_evidence)
    requests = _requests(
        wanted, every, profile, seed_base, claim, data, _peers(peer or []), case, contender
    )
    if dry_run:
        _dry_run(requests, store)
        return
    results = _measure(requests, store, workers, ray)
    for result in results:
        _remarks(result)
        if write_evidence is not None:
            folder = result.bundle.write(write_evidence / evidence_place(result.bundle))
            output.console().note(f"evidence written to {folder}")
    _show(results, json_file)
    raise typer.Exit(_exit_code(results, strict))


def evidence_place(found: Bundle) -> Path:
    """Where evidence is committed; that of the profile long stands beside the full one's."""
    return Path(found.slug, "long") if found.profile == "long" else Path(found.slug)


def _wanted(slugs: list[str], every: bool) -> list[str]:
    if every and slugs:
        raise ValueError("give slugs or --all, not both")
    if every:
        for failure in catalog.broken():
            output.console().note(f"left out: {failure.name}: {failure.reason}")
        return [method.card.slug for method in catalog.methods()]
    if not slugs:
        raise ValueError("name a method, or give --all; `armillary list` shows the methods")
    return list(dict.fromkeys(slugs))


def _one(claims: list[str] | None) -> str | None:
    """The one claim that was asked for; a second would else be taken in the place of the first."""
    if claims and len(claims) > 1:
        raise ValueError(
            f"--claim was given {len(claims)} times ({', '.join(claims)}): give one, or none"
        )
    return claims[0] if claims else None


def _check(
    wanted: list[str],
    claim: str | None,
    brought: bool,
    json_file: str | None,
    dry_run: bool,
    write_evidence: Path | None,
) -> None:
    """Refuse options that do not go together, before anything runs."""
    if claim is not None and len(wanted) != 1:
        raise ValueError(f"--claim {claim!r} belongs to one method: name just that one")
    if claim is not None and write_evidence is not None:
        raise ValueError("--write-evidence writes a method's whole evidence: leave out --claim")
    if brought and len(wanted) != 1:
        raise ValueError("--case and --contender belong to one method: name just that one")
    if brought and write_evidence is not None:
        raise ValueError("--write-evidence takes no --case and no --contender: they are yours")
    if dry_run and (json_file is not None or write_evidence is not None):
        raise ValueError("--dry-run measures nothing: leave out --json and --write-evidence")
    for path in (json_file if json_file != "-" else None, write_evidence):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise FileNotFoundError(f"no folder {str(Path(path).absolute().parent)!r} to write to")


def _check_cluster(ray: str | None, workers: int | None) -> None:
    if ray is None:
        return
    if workers is not None:
        raise ValueError("give --workers or --ray, not both")
    from armillary.evidence.cluster import check

    check(ray)
    require("ray", what="--ray", extra="ray")


def _peers(given: list[str]) -> dict[str, str] | None:
    peers = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise ValueError(f"--peer {text!r}: give NAME=PATH")
        peers[name] = path
    return peers or None


def _requests(
    wanted: list[str],
    every: bool,
    profile: str,
    seed_base: int,
    claim: str | None,
    data: Path | None,
    peers: dict[str, str] | None,
    case: Path | None,
    contender: str | None,
) -> list[Request]:
    """Read all methods first: a wrong name stops the command before it has measured anything."""
    from armillary.evidence import runner

    requests = []
    for slug in wanted:
        try:
            given = (profile, seed_base, claim, data, peers, case, contender)
            requests.append(runner.prepare(slug, *given))
        except ImportError as missing:
            if not every:
                raise
            output.console().note(f"{slug}: not run: {missing}")
    return requests


def _measure(
    requests: list[Request], url: str | None, workers: int | None, ray: str | None
) -> list[Result]:
    from armillary.evidence import runner
    from armillary.evidence.store import Store

    results = []
    with Store(url) as store:
        try:
            for request in requests:
                results.append(runner.measure(request, store, workers, ray=ray))
        except KeyboardInterrupt:
            output.console().note("what is measured is stored: the same command goes on from here")
            raise
    return results


def _exit_code(results: list[Result], strict: bool) -> ExitCode:
    if any(result.failed for result in results):
        return ExitCode.FAILED
    if not any(result.measured for result in results):
        return ExitCode.PARTIAL
    verdicts = {claim["verdict"] for result in results for claim in result.claim_records}
    return ExitCode.FAILED if strict and "fails" in verdicts else ExitCode.OK


def _show(results: list[Result], json_file: str | None) -> None:
    from armillary.cli import verdict_table

    claims = [claim for result in results for claim in result.claim_records]
    if json_file == "-":
        output.console().print(to_json(claims))
        return
    if json_file is not None:
        output.write_json(json_file, claims)
    verdict_table.show(claims, output.console())


def _remarks(result: Result) -> None:
    """What failed and what is missing, on stderr, one line each."""
    console, slug = output.console(), result.bundle.slug
    rows = result.bundle.rows
    cells = Counter((row.experiment, row.contender) for row in rows if row.repeat == 0)
    first = {}
    for row in rows:
        if row.status != "ok":
            first.setdefault((row.status, row.experiment, row.contender, row.kind), row)
    count = Counter((r.status, r.experiment, r.contender, r.kind) for r in rows)
    for key, row in first.items():
        total = cells[row.experiment, row.contender]
        where = f"{slug}, {row.experiment}: {row.contender} {row.status}"
        console.note(f"{where} in {count[key]} of {total} cells: {row.kind}: {row.reason}")


def _dry_run(requests: list[Request], url: str | None) -> None:
    """What would run, how long, what is missing; nothing is written."""
    from armillary.evidence.store import Store

    try:
        store = Store(url, read_only=True)
    except FileNotFoundError:
        store = None
    try:
        for request in requests:
            _forecast(request, store)
    finally:
        if store is not None:
            store.close()


def _forecast(request: Request, store: Store | None) -> None:
    console, plan = output.console(), request.plan(store)
    todo = sum(len(group.contenders) for group in plan.groups)
    console.print(f"{request.method.card.slug}, profile {request.profile}")
    groups = counted(len(plan.groups), "group")
    console.print(f"  to measure: {counted(todo, 'cell')} in {groups}")
    console.print(f"  stored already: {counted(plan.stored, 'cell')}")
    console.print(f"  time: {_estimate(request, plan.groups, store)}")
    for trial in request.trials:
        groups = sum(group.trial is trial for group in plan.groups)
        timed = ", timed" if trial.experiment.timed is not None else ""
        console.print(f"  {trial.experiment.id}{timed}: {counted(groups, 'group')}")
    for who, need in plan.missing:
        console.print(f"  missing for {who}: {need.kind} {need.name}: {need.hint}")


def _estimate(request: Request, groups, store: Store | None) -> str:
    """How long groups will take, from what was stored before."""
    if not groups:
        return "nothing to do"
    known: dict[str, dict[str, float]] = {}
    if store is not None:
        for trial in request.trials:
            known[trial.experiment.id] = store.typical_seconds(
                trial.method, trial.experiment.id, trial.profile
            )
    found = [known.get(g.trial.experiment.id, {}).get(g.case) for g in groups]
    seconds = [s for s in found if s is not None]
    if not seconds:
        return "not known yet"
    about = duration(sum(seconds))
    unknown = len(found) - len(seconds)
    return f"about {about}" + (
        f", and {counted(unknown, 'group')} not known yet" if unknown else ""
    )


def counted(number: int, thing: str) -> str:
    """A number of things: ``1 group``, ``2 groups``."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Seconds as a reader would say them."""
    if seconds < 1:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
