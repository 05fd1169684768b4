"""T01-T16: words with tags, in columns."""

from data.corpus.case import fine, lines, reject

ALL_TRAIN = (
    "--dev-size",
    "0",
    "--test-size",
    "0",
)  # of a few sentences none falls to dev or test, which would be warned about
FIRST = ["Ada B-PER", "King I-PER", "met O", "Hyde B-PER", "Smith I-PER", ""]
SECOND = ["in O", "Paris B-LOC", "and O", "Rome B-LOC", ""]


def columns(*rows: str) -> dict[str, bytes]:
    """A file of two good sentences and these lines behind them."""
    return {"train.conll": lines(*FIRST, *SECOND, *rows)}


def universal(row: str) -> str:
    """A row of CoNLL-U: id, word, part of speech, and nothing else known."""
    number, word, speech = row.split(" ")
    return "\t".join([number, word, "_", speech, *["_"] * 6])


TAGGED = [
    reject(
        "T01",
        "conll.columns",
        columns("met VB O", ""),
        *ALL_TRAIN,
        place="train.conll:12",
        says=("3 columns", "line 1 has 2"),
    ),
    reject(
        "T02",
        "conll.separator",
        columns("met\tO", ""),
        *ALL_TRAIN,
        place="train.conll:12",
        says=("line 1 is separated by spaces", "this one by tabs"),
    ),
    reject(
        "T03",
        "tags.orphan_I",
        columns(*["met O", "Ada I-PER", ""] * 7),
        place="train.conll:12",
        says=("word 2", "'I-PER' follows 'O'", "7 such words in total", "15, 18, 21, 24"),
    ),
    fine(
        "T03 iob1",
        {
            "train.conll": lines(
                "Ada I-PER", "King I-PER", "met O", "Hyde I-PER", *["Smith B-PER", "Ng B-PER", "so O"], ""
            )
        },
        *ALL_TRAIN,
        note="tags.converted",
        says=("iob1", "converted"),
    ),
    reject(
        "T04",
        "tags.type_change",
        columns("Ada B-PER", "Paris I-LOC", ""),
        place="train.conll:12",
        says=("word 2", "'I-LOC' after 'B-PER'"),
    ),
    *(
        reject(f"T05 {tag}", "tags.prefix", columns(f"Ada {tag}", ""), place="train.conll:12", says=(f"'{tag}'",))
        for tag in ("B_PER", "b-per", "X-PER")
    ),
    reject(
        "T06",
        "tags.scheme",
        columns("Ada B-PER", "King E-PER", ""),
        place="train.conll:1",
        says=("two schemes are mixed", "train.conll:12"),
    ),
    *(
        reject(f"T07 {tag}", "tags.no_type", columns(f"Ada {tag}", ""), place="train.conll:12", says=(f"'{tag}'",))
        for tag in ("B-", "B")
    ),
    reject(
        "T08",
        "conll.columns",
        columns("met O", "Ada", ""),
        *ALL_TRAIN,
        place="train.conll:13",
        says=("1 column", "has 2"),
    ),
    fine(
        "T09",
        {"train.conll": lines("-DOCSTART- O", "", *FIRST, "-DOCSTART- O", "", *SECOND)},
        *ALL_TRAIN,
        note="conll.document",
        says=("× 2",),
        rows=2,
    ),
    reject(
        "T10",
        "conll.sentence_too_long",
        {"train.conll": lines(*["met O", "Ada B-PER"] * 25_000)},
        place="train.conll:1",
        says=("10,000 words", "blank lines missing?"),
    ),
    fine("T11", {"train.conll": lines("", *FIRST, "", "", *SECOND, "", "")}, *ALL_TRAIN, rows=2),
    fine("T12", columns("New\u00a0York B-LOC", "東京\u3000都 B-LOC", ""), *ALL_TRAIN, rows=3),
    reject(
        "T13",
        "conll.empty_token",
        {"train.conll": lines("met\tO", "\tO", "Ada\tB-PER", "")},
        place="train.conll:2",
    ),
    fine(
        "T13 only separators",
        {"train.conll": lines(*(line or "  " for line in [*FIRST, *SECOND]))},
        *ALL_TRAIN,
        rows=2,
    ),
    fine(
        "T14",
        {
            "train.conllu": lines(
                "# text = vámonos al mar",
                *map(universal, ["1-2 vámonos _", "1 vamos VERB", "2 nos NOUN", "3-4 al _", "3 a ADP", "4 el ADP"]),
                *map(universal, ["5 mar NOUN", "5.1 vamos VERB"]),
                "",
                *map(universal, ["1 ven VERB", "2 mar NOUN"]),
                "",
            )
        },
        *ALL_TRAIN,
        note="conllu.skipped",
        says=("× 3",),
        rows=2,
    ),
    fine("T15", columns("# O", "1 O", "Ada B-PER", ""), *ALL_TRAIN, rows=3),
    reject(
        "T16",
        "tags.orphan_E",
        {"train.conll": lines("Ada B-PER", "King E-PER", "", "met O", "Hyde E-PER", "")},
        place="train.conll:4",
        says=("word 2", "'E-PER' follows 'O'"),
    ),
]
