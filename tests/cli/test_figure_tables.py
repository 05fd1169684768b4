"""Figures with their intervals in lines of a terminal: aligned whatever their sizes, and with reasons."""

from seqloom.cli.tables import ALIKE, FigureRow, figure_lines


def test_numbers_of_any_size_end_under_each_other() -> None:
    figures = [
        FigureRow(1536767038.7435, (596151117.4682, 3e9)),
        FigureRow(0.25, (-0.5, 0.75)),
        FigureRow(None, None, "why"),
    ]
    assert figure_lines(["mse ", "loss", "r2  "], figures) == [
        "mse   1,536,767,039   95 % between 596,151,117 and 3,000,000,000",
        "loss         0.2500   95 % between     -0.5000 and        0.7500",
        "r2                -   why",
    ]


def test_rows_that_always_give_the_same_figure_have_the_reason_instead_of_an_interval() -> None:
    found = {"rows": 5, "metrics": {"bleu": 100.0}, "intervals": {"bleu": None}}
    assert figure_lines(["bleu"], [FigureRow.of(found, "bleu")]) == [f"bleu  100.0000   {ALIKE}"]
