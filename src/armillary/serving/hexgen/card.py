"""What the catalogue knows of hexgen."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="hexgen",
    field="serving",
    title="LLM serving on the cheapest mix of GPUs: plan, simulate, autoscale",
    gift="Plan a fleet of mixed GPUs for your traffic, and see in a simulator what it serves.",
    paper=Paper(
        "HexGen-3: A Fully Disaggregated LLM Serving Framework with Fine-Grained Heterogeneous "
        "Resource Autoscaling",
        "the HexGen-3 authors",
        "ICML 2026",
    ),
    claims=(
        "plan-is-optimal",
        "never-below-the-annealer",
        "static-gain",
        "static-gain-dense",
        "over-best-homogeneous",
        "not-below-heterogeneous-pd",
        "operator-split-gain",
        "static-gain-list",
        "dynamic-gain",
        "dynamic-attainment",
        "wait-md1",
        "wait-mm5",
        "split-same-tokens",
        "split-overlap",
        "split-cycle",
        "simulator-speed",
        "simulator-growth",
    ),
    extra="serving",
    modules=("pandas", "pyarrow", "yaml", "aiconfigurator_core"),
    peers_extra="serving-peers",
)
