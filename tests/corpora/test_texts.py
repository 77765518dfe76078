"""Text that every Python carries, dealt by document."""

from __future__ import annotations

import pytest

from armillary import corpora


def test_topics_are_dealt_to_parts_that_share_no_document():
    topics = corpora.python_topics()
    assert len(topics) > 60
    assert not any("  " in text for text in topics.values())
    shares = {"one": 0.6, "two": 0.25, "three": 0.15}
    parts = corpora.split(topics, shares)
    assert sorted(t for texts in parts.values() for t in texts) == sorted(topics.values())
    total = sum(map(len, topics.values()))
    for name, share in shares.items():
        assert abs(sum(map(len, parts[name])) / total - share) < 0.1
    assert corpora.split(dict(reversed(topics.items())), shares) == parts


def test_what_cannot_be_dealt_is_told():
    with pytest.raises(ValueError, match="are too few"):
        corpora.split({"a": "x"}, {"one": 1, "two": 1})
    with pytest.raises(ValueError, match="each must be positive"):
        corpora.split({"a": "x"}, {"one": 0.0})
