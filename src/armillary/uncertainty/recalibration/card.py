"""What the catalogue knows of recalibration."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="recalibration",
    field="uncertainty",
    title="Recalibrate whole predictive distributions",
    gift="Make an overconfident regressor's distributions trustworthy from a held-out set.",
    paper=Paper(
        "Nonparametric Distribution Regression Re-calibration",
        "Jung, Kelen, Benczur",
        "ICML 2026",
        "https://arxiv.org/abs/2602.13362",
    ),
    claims=(),
    extra="uncertainty",
    modules=("sklearn", "pandas", "pyarrow"),
    peers_extra="uncertainty-peers",
)
