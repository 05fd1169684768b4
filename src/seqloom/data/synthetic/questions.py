"""Questions: is it a statement or a question? The same words, another order, and no question mark.

    the old baker is in the garden today                 is the old baker in the garden today

Both orders of every sentence are drawn together, so every bag of words has both labels: whoever does not see order
is right half of the time, and no more.
"""

from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws
from seqloom.data.synthetic.set import DrawnExample, Sizes, SyntheticSet

LABELS = ("statement", "question")
LIKENESSES = ("old", "young", "quiet", "clever", "tired", "cheerful", "tall", "famous", "hungry", "patient", "curious")
SUBJECTS = (
    "cat",
    "baker",
    "captain",
    "fox",
    "gardener",
    "poet",
    "owl",
    "teacher",
    "tailor",
    "goose",
    "painter",
    "bear",
)
VERBS = ("is", "was", "will be", "has been", "can be", "must be", "could be", "should be")
PLACES = (
    *("on the mat", "in the garden", "under the bridge", "behind the clock", "at the harbour", "near the old mill"),
    *("beside the fire", "on the roof", "inside the boat", "above the bakery", "among the reeds", "by the gate"),
)
COMPANIONS = ("", "with a friend", "with the others", "without a hat", "with a lamp", "with a violin", "with a map")
TIMES = ("", "today", "again", "this week", "at noon", "before dawn", "after lunch", "every evening")
OPENINGS = ("", "", "", "so", "well", "but", "and", "anyway")  # so that the first word does not tell


def _draw(draws: RandomDraws) -> DrawnExample:
    likeness = draws.pick(("", *LIKENESSES))
    subject = " ".join(filter(None, ("the", likeness, draws.pick(SUBJECTS))))
    first, _, second = draws.pick(VERBS).partition(" ")
    rest = [second, *draws.mixed((draws.pick(PLACES), draws.pick(COMPANIONS)))]
    opening, time = draws.pick(OPENINGS), draws.pick(TIMES)
    orders = ((subject, first), (first, subject))
    texts = [" ".join(filter(None, (opening, *order, *rest, time))) for order in orders]
    rows = draws.mixed(list(zip(texts, LABELS, strict=True)))
    return DrawnExample(" ".join(sorted(texts[0].split(" "))), tuple(rows))


QUESTIONS = SyntheticSet(
    name="questions",
    schema=Schema("text", "label", LABELS),
    description="statement or question, told by the order of the words alone",
    draw=_draw,
    sizes=Sizes(4_000, 1_000, 1_000),
)
