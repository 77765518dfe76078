"""A method of another package: found by its entry point, and harmless when it is broken."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CARD = """
from armillary.catalog import Card, Paper
CARD = Card("guest", "theory", "A guest", "What a lab keeps on the same axis.",
            Paper("T", "A", "V"), ("better",))
"""


@pytest.fixture
def lab(planted):
    """A lab's package ``guest``, installed beside Armillary; runs the command line with it."""
    package = planted.folder / planted.write(slug="guest")
    (package / "card.py").write_text(CARD, "utf-8")
    (package / "command.py").write_text(
        "import typer\n"
        "app = typer.Typer()\n"
        "@app.command()\n"
        "def greet(name: str) -> None:\n"
        "    print(f'hello {name}')\n"
    )

    def go(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "armillary", *arguments],
            env=planted.environment(), capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    go.package = package
    go.planted = planted
    return go


@pytest.mark.slow
def test_it_is_listed_measured_compared_and_reported_like_any_other(lab, tmp_path):
    store = str(lab.planted.store)
    assert "guest" in {record["slug"] for record in json.loads(lab("list", "--json").stdout)}
    assert "planted_guest" in lab("info", "guest").stdout
    assert lab("guest", "you").stdout == "hello you\n"
    done = lab("bench", "guest", "--store", store, "--json", "-")
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert (record["method"], record["verdict"]) == ("guest", "holds")
    site = tmp_path / "site"
    assert lab("report", "--store", store, "-o", str(site)).returncode == 0
    index = (site / "index.html").read_text("utf-8")
    assert "What a lab keeps on the same axis." in index + (
        site / "methods" / "guest.html"
    ).read_text("utf-8")
    assert "guest.html" in index
    assert "1 the same" in lab("compare", store, store).stderr


#: How a package may be broken before it is a method, and what is said of it.
BROKEN_CARDS = {
    "import error": ("import no_such_module", "No module named 'no_such_module'"),
    "no card": ("CART = 1", "has no attribute 'CARD'"),
    "wrong card": ("CARD = {'slug': 'guest'}", "CARD is a dict, not a Card"),
    "wrong arguments": ("from armillary.catalog import Card\nCARD = Card('guest')", "TypeError"),
    "wrong slug": (CARD.replace('"guest"', '"Guest Method"'), "slug 'Guest Method'"),
    "wrong field": (CARD.replace('"theory"', '"alchemy"'), "field 'alchemy'"),
    "syntax": ("CARD = (", "SyntaxError"),
    "ends the process": ("raise SystemExit(3)", "SystemExit"),
    "taken": (CARD.replace('"guest"', '"second"'), "slug 'second' is taken by planted_second"),
}


@pytest.mark.parametrize("how", BROKEN_CARDS)
def test_a_package_that_is_no_method_is_told_by_name_and_is_not_listed(lab, how):
    source, told = BROKEN_CARDS[how]
    lab.planted.write(slug="second")  # another lab's method, which is well
    (lab.package / "card.py").write_text(source, "utf-8")
    done = lab("list")
    assert done.returncode == 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("left out: ")]
    if how == "taken":  # which of the two is found first is the file system's order
        assert "slug 'second' is taken by planted_" in line
    else:
        assert line.startswith("left out: guest of planted_guest: ")
        assert told in line
    listed = [row.split("\t")[0] for row in done.stdout.splitlines()]
    assert listed.count("second") == 1
    assert "guest" not in listed


@pytest.mark.slow
def test_a_broken_package_harms_no_run_and_is_named_in_the_report(lab, tmp_path):
    store = str(lab.planted.store)
    lab.planted.write(slug="second")
    (lab.package / "card.py").write_text("raise SystemExit(3)", "utf-8")
    done = lab("bench", "second", "--store", store, "--profile", "smoke")
    assert done.returncode == 0, done.stderr
    done = lab("bench", "guest", "--store", store)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no method 'guest'" in done.stderr
    site = tmp_path / "site"
    assert lab("report", "--store", store, "-o", str(site)).returncode == 0
    index = (site / "index.html").read_text("utf-8")
    assert "SystemExit: 3" in index
    assert "second.html" in index


#: How its evidence may be broken.
BROKEN_EVIDENCE = {
    "raises": ("raise RuntimeError('not today')", "RuntimeError: not today"),
    "import error": ("import no_such_module", "No module named 'no_such_module'"),
    "no experiments": ("EXPERIMENT = 1", "has no attribute 'EXPERIMENTS'"),
    "no sequence": ("EXPERIMENTS = 3", "TypeError"),
    "ends the process": ("raise SystemExit(3)", "SystemExit: 3"),
}


@pytest.mark.parametrize("how", BROKEN_EVIDENCE)
def test_evidence_that_cannot_be_imported_is_told_and_the_others_go_on(lab, how):
    source, told = BROKEN_EVIDENCE[how]
    (lab.package / "evidence.py").write_text(source, "utf-8")
    done = lab("bench", "guest", "--store", str(lab.planted.store))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "the evidence of guest, of the package planted_guest, cannot be imported" in line
    assert told in line
    assert not lab.planted.store.exists()


def test_all_leaves_a_broken_one_out_by_name(lab, monkeypatch, capsys):
    from armillary import catalog
    from armillary.cli import root

    (lab.package / "evidence.py").write_text("raise RuntimeError('not today')", "utf-8")
    lab.planted.write(slug="second")
    monkeypatch.syspath_prepend(str(lab.planted.folder))
    monkeypatch.setattr(catalog, "BUILT_IN", ())
    code = root.run(
        ["bench", "--all", "--profile", "smoke", "--store", str(lab.planted.store)]
    )  # fmt: skip
    said = capsys.readouterr()
    assert code == 0
    assert "guest: not run: the evidence of guest" in said.err
    assert "second\tbetter" in said.out
