"""Files are whole or absent; JSON is always valid."""

from __future__ import annotations

import json
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.output import atomic_path, write_csv, write_json, write_text
from armillary.output.files import finite, to_json


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path):
    target = write_text(tmp_path / "result.txt", "old")

    def fail_half_way() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    name = "é" * 125 + ".json"
    write_json(tmp_path / name, {"a": 1})
    assert json.loads((tmp_path / name).read_text()) == {"a": 1}


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        path = write_text(tmp_path / "a", "")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_folder_is_not_overwritten(tmp_path):
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        write_text(tmp_path, "x")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_json_is_valid_and_keeps_all_finite_values(value):
    def refuse(token: str) -> None:
        raise AssertionError(token)

    parsed = json.loads(to_json(value), parse_constant=refuse)
    assert parsed == finite(value)


def test_numpy_values_become_plain_ones():
    value = {"a": np.float32(0.5), "b": np.array([1.0, math.nan]), "c": np.int64(3)}
    assert json.loads(to_json(value)) == {"a": 0.5, "b": [1.0, None], "c": 3}


def test_csv_quotes_what_it_must(tmp_path):
    path = write_csv(tmp_path / "a.csv", ("x", "y"), [('a "b", c', None), ("line\nbreak", 1.5)])
    assert path.read_text() == 'x,y\r\n"a ""b"", c",\r\n"line\nbreak",1.5\r\n'.replace("\r\n", "\n")
