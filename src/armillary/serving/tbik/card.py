"""What the catalogue knows of tbik."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="tbik",
    field="serving",
    title="The same bits out of a language model on any number of ranks",
    gift="Make a language model give the same bits at any batch, padding, chunking or tensor "
    "parallel size, and find the layer that does not.",
    paper=Paper(
        "Deterministic Inference across Tensor Parallel Sizes That Eliminates Training-Inference "
        "Mismatch",
        "Zhang, Ding, Yuan, Liu, Mao, Xing, Liu",
        "ICML 2026",
        "https://arxiv.org/abs/2511.17826",
    ),
    claims=(
        "no-bit-differs",
        "no-less-accurate",
        "one-output-a-prompt",
        "rivals-have-several",
        "parts-are-needed",
        "eight-and-nine-ranks",
        "trainer-agrees",
        "learns-no-worse",
        "shared-memory-is-quick",
        "gloo-tree-is-no-slower",
        "no-slower-than-torch",
        "one-row-faster",
        "many-rows-bounded",
        "near-the-memory",
        "no-slower-on-two-threads",
    ),
    extra="serving",
    modules=("torch", "transformers", "safetensors"),
    peers_extra="serving-peers",
)
