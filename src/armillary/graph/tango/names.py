"""Names that the evidence shows, without what it takes to make the things."""

TOPOLOGY_NAMES = ("ring", "crossed-ring", "line")
