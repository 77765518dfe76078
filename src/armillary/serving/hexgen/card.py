"""What the catalogue knows of hexgen."""

from armillary.catalog import Card, Paper

CARD = Card(
    slug="hexgen",
    field="serving",
    title="A few words",
    gift="One line: what a user gains.",
    paper=Paper(title="The paper's title", authors="Its authors", venue="ICML 2026"),
    claims=("lower-error",),
)
