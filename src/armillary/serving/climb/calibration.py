"""The few numbers of an `EngineModel`, from the times at which a real engine streams its tokens.

Between tokens of a batch of n requests of u adapters lies one step: base + per_request n +
per_adapter u. The first token of a prompt comes after the step that reads it. A load is what the
first request of an adapter that is not resident waits longer. The figures are fitted by
non-negative least squares on medians, and tried on a burst that was not fitted.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from armillary.serving.climb.engine_model import EngineModel
from armillary.serving.climb.loading import Sent, replay, run_to_end, to_table

BATCHES = (1, 2, 4, 8, 16)
PROMPTS = (8, 64, 256)
TOKENS = 24


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A fitted engine.

    Attributes:
        model: the figures.
        step_error: mean relative error of the fitted steps.
        burst_error: relative error of the median time to the last token of the burst held out.
        probes: one row a probe: ``running``, ``adapters``, ``prompt``, ``seconds``, ``fitted``.
    """

    model: EngineModel
    step_error: float
    burst_error: float
    probes: list[dict[str, float]]

    def to_json(self) -> str:
        content: dict[str, Any] = json.loads(self.model.to_json())
        content["fit"] = {
            "step_error": self.step_error,
            "burst_error": self.burst_error,
            "probes": self.probes,
        }
        return json.dumps(content, indent=1)


def calibrate(
    address: str,
    adapters: Sequence[str],
    *,
    base_model: str,
    slots: int,
    max_batch: int = 256,
    batches: Sequence[int] = BATCHES,
) -> Calibration:
    """Measure an engine that serves nobody else meanwhile.

    Args:
        address: ``http://host:port`` of an OpenAI-compatible server that streams.
        adapters: names of at least two adapters that it has, for the cost of adapters and loads.
        base_model: its model without an adapter.
        slots: adapters that it holds.
        max_batch: requests that it runs at once.
        batches: sizes of batches that are tried.

    Returns:
        The fitted model, with what it was fitted on and how well it does.

    Raises:
        ValueError: fewer than two adapters are given.
        RuntimeError: the engine did not answer a probe.
    """
    if len(adapters) < 2:
        raise ValueError(f"adapters: {len(adapters)} given; at least two are needed")
    return run_to_end(_calibrate(address, list(adapters), base_model, slots, max_batch, batches))


async def _calibrate(
    address: str,
    adapters: list[str],
    base_model: str,
    slots: int,
    max_batch: int,
    batches: Sequence[int],
) -> Calibration:
    async def burst(names: Sequence[str], prompt: int = 8, tokens: int = TOKENS) -> list[Sent]:
        results = await replay(
            _at_once(names, prompt, tokens), address, base_model=base_model, keep_times=True
        )
        if any(r.status != 200 or not r.tokens for r in results):
            raise RuntimeError(f"{address} did not answer a probe of {len(names)} requests")
        return results

    await burst([""])  # whatever is slow the first time
    rows: list[tuple[float, float, float, float]] = []
    for n in batches:
        rows.append((n, 0, 0, _step(await burst([""] * n))))
    held = adapters[:slots]
    await burst(held)
    for n in batches[1:]:
        names = [held[i % len(held)] for i in range(n)]
        rows.append((n, len(set(names)), 0, _step(await burst(names))))
    for prompt in PROMPTS:
        first = np.median([(await burst([""], prompt, 2))[0].first for _ in range(3)])
        rows.append((1, 0, prompt, float(first)))
    load = await _load(burst, adapters, slots)
    model, fitted = _fitted(rows, load, max_batch)
    steps = np.array([row[3] for row in rows])
    probes = [
        {"running": n, "adapters": u, "prompt": p, "seconds": s, "fitted": float(f)}
        for (n, u, p, s), f in zip(rows, fitted, strict=True)
    ]
    step_error = float(np.mean(np.abs(fitted / steps - 1)))
    return Calibration(model, step_error, await _burst_error(burst, model, held, slots), probes)


def _at_once(names: Sequence[str], prompt: int, tokens: int) -> Any:
    import pandas as pd

    return pd.DataFrame(
        [
            {"t_s": 0.0, "adapter": name, "class": "background", "prompt_tokens": prompt,
             "output_tokens": tokens}
            for name in names
        ]
    )  # fmt: skip


def _step(results: list[Sent]) -> float:
    """Seconds from token to token while all of the batch run."""
    gaps = [np.diff(r.token_times[1:]) for r in results if len(r.token_times) > 3]
    return float(np.mean([np.mean(g) for g in gaps]))


async def _load(burst: Any, adapters: list[str], slots: int) -> float:
    """What a request waits longer for an adapter that was used longest ago than for one in use."""
    waits, known = [], []
    for name in adapters * 2:
        (cold,) = await burst([name], 8, 2)
        (warm,) = await burst([name], 8, 2)
        waits.append(cold.first)
        known.append(warm.first)
    if len(adapters) <= slots:
        return 0.0  # nothing had to make room: a load was not seen
    half = len(adapters)  # the first round may have found some resident
    return max(0.0, float(np.median(waits[half:]) - np.median(known[half:])))


def _fitted(
    rows: list[tuple[float, float, float, float]], load: float, max_batch: int
) -> tuple[EngineModel, np.ndarray]:
    from scipy.optimize import nnls

    table = np.array(rows)
    design = np.column_stack([np.ones(len(table)), table[:, 0], table[:, 1], table[:, 2]])
    weight = 1 / table[:, 3]  # relative errors count alike
    found, _ = nnls(design * weight[:, None], np.ones(len(table)))
    base, per_request, per_adapter, per_prompt = (float(v) for v in found)
    model = EngineModel(base, per_request, per_prompt, per_adapter, load, max_batch)
    return model, design @ found


async def _burst_error(burst: Any, model: EngineModel, held: list[str], slots: int) -> float:
    """A mixed burst that was not fitted: how far the simulated median of the end is off."""
    from armillary.serving.climb.policies import Fcfs
    from armillary.serving.climb.simulation import simulate

    names = [*held, *[""] * 4]
    await burst(held)  # so that all are resident
    real = to_table(_at_once(names, 32, TOKENS), await burst(names, 32, TOKENS))
    free = dataclasses.replace(model, load=0.0)
    simulated = simulate(_at_once(names, 32, TOKENS), free, Fcfs(), slots).requests
    return float(simulated["done"].median() / real["done"].median() - 1)
