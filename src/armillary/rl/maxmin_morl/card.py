"""What the catalogue knows of maxmin-morl."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="maxmin-morl",
    field="rl",
    title="Constrained max-min multi-objective reinforcement learning",
    gift="Train one policy that lifts the worst-off objective while hard limits hold.",
    paper=Paper(
        "Constrained Multi-Objective Reinforcement Learning with Max-Min Criterion",
        "Park, Nam, Byeon, Leshem, Sung",
        "ICML 2026",
        "https://arxiv.org/abs/2605.31388",
    ),
    claims=(
        "exact-with-proof",
        "gradient-is-close",
        "limits-need-prices",
        "weights-must-move",
        "projection-keeps-weights",
        "few-calls",
        "geometric-near-the-optimum",
        "on-the-front",
        "fairer-than-fronts",
        "fairer-than-a-learned-front",
        "bundle-grows-slowly",
        "quicker-than-the-programme",
        "building-keeps-its-limit",
        "building-is-fairer",
        "tight-building-is-fairer",
        "smoothing-costs-more",
        "one-run-for-many",
        "other-tasks-keep-their-limits",
        "other-tasks-are-fairer",
        "ppo-learns-as-fast",
        "sac-learns-as-fast",
    ),
    extra="rl",
    modules=("gymnasium", "stable_baselines3", "torch"),
    peers_extra="rl-peers",
)
