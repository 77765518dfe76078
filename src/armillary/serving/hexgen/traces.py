"""What is asked of a fleet: arrivals with their prompt and answer lengths.

Real traces: the Azure LLM inference traces (code, conversation), Mooncake's conversation trace, or
a CSV of one's own (``t_s,input_tokens,output_tokens[,prefix_id]``). Synthetic ones draw lengths
from log-normal laws whose parameters are stated in `LENGTHS`; they are labelled so.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Synthetic traffic: (mean, median) of prompt and of answer tokens, log-normal. The first four are
#: stand-ins for the traffic that the paper names, the rest plain corners.
LENGTHS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "wildgpt": ((600, 250), (350, 250)),
    "openthoughts": ((250, 180), (2500, 1800)),
    "openr1-math": ((120, 90), (2000, 1500)),
    "numinamath": ((110, 80), (450, 380)),
    "decode-heavy": ((512, 400), (1024, 800)),
    "long-context": ((4000, 3000), (1000, 800)),
}
#: Longest prompt and answer that synthetic laws give (tokens).
LONGEST = 16384


@dataclasses.dataclass(frozen=True)
class Slo:
    """What is promised to users.

    Attributes:
        ttft_p99_s: seconds to the first token, of 99 requests in 100.
        tpot_p99_ms: milliseconds an answer token after the first, of 99 requests in 100.
    """

    ttft_p99_s: float = 2.0
    tpot_p99_ms: float = 50.0

    def __post_init__(self) -> None:
        for name in ("ttft_p99_s", "tpot_p99_ms"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"Slo({name}={value}): it must be a finite number above 0")

    @property
    def tpot_s(self) -> float:
        """Seconds an answer token."""
        return self.tpot_p99_ms / 1e3

    @classmethod
    def parse(cls, text: str) -> Slo:
        """From ``"2s,50ms"``: seconds to the first token, milliseconds a token."""
        parts = [part.strip() for part in text.split(",")]
        if len(parts) != 2:
            raise ValueError(f"slo={text!r}: two times are needed, as 2s,50ms")
        return cls(_seconds(parts[0], text), _seconds(parts[1], text) * 1e3)


def _seconds(part: str, whole: str) -> float:
    scale = 1e-3 if part.endswith("ms") else 1.0
    try:
        return float(part.removesuffix("ms").removesuffix("s")) * scale
    except ValueError:
        raise ValueError(f"slo={whole!r}: {part!r} is no time such as 2s or 50ms") from None


@dataclasses.dataclass(frozen=True)
class Workload:
    """Requests in order of arrival.

    Attributes:
        t: (n,) seconds, not decreasing, the first at 0 or later.
        inputs: (n,) prompt tokens, at least 1.
        outputs: (n,) answer tokens; 0: prefill only.
        name: for reports.
        synthetic: whether its lengths are drawn from a law of ours.
    """

    t: Floats
    inputs: Ints
    outputs: Ints
    name: str = "trace"
    synthetic: bool = False

    def __post_init__(self) -> None:
        if not (len(self.t) == len(self.inputs) == len(self.outputs)):
            raise ValueError("Workload: t, inputs and outputs must have the same length")
        if len(self.t) < 2:
            raise ValueError(f"Workload: {len(self.t)} requests; two are needed at least")

    def __len__(self) -> int:
        return len(self.t)

    @property
    def rate(self) -> float:
        """Requests a second over the whole trace."""
        return (len(self) - 1) / max(float(self.t[-1] - self.t[0]), 1e-9)

    def at_rate(self, rate: float) -> Workload:
        """The same requests, time stretched so that ``rate`` arrive a second."""
        return dataclasses.replace(self, t=(self.t - self.t[0]) * (self.rate / rate))

    def head(self, count: int) -> Workload:
        """The first ``count`` requests."""
        return dataclasses.replace(
            self, t=self.t[:count], inputs=self.inputs[:count], outputs=self.outputs[:count]
        )

    def shuffled(self, count: int, seed: int) -> Workload:
        """``count`` requests with lengths drawn from these, arriving at random (Poisson)."""
        rng = np.random.default_rng(seed)
        rows = rng.integers(0, len(self), count)
        t = np.cumsum(rng.exponential(1 / self.rate, count))
        return dataclasses.replace(self, t=t, inputs=self.inputs[rows], outputs=self.outputs[rows])

    def multiplied(self, times: int, jitter_s: float, seed: int) -> Workload:
        """Every request ``times`` over, each moved by up to ``jitter_s``: bursts stay bursts."""
        rng = np.random.default_rng(seed)
        rows = np.repeat(np.arange(len(self)), times)
        t = self.t[rows] + rng.uniform(0, jitter_s, len(rows))
        lengths = rng.permutation(len(self))[rows % len(self)]  # copies differ in what they ask
        order = np.argsort(t, kind="stable")
        return dataclasses.replace(
            self, t=t[order], inputs=self.inputs[lengths][order],
            outputs=self.outputs[lengths][order],
        )  # fmt: skip

    @classmethod
    def from_csv(cls, path: str | Path) -> Workload:
        """From ``t_s,input_tokens,output_tokens[,prefix_id]``.

        Raises:
            ValueError: a column is missing, a time goes back, a length is negative or no number;
                the message names the line.
        """
        path = Path(path)
        columns = ("t_s", "input_tokens", "output_tokens")
        rows = _rows(path, columns)
        t, inputs, outputs = [], [], []
        for line, row in rows:
            values = []
            for name in columns:
                try:
                    value = float(row[name])
                except (TypeError, ValueError):
                    raise ValueError(
                        f"{path.name}, line {line}: {name}={row[name]!r} is no number"
                    ) from None
                if not math.isfinite(value) or value < 0:
                    raise ValueError(
                        f"{path.name}, line {line}: {name}={row[name]} must be finite and not "
                        "negative"
                    )
                values.append(value)
            if t and values[0] < t[-1]:
                raise ValueError(
                    f"{path.name}, line {line}: t_s={values[0]:g} is before the line above "
                    f"({t[-1]:g}): sort the trace by time"
                )
            if values[1] < 1:
                raise ValueError(f"{path.name}, line {line}: input_tokens must be 1 or more")
            t.append(values[0])
            inputs.append(int(values[1]))
            outputs.append(int(values[2]))
        if len(t) < 2:
            raise ValueError(f"{path.name}: {len(t)} requests; two are needed at least")
        return cls(np.array(t), np.array(inputs), np.array(outputs), path.stem)

    @classmethod
    def from_azure(cls, path: str | Path | None = None, kind: str = "conv") -> Workload:
        """The Azure LLM inference trace: a file, or ``kind`` (``conv``, ``code``) of public data.

        Raises:
            FileNotFoundError: the public file is not at hand; the message says how to get it.
        """
        if path is None:
            from armillary.corpora import external

            path = external(f"azure-{kind}")
        path = Path(path)
        rows = _rows(path, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"))
        t, inputs, outputs = [], [], []
        for line, row in rows:
            try:
                stamp = row["TIMESTAMP"]
                t.append(datetime.fromisoformat(stamp[:26]).timestamp())
                inputs.append(max(1, int(row["ContextTokens"])))
                outputs.append(int(row["GeneratedTokens"]))
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path.name}, line {line}: {error}") from None
        times = np.array(t)
        order = np.argsort(times, kind="stable")
        return cls(
            times[order] - times.min(), np.array(inputs)[order], np.array(outputs)[order],
            f"azure-{kind}",
        )  # fmt: skip

    @classmethod
    def from_mooncake(cls, path: str | Path | None = None) -> Workload:
        """Mooncake's conversation trace (JSON lines with timestamps in milliseconds)."""
        if path is None:
            from armillary.corpora import external

            path = external("mooncake-conversation")
        path = Path(path)
        t, inputs, outputs = [], [], []
        with path.open(encoding="utf-8") as file:
            for line, text in enumerate(file, 1):
                try:
                    row = json.loads(text)
                    t.append(row["timestamp"] / 1e3)
                    inputs.append(max(1, int(row["input_length"])))
                    outputs.append(int(row["output_length"]))
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(f"{path.name}, line {line}: {error!r}") from None
        times = np.array(t)
        order = np.argsort(times, kind="stable")
        return cls(
            times[order] - times.min(), np.array(inputs)[order], np.array(outputs)[order],
            "mooncake",
        )  # fmt: skip

    @classmethod
    def synthetic_of(cls, kind: str, count: int, rate: float, seed: int) -> Workload:
        """Poisson arrivals with lengths of a law in `LENGTHS`."""
        if kind not in LENGTHS:
            raise ValueError(f"kind={kind!r}: it must be one of {', '.join(LENGTHS)}")
        rng = np.random.default_rng(seed)
        t = np.cumsum(rng.exponential(1 / rate, count))
        inputs, outputs = (_lengths(rng, count, *law) for law in LENGTHS[kind])
        return cls(t, inputs, outputs, kind, synthetic=True)


def _lengths(rng: np.random.Generator, count: int, mean: float, median: float) -> Ints:
    """Log-normal lengths of a mean and a median."""
    sigma = math.sqrt(2 * math.log(mean / median))
    drawn = np.exp(rng.normal(math.log(median), sigma, count))
    return np.clip(np.round(drawn), 1, LONGEST).astype(np.int64)


def _rows(path: Path, needed: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    if not path.is_file():
        raise FileNotFoundError(f"{str(path)!r}: there is no such trace")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path.name}, line 1: the columns {', '.join(missing)} are missing")
        return [(reader.line_num, row) for row in reader]
