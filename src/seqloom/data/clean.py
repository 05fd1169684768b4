"""`seqloom data clean`: a copy of a file with one spelling per label, repaired characters and no repeated rows.

    file ──▶ first pass: digest, labels ──▶ decisions: new labels, rows to drop ──▶ second pass ──▶ copy
             and line of each row           until no rule applies any more          changed cells

The rules run in this order, and again until none of them changes anything, so cleaning the copy changes nothing:

    characters    UTF-8 that was read as Windows-1252; lines in Windows-1252 among lines in UTF-8; line ends, if asked
    labels        white space and Unicode form, the table of the user, upper and lower case unless it is to be kept,
                  typing errors if asked
    rows          without an input or a target, repeated, and with contradicting targets if asked
    rare labels   merged or dropped, if asked; they are counted in the rows that are left

A row that does not change is copied as it is written. Only the columns of input and target are ever changed. Of CoNLL
files, only repeated sentences are dropped.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.config.cleaning import CLEANED, CleaningConfig, Conflicts, LabelCase, LineEnds, RepeatRule
from seqloom.config.data import ANY_ROWS, BadRows, DataConfig, Format, ReadingConfig, Task
from seqloom.config.options import said, stated, strict, with_flags
from seqloom.data.checks.check import BLOCK_ROWS
from seqloom.data.checks.duplicates import compared_texts, folded
from seqloom.data.checks.labels import few_rows_options
from seqloom.data.clean_commands import CleanCommands
from seqloom.data.clean_decisions import CleaningDecisions, RowContent
from seqloom.data.clean_report import ChangeLog, CleanReport, KeptLabel, RenamedLabel, label_shown
from seqloom.data.dataset import SAMPLE
from seqloom.data.label_table import LabelTable
from seqloom.data.mojibake import repaired
from seqloom.data.problems import Ledger, Place, Problem
from seqloom.data.proposal import refuse_completely
from seqloom.data.readers.delimited import Delimited, dialect_of, with_fields
from seqloom.data.readers.files import are_same, is_folder, require_regular, require_state, state_of
from seqloom.data.readers.guess import guess
from seqloom.data.readers.jsonl import with_values
from seqloom.data.readers.passages import MIXED, known_encoding, lines_in_windows
from seqloom.data.readers.registry import format_of, read_table
from seqloom.data.roles import Roles, find_roles
from seqloom.data.values import BadValue, Record, Table, label_of
from seqloom.errors import ConfigError, RejectedError
from seqloom.events import Progress, Work, finished
from seqloom.files.disk import write_file

LINE_END = re.compile(r"\r\n?|\n")
REPLACED_BY = {"lf": "\n", "space": " "}
LABEL_CHANGES = ("spelling", "table", "typo", "rare")


class CleanTable:
    """The file, the roles of its columns, and how its cells and rows are written."""

    def __init__(self, config: DataConfig, cleaning: CleaningConfig, ledger: Ledger) -> None:
        (name,) = config.train
        self.path = Path(name)
        self.state = state_of(self.path)
        self.reading, self.windows = _reading(self.path, config.reading, ledger)
        self.config, self.cleaning = config, cleaning
        table = self.table(Ledger())
        self.columns = table.columns
        sample = list(islice(table.records, SAMPLE))
        self.roles: Roles = find_roles(config, table.columns, table.named, sample, ledger)
        kind = self.roles.schema.target
        self.labeled, self.one_label = kind.has_labels and not kind.of_steps, kind.one_label
        self.cells = self.roles.input if self.labeled else (*self.roles.input, *self.roles.target)
        if cleaning.changes_labels and not self.labeled:
            raise ConfigError(
                f"{self.path} has no labels to rename: its target is {kind}", fix="name the label column with --target"
            )

        if cleaning.repeats == "near" and not (self.roles.schema.input.is_text and not kind.of_steps):
            raise ConfigError(
                f"--repeats near needs texts, but the input is {self.roles.schema.input}", fix="leave it out"
            )

    def table(self, ledger: Ledger) -> Table:
        """Open the file."""
        return read_table((self.path,), self.reading, ledger)

    def content(self, record: Record) -> RowContent:
        """Return what is kept of a row."""
        repaired_cells = self.repaired(record.values)
        values = [repaired_cells.get(column, value) for column, value in enumerate(record.values)]
        labels = tuple(text for _, text in self.labels_of(record.values)) if self.labeled else ()
        needed = [values[column] for column in self.cells]
        listed = [values[column] for column in self.roles.input] if self.roles.schema.input.reads_tokens else []
        empty = any(map(_is_blank, needed)) or any(value == [] for value in listed)
        target = b"" if self.labeled else _digest([self.compared(values[column]) for column in self.roles.target])
        compared = [self.compared(values[column]) for column in self.roles.input]
        text = compared_texts(map(str, compared)) if self.cleaning.repeats == "near" else ""
        is_empty = empty or (self.one_label and not labels)
        return RowContent(record.line, _digest(compared), target, labels, is_empty, text)

    def compared(self, value: Any) -> Any:
        """A text as it is compared: as `seqloom data check` does, unless rows are compared exactly."""
        is_text = self.roles.schema.input.reads_tokens and not self.roles.schema.target.of_steps  # tags depend on case
        return _mapped(value, folded) if is_text and self.cleaning.repeats != "exact" else value

    def repaired(self, values: Sequence[Any]) -> dict[int, Any]:
        """Return the cells of input and target, without labels, whose characters or line ends change."""
        found = {}
        for column in self.cells:
            value = _mapped(values[column], repaired)
            if (end := REPLACED_BY.get(self.cleaning.line_ends)) is not None:
                value = _mapped(value, lambda text: LINE_END.sub(end, text))
            if isinstance(value, str) and self.holds_text(column):
                while (trimmed_text := repaired(value.strip())) != value:  # what is left may be recognized as damage
                    value = trimmed_text
            if value != values[column]:
                found[column] = value
        return found

    def holds_text(self, column: int) -> bool:
        """Whether a cell is a whole text, or one of a pair, which is the same without white space around it."""
        kind = self.roles.schema.input
        is_input = column in self.roles.input
        return kind.reads_tokens and not kind.has_steps if is_input else self.roles.schema.target.is_text

    def stored_labels(self, values: Sequence[Any]) -> list[Any]:
        """Return the labels of a row as they are stored; empty cells and empty parts of a cell are none."""
        value, separator = values[self.roles.target[0]], self.roles.label_separator
        if isinstance(value, str):
            parts = value.split(separator) if separator and not self.one_label else [value]
            return [part for part in parts if part]
        return value if isinstance(value, list) and not self.one_label else [value]

    def labels_of(self, values: Sequence[Any]) -> list[tuple[Any, str]]:
        """Return the labels of a row as they are stored and as text, without blank ones."""
        return [(one, self._text_of(one)) for one in self.stored_labels(values) if not _is_blank(one)]

    def _text_of(self, label: Any) -> str:
        try:
            return label_of(label, self.roles.target[0], whole=self.roles.whole)
        except BadValue:  # an object or a list, which is not a label; `seqloom data check` reports it
            return json.dumps(label, ensure_ascii=False)

    def relabeled(self, values: Sequence[Any], names: Mapping[str, str]) -> dict[int, Any]:
        """Return the cell of the labels if it changes."""
        (column,), before = self.roles.target, self.labels_of(values)
        new = {names[text]: one if names[text] == text else names[text] for one, text in before if names[text]}
        blank = isinstance(values[column], str | list) and any(map(_is_blank, self.stored_labels(values)))
        if [*dict.fromkeys(text for _, text in before)] == [*new] and not blank:
            return {}
        if self.one_label:
            return {column: next(iter(new.values()))}
        if isinstance(values[column], str):
            return {column: (self.roles.label_separator or "").join(new)}
        return {column: list(new.values())}

    def lines(self, row: Callable[[int, Record], Mapping[int, Any] | None]) -> Iterator[str]:
        """Yield the lines of the copy; `row` returns the changed cells of a row by its number, or None to drop it."""
        dialect = dialect_of(self.reading) if self.reading.format in ("csv", "tsv") else None
        if dialect is not None and self.reading.header:
            yield Delimited(self.path, self.reading, Ledger()).first.raw + "\n"
        for number, record in enumerate(self.table(Ledger(ANY_ROWS)).records):
            changed = row(number, record)
            if changed is None:
                continue
            line = str(record.raw)
            if changed and dialect is not None:
                line = with_fields(line, changed, dialect)
            elif changed:
                line = with_values(line, {self.columns[column]: value for column, value in changed.items()})
            yield f"{line}\n"

    def require_writable(self, labels: Sequence[str]) -> None:
        """Raise ConfigError for new labels that the file cannot hold."""
        separator = self.roles.label_separator
        marks = [dialect_of(self.reading).delimiter, "\n", "\r"] if self.reading.format == "tsv" else []
        for mark in (*marks, *([] if separator is None or self.one_label else [separator])):
            for label in (one for one in labels if mark in one):
                text = f"the label '{label}' contains {mark!r}, which separates fields or labels in {self.path}"
                raise ConfigError(text, fix="choose another label")


def require_cleanable(path: Path, reading: ReadingConfig, ledger: Ledger) -> Format:
    """The format of a file; raise ConfigError if it is none that can be cleaned."""
    if is_folder(path):
        raise ConfigError(f"{path} is a folder", fix=f"give a file: {', '.join(CLEANED)}")
    require_regular(path, ledger)
    format = reading.format or guess(DataConfig(train=(str(path),), reading=reading), ledger, prose=False).config.format
    format = format or format_of(path, ledger)
    if format not in CLEANED:
        raise ConfigError(
            f"{path} is not cleaned: only {', '.join(CLEANED)} files are",
            fix="change the lines that `seqloom data check` lists in the file itself, or convert it to one of these",
        )
    return format


def unreadable_rows(path: str, reading: ReadingConfig, bad_rows: BadRows) -> Ledger:
    """Read a file as cleaning does, and return a ledger of its rows."""
    ledger = Ledger(bad_rows)
    reading, _ = _reading(Path(path), reading, ledger)
    for _ in read_table((Path(path),), reading, ledger).records:
        pass
    return ledger


def rows_with_lines(path: Path, reading: ReadingConfig, lines: Sequence[int]) -> int:
    """How many rows that can be read have some of these lines, as the report on a copy counts them."""
    reading, asked = msgspec.structs.replace(reading, encoding=MIXED), frozenset(lines)
    records = read_table((path,), reading, Ledger(ANY_ROWS)).records
    return sum(not asked.isdisjoint(_lines_of(record)) for record in records)


def _lines_of(record: Record) -> range:
    return range(record.line, record.line + str(record.raw).count("\n") + 1)


def _reading(path: Path, reading: ReadingConfig, ledger: Ledger) -> tuple[ReadingConfig, frozenset[int]]:
    """Return how to read the file, and its lines in Windows-1252 if it has lines in both encodings."""
    reading = msgspec.structs.replace(reading, format=require_cleanable(path, reading, ledger))
    is_unicode = known_encoding(reading.encoding, path, ledger).name == "utf-8"
    windows = lines_in_windows(path, Ledger()) if is_unicode else []
    return msgspec.structs.replace(reading, encoding=MIXED) if windows else reading, frozenset(windows)


class ListedRows(Ledger):
    """A ledger that lists every bad row."""

    def __init__(self, bad_rows: BadRows, flags: str, format: Format | None) -> None:
        super().__init__(bad_rows, flags, format)
        self.listed: list[str] = []

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        super().bad_row(code, text, place, fix)
        self.listed.append(str(Problem("reject", code, text, place)))


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text in it changed."""
    if isinstance(value, str):
        return change(value)
    return [_mapped(one, change) for one in value] if isinstance(value, list) else value


def _digest(values: list[Any]) -> bytes:
    return blake2b(json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def cleaning_steps(
    config: DataConfig, cleaning: CleaningConfig, *, out: Path | None = None, dry_run: bool = False
) -> Work[CleanReport]:
    """Clean a file; without `out`, or in a dry run, nothing is written.

    Raises ConfigError or RejectedError before anything is written if the file cannot be read or the copy not be made.
    """
    path, ledger = Path(config.train[0]), ListedRows.of(config)
    table = LabelTable.of({}) if cleaning.labels is None else LabelTable.read(Path(cleaning.labels))
    if cleaning.rare_label is not None and table.renamed(cleaning.rare_label) != cleaning.rare_label:
        raise ConfigError(
            f"{cleaning.labels} renames the label '{cleaning.rare_label}'", fix="choose another --rare-label"
        )
    if cleaning.case == "keep":
        table = table._replace(by_case={})
    file = opened_for_cleaning(config, cleaning, ledger)
    if out is not None:
        require_copy_name(out, path, CLEANED[file.reading.format or "csv"])
    file.require_writable([*table.names, cleaning.rare_label or ""])
    rows, size = list[RowContent](), max(1, path.stat().st_size)
    for record in file.table(ledger).records:
        rows.append(file.content(record))
        if len(rows) % BLOCK_ROWS == 0:
            yield Progress("rows read", len(rows), part=ledger.bytes / size)
    ledger.close()
    decisions = CleaningDecisions(rows, file.one_label, cleaning)
    decisions.decide(table)
    if out is not None:
        decisions.require_rows(path)
    log, changed = ChangeLog(), 0

    def row(number: int, record: Record) -> Mapping[int, Any] | None:
        nonlocal changed
        found, why = _change(file, decisions, log, number, record)
        changed += why
        return found

    def pieces() -> Iterator[bytes]:
        for line in file.lines(row):
            yield line.encode()
        require_state(path, file.state, state_of(path), ledger)  # before the copy gets its name

    if out is None or dry_run:
        for _ in pieces():
            pass
    else:
        write_file(out, pieces())
    named = None if out is None else str(out)
    names = CopyNames(None, named) if dry_run else CopyNames(named)
    return _report(file, decisions, log, ledger, names, changed)


class CopyNames(NamedTuple):
    """The name of the copy that was written, or of the one that a dry run would write."""

    out: str | None
    planned: str | None = None


def opened_for_cleaning(config: DataConfig, cleaning: CleaningConfig, ledger: Ledger) -> CleanTable:
    """The file of these settings; if some options are missing, the error names all of them."""

    def reopened(other: DataConfig) -> DataConfig:
        found = CleanTable(other, cleaning, Ledger(ANY_ROWS))
        return msgspec.structs.replace(found.config, task=found.roles.schema.task)

    try:
        return CleanTable(config, cleaning, ledger)
    except RejectedError as error:
        refuse_completely(config, error, ledger, reopened)


def _change(
    file: CleanTable, decisions: CleaningDecisions, log: ChangeLog, number: int, record: Record
) -> tuple[Mapping[int, Any] | None, bool]:
    """Return the changed cells of a row, or None if it is dropped, and whether the row of the copy is another one."""
    values, line = record.values, record.line
    if why := decisions.dropped[number]:
        columns = file.roles.target if why in LABEL_CHANGES else file.roles.input
        before = [_shown(values[column]) for column in columns]
        if why == "empty":  # which one is missing
            columns = (*file.roles.target, *file.roles.input)
            before = [f"{file.columns[column]}: {label_shown(_shown(values[column] or ''))}" for column in columns]
        log.add(why, number, line, " | ".join(before))
        return None, False
    cells = file.repaired(values)
    for column, value in cells.items():
        if _mapped(values[column], repaired) != values[column]:
            code = "mojibake"
        elif isinstance(value, str) and value == values[column].strip():
            code = "space"
        else:
            code = "line-ends"
        texts = (values[column], value)
        log.add(code, number, line, *(map("'{}'".format, texts) if code == "space" else texts))  # quotes show spaces
    if file.labeled:
        named = file.relabeled(values, decisions.names)
        cells |= named
        codes = {why: None for label in decisions.rows[number].labels for why in decisions.why[label]}
        for column, value in named.items():
            for code in codes or {"spelling": None}:
                log.add(code, number, line, *(label_shown(str(one)) for one in (values[column], value)))
    in_windows = bool(file.windows) and not file.windows.isdisjoint(_lines_of(record))
    if in_windows:
        shown = next((str(value) for value in values if not str(value).isascii()), "")
        log.add("encoding", number, line, "(not UTF-8)", shown)
    return cells, bool(cells) or in_windows


def _shown(value: Any) -> str:
    """A value of a dropped row; the words of a sentence side by side."""
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _report(
    file: CleanTable, decisions: CleaningDecisions, log: ChangeLog, ledger: ListedRows, names: CopyNames, changed: int
) -> CleanReport:
    counts = Counter(label for row in decisions.rows for label in set(row.labels))
    renamed = [
        RenamedLabel(label, name, counts[label], tuple(decisions.why[label]))
        for label, name in decisions.names.items()
        if name != label
    ]
    typos, written = decisions.likely_typos(), decisions.dropped.count("")
    commands = CleanCommands(file.config, file.cleaning, file.reading.format, *names)
    kept = tuple(KeptLabel(label, rows, typos.get(label, "")) for label, rows in decisions.counts().most_common())
    rare = {one.label: one.rows for one in kept if one.is_rare}
    others = sum(not one.is_rare and not one.like for one in kept)
    options = few_rows_options(rare.values(), others, one_label=file.one_label) if rare else ()
    report = CleanReport(
        str(file.path),
        names.out,
        rows=len(decisions.rows),
        written=written,
        changed=changed,
        changes=log.changes(),
        labels=tuple(sorted(renamed, key=lambda one: (one.becomes, -one.rows))),
        conflict_lines=tuple(decisions.rows[number].line for number in decisions.conflicts),
        skipped=tuple(ledger.listed),
        unmatched=decisions.unmatched,
        kept=kept,
        rare=tuple(rare),
        rare_options=options,
        planned=names.planned,
        relabeling=commands.relabeling({} if file.cleaning.labels else typos, options[-1] if options else ""),
    )
    return replace(report, next=commands.next(report.is_clean)) if written else report


def require_copy_name(out: Path, path: Path, suffixes: Sequence[str]) -> None:
    """Raise ConfigError, before any work, if the copy cannot be written here or would replace a file."""
    if out.resolve() == path.resolve() or are_same(out, path):
        raise ConfigError(f"{out} is the file itself, which is never changed", fix="give another name")
    if out.exists() or out.is_symlink():
        raise ConfigError(f"{out} already exists", fix="choose another name, or delete it")
    if out.suffix.lower() not in suffixes:
        raise ConfigError(f"{out}: a copy of {path.name} must end in {' or '.join(suffixes)}", fix="give another name")
    if not out.parent.is_dir():
        raise ConfigError(f"{out}: the folder {out.parent} does not exist", fix="create it first")


@strict
def clean_data(
    data: str | Path,
    *,
    out: str | Path | None = None,
    dry_run: bool | None = None,
    labels: str | Path | None = None,
    case: LabelCase | None = None,
    typo_distance: int | None = None,
    rare: int | None = None,
    rare_label: str | None = None,
    conflicts: Conflicts | None = None,
    repeats: RepeatRule | None = None,
    line_ends: LineEnds | None = None,
    task: Task | None = None,
    input: str | Sequence[str] | None = None,
    target: str | Sequence[str] | None = None,
    label_separator: str | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    skip_bad_rows: bool | None = None,
    max_bad_rows: float | str | None = None,
) -> CleanReport:
    """Write a cleaned copy of a file, and return a report of every change, which a notebook shows as a page.

    Args:
        data: a csv, tsv, jsonl or conll file; it is never changed.
        out: the copy, in the same format (default: nothing is written, and the report says what would change).
        dry_run: write nothing, also not to `out`.

    All other arguments are the options of `seqloom data clean`, with the same names.

    Raises RejectedError if the file cannot be read; its message says where and why.
    """
    given: dict[str, Any] = {"labels": labels, "case": case, "typo_distance": typo_distance, "rare": rare}
    given |= {
        "rare_label": rare_label,
        "conflicts": conflicts,
        "repeats": repeats,
        "line_ends": line_ends,
        "task": task,
        "input": input,
    }
    given |= {"target": target, "label_separator": label_separator, "format": format, "encoding": encoding}
    given |= {"delimiter": delimiter, "header": header, "skip_bad_rows": skip_bad_rows, "max_bad_rows": max_bad_rows}
    named = stated(given)
    config, place = with_flags(DataConfig(train=(str(data),), id=""), named), None if out is None else Path(out)
    return finished(
        cleaning_steps(config, CleaningConfig(**said(CleaningConfig, named)), out=place, dry_run=bool(dry_run))
    )
