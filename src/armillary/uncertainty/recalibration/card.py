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
    claims=(
        "sharper-than-remaps",
        "sharper-than-mondrian",
        "sharper-than-neighbours",
        "calibrated-beyond-pit",
        "calibrated-beyond-mondrian",
        "passes-the-test",
        "covers",
        "errors-independent-of-the-interval",
        "small-sets",
        "sharper-than-gp-beta",
        "sharper-than-gp-normal-and-cauchy",
        "the-prediction-matters",
        "break-even",
        "near-linear-in-samples",
        "dense-fit-cubic",
        "landmark-fit-linear",
    ),
    extra="uncertainty",
    modules=("sklearn", "pandas", "pyarrow"),
    peers_extra="uncertainty-peers",
)
