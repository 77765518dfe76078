"""RADAR: right answers from retrieved documents while some are poisoned and the truth changes.

    from armillary.context.radar import Radar

    radar = Radar(chat, store="beliefs.db")                     # any chat of armillary.models
    result = radar.answer(question, documents, time="2026-03-01")
    result.answer, result.trusted, result.margin, result.belief
    [line.verdict for line in result.scores]                    # why each document was kept or not

Source: Chen, Lyu, Liu, Han, Dong, Shan, Tan, "RADAR: Defending RAG Dynamically against Retrieval
Corruption", ICML 2026 (arXiv 2605.22041). The campaign memory is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.context.radar.adapters import langchain_compressor as langchain_compressor
    from armillary.context.radar.adapters import (
        llamaindex_postprocessor as llamaindex_postprocessor,
    )
    from armillary.context.radar.agreement import AnswerAgreement as AnswerAgreement
    from armillary.context.radar.agreement import EmbeddingAgreement as EmbeddingAgreement
    from armillary.context.radar.agreement import LLMAgreement as LLMAgreement
    from armillary.context.radar.agreement import NLIAgreement as NLIAgreement
    from armillary.context.radar.cut import energy as energy
    from armillary.context.radar.cut import select as select
    from armillary.context.radar.memory import CampaignSettings as CampaignSettings
    from armillary.context.radar.radar import Document as Document
    from armillary.context.radar.radar import Judged as Judged
    from armillary.context.radar.radar import Radar as Radar
    from armillary.context.radar.radar import RadarResult as RadarResult
    from armillary.context.radar.readers import ChatReader as ChatReader
    from armillary.context.radar.readers import OptionReader as OptionReader
    from armillary.context.radar.store import BeliefStore as BeliefStore
    from armillary.context.radar.store import StaleObservationError as StaleObservationError
    from armillary.context.radar.value_agreement import ValueAgreement as ValueAgreement

_HOMES = {
    "AnswerAgreement": "agreement",
    "BeliefStore": "store",
    "CampaignSettings": "memory",
    "ChatReader": "readers",
    "Document": "radar",
    "EmbeddingAgreement": "agreement",
    "Judged": "radar",
    "LLMAgreement": "agreement",
    "NLIAgreement": "agreement",
    "OptionReader": "readers",
    "Radar": "radar",
    "RadarResult": "radar",
    "StaleObservationError": "store",
    "ValueAgreement": "value_agreement",
    "energy": "cut",
    "langchain_compressor": "adapters",
    "llamaindex_postprocessor": "adapters",
    "select": "cut",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES, slug="radar", extra="context")
