"""U01-U12: what Unicode can do to a text."""

from data.corpus.case import fine, labeled, lines, sentences, table, warn

PLAIN = labeled()
FAMILY = "👨\u200d👩\u200d👧\u200d👦"  # seven code points
RUNS = {"circumflex": "^", "letter": "a", "underscore": "_", "digit": "1", "space": " "}
MILLION = 1_000_000


def labels(*names: str) -> bytes:
    """A table whose rows have these labels, five of each."""
    rows = sentences(5 * len(names))
    return table(*(f"{text},{names[number % len(names)]}" for number, text in enumerate(rows)))


def run_of(character: str, count: int) -> bytes:
    """A file with one character very often in its last line."""
    return lines(*sentences(9), f"x {character * count} y")


def distinct_words() -> bytes:
    """A million words, each of them once."""
    return lines(*(" ".join(f"w{word}" for word in range(at, at + 100)) for at in range(0, MILLION, 100)))


CHARACTERS = [
    fine("U01", {"train.txt": lines(*sentences(9), f"a family {FAMILY} went out")}, rows=10),
    fine("U02", {"train.txt": lines(*sentences(8), "שלום עולם", "مرحبا بالعالم")}, rows=10),
    warn(
        "U02 override",
        "uni.bidi_control",
        {"train.txt": lines(*sentences(9), "a \u202etxt.exe")},
        place="train.txt:10",
        says=("U+202E", "right-to-left override", "a \\u202etxt"),
    ),
    warn(
        "U03",
        "uni.invisible",
        {"train.txt": lines(*sentences(9), "in" + "\u200b" * 1000 + "visible")},
        place="train.txt:10",
        says=("U+200B", "zero width space"),
    ),
    warn("U04", "label.confusable", {"train.csv": labels("cat", "c\u0430t", "dog")}, says=("U+0430", "cyrillic")),
    warn("U05", "label.normal_form", {"train.csv": labels("caf\u00e9", "cafe\u0301", "tea")}, says=("NFC or NFD",)),
    fine("U06", {"train.txt": lines(*sentences(9), "a" + "\u0301" * 1000 + " b")}, rows=10),
    warn(
        "U07",
        "seq.truncated",
        {"train.txt": lines(*sentences(9), "\ufdfa" * 10_000)},
        *("--tokenizer", "characters", "--normalize", "nfkc", "--max-length", "20000"),
        place="train.txt:10",
        says=("180,000", "20,000"),
    ),
    fine("U08", {"train.txt": lines(*sentences(9), "İSTANBUL is large")}, "--lowercase", rows=10),
    warn(
        "U09",
        "uni.odd",
        {"train.txt": lines(*sentences(8), "a \uffff b", "a \ue000 b")},
        place="train.txt:9",
        says=("U+FFFF", "U+E000", "× 2"),
    ),
    fine("U10", {"train.txt": lines(*sentences(9), "<pad> [MASK] </s>")}, rows=10),
    *(fine(f"U11 {name}", {"train.txt": lambda one=one: run_of(one, MILLION)}, rows=10) for name, one in RUNS.items()),
    warn(
        "U12",
        "vocab.capped",
        {"train.txt": distinct_words},
        *("--dev-size", "0", "--test-size", "0"),
        says=("1,000,000", "50,000"),
        memory=1024,
        rows=10_000,
    ),
]
