"""``armillary compare``: what moved between two sets of evidence, and a gate for CI."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from armillary import output
from armillary.cli import verdict_table
from armillary.errors import ExitCode
from armillary.output.files import to_json

if TYPE_CHECKING:
    from armillary.evidence.compare import Difference, Figure

app = typer.Typer(rich_markup_mode=None)

_WHAT = "A folder of evidence, a file of bench --json, or the path or URL of a store."


@app.command()
def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help=_WHAT)],
    new: Annotated[str, typer.Argument(metavar="NEW", help="What to compare it with; the same.")],
    gate: Annotated[
        bool, typer.Option("--gate", help="Exit 1 if a verdict of OLD got worse.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Show which verdicts and figures moved between two sets of evidence.

    Verdicts from the best: holds, partly, unclear, fails. A claim that was not run on one side is
    told and never counts as worse.

    Example: armillary compare evidence new.json --gate
    """
    from armillary.evidence.compare import compare as differences
    from armillary.evidence.compare import read_claims

    found = differences(read_claims(old), read_claims(new))
    console = output.console()
    if as_json:
        console.print(to_json([difference.record() for difference in found]))
    elif console.is_terminal:
        _for_a_reader(found)
    else:
        _for_a_pipe(found)
    _remarks(found, gate)
    worse = any(difference.change == "worse" for difference in found)
    raise typer.Exit(ExitCode.FAILED if gate and worse else ExitCode.OK)


def _remarks(found: Sequence[Difference], gate: bool) -> None:
    """The summary, and what a gate cannot see, on stderr."""
    console = output.console()
    count = Counter(difference.change for difference in found)
    said = [
        f"{count[change]} {words}"
        for change, words in (
            ("worse", "worse"), ("better", "better"), ("figures", "with other figures"),
            ("same", "the same"), ("apart", "not judged on one side"), ("appeared", "appeared"),
            ("vanished", "vanished"),
        )
        if count[change]
    ]  # fmt: skip
    console.note(f"claims: {', '.join(said) or 'none'}")
    if any(profiles_differ(difference) for difference in found):
        console.note("some claims were measured at different profiles: compare like with like")
    if gate and not any(count[change] for change in ("worse", "better", "figures", "same")):
        console.note("the gate is open for want of a claim that was judged on both sides")


def profiles_differ(difference: Difference) -> bool:
    """Whether a claim's two sides were measured at different profiles."""
    old, new = difference.profiles
    return bool(old and new) and old != new


def _for_a_pipe(found: Sequence[Difference]) -> None:
    columns = (
        "change", "method", "claim", "profile", "old verdict", "new verdict", "figure", "old",
        "new", "intervals",
    )  # fmt: skip
    rows = []
    for difference in found:
        head = (
            difference.change, difference.method, difference.claim, _profile(difference),
            *(verdict_table.verdict({"verdict": v}) if v else "" for v in difference.verdicts),
        )  # fmt: skip
        moved = _to_show(difference)
        rows += [(*head, *_cells(figure)) for figure in moved] or [(*head, "", "", "", "")]
    output.console().table(columns, rows)


def _for_a_reader(found: Sequence[Difference]) -> None:
    """One entry a claim that moved; the width of the terminal is kept."""
    width = shutil.get_terminal_size().columns
    for difference in found:
        if difference.change == "same":
            continue
        lines = [f"{difference.method}, {difference.claim}: {_headline(difference)}"]
        for figure in _to_show(difference):
            name, old, new, intervals = _cells(figure)
            told = f", intervals {intervals}" if intervals else ""
            lines.append(f"  {name}: {old or 'nothing'} -> {new or 'nothing'}{told}")
        for line in lines:
            text = textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False)
            output.console().print(text)


def _to_show(difference: Difference) -> list[Figure]:
    """Figures that moved, of a claim that stands on both sides."""
    if difference.change in ("appeared", "vanished"):
        return []
    return [figure for figure in difference.figures if figure.moved]


def _headline(difference: Difference) -> str:
    old, new = (verdict_table.verdict({"verdict": verdict}) for verdict in difference.verdicts)
    profile = f" ({_profile(difference)})"
    if difference.change == "appeared":
        return f"appeared, {new}{profile}"
    if difference.change == "vanished":
        return f"vanished, was {old}{profile}"
    if difference.change == "figures":
        return f"{new}, with other figures{profile}"
    what = "not judged on one side" if difference.change == "apart" else difference.change.upper()
    return f"{old} -> {new}, {what}{profile}"


def _profile(difference: Difference) -> str:
    old, new = difference.profiles
    return f"{old} -> {new}" if profiles_differ(difference) else new or old


def _cells(figure: Figure) -> tuple[str, str, str, str]:
    """Name, old value, new value, and what the intervals say."""
    sides = (figure.old, figure.new)
    name = next(verdict_table.figure_name(side) for side in sides[::-1] if side is not None)
    same_target = None not in sides and len({verdict_table.target(s) for s in sides if s}) == 1
    old, new = (
        ""
        if side is None
        else verdict_table.value(side)
        + ("" if same_target else f" (target {verdict_table.target(side)})")
        for side in sides
    )
    return name, old, new, {True: "overlap", False: "apart", None: ""}[figure.overlap]
