"""Tables of an evaluation for a terminal: figures with their intervals or reasons, labels, and confusions."""

from seqloom.report.document import Document, DocumentBlock
from seqloom.tasks.tables import ALIKE, BRIEF_LABELS, confusion_table, figure_table, label_table


def figures(support: float) -> dict[str, float]:
    return {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": support}


def lines(*blocks: DocumentBlock) -> list[str]:
    return Document("found", blocks).text(100).rstrip("\n").split("\n")[2:]


def test_labels_are_told_with_the_most_frequent_first_and_what_is_left_out_is_counted() -> None:
    shown = lines(label_table({f"l{number}": figures(number) for number in range(BRIEF_LABELS + 3)}))
    assert shown[1].split() == ["l22", "0.5", "1", "0.6667", "22"]
    assert len(shown) == BRIEF_LABELS + 2 and shown[-1] == "and 3 more"
    assert lines(label_table({}), confusion_table(())) == []


def test_confusions_of_a_few_labels_are_a_square_with_every_count_and_zeros() -> None:
    head, *rows = lines(confusion_table((("a", "a", 7), ("a", "bad", 2), ("bad", "bad", 1_000))))
    assert head.split() == ["expected", "\\", "predicted", "a", "bad"]
    assert [row.split() for row in rows] == [["a", "7", "2"], ["bad", "0", "1,000"]]
    assert len({len(line) for line in (head, *rows)}) == 1


def test_confusions_of_many_labels_are_the_most_frequent_mistakes() -> None:
    pairs = [(f"l{number}", f"l{number + 1}", number) for number in range(1, 20)]
    text = Document("found", [confusion_table([("l1", "l1", 99), *pairs])]).text()
    assert text.split("\n")[1] == "- l19 predicted as l20: 19 times" and text.count("predicted as") == 5
    assert "l1 predicted as l1:" not in text


def test_names_that_could_move_a_cursor_are_written_out_and_cut() -> None:
    (*_, line) = lines(label_table({"\x1b[2J" + "x" * 99: figures(1)}))
    assert "\x1b" not in line and "…" in line


def test_numbers_of_any_size_end_under_each_other_and_have_a_reason_where_they_have_no_interval() -> None:
    found = {"rows": 5, "metrics": {"mse": 1536767038.7435, "loss": 0.25, "r2": None, "bleu": 100.0}}
    ends = {"mse": (596151117.4682, 3e9), "loss": (-0.5, 0.75), "r2": None, "bleu": None}
    shown = lines(*figure_table(found | {"intervals": ends, "undefined": {"r2": "why"}}))
    assert shown[1:] == [
        "mse     1,536,767,039     596,151,117 to 3,000,000,000",
        "loss                0.25  -0.5 to 0.75",
        "r2                     -  why",
        f"bleu              100     {ALIKE}",
    ]
