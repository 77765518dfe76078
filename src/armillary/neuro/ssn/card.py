"""What the catalogue knows of ssn."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="ssn",
    field="neuro",
    title="Encode images with a stabilised supralinear network",
    gift="Codes that use many units for faint patches and few for strong ones, learned locally.",
    paper=Paper(
        "Stabilized Supralinear Networks Learn to Switch Coding Strategies Balancing Cost and "
        "Performance",
        "authors as in the proceedings",
        "ICML 2026",
    ),
    claims=(
        "switches-code",
        "supralinear-then-saturating",
        "inhibition-stabilised",
        "flat-without-lateral",
        "cortical-responses",
        "power-law-matters",
        "learning-matters",
        "homeostasis-matters",
        "low-contrast-features",
        "low-contrast-noise-free",
        "low-contrast-with-intercept",
        "low-contrast-against-sparse-coding",
        "low-contrast-against-all",
        "clean-cost",
        "every-degradation-without-lateral",
        "every-degradation-against-all",
        "textures-at-low-contrast",
        "labels-at-low-contrast",
        "labels-against-all",
        "on-the-front",
        "on-the-front-at-every-contrast",
        "faster-than-lasso",
        "faster-than-lca",
        "linear-in-patches",
        "quadratic-in-units",
    ),
    extra="neuro",
    modules=("torch", "sklearn", "skimage", "pandas"),
    peers_extra="neuro-peers",
)
