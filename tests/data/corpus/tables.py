"""C01-C28: tables, their columns and their labels."""

from data.corpus.case import fine, labeled, reject, replaced, sentences, table, warn

PLAIN = labeled()
MANY = labeled(200)


def with_labels(*labels: str) -> bytes:
    """A table whose rows have these labels."""
    return table(*(f"{text},{label}" for text, label in zip(sentences(len(labels)), labels, strict=True)))


TABLES = [
    reject("C01", "data.empty", {"train.csv": b""}, place="train.csv"),
    reject("C02", "data.no_rows", {"train.csv": table()}, place="train.csv"),
    reject(
        "C03",
        "csv.column",
        {"train.csv": table(*PLAIN, header="text,lable")},
        place="train.csv:1",
        says=("there is no column 'label'; found text, lable", "id you mean", "--target lable?"),
    ),
    reject(
        "C04",
        "csv.dup_header",
        {"train.csv": table("a,b,pos", header="text,text,label")},
        place="train.csv:1:6",
        says=("'text'", "1 and 2"),
    ),
    reject(
        "C05",
        "csv.ragged",
        {"train.csv": table(*replaced(PLAIN, 7, "no label"))},
        place="train.csv:7",
        says=("1 field, but the header has 2",),
    ),
    reject(
        "C06",
        "csv.ragged",
        {"train.csv": table(*replaced(PLAIN, 7, "well, no,pos"))},
        place="train.csv:7",
        says=("3 fields", "is there an unquoted comma?"),
    ),
    reject(
        "C07",
        "csv.quote",
        {"train.csv": table(*labeled(20)[:10], '"not closed,pos', *labeled(20)[10:])},
        place="train.csv:12:1",
        says=("opened in line 12 is never closed",),
    ),
    warn(
        "C08",
        "csv.stray_quote",
        {"train.csv": table(*replaced(PLAIN, 5, 'a 19" screen,neg'))},
        place="train.csv:5:5",
        rows=10,
    ),
    reject(
        "C09",
        "csv.delimiter",
        {"train.csv": table(*(row.replace(",", ";") for row in PLAIN), header="text;label")},
        place="train.csv:1",
        says=("1 column; the delimiter looks like ';'", "--delimiter ';'"),
    ),
    reject(
        "C10",
        "csv.delimiter",
        {"train.csv": table(*(row.replace(",", "\t") for row in PLAIN), header="text\tlabel")},
        place="train.csv:1",
        says=(r"1 column; the delimiter looks like '\t'", r"--delimiter '\t'"),
    ),
    reject(
        "C11",
        "csv.column",
        {"train.csv": table(*PLAIN[1:], header=PLAIN[0])},
        place="train.csv:1",
        says=("sentence 0 is about the 0th thing, neg", "--no-header --task classify --input 1 --target 2"),
    ),
    fine(
        "C11 cured",
        {"train.csv": table(*PLAIN[1:], header=PLAIN[0])},
        *("--no-header", "--input", "1", "--target", "2"),
        rows=10,
    ),
    reject(
        "C12",
        "type.number",
        {"train.csv": table(*(f"{text},1.5" for text in sentences(9)), 'a comma,"0,5"', header="text,score")},
        place="train.csv:11:9",
        says=("'0,5'", "a decimal point, not a comma"),
    ),
    reject(
        "C12 in every cell",
        "type.number",
        {"train.csv": table(*(f'a,"{number},5"' for number in range(50)), header="text,value")},
        "--task",
        "regress",
        place="train.csv:2:3",
        says=("'0,5'", "50 problems in all; 5 are shown"),
    ),
    reject(
        "C13",
        "row.empty_text",
        {"train.csv": table(*replaced(replaced(PLAIN, 3, ",pos"), 6, " \t,neg"))},
        place="train.csv:3:1",
        says=("train.csv:6:1", "× 2"),
    ),
    reject("C14", "row.empty_label", {"train.csv": table(*replaced(PLAIN, 3, "no label,"))}, place="train.csv:3:10"),
    warn(
        "C15",
        "label.case",
        {"train.csv": with_labels(*["pos", "neg"] * 5, *["Pos"] * 3, *["POS"] * 2)},
        says=("'pos' (5 rows)", "'Pos' (3 rows)", "'POS' (2 rows)"),
    ),
    warn(
        "C16",
        "label.rare",
        {"train.csv": with_labels(*["positive", "negative"] * 2500, "postive")},
        place="train.csv:5002",
        says=("'postive' (1 row)", "a typo of 'positive'"),
    ),
    warn(
        "C17",
        "label.unseen",
        {"train.csv": table(*PLAIN), "dev.csv": table(*labeled(200, 10), "a stranger,odd")},
        place="dev.csv:202",
        says=("'odd' (1 row)", "counts as an error"),
    ),
    reject(
        "C17 in over 1 % of the rows",
        "label.unseen",
        {"train.csv": table(*PLAIN), "test.csv": table(*labeled(197, 10), *["a stranger,odd"] * 3)},
        *("--dev-size", "0", "--test-size", "0"),
        place="test.csv:199",
        says=("3 of 200", "'odd' (3)"),
    ),
    reject("C18", "label.single", {"train.csv": with_labels(*["pos"] * 10)}, place="train.csv", says=("'pos'",)),
    reject(
        "C18 in rows that may have several labels",
        "label.none",
        {"train.csv": with_labels(*[""] * 60)},
        *("--label-separator", ";", "--input", "text", "--target", "label"),
        place="train.csv",
        says=("no row of train has a label",),
    ),
    warn(
        "C19",
        "label.singleton",
        {"train.csv": with_labels(*["pos", "neg"] * 5, "meh")},
        place="train.csv:12",
        says=("'meh'",),
    ),
    reject(
        "C20",
        "label.too_many",
        {"train.csv": with_labels(*(f"label {number}" for number in range(15)), *["pos"] * 10)},
        *("--dev-size", "0", "--test-size", "0"),
        place="train.csv",
        says=("16 different labels in 25 rows", "the right column?"),
    ),
    warn(
        "C21",
        "label.numeric_forms",
        {"train.csv": with_labels(*["1", "0", "1.0", "01"] * 4)},
        says=("'1' (4 rows)", "'1.0' (4 rows)", "'01' (4 rows)"),
    ),
    reject(
        "C22",
        "id.duplicate",
        {"train.csv": table(*(f"{i % 9},{row}" for i, row in enumerate(MANY[:10])), header="id,text,label")},
        place="train.csv:11",
        says=("line 2",),
    ),
    warn(
        "C23",
        "leak.overlap",
        {"train.csv": table(*MANY), "dev.csv": table(*MANY[:5], *labeled(15, 300))},
        place="dev.csv:2",
        says=("5 of 20 rows in dev (25 %)", "train.csv:2"),
    ),
    warn(
        "C24",
        "label.conflict",
        {"train.csv": table(*PLAIN, PLAIN[0].replace("neg", "pos"))},
        place="train.csv:12",
        says=("line 2",),
    ),
    reject(
        "C25",
        "csv.too_many_columns",
        {"train.csv": table(header=",".join(f"c{number}" for number in range(10_000)))},
        place="train.csv:1",
        says=("10,000 columns", "1,024"),
    ),
    fine("C26", {"train.csv": table(*replaced(PLAIN, 2, '"=HYPERLINK(""http://x"")",neg'))}, rows=10),
    fine("C27", {"train.csv": table(*PLAIN, f'"{"x, " * 70_000}",pos')}, rows=11),
    warn(
        "C28",
        "label.null_like",
        {"train.csv": with_labels(*["nan", "NULL", "None", "NA", "pos"] * 3)},
        *("--dev-size", "0", "--test-size", "0"),
        says=("'nan' (3 rows)", "'NULL' (3 rows)", "'None' (3 rows)", "'NA' (3 rows)"),
        rows=15,
    ),
]
