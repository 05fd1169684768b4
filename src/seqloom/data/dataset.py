"""A data set: its columns and splits once it was looked at, and the way from records to examples.

DataConfig ──▶ open_data ──▶ Dataset ──▶ rows() ──▶ (part, Example), (part, Example), ...

It is read again for every pass. `make_examples` checks each value against what its column is for, by the kinds of
input and target. What is wrong with one row spoils that row only: it goes to the ledger with its place and is left
out, and `FileSet.rows` closes the ledger when all is read. What can be used but not quite as it stands - a whole number
that float32 rounds, a label written in two ways - is told as a warning.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from seqloom.config.data import (
    PARTS,
    AnySplit,
    BadRows,
    ColumnSplit,
    DataConfig,
    FoldSplit,
    GivenSplit,
    Part,
    RandomSplit,
)
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import (
    Files,
    FileSums,
    files_of,
    is_file,
    is_folder,
    is_there,
    require_apart,
    require_regular,
    require_state,
    states,
    stored,
)
from seqloom.data.readers.folders import PART_NAMES, load_column
from seqloom.data.readers.registry import read_table
from seqloom.data.roles import NEEDS, SPLITS, Roles, find_roles
from seqloom.data.schema import Example, Schema
from seqloom.data.splits import cut_document, divider
from seqloom.data.values import Record, Remarks, Table, Unfit, kind_name, number_of, shown
from seqloom.errors import ConfigError, did_you_mean
from seqloom.report.numbers import share
from seqloom.version import __version__

if TYPE_CHECKING:
    from seqloom.data.synthetic.set import SyntheticSet


class MadeExample(NamedTuple):
    """An example, and the record it was made of, for what only the record knows (its part)."""

    example: Example
    record: Record


def make_examples(table: Table, roles: Roles, ledger: Ledger) -> Iterator[MadeExample]:
    """The examples of a table; rows that cannot be used are counted in the ledger and left out."""
    remarks: Remarks = []
    kind, target = roles.schema.input, roles.schema.target
    read_input, read_target = kind.reader(roles, remarks), target.reader(roles, remarks)
    for record in table.records:
        values = record.values
        try:
            given, wanted = read_input(values), read_target(values)
            if target.of_steps and (count := kind.steps(given)) != len(wanted):
                text, fix = f"{count} tokens, {len(wanted)} {target.thing}s", f"give each token one {target.thing}"
                raise Unfit(roles.target[0], target.length_code, text, fix)
        except Unfit as unfit:
            remarks.clear()
            ledger.rows -= 1  # the reader has counted it as a good one
            ledger.bad_row(unfit.code, unfit.text, table.locate(record, unfit.column), unfit.fix)
            continue
        for column, code, text, fix, times in remarks:
            ledger.warn(code, text, table.locate(record, column), fix, times)
        remarks.clear()
        name = "" if roles.id is None else str(values[roles.id])
        yield MadeExample(Example(given, wanted, name, Place(record.path, record.line)), record)


# Rows of a table as the steps of sequences: neighbouring rows that share a value belong to one sequence.
#
# run,x,y,state          vectors [3,2]             tags
# 7,0.1,0.2,rest    ──▶  [[0.1, 0.2],              rest
# 7,0.3,0.1,walk          [0.3, 0.1],              walk
# 7,0.2,0.0,walk          [0.2, 0.0]]              walk
# 8,...
#
# From here on a row is a sequence: whatever is wrong with a step spoils its sequence, and shares of bad rows are shares
# of sequences. The columns of the id, the part and the group come along; they must have one value in a sequence.

MOST_STEPS = 2**20  # of one sequence: more come of a column that does not change, and memory has an end


class Steps(NamedTuple):
    """What the columns of a table of steps are for, by their numbers."""

    key: int
    numbers: tuple[int, ...]
    target: tuple[int, ...]
    tagged: bool  # whether each step has a tag of its own
    numbered: bool  # whether each step has numbers, its own or those of all
    kept: tuple[int, ...]  # named by the user: one value in a sequence
    split: int | None  # called so: perhaps the part


def in_sequences(table: Table, config: DataConfig, ledger: Ledger) -> Table:
    """A table with a row for each sequence: its vectors, what is wanted of each step or of all, and the rest."""
    assert config.sequence is not None
    needs = NEEDS[config.task]
    if not config.input or not config.target or (len(config.target) > 1 and not needs.numbers):
        raise ConfigError("--sequence needs to know the columns", fix="give --input for each number and one --target")
    rule = config.split
    group = rule.group if isinstance(rule, RandomSplit | FoldSplit) else None
    others = dict.fromkeys([config.id or None, rule.column if isinstance(rule, ColumnSplit) else None, group])
    kept = tuple(_column(table, name) for name in others if name is not None)
    split = None  # a column that is called as one that names parts, where nothing says how to divide the rows
    if rule is None and not config.dev and not config.test:
        lower = [name.lower() for name in table.columns]
        split = next((lower.index(name) for name in SPLITS if name in lower), None)
    steps = Steps(
        _column(table, config.sequence),
        tuple(_column(table, name) for name in config.input),
        tuple(_column(table, name) for name in config.target),
        needs.each_step,
        needs.numbers,
        kept,
        split,
    )
    names = [table.columns[column] for column in (*kept, *(() if split is None else (split,)))]
    names = [", ".join(config.input), ", ".join(config.target), *names]
    return Table(tuple(names), _records(table, steps, ledger))


def _column(table: Table, name: str) -> int:
    if name not in table.columns:
        raise ConfigError(f"no column '{name}'", fix=did_you_mean(name, table.columns))
    return table.columns.index(name)


def _records(table: Table, steps: Steps, ledger: Ledger) -> Iterator[Record]:
    seen: set[str] = set()
    beside = _with_holes(table.records, ledger)
    for name, group in groupby(beside, key=lambda pair: _name(pair[0].values[steps.key])):
        rows, holes = zip(*islice(group, MOST_STEPS + 1), strict=True)
        first = rows[0]
        if len(rows) > MOST_STEPS:
            text = f"sequence {shown(name)} has more than {MOST_STEPS:,} steps"
            fix = "--sequence with a column that names sequences"
            ledger.bad_file("sequence.too_long", text, Place(first.path, first.line), fix)
        ledger.rows -= len(rows)  # the reader has counted steps
        try:
            record = _sequence(rows, steps, lost=any(holes), again=name in seen)
        except _Faulty as fault:
            row, unfit = fault.args
            ledger.bad_row(unfit.code, unfit.text, table.locate(row, unfit.column), unfit.fix)
            continue
        finally:
            seen.add(name)
        ledger.rows += 1
        yield record


def _with_holes(records: Iterator[Record], ledger: Ledger) -> Iterator[tuple[Record, bool]]:
    """Each record, and whether a row just before or behind it could not be read."""
    previous, before = None, False
    while True:
        skipped = ledger.skipped
        record = next(records, None)
        hole = ledger.skipped > skipped
        if previous is not None:
            yield previous, before or hole
        if record is None:
            return
        previous, before = record, hole


class _Faulty(Exception):  # noqa: N818  # a signal inside this module, turned into a bad row
    """A row of a sequence, and what is unfit in it."""


def _name(value: Any) -> str:
    """The name of a sequence; empty for what can be no name."""
    return str(value) if isinstance(value, str | int | float) else ""


def _sequence(rows: Sequence[Record], steps: Steps, *, lost: bool, again: bool) -> Record:
    """The row of one sequence; raises _Faulty at the first thing that is wrong with it."""
    first, key = rows[0], steps.key
    name = first.values[key]
    if not _name(name).strip():
        raise _Faulty(first, Unfit(key, "type.label", f"expected the name of a sequence, got {kind_name(name)}"))
    if again:
        text = f"sequence {shown(name)} goes on after another one"
        raise _Faulty(first, Unfit(key, "sequence.apart", text, "sort the rows by sequence"))
    if lost:
        text = f"a row in or beside sequence {shown(name)} could not be read; a step may be missing"
        raise _Faulty(first, Unfit(key, "sequence.lost", text, "correct that row"))
    vectors = np.array([[_number(row, column) for column in steps.numbers] for row in rows])
    wanted: Any  # numbers or a tag for each step, or the value that all steps have
    if steps.numbered:
        wanted = tuple(tuple(_number(row, column) for column in steps.target) for row in rows)
    elif steps.tagged:
        wanted = tuple(row.values[steps.target[0]] for row in rows)
    else:
        wanted = _shared(rows, steps.target[0], "--task tag for a target per step")
    others = [_shared(rows, column, "give each sequence one value") for column in steps.kept]
    if steps.split is not None:  # where the parts of steps differ, two of them, which is the name of no part
        others.append(", ".join(islice(dict.fromkeys(str(row.values[steps.split]) for row in rows), 2)))
    return Record((vectors, wanted, *others), first.path, first.line)


def _number(row: Record, column: int) -> float:
    try:
        return number_of(row.values[column], column)
    except Unfit as unfit:
        raise _Faulty(row, unfit) from None


def _shared(rows: Sequence[Record], column: int, fix: str) -> Any:
    """The value that all steps have; the first step with another one is at fault."""
    value = rows[0].values[column]
    for row in rows:
        other = row.values[column]
        if type(other) is not type(value) or other != value:
            text = f"a sequence has one value here, and this one has {shown(value)} and {shown(other)}"
            raise _Faulty(row, Unfit(column, "sequence.target", text, fix))
    return value


SAMPLE = 200  # records that are looked at to find out what the columns mean


class Dataset(Protocol):
    """Examples in parts, to be read as often as needed."""

    @property
    def config(self) -> DataConfig:
        """What was asked for, with everything that was inferred filled in."""

    @property
    def schema(self) -> Schema:
        """What its examples consist of."""

    @property
    def said(self) -> tuple[str, ...]:
        """What was inferred, for people."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that may be read; of another one, no row comes out."""

    def rows(self, ledger: Ledger) -> Iterator[tuple[Part, Example]]:
        """Every example of these parts with its part; the ledger is closed at the end."""

    def size(self) -> int:
        """How many bytes there are to read; 0 where nobody knows."""

    def fingerprints(self, *others: Path) -> dict[str, Any]:
        """What a cache and a resumed run compare to see that the data, and other files, are still the same."""


class EmbeddedSet(NamedTuple):
    """A set that a seed writes: it needs no file."""

    config: DataConfig
    source: "SyntheticSet"
    said: tuple[str, ...] = ()
    parts: tuple[Part, ...] = PARTS

    @property
    def schema(self) -> Schema:
        return self.source.schema

    def rows(self, ledger: Ledger) -> Iterator[tuple[Part, Example]]:
        for part in self.parts:
            for example in self.source.examples(part):
                ledger.rows += 1
                yield part, example

    def size(self) -> int:
        return 0

    def fingerprints(self, *others: Path) -> dict[str, Any]:
        """The version that wrote it, and the sums of other files."""
        return {self.source.name: __version__} | FileSums().of(others)


class FileSet(NamedTuple):
    """Files, the meaning of their columns, and the rule that divides them."""

    config: DataConfig
    schema: Schema
    split: AnySplit
    said: tuple[str, ...]
    states: dict[Path, str]  # of every file when the columns were looked at
    parts: tuple[Part, ...]
    sums: FileSums

    def files(self) -> Files:
        """The files of each part that was given and may be read."""
        return {part: paths for part, paths in files_of(self.config).items() if part in self.parts}

    def size(self) -> int:
        """The bytes of the files as they are stored; a folder is not counted."""
        paths = [path for group in self.files().values() for path in group]
        return sum(path.stat().st_size for path in paths if path.is_file())

    def fingerprints(self, *others: Path) -> dict[str, Any]:
        """Size and sha256 of every file, also of those in folders, of those that a table names, and of others."""
        return self.sums.of([*self._every_file(), *others])

    def _every_file(self) -> Iterator[Path]:
        yield from stored(self.files())
        groups = self.files().values() if self.schema.input.in_files else ()  # a column may name files, as of pictures
        for (path,) in (group for group in groups if not is_folder(group[0])):
            table = _open(self.config, (path,), Ledger())
            column = table.columns.index(self.config.input[0])
            names = takewhile(lambda name: isinstance(name, str), (record.values[column] for record in table.records))
            yield from filter(is_file, (path.parent / name for name in names))

    def rows(self, ledger: Ledger) -> Iterator[tuple[Part, Example]]:
        """Every example with its part, in the order of the files; the ledger is closed at the end."""
        for part, paths in self.files().items():
            table = _open(self.config, paths, ledger)
            sample = list(islice(table.records, SAMPLE))
            roles = _roles(self.config, table, sample, ledger)
            roles = roles._replace(schema=self.schema)  # all parts are read as the first; what does not fit is told
            table = table._replace(records=chain(sample, table.records))
            if self.schema.input.in_files:
                table = load_column(table, roles.input[0], self.schema.input, ledger)
            made = make_examples(table, roles, ledger)
            divided = self._divided(part, made, table, roles, ledger)
            yield from (row for row in divided if row[0] in self.parts)
        now = states(self._every_file())  # files may have been written, added or taken away meanwhile
        for path in dict.fromkeys([*self.states, *now]):
            require_state(path, self.states.get(path, "nothing"), now.get(path, "nothing"), ledger)
        ledger.close()

    def _divided(
        self, part: Part, made: Iterator[MadeExample], table: Table, roles: Roles, ledger: Ledger
    ) -> Iterator[tuple[Part, Example]]:
        """Each example of a part's files with the part that the split gives it."""
        split = self.split
        if isinstance(split, ColumnSplit):
            assert roles.split is not None
            for example, record in made:
                name = str(record.values[roles.split])
                if (named := PART_NAMES.get(name.lower())) is not None:
                    yield named, example
                    continue
                ledger.rows -= 1
                place, fix = table.locate(record, roles.split), did_you_mean(name, PART_NAMES)
                ledger.bad_row("split.unknown", f"no part is called '{name}'", place, fix)
        elif part != "train" or not isinstance(split, RandomSplit | FoldSplit):
            yield from ((part, example) for example, _ in made)
        elif self.schema.target.is_running and self.config.reading.unit == "file":
            for example, _ in made:
                yield from cut_document(example, split)
        else:
            group = None if split.group is None else table.columns.index(split.group)
            part_of = divider(split, self.schema)
            for example, record in made:
                yield part_of(example, None if group is None else record.values[group]), example


def open_data(config: DataConfig, ledger: Ledger, parts: tuple[Part, ...] = PARTS) -> Dataset:
    """A data set whose columns, task and split are known: given, or inferred from the first rows and said.

    Only the named parts may be read: files of the others stay shut, and their rows in a divided file are let go.
    """
    name = config.train[0] if len(config.train) == 1 else ""
    if not name or is_there(Path(name)):
        return _open_files(config, ledger, parts)
    from seqloom.data.sources import SOURCES, require_known, resolve  # loaded when a name asks for a set
    from seqloom.data.synthetic.registry import NAMES

    if name in NAMES:
        _require_no_settings(config, NAMES[name])
        return EmbeddedSet(config, NAMES[name], (f"data: the embedded set '{name}'",), parts)
    resolved = resolve(config)
    if resolved is config and name.isidentifier():
        known = did_you_mean(name, [*NAMES, *SOURCES])
        fix = known if known.startswith("did you") else "check the path, or see `seqloom data list`"
        ledger.bad_file("file.missing", "no file and no data set has this name", Place(name), fix)
    if resolved is config:
        return _open_files(config, ledger, parts)
    require_known(name, resolved, ledger)
    left_out = f"split: the folds of train are the dev parts, and the dev part of '{name}' is not read"
    said = (left_out,) if "dev" in SOURCES[name].files and not resolved.dev else ()
    return _open_files(resolved, ledger, parts, said)


def _require_no_settings(config: DataConfig, source: "SyntheticSet") -> None:
    """Refuse to say how an embedded set is read or divided: its seed has decided. Its own task may be named."""
    own = {"train": config.train, "task": source.task, "bad_rows": config.bad_rows}  # none of its rows is bad
    for field in msgspec.structs.fields(config):
        given = getattr(config, field.name)
        if given not in (field.default, own.get(field.name, field.default)):
            fixed = f"its parts and columns are fixed, its task is {source.task}"
            text = f"the set '{source.name}' is embedded: {fixed}, and '{field.name}' is given"
            raise ConfigError(text, fix=f"leave '{field.name}' out")


def _open_files(config: DataConfig, ledger: Ledger, parts: tuple[Part, ...], before: tuple[str, ...] = ()) -> FileSet:
    files = files_of(config)
    require_apart(files, ledger)
    paths, first = files["train"], states(stored({part: files[part] for part in files if part in parts}))
    peeking = Ledger(BadRows(skip=True, share=1.0))  # what is bad is told when all is read
    table = _open(config, paths, peeking)
    sample = list(islice(table.records, SAMPLE))
    if not sample:
        # Say why there is not one row that could be looked at.
        path = paths[0]
        peeking.bad_rows = BadRows()
        peeking.close()
        ledger.bad_file("data.no_rows", "there are no rows in the file", Place(str(path)), "give a file with rows")
    roles = _roles(config, table, sample, ledger)
    split = config.split
    if split is None:  # the files, a column named for it, or a seeded draw of what is missing
        usual = GivenSplit() if config.dev else RandomSplit()
        split = usual if roles.split is None else ColumnSplit(column=table.columns[roles.split])
    split = _drawn_only(split, config)
    said = (*before, *roles.said, *(() if config.split == split else (f"split: {_described(split)}",)))
    known = {
        "input": tuple(table.columns[column] for column in roles.input),
        "target": tuple(table.columns[column] for column in roles.target),
        "task": roles.schema.task,
        "split": split,
    }
    if config.sequence is not None:
        known |= {"input": config.input, "target": config.target}
    dataset = FileSet(msgspec.structs.replace(config, **known), roles.schema, split, said, first, parts, FileSums())
    return dataset._replace(states=states(dataset._every_file()) | first)  # those that a table names are known only now


def _drawn_only(split: AnySplit, config: DataConfig) -> AnySplit:
    """The same rule, drawing no part that is given as a file."""
    if isinstance(split, FoldSplit) and config.dev:
        text = "a fold is the dev part, and files are given for dev as well"
        raise ConfigError(text, fix="leave out the files for dev, or the fold")
    if not isinstance(split, RandomSplit):
        return split
    given = {part: 0.0 for part, paths in (("dev", config.dev), ("test", config.test)) if paths}
    return msgspec.structs.replace(split, **given)


def _open(config: DataConfig, paths: tuple[Path, ...], ledger: Ledger) -> Table:
    table = read_table(paths, config.reading, ledger)
    return table if config.sequence is None else in_sequences(table, config, ledger)


def _roles(config: DataConfig, table: Table, sample: list[Record], ledger: Ledger) -> Roles:
    """What the columns mean; in a table of sequences they are the vectors and their target."""
    if config.sequence is not None:
        config = msgspec.structs.replace(config, input=table.columns[:1], target=table.columns[1:2])
    return find_roles(config, table.columns, table.named, sample, ledger)


def _described(split: AnySplit) -> str:
    if isinstance(split, RandomSplit):
        shares = {"dev": split.dev, "test": split.test}
        drawn = " and ".join(f"{share(part)} {name}" for name, part in shares.items() if part)
        rest = "".join(f"; {name} is given" for name, part in shares.items() if not part)
        return (
            f"{drawn} drawn from train with seed {split.seed}{rest}" if drawn else "the given files; nothing is drawn"
        )
    return f"column '{split.column}'" if isinstance(split, ColumnSplit) else "the given files"


# Data whose test part stays shut: training and tuning open it here, and so cannot choose by what they never see.
#
#     test files              their names are kept for `seqloom evaluate --test`, their bytes are summed, no row is read
#     a drawn or named part   its rows stand among the others; they are let go as soon as the split has named them,
#                             before a check, a tokeniser or a count sees them
#
# So what is wrong in a test file, or in common between test and train, is told by whoever may look: `seqloom data
# check` before training, `seqloom evaluate --test` after it.

OPEN: tuple[Part, ...] = ("train", "dev")


def open_sealed(config: DataConfig, ledger: Ledger) -> Dataset:
    """A data set that yields no row of its test part; test files must be there, and are not read."""
    dataset = open_data(config, ledger, OPEN)
    for path in files_of(dataset.config).get("test", ()):
        if not is_folder(path):
            require_regular(path, ledger)
    return dataset


def every_sum(dataset: Dataset) -> dict[str, Any]:
    """What a run that goes on compares: the sums of all that is read, and those of the test files."""
    files = files_of(dataset.config)
    return dataset.fingerprints(*stored({"test": files["test"]} if "test" in files else {}))
