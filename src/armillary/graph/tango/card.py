"""What the catalogue knows of tango."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="tango",
    field="graph",
    title="A few words",
    gift="One line: what a user gains.",
    paper=Paper(title="The paper's title", authors="Its authors", venue="ICML 2026"),
    claims=("lower-error",),
)
