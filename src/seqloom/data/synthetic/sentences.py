"""Questions, reviews and homographs: sentences whose label depends on word order, negation, or context."""

from typing import NamedTuple

from seqloom.data.schema import Schema
from seqloom.data.synthetic.set import DrawnExample, RandomDraws, Sizes, SyntheticSet

# Questions: is it a statement or a question? Both have the same words in different order, without a question mark.
#
#     the old baker is in the garden today                 is the old baker in the garden today
#
# Both orders of every sentence are drawn together, so every bag of words has both labels: a model that ignores order is
# right half of the time.

QUESTION_LABELS = ("statement", "question")
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
OPENINGS = ("", "", "", "so", "well", "but", "and", "anyway")  # so that the first word does not reveal the label


def _draw_question(draws: RandomDraws) -> DrawnExample:
    likeness = draws.pick(("", *LIKENESSES))
    subject = " ".join(filter(None, ("the", likeness, draws.pick(SUBJECTS))))
    first, _, second = draws.pick(VERBS).partition(" ")
    rest = [second, *draws.mixed((draws.pick(PLACES), draws.pick(COMPANIONS)))]
    opening, time = draws.pick(OPENINGS), draws.pick(TIMES)
    orders = ((subject, first), (first, subject))
    texts = [" ".join(filter(None, (opening, *order, *rest, time))) for order in orders]
    rows = draws.mixed(list(zip(texts, QUESTION_LABELS, strict=True)))
    return DrawnExample(" ".join(sorted(texts[0].split(" "))), tuple(rows))


QUESTIONS = SyntheticSet(
    name="questions",
    schema=Schema("text", "label", QUESTION_LABELS),
    description="statement or question, which differ only in the order of the words",
    draw=_draw_question,
    sizes=Sizes(4_000, 1_000, 1_000),
)


# Reviews: positive or negative, where counting positive words helps little.
#
#     my neighbour called the music dreadful , i did not for one moment find the story charming , or so i told my aunt
#
# A review quotes irrelevant opinions of others and gives one verdict of its own. The verdict may be negated some words
# before its adjective, and a last clause may reverse everything. So the sentiment is the product of three signs: of one
# adjective among several, of the negation, and of the ending. Reviews come in pairs that differ only in the adjective
# of the verdict, and each kind of review occurs with both labels equally often.

REVIEW_LABELS = ("negative", "positive")
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


def _draw_review(draws: RandomDraws) -> DrawnExample:
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
        (skeleton.format(word=word), REVIEW_LABELS[kind ^ denied ^ taken_back])
        for kind, word in zip((True, False), words, strict=True)
    ]
    adjectives = {*KIND, *UNKIND, "{word}"}
    key = " ".join("_" if word in adjectives else word for word in skeleton.split(" "))  # equal for both reviews
    return DrawnExample(key, tuple(draws.mixed(rows)))


REVIEWS = SyntheticSet(
    name="reviews",
    schema=Schema("text", "label", REVIEW_LABELS),
    description="sentiment of short reviews with hearsay, negation and final clauses that reverse the meaning",
    draw=_draw_review,
    sizes=Sizes(8_000, 1_000, 1_000),
)


# Homographs: one spelling, several senses; the label is the sense, and only the context reveals it.
#
# Six English words and the Persian شیر, which means milk, lion or tap, in short sentences (the Persian ones right to
# left). All senses of a word are used in the same sentence patterns, so the pattern does not reveal the sense.


class Sense(NamedTuple):
    """One sense of a word: its subjects, its actions and its surroundings; {} is the word."""

    label: str
    actors: tuple[str, ...]
    deeds: tuple[str, ...]
    surroundings: tuple[str, ...]


ENGLISH_FRAMES = ("{when} {actor} {deed} {around}", "{actor} {deed} {around} {when}", "{around} {actor} {deed} {when}")
PERSIAN_FRAMES = ("{when} {actor} {deed} {around}", "{actor} {when} {around} {deed}")
ENGLISH_TIMES = (
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
SENSE_LABELS = tuple(sense.label for sense in SENSES)


def _draw_homograph(draws: RandomDraws) -> DrawnExample:
    sense = draws.pick(SENSES)
    persian = not sense.label.isascii()
    frame = draws.pick(PERSIAN_FRAMES if persian else ENGLISH_FRAMES)
    text = frame.format(
        when=draws.pick(PERSIAN_TIMES if persian else ENGLISH_TIMES),
        actor=draws.pick(sense.actors),
        deed=draws.pick(sense.deeds),
        around=draws.pick(sense.surroundings),
    )
    return DrawnExample(text, ((text, sense.label),))


HOMOGRAPHS = SyntheticSet(
    name="homographs",
    schema=Schema("text", "label", SENSE_LABELS),
    description="word senses of bank, bat, light, spring, seal, note, and the Persian شیر",
    draw=_draw_homograph,
    sizes=Sizes(4_000, 500, 500),
)
