"""Progress bars keep quiet in pipes; tables are plain there."""

from __future__ import annotations

import io

from armillary.output import Console, progress, terminal


def test_progress_yields_everything_and_says_nothing_on_short_work(capsys):
    assert list(progress(range(5), "counting")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr().err == ""


def test_progress_in_a_pipe_says_a_line_every_30_seconds(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 16))
    monkeypatch.setattr(terminal.time, "monotonic", lambda: float(next(clock)))
    list(progress(range(4), "counting"))
    assert capsys.readouterr().err == "counting: 1/4 after 32 s\ncounting: 3/4 after 64 s\n"


def test_table_in_a_pipe_is_tab_separated(capsys):
    Console().table(("a", "b"), [("x\ty", None), ("line\nbreak", 2)])
    assert capsys.readouterr().out == "a\tb\nx y\t\nline break\t2\n"


def test_quiet_keeps_results_and_drops_remarks(capsys):
    console = Console(quiet=True)
    console.print("result")
    console.note("remark")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("result\n", "")


def test_what_the_stream_cannot_carry_becomes_a_question_mark():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert terminal._encodable("≤ é", stream) == "? ?"
