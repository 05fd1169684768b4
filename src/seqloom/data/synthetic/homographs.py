"""Homographs: one spelling, several senses; the label is the sense, and only the company of the word tells it.

Six English words and the Persian شیر, which is milk, a lion or a tap, in short sentences from right to left. Every
sense of a word is used in sentences of the same build, so the build does not give it away.
"""

from typing import NamedTuple

from seqloom.data.schema import Schema
from seqloom.data.synthetic.random_draws import RandomDraws
from seqloom.data.synthetic.set import DrawnExample, Sizes, SyntheticSet


class Sense(NamedTuple):
    """One meaning of a word: who has to do with it, what is done, and what stands around; {} is the word."""

    label: str
    actors: tuple[str, ...]
    deeds: tuple[str, ...]
    surroundings: tuple[str, ...]


ENGLISH_FRAMES = ("{when} {actor} {deed} {around}", "{actor} {deed} {around} {when}", "{around} {actor} {deed} {when}")
PERSIAN_FRAMES = ("{when} {actor} {deed} {around}", "{actor} {when} {around} {deed}")
TIMES = (
    *("yesterday", "on friday", "in the morning", "last year", "before lunch", "at nine", "in june", "all day"),
    *("twice", "once more", "that night", "in the end", "two days ago", "this week"),
)
PERSIAN_TIMES = (
    *("دیروز", "امروز", "صبح", "شب", "عصر", "ظهر", "باز", "آن روز", "هر شب", "هر روز", "پارسال", "دیشب"),
    *("سپس", "ناگهان"),
)

SENSES = (
    Sense(
        "bank/money",
        ("the clerk", "a customer", "the accountant", "our lawyer", "the widow", "the merchant", "the cashier"),
        (
            "paid the bank",
            "called the bank",
            "asked the bank",
            "left the bank",
            "trusted the bank",
            "wrote to the bank",
        ),
        ("about the loan", "about her savings", "for cash", "about the interest", "with a cheque", "about a mortgage"),
    ),
    Sense(
        "bank/river",
        ("the angler", "an otter", "the ferryman", "our canoe", "the swimmer", "the heron", "a beaver"),
        (
            "reached the bank",
            "left the bank",
            "climbed the bank",
            "followed the bank",
            "saw the bank",
            "slid off the bank",
        ),
        ("beside the stream", "among the reeds", "through the mud", "in the current", "with wet feet", "near the ford"),
    ),
    Sense(
        "bat/animal",
        ("the zookeeper", "a biologist", "the owl", "our guide", "the cave", "the moth", "the night watchman"),
        ("frightened the bat", "woke the bat", "watched the bat", "hid the bat", "met the bat", "heard the bat"),
        ("in the attic", "under its wings", "among the stalactites", "at dusk", "upside down", "among the insects"),
    ),
    Sense(
        "bat/club",
        ("the batsman", "a pitcher", "the coach", "our captain", "the umpire", "the bowler", "the fielder"),
        ("dropped the bat", "lifted the bat", "watched the bat", "hid the bat", "swung the bat", "broke the bat"),
        ("in the last inning", "on the pitch", "against the ball", "before the match", "at the stadium", "at practice"),
    ),
    Sense(
        "light/lamp",
        ("the electrician", "a sailor", "the lighthouse", "our landlord", "the projector", "the cyclist", "a candle"),
        (
            "changed the light",
            "dimmed the light",
            "gave a light",
            "noticed the light",
            "held a light",
            "followed the light",
        ),
        ("in the dark", "through the window", "with a new bulb", "across the ceiling", "near the switch", "in the fog"),
    ),
    Sense(
        "light/weight",
        ("the feather", "a suitcase", "the balloon", "our rucksack", "the basket", "the parcel", "a paper kite"),
        ("was light", "seemed light", "felt light", "became light", "proved too light", "looked light"),
        ("on the scales", "in one hand", "without the books", "after unpacking", "in grams", "for its size"),
    ),
    Sense(
        "spring/season",
        ("the swallow", "a tulip", "the farmer", "our orchard", "the almanac", "the meadow", "the lamb"),
        (
            "welcomed spring",
            "awaited spring",
            "missed the spring",
            "noticed the spring",
            "sang of spring",
            "loved spring",
        ),
        (
            "after the snow",
            "with blossoms",
            "between winter and summer",
            "in warm rain",
            "in april",
            "with green leaves",
        ),
    ),
    Sense(
        "spring/coil",
        ("the mechanic", "a mattress", "the clockmaker", "our trampoline", "the pen", "the mousetrap", "the engineer"),
        (
            "lost the spring",
            "bent a spring",
            "missed the spring",
            "noticed the spring",
            "oiled a spring",
            "wound a spring",
        ),
        ("of steel", "inside the lock", "under tension", "with pliers", "behind the lever", "of thick wire"),
    ),
    Sense(
        "seal/animal",
        ("the penguin", "a husky", "the trainer", "our ship", "the polar bear", "the whale", "the diver"),
        ("fed the seal", "passed the seal", "saw the seal", "greeted the seal", "chased a seal", "heard a seal"),
        ("on the ice", "with a herring", "in the cold sea", "at the aquarium", "on the rocks", "near its pup"),
    ),
    Sense(
        "seal/stamp",
        ("the notary", "an envoy", "the chancellor", "our archivist", "the duke", "the forger", "the herald"),
        ("broke the seal", "passed the seal", "saw the seal", "pressed the seal", "copied a seal", "kept a seal"),
        ("in red wax", "on the letter", "under the treaty", "with a signet ring", "on the envelope", "on the charter"),
    ),
    Sense(
        "note/music",
        ("the pianist", "a choir", "the soprano", "our cellist", "the trumpet", "the organist", "the flute"),
        ("held a note", "missed a note", "read the note", "found the note", "sang a note", "played the note"),
        ("in the chorus", "out of tune", "in the second bar", "a semitone too high", "on the stave", "in b flat"),
    ),
    Sense(
        "note/letter",
        ("the secretary", "a pupil", "the postman", "our neighbour", "the detective", "the landlady", "the librarian"),
        ("left a note", "missed a note", "read the note", "found the note", "folded a note", "signed the note"),
        ("on the fridge", "under the door", "in blue ink", "with an address", "on yellow paper", "in the mailbox"),
    ),
    Sense(
        "شیر/milk",
        ("کودک", "مادر", "گربه", "نوزاد", "نانوا", "مهمان", "پرستار"),
        ("شیر را نوشید", "شیر را خرید", "شیر را دید", "شیر را آورد", "شیر را جوشاند", "شیر را خواست"),
        ("با عسل", "در لیوان", "با نان", "در فنجان", "با شکر", "از یخچال"),
    ),
    Sense(
        "شیر/lion",
        ("شکارچی", "آهو", "گورخر", "پلنگ", "نگهبان باغ وحش", "خرگوش", "گله"),
        ("شیر را شناخت", "از شیر ترسید", "شیر را دید", "صدای شیر را شنید", "از شیر گریخت", "شیر را بیدار کرد"),
        ("در جنگل", "در بیشه", "با یال بلند", "در قفس", "پشت صخره", "در دشت"),
    ),
    Sense(
        "شیر/tap",
        ("تعمیرکار", "باغبان", "همسایه", "شاگرد", "آشپز", "پدر", "سرایدار"),
        ("شیر را بست", "شیر را باز کرد", "شیر را دید", "شیر را عوض کرد", "شیر را تعمیر کرد", "شیر را پیچاند"),
        ("با آچار", "در حمام", "روی دیوار", "در آشپزخانه", "زیر لوله", "کنار حوض"),
    ),
)
LABELS = tuple(sense.label for sense in SENSES)


def _draw(draws: RandomDraws) -> DrawnExample:
    sense = draws.pick(SENSES)
    persian = not sense.label.isascii()
    frame = draws.pick(PERSIAN_FRAMES if persian else ENGLISH_FRAMES)
    text = frame.format(
        when=draws.pick(PERSIAN_TIMES if persian else TIMES),
        actor=draws.pick(sense.actors),
        deed=draws.pick(sense.deeds),
        around=draws.pick(sense.surroundings),
    )
    return DrawnExample(text, ((text, sense.label),))


HOMOGRAPHS = SyntheticSet(
    name="homographs",
    schema=Schema("text", "label", LABELS),
    description="which sense has the word: bank, bat, light, spring, seal, note, and the Persian شیر",
    draw=_draw,
    sizes=Sizes(4_000, 500, 500),
)
