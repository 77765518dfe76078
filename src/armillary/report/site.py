"""The site as a folder: built aside, then put in place, so that it is whole or as it was.

The folder holds ``index.html``, ``methods/<slug>.html``, ``data/*-rows.csv``, ``pictures/``,
``assets/`` and a marker file; only a folder with that marker is ever replaced.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import gzip
import json
import os
import shutil
import tempfile
import webbrowser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from armillary import __version__, catalog
from armillary.evidence.bundle import Bundle, pictures, rows_to_csv_gz
from armillary.output.files import finite, write_bytes, write_text
from armillary.report import charts, formats, packing, views
from armillary.report.views import MethodView, Run

MARKER = ".armillary-report"
#: Rows are a plain CSV file up to this size and a compressed one above it.
PLAIN_CSV_BYTES = 128 * 1024
_ASSETS = ("report.css", "report.js", "theme.js")
#: A page lists so many errors of a run; the rows' file has them all.
MANY_ERRORS = 50


def build(
    bundles: Iterable[Bundle],
    out: str | os.PathLike[str] = "armillary-report",
    *,
    slugs: Sequence[str] = (),
    methods: Iterable[catalog.Method] | None = None,
    broken: Iterable[catalog.Broken] | None = None,
) -> Path:
    """Write the report of some evidence as a static site.

    Args:
        bundles: runs, committed and own, in any order; methods without one are shown as such.
        out: the site's folder; a report that is there already is replaced as a whole.
        slugs: show these methods only; all when empty.
        methods: the catalogue's methods; read from the catalogue when None.
        broken: announced methods that could not be read; from the catalogue when None.

    Returns:
        The path of ``index.html``.

    Raises:
        ValueError: ``out`` is a folder with something else in it.
        NotADirectoryError: ``out`` is a file.
        UnknownMethod: a slug that neither the catalogue nor a bundle knows.
    """
    target = Path(out).expanduser().resolve()
    _check_replaceable(target, out)
    bundles = list(bundles)
    cards = [m.card for m in (catalog.methods() if methods is None else methods)]
    known = {card.slug for card in cards} | {bundle.slug for bundle in bundles}
    for slug in slugs:
        if slug not in known:
            catalog.get(slug)  # says which slugs are near
    shown = views.method_views(cards, bundles, slugs)
    failures = list(catalog.broken() if broken is None else broken)
    with _replaced(target) as folder:
        _write_assets(folder / "assets")
        _write_pages(folder, shown, failures)
        write_text(folder / MARKER, f"armillary report {__version__}\n")
    return target / "index.html"


def open_site(site: str | os.PathLike[str]) -> bool:
    """Show a report in the user's browser; False when there is no browser to show it in."""
    return webbrowser.open((Path(site).resolve() / "index.html").as_uri())


# -- the folder ------------------------------------------------------------------------------


def _check_replaceable(target: Path, given: str | os.PathLike[str]) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise NotADirectoryError(f"out={str(given)!r} is a file: give the name of a folder")
    if any(target.iterdir()) and not (target / MARKER).is_file():
        raise ValueError(
            f"out={str(given)!r} holds something that is not a report: "
            "give a new or an empty folder, or the folder of an earlier report"
        )


@contextlib.contextmanager
def _replaced(target: Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``target`` when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".armillary-report-", dir=target.parent))
    try:
        fresh = work / "new"
        fresh.mkdir()
        yield fresh
        old = work / "old"
        try:
            if target.exists():
                target.rename(old)
            fresh.rename(target)
        except BaseException:
            if old.exists() and not target.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


@functools.cache
def charting_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one classic script that works from a file."""
    import vl_convert

    return vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue]


def _write_assets(folder: Path) -> None:
    source = resources.files("armillary.report") / "assets"
    for name in _ASSETS:
        write_text(folder / name, (source / name).read_text("utf-8"))
    write_text(folder / "vega.js", charting_script())


# -- the pages -------------------------------------------------------------------------------


def _embedded_json(value: Any) -> Any:
    """JSON that can stand in a script element: no ``<``, ``>`` or ``&`` in it."""
    from markupsafe import Markup

    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _environment() -> Any:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("armillary.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=formats.number,
        interval=formats.interval,
        stated=formats.stated,
        duration=formats.duration,
        day=formats.day,
        stem=formats.file_stem,
        embedded_json=_embedded_json,
        packed=packing.packed,
    )
    environment.globals.update(
        dash=formats.DASH,
        glyph=charts.glyph,
        states=views.STATES,
        shapes=charts.SHAPES,
        colour=charts.colour,
        many_errors=MANY_ERRORS,
        version=__version__,
        made=formats.day(datetime.datetime.now(datetime.UTC).isoformat()),
    )
    return environment


def _write_pages(
    folder: Path, shown: Sequence[MethodView], broken: Sequence[catalog.Broken]
) -> None:
    environment = _environment()
    overview = environment.get_template("overview.html.j2")
    page = environment.get_template("method.html.j2")
    counts = views.counts(shown)
    write_text(
        folder / "index.html",
        overview.render(
            root="",
            views=shown,
            counts=counts,
            claims=sum(len(view.claims) for view in shown),
            fields=list(dict.fromkeys((view.field, view.field_title) for view in shown)),
            sources=list(dict.fromkeys((r.key, r.label) for view in shown for r in view.runs)),
            broken=broken,
        ),
    )
    (folder / "methods").mkdir()
    for at, view in enumerate(shown):
        runs = [_run_page(run, view, folder / "data") for run in view.runs]
        write_text(
            folder / "methods" / view.file,
            page.render(
                root="../",
                view=view,
                runs=runs,
                pictures=_pictures(view.slug, folder / "pictures"),
                forests={claim.id: charts.forests(claim.results) for claim in view.claims},
                before=shown[at - 1] if at else None,
                after=shown[at + 1] if at + 1 < len(shown) else None,
            ),
        )


def _pictures(slug: str, folder: Path) -> list[dict[str, str]]:
    """The committed pictures of a method, copied beside the pages."""
    shown = []
    for picture in pictures(slug):
        name = f"{slug}-{picture.file.name}"
        write_bytes(folder / name, picture.file.read_bytes())
        shown.append({"file": name, "title": picture.title, "alt": picture.alt})
    return shown


@dataclasses.dataclass(frozen=True)
class RowsFile:
    """The file of a run's rows beside the pages."""

    name: str
    size: str
    lines: int


@dataclasses.dataclass(frozen=True)
class RunPage:
    """What a method's page shows of one run besides its verdicts."""

    run: Run
    experiments: list[tuple[views.ExperimentView, list[charts.Figure]]]
    ablations: list[views.AblationLine]
    ablation_figure: charts.Figure | None
    absent: list[dict[str, str]]
    errors: list[dict[str, str]]
    environment: list[tuple[str, str]]
    commands: list[tuple[str, list[views.Result]]]
    took: str
    prepared: str
    rows: RowsFile


def _run_page(run: Run, view: MethodView, data: Path) -> RunPage:
    results = [result for result in view.results if result.run is run]
    along = [
        str(condition.get("along"))
        for claim in run.bundle.claims
        for condition in claim.get("conditions") or ()
        if condition.get("along")
    ]
    ablations = [ablation for result in results for ablation in result.ablations]
    hidden = ("experiments", "method", "profile")
    facts = {k: v for k, v in run.bundle.environment.items() if k not in hidden}
    return RunPage(
        run=run,
        experiments=[
            (experiment, charts.experiment_figures(experiment, along))
            for experiment in views.experiment_views(run.bundle)
        ],
        ablations=ablations,
        ablation_figure=charts.ablation_figure(ablations),
        absent=_once(item for result in results for item in result.absent),
        errors=_once(item for result in results for item in result.errors),
        environment=formats.flatten(facts),
        commands=_commands(results),
        took=formats.duration(facts.get("seconds")),
        prepared=formats.duration(facts.get("artefact_seconds")),
        rows=_write_rows(run, data),
    )


_TELLS = ("contender", "kind", "name", "hint", "case", "seed", "reason")


def _once(items: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """What several claims of one run say, each thing once and as text."""
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for item in items:
        told = {key: "" if item.get(key) is None else str(item[key]) for key in _TELLS}
        found.setdefault(tuple(told.values()), told)
    return list(found.values())


def _commands(results: Iterable[views.Result]) -> list[tuple[str, list[views.Result]]]:
    """Each command once, with the results that it reproduces."""
    found: dict[str, list[views.Result]] = {}
    for result in results:
        if result.command:
            found.setdefault(result.command, []).append(result)
    return list(found.items())


def _write_rows(run: Run, folder: Path) -> RowsFile:
    packed = rows_to_csv_gz(run.bundle.rows)
    plain = gzip.decompress(packed)
    small = len(plain) <= PLAIN_CSV_BYTES
    name = f"{run.stem}-rows.csv" if small else f"{run.stem}-rows.csv.gz"
    content = plain if small else packed
    write_bytes(folder / name, content)
    size = (
        f"{len(content) / 1024:,.0f} KB"
        if len(content) < 2**20
        else f"{len(content) / 2**20:.1f} MB"
    )
    return RowsFile(name, size, len(run.bundle.rows))
