"""What the catalogue knows of gemq."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="gemq",
    field="serving",
    title="A mixture of experts in 2 to 3 bits by one bit budget for the whole model",
    gift="Shrink a mixture-of-experts language model: bits go to the experts whose rounding hurts "
    "most, routers are tuned afterwards, and packed experts multiply without being unpacked.",
    paper=Paper(
        "GEMQ: Global Expert-Level Mixed-Precision Quantization for MoE LLMs",
        "The GEMQ authors (jndeng/GEMQ)",
        "ICML 2026",
        "https://arxiv.org/abs/2605.23078",
    ),
    claims=(
        "better-at-equal-bytes",
        "global-over-layer-wise",
        "parts-earn-their-place",
        "routers-repair",
        "stages-do-no-harm",
        "no-plan-is-better",
        "multipliers-suffice",
        "planned-in-seconds",
        "planted-plan-is-found",
        "small-in-memory",
        "faster-at-one-token",
    ),
    extra="serving",
    modules=("torch", "transformers", "safetensors", "scipy"),
    peers_extra="serving-peers",
)
