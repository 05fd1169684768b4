"""Dates: English dates as people write them, and the same day in the ISO form.

    the 3rd of May, 2019  ->  2019-05-03          Friday 03-MAY-2019  ->  2019-05-03

Every character of the answer has its place in the source, but in another order and often under another name: attention
has something to align. No form is ambiguous: months have names, or the year stands first.
"""

from collections.abc import Callable
from datetime import date

from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws
from seqloom.data.synthetic.set import DrawnExample, Sizes, SyntheticSet

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
    """A day with its ending.

    >>> [nth(day) for day in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    ending = "th" if 11 <= day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def spell(day: date, form: str) -> str:
    """A day written in a form.

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


def _draw(draws: RandomDraws) -> DrawnExample:
    first, last = date(FIRST_YEAR, 1, 1).toordinal(), date(LAST_YEAR, 12, 31).toordinal()
    day = date.fromordinal(draws.between(first, last))
    text = draws.pick(CASES)(spell(day, draws.pick(FORMS)))
    return DrawnExample(text.lower(), ((text, day.isoformat()),))


DATES = SyntheticSet(
    name="dates",
    schema=Schema("text", "text"),
    description="English dates in twenty-two forms, to be written as year-month-day",
    draw=_draw,
    sizes=Sizes(10_000, 1_000, 1_000),
)
