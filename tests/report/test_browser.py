"""The report in headless Chromium: from a file and from a server, by mouse, by keyboard, small."""

from __future__ import annotations

import dataclasses
import gzip
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from armillary import report
from armillary.evidence.bundle import Bundle, rows_from_csv_gz
from armillary.evidence.shapes import Row
from armillary.report import charts, formats, views

pytestmark = pytest.mark.browser

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: Charts that are not folded away, and how many of them still wait.
WAITING = """[...document.querySelectorAll("figure[data-chart='waiting']")]
    .filter(f => !f.closest("details:not([open])")).length"""

#: Whether the text of every drawn chart has the colour of the page's present theme.
SETTLED = """(() => {
    const probe = document.createElement("i");
    probe.style.color = "var(--muted)";
    document.body.append(probe);
    const muted = getComputedStyle(probe).color;
    probe.remove();
    return [...document.querySelectorAll("figure[data-chart='drawn'] svg text")]
        .every(t => getComputedStyle(t).fill === muted);
})()"""
PAGES = ("index.html", "methods/recalibration.html", "methods/tango.html")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium on the path")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


Open = Callable[..., Any]


@pytest.fixture
def visit(browser: Any, site: Path) -> Iterator[Open]:
    """Opens a page; at the end no error was logged and nothing was asked of another machine."""
    contexts, complaints, requests = [], [], []

    def go(page: str = "index.html", base: str = "", **options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(15_000)
        tab.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto((base or site.as_uri() + "/") + page)
        return tab

    yield go
    for context in contexts:
        context.close()
    assert complaints == []
    elsewhere = [u for u in requests if not re.match(r"(file:///|data:|http://127\.0\.0\.1:)", u)]
    assert elsewhere == []
    assert requests


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = report.Server(site)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.url
    server.close()
    thread.join(5)


def _drawn(tab: Any) -> None:
    tab.wait_for_function(f"{WAITING} === 0")
    assert tab.locator("figure[data-chart='failed']").count() == 0


def _shown(tab: Any) -> int:
    return tab.locator("tr[data-state]:visible").count()


def _marks(tab: Any, kind: str, figure: str) -> int:
    """How many points or rules a figure's drawing holds."""
    return tab.locator(f"{figure} svg g.mark-{kind}.role-mark :is(path, line)").count()


@pytest.mark.parametrize("way", ["file", "server"])
def test_charts_are_drawn_with_every_mark(visit: Open, address: str, way: str) -> None:
    tab = visit("methods/recalibration.html", base=address if way == "server" else "")
    _drawn(tab)
    crps = "article:nth-of-type(1) .forests figure"
    assert _marks(tab, "symbol", crps) == 8  # four peers in two runs
    assert _marks(tab, "rule", crps) == 8 + 2  # an interval each, the bound and the ratio of one
    quality = "#evidence ~ details .experiment:nth-of-type(1) figure:nth-of-type(1)"
    assert _marks(tab, "symbol", quality) == 5 * 8
    said = tab.locator("figure .chart[role='graphics-document'][aria-label]")
    assert said.count() == tab.locator("figure svg.marks").count() == 11
    assert "ours ÷ pit, your run, quick: 0.9" in (said.first.get_attribute("aria-label") or "")


def test_a_chart_has_its_figures_in_a_table(visit: Open, samples: list[Bundle]) -> None:
    tab = visit("methods/recalibration.html")
    (details,) = tab.locator(".experiment .charts details").all()[:1]
    details.locator("summary").press("Enter")
    table = details.locator("table")
    table.wait_for()
    heads = table.locator("thead th").all_inner_texts()
    assert heads[:3] == ["case", "ours", "pit"]
    points = {
        (p.case, p.contender): p
        for p in views.experiment_views(samples[0])[0].points
        if p.metric == "crps"
    }
    for line in table.locator("tbody tr").all():
        case, *cells = line.locator("th, td").all_inner_texts()
        for who, cell in zip(heads[1:], cells, strict=True):
            ends = (getattr(points[case, who], end) for end in ("mean", "low", "high"))
            mean, low, high = (charts.rounded(end) for end in ends)
            assert cell == f"{formats.number(mean)} {formats.interval(low, high)}"


def test_folded_charts_are_drawn_when_they_are_opened(visit: Open) -> None:
    tab = visit("methods/recalibration.html")
    _drawn(tab)
    folded = tab.locator("details.run:not([open]) figure")
    assert folded.count() == 4
    tab.locator("details.run:not([open]) > summary").click()
    _drawn(tab)
    assert tab.locator("details.run:nth-of-type(2) figure[data-chart='drawn']").count() == 4


def test_the_overview_shows_every_result_and_filters_them(visit: Open, address: str) -> None:
    tab = visit(base=address)
    assert _shown(tab) == 15
    tab.get_by_role("button", name=re.compile("fails")).click()
    assert _shown(tab) == 1
    assert tab.locator("tbody:visible").count() == 1
    assert tab.locator("#filter-count").inner_text() == "1 of 15 results shown"
    tab.get_by_role("button", name=re.compile("not run")).click()
    assert _shown(tab) == 2
    tab.locator("#filter-clear").click()
    assert _shown(tab) == 15
    tab.locator("#filter-field").select_option("graph")
    assert tab.locator("tr.method:visible").inner_text().startswith("tango")
    tab.locator("#filter-clear").click()
    tab.locator("#filter-source").select_option("own")
    assert _shown(tab) == 6
    tab.locator("#filter-clear").click()
    tab.locator("#filter-text").fill("crepes CRPS")
    assert _shown(tab) == 2
    tab.locator("#filter-text").fill("nobody has this")
    assert _shown(tab) == 0
    assert tab.locator("#filter-empty").is_visible()


def test_a_filter_is_in_the_address_and_comes_back_with_it(visit: Open) -> None:
    tab = visit()
    tab.locator("#filter-field").select_option("uncertainty")
    tab.get_by_role("button", name=re.compile("partly")).click()
    address = tab.url
    assert address.endswith("#field=uncertainty&verdict=partly")
    again = visit(page=address.rsplit("/", 1)[1])
    assert _shown(again) == 2
    odd = visit("index.html#field=%3Cscript%3E&verdict=x&q=")
    assert _shown(odd) == 15


def test_everything_works_by_keyboard(visit: Open) -> None:
    tab = visit()

    def focus() -> str:
        return tab.evaluate("document.activeElement.textContent.trim().slice(0, 40)")

    tab.keyboard.press("Tab")
    assert focus() == "Skip to content"
    assert tab.locator(".skip").bounding_box()["x"] >= 0  # it is seen once it has the focus
    order = []
    for _ in range(4):
        tab.keyboard.press("Tab")
        order.append(focus())
    assert order[:2] == ["Armillary", "Theme: auto"]
    assert order[2].endswith("holds")
    assert order[3].endswith("partly")
    outline = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    tab.keyboard.press("Space")
    assert _shown(tab) == 2
    tab.keyboard.press("Enter")
    assert _shown(tab) == 15
    tab.locator("#filter-field").focus()
    tab.keyboard.type("graph")
    assert _shown(tab) == 2
    tab.locator(".skip").focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "main"


def test_a_phone_needs_no_sideways_scrolling(visit: Open, site: Path) -> None:
    tab = visit(viewport={"width": 375, "height": 700}, has_touch=True, is_mobile=True)
    for page in PAGES:
        tab.goto(f"{site.as_uri()}/{page}")
        _drawn(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 375
        wide = tab.evaluate("""[...document.querySelectorAll("main *")].filter(e =>
            !e.closest(".scroll, .offscreen, thead, svg")
            && e.getBoundingClientRect().right > 376).map(e => e.outerHTML.slice(0, 90))""")
        assert wide == []


def test_tables_that_are_too_wide_can_be_scrolled_by_keyboard(visit: Open) -> None:
    focusable = "[...document.querySelectorAll('.scroll[tabindex=\"0\"]')].length"
    wide = visit("methods/tango.html")
    assert wide.evaluate(focusable) == 0  # nothing to scroll: no stop
    phone = visit("methods/tango.html", viewport={"width": 375, "height": 700})
    phone.wait_for_function(f"{focusable} > 0")
    phone.locator(".scroll[tabindex='0']").first.focus()
    phone.keyboard.press("ArrowRight")
    phone.wait_for_function("document.activeElement.scrollLeft > 0")


#: The lowest contrast of any text with its background, after WCAG 2, and where it is.
CONTRAST = """() => {
  const channel = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
  const parse = s => s.match(/[\\d.]+/g).map(Number);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("script, style") || !e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const svg = e instanceof SVGElement;
    const a = light(parse(svg ? style.fill : style.color)), b = light(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.outerHTML.slice(0, 120)];
  }
  return worst;
}"""


def test_text_has_the_contrast_of_wcag_aa_in_both_schemes(visit: Open, site: Path) -> None:
    tab = visit()
    for page in PAGES:
        tab.goto(f"{site.as_uri()}/{page}")
        for scheme in ("light", "dark"):
            tab.emulate_media(color_scheme=scheme)
            _drawn(tab)
            tab.wait_for_function(SETTLED)
            ratio, where = tab.evaluate(CONTRAST)
            assert ratio >= 4.5, f"{page}, {scheme}: {where}"


def test_the_theme_follows_the_system_and_can_be_chosen(visit: Open) -> None:
    tab = visit("methods/tango.html", color_scheme="dark")
    _drawn(tab)
    paper = "getComputedStyle(document.body).backgroundColor"
    label = "getComputedStyle(document.querySelector('figure svg text')).fill"
    dark, dark_label = tab.evaluate(paper), tab.evaluate(label)
    tab.emulate_media(color_scheme="light")
    light = tab.evaluate(paper)
    assert light != dark
    tab.wait_for_function(f"{label} !== '{dark_label}'")  # charts are drawn anew
    tab.emulate_media(color_scheme="dark")
    assert tab.evaluate(paper) == dark
    tab.locator("#theme").click()
    assert tab.locator("#theme").inner_text() == "Theme: light"
    assert tab.evaluate(paper) == light
    tab.reload()
    assert tab.evaluate(paper) == light  # the choice is kept
    tab.locator("#theme").click()
    assert tab.evaluate(paper) == dark


def test_no_motion_for_those_who_want_none(visit: Open) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert visit(reduced_motion="reduce").evaluate(behaviour) == "auto"
    assert visit(reduced_motion="no-preference").evaluate(behaviour) == "smooth"


def test_verdicts_have_a_word_and_a_shape_of_their_own(visit: Open) -> None:
    tab = visit()
    pairs = tab.evaluate("""[...document.querySelectorAll("tr[data-state] .verdict")].map(v =>
        [v.textContent.trim(), v.querySelector("use").getAttribute("href"),
         document.querySelector(v.querySelector("use").getAttribute("href")).innerHTML])""")
    words = {word for word, _, _ in pairs}
    assert len(words) == 7
    assert len({shape for _, _, shape in pairs}) == 7


def test_rows_can_be_taken_away(visit: Open, address: str, samples: list[Bundle]) -> None:
    tab = visit("methods/tango.html", base=address, accept_downloads=True)
    with tab.expect_download() as waiting:
        tab.get_by_role("link", name=re.compile("measurements as CSV")).click()
    file = Path(waiting.value.path())
    assert waiting.value.suggested_filename == "tango-committed-full-rows.csv"
    rows = list(rows_from_csv_gz(gzip.compress(file.read_bytes()), "tango", "full"))
    assert rows == samples[2].rows


def test_a_command_is_copied(visit: Open, address: str) -> None:
    tab = visit(
        "methods/tango.html", base=address, permissions=["clipboard-read", "clipboard-write"]
    )
    tab.get_by_role("button", name="Copy").first.click()
    tab.get_by_role("button", name="Copied").wait_for()
    assert tab.evaluate("navigator.clipboard.readText()") == "armillary bench tango --profile full"


def test_without_scripts_all_is_readable(visit: Open) -> None:
    tab = visit(java_script_enabled=False)
    assert tab.locator("tr[data-state]").count() == 15
    assert not tab.locator("#filters").is_visible()
    assert not tab.locator("#theme").is_visible()


def test_names_of_any_kind_do_no_harm(
    visit: Open, tmp_path: Path, evidence: SimpleNamespace
) -> None:
    name = "</script><script>document.title='stolen'</script> \" ' 🚀 {{x}} " + "w" * 300
    bundle = evidence.recalibration(seeds=3)
    claims = [{**c, "claim": name, "statement": name, "reason": name} for c in bundle.claims[:1]]
    rows = [dataclasses.replace(r, case=name) for r in bundle.rows if r.case == "wage"]
    odd = dataclasses.replace(bundle, slug=name, claims=claims, rows=rows)
    out = report.build([odd], tmp_path / "out", methods=[], broken=[]).parent
    (page,) = (out / "methods").iterdir()
    tab = visit(f"methods/{page.name}", f"{out.as_uri()}/")
    for width in (1280, 375):
        tab.set_viewport_size({"width": width, "height": 800})
        _drawn(tab)
        assert "stolen" not in tab.title().split("<")[0]
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_300_000_rows_do_not_choke_it(visit: Open, tmp_path: Path) -> None:
    cases = [f"case {i}" for i in range(300)]
    rows = [
        Row("big", "e", "long", case, seed, who, metrics={"loss": seed / 7 + at}, seconds=0.1)
        for at, case in enumerate(cases)
        for seed in range(100)
        for who in ("ours", *(f"peer {i}" for i in range(9)))
    ]
    assert len(rows) == 300_000
    described = {
        "title": "Loss", "unit": "seed", "timed": None, "metrics": [{"name": "loss"}],
        "contenders": [], "cases": [{"name": c, "x": {"n": i + 1}} for i, c in enumerate(cases)],
    }  # fmt: skip
    environment = {"method": "big", "profile": "long", "experiments": {"e": described}}
    bundle = Bundle("big", "long", [], rows, environment)
    out = report.build([bundle], tmp_path / "out", methods=[], broken=[]).parent
    assert (out / "methods" / "big.html").stat().st_size < 100_000
    start = time.monotonic()
    tab = visit("methods/big.html", base=f"{out.as_uri()}/")
    _drawn(tab)
    assert time.monotonic() - start < 10
    (file,) = (out / "data").iterdir()
    assert file.name.endswith(".csv.gz")
    assert list(rows_from_csv_gz(file.read_bytes(), "big", "long")) == rows
