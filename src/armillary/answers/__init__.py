"""Are two answers the same? Typed values first, sentence embeddings last.

::

    from armillary import answers

    answers.same("15 %", "0.15").same                      # True
    answers.same("5 May 2023", "2023-05-05").why           # 'value'
    answers.same("32 %", "15 %", encoder=encoder).same     # False, whatever the encoder says

Importing this package loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from armillary.lazy import attach

if TYPE_CHECKING:
    from armillary.answers.parsing import parse as parse
    from armillary.answers.parsing import readings as readings
    from armillary.answers.sameness import TextEncoder as TextEncoder
    from armillary.answers.sameness import Verdict as Verdict
    from armillary.answers.sameness import same as same
    from armillary.answers.values import Clock as Clock
    from armillary.answers.values import Currency as Currency
    from armillary.answers.values import Date as Date
    from armillary.answers.values import Items as Items
    from armillary.answers.values import Money as Money
    from armillary.answers.values import Number as Number
    from armillary.answers.values import Offset as Offset
    from armillary.answers.values import Text as Text
    from armillary.answers.values import Value as Value
    from armillary.answers.values import YesNo as YesNo

_HOMES = {
    "Clock": "values",
    "Currency": "values",
    "Date": "values",
    "Items": "values",
    "Money": "values",
    "Number": "values",
    "Offset": "values",
    "Text": "values",
    "TextEncoder": "sameness",
    "Value": "values",
    "Verdict": "sameness",
    "YesNo": "values",
    "parse": "parsing",
    "readings": "parsing",
    "same": "sameness",
}
__all__ = sorted(_HOMES)
__getattr__ = attach(__name__, _HOMES, slug="armillary.answers", extra="models")


def __dir__() -> list[str]:
    return __all__
