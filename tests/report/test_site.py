"""The site as a folder: whole or as it was, safe with any name, small, and true to its rows."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import html.parser
import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from armillary import report
from armillary.catalog import Broken, Method
from armillary.errors import UnknownMethod
from armillary.evidence.bundle import ROW_COLUMNS, Bundle, rows_from_csv_gz
from armillary.evidence.shapes import Row
from armillary.report import charts, packing, views
from armillary.report import site as sites

_VOID = {"meta", "link", "input", "br", "img"}


class _Checker(html.parser.HTMLParser):
    """Elements that close in order; every link, id and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: dict[str, int] = {}
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        given = dict(attrs)
        self.links += [str(given[key]) for key in ("href", "src") if given.get(key)]
        self.ids += [str(given["id"])] if "id" in given else []
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "script":
            self.text.append(data)


def _read(page: Path) -> _Checker:
    checker = _Checker()
    checker.feed(page.read_text("utf-8"))
    return checker


def _pages(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def test_elements_nest_and_ids_are_unique(site: Path) -> None:
    for page in _pages(site):
        checker = _read(page)
        assert checker.open == []
        assert len(checker.ids) == len(set(checker.ids))


def test_every_link_leads_to_a_file_or_an_element_that_is_there(site: Path) -> None:
    for page in _pages(site):
        checker = _read(page)
        for link in checker.links:
            if link.startswith(("https://example.org", "data:image/svg+xml")):
                continue
            path, _, fragment = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), link
            if fragment and not fragment.startswith("field="):
                assert fragment in _read(target).ids, link


def test_pages_name_their_language_and_head_their_tables(site: Path) -> None:
    for page in _pages(site):
        text = page.read_text("utf-8")
        assert '<html lang="en">' in text
        heads = re.findall(r"<th\b[^>]*>", text)
        assert all("scope=" in head for head in heads)


def test_the_site_is_small_without_its_charting_library(
    tmp_path: Path, evidence: SimpleNamespace
) -> None:
    """Thirty methods as rich as the sample weigh less than 2 MB."""
    one = evidence.recalibration()
    bundles = [dataclasses.replace(one, slug=f"method-{i}") for i in range(30)]
    out = report.build(bundles, tmp_path / "out", methods=[], broken=[]).parent
    weight = sum(
        file.stat().st_size
        for file in out.rglob("*")
        if file.is_file() and file.name != "vega.js" and file.parent.name != "data"
    )
    assert weight < 2e6


@pytest.mark.parametrize("seeds", [3, 30])
def test_the_rows_file_holds_exactly_the_rows(
    tmp_path: Path, evidence: SimpleNamespace, seeds: int
) -> None:
    bundle = evidence.recalibration(seeds=seeds)
    out = report.build([bundle], tmp_path / "out", methods=[], broken=[]).parent
    (file,) = (out / "data").iterdir()
    content = file.read_bytes()
    if seeds == 3:
        assert file.name == "recalibration-committed-full-rows.csv"
        lines = list(csv.reader(io.StringIO(content.decode("utf-8"))))
        assert tuple(lines[0]) == ROW_COLUMNS
        assert len(lines) - 1 == sum(len(row.metrics) for row in bundle.rows)
        content = gzip.compress(content)
    else:
        assert file.name == "recalibration-committed-full-rows.csv.gz"
    assert list(rows_from_csv_gz(content, "recalibration", "full")) == bundle.rows
    page = (out / "methods" / "recalibration.html").read_text("utf-8")
    assert f'href="../data/{file.name}" download="{file.name}"' in page


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "../../etc/passwd",
    "quote \" and ' and & and `",
    "a name with spaces / and slashes \\",
    "🚀 naïve ñ 漢字",
    "x" * 300,
    "{{ 7 * 7 }} {% raw %}",
)


def _hostile(evidence: SimpleNamespace) -> list[Bundle]:
    """Every name that comes from data is one of `HOSTILE`."""
    bundles = []
    for name in HOSTILE:
        cases = {name: {name: 1.0}, f"{name} 2": {name: 2.0}, f"{name} 3": {name: 300.0}}
        rows = evidence.measured(
            name, name, "quick", cases, ("ours", name), 2,
            lambda case, x, who, rng, metric=name: {metric: float(rng.uniform())},
        )  # fmt: skip
        condition = {
            "condition": 0, "metric": name, "form": "ratio", "of": "ours", "over": name,
            "along": name, "pool": name, "at_most": 1, "estimate": 0.5, "status": name,
        }  # fmt: skip
        claim = evidence.claim(
            name, name, name, "holds", [condition], experiment=name, reason=name,
            contenders={name: {name: {"estimate": 1.0, "low": None, "high": None}}},
            ablations=[{"name": name, "metric": name, "ratio": 1.5, "hurts": None}],
            absent=[{"contender": name, "kind": name, "name": name, "hint": name}],
            errors=[{"contender": name, "case": name, "seed": 0, "kind": name, "reason": name}],
            command=name,
        )  # fmt: skip
        described = evidence.described(name, {name: (name, "lower")}, ("ours", name), cases)
        bundle = evidence.bundle(name, "quick", [claim], rows, {name: described}, committed=False)
        environment = {**bundle.environment, name: {name: name}}
        bundles.append(dataclasses.replace(bundle, environment=environment))
    return bundles


def test_names_of_any_kind_are_text_and_never_markup(
    tmp_path: Path, evidence: SimpleNamespace
) -> None:
    out = report.build(_hostile(evidence), tmp_path / "out", methods=[], broken=[]).parent
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    pages = _pages(out)
    assert len(pages) == 1 + len(HOSTILE)
    for page in pages:
        checker = _read(page)
        assert checker.open == []
        assert "img" not in checker.tags
        scripts = 2 if page.name == "index.html" else 3 + 3  # the page's own, and its charts
        assert checker.tags["script"] == scripts
    said = dict.fromkeys(HOSTILE, 0)
    for page in pages:
        if page.name == "index.html":
            continue
        text = " ".join(_read(page).text)
        for name in HOSTILE:
            said[name] += " ".join(name.split()) in " ".join(text.split())
    assert all(said.values()), said


def test_charts_in_a_page_are_valid_json_that_no_name_can_leave(
    tmp_path: Path, evidence: SimpleNamespace
) -> None:
    out = report.build(_hostile(evidence), tmp_path / "out", methods=[], broken=[]).parent
    found = 0
    for page in (out / "methods").iterdir():
        text = page.read_text("utf-8")
        for block in re.findall(r'<script type="application/json">(.*?)</script>', text, re.S):
            chart = json.loads(block)
            assert all(len(row) == len(chart["columns"]) for row in chart["rows"])
            found += 1
    assert found == 3 * len(HOSTILE)  # a forest, a metric and an ablation chart each


def _spelled(value: Any, levels: dict[str, list[str]]) -> Any:
    """What the page's script makes of a packed specification."""
    if isinstance(value, dict):
        if list(value) == ["level"]:
            return levels[value["level"]]
        return {key: _spelled(item, levels) for key, item in value.items()}
    return [_spelled(item, levels) for item in value] if isinstance(value, list) else value


def test_a_packed_chart_spells_out_to_the_same_specification(samples: list[Bundle]) -> None:
    quality, scaling = views.experiment_views(samples[0])
    claims = views.method_view("recalibration", None, samples[:2]).claims
    figures = [*charts.experiment_figures(quality), *charts.experiment_figures(scaling, ["n"])]
    figures += [figure for claim in claims for figure in charts.forests(claim.results)]
    sizes = []
    for figure in figures:
        packed = packing.packed(figure.spec)
        spec = _spelled(packed["spec"], packed["levels"])
        named = [packed["levels"].get(column) for column in packed["columns"]]
        spec["data"] = {
            "values": [
                {
                    column: names[item] if names else item
                    for column, names, item in zip(packed["columns"], named, row, strict=True)
                }
                for row in packed["rows"]
            ]
        }
        assert spec == figure.spec
        sizes.append((len(json.dumps(packed)), len(json.dumps(figure.spec))))
    assert sum(small for small, _ in sizes) < 0.75 * sum(large for _, large in sizes)


def test_missing_numbers_are_dashes(tmp_path: Path, evidence: SimpleNamespace) -> None:
    out = report.build([evidence.spikeinit()], tmp_path / "out", methods=[], broken=[]).parent
    text = " ".join(_read(out / "methods" / "spikeinit.html").text)
    assert "–" in text
    assert not re.search(r"\b(nan|None|null|Undefined)\b", text)


@pytest.mark.parametrize("claim", [{}, {"claim": "c"}, {"claim": "c", "conditions": [{}]}])
def test_a_claim_that_says_next_to_nothing_still_makes_a_page(
    tmp_path: Path, claim: dict[str, Any]
) -> None:
    bundle = Bundle("m", "quick", [claim], [], {"method": "m", "profile": "quick"})
    index = report.build([bundle], tmp_path / "out", methods=[], broken=[])
    assert _read(index.parent / "methods" / "m.html").open == []


def test_a_method_without_evidence_is_shown_with_the_command_that_makes_it(site: Path) -> None:
    text = " ".join(_read(site / "methods" / "wonda.html").text)
    assert "No evidence on this machine yet" in text
    page = (site / "index.html").read_text("utf-8")
    assert "armillary bench wonda --profile quick" in page


def test_failures_and_absences_are_on_the_page(site: Path) -> None:
    text = " ".join(" ".join(_read(site / "methods" / "tango.html").text).split())
    assert "mat1 and mat2 shapes cannot be multiplied" in text
    assert "pip install 'armillary[graph-peers]'" in text
    assert "extra torch_geometric" in text


def test_methods_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    broken = [Broken("ring", "their-lab", "ImportError: no module named 'x'")]
    index = report.build([], tmp_path / "out", methods=[], broken=broken)
    assert "no module named &#39;x&#39;" in index.read_text("utf-8")


def test_a_report_replaces_a_report_as_a_whole(
    tmp_path: Path, samples: list[Bundle], methods: list[Method]
) -> None:
    out = tmp_path / "out"
    report.build(samples, out, methods=methods, broken=[])
    assert (out / "methods" / "recalibration.html").is_file()
    report.build(samples[2:3], out, methods=[], broken=[])
    assert [p.name for p in (out / "methods").iterdir()] == ["tango.html"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_empty_folder_is_taken_and_any_other_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    report.build([], tmp_path / "empty", methods=[], broken=[])
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(ValueError, match=r"thesis.*not a report.*new or an empty folder"):
        report.build([], tmp_path / "thesis", methods=[], broken=[])
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    with pytest.raises(NotADirectoryError, match="is a file"):
        report.build([], tmp_path / "thesis" / "chapter.tex", methods=[], broken=[])


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError("No space left on device")])
def test_an_interrupted_build_leaves_the_old_site(
    tmp_path: Path,
    samples: list[Bundle],
    methods: list[Method],
    monkeypatch: pytest.MonkeyPatch,
    fault: Any,
) -> None:
    out = tmp_path / "out"
    report.build(samples[2:3], out, methods=[], broken=[])
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    real, calls = sites.write_text, []

    def fail_late(path: Path, text: str) -> Path:
        calls.append(path)
        if len(calls) == 6:
            raise fault
        return real(path, text)

    monkeypatch.setattr(sites, "write_text", fail_late)
    with pytest.raises(type(fault) if isinstance(fault, OSError) else fault):
        report.build(samples, out, methods=methods, broken=[])
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_interrupt_while_folders_change_places_leaves_the_old_site(
    tmp_path: Path, samples: list[Bundle], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    report.build(samples[2:3], out, methods=[], broken=[])
    real, moved = Path.rename, []

    def interrupt_second(self: Path, target: Path) -> Path:
        moved.append(self)
        if len(moved) == 2:
            raise KeyboardInterrupt
        return real(self, target)

    monkeypatch.setattr(Path, "rename", interrupt_second)
    with pytest.raises(KeyboardInterrupt):
        report.build([], out, methods=[], broken=[])
    assert (out / "methods" / "tango.html").is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    report.build([], tmp_path / "link", methods=[], broken=[])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "index.html").is_file()


def test_the_site_can_be_read_by_others(tmp_path: Path) -> None:
    report.build([], tmp_path / "out", methods=[], broken=[])
    plain = tmp_path / "plain"
    plain.mkdir()
    assert (tmp_path / "out").stat().st_mode == plain.stat().st_mode


def test_a_slug_that_nobody_knows_is_an_error_before_anything_is_written(
    tmp_path: Path, samples: list[Bundle]
) -> None:
    with pytest.raises(UnknownMethod, match="tanga"):
        report.build(samples, tmp_path / "out", slugs=["tanga"], methods=[], broken=[])
    assert not (tmp_path / "out").exists()


def test_only_the_asked_for_methods_are_shown(
    tmp_path: Path, samples: list[Bundle], methods: list[Method]
) -> None:
    out = report.build(samples, tmp_path / "o", slugs=["tango"], methods=methods, broken=[]).parent
    assert [p.name for p in (out / "methods").iterdir()] == ["tango.html"]
    assert "recalibration" not in (out / "index.html").read_text("utf-8")


def test_two_runs_of_one_profile_keep_both_their_rows(
    tmp_path: Path, evidence: SimpleNamespace
) -> None:
    row = Row("m", "e", "quick", "a", 0, "ours", metrics={"x": 1.0})
    runs = [
        evidence.bundle("m", "quick", [], [dataclasses.replace(row, seed=s)], {}, committed=False)
        for s in (1, 2)
    ]
    out = report.build(runs, tmp_path / "out", methods=[], broken=[]).parent
    seeds = {csv_file.read_text().split(",")[-9] for csv_file in (out / "data").iterdir()}
    assert {p.name for p in (out / "data").iterdir()} == {
        "m-own-quick-rows.csv",
        "m-own-quick-2-rows.csv",
    }
    assert len(seeds) == 2


def test_committed_pictures_stand_on_their_method_s_page(
    tmp_path: Path, samples: list[Bundle], methods: list[Method], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "evidence" / "tango" / "pictures"
    folder.mkdir(parents=True)
    (folder / "sheet.png").write_bytes(b"a picture")
    listed = [{"file": "sheet.png", "title": "Both <looks>", "alt": 'a "ground"'}]
    (folder / "index.json").write_text(json.dumps(listed), "utf-8")
    monkeypatch.setattr("armillary.evidence.bundle.committed_folder", lambda: tmp_path / "evidence")
    out = report.build(samples, tmp_path / "o", slugs=["tango"], methods=methods, broken=[]).parent
    assert (out / "pictures" / "tango-sheet.png").read_bytes() == b"a picture"
    page = _read(out / "methods" / "tango.html")
    assert "../pictures/tango-sheet.png" in page.links
    assert "Both <looks>" in page.text
    assert "pictures" in page.ids
    (folder / "sheet.png").unlink()
    with pytest.raises(ValueError, match=r"not there: sheet\.png"):
        report.build(samples, tmp_path / "o", slugs=["tango"], methods=methods, broken=[])
    assert (out / "pictures" / "tango-sheet.png").is_file()
