"""No home, peer's path, password or key leaves this machine in an error's text."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.evidence.scrub import Scrubber, hide_passwords

word = st.text("abcdefghijklmnopqrstuvwxyzABC0123456789-._~!$", min_size=6, max_size=20)


@given(user=word, password=word, before=st.text(max_size=20), after=word)
def test_a_password_in_a_url_never_survives(user, password, before, after):
    text = f"{before} postgresql+psycopg://{user}:{password}@db.example:5432/{after}"
    shown = hide_passwords(text)
    assert f":{password}@" not in shown
    assert "postgresql+psycopg://***@db.example:5432/" in shown
    assert f"{user}:{password}" not in Scrubber()(text, limit=10_000)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see https://example.org/a?b=1", "see https://example.org/a?b=1"),
        ("mail me@example.org", "mail me@example.org"),
        ("GET /v1?api_key=abc123&n=2", "GET /v1?api_key=***&n=2"),
        ("password = hunter2, retry", "password = ***, retry"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("no /home/ann/x.py", "no ~/x.py"),
        ("no '/Users/ann/x.py'", "no '~/x.py'"),
        ("no /root/x.py", "no ~/x.py"),
        ("two\n lines\tand\x00more", "two lines and more"),
        ("ratio a/b, 3:4@5", "ratio a/b, 3:4@5"),
    ],
)
def test_what_is_hidden_and_what_stays(text, shown):
    assert Scrubber()(text) == shown


def test_paths_that_a_user_gave_go_by_their_labels(tmp_path):
    peer, inner = tmp_path / "peer", tmp_path / "peer" / "inner"
    inner.mkdir(parents=True)
    scrub = Scrubber({str(peer): "<peer lab>", str(inner): "<data>"})
    assert scrub(f"in {peer}/x.py") == "in <peer lab>/x.py"
    assert scrub(f"in {inner}/x.py") == "in <data>/x.py"
    assert scrub(f"in {peer}") == "in <peer lab>"
    assert "<peer lab>" not in scrub(f"in {peer}-other/x.py")


def test_a_linked_path_is_known_by_its_target_too(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    scrub = Scrubber({str(tmp_path / "link"): "<peer lab>"})
    assert (
        scrub(f"in {tmp_path}/real/x and {tmp_path}/link/x") == "in <peer lab>/x and <peer lab>/x"
    )


def test_folders_of_installed_code_are_left_out(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/opt/site/lib/site-packages", *sys.path])
    assert Scrubber()("in /opt/site/lib/site-packages/torch/nn.py") == "in torch/nn.py"


def test_values_of_secret_variables_are_hidden(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "zx81-and-more")
    monkeypatch.setenv("SHORT_TOKEN", "a")
    assert Scrubber()("the key zx81-and-more was refused") == "the key *** was refused"


def test_the_users_own_home_is_a_tilde(monkeypatch):
    monkeypatch.setenv("HOME", "/data/people/ann")
    assert os.path.expanduser("~") == "/data/people/ann"
    assert Scrubber()("no /data/people/ann/x, /data/people/anna/x") == (
        "no ~/x, /data/people/anna/x"
    )


def test_half_a_character_does_not_stop_the_text():
    assert Scrubber()("no file \udcff.txt").encode() == b"no file ?.txt"


def test_a_very_long_text_is_read_no_further_than_needed():
    text = "word " * 10**6 + "http://me:secret@host"
    assert len(Scrubber()(text)) == 400


@given(text=st.text(max_size=3000), limit=st.integers(1, 500))
def test_the_text_is_one_line_of_limited_length(text, limit):
    shown = Scrubber()(text, limit=limit)
    assert len(shown) <= limit
    assert len(shown.splitlines()) <= 1
