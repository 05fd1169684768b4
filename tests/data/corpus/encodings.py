"""E01-E13 and L01-L09: how characters are stored, and where lines end."""

from data.corpus.case import fine, labeled, lines, reject, replaced, sentences, table, warn

PLAIN = labeled()
BOM = "\ufeff"
LATIN = b"caf\xe9\n"
JOINED = "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g"

ENCODINGS = [
    reject(
        "E01",
        "enc.utf8",
        {"train.txt": LATIN},
        place="train.txt:1:4",
        says=("0xE9", "byte 3", "not UTF-8", "looks like Windows-1252", "--encoding cp1252"),
        also=("split.empty",),  # it is read as the fix says
    ),
    fine("E01 cured", {"train.txt": LATIN + lines(*sentences(9))}, "--encoding", "cp1252", rows=10),
    reject(
        "E02",
        "enc.utf8",
        {"train.csv": table(*PLAIN) + b"the end is missing,n\xc3"},
        place="train.csv:12:21",
        says=("ends in the middle of a character (truncated copy?), byte 417 of the file",),
    ),
    reject(
        "E03",
        "enc.utf8",
        {"train.csv": table(*PLAIN[:3]) + b"a \xc0\xaf b,neg\n"},
        place="train.csv:5:3",
        says=("0xC0 0xAF", "overlong"),
    ),
    reject(
        "E04",
        "enc.utf8",
        {"train.csv": table(*PLAIN[:3]) + b"a \xed\xa0\x80 b,neg\n"},
        place="train.csv:5:3",
        says=("a surrogate",),
    ),
    reject(
        "E05",
        "enc.utf16",
        {"train.csv": b"\xff\xfe" + table(*PLAIN).decode().encode("utf-16-le")},
        place="train.csv",
        says=("the file begins with FF FE, so it is UTF-16", "--encoding utf-16"),
    ),
    fine("E05 cured", {"train.csv": table(*PLAIN).decode().encode("utf-16")}, "--encoding", "utf-16", rows=10),
    reject(
        "E06",
        "enc.utf16",
        {"train.csv": table(*PLAIN).decode().encode("utf-16-le")},
        place="train.csv",
        says=("every second byte is NUL", "--encoding utf-16-le"),
    ),
    fine("E07", {"train.csv": BOM.encode() + table(*PLAIN)}, rows=10),
    warn(
        "E08",
        "enc.bom_inside",
        {"train.txt": lines(*sentences(1000)) + (BOM + "the second file").encode()},
        place="train.txt:1001:1",
        says=("were files joined?",),
        rows=1001,
    ),
    reject(
        "E09",
        "enc.nul",
        {"train.csv": table(*replaced(PLAIN, 4, "one\0two,pos"))},
        place="train.csv:4:4",
        says=("NUL",),
    ),
    reject(
        "E10",
        "enc.mixed",
        {"train.txt": lines(*sentences(999)) + LATIN},
        place="train.txt:1000:4",
        says=("0xE9", "999 lines"),
    ),
    reject(
        "E10 after other letters",
        "enc.mixed",
        {"train.txt": lines(*(f"{text} à la carte" for text in sentences(999))) + LATIN},
        place="train.txt:1000:4",
        says=("0xE9", "the 999 lines before are UTF-8"),
    ),
    warn(
        "E11",
        "enc.mojibake",
        {"train.txt": lines(*sentences(996), *(f"cafÃ© number {number}" for number in range(4)))},
        place="train.txt:997:4",
        says=("cafÃ©", "× 4", "train.txt:998:4", "train.txt:999:4"),
    ),
    fine("E11 in fewer rows", {"train.txt": lines(*sentences(1999), "SÃ© stands in São Paulo")}),
    warn(
        "E12",
        "enc.replacement",
        {"train.txt": lines(*sentences(8), "na\ufffdve", "caf\ufffd \ufffd")},
        place="train.txt:9:3",
        says=("U+FFFD", "× 3"),
    ),
    reject(
        "E13",
        "json.surrogate",
        {"train.jsonl": lines('{"text": "fine", "label": "x"}', r'{"text": "a \ud800 b", "label": "y"}')},
        place="train.jsonl:2:13",
        says=("half a character",),
        also=("label.single", "split.empty"),  # in the row that is left
    ),
]

LINES = [
    fine("L01", {"train.csv": table(*PLAIN, end="\r\n")}, rows=10),
    reject(
        "L02",
        "line.cr_only",
        {"train.csv": table(*(f"{number:06}{'x' * 65},pos" for number in range(40_999)), end="\r")},
        place="train.csv:1",
        says=("one line of 3.12 MB", "41,000 CR"),
    ),
    fine("L03", {"train.csv": table(*PLAIN[:5]) + lines(*PLAIN[5:], end="\r\n")}, note="line.mixed", says=("5", "6")),
    fine("L04", {"train.txt": lines(*sentences(5), JOINED, *sentences(4, 5))}, rows=10),
    fine("L05", {"train.csv": table(*PLAIN).removesuffix(b"\n")}, rows=10),
    fine("L06", {"train.txt": lines("a bc " * 200_000, *sentences(9))}, rows=10),
    warn(
        "L06 cut",
        "seq.truncated",
        {"train.txt": lines(*sentences(9), "a bc " * 20_000)},
        "--max-length",
        "1000",
        place="train.txt:10",
        says=("40,000", "1,000", "--max-length"),
    ),
    reject(
        "L06 refused by setting",
        "seq.too_long",
        {"train.txt": lines(*sentences(9), "a bc " * 20_000)},
        *("--max-length", "1000", "--overlong", "error"),
        place="train.txt:10",
        says=("40,000", "1,000", "--max-length"),
    ),
    reject(
        "L07",
        "line.too_long",
        {"train.txt": lambda: b"x" * (64 << 20)},
        place="train.txt:1",
        says=("line 1 is longer than 16 MiB",),
        memory=32,
    ),
    *(
        reject(f"L08 {ending}", "data.empty", {f"train.{ending}": b"\n \n\t\n\r\n\n"}, place=f"train.{ending}")
        for ending in ("txt", "csv", "jsonl", "conll")
    ),
    warn(
        "L09",
        "label.space",
        {"train.csv": table(*PLAIN, "one more,pos ")},
        place="train.csv:12",
        says=("'pos '", "'pos'", "1 row"),
    ),
    warn(
        "L09 tab",
        "label.space",
        {"train.csv": table(*PLAIN, "one more,pos\t")},
        place="train.csv:12",
        says=(r"'pos\t'", "'pos'"),
    ),
]
