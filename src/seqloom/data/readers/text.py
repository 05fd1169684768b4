"""Plain text: each line, paragraph or file is one row; or two files of parallel text, source and target.

A blank line between lines of text is skipped and counted (poems, the Penn Treebank); with a template it is a bad row. A
paragraph ends at a blank line. A file that is one row keeps all of its characters, including line ends.

A template splits a line at the marks between the fields: "IN: {source} OUT: {target}". Each field ends at the first
occurrence of the next mark; the last field takes the rest. There is no backtracking, so the time is linear in the line.

>>> template = Template.parse("IN: {source} OUT: {target}")
>>> template.fields, template.cut("IN: jump twice OUT: I_JUMP I_JUMP")
(('source', 'target'), ('jump twice', 'I_JUMP I_JUMP'))
"""

from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple, NoReturn

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import require_regular
from seqloom.data.readers.passages import lines_of, open_passages
from seqloom.data.values import Record, Table
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

LARGEST_FILE = 1 << 30  # characters, read as one row
LARGEST_PARAGRAPH = 16 << 20  # characters
EXAMPLE = "write names in braces with marks between them: '{label} {text}'"
SIDES = ("source", "target")


class NoFit(NamedTuple):
    """Why a line does not match: the missing mark, and from which character on (counted from 0)."""

    mark: str
    start: int


class Template(NamedTuple):
    """Field names, the text before the first, and the mark after each; the last mark ends the line."""

    fields: tuple[str, ...]
    before: str
    marks: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Template":
        r"""Parse a template; `\t` in two characters means a tab."""
        before, *parts = text.replace("\\t", "\t").split("{")
        fields, marks = [], []
        for part in parts:
            name, brace, mark = part.partition("}")
            if not brace or not name.strip() or "}" in mark:
                raise ConfigError(f"the braces of the template '{text}' do not match", fix=EXAMPLE)
            fields.append(name)
            marks.append(mark)
        if not fields or "}" in before:
            raise ConfigError(f"the template '{text}' has no field", fix=EXAMPLE)
        if "" in marks[:-1]:
            behind = fields[marks.index("") + 1]
            raise ConfigError(f"the template '{text}' has no mark before '{{{behind}}}'", fix=EXAMPLE)
        if twice := [name for name in fields if fields.count(name) > 1]:
            raise ConfigError(f"the template '{text}' names '{twice[0]}' twice", fix="give each field its own name")
        if any(end in text for end in "\r\n"):
            raise ConfigError("the template contains a line end", fix="remove it: a template describes one line")
        return cls(tuple(fields), before, tuple(marks))

    def cut(self, line: str) -> tuple[str, ...] | NoFit:
        """The fields of a line, or `NoFit`."""
        if not line.startswith(self.before):
            return NoFit(self.before, 0)
        at, fields = len(self.before), []
        for mark in self.marks[:-1]:
            stop = line.find(mark, at)
            if stop < 0:
                return NoFit(mark, at)
            fields.append(line[at:stop])
            at = stop + len(mark)
        last = self.marks[-1]
        if not line.endswith(last) or len(line) - len(last) < at:
            return NoFit(last, at)
        fields.append(line[at : len(line) - len(last)])
        return tuple(fields)

    def start(self, fields: tuple[str, ...], column: int) -> int:
        """The start of a field in the line with these fields, counted from 0."""
        return len(self.before) + sum(len(fields[n]) + len(self.marks[n]) for n in range(column))


def read(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of one text file: the column "text", or the fields of the template."""
    (path,) = paths
    if reading.template is None:
        units = {"line": _lines, "paragraph": _paragraphs, "file": _file}
        return Table(("text",), _at_least_one(units[reading.unit or "line"](path, reading, ledger), path, ledger))
    if reading.unit not in (None, "line"):
        raise ConfigError(f"--template is for lines, but --unit is {reading.unit}", fix="leave out one of the two")
    template = Template.parse(reading.template)

    def locate(record: Record, column: int) -> Place:
        return Place(record.path, record.line, template.start(record.values, column) + 1)

    return Table(template.fields, _cut_lines(path, template, reading, ledger), locate)


def _at_least_one(records: Iterator[Record], path: Path, ledger: Ledger) -> Iterator[Record]:
    """Yield the same records, counted; raise RejectedError if there are none."""
    empty = True
    for record in records:
        empty = False
        ledger.rows += 1
        yield record
    if empty:
        ledger.bad_file("data.empty", "there is no text in the file", Place(str(path)), "give a file with text")


def _lines(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[Record]:
    name = str(path)
    for number, line in lines_of(path, reading, ledger):
        if line and not line.isspace():
            yield Record((line,), name, number)
        else:
            ledger.blank_line(Place(name, number))


def _paragraphs(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[Record]:
    parts: list[str] = []
    begin = size = 0
    for number, line in chain(lines_of(path, reading, ledger), [(0, "")]):  # the end of the file ends a paragraph
        if not line or line.isspace():
            if parts:
                yield Record(("\n".join(parts),), str(path), begin)
            parts, size = [], 0
            continue
        begin = begin if parts else number
        parts.append(line)
        size += len(line)
        if size > LARGEST_PARAGRAPH:
            place = Place(str(path), begin)
            _refuse_size("a paragraph", LARGEST_PARAGRAPH, "separate paragraphs by blank lines", place, ledger)


def _file(path: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[Record]:
    text = whole_text(path, reading, ledger)
    if text and not text.isspace():
        yield Record((text,), str(path), 1)


def _cut_lines(path: Path, template: Template, reading: ReadingConfig, ledger: Ledger) -> Iterator[Record]:
    name, number, cut = str(path), 0, template.cut
    for number, line in lines_of(path, reading, ledger):
        fields = cut(line)
        if isinstance(fields, NoFit):
            text = f"expected '{fields.mark}' from here on" if line.strip() else "a blank line"
            text, place = f"{text}; the template is '{reading.template}'", Place(name, number, fields.start + 1)
            ledger.bad_row("text.template", text, place, "correct the line or the template")
        else:
            ledger.rows += 1
            yield Record(fields, name, number)
    if not number:
        ledger.bad_file("data.empty", "the file is empty", Place(name), "give a file with rows")


def whole_text(path: Path, reading: ReadingConfig, ledger: Ledger) -> str:
    """All characters of a file."""
    pieces, size = [], 0
    for passage in open_passages(path, reading, ledger, longest=LARGEST_FILE):
        pieces.append(passage.text)
        size += len(passage.text)
        if size > LARGEST_FILE:
            _refuse_size("a file", LARGEST_FILE, "read it line by line with --unit line", Place(str(path)), ledger)
    return "".join(pieces)


def _refuse_size(what: str, limit: int, fix: str, place: Place, ledger: Ledger) -> None:
    ledger.bad_file("text.too_long", f"{what} of more than {limit >> 20:,} MiB, the limit for one row", place, fix)


def read_parallel(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of two files, with the columns source and target; the path of a record is that of the source."""
    source, target = paths
    for path in paths:
        require_regular(path, ledger)
    if source.samefile(target):
        _refuse_same("source and target are the same file", target, ledger)

    def locate(record: Record, column: int) -> Place:
        return Place(str(paths[column]), record.line, 1)

    return Table(SIDES, _pairs(source, target, reading, ledger), locate)


def _pairs(source: Path, target: Path, reading: ReadingConfig, ledger: Ledger) -> Iterator[Record]:
    """Yield the pairs of lines; both files are read to the end, so that an error has both counts."""
    name, counts, differ = str(source), [0, 0], False
    for one, other in zip_longest(lines_of(source, reading, ledger), lines_of(target, reading, ledger)):
        if one is None or other is None:
            counts[int(one is None)] += 1  # of the longer side alone
            continue
        (number, first), (_, second) = one, other
        differ = differ or first != second
        counts = [number, number]
        if first and second and not first.isspace() and not second.isspace():
            ledger.rows += 1
            yield Record((first, second), name, number)
        else:
            side = 0 if not first.strip() else 1
            text = f"a blank {SIDES[side]} line" if first.strip() or second.strip() else "a blank line on both sides"
            place = Place(str((source, target)[side]), number)
            ledger.bad_row("par.blank", text, place, "remove this line from both files")
    if counts == [0, 0]:
        ledger.bad_file("data.empty", "both files are empty", Place(name), "give files with text")
    if counts[0] != counts[1]:
        text = f"{counted(counts[0], 'line')}, but {counts[1]:,} in {target}"
        fix = "make line n of one file the translation of line n of the other"
        ledger.bad_file("par.count", text, Place(name, min(counts) + 1), fix)
    if not differ:
        _refuse_same("every line is the same in source and target", target, ledger)


def _refuse_same(text: str, path: Path, ledger: Ledger) -> NoReturn:
    ledger.bad_file("par.same_file", text, Place(str(path)), "give the source and its translation")
