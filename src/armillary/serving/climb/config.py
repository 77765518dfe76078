"""What an ingress is told: its engines, their adapters and classes, its bounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from armillary.serving.climb.requests import CLASSES, Class

#: How an adapter gets into the engine: vLLM's endpoint with the adapter's path (exact: the engine
#: unloads whom we say), or a request of one token (the engine replaces whom it used longest ago).
LoadBy = Literal["endpoint", "warm-up"]


@dataclasses.dataclass(frozen=True)
class AdapterConfig:
    """One adapter.

    Attributes:
        klass: ``vip`` or ``background``.
        path: its folder, as the engine sees it; needed to load it by the endpoint.
    """

    klass: Class = "background"
    path: str | None = None


@dataclasses.dataclass(frozen=True)
class ClimbConfig:
    """Settings of an ingress.

    Attributes:
        upstreams: addresses of engines, ``http://host:port``.
        slots: adapters that each engine holds at once; None: asked of its metrics.
        adapters: by name; empty: those that the engine lists, all in the background.
        policy: a name of `armillary.serving.climb.policies.POLICIES`.
        settings: of the policy, by name.
        in_flight: requests that each engine has at once, at most.
        queue: waiting requests of each class, at most.
        load_by: how adapters are loaded.
        body_bytes: longest body of a request.
        load_seconds: after which a load counts as failed.
        answer_seconds: after which an answer counts as lost.

    Raises:
        ValueError: a setting is out of range.
    """

    upstreams: tuple[str, ...]
    slots: int | None = None
    adapters: Mapping[str, AdapterConfig] = dataclasses.field(default_factory=dict)
    policy: str = "climb"
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    in_flight: int = 256
    queue: Mapping[Class, int] = dataclasses.field(
        default_factory=lambda: {"vip": 1000, "background": 10_000}
    )
    load_by: LoadBy = "endpoint"
    body_bytes: int = 8 * 2**20
    load_seconds: float = 120.0
    answer_seconds: float = 600.0

    def __post_init__(self) -> None:
        from armillary.serving.climb.policies import POLICIES

        if not self.upstreams:
            raise ValueError("upstreams: give at least one address, such as http://127.0.0.1:8000")
        for address in self.upstreams:
            if not address.startswith(("http://", "https://")):
                raise ValueError(f"upstream {address!r}: expected http://host:port")
        if self.slots is not None and self.slots < 1:
            raise ValueError(f"slots={self.slots}: an engine holds at least one adapter")
        if self.in_flight < 1:
            raise ValueError(f"in_flight={self.in_flight}: expected at least 1")
        if self.policy not in POLICIES:
            raise ValueError(f"policy {self.policy!r}: known are {', '.join(POLICIES)}")
        if self.load_by not in ("endpoint", "warm-up"):
            raise ValueError(f"load_by {self.load_by!r}: expected 'endpoint' or 'warm-up'")
        for klass in self.queue:
            if klass not in CLASSES:
                raise ValueError(f"queue: {klass!r} is no class; known are {', '.join(CLASSES)}")
        self.new_policy()

    def new_policy(self) -> Any:
        """A fresh policy with these settings.

        Raises:
            ValueError: it has no such setting, or the value is out of range.
        """
        from armillary.serving.climb.policies import POLICIES

        kind = POLICIES[self.policy]
        known = [field.name for field in dataclasses.fields(kind)]
        unknown = set(self.settings) - set(known)
        if unknown:
            raise ValueError(
                f"policy {self.policy!r} has no {', '.join(sorted(unknown))}; "
                f"it has {', '.join(known) or 'no settings'}"
            )
        return kind(**self.settings)


def read_classes(path: str | Path) -> dict[str, AdapterConfig]:
    """Adapters from a YAML file.

    The file maps names to a class, or to ``{class: vip, path: /adapters/a}``::

        support: vip
        summaries: {class: background, path: /adapters/summaries}

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no such mapping (the entry is named).
    """
    import yaml

    try:
        given = yaml.safe_load(Path(path).read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{str(path)!r} is no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(given, dict):
        raise ValueError(f"{str(path)!r}: expected adapter: class, or adapter: {{class:, path:}}")
    return {str(name): _adapter(path, str(name), entry) for name, entry in given.items()}


def _adapter(path: str | Path, name: str, entry: Any) -> AdapterConfig:
    fields = {"class": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, dict) or set(fields) - {"class", "path"}:
        raise ValueError(f"{str(path)!r}, {name}: expected a class, or class and path")
    klass = fields.get("class", "background")
    if klass not in CLASSES:
        raise ValueError(f"{str(path)!r}, {name}: class {klass!r}; expected {' or '.join(CLASSES)}")
    where = fields.get("path")
    return AdapterConfig(klass, None if where is None else str(where))
