"""Public data is found, verified, and asked for in words that help."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

import pytest

from armillary import corpora
from armillary.corpora import registry
from armillary.output import checksums

CONTENT = b"timestamp,tokens\n0,12\n"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with one known file, named by ARMILLARY_DATA."""
    entry = dataclasses.replace(
        corpora.EXTERNAL[0],
        name="small",
        path="a/b.csv",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    monkeypatch.setattr(registry, "EXTERNAL", (entry,))
    file = tmp_path / "data" / "a" / "b.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    monkeypatch.setenv("ARMILLARY_DATA", str(tmp_path / "data"))
    return file


def test_a_file_is_found_by_the_variable_and_by_the_argument(known, monkeypatch):
    assert corpora.external("small") == known
    monkeypatch.delenv("ARMILLARY_DATA")
    assert corpora.external("small", known.parents[1]) == known


def test_a_changed_file_is_refused_unless_asked_for(known):
    assert corpora.external("small") == known
    known.write_bytes(CONTENT + b"1,13\n")
    with pytest.raises(ValueError, match="unverified=True"):
        corpora.external("small")
    assert corpora.external("small", unverified=True) == known
    known.write_bytes(CONTENT)
    assert corpora.external("small") == known


def test_the_checksum_is_computed_once_for_each_state(known, monkeypatch):
    read = []
    original = checksums.sha256
    monkeypatch.setattr(checksums, "sha256", lambda path: (read.append(path), original(path))[1])
    corpora.external("small")
    corpora.external("small")
    assert len(read) == 1
    os.utime(known, ns=(0, 0))
    corpora.external("small")
    assert len(read) == 2


def test_a_cache_that_cannot_be_written_stops_nothing(known, monkeypatch, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    monkeypatch.setenv("ARMILLARY_HOME", str(blocked))
    assert corpora.external("small") == known


def test_what_is_absent_says_where_it_is_had(known, monkeypatch):
    known.unlink()
    with pytest.raises(FileNotFoundError, match=r"Azure/AzurePublicDataset.*ARMILLARY_DATA"):
        corpora.external("small")
    monkeypatch.delenv("ARMILLARY_DATA")
    with pytest.raises(FileNotFoundError, match=r"Azure/AzurePublicDataset.*ARMILLARY_DATA"):
        corpora.external("small")
    with pytest.raises(LookupError, match="there are: small"):
        corpora.external("unknown")


def test_entries_are_complete_and_in_order():
    names = [entry.name for entry in corpora.EXTERNAL]
    assert names == sorted(set(names))
    for entry in corpora.EXTERNAL:
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.source.count("/") == 1
        assert not Path(entry.path).is_absolute()


@pytest.mark.skipif(not os.environ.get("ARMILLARY_DATA"), reason="ARMILLARY_DATA is not set")
@pytest.mark.parametrize("entry", corpora.EXTERNAL, ids=lambda entry: entry.name)
def test_the_real_files_are_what_they_say(entry):
    assert checksums.sha256(corpora.external(entry.name)) == entry.sha256
