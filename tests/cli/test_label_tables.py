"""Tables of labels for a terminal."""

from seqloom.cli.tables import MOST_LABELS, confusion_lines, label_lines


def figures(support: float) -> dict[str, float]:
    return {"precision": 0.5, "recall": 1.0, "f1": 2 / 3, "support": support}


def test_labels_are_told_with_the_most_frequent_first_and_what_is_left_out_is_counted() -> None:
    lines = label_lines({f"l{number}": figures(number) for number in range(MOST_LABELS + 3)})
    assert lines[2].split() == ["l22", "0.5000", "1.0000", "0.6667", "22"]
    assert len(lines) == MOST_LABELS + 3 and "3 rarer labels" in lines[-1]
    assert label_lines({}) == confusion_lines(()) == []


def test_confusions_of_a_few_labels_are_a_square_with_every_count_and_zeros() -> None:
    _, head, *rows = confusion_lines((("a", "a", 7), ("a", "bad", 2), ("bad", "bad", 1_000)))
    assert head.split() == ["true,", "said", "a", "bad"]
    assert [row.split() for row in rows] == [["a", "7", "2"], ["bad", "0", "1,000"]]
    assert len({len(line) for line in (head, *rows)}) == 1


def test_confusions_of_many_labels_are_the_most_frequent_mistakes() -> None:
    pairs = [(f"l{number}", f"l{number + 1}", number) for number in range(1, 20)]
    lines = confusion_lines([("l1", "l1", 99), *pairs])
    assert lines[1:3] == ["most often mistaken:", "  l19 taken for l20, 19 times"]
    assert len(lines) == 7 and "l1 taken for l1," not in "".join(lines)


def test_names_that_could_move_a_cursor_are_written_out_and_cut() -> None:
    (*_, line) = label_lines({"\x1b[2J" + "x" * 99: figures(1)})
    assert "\x1b" not in line and "…" in line
