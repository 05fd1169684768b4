"""Movies: titles and people in questions about films, one BIO tag for each word.

    who directed the silent river with anna kovac
    O   O        B-TITLE I-TITLE I-TITLE O B-PERSON I-PERSON

Titles and names are put together from parts, and every composition belongs to one part of the set: a test title has
never been seen, only its words. The same words stand outside of titles too, and given names inside of them, so a list
of words does not do.
"""

from collections.abc import Callable

from seqloom.data.kinds.words import Words
from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws, fingerprint, part_of
from seqloom.data.synthetic.set import DrawnExample, Sizes, SyntheticSet

TAGS = ("O", "B-TITLE", "I-TITLE", "B-PERSON", "I-PERSON")
GIVEN = (
    *(
        "anna",
        "boris",
        "clara",
        "dario",
        "edith",
        "farid",
        "greta",
        "hugo",
        "irene",
        "jonas",
        "karim",
        "leila",
        "mario",
    ),
    *("nadia", "oscar", "paula", "quentin", "rosa", "simon", "tara", "umberto", "vera", "walter", "yasmin", "zoran"),
)
FAMILY = (
    *("kovac", "bell", "moreau", "lindgren", "okafor", "tanaka", "fischer", "romano", "novak", "haddad", "jensen"),
    *(
        "silva",
        "petrov",
        "quinn",
        "abbasi",
        "larsen",
        "weber",
        "costa",
        "murphy",
        "nagy",
        "brandt",
        "castillo",
        "young",
    ),
)
LIKENESSES = (
    *("silent", "golden", "last", "crooked", "burning", "little", "forgotten", "winter", "hidden", "paper", "broken"),
    *("second", "distant", "blue", "restless", "wooden"),
)
THINGS = (
    *("river", "garden", "clock", "mirror", "station", "island", "letter", "orchard", "lantern", "bridge", "summer"),
    *("violin", "harbour", "shadow", "kingdom", "staircase", "balloon", "tide", "promise", "fox"),
)
FRAMES = (
    "who directed {title} with {person}",
    "who wrote {title}",
    "show me every film with {person} and {person}",
    "did {person} play in {title} or in {title}",
    "{person} is very good in {title}",
    "i liked {title} more than {title}",
    "is there a {likeness} film by {person}",
    "the {thing} scene in {title} was filmed by {person}",
    "when did {title} come out",
    "{title} is a {likeness} film about a {thing}",
    "what is the name of the {likeness} film where {person} buys a {thing}",
    "{person} and {person} met while making {title}",
    "play the music of {title} by {person} again",
    "films like {title} but without the {thing}",
    "a {likeness} comedy with {person} please",
    "how old was {person} in {title}",
)


def _person(draws: RandomDraws) -> list[str]:
    return [draws.pick(GIVEN), draws.pick(FAMILY)]


def _title(draws: RandomDraws) -> list[str]:
    form = draws.below(5)
    if form < 2:
        return ["the", draws.pick(LIKENESSES), draws.pick(THINGS)]
    if form == 2:
        return [draws.pick(LIKENESSES), draws.pick(THINGS)]
    if form == 3:
        return [draws.pick(THINGS), "of", "the", draws.pick(LIKENESSES), draws.pick(THINGS)]
    return ["a", draws.pick(THINGS), "for", draws.pick(GIVEN)]


_ENTITIES: dict[str, tuple[str, Callable[[RandomDraws], list[str]]]] = {
    "{title}": ("TITLE", _title),
    "{person}": ("PERSON", _person),
}
_WORDS = {"{likeness}": LIKENESSES, "{thing}": THINGS}


def _entity(draws: RandomDraws, compose: Callable[[RandomDraws], list[str]]) -> list[str]:
    """A composition that belongs to the part being drawn."""
    while part_of(fingerprint(" ".join(words := compose(draws)))) != draws.part:
        pass
    return words


def _draw(draws: RandomDraws) -> DrawnExample:
    words: list[str] = []
    tags: list[str] = []
    for slot in draws.pick(FRAMES).split(" "):
        if slot in _ENTITIES:
            kind, compose = _ENTITIES[slot]
            entity = _entity(draws, compose)
            words += entity
            tags += [f"B-{kind}", *[f"I-{kind}"] * (len(entity) - 1)]
        else:
            words.append(draws.pick(_WORDS[slot]) if slot in _WORDS else slot)
            tags.append("O")
    given = Words.join(words)
    return DrawnExample(given.text, ((given, tuple(tags)),))


MOVIES = SyntheticSet(
    name="movies",
    schema=Schema("words", "tags", TAGS),
    description="titles and people in talk about films, none of them seen before",
    draw=_draw,
    sizes=Sizes(4_000, 500, 500),
)
