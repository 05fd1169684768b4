"""Cleaning: what `seqloom data clean` changes besides the spelling of labels and damaged characters."""

from typing import Annotated, Literal

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.data import Format, Name
from seqloom.config.options import Flag
from seqloom.errors import ConfigError

Conflicts = Literal["keep", "drop"]
RepeatRule = Literal["drop", "near", "exact", "keep"]
LabelCase = Literal["fold", "keep"]
LineEnds = Literal["keep", "lf", "space"]
TypoDistance = Annotated[int, Meta(ge=0, le=3, examples=[1])]
RareCount = Annotated[int, Meta(ge=0, le=2**40, examples=[2])]
LABELS, ROWS = "Labels", "Rows and fields"  # groups of options in the help
# Settings of `DataConfig` that `seqloom data clean` takes: they say how the file is read.
READ_BY = ("task", "input", "target", "label_separator", "format", "encoding", "delimiter", "header")
CLEANED: dict[Format, tuple[str, ...]] = {  # the formats that are cleaned, and how the name of a copy ends
    "csv": (".csv",),
    "tsv": (".tsv",),
    "jsonl": (".jsonl", ".ndjson"),
    "conll": (".conll", ".bio", ".iob", ".txt"),
}


class CleaningConfig(Config, tag="cleaning", kw_only=True):
    """Which labels, rows and line ends are changed in the copy of a file."""

    labels: Annotated[
        Name | None,
        Flag(
            "Rename labels by this csv or tsv file with the columns from and to; an empty cell in to drops the label "
            "(default: none).",
            "TABLE",
            LABELS,
        ),
    ] = None
    case: Annotated[
        LabelCase,
        Flag(
            "Labels that differ only in upper and lower case: {names}; fold merges them into the most frequent "
            "spelling, keep keeps them apart, also in --labels (default: fold).",
            "RULE",
            LABELS,
        ),
    ] = "fold"
    typo_distance: Annotated[
        TypoDistance,
        Flag(
            "Merge a label into a more frequent one that is at most this many typing errors away, 1 to 3; only labels "
            "with at least 4 characters per error (default: 0, no such labels).",
            "COUNT",
            LABELS,
        ),
    ] = 0
    rare: Annotated[
        RareCount,
        Flag(
            "Merge or drop the labels of fewer rows than this; see --rare-label (default: 0, no such labels).",
            "COUNT",
            LABELS,
        ),
    ] = 0
    rare_label: Annotated[
        Name | None,
        Flag("Label that replaces the --rare ones, such as other (default: their rows are dropped).", "LABEL", LABELS),
    ] = None
    conflicts: Annotated[
        Conflicts,
        Flag(
            "What to do with rows that have the same input but another target: {names} (default: keep).", "RULE", ROWS
        ),
    ] = "keep"
    repeats: Annotated[
        RepeatRule,
        Flag(
            "What to do with later rows of the same input and target: {names}. Texts that differ only in case, white "
            "space or Unicode form count as the same, as in data check; near also drops near duplicates, exact "
            "identical rows only (default: drop).",
            "RULE",
            ROWS,
        ),
    ] = "drop"
    line_ends: Annotated[
        LineEnds,
        Flag(
            "Line ends inside the input and the target: {names}; lf replaces CR LF and CR by LF, space replaces each "
            "line end by a space (default: keep).",
            "RULE",
            ROWS,
        ),
    ] = "keep"

    def check(self) -> None:
        if self.rare_label is not None and not self.rare:
            raise ConfigError("rare_label needs rare, the number of rows from which on a label is kept", fix="--rare 5")
        if self.rare_label is not None and " ".join(self.rare_label.split()) != self.rare_label:
            raise ConfigError(f"rare_label {self.rare_label!r} is empty or has extra spaces", fix="use a plain word")

    @property
    def changes_labels(self) -> bool:
        """Whether an option is given that only makes sense for labels."""
        return self.labels is not None or bool(self.typo_distance or self.rare)
