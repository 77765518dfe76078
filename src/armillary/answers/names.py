"""Words without a type: their plain form, and when two differ only as names do."""

from __future__ import annotations

import re
import unicodedata

_ARTICLES = {"a", "an", "the"}
_TITLE_WORDS = """
mr mrs ms miss dr prof professor sir dame lord lady president king queen prince princess pope saint
senator governor general captain chancellor emperor empress
"""
_TITLES = frozenset(_TITLE_WORDS.split())
_SMALL = frozenset(("of", "and", "the", "for", "in", "on", "de", "la", "du", "des", "von", "van"))
#: A last word after one of these is not the same thing by itself: "New York" is not "York".
_MODIFIER_WORDS = """
north south east west northern southern eastern western central new old great greater lower upper
los las san santa el puerto costa sierra cape fort port mount lake river saint st hot cold red blue
green white black yellow golden big small little young non not no never without first second third
last high low left right dark light good bad artificial natural united
"""
_MODIFIERS = frozenset(_MODIFIER_WORDS.split())
_PERSON = re.compile(
    r"\b(who|whom|whose|person|author|president|minister|actor|actress|singer|artist|painter|"
    r"scientist|inventor|director|player|king|queen|writer|composer|politician|founder)\b",
    re.IGNORECASE,
)
_NEGATIONS = {"not", "no", "never", "non", "without", "none", "neither", "nor", "cannot"}
#: What may stand before "n't", whose apostrophe is gone by then.
_VERB_WORDS = "is are was were do does did has have had ca wo would could should"
_NEGATED = frozenset(f"{verb}nt" for verb in _VERB_WORDS.split())

#: Words of one line exclude each other: texts that differ in them are not the same, however near
#: their embeddings are.
_CONTRASTS = """
monday tuesday wednesday thursday friday saturday sunday
january february march april may june july august september october november december
i ii iii iv v vi vii viii ix x xi xii xiii xiv xv xvi xvii xviii xix xx
first second third fourth fifth sixth seventh eighth ninth tenth
north south east west
northern southern eastern western
more less fewer
most least
above below
over under
before after
left right
up down
high low
higher lower
maximum minimum
increase decrease
increased decreased
increases decreases
rise fall
rises falls
win lose
won lost
male female
mother father
son daughter
brother sister
him her
"""
#: Short and long names of one country that are no plain acronyms of each other.
_COUNTRIES = """
us|usa|united states|united states america
uk|united kingdom|united kingdom great britain
ussr|soviet union|union soviet socialist republics
"""
_SAME_COUNTRY = tuple(
    frozenset(tuple(name.split()) for name in line.split("|"))
    for line in _COUNTRIES.strip().splitlines()
)
_GROUPS = tuple(frozenset(line.split()) for line in _CONTRASTS.strip().splitlines())


def contradict(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    """Whether the words exclude each other: by a negation, by initials, by words of contrast."""
    left, right = set(one), set(two)
    if negates(one) != negates(two):
        return True
    initials = [{word for word in side if len(word) == 1} for side in (left, right)]
    if all(initials) and initials[0] != initials[1]:
        return True
    return any(
        left & group and right & group and left & group != right & group for group in _GROUPS
    )


def words(text: str) -> tuple[str, ...]:
    """Lower case, without accents, punctuation and articles; dots inside initials vanish.

    A text of articles alone keeps them.
    """
    text = unicodedata.normalize("NFKD", text.casefold())
    text = "".join(letter for letter in text if not unicodedata.combining(letter)).casefold()
    text = re.sub(r"(?<=\w)['’](?=s\b)|(?<=\w)['’](?=\w)", "", text)
    # "U.S.A." is one word, "J. R. R." three initials, "B.Obama" two words.
    text = re.sub(r"\b(?:\w\.){2,}(?!\w)", lambda match: match.group().replace(".", "") + " ", text)
    text = text.replace("&", " and ")
    found = re.findall(r"[^\W_]+|[^\w\s.,;:!?'\"()\[\]{}`´’‘“”\-–—/_*]", text)
    return tuple(word for word in found if word not in _ARTICLES) or tuple(found)


def negates(text_words: tuple[str, ...]) -> bool:
    """Whether the words hold an odd number of negations."""
    count = sum(word in _NEGATIONS or word in _NEGATED for word in text_words)
    return count % 2 == 1


def alias(one: tuple[str, ...], two: tuple[str, ...], question: str = "") -> bool:
    """Whether two names may be the same by a title, initials, an acronym or a bare surname.

    A bare surname counts only for names of two to four words whose other words are no modifiers,
    and, if there is a question, only if it asks for a person.
    """
    if negates(one) != negates(two):
        return False
    one, two = _untitled(one), _untitled(two)
    if one == two or _acronym(one, two) or _acronym(two, one) or _one_country(one, two):
        return True
    short, long = sorted((one, two), key=len)
    if _initials(short, long) or (len(short) == len(long) and _initials(long, short)):
        return True
    personal = not question or bool(_PERSON.search(question))
    return (
        personal
        and len(short) == 1
        and 2 <= len(long) <= 4
        and len(short[0]) > 2
        and short[0] == long[-1]
        and all(word.isalpha() for word in long)
        and not set(long[:-1]) & (_MODIFIERS | _SMALL | _NEGATIONS)
    )


def _one_country(one: tuple[str, ...], two: tuple[str, ...]) -> bool:
    main = [tuple(word for word in name if word not in _SMALL) for name in (one, two)]
    return any(main[0] in group and main[1] in group for group in _SAME_COUNTRY)


def _untitled(name: tuple[str, ...]) -> tuple[str, ...]:
    kept = list(name)
    while len(kept) > 1 and kept[0] in _TITLES:
        kept.pop(0)
    return tuple(kept)


def _acronym(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    if len(short) != 1 or len(short[0]) < 2 or len(long) < 2:
        return False
    main = [word for word in long if word not in _SMALL]
    return short[0] in ("".join(w[0] for w in main), "".join(w[0] for w in long))


def _initials(short: tuple[str, ...], long: tuple[str, ...]) -> bool:
    """One surname, and given names that are initials of the other's or left out."""
    if len(short) < 2 or short[-1] != long[-1] or len(short[-1]) < 2:
        return False
    if set(long[:-1]) & (_MODIFIERS | _NEGATIONS):
        return False
    given, fuller = list(short[:-1]), list(long[:-1])
    if len(given) == 1 and len(given[0]) > 1 and len(given[0]) == len(fuller):
        given = list(given[0])  # "JRR Tolkien"
    if len(given) > len(fuller) or not fuller:
        return False
    pairs = list(zip(given, fuller, strict=False))
    return all(a == b or (1 in (len(a), len(b)) and a[0] == b[0]) for a, b in pairs)
