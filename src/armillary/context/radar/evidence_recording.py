"""How the recorded readings are made, checked against the model, and packed for shipping."""

from __future__ import annotations

from pathlib import Path

from armillary.context.radar.evidence_readings import (
    SETS,
    options_of,
    question_set,
    recording_path,
)
from armillary.context.radar.evidence_streams import UNDEFENDED_CASES, static_work, together
from armillary.context.radar.readers import OptionReader
from armillary.evidence.shapes import Cell


def wanted(sets: int = SETS) -> list[tuple[str, str]]:
    """Every (question, text) of the first sets: single documents, then all of a question's."""
    single = [
        (s.question, text)
        for seed in range(sets)
        for s in question_set(seed)
        for text in s.documents
    ]
    joint: dict[tuple[str, str], None] = {}
    for seed in range(sets):
        for case in UNDEFENDED_CASES:
            work = static_work(Cell(case, seed, "full"), read=False)
            for (step,) in (*work.unattacked, *work.streams):
                joint[step.question, together(step)] = None
    return [*single, *joint]


def record(path: Path, *, sets: int = SETS) -> int:
    """Read every document with the embedded model and append to a recording; resumes.

    Args:
        path: a ``.jsonl`` file; `pack` it afterwards.
        sets: how many question sets, in their order.

    Returns:
        The number of readings in these sets.
    """
    from armillary import models, output

    reader = OptionReader(models.Recording(path, models.chat(), "record"), options_of)
    todo = wanted(sets)
    for question, text in output.progress(todo, "readings"):
        reader.read(question, text)
    return len(todo)


def live_check(share: float = 0.05, *, seed: int = 0) -> tuple[int, int]:
    """Read a random share again with the embedded model.

    Returns:
        How many were read again, and how many of them differ from the recording.
    """
    from armillary import models

    tape = models.Recording(recording_path(), models.chat(), "live-check", share=share, seed=seed)
    reader = OptionReader(tape, options_of)
    for question, text in wanted():
        reader.read(question, text)
    return tape.checked, len(tape.mismatches)


def pack(recorded: Path, packed: Path) -> int:
    """Compress a recording for shipping: sorted, likelihoods to six digits; the same bytes always.

    Requests are left out, since their digest is the key; so is what no question set asks for.

    Args:
        recorded: the ``.jsonl`` file that `record` made.
        packed: the ``.jsonl.gz`` file to write.

    Returns:
        How many answers it holds.
    """
    import gzip
    import json

    from armillary.output import write_bytes

    asked = {(q, o) for q, _ in wanted() for o in (tuple(f" {o}" for o in options_of(q)),)}
    lines = {}
    for line in recorded.read_text("utf-8").splitlines():
        entry = json.loads(line)
        request, answer = entry["request"], entry["answer"]
        question = request["prompt"].split("\nQuestion: ")[-1].removesuffix("\nAnswer:")
        if (question, tuple(request["options"])) not in asked:
            continue
        for part in ("log_probs", "log_likelihoods"):
            answer[part] = [float(f"{x:.6g}") for x in answer[part]]
        short = {"key": entry["key"], "answer": answer}
        lines.setdefault(entry["key"], json.dumps(short, separators=(",", ":")))
    text = "".join(lines[key] + "\n" for key in sorted(lines))
    write_bytes(packed, gzip.compress(text.encode(), mtime=0))
    return len(lines)
