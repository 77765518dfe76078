"""What comes in, and what the controller asks for."""

from __future__ import annotations

import dataclasses
from typing import Literal

Class = Literal["vip", "background"]
CLASSES: tuple[Class, ...] = ("vip", "background")


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """One request as the controller sees it.

    Attributes:
        id: of the request; no two that are under way share one.
        adapter: the LoRA adapter's name; None is the base model, which needs no slot.
        klass: ``vip`` goes first, ``background`` takes turns.
        arrived: seconds, on the controller's clock.
        deadline: seconds on the same clock by which it should be sent on; None: no deadline.
        prompt_tokens: length of the prompt, 0 where unknown.
        output_tokens: length of the answer, 0 where unknown.
    """

    id: int | str
    adapter: str | None
    klass: Class = "background"
    arrived: float = 0.0
    deadline: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Dispatch:
    """Send this request to the engine now."""

    request: Request


@dataclasses.dataclass(frozen=True, slots=True)
class Evict:
    """Take this adapter out of its slot now: nothing of it is in flight."""

    adapter: str


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """Load this adapter now into the free slot; tell the controller when it is done."""

    adapter: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reject:
    """Answer this request with an error now.

    Attributes:
        request: the request.
        status: of HTTP: 429 (its class's queue is full), 503 (its adapter cannot be loaded), 504
            (its deadline cannot be met).
        reason: in words.
        retry_after: seconds after which it is worth another try.
    """

    request: Request
    status: int
    reason: str
    retry_after: float = 0.0


Action = Dispatch | Evict | Load | Reject
