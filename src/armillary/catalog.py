"""The cards of all methods: plain data, nothing heavy is imported.

A method is named by its slug. Built-in methods stand in one tuple of dotted names and are resolved
only when asked for; other packages add theirs through the entry-point group ``armillary.methods``,
whose values are the dotted names of their method packages.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import importlib.util
import re

from armillary.errors import UnknownMethod

ENTRY_POINT_GROUP = "armillary.methods"

_SLUG = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")

#: Packages that hold one method each: ``armillary.<field>.<slug with underscores>``.
BUILT_IN: tuple[str, ...] = (
    "armillary.uncertainty.recalibration",
    "armillary.context.radar",
    "armillary.graph.tango",
    "armillary.neuro.spikeinit",
    "armillary.neuro.ssn",
    "armillary.rl.kage",
    "armillary.rl.maxmin_morl",
    "armillary.serving.climb",
    "armillary.serving.gemq",
    "armillary.serving.hexgen",
    "armillary.serving.tbik",
)

#: The fields of the library and what each is about.
FIELDS: dict[str, str] = {
    "serving": "serving language models",
    "decoding": "decoding and speculation",
    "context": "retrieval, memory and long context",
    "data": "training data",
    "adaptation": "adapting language models",
    "insight": "understanding what networks do",
    "evals": "evaluating models and agents",
    "rl": "reinforcement learning",
    "vision": "vision",
    "eda": "chip design",
    "uncertainty": "uncertainty and calibration",
    "theory": "learning theory",
    "graph": "graph learning",
    "neuro": "spiking and cortical networks",
}


@dataclasses.dataclass(frozen=True)
class Paper:
    """Where a method comes from."""

    title: str
    authors: str
    venue: str
    url: str = ""


@dataclasses.dataclass(frozen=True)
class Card:
    """What the catalogue knows of a method without importing it.

    Attributes:
        slug: the method's name on the command line, such as ``"maxmin-morl"``.
        field: one of `FIELDS`.
        title: a few words.
        gift: one line: what a user gains.
        paper: its source.
        claims: the ids of its claims, in the order in which they are shown.
        extra: the extra of this package that the method needs, or ``""``.
        modules: modules that must be importable for the method to be usable.
        peers_extra: the extra that its evidence needs, or ``""``.
    """

    slug: str
    field: str
    title: str
    gift: str
    paper: Paper
    claims: tuple[str, ...]
    extra: str = ""
    modules: tuple[str, ...] = ()
    peers_extra: str = ""


@dataclasses.dataclass(frozen=True)
class Method:
    """A card and where its method lives."""

    card: Card
    package: str
    source: str = "armillary"

    @property
    def evidence_module(self) -> str:
        return f"{self.package}.evidence"

    @property
    def command_module(self) -> str:
        return f"{self.package}.command"

    @property
    def installed(self) -> bool:
        """Whether the modules that the method needs can be imported (none is imported)."""
        return not self.missing_modules()

    def missing_modules(self) -> list[str]:
        return [m for m in self.card.modules if not _findable(m)]


@dataclasses.dataclass(frozen=True)
class Broken:
    """A method that another package announced and that could not be read."""

    name: str
    source: str
    reason: str


def _findable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _read(package: str, source: str) -> Method:
    card = importlib.import_module(f"{package}.card").CARD
    if not isinstance(card, Card):
        raise TypeError(f"{package}.card.CARD is a {type(card).__name__}, not a Card")
    if not isinstance(card.slug, str) or not _SLUG.fullmatch(card.slug):
        raise ValueError(f"{package}.card.CARD: slug {card.slug!r} is not small letters and -")
    if card.field not in FIELDS:
        raise ValueError(f"{package}.card.CARD: there is no field {card.field!r}")
    return Method(card, package, source)


def methods() -> list[Method]:
    """Every readable method, the built-in ones first, each slug once."""
    return _survey()[0]


def broken() -> list[Broken]:
    """Announced methods that could not be read, with the reason."""
    return _survey()[1]


def _survey() -> tuple[list[Method], list[Broken]]:
    found: dict[str, Method] = {}
    failures: list[Broken] = []
    for package in BUILT_IN:
        method = _read(package, "armillary")
        found[method.card.slug] = method
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP):
        source = point.dist.name if point.dist is not None else point.value
        try:
            method = _read(point.value, source)
        except (Exception, SystemExit) as error:  # a stranger's package may fail in any way
            failures.append(Broken(point.name, source, f"{type(error).__name__}: {error}"))
            continue
        if method.card.slug in found:
            taken = found[method.card.slug].source
            failures.append(
                Broken(point.name, source, f"slug {method.card.slug!r} is taken by {taken}")
            )
            continue
        found[method.card.slug] = method
    return list(found.values()), failures


def get(slug: str) -> Method:
    """The method of that slug.

    Raises:
        UnknownMethod: with the nearest slugs that exist.
    """
    import difflib

    known = {method.card.slug: method for method in methods()}
    if slug in known:
        return known[slug]
    near = difflib.get_close_matches(slug.replace("_", "-").lower(), known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UnknownMethod(
        f"no method {slug!r} in the catalogue.{hint} `armillary list` shows all {len(known)}."
    )
