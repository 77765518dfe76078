"""What all commands share: atomic files, tables, charts and progress bars.

Everything is loaded when first used, so that a command that prints one line stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.output.charts import save_chart as save_chart
    from armillary.output.files import atomic_path as atomic_path
    from armillary.output.files import write_bytes as write_bytes
    from armillary.output.files import write_csv as write_csv
    from armillary.output.files import write_json as write_json
    from armillary.output.files import write_text as write_text
    from armillary.output.terminal import Console as Console
    from armillary.output.terminal import console as console
    from armillary.output.terminal import progress as progress

_HOMES = {
    "save_chart": "charts",
    "atomic_path": "files",
    "write_bytes": "files",
    "write_csv": "files",
    "write_json": "files",
    "write_text": "files",
    "Console": "terminal",
    "console": "terminal",
    "progress": "terminal",
}

__all__ = list(_HOMES)

__getattr__ = attach(__name__, _HOMES)
