"""``armillary new``: the skeleton of a method, which passes lint and whose evidence fails."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from armillary import catalog, output
from armillary.output import write_text

app = typer.Typer(rich_markup_mode=None)

_SLUG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclasses.dataclass(frozen=True)
class Names:
    """What a method is called in each place."""

    field: str
    slug: str

    @property
    def module(self) -> str:
        return self.slug.replace("-", "_")

    @property
    def estimator(self) -> str:
        return "".join(part.capitalize() for part in self.slug.split("-"))

    @property
    def package(self) -> str:
        return f"armillary.{self.field}.{self.module}"


#: Template -> where it goes, both relative.
_FILES = {
    "init.py.txt": "src/armillary/{field}/{module}/__init__.py",
    "card.py.txt": "src/armillary/{field}/{module}/card.py",
    "estimator.py.txt": "src/armillary/{field}/{module}/estimator.py",
    "evidence.py.txt": "src/armillary/{field}/{module}/evidence.py",
    "command.py.txt": "src/armillary/{field}/{module}/command.py",
    "test.py.txt": "tests/{field}/{module}/test_{module}.py",
    "docs.md.txt": "docs/methods/{slug}.md",
    "example.py.txt": "examples/{module}.py",
}


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="FIELD/SLUG", help="Such as graph/tango.")],
    root: Annotated[Path, typer.Option(help="A checkout of Armillary.")] = Path(),
) -> None:
    """Write the skeleton of a method into a checkout, and enter it in the catalogue.

    The skeleton passes lint and runs; its evidence fails until there is a method in it.

    Example: armillary new graph/tango
    """
    names = _parse(name)
    listing = root / "src" / "armillary" / "catalog.py"
    if not listing.is_file():
        raise FileNotFoundError(
            f"--root {str(root)!r} is no checkout of Armillary: it has no src/armillary/catalog.py"
        )
    for path in write_skeleton(names, root):
        output.console().print(str(path))
    _enter(listing, names)
    console = output.console()
    console.note(f"entered {names.package} in {listing}")
    console.note("then put its (empty) table of claims in place: make readme")
    console.note(f"now: armillary bench {names.slug} --profile quick, and see it fail")


def _parse(name: str) -> Names:
    field, _, slug = name.partition("/")
    if field not in catalog.FIELDS:
        raise ValueError(
            f"FIELD/SLUG {name!r}: the field is one of {', '.join(sorted(catalog.FIELDS))}"
        )
    if not _SLUG.fullmatch(slug):
        raise ValueError(
            f"FIELD/SLUG {name!r}: the slug is lower-case words joined by '-', such as maxmin-morl"
        )
    if slug in {method.card.slug for method in catalog.methods()}:
        raise ValueError(f"FIELD/SLUG {name!r}: the catalogue has a method {slug!r} already")
    return Names(field, slug)


def write_skeleton(names: Names, root: Path) -> list[Path]:
    """Write the skeleton's files; none is overwritten.

    Raises:
        FileExistsError: one of them is there already (nothing is written then).
    """
    from jinja2 import Environment, StrictUndefined

    templates = resources.files("armillary.cli") / "skeleton"
    environment = Environment(
        undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    targets = {
        template: root / path.format(field=names.field, module=names.module, slug=names.slug)
        for template, path in _FILES.items()
    }
    for path in targets.values():
        if path.exists():
            raise FileExistsError(f"{str(path)!r} exists already; nothing was written")
    field_package = root / "src" / "armillary" / names.field / "__init__.py"
    if not field_package.exists():
        about = catalog.FIELDS[names.field]
        write_text(field_package, f'"""{about[0].upper()}{about[1:]}."""\n')
    for template, path in targets.items():
        text = environment.from_string((templates / template).read_text("utf-8"))
        write_text(path, text.render(names=names))
    return list(targets.values())


def _enter(listing: Path, names: Names) -> None:
    """Add the method to the tuple of built-in ones."""
    text = listing.read_text("utf-8")
    found = re.search(
        r"^BUILT_IN: tuple\[str, \.\.\.\] = \((.*?)\)$", text, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise ValueError(f"{str(listing)!r} has no BUILT_IN tuple to enter {names.package} in")
    entries = [*re.findall(r'"([^"]+)"', found.group(1)), names.package]
    lines = "".join(f'    "{entry}",\n' for entry in entries)
    body = f"\n{lines}" if len(entries) > 1 else f'"{entries[0]}",'  # as ruff formats it
    start, end = found.span()
    write_text(listing, f"{text[:start]}BUILT_IN: tuple[str, ...] = ({body}){text[end:]}")
