"""J01-J15: one JSON object on each line."""

import json

from data.corpus.case import fine, lines, reject, sentences

ALL_TRAIN = ("--dev-size", "0", "--test-size", "0")  # of ten rows a part may get none, which would be warned about
PLAIN = [json.dumps({"text": text, "label": "ab"[number % 2]}) for number, text in enumerate(sentences(10))]


def at(line: int, row: str) -> dict[str, bytes]:
    """A file of ten objects, this one in the given line."""
    return {"train.jsonl": lines(*PLAIN[: line - 1], row, *PLAIN[line:])}


def wrong_text(value: str) -> dict[str, bytes]:
    """A file whose fifth text is this value."""
    return at(5, f'{{"text": {value}, "label": "a"}}')


JSON_LINES = [
    reject(
        "J01",
        "json.syntax",
        at(3, '{"text": "a long text before it", "label": oops, "further": "a long text behind it"}'),
        place="train.jsonl:3:44",
        says=('before it", "label": oops, "further": "a'[1:],),
    ),
    reject(
        "J02",
        "json.array",
        {"train.jsonl": lines("[", *(f"{row}," for row in PLAIN), "]")},
        place="train.jsonl:1",
        says=("expected one object per line",),
    ),
    reject(
        "J03",
        "json.multiline",
        {"train.jsonl": lines(json.dumps({"text": "a", "label": "b"}, indent=2))},
        place="train.jsonl:1",
        says=("expected one object per line",),
    ),
    reject("J04", "json.trailing", at(4, f"{PLAIN[3]} {PLAIN[4]}"), place=f"train.jsonl:4:{len(PLAIN[3]) + 2}"),
    reject(
        "J05",
        "json.dup_key",
        at(6, '{"text": "one", "text": "two", "label": "a"}'),
        place="train.jsonl:6",
        says=("'text'",),
    ),
    *(
        reject(
            f"J06 {value}",
            "json.nonfinite",
            wrong_text(f'"a", "score": {value}'),
            place="train.jsonl:5:24",
            says=(value,),
        )
        for value in ("NaN", "Infinity", "-Infinity")
    ),
    reject("J07", "json.nonfinite", wrong_text('"a", "score": 1e400'), place="train.jsonl:5:24", says=("1e400",)),
    reject(
        "J08",
        "json.depth",
        wrong_text("[" * 100_000 + "]" * 100_000),
        place="train.jsonl:5",
        says=("more than 32",),
    ),
    reject("J09", "json.number", wrong_text("7" * 5_000), place="train.jsonl:5:10", says=("5,000 digits",)),
    reject("J10 null", "type.text", wrong_text("null"), place="train.jsonl:5:2", says=("expected text, found null",)),
    reject("J10 list", "type.text", wrong_text('["a"]'), place="train.jsonl:5:2", says=("expected text, found list",)),
    reject("J10 number", "type.text", wrong_text("7"), place="train.jsonl:5:2", says=("expected text, found number",)),
    reject(
        "J11",
        "json.key",
        {"train.jsonl": lines(*PLAIN, *['{"text": "no label"}'] * 3)},
        place="train.jsonl:11",
        says=("'label'", "missing", "× 3"),
    ),
    reject("J12 comment", "json.syntax", at(2, "// a comment"), place="train.jsonl:2:1"),
    reject("J12 comma", "json.syntax", at(2, '{"text": "a", "label": "b",}'), place="train.jsonl:2:28"),
    fine("J13", {"train.jsonl": lines(*PLAIN[:5], "", *PLAIN[5:])}, *ALL_TRAIN, note="json.blank", rows=10),
    reject(
        "J14",
        "tags.length",
        {
            "train.jsonl": lines(
                *(json.dumps({"tokens": text.split(), "tags": ["O"] * 7}) for text in sentences(3)),
                json.dumps({"tokens": ["w"] * 9, "tags": ["O"] * 8}),
            )
        },
        *ALL_TRAIN,
        place="train.jsonl:4:59",
        says=("9 tokens, but 8 tags",),
        also=("label.single",),  # in the rows that are left
    ),
    fine("J15", {"train.jsonl": b"\xef\xbb\xbf" + lines(*PLAIN)}, *ALL_TRAIN, rows=10),
]
