"""How long an engine's steps take: the few numbers that the simulator needs of a real engine."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class EngineModel:
    """An engine that serves by iterations and stalls while it loads an adapter.

    A step of ``n`` running requests of ``u`` adapters that reads ``p`` tokens of prompts takes
    ``base + per_request n + per_prompt_token p + per_adapter u`` seconds; every running request
    gets one token of it.

    Attributes:
        base: seconds of a step.
        per_request: seconds a running request adds.
        per_prompt_token: seconds a token of a prompt adds to the step that reads it.
        per_adapter: seconds that each different adapter of the batch adds.
        load: seconds of a load, in which nobody is served.
        max_batch: requests that run at once, at most (vLLM's ``--max-num-seqs``).

    Raises:
        ValueError: a figure is negative or not finite, or the batch is empty.
    """

    base: float = 0.020
    per_request: float = 0.0006
    per_prompt_token: float = 0.0
    per_adapter: float = 0.0
    load: float = 0.35
    max_batch: int = 256

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{field.name}={value}: expected a number >= 0")
        if self.max_batch < 1:
            raise ValueError(f"max_batch={self.max_batch}: expected at least 1")
        if self.base + self.per_request <= 0:
            raise ValueError("a step takes no time: give base or per_request")

    def step(self, running: int, adapters: int, prompt_tokens: int = 0) -> float:
        """Seconds of one step."""
        return (
            self.base
            + self.per_request * running
            + self.per_adapter * adapters
            + self.per_prompt_token * prompt_tokens
        )

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_file(cls, path: str | Path) -> EngineModel:
        """Read what `to_json` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no JSON object of these figures.
        """
        text = Path(path).read_text("utf-8")
        known = {field.name for field in dataclasses.fields(cls)}
        try:
            given = json.loads(text)
            unknown = set(given) - known - {"fit"}
        except (json.JSONDecodeError, TypeError) as error:
            raise ValueError(f"{str(path)!r}: no JSON object: {error}") from None
        if unknown:
            raise ValueError(
                f"{str(path)!r}: unknown {', '.join(sorted(unknown))}; known are {', '.join(known)}"
            )
        return cls(**{name: value for name, value in given.items() if name != "fit"})


def cliff_loss(
    rate: float, working_set: int, slots: int, load: float, merged: float = 1.0
) -> float:
    """Share of an engine's time that loads eat, in closed form.

    Poisson traffic of ``rate`` requests a second falls evenly on ``working_set`` adapters, of which
    the ``slots`` used last are resident: a request misses with probability 1 - slots/working_set.

    Args:
        rate: requests a second.
        working_set: adapters in use.
        slots: adapters that fit.
        load: seconds of a load.
        merged: requests that one load serves on average (they queue behind the same miss), >= 1.

    Returns:
        Seconds of loading a second. Beyond one minus the engine's utilisation it cannot keep up.
    """
    return rate * max(0.0, 1 - slots / working_set) * load / merged
