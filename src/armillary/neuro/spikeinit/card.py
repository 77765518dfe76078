"""What the catalogue knows of spikeinit."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="spikeinit",
    field="neuro",
    title="Initialise deep spiking networks",
    gift="Train very deep spiking networks without any normalisation, from one call on your model.",
    paper=Paper(
        "Training Deep Spiking Neural Networks without Normalization",
        "Shi, Yu",
        "ICML 2026",
    ),
    claims=(
        "rate-keeps",
        "others-fall-silent",
        "default-layers-fall-silent",
        "dings-gradient-dies",
        "plain-beats-batch-norm",
        "plain-beats-other-inits",
        "small-batches-beat-batch-norm",
        "single-rows-beat-batch-norm",
        "residual-matches-batch-norm",
        "residual-beats-zero-branches-alone",
        "fewer-spikes",
        "sew-branches-start-quiet",
        "sew-matches-batch-norm",
        "sequences-match-batch-norm",
        "sequences-beat-other-inits",
        "a-thousand-layers-train",
        "its-branches-work",
        "a-thousand-beat-zero-branches-alone",
        "others-do-not-train-a-thousand",
        "steps-cost-less",
    ),
    extra="neuro",
    modules=("torch", "sklearn", "pandas"),
    peers_extra="neuro-peers",
)
