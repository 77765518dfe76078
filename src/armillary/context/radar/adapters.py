"""Radar inside LangChain and LlamaIndex: retrieved documents go in, trusted ones come out.

Both libraries are optional; an adapter is made when asked for, and nothing is imported before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.context.radar.radar import Document, Radar, RadarResult
from armillary.errors import require


def kept(result: RadarResult, count: int, *, pass_all: bool = False) -> list[int]:
    """Ranks of the documents to pass on: the trusted ones.

    Args:
        result: of the ``count`` documents.
        count: how many there were.
        pass_all: pass all on where none is trusted, or the answer is not sure enough; what was
            planted goes with them.
    """
    if result.trusted and "abstained" not in result.flags:
        return result.trusted
    return list(range(count)) if pass_all else []


def langchain_compressor(radar: Radar, *, pass_all: bool = False) -> Any:
    """A LangChain ``BaseDocumentCompressor`` that keeps the documents that Radar trusts.

    Each kept document has ``radar_support`` in its metadata. Put it into a
    ``ContextualCompressionRetriever``. Where no document is trusted, none is passed on.

    Args:
        radar: the judge; the same documents again are judged again and change no belief.
        pass_all: pass all documents on where none is trusted.

    Raises:
        MissingExtra: ``langchain-core`` is not installed.
    """
    compressors: Any = require(
        "langchain_core.documents.compressor", what="radar", extra="context-hosts"
    )

    class RadarCompressor(compressors.BaseDocumentCompressor):
        """Keeps the documents that Radar trusts."""

        def compress_documents(
            self, documents: Sequence[Any], query: str, callbacks: Any = None
        ) -> list[Any]:
            """The trusted documents, in their order."""
            if not documents:
                return []
            result = radar.answer(query, [Document(d.page_content) for d in documents])
            passed = []
            for rank in kept(result, len(documents), pass_all=pass_all):
                support = result.scores[rank].support
                metadata = {**documents[rank].metadata, "radar_support": support}
                passed.append(documents[rank].model_copy(update={"metadata": metadata}))
            return passed

    return RadarCompressor()


def llamaindex_postprocessor(radar: Radar, *, pass_all: bool = False) -> Any:
    """A LlamaIndex ``BaseNodePostprocessor`` that keeps the nodes that Radar trusts.

    Args:
        radar: as for `langchain_compressor`.
        pass_all: as for `langchain_compressor`.

    Raises:
        MissingExtra: ``llama-index-core`` is not installed.
    """
    types: Any = require(
        "llama_index.core.postprocessor.types", what="radar", extra="context-hosts"
    )

    class RadarPostprocessor(types.BaseNodePostprocessor):
        """Keeps the nodes that Radar trusts."""

        def _postprocess_nodes(self, nodes: list[Any], query_bundle: Any = None) -> list[Any]:
            if query_bundle is None:
                raise ValueError("query_bundle: got none, Radar judges documents by a question")
            if not nodes:
                return []
            documents = [Document(node.node.get_content()) for node in nodes]
            result = radar.answer(query_bundle.query_str, documents)
            return [nodes[rank] for rank in kept(result, len(nodes), pass_all=pass_all)]

    return RadarPostprocessor()
