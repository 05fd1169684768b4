"""Dates and movies: dates to convert to ISO form, and titles and people to tag."""

from collections.abc import Callable
from datetime import date

from seqloom.data.kinds.words import Words
from seqloom.data.schema import Schema
from seqloom.data.synthetic.set import DrawnExample, RandomDraws, Sizes, SyntheticSet, fingerprint, part_of

# Dates: English dates in many forms, and the same day in ISO form.
#
#     the 3rd of May, 2019  ->  2019-05-03          Friday 03-MAY-2019  ->  2019-05-03
#
# Every character of the target comes from a place in the source, but in another order and often in another form, so
# attention has something to align. No form is ambiguous: months have names, or the year comes first.

FIRST_YEAR, LAST_YEAR = 1900, 2099
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh"),
    *("twelfth", "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth"),
    *("twentieth", "twenty-first", "twenty-second", "twenty-third", "twenty-fourth", "twenty-fifth", "twenty-sixth"),
    *("twenty-seventh", "twenty-eighth", "twenty-ninth", "thirtieth", "thirty-first"),
)
FORMS = (
    "{day} {month} {year}",
    "{day} {short} {year}",
    "{nth} {month} {year}",
    "the {nth} of {month}, {year}",
    "the {nth} of {month} {year}",
    "the {ordinal} of {month}, {year}",
    "{month} {day}, {year}",
    "{month} {nth}, {year}",
    "{short} {day}, {year}",
    "{month} the {ordinal}, {year}",
    "{weekday}, {day} {month} {year}",
    "{weekday}, {month} {day}, {year}",
    "{weekday} the {nth} of {month}, {year}",
    "{weekday} the {ordinal} of {month} {year}",
    "{brief} {day} {short} {year}",
    "{brief}, {short} {day}, {year}",
    "{brief} {padded}-{short}-{year}",
    "{padded}-{short}-{year}",
    "{year}, {month} {day}",
    "{year}/{number}/{padded}",
    "in {year}, on {month} {day}",
    "in {year}, on the {nth} of {month}",
)
CASES: tuple[Callable[[str], str], ...] = (str, str, str.lower, str.upper)


def nth(day: int) -> str:
    """Return a day with its ordinal ending.

    >>> [nth(day) for day in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    ending = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def spell(day: date, form: str) -> str:
    """Write a day in a form.

    >>> spell(date(2019, 5, 3), "{brief}, {short} {nth}, {year}")
    'Fri, May 3rd, 2019'
    """
    month, weekday = MONTHS[day.month - 1], WEEKDAYS[day.weekday()]
    return form.format(
        day=day.day,
        padded=f"{day.day:02d}",
        nth=nth(day.day),
        ordinal=ORDINALS[day.day - 1],
        month=month,
        short=month[:3],
        number=f"{day.month:02d}",
        year=day.year,
        weekday=weekday,
        brief=weekday[:3],
    )


def _draw_date(draws: RandomDraws) -> DrawnExample:
    first, last = date(FIRST_YEAR, 1, 1).toordinal(), date(LAST_YEAR, 12, 31).toordinal()
    day = date.fromordinal(draws.between(first, last))
    text = draws.pick(CASES)(spell(day, draws.pick(FORMS)))
    return DrawnExample(text.lower(), ((text, day.isoformat()),))


DATES = SyntheticSet(
    name="dates",
    schema=Schema("text", "text"),
    description="English dates in twenty-two formats, to be converted into year-month-day",
    draw=_draw_date,
    sizes=Sizes(10_000, 1_000, 1_000),
)


# Movies: titles and people in questions about films, with one BIO tag per word.
#
#     who directed the silent river with anna kovac
#     O   O        B-TITLE I-TITLE I-TITLE O B-PERSON I-PERSON
#
# Titles and names are composed of parts, and every composition belongs to one split: the words of a test title occur in
# training, but not the title itself. The same words also occur outside titles, and given names inside titles, so a word
# list does not solve the task.

TAGS = ("O", "B-TITLE", "I-TITLE", "B-PERSON", "I-PERSON")
GIVEN = (
    *("anna", "boris", "clara", "dario", "edith", "farid", "greta", "hugo", "irene", "jonas", "karim", "leila"),
    *("mario", "nadia", "oscar", "paula", "quentin", "rosa", "simon", "tara", "umberto", "vera", "walter", "yasmin"),
    "zoran",
)
FAMILY = (
    *("kovac", "bell", "moreau", "lindgren", "okafor", "tanaka", "fischer", "romano", "novak", "haddad", "jensen"),
    *("silva", "petrov", "quinn", "abbasi", "larsen", "weber", "costa", "murphy", "nagy", "brandt", "castillo"),
    "young",
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


def _draw_movie(draws: RandomDraws) -> DrawnExample:
    words: list[str] = []
    tags: list[str] = []
    for slot in draws.pick(FRAMES).split(" "):
        if slot in _ENTITIES:
            kind, compose = _ENTITIES[slot]
            while part_of(fingerprint(" ".join(entity := compose(draws)))) != draws.part:
                pass  # until the composition belongs to the requested split
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
    description="titles and people in sentences about films; the dev and test sets have only new names",
    draw=_draw_movie,
    sizes=Sizes(4_000, 500, 500),
)
