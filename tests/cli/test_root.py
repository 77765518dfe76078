"""Errors become messages and exit codes; the root's options work anywhere."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from armillary import catalog
from armillary.cli import root
from armillary.errors import ExitCode, MissingExtra, require


def armillary(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "armillary", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def test_unknown_command_and_option_exit_2_without_a_traceback():
    for arguments in (["lits"], ["list", "--colour"], ["info"]):
        result = armillary(*arguments)
        assert result.returncode == ExitCode.BAD_INPUT
        assert "Traceback" not in result.stderr
        assert "--help" in result.stderr


def test_unknown_method_names_near_ones():
    slugs = [method.card.slug for method in catalog.methods()]
    if not slugs:
        pytest.skip("the catalogue is empty")
    result = armillary("info", slugs[0][:-1])
    assert result.returncode == ExitCode.BAD_INPUT
    assert f"Did you mean {slugs[0]}?" in result.stderr


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("n=3: give at least 20 rows"), 2, "armillary: n=3: give at least 20 rows\n"),
        (FileNotFoundError(2, "No such file or directory", "a b.csv"), 2, "'a b.csv'"),
        (MissingExtra("tango", "graph"), 2, "pip install 'armillary[graph]'"),
        (RuntimeError("singular"), 1, "failed: RuntimeError: singular"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_errors_of_a_command_become_exit_codes(monkeypatch, capsys, error, code, text):
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(root.LazyGroup, "invoke", broken)
    assert root.run(["list"]) == code
    assert text in capsys.readouterr().err


def test_debug_shows_the_traceback_from_anywhere_on_the_line(monkeypatch):
    def broken(*_: object) -> None:
        raise ValueError("n=3")

    monkeypatch.setattr(root.LazyGroup, "invoke", broken)
    with pytest.raises(ValueError, match="n=3"):
        root.run(["list", "--debug"])


def test_options_after_a_double_dash_are_left_alone():
    assert root._hoist(["bench", "x", "--quiet", "--", "--debug"]) == [
        "--quiet",
        "bench",
        "x",
        "--",
        "--debug",
    ]


def test_list_as_json_has_the_documented_keys():
    listed = json.loads(armillary("list", "--json").stdout)
    assert [entry["slug"] for entry in listed] == [m.card.slug for m in catalog.methods()]
    for entry in listed:
        assert set(entry) == {"slug", "field", "title", "extra", "installed"}


def test_doctor_names_a_folder_that_cannot_be_used(tmp_path):
    blocked = tmp_path / "a file"
    blocked.write_text("")
    result = armillary("doctor", "--json", ARMILLARY_HOME=str(blocked / "home"))
    assert result.returncode == ExitCode.FAILED
    findings = {entry["part"]: entry for entry in json.loads(result.stdout)}
    assert findings["results"]["state"] == "broken"
    assert "ARMILLARY_HOME" in findings["results"]["mend"]
    assert findings["python"]["state"] == "ok"


def test_cache_is_listed_and_cleared(tmp_path):
    home = {"ARMILLARY_HOME": str(tmp_path)}
    entry = tmp_path / "cache" / "models" / "weights.bin"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(bytes(2**20))
    assert armillary("cache", "list", **home).stdout.splitlines()[1] == "models\t1.0 MiB"
    wrong = armillary("cache", "clear", "model", "--yes", **home)
    assert wrong.returncode == ExitCode.BAD_INPUT
    assert "there are: models" in wrong.stderr
    assert armillary("cache", "clear", "models", "--yes", **home).returncode == ExitCode.OK
    assert not entry.exists()


def test_a_closed_pipe_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "armillary", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, stderr = process.communicate()
    assert b"Traceback" not in stderr
    assert b"Exception" not in stderr


def test_output_survives_a_locale_without_unicode():
    result = armillary("list", LANG="C", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == ExitCode.OK


def test_a_narrow_terminal_is_not_overrun():
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "armillary", "doctor"],
        stdout=child,
        stderr=subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "40", "TERM": "xterm"},
    )
    os.close(child)
    text = b""
    while True:
        try:
            chunk = os.read(parent, 65536)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    os.close(parent)
    assert process.wait() in (0, 1)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).replace("\r", "").split("\n")
    assert max(len(line) for line in plain) <= 40


def test_ctrl_c_exits_130(tmp_path):
    code = (
        "import time\nfrom armillary.cli import root\n"
        "root.LazyGroup.invoke = lambda *a: (print('ready', flush=True), time.sleep(60))\n"
        "root.main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == ExitCode.INTERRUPTED
    assert b"Traceback" not in stderr


def test_require_names_the_extra_and_the_module():
    with pytest.raises(MissingExtra, match=r"pip install 'armillary\[graph\]'"):
        require("no_such_package.part", what="tango", extra="graph")
    assert require("json", what="tango", extra="graph") is json
