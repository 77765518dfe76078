"""Put the verdicts of the committed evidence into README.md and the methods' pages.

Between ``<!-- methods -->`` and ``<!-- /methods -->`` of README.md stands the table of methods;
between ``<!-- evidence:SLUG -->`` and ``<!-- /evidence -->`` of a method's page, its claims, and
between ``<!-- long:SLUG -->`` and ``<!-- /long -->`` the figures of its ``long`` profile. All are
made from ``evidence/``; ``--check`` changes nothing and fails where a file is not up to date.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
from pathlib import Path
from typing import Any

from armillary import catalog
from armillary.evidence import bundle
from armillary.output import write_text

ROOT = Path(__file__).parents[1]
ORDER = ("holds", "partly", "unclear", "fails", "not run")


def number(value: float | None) -> str:
    """Three significant digits, without an exponent where it reads well."""
    if value is None:
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{float(f'{value:.3g}'):,g}"
    return f"{value:.2e}"


def bound(condition: dict[str, Any]) -> str:
    low, high = condition["at_least"], condition["at_most"]
    if low is not None and high is not None:
        return f"{number(low)} … {number(high)}"
    return f"≤ {number(high)}" if high is not None else f"≥ {number(low)}"


def measured(condition: dict[str, Any]) -> str:
    text = number(condition["estimate"])
    if condition["low"] is not None and condition["high"] is not None:
        text += f" [{number(condition['low'])}, {number(condition['high'])}]"
    return text


def what(condition: dict[str, Any]) -> str:
    metric = condition["metric"] or "statistic"
    over = condition["over"]
    if condition["form"] == "ratio":
        return f"{metric}, ratio to {over}"
    if condition["form"] == "difference":
        return f"{metric}, difference to {over}"
    if condition["form"] == "slope":
        return f"{metric}, exponent in {condition['along']} ({condition['of']})"
    return metric if condition["of"] == "ours" else f"{metric} of {condition['of']}"


def methods_table() -> str:
    lines = ["| method | what you gain | verdicts |", "|---|---|---|"]
    for method in catalog.methods():
        card = method.card
        found = bundle.committed(card.slug)
        counts = collections.Counter(c["verdict"] for c in found.claims) if found else {}
        verdicts = ", ".join(f"{counts[v]} {v}" for v in ORDER if counts.get(v))
        name = f"[`{card.slug}`](docs/methods/{card.slug}.md)"
        lines.append(f"| {name} | {card.gift} | {verdicts or 'not measured yet'} |")
    return "\n".join(lines)


def deciding(claim: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a condition: the rival that is nearest to breaking it, but of a claim that fails one by
    which it does, so that no verdict stands beside an interval that does not say so."""
    rows = [c for c in claim["conditions"] if c["tightest"]] or claim["conditions"]
    if claim["verdict"] != "fails":
        return rows
    missed = {c["condition"]: c for c in reversed(claim["conditions"]) if c["status"] == "missed"}
    return [c if c["status"] == "missed" else missed.get(c["condition"], c) for c in rows]


def claims_table(slug: str) -> str:
    found = bundle.committed(slug)
    if found is None:
        return "No evidence is committed yet."
    machine = found.environment.get("machine", {})
    lines = [
        f"Profile `{found.profile}`, on {machine.get('cpu', 'an unnamed processor')} "
        f"with {machine.get('cores', '?')} cores. In brackets: the 95 % interval.",
        "",
        "| claim | verdict | measured | bound | the paper |",
        "|---|---|---|---|---|",
    ]
    for claim in found.claims:
        head = f"**{claim['claim']}**: {claim['statement']}"
        for i, c in enumerate(deciding(claim)):
            first = (head, f"**{claim['verdict']}**") if i == 0 else ("", "")
            paper = claim["paper"] if i == 0 else ""
            cells = (*first, f"{what(c)}: {measured(c)}", bound(c), paper)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += warnings(found.claims)
    lines += ["", f"Reproduce: `{found.claims[0]['command']}`"]
    return "\n".join(lines)


def warnings(claims: list[dict[str, Any]]) -> list[str]:
    """Ablations that were to hurt and do not, a line each; nothing where there are none."""
    lines = []
    for claim in claims:
        for ablation in claim["ablations"]:
            if ablation["expect"] == "hurts" and ablation["hurts"] is False:
                name, metric = ablation["name"], ablation["metric"]
                times = f" ({number(ablation['ratio'])} times ours)" if ablation["ratio"] else ""
                lines.append(f"- **{claim['claim']}**: `{name}` does not hurt its {metric}{times}.")
    return ["", "Warnings. Ablations that should hurt and do not:", "", *lines] if lines else []


def long_tables(slug: str) -> str:
    """A table an experiment: every contender's mean over seeds (least, greatest) by case."""
    folder = ROOT / "evidence" / slug / "long"
    if not (folder / "claims.json").is_file():
        return "The `long` profile has not been run."
    found = bundle.Bundle.read(folder, committed=True)
    parts = [
        "Profile `long`: figures, without verdicts. Mean over seeds, in brackets the least and the "
        f"greatest. Reproduce: `{found.claims[0]['command']}`"
    ]
    for name, described in found.environment["experiments"].items():
        metric = described["metrics"][0]
        values: dict[str, dict[str, list[float]]] = {}
        failed: set[tuple[str, str]] = set()
        seeds: set[int] = set()
        for row in found.rows:
            if row.experiment != name:
                continue
            seeds.add(row.seed)
            if metric["name"] in row.metrics:
                cell = values.setdefault(row.contender, {}).setdefault(row.case, [])
                cell.append(row.metrics[metric["name"]])
            else:
                failed.add((row.contender, row.case))
        cases = [c["name"] for c in described["cases"]]
        if values:
            head = f"**{described['title']}** (`{name}`): {metric['name']}"
            unit = f", {metric['unit']}" if metric["unit"] else ""
            parts += [f"{head}{unit}; {len(seeds)} seeds.", long_table(cases, values, failed)]
    return "\n\n".join(parts)


def long_table(
    cases: list[str], values: dict[str, dict[str, list[float]]], failed: set[tuple[str, str]]
) -> str:
    lines = ["| | " + " | ".join(cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for who, found in values.items():
        cells = []
        for case in cases:
            got = found.get(case)
            if not got:
                cells.append("failed" if (who, case) in failed else "–")
                continue
            mark = ", one failed" if (who, case) in failed else ""
            mean = number(sum(got) / len(got))
            cells.append(f"{mean} [{number(min(got))}, {number(max(got))}{mark}]")
        lines.append(f"| {who} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def filled(text: str) -> str:
    def evidence(match: re.Match[str]) -> str:
        return f"{match[1]}\n{claims_table(match[2])}\n{match[4]}"

    text = re.sub(
        r"(<!-- methods -->)\n(.*?)(<!-- /methods -->)",
        lambda m: f"{m[1]}\n{methods_table()}\n{m[3]}",
        text,
        flags=re.DOTALL,
    )
    text = re.sub(
        r"(<!-- long:([a-z0-9-]+) -->)\n(.*?)(<!-- /long -->)",
        lambda m: f"{m[1]}\n{long_tables(m[2])}\n{m[4]}",
        text,
        flags=re.DOTALL,
    )
    return re.sub(
        r"(<!-- evidence:([a-z0-9-]+) -->)\n(.*?)(<!-- /evidence -->)",
        evidence,
        text,
        flags=re.DOTALL,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, fail where stale")
    check = parser.parse_args().check
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs" / "methods").glob("*.md"))]:
        text = path.read_text("utf-8")
        if filled(text) != text:
            stale.append(path.relative_to(ROOT))
            if not check:
                write_text(path, filled(text))
    for path in stale:
        print(f"{path}: {'stale, run make readme' if check else 'filled'}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
