"""What the catalogue knows of tango."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="tango",
    field="graph",
    title="Graph features that descend a learnt energy and slide along its level sets",
    gift="Let node features travel far in a graph, with an energy trace you can check.",
    paper=Paper(
        "TANGO: Graph Neural Dynamics via Learned Energy and Tangential Flows",
        "Eliasof, Haber, Schönlieb",
        "ICML 2026",
        "https://arxiv.org/abs/2508.05070",
    ),
    claims=(
        "reaches-16",
        "level-with-virtual-node",
        "sensitivity-stays",
        "projection-carries-it",
        "correction-also-carries",
        "below-a-dgn",
        "not-above-gps",
        "not-above-virtual-node",
        "eccentricity-best-of-all",
        "cora-level-with-the-best",
        "citeseer-level-with-the-best",
        "no-collapse-at-32",
        "solubility",
        "tangent-is-orthogonal",
        "energy-does-not-rise",
        "descent-lowers-energy",
        "cost-of-a-step",
        "linear-in-nodes",
        "attention-grows-faster",
    ),
    extra="graph",
    modules=("torch", "networkx", "sklearn", "pandas", "safetensors"),
    peers_extra="graph-peers",
)
