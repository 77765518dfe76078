"""What the catalogue knows of radar."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="radar",
    field="context",
    title="Right answers from poisoned documents while the truth changes",
    gift="Keep a retrieval system's answers right under poisoned documents and true changes.",
    paper=Paper(
        "RADAR: Defending RAG Dynamically against Retrieval Corruption",
        "Chen, Lyu, Liu, Han, Dong, Shan, Tan",
        "ICML 2026",
        "https://arxiv.org/abs/2605.22041",
    ),
    claims=(
        "reader-is-usable",
        "exact",
        "edited-copies",
        "three-poisoned-documents",
        "one-poisoned-document",
        "static-not-below-rivals",
        "poison-among-fifty",
        "better-than-undefended",
        "surge-of-one-step",
        "surge-of-two-steps",
        "true-change-is-followed",
        "no-loss-without-attack",
        "below-all-rivals",
        "surge-at-the-change",
        "below-a-packaged-detector",
        "reliable-reader",
        "values-before-embeddings",
        "one-percent-of-the-archive",
        "one-tenth-of-short-pages",
        "constant-storage",
        "one-call-a-new-document",
        "faster-than-networkx",
        "time-in-answers",
    ),
    extra="context",
    modules=("babel", "dateutil", "tzdata"),
    peers_extra="context-peers",
)
