"""Ecuador's currency, year by year: nine pages lie in 1998, the truth changes in 2000.

Real history (Unicode CLDR); every page was read alone by the embedded language model, whose answers
ship with the package. Needs: pip install 'armillary[context]'; no network, no model.
"""

from armillary.context.radar import Radar, ValueAgreement
from armillary.context.radar.evidence_readings import reading, subjects


class RecordedReader:
    """A reader of your own needs one method; give Radar a chat to read live."""

    def read(self, question: str, text: str) -> str | None:
        return reading(question, text)


subject = next(s for s in subjects() if s.change.place == "Ecuador")
change = subject.change
print(f"{subject.question} {change.old} until {change.year - 1}, then {change.new}\n")

defended = Radar(RecordedReader(), ValueAgreement(), memory="campaign")
single_steps = Radar(RecordedReader(), ValueAgreement(), memory=None)

print("year  poisoned  one step at a time  with memory         belief")
for year in range(change.year - 5, change.year + 3):
    # Eight pages that are right in that year, two of them late in the year of the change ...
    pages = list(subject.old if year < change.year else subject.new)
    if year == change.year:
        pages[:2] = subject.old[:2]
    # ... and, two years before, nine fluent ones with a wrong answer, ranked first.
    poison = list(subject.poison) if year == change.year - 2 else []
    with_memory = defended.answer(subject.question, poison + pages, time=year)
    alone = single_steps.answer(subject.question, poison + pages)
    belief = max(with_memory.belief.values())
    print(f"{year}  {len(poison):8d}  {alone.answer:18s}  {with_memory.answer:18s}  {belief:.3f}")

last = defended.answer(subject.question, [subject.poison[0], *subject.new], time=change.year + 3)
print("\nWhy, with one lie at the first rank:")
for line in last.scores:
    print(f"  document {line.index}: {line.answer!s:18s} {line.verdict}")
