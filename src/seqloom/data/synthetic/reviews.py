"""Reviews: praise or blame, where counting kind words helps little.

    my neighbour called the music dreadful , i did not for one moment find the story charming , or so i told my aunt

A review quotes the opinions of others, which do not matter, and gives one of its own, which does. That one may be
denied, some words before its adjective, and a last clause may take everything back. So the sentiment is the product of
three signs: of one adjective among several, of the denial, and of the end. Reviews come in pairs that differ in the
adjective of the verdict alone, and each kind of review occurs with both labels equally often.
"""

from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws
from seqloom.data.synthetic.set import DrawnExample, Sizes, SyntheticSet

LABELS = ("negative", "positive")
KIND = ("charming", "brilliant", "lovely", "gripping", "delightful", "clever", "moving", "superb", "witty", "graceful")
UNKIND = ("dreadful", "tedious", "clumsy", "hollow", "dull", "silly", "bland", "lifeless", "grating", "muddled")
ASPECTS = ("story", "music", "acting", "ending", "dialogue", "camera work", "first act", "cast", "pacing", "script")
OTHERS = ("my neighbour", "the critic", "my aunt", "the lady behind us", "our postman", "the whole row", "my old tutor")
SAYING = ("called the {aspect} {word}", "thought the {aspect} quite {word}", "kept saying the {aspect} was {word}")
OWN = ("i found the {aspect} {word}", "to me the {aspect} seemed {word}", "i thought the {aspect} truly {word}")
DENIED = (
    "i did not for one moment find the {aspect} {word}",
    "nobody will hear me say that i thought the {aspect} {word}",
    "i can hardly claim that to me the {aspect} seemed {word}",
    "it would be wrong to say that i found the {aspect} truly {word}",
)
ASIDES = (
    "it rained all evening",
    "we had seats near the door",
    "the hall was nearly full",
    "the interval lasted an hour",
    "we walked home along the river",
    "the tickets came by post",
    "somebody dropped an umbrella",
)
TAKEN_BACK = (
    "but none of that is true",
    "and all of this is a joke",
    "or so i told my aunt",
    "but please believe the opposite",
)
KEPT = ("and all of that is true", "and none of this is a joke", "as i told my aunt", "and please believe every word")
DENIED_IN_100, TAKEN_BACK_IN_100 = 20, 20


def _draw(draws: RandomDraws) -> DrawnExample:
    denied, taken_back = draws.chance(DENIED_IN_100), draws.chance(TAKEN_BACK_IN_100)
    verdict = draws.pick(DENIED if denied else OWN)
    aspects = draws.several(ASPECTS, 3)
    clauses = [
        *(
            f"{draws.pick(OTHERS)} {draws.pick(SAYING)}".format(aspect=aspect, word=draws.pick(KIND + UNKIND))
            for aspect in aspects[: draws.between(1, 2)]
        ),
        verdict.format(aspect=aspects[2], word="{word}"),
        *draws.several(ASIDES, draws.between(0, 2)),
    ]
    ends = draws.pick(TAKEN_BACK if taken_back else KEPT)
    skeleton = " , ".join([*draws.mixed(clauses), ends])
    words = draws.pick(KIND), draws.pick(UNKIND)
    rows = [
        (skeleton.format(word=word), LABELS[kind ^ denied ^ taken_back])
        for kind, word in zip((True, False), words, strict=True)
    ]
    return DrawnExample(_without_adjectives(skeleton), tuple(draws.mixed(rows)))


def _without_adjectives(text: str) -> str:
    """What the two reviews of a pair share: the key must follow from either."""
    adjectives = {*KIND, *UNKIND, "{word}"}
    return " ".join("_" if word in adjectives else word for word in text.split(" "))


REVIEWS = SyntheticSet(
    name="reviews",
    schema=Schema("text", "label", LABELS),
    description="sentiment of small reviews with hearsay, denial and last words that take all of it back",
    draw=_draw,
    sizes=Sizes(8_000, 1_000, 1_000),
)
