"""GPUs that can be had: what they are, how many, and what an hour of one costs.

Prices stand in `prices.yaml` beside this module, in books with source and date. A file of the
user's own has the same form; entries of a GPU that is known override single fields.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_SHIPPED = Path(__file__).with_name("prices.yaml")
_NUMBERS = ("memory", "bandwidth", "flops", "intra", "inter")


class UnknownGpuError(ValueError):
    """A GPU that the catalogue does not have."""


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One type of GPU.

    Attributes:
        name: as in the catalogue.
        memory: bytes.
        bandwidth: of its memory, bytes/s.
        flops: dense bf16 operations per second.
        intra, inter: link inside a node and between nodes, bytes/s, one way, for one GPU.
        node: GPUs of a node: the bound of tensor parallelism.
        inventory: how many can be had.
        price: of an hour of one, in the catalogue's currency.
        table: the system whose measured operators are its own; empty: a roofline stands in.
    """

    name: str
    memory: float
    bandwidth: float
    flops: float
    price: float
    intra: float = 3.2e10
    inter: float = 2.5e10
    node: int = 8
    inventory: int = 64
    table: str = ""

    @property
    def estimated(self) -> bool:
        """Whether its times are a roofline and no measurement."""
        return not self.table


@dataclasses.dataclass(frozen=True)
class Catalog:
    """The GPUs of one price book.

    Attributes:
        gpus: by name.
        book: the price book.
        currency: of all prices.
        source: where prices come from, and when.
    """

    gpus: Mapping[str, Gpu]
    book: str = "list"
    currency: str = "USD"
    source: str = ""

    @classmethod
    def load(cls, path: str | Path | None = None, *, book: str = "list") -> Catalog:
        """The shipped catalogue, or one from a YAML file.

        Args:
            path: a file with `gpus:`; a known name takes what the file leaves out from the shipped
                catalogue, a new one needs memory, bandwidth, flops and price. None: the shipped.
            book: the price book: ``list``, ``spot``, ``paper``, or one that the file brings.

        Raises:
            UnknownGpuError: a name is not known and its fields are incomplete.
            ValueError: a price of zero, two currencies, a book that no GPU has, a broken file.
        """
        shipped = _read(_SHIPPED)
        if path is None:
            found, books = shipped["gpus"], shipped["books"]
        else:
            own = _read(Path(path))
            books = {**shipped["books"], **_books(own, path)}
            found = {
                str(name): _merged(str(name), entry, shipped["gpus"], path)
                for name, entry in own["gpus"].items()
            }
        if book not in books:
            raise ValueError(f"book={book!r}: there is no such price book, only {sorted(books)}")
        gpus = {
            name: gpu
            for name, entry in found.items()
            if (gpu := _gpu(name, entry, book, path or _SHIPPED.name)) is not None
        }
        if not gpus:
            raise ValueError(f"book={book!r}: no GPU of {path or _SHIPPED.name} has a price in it")
        about = books[book]
        return cls(
            gpus, book, about.get("currency", "USD"),
            f"{about.get('source', '')}, {about.get('date', '')}",
        )  # fmt: skip

    def __getitem__(self, name: str) -> Gpu:
        if name not in self.gpus:
            raise UnknownGpuError(_unknown(name, self.gpus))
        return self.gpus[name]

    def only(self, *names: str) -> Catalog:
        """The same catalogue with some of its GPUs."""
        return dataclasses.replace(self, gpus={name: self[name] for name in names})

    def with_inventory(self, **counts: int) -> Catalog:
        """The same catalogue with other numbers of GPUs."""
        gpus = dict(self.gpus)
        for name, count in counts.items():
            gpus[name] = dataclasses.replace(self[name], inventory=count)
        return dataclasses.replace(self, gpus=gpus)

    @property
    def fingerprint(self) -> str:
        """Changes when any figure of the catalogue does: plans carry it."""
        plain = {name: dataclasses.asdict(gpu) for name, gpu in sorted(self.gpus.items())}
        text = json.dumps([plain, self.book, self.currency], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _read(path: Path) -> dict[str, Any]:
    import yaml

    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r}: there is no such catalogue of GPUs")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeError) as error:
        raise ValueError(f"{path.name}: it is no YAML ({str(error).splitlines()[0]})") from None
    if not isinstance(content, dict) or not isinstance(content.get("gpus"), dict):
        raise ValueError(f"{path.name}: it needs `gpus:`, a mapping from names to their fields")
    if not content["gpus"]:
        raise ValueError(f"{path.name}: `gpus:` is empty")
    return content


def _books(content: dict[str, Any], path: str | Path) -> dict[str, Any]:
    books = content.get("books") or {}
    currencies = {str(b.get("currency", "USD")) for b in books.values()}
    currencies |= {str(e["currency"]) for e in content["gpus"].values() if e and "currency" in e}
    if len(currencies) > 1:
        raise ValueError(
            f"{Path(path).name}: prices in {sorted(currencies)}: one currency only, convert them"
        )
    return books


def _merged(name: str, entry: Any, known: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    entry = dict(entry or {})
    if name in known:
        return {**known[name], **entry}
    missing = [key for key in ("memory", "bandwidth", "flops", "price") if key not in entry]
    if missing:
        raise UnknownGpuError(
            f"{Path(path).name}: {_unknown(name, known)}; a GPU of your own needs memory, "
            f"bandwidth, flops and price: {', '.join(missing)} missing"
        )
    return entry


def _gpu(name: str, entry: Mapping[str, Any], book: str, path: str | Path) -> Gpu | None:
    price = entry.get("price")
    if isinstance(price, Mapping):
        price = price.get(book)
        if price is None:
            return None
    values: dict[str, Any] = {key: entry[key] for key in _NUMBERS if key in entry}
    values["price"] = price
    numbers: dict[str, float] = {}
    for key, value in values.items():
        try:
            numbers[key] = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{Path(path).name}: {name}.{key}={value!r} is no number") from None
        if not (math.isfinite(numbers[key]) and numbers[key] > 0):
            raise ValueError(f"{Path(path).name}: {name}.{key}={value!r} must be above 0")
    whole = {key: int(entry[key]) for key in ("node", "inventory") if key in entry}
    if whole.get("inventory", 0) < 0 or whole.get("node", 1) < 1:
        raise ValueError(f"{Path(path).name}: {name}: inventory and node must not be negative")
    return Gpu(name, **numbers, **whole, table=str(entry.get("table", "")))


def _unknown(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.3)
    hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    return f"GPU {name!r} is not in the catalogue; {hint}"
