"""Real small data that ships with packages, public data that users bring, and shared generators.

``corpora.external("cora")`` is the path of a public file inside the folder that ``ARMILLARY_DATA``
names, its checksum verified; ``corpora.EXTERNAL`` lists what is known. ``corpora.python_topics()``
is English text that needs no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.corpora.registry import EXTERNAL as EXTERNAL
    from armillary.corpora.registry import External as External
    from armillary.corpora.registry import external as external
    from armillary.corpora.texts import python_topics as python_topics
    from armillary.corpora.texts import split as split

_HOMES = {
    "EXTERNAL": "registry",
    "External": "registry",
    "external": "registry",
    "python_topics": "texts",
    "split": "texts",
}
__all__ = sorted(_HOMES)
__getattr__ = attach(__name__, _HOMES)


def __dir__() -> list[str]:
    return __all__
