"""Adapters pass on what Radar trusts, and name the extra where the host library is absent.

The hosts are replaced by the few names that the adapters use; where the real libraries are
installed, they are used instead.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types

import pytest

from armillary.context.radar import Radar, langchain_compressor, llamaindex_postprocessor
from armillary.errors import MissingExtra


@dataclasses.dataclass
class Page:
    page_content: str
    metadata: dict

    def model_copy(self, update):
        return dataclasses.replace(self, **update)


def planted(monkeypatch, name, **members):
    """Modules of that dotted name, each holding the next."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        module = types.ModuleType(".".join(parts[:end]))
        module.__path__ = []  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for key, value in members.items():
        setattr(sys.modules[name], key, value)


def test_langchain_gets_the_trusted_documents(doubles, monkeypatch):
    planted(monkeypatch, "langchain_core.documents.compressor", BaseDocumentCompressor=object)
    compressor = langchain_compressor(Radar(doubles.Told(), doubles.Equal()))
    found = [Page(text, {"n": i}) for i, text in enumerate(doubles.pages("x", "w", "x"))]
    passed = compressor.compress_documents(found, "Q?")
    assert [page.metadata["n"] for page in passed] == [0, 2]
    assert all(0 < page.metadata["radar_support"] <= 1 for page in passed)
    assert "radar_support" not in found[0].metadata
    assert compressor.compress_documents([], "Q?") == []


def test_llamaindex_gets_the_trusted_nodes(doubles, monkeypatch):
    planted(monkeypatch, "llama_index.core.postprocessor.types", BaseNodePostprocessor=object)
    processor = llamaindex_postprocessor(Radar(doubles.Told(), doubles.Equal()))

    class Node:
        def __init__(self, text):
            self.node = self
            self.get_content = lambda: text

    nodes = [Node(text) for text in doubles.pages("w", "x", "x")]
    query = types.SimpleNamespace(query_str="Q?")
    assert processor._postprocess_nodes(nodes, query) == nodes[1:]
    with pytest.raises(ValueError, match="query_bundle: got none"):
        processor._postprocess_nodes(nodes)


def test_the_same_query_again_lets_no_poison_through(doubles, monkeypatch):
    planted(monkeypatch, "langchain_core.documents.compressor", BaseDocumentCompressor=object)
    compressor = langchain_compressor(Radar(doubles.Told(), doubles.Equal()))
    found = [Page(text, {"n": i}) for i, text in enumerate(doubles.pages("x", "w", "x"))]
    first, again = (compressor.compress_documents(found, "Q?") for _ in range(2))
    assert [page.metadata["n"] for page in first] == [0, 2]
    for one, two in zip(first, again, strict=True):
        assert two.metadata["n"] == one.metadata["n"]
        assert two.metadata["radar_support"] == pytest.approx(one.metadata["radar_support"])


def test_when_nobody_answers_nothing_is_passed_on_unless_wanted(doubles, monkeypatch):
    planted(monkeypatch, "langchain_core.documents.compressor", BaseDocumentCompressor=object)
    found = [Page(text, {}) for text in doubles.pages("", "")]
    radar = Radar(doubles.Told(), doubles.Equal())
    assert langchain_compressor(radar).compress_documents(found, "Q?") == []
    passed = langchain_compressor(radar, pass_all=True).compress_documents(found, "Q?")
    assert len(passed) == 2


def test_an_unsure_answer_passes_nothing_on(doubles, monkeypatch):
    planted(monkeypatch, "langchain_core.documents.compressor", BaseDocumentCompressor=object)
    radar = Radar(doubles.Told(), doubles.Equal(), abstain_below=1e9)
    found = [Page(text, {}) for text in doubles.pages("x", "x")]
    assert langchain_compressor(radar).compress_documents(found, "Q?") == []


@pytest.mark.skipif(
    importlib.util.find_spec("langchain_core") is not None, reason="langchain-core is installed"
)
def test_an_absent_host_is_named(doubles):
    with pytest.raises(MissingExtra, match="context-hosts"):
        langchain_compressor(Radar(doubles.Told(), doubles.Equal()))
