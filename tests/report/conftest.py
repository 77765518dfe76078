"""Evidence that looks like the real thing: every verdict, peers, ablations, slopes, failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from armillary import report
from armillary.catalog import Card, Method, Paper
from armillary.evidence.bundle import Bundle
from armillary.evidence.shapes import Row

Rows = list[Row]


def card(slug: str, field: str, title: str, gift: str, claims: Sequence[str]) -> Card:
    paper = Paper(
        f"On {title}", "A. Author and B. Author", "ICML 2026", "https://example.org/paper"
    )
    return Card(slug, field, title, gift, paper, tuple(claims))


def measured(
    slug: str,
    experiment: str,
    profile: str,
    cases: Mapping[str, Mapping[str, float]],
    contenders: Sequence[str],
    seeds: int,
    value: Callable[[str, Mapping[str, float], str, np.random.Generator], Mapping[str, float]],
) -> Rows:
    """Finished rows whose metrics ``value(case, x, contender, generator)`` gives."""
    rng = np.random.default_rng(7)
    return [
        Row(slug, experiment, profile, case, seed, who, metrics=value(case, x, who, rng), seconds=1)
        for case, x in cases.items()
        for seed in range(seeds)
        for who in contenders
    ]


def column(rows: Rows, metric: str, who: str) -> np.ndarray:
    return np.array([r.metrics[metric] for r in rows if r.contender == who and r.status == "ok"])


def condition(
    rows: Rows,
    metric: str,
    *,
    over: str = "",
    at_most: float | None = None,
    at_least: float | None = None,
    index: int = 0,
    tightest: bool = False,
    **rest: Any,
) -> dict[str, Any]:
    """A condition on a ratio to a peer or a level, with a Student interval over rows."""
    ours = column(rows, metric, "ours")
    sample = np.log(ours / column(rows, metric, over)) if over else ours
    mean, half = sample.mean(), stats.sem(sample) * stats.t.ppf(0.975, len(sample) - 1)
    estimate, low, high = (float(v) for v in (mean, mean - half, mean + half))
    if over:
        estimate, low, high = math.exp(estimate), math.exp(low), math.exp(high)
    inside = (at_most is None or high <= at_most) and (at_least is None or low >= at_least)
    outside = (at_most is not None and low > at_most) or (at_least is not None and high < at_least)
    return {
        "condition": index, "metric": metric, "unit": "", "better": "lower",
        "form": "ratio" if over else "level", "pool": "geomean" if over else "mean", "of": "ours",
        "over": over or None, "along": "", "at_most": at_most, "at_least": at_least,
        "every": False, "estimate": estimate, "low": low, "high": high, "interval": "t",
        "units": len(sample), "status": "met" if inside else "missed" if outside else "unclear",
        "tightest": tightest, **rest,
    }  # fmt: skip


def claim(
    name: str, statement: str, paper: str, verdict: str | None, conditions: list[dict], **rest: Any
) -> dict[str, Any]:
    return {
        "claim": name, "experiment": "", "statement": statement, "verdict": verdict, "reason": "",
        "paper": paper, "conditions": conditions, "contenders": {}, "ablations": [], "absent": [],
        "errors": [], "seeds": [0, 1, 2, 3, 4], "seconds": 131.2, "artefact_seconds": 0, **rest,
    }  # fmt: skip


def bundle(
    slug: str,
    profile: str,
    claims: list[dict],
    rows: Rows,
    experiments: Mapping[str, Any],
    *,
    committed: bool = True,
) -> Bundle:
    environment = {
        "method": slug,
        "profile": profile,
        "machine": {
            "cpu": "AMD EPYC 7763" if committed else "Intel Core i7-1260P",
            "cores": 2 if committed else 12,
            "memory_gib": 7.8,
            "os": "Linux 6.8",
        },
        "versions": {"python": "3.11.9", "numpy": "2.4.0", "scipy": "1.17.0"},
        "threads": 1,
        "commit": None,
        "started": "2026-11-29T09:12:44+00:00",
        "finished": "2026-11-29T09:21:03+00:00" if committed else "2026-11-30T18:01:00+00:00",
        "experiments": experiments,
    }
    command = f"armillary bench {slug} --profile {profile}"
    told = [{"method": slug, "profile": profile, "command": command, **c} for c in claims]
    return Bundle(slug, profile, told, rows, environment, committed)


def described(
    title: str,
    metrics: Mapping[str, tuple[str, str]],
    contenders: Sequence[str],
    cases: Mapping[str, Mapping[str, float]],
    **rest: Any,
) -> dict[str, Any]:
    return {
        "title": title,
        "unit": "seed",
        "timed": False,
        "metrics": [
            {"name": name, "unit": unit, "better": better}
            for name, (unit, better) in metrics.items()
        ],
        "contenders": [{"name": name, "required": True} for name in contenders],
        "cases": [{"name": name, "x": dict(x)} for name, x in cases.items()],
        **rest,
    }


PEERS = ("pit", "gp-beta", "crude", "crepes-mondrian")
PARTS = ("no kernel", "shuffled", "clip")
SUITE = {"wage": {}, "boston": {}, "diamonds": {}, "cps 1988": {}, "synthetic": {}}
SIZES = {f"n={n}": {"n": n} for n in (50, 100, 200, 500, 1000, 2000, 5000)}


def _quality(case: str, x: Mapping[str, float], who: str, rng: np.random.Generator) -> dict:
    base = {"wage": 0.43, "boston": 0.2, "diamonds": 0.09, "cps 1988": 0.5, "synthetic": 0.61}[case]
    gain = {
        "ours": 1.0, "pit": 1.09, "gp-beta": 1.07, "crude": 1.05, "crepes-mondrian": 1.035,
        "no kernel": 1.12, "shuffled": 1.3, "clip": 1.001,
    }[who]  # fmt: skip
    skce = {"ours": 2.2, "pit": 22.0, "gp-beta": 12.0, "crude": 28.0, "crepes-mondrian": 7.9}
    noise = rng.lognormal(0, 0.012)
    return {
        "crps": base * gain * noise,
        "skce": skce.get(who, 40.0) * base * rng.lognormal(0, 0.4),
        "cov90": float(np.clip(rng.normal(0.9 if who == "ours" else 0.83, 0.012), 0, 1)),
    }


def _time(case: str, x: Mapping[str, float], who: str, rng: np.random.Generator) -> dict:
    power = {"ours": 1.08, "naive": 2.0}[who]
    return {"seconds": 1e-6 * x["n"] ** power * rng.lognormal(0, 0.05)}


def recalibration(profile: str = "full", *, committed: bool = True, seeds: int = 10) -> Bundle:
    """Holds, holds on a band, a slope that is unclear, and one claim that fails."""
    slug, who = "recalibration", ("ours", *PEERS, *PARTS)
    quality = measured(slug, "quality", profile, SUITE, who, seeds, _quality)
    times = measured(slug, "scaling", profile, SIZES, ("ours", "naive"), 5, _time)
    levels = {
        name: {
            metric: {"estimate": float(column(quality, metric, name).mean()), "low": None,
                     "high": None}
            for metric in ("crps", "skce")
        }
        for name in ("ours", *PEERS)
    }  # fmt: skip
    ablations = [
        {"name": "no kernel", "metric": "crps", "expect": "hurts", "margin": 0.02,
         "ratio": 1.121, "low": 1.11, "high": 1.132, "hurts": True},
        {"name": "shuffled", "metric": "crps", "expect": "hurts", "margin": 0.02,
         "ratio": 1.302, "low": 1.28, "high": 1.325, "hurts": True},
        {"name": "clip", "metric": "crps", "expect": "hurts", "margin": 0.02,
         "ratio": 1.001, "low": 0.997, "high": 1.005, "hurts": False},
    ]  # fmt: skip
    slope = {
        **condition(times, "seconds", at_most=1.15), "form": "slope", "along": "n",
        "estimate": 1.08, "low": 1.01, "high": 1.17, "units": 5, "status": "unclear",
    }  # fmt: skip
    exact = {
        **condition(times, "seconds", at_most=0), "metric": "mismatches", "every": True,
        "estimate": 0.0, "low": None, "high": None, "interval": "none", "units": 35,
        "status": "met",
    }  # fmt: skip
    claims = [
        claim(
            "crps", "The CRPS is at least 3 % below that of every other recalibrator.",
            "Mostly improves on the base model, PIT and GP-Beta; figures only as plots.", "holds",
            [condition(quality, "crps", over=p, at_most=0.97, tightest=p == PEERS[-1])
             for p in PEERS],
            experiment="quality", contenders=levels, ablations=ablations,
            reason="Against crepes-mondrian, the nearest rival, the whole interval is below 0.97.",
        ),
        claim(
            "auto-calibration", "The calibration error is at most 0.4 times that of every rival.",
            "Passes the test where PIT recalibration does not.", "partly",
            [condition(quality, "skce", over=p, at_most=0.3, tightest=p == "crepes-mondrian")
             for p in PEERS],
            experiment="quality",
            reason="Better than every rival, but crepes-mondrian is nearer than 0.3.",
        ),
        claim(
            "coverage", "90 % intervals cover 90 % of outcomes, give or take 2 %.",
            "95 % coverage comparable with conformal prediction.", "holds",
            [condition(quality, "cov90", at_least=0.88, at_most=0.92, unit="rate")],
            experiment="quality",
        ),
        claim(
            "growth", "The time of a pair grows like n log n.", "O(n log n) per pair.", "unclear",
            [slope], experiment="scaling",
            reason="The interval 1.01 to 1.17 holds the bound 1.15; about 9 seeds would decide.",
        ),
        claim(
            "exact", "The merged order gives the same distance as the naive sum.", "", "holds",
            [exact], experiment="scaling",
        ),
    ]  # fmt: skip
    experiments = {
        "quality": described(
            "Quality after recalibration",
            {"crps": ("", "lower"), "skce": ("1e-4", "lower"), "cov90": ("rate", "neither")},
            who, SUITE,
        ),
        "scaling": described(
            "Time of one pair", {"seconds": ("s", "lower")}, ("ours", "naive"), SIZES, timed=True
        ),
    }  # fmt: skip
    return bundle(slug, profile, claims, quality + times, experiments, committed=committed)


def tango(profile: str = "full") -> Bundle:
    """A claim that fails, with errors of ours; one whose peer must fail."""
    who, cases = ("ours", "gcn", "gat"), {"cora": {}, "citeseer": {}, "chains of 40": {}}
    base = {"ours": 0.81, "gcn": 0.8, "gat": 0.805}
    rows = measured(
        "tango", "accuracy", profile, cases, who, 5,
        lambda case, x, name, rng: {"accuracy": base[name] + rng.normal(0, 0.01)},
    )  # fmt: skip
    error = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (40x16 and 32x7)"
    rows += [
        Row("tango", "accuracy", profile, "long range", seed, "ours", 0, "failed", "RuntimeError",
            error)
        for seed in range(3)
    ]  # fmt: skip
    fails = claim(
        "gain", "Accuracy rises by at least 4 points over the best of GCN and GAT.",
        "+4.6 points on average over seven graphs.", "fails",
        [condition(rows, "accuracy", over=p, at_least=1.05, better="higher", tightest=p == "gat")
         for p in ("gcn", "gat")],
        experiment="accuracy", reason="Ours raised in 3 cells; the first: RuntimeError.",
        errors=[{"contender": "ours", "case": "long range", "seed": s, "kind": "RuntimeError",
                 "reason": error} for s in range(3)],
    )  # fmt: skip
    absent = claim(
        "far", "Labels 40 steps away are found; a GCN does not find them.", "98 % against 35 %.",
        "not run", [], experiment="accuracy",
        reason="The peer 'gps' is absent: pip install 'armillary[graph-peers]'.",
        absent=[{"contender": "gps", "kind": "extra", "name": "torch_geometric",
                 "hint": "pip install 'armillary[graph-peers]'"}],
    )  # fmt: skip
    experiments = {"accuracy": described("Accuracy", {"accuracy": ("", "higher")}, who, cases)}
    return bundle("tango", profile, [fails, absent], rows, experiments)


def spikeinit() -> Bundle:
    """A smoke run: figures, no verdict, and a number that is missing."""
    rows = measured(
        "spikeinit", "rate", "smoke", {"mnist": {}}, ("ours", "he"), 1,
        lambda case, x, who, rng: {"spike_rate": 0.11},
    )  # fmt: skip
    missing = {
        **dict.fromkeys(("estimate", "low", "high", "units", "interval", "status")),
        "metric": "spike_rate", "form": "level", "of": "ours", "at_most": 0.2,
    }  # fmt: skip
    claims = [claim("rate", "Spike rates stay near 10 %.", "10 %.", "none", [missing])]
    experiments = {"rate": described("Rate", {"spike_rate": ("", "neither")}, ("ours", "he"), {})}
    return bundle("spikeinit", "smoke", claims, rows, experiments, committed=False)


CARDS = (
    card("recalibration", "uncertainty", "Recalibrated predictive distributions",
         "Turn an overconfident regressor into one whose whole distribution can be trusted.",
         ["crps", "auto-calibration", "coverage", "growth", "exact"]),
    card("tango", "graph", "Energy descent on graphs",
         "A message-passing layer that reaches far without smoothing everything.",
         ["gain", "far"]),
    card("spikeinit", "neuro", "Initial weights for spiking networks",
         "Spiking networks that train from the first step.", ["rate"]),
    card("wonda", "data", "Choosing documents by what they teach",
         "Pick the part of a corpus that helps your task.", ["gain", "cost"]),
)  # fmt: skip


@pytest.fixture(scope="session")
def evidence() -> SimpleNamespace:
    """The builders above, for tests that make evidence of their own."""
    return SimpleNamespace(
        bundle=bundle, card=card, claim=claim, condition=condition, described=described,
        measured=measured, recalibration=recalibration, spikeinit=spikeinit, tango=tango,
    )  # fmt: skip


@pytest.fixture(scope="session")
def methods() -> list[Method]:
    return [Method(c, f"armillary.{c.field}.{c.slug}") for c in CARDS]


@pytest.fixture(scope="session")
def samples() -> list[Bundle]:
    return [
        recalibration(),
        recalibration("quick", committed=False, seeds=4),
        tango(),
        spikeinit(),
    ]


@pytest.fixture(scope="session")
def site(
    tmp_path_factory: pytest.TempPathFactory, samples: list[Bundle], methods: list[Method]
) -> Path:
    """A built report, in a path with spaces."""
    out = tmp_path_factory.mktemp("a path") / "with spaces" / "my report"
    report.build(samples, out, methods=methods, broken=[])
    return out
