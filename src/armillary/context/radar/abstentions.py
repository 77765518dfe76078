"""When a model's short answer says that the document holds no answer."""

from __future__ import annotations

import re

_APOSTROPHES = str.maketrans("’‘ʼ´`", "'''''")
#: What may stand before: an apology, where the model looked, whom it speaks of.
_LEAD = re.compile(
    r"^(?:(?:i'?m |i am )?(?:sorry|unfortunately|i apologi[sz]e)(?:\s*[,.!:;]+\s*|\s+(?=but\b|i\b))"
    r"(?:but\s+)?"
    r"|(?:based on|according to|from|given|in|per)\s+(?:the|this|that)\s+[^,]{1,60},\s*"
    r"|(?:therefore|so|thus|hence),\s*)"
)
_NOT = r"(?:not|never)"
_HOW = r"(?:(?:explicitly|directly|clearly|specifically|actually|really|further|currently)\s+)?"
#: After an abstention the sentence ends, or says where and why.
_END = (
    r"(?:\W*$|[,;.:(]|\s+(?:in|from|by|based|about|within|on|at|it|this|that|for|to|who|whom|whose|"
    r"what|which|when|where|whether|if|because|as|since|anywhere|explicitly|clearly|directly|here|"
    r"given|with|the|any|of|regarding|and)\b)"
)
_SOURCE = r"(?:documents?|texts?|passages?|contexts?|pages?|articles?|sources?|information|data)"
_THAT = (
    r"(?:(?:it|this|that|(?:the|this|that|these)\s+(?:(?:given|provided)\s+)?"
    rf"(?:{_SOURCE}|answer|question))\s+)?"
)
_FORMS = (
    # I do not know; I'm not sure; I cannot answer
    r"i\s+(?:do not|don't|did not|cannot|can not|can't|could not|couldn't)\s+"
    rf"(?:know|say|tell|answer|determine|find|see)\b{_END}",
    rf"(?:i'm|i am)\s+(?:not\s+(?:sure|certain|able|aware)|unsure|uncertain|unable)\b{_END}",
    # It is not stated; not provided
    rf"{_THAT}(?:(?:is|was|are|were)\s+{_NOT}|isn't|wasn't|aren't|weren't|{_NOT})\s+{_HOW}"
    r"(?:stated|mentioned|given|specified|provided|known|available|found|answered|clear|included|"
    rf"disclosed|present|indicated|determined|applicable|said)\b{_END}",
    # It cannot be determined; cannot answer
    rf"{_THAT}(?:cannot|can not|can't|could not|couldn't)\s+(?:be\s+)?{_HOW}"
    rf"(?:determined?|answer(?:ed)?|found|find|told|tell|said|say|stated|known|inferred?)\b{_END}",
    # The document does not say
    rf"{_THAT}(?:do|does|did)(?:\s+not|n't)\s+{_HOW}"
    r"(?:say|state|mention|contain|hold|provide|give|specify|include|tell|answer|indicate|"
    rf"address|name|have)\b{_END}",
    # There is no information; no answer
    r"(?:(?:there\s+(?:is|was|are)|there's|i\s+(?:have|found|find|see))\s+)?no\s+"
    r"(?:(?:relevant|specific|such|direct|clear|further|explicit)\s+)*"
    rf"(?:information|mention|answer|indication|data|details?|evidence)\b(?:\s+(?:is|was))?"
    rf"(?:\s+(?:provided|given|available|stated|found|mentioned))?{_END}",
    r"i\s+(?:do not|don't)\s+have\s+(?:(?:enough|any|the|that|this|sufficient)\s+)?"
    rf"(?:information|data|context|details?|answer)\b{_END}",
    rf"(?:insufficient|not enough)\s+(?:information|data|context|details?)\b{_END}",
    rf"unable\s+to\s+(?:determine|answer|find|say|tell)\b{_END}",
    # Unknown; none; n/a
    r"(?:unknown|unclear|uncertain|unspecified|undetermined|undisclosed)"
    rf"(?:\W*$|\W+(?:based|from|according|given|per|in\s+the\s+{_SOURCE}|to\s+me)\b)",
    r"(?:none|nothing|n/a|n\.a\.?|null|idk|no\s+idea|sorry)"
    r"(?:\s+(?:provided|given|stated|mentioned|found|specified))?\W*$",
)
_ABSTAINS = re.compile("|".join(f"(?:{form})" for form in _FORMS))


def abstains(line: str) -> bool:
    """Whether one line of a model says that it has no answer.

    Titles that begin like an abstention ("Unknown Pleasures", "Not Like Us") are answers: after the
    phrase the line must end or go on as a reason does.
    """
    plain = " ".join(line.translate(_APOSTROPHES).lower().split())
    plain = plain.strip("*_\"'“”«»#>-–—[](){} ")
    while (shorter := _LEAD.sub("", plain)) != plain:
        plain = shorter
    return not plain or _ABSTAINS.match(plain) is not None
