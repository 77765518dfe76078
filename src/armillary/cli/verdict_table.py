"""Verdicts for a reader: a table on a wide terminal, stacked lines on a narrow one, tabs in a pipe.

Only ASCII is used, so that any locale can show it.
"""

from __future__ import annotations

import math
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from armillary.output.terminal import Console

NARROW = 90


def show(claims: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one entry a claim on stdout."""
    if not console.is_terminal:
        _piped(claims, console)
        return
    width = shutil.get_terminal_size().columns
    if width < NARROW:
        _stacked(claims, console, width)
    else:
        _wide(claims, console, width)


def _piped(claims: Sequence[Mapping[str, Any]], console: Console) -> None:
    columns = ("method", "claim", "verdict", "figure", "target", "reason")
    console.table(
        columns,
        [
            (c["method"], c["claim"], verdict(c), *_figure_and_target(c), c.get("reason") or "")
            for c in claims
        ],
    )


def _wide(claims: Sequence[Mapping[str, Any]], console: Console, width: int) -> None:
    console.table(
        ("method", "claim", "verdict", "figure", "target"),
        [(c["method"], c["claim"], verdict(c), *_figure_and_target(c)) for c in claims],
    )
    for claim in claims:
        if reason := claim.get("reason"):
            line = f"{claim['method']}, {claim['claim']}: {reason}"
            console.print(
                textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False)
            )


def _stacked(claims: Sequence[Mapping[str, Any]], console: Console, width: int) -> None:
    for claim in claims:
        console.print(
            textwrap.fill(
                f"{claim['method']}, {claim['claim']}: {verdict(claim)}",
                width,
                break_on_hyphens=False,
            )
        )
        figure, target = _figure_and_target(claim)
        for text in (figure, f"target {target}" if target else "", claim.get("reason")):
            if text:
                lines = textwrap.wrap(
                    text,
                    width,
                    initial_indent="  ",
                    subsequent_indent="    ",
                    break_on_hyphens=False,
                )
                console.print("\n".join(lines))


def verdict(claim: Mapping[str, Any]) -> str:
    """The verdict, or what stands where there is none."""
    found = claim.get("verdict")
    return "no verdict" if found in (None, "none") else found


def _figure_and_target(claim: Mapping[str, Any]) -> tuple[str, str]:
    """The condition that decides: one that is not met, if any; the peer nearest to its bound."""
    conditions = claim.get("conditions") or ()
    if not conditions:
        return "", ""
    statuses = ("missed", "unclear") if claim.get("verdict") != "unclear" else ("unclear",)
    for status in statuses:
        if broken := [c for c in conditions if c.get("status") == status]:
            condition = min(broken, key=_slack)
            return figure(condition), target(condition)
    tightest = [c for c in conditions if c.get("tightest")]
    condition = (tightest or list(conditions))[0]
    return figure(condition), target(condition)


def _slack(condition: Mapping[str, Any]) -> float:
    """How far the interval stays inside the bounds; negative outside."""
    value = condition.get("estimate")
    low, high = condition.get("low"), condition.get("high")
    low, high = value if low is None else low, value if high is None else high
    if low is None or high is None:
        return math.inf
    at_most, at_least = condition.get("at_most"), condition.get("at_least")
    above = math.inf if at_most is None else at_most - high
    below = math.inf if at_least is None else low - at_least
    return min(above, below)


def figure(condition: Mapping[str, Any]) -> str:
    """A condition's estimate with its interval: ``crps ours/pit 0.931 [0.91, 0.95]``."""
    if condition.get("estimate") is None:
        return f"{figure_name(condition)}: no figure"
    return f"{figure_name(condition)} {value(condition)}"


def figure_name(condition: Mapping[str, Any]) -> str:
    """What a condition measures of whom: ``crps ours/pit``."""
    sign = {"ratio": "/", "difference": " - "}.get(condition.get("form") or "", "")
    who = condition.get("of") or "ours"
    peer = condition.get("over")
    if sign and peer:
        who = f"{who}{sign}{peer if isinstance(peer, str) else ', '.join(peer)}"
    if condition.get("form") == "slope":
        who = f"{who} against {condition.get('along')}"
    return f"{condition.get('metric') or ''} {who}".strip()


def value(condition: Mapping[str, Any]) -> str:
    """A condition's estimate with its interval: ``0.931 [0.91, 0.95]``."""
    estimate = condition.get("estimate")
    if estimate is None:
        return "no figure"
    low, high = condition.get("low"), condition.get("high")
    interval = "" if low is None or high is None else f" [{low:.3g}, {high:.3g}]"
    return f"{estimate:.3g}{interval}"


def target(condition: Mapping[str, Any]) -> str:
    """A condition's bounds: ``<= 0.97``, ``>= 4`` or ``0.88 to 0.92``."""
    low, high = condition.get("at_least"), condition.get("at_most")
    every = " in every cell" if condition.get("every") else ""
    if low is not None and high is not None:
        return f"{low:g} to {high:g}{every}"
    if high is not None:
        return f"<= {high:g}{every}"
    return f">= {low:g}{every}" if low is not None else ""
