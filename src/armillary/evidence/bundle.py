"""What one run of one method's evidence leaves behind: the only thing that the report reads.

A bundle is three files under ``evidence/<slug>/``; the last full run of every built-in method is
committed and ships in the wheel.

``claims.json`` is a list, one object a claim::

    {method, claim, experiment, statement, profile, verdict, reason, paper,
     conditions: [{condition, metric, unit, better, form, pool, of, over, along, at_most, at_least,
                   every, estimate, low, high, interval, units, status, tightest}],
     contenders: {name: {metric: {estimate, low, high}}},
     ablations: [{name, metric, expect, margin, ratio, low, high, hurts}],
     absent: [{contender, kind, name, hint}], errors: [{contender, case, seed, kind, reason}],
     seeds, seconds, artefact_seconds, command}

A condition that compares with several peers has one object a peer (``condition`` is its index in
the claim); ``tightest`` marks the peer that comes nearest to breaking it. ``interval`` names how
``low`` and ``high`` were made (``t``, ``bca``, ``wilson``, …, or ``none``).

What a user brought of her own (`armillary.evidence.own`) has an object too, with ``own: true``, the
verdict ``none`` and no bounds; no object of another claim depends on it.

``rows.csv.gz`` has one line a metric of a measurement, in the columns of `ROW_COLUMNS`; a
measurement without a value has one line whose ``metric`` and ``value`` are empty.

Where a method's claims are about what one sees, ``pictures/`` lies beside them: .png files, and an
``index.json`` that lists them as ``[{file, title, alt}]``.

``environment.json`` holds the machine, the versions, the settings of the run and, under
``experiments``, what the rows' names mean: ``{id: {title, unit, timed, metrics: [{name, unit,
better}], contenders: [{name, required}], cases: [{name, x}]}}``.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import json
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from armillary.evidence.shapes import Row
from armillary.output.files import to_json, write_bytes, write_text

ROW_COLUMNS = (
    "experiment", "case", "seed", "contender", "repeat", "status", "kind", "reason", "seconds",
    "metric", "value",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Bundle:
    """The claims, rows and environment of one run of one method.

    Attributes:
        slug: the method.
        profile: the profile that ran.
        claims: judged claims, as the module's docstring writes them.
        rows: every measurement.
        environment: machine, versions and settings.
        committed: whether it came with the package and not from the user's own store.
    """

    slug: str
    profile: str
    claims: list[dict[str, Any]]
    rows: list[Row]
    environment: dict[str, Any]
    committed: bool = False

    def write(self, folder: str | Path) -> Path:
        """Write the three files into ``folder``, each whole or not at all."""
        folder = Path(folder)
        write_bytes(folder / "rows.csv.gz", rows_to_csv_gz(self.rows))
        write_text(folder / "environment.json", to_json(self.environment) + "\n")
        write_text(folder / "claims.json", to_json(self.claims) + "\n")
        return folder

    @classmethod
    def read(cls, folder: str | Path, *, committed: bool = False) -> Bundle:
        """Read a folder that `write` made.

        Raises:
            FileNotFoundError: one of the three files is absent.
            ValueError: a file is not what it should be.
        """
        folder = Path(folder)
        try:
            claims = json.loads((folder / "claims.json").read_text("utf-8"))
            environment = json.loads((folder / "environment.json").read_text("utf-8"))
            slug, profile = environment["method"], environment["profile"]
            rows = list(rows_from_csv_gz((folder / "rows.csv.gz").read_bytes(), slug, profile))
        except (json.JSONDecodeError, KeyError, gzip.BadGzipFile, EOFError) as error:
            raise ValueError(f"{str(folder)!r} holds no readable evidence: {error}") from error
        return cls(slug, profile, claims, rows, environment, committed)


def rows_to_csv_gz(rows: Iterable[Row]) -> bytes:
    """Rows as compressed CSV; the same rows give the same bytes."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(ROW_COLUMNS)
    for row in rows:
        head = (
            row.experiment, row.case, row.seed, row.contender, row.repeat, row.status, row.kind,
            row.reason, f"{row.seconds:.4g}",
        )  # fmt: skip
        for metric, value in row.metrics.items() or [("", "")]:
            writer.writerow((*head, metric, repr(float(value)) if metric else ""))
    return gzip.compress(text.getvalue().encode(), mtime=0)


def rows_from_csv_gz(data: bytes, slug: str, profile: str) -> Iterator[Row]:
    """The rows of `rows_to_csv_gz`, in their order."""
    reader = csv.DictReader(io.StringIO(gzip.decompress(data).decode(), newline=""))
    if tuple(reader.fieldnames or ()) != ROW_COLUMNS:
        raise ValueError(f"rows.csv.gz has columns {reader.fieldnames}, not {ROW_COLUMNS}")
    head: dict[str, str] | None = None
    metrics: dict[str, float] = {}

    def made(head: dict[str, str]) -> Row:
        return Row(
            slug, head["experiment"], profile, head["case"], int(head["seed"]), head["contender"],
            int(head["repeat"]), head["status"], head["kind"], head["reason"],  # pyright: ignore
            dict(metrics), float(head["seconds"]),
        )  # fmt: skip

    key = ("experiment", "case", "seed", "contender", "repeat")
    for line in reader:
        if head is not None and any(line[k] != head[k] for k in key):
            yield made(head)
            metrics = {}
        head = line
        if line["metric"]:
            metrics[line["metric"]] = float(line["value"])
    if head is not None:
        yield made(head)


def committed_folder() -> Path | None:
    """Where the evidence that ships with the package lies, or None if this copy has none."""
    installed = Path(str(resources.files("armillary"))) / "_committed" / "evidence"
    checkout = Path(__file__).parents[3]
    if installed.is_dir():
        return installed
    if (checkout / "pyproject.toml").is_file() and (checkout / "evidence").is_dir():
        return checkout / "evidence"
    return None


def committed(slug: str) -> Bundle | None:
    """The committed evidence of a method, or None if there is none."""
    folder = committed_folder()
    if folder is None or not (folder / slug / "claims.json").is_file():
        return None
    return Bundle.read(folder / slug, committed=True)


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture that is committed beside a method's evidence.

    Attributes:
        file: the .png.
        title: what stands above it.
        alt: what it shows, in words.
    """

    file: Path
    title: str
    alt: str


def pictures(slug: str) -> list[Picture]:
    """The committed pictures of a method, in their order.

    Raises:
        ValueError: the list is not readable, or names a file that is not there.
    """
    home = committed_folder()
    if home is None or slug not in {path.name for path in home.iterdir()}:
        return []
    folder = home / slug / "pictures"
    if not (folder / "index.json").is_file():
        return []
    try:
        listed = json.loads((folder / "index.json").read_text("utf-8"))
        found = [Picture(folder / Path(p["file"]).name, p["title"], p["alt"]) for p in listed]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{str(folder)!r} holds no readable list of pictures: {error}") from error
    absent = [picture.file.name for picture in found if not picture.file.is_file()]
    if absent:
        raise ValueError(f"{str(folder)!r} lists pictures that are not there: {', '.join(absent)}")
    return found
