"""What moved between two sets of judged claims: verdicts, figures, claims that came or went."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from armillary.evidence.postgres import is_postgres
from armillary.evidence.scrub import hide_passwords
from armillary.evidence.shapes import PROFILES

#: Verdicts from the best to the worst; every other one says that nothing was judged.
ORDER = ("holds", "partly", "unclear", "fails")

Change = Literal["worse", "better", "figures", "same", "apart", "appeared", "vanished"]

_SQLITE = b"SQLite format 3\x00"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A statistic before and after.

    Attributes:
        old, new: conditions of a claim, as `armillary.evidence.bundle` describes them; None where
            there was none.
    """

    old: Mapping[str, Any] | None
    new: Mapping[str, Any] | None

    @property
    def overlap(self) -> bool | None:
        """Whether the two intervals share a value; None where one of them is missing."""
        found = [(c or {}).get(end) for c in (self.old, self.new) for end in ("low", "high")]
        ends = [float(end) for end in found if end is not None]
        if len(ends) < 4:
            return None
        old_low, old_high, new_low, new_high = ends
        return max(old_low, new_low) <= min(old_high, new_high)

    @property
    def moved(self) -> bool:
        """Whether estimate, interval or target differ in what a reader is shown."""
        return _shown(self.old) != _shown(self.new)


@dataclasses.dataclass(frozen=True)
class Difference:
    """One claim before and after.

    Attributes:
        method, claim: which.
        profiles: the old profile and the new one; ``""`` where there was none.
        verdicts: the old verdict and the new one.
        figures: its statistics, moved or not.
        change: ``worse``, ``better`` (the verdict), ``figures`` (only those), ``same``, ``apart``
            (one side was not judged), ``appeared`` or ``vanished``.
    """

    method: str
    claim: str
    profiles: tuple[str, str]
    verdicts: tuple[str, str]
    figures: tuple[Figure, ...]
    change: Change

    def record(self) -> dict[str, Any]:
        """The difference, ready for JSON."""
        keys = ("estimate", "low", "high", "at_most", "at_least", "status")
        figures = []
        for figure in self.figures:
            named = figure.new or figure.old or {}
            figures.append(
                {k: named.get(k) for k in ("metric", "form", "of", "over")}
                | {
                    "old": figure.old and {k: figure.old.get(k) for k in keys},
                    "new": figure.new and {k: figure.new.get(k) for k in keys},
                    "moved": figure.moved,
                    "overlap": figure.overlap,
                }
            )
        return {
            "method": self.method,
            "claim": self.claim,
            "change": self.change,
            "old": {"profile": self.profiles[0], "verdict": self.verdicts[0]},
            "new": {"profile": self.profiles[1], "verdict": self.verdicts[1]},
            "figures": figures,
        }


def read_claims(source: str) -> list[dict[str, Any]]:
    """The judged claims of a folder of evidence, a bundle, a JSON file or a store.

    Args:
        source: a folder that holds ``claims.json`` or whose folders do, a file that ``--json``
            wrote, or the path or URL of a store.

    Raises:
        FileNotFoundError: there is nothing, or a folder without evidence.
        ValueError: a file is neither claims nor a store.
    """
    path = Path(source).expanduser()
    if is_postgres(source) or source.startswith("sqlite:"):
        return _of_store(source)
    if path.is_dir():
        files = [path / "claims.json"] if (path / "claims.json").is_file() else []
        files = files or sorted(path.glob("*/claims.json"))
        if not files:
            raise FileNotFoundError(
                f"no evidence in {source!r}: give a folder with claims.json in it or in its "
                "folders, a file of `armillary bench --json`, or a store"
            )
        return [claim for file in files for claim in _of_file(file)]
    if not path.is_file():
        raise FileNotFoundError(
            f"nothing at {hide_passwords(source)!r}: give a folder of evidence, a file of "
            "`armillary bench --json`, or the path or URL of a store"
        )
    with path.open("rb") as file:
        database = file.read(len(_SQLITE)) == _SQLITE
    return _of_store(str(path)) if database else _of_file(path)


def _of_store(url: str) -> list[dict[str, Any]]:
    from armillary.evidence.store import Store

    with Store(url, read_only=True) as store:
        return [claim for bundle in store.bundles() for claim in bundle.claims]


def _of_file(path: Path) -> list[dict[str, Any]]:
    try:
        claims = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} holds no claims: {error}") from None
    wanted = ("method", "claim", "verdict")
    fine = isinstance(claims, list) and all(
        isinstance(c, dict) and all(isinstance(c.get(k), str) for k in wanted) for c in claims
    )
    if not fine:
        raise ValueError(
            f"{str(path)!r} holds no claims: give a list of objects with method, claim and verdict"
        )
    return claims


def compare(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[Difference]:
    """Pair claims and say what moved.

    A claim is paired profile by profile. Where the two sides have no profile in common, the
    largest of each are paired, and ``profiles`` says so. What a user brought herself is no claim
    and is left out.
    """
    before, after = _by_claim(old), _by_claim(new)
    found: list[Difference] = []
    for key in dict.fromkeys([*before, *after]):
        for pair in _paired(before.get(key, {}), after.get(key, {})):
            found.append(_difference(*key, *pair))
    return found


def _by_claim(
    claims: Iterable[Mapping[str, Any]],
) -> dict[tuple[str, str], dict[str, Mapping[str, Any]]]:
    found: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for claim in claims:
        if not claim.get("own"):
            profiles = found.setdefault((claim["method"], claim["claim"]), {})
            profiles[str(claim.get("profile") or "")] = claim
    return found


def _paired(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    if shared := [profile for profile in old if profile in new]:
        return [(old[profile], new[profile]) for profile in shared]
    return [(_largest(old), _largest(new))]


def _largest(profiles: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    order = ["", *PROFILES]
    ranked = sorted(profiles, key=lambda p: order.index(p) if p in order else -1)
    return profiles[ranked[-1]] if ranked else None


def _difference(
    method: str, claim: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None
) -> Difference:
    figures = _figures(old, new)
    return Difference(
        method,
        claim,
        (_text(old, "profile"), _text(new, "profile")),
        (_text(old, "verdict"), _text(new, "verdict")),
        figures,
        _change(old, new, figures),
    )


def _text(claim: Mapping[str, Any] | None, key: str) -> str:
    return "" if claim is None else str(claim.get(key) or "")


def _change(
    old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, figures: Sequence[Figure]
) -> Change:
    if old is None or new is None:
        return "appeared" if old is None else "vanished"
    if old["verdict"] != new["verdict"]:
        if old["verdict"] not in ORDER or new["verdict"] not in ORDER:
            return "apart"
        return "worse" if ORDER.index(new["verdict"]) > ORDER.index(old["verdict"]) else "better"
    return "figures" if any(figure.moved for figure in figures) else "same"


def _figures(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> tuple[Figure, ...]:
    before, after = _conditions(old), _conditions(new)
    return tuple(
        Figure(before.get(key), after.get(key)) for key in dict.fromkeys([*before, *after])
    )


def _conditions(claim: Mapping[str, Any] | None) -> dict[tuple, Mapping[str, Any]]:
    """A claim's conditions by what they measure; two of the same measure are told by order."""
    found: dict[tuple, Mapping[str, Any]] = {}
    for condition in (claim or {}).get("conditions") or ():
        named = tuple(str(condition.get(k)) for k in ("metric", "form", "pool", "of", "over"))
        order = sum(key[:-1] == named for key in found)
        found[(*named, order)] = condition
    return found


def _shown(condition: Mapping[str, Any] | None) -> tuple:
    if condition is None:
        return ()
    keys = ("estimate", "low", "high", "at_most", "at_least")
    values = [condition.get(key) for key in keys]
    return tuple(f"{v:.3g}" if isinstance(v, int | float) else None for v in values)
