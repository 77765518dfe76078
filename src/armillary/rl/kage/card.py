"""What the catalogue knows of kage."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="kage",
    field="rl",
    title="Find out which visual shift breaks a pixel policy",
    gift="A fast JAX platformer whose look changes one visual axis at a time, the world never.",
    paper=Paper(
        "KAGE-Bench: Fast Known-Axis Visual Generalization Evaluation for RL",
        "Cherepanov, Zelezetsky, Kovalev, Panov",
        "ICML 2026",
        "https://arxiv.org/abs/2601.14232",
    ),
    claims=(
        "world-untouched",
        "look-changed",
        "original-world",
        "small-state",
        "smaller-than-original",
        "one-program",
        "axes-differ",
        "gap-explains",
        "motion-hides-failure",
        "ppo-axes-differ",
        "ppo-learns",
        "frames-64",
        "frames-1024",
        "physics",
        "index-maps",
        "near-the-limit",
        "linear-in-environments",
        "bytes-of-frames",
    ),
    extra="rl",
    modules=("jax", "flax", "optax", "gymnax", "gymnasium", "yaml", "PIL", "imageio", "pandas"),
    peers_extra="rl-peers",
)
