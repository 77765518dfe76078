"""Radar inside LangChain and LlamaIndex: retrieved documents go in, trusted ones come out.

Both libraries are optional; an adapter is made when asked for, and nothing is imported before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from armillary.context.radar.radar import Document, Radar, RadarResult
from armillary.errors import require


def kept(result: RadarResult, count: int) -> list[int]:
    """Ranks of the documents to pass on: the trusted ones, or all where none could be judged."""
    return result.trusted if result.trusted else list(range(count))


def langchain_compressor(radar: Radar) -> Any:
    """A LangChain ``BaseDocumentCompressor`` that keeps the documents that Radar trusts.

    Each kept document has ``radar_support`` in its metadata. Put it into a
    ``ContextualCompressionRetriever``.

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
            for rank in kept(result, len(documents)):
                support = result.scores[rank].support if result.scores else 0.0
                metadata = {**documents[rank].metadata, "radar_support": support}
                passed.append(documents[rank].model_copy(update={"metadata": metadata}))
            return passed

    return RadarCompressor()


def llamaindex_postprocessor(radar: Radar) -> Any:
    """A LlamaIndex ``BaseNodePostprocessor`` that keeps the nodes that Radar trusts.

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
            return [nodes[rank] for rank in kept(result, len(nodes))]

    return RadarPostprocessor()
