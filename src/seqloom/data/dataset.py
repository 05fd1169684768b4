"""A dataset: its columns and splits, and the way from records to examples.

DataConfig ──▶ open_data ──▶ Dataset ──▶ rows() ──▶ (split, Example), (split, Example), ...

It is read again for every pass. `make_blocks` checks each value with the kinds of input and target. A bad value
affects only its row: the row is left out and goes to the ledger with its place. After the last row `FileSet.rows`
closes the ledger, which raises an error if more rows are bad than the user allows. A value that can be used with a
reservation - an integer that float32 rounds, a label written in two ways - gives a warning.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice, repeat, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from seqloom.config.data import (
    ANY_ROWS,
    SPLITS,
    AnySplit,
    BadRows,
    ColumnSplit,
    DataConfig,
    FoldSplit,
    GivenSplit,
    RandomSplit,
    SplitName,
)
from seqloom.data.problems import Ledger, Place
from seqloom.data.proposal import refuse_completely
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
from seqloom.data.readers.folders import SPLIT_NAMES, load_column
from seqloom.data.readers.guess import guess
from seqloom.data.readers.registry import read_table
from seqloom.data.roles import NEEDS, SPLIT_COLUMNS, Roles, find_roles
from seqloom.data.schema import Example, Schema
from seqloom.data.splits import cut_document, divider
from seqloom.data.values import BadValue, Read, Record, Remarks, Table, kind_name, number_of, shown
from seqloom.errors import ConfigError, RejectedError, did_you_mean
from seqloom.report.numbers import share
from seqloom.version import __version__

if TYPE_CHECKING:
    from seqloom.data.synthetic.set import SyntheticSet


class MadeExample(NamedTuple):
    """An example and the record it was made of, which may hold its split and its group."""

    example: Example
    record: Record


class MadeBlock(NamedTuple):
    """Examples and the records they were made of; while they are made, nothing is reported."""

    examples: Sequence[Example]
    records: Sequence[Record]


def make_examples(table: Table, roles: Roles, ledger: Ledger) -> Iterator[MadeExample]:
    """Yield the examples of a table; bad rows are counted in the ledger and skipped."""
    return (MadeExample(*one) for block in make_blocks(table, roles, ledger) for one in zip(*block, strict=True))


def make_blocks(table: Table, roles: Roles, ledger: Ledger) -> Iterator[MadeBlock]:
    """Yield the same in blocks. A block of the reader is read by columns if no row of it needs a message."""
    remarks: Remarks = []
    (read_input, inputs_of), (read_target, targets_of) = (
        kind.readers(roles, remarks) for kind in (roles.schema.input, roles.schema.target)
    )
    for records in table.in_blocks():
        rows = [record.values for record in records]
        inputs = inputs_of(rows) if len(rows) > 1 else None
        targets = None if inputs is None else targets_of(rows)
        if inputs is not None and targets is not None:
            names = repeat(None) if roles.id is None else (str(values[roles.id]) for values in rows)
            places = [Place(record.path, record.line) for record in records]
            yield MadeBlock(list(map(Example, inputs, targets, names, places)), records)
            continue
        for record in records:
            made = _made(record, read_input, read_target, table, roles, remarks, ledger)
            if made is not None:
                yield MadeBlock([made], [record])


def _made(
    record: Record, read_input: Read, read_target: Read, table: Table, roles: Roles, remarks: Remarks, ledger: Ledger
) -> Example | None:
    """The example of a record, or None if it is bad; what is to be said about it goes to the ledger."""
    kind, target = roles.schema.input, roles.schema.target
    try:
        given, wanted = read_input(record.values), read_target(record.values)
        if target.of_steps and (count := kind.steps(given)) != len(wanted):
            text, fix = f"{count} tokens, but {len(wanted)} {target.noun}s", f"give each token one {target.noun}"
            raise BadValue(roles.target[0], target.length_code, text, fix)
    except BadValue as bad:
        remarks.clear()
        ledger.rows -= 1  # the reader has counted it as a good row
        place = table.locate(record, bad.column)
        ledger.bad_row(bad.code, bad.text, place, ledger.or_clean_and_skip(bad.fix, place.path))
        return None
    for column, code, text, fix, times in remarks:
        ledger.warn(code, text, table.locate(record, column), fix, times)
    remarks.clear()
    name = None if roles.id is None else str(record.values[roles.id])
    return Example(given, wanted, name, Place(record.path, record.line))


# Rows of a table as the steps of sequences: consecutive rows with the same value form one sequence.
#
# run,x,y,state          vectors [3,2]             tags
# 7,0.1,0.2,rest    ──▶  [[0.1, 0.2],              rest
# 7,0.3,0.1,walk          [0.3, 0.1],              walk
# 7,0.2,0.0,walk          [0.2, 0.0]]              walk
# 8,...
#
# From here on a row is a sequence: a bad step makes its sequence a bad row, and shares of bad rows count sequences. The
# columns of the id, the split and the group are kept; they must have one value per sequence.

MOST_STEPS = 2**20  # of one sequence: more would mean a column that never changes


class Steps(NamedTuple):
    """The roles of the columns of a table of steps, by column number."""

    key: int
    numbers: tuple[int, ...]
    target: tuple[int, ...]
    tagged: bool  # whether each step has its own tag
    numbered: bool  # whether targets are numbers, per step or per sequence
    kept: tuple[int, ...]  # named by the user: one value per sequence
    split: int | None  # a column with the name of a split column


def in_sequences(table: Table, config: DataConfig, ledger: Ledger) -> Table:
    """Return a table with a row for each sequence: its vectors, its target or targets, and the other columns."""
    assert config.sequence is not None
    needs = NEEDS[config.task]
    if not config.input or not config.target or (len(config.target) > 1 and not needs.numbers):
        fix = "give --input for each column of numbers, and one --target"
        raise ConfigError("--sequence needs the names of the columns", fix=fix)
    rule = config.split
    group = rule.group if isinstance(rule, RandomSplit | FoldSplit) else None
    others = dict.fromkeys([config.id or None, rule.split_column if isinstance(rule, ColumnSplit) else None, group])
    kept = tuple(_column(table, name) for name in others if name is not None)
    split = None  # a column with the name of a split column, if no other split is given
    if rule is None and not config.dev and not config.test:
        lower = [name.lower() for name in table.columns]
        split = next((lower.index(name) for name in SPLIT_COLUMNS if name in lower), None)
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
            fix = "give --sequence a column that identifies sequences"
            ledger.bad_file("sequence.too_long", text, Place(first.path, first.line), fix)
        ledger.rows -= len(rows)  # the reader has counted steps
        try:
            record = _sequence(rows, steps, lost=any(holes), again=name in seen)
        except _Faulty as fault:
            row, bad = fault.args
            ledger.bad_row(bad.code, bad.text, table.locate(row, bad.column), bad.fix)
            continue
        finally:
            seen.add(name)
        ledger.rows += 1
        yield record


def _with_holes(records: Iterator[Record], ledger: Ledger) -> Iterator[tuple[Record, bool]]:
    """Yield each record, and whether a row directly before or after it could not be read."""
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
    """A row of a sequence, and the bad value in it."""


def _name(value: Any) -> str:
    """The name of a sequence; empty if the value cannot be a name."""
    return str(value) if isinstance(value, str | int | float) else ""


def _sequence(rows: Sequence[Record], steps: Steps, *, lost: bool, again: bool) -> Record:
    """The row of one sequence; raises _Faulty at the first problem."""
    first, key = rows[0], steps.key
    name = first.values[key]
    if not _name(name).strip():
        raise _Faulty(first, BadValue(key, "type.label", f"expected the name of a sequence, got {kind_name(name)}"))
    if again:
        text = f"sequence {shown(name)} continues after another sequence"
        raise _Faulty(first, BadValue(key, "sequence.apart", text, "sort the rows by sequence"))
    if lost:
        text = f"a row in or next to sequence {shown(name)} could not be read, so a step may be missing"
        raise _Faulty(first, BadValue(key, "sequence.lost", text, "correct that row"))
    vectors = np.array([[_number(row, column) for column in steps.numbers] for row in rows])
    wanted: Any  # numbers or a tag for each step, or one value for all
    if steps.numbered:
        wanted = tuple(tuple(_number(row, column) for column in steps.target) for row in rows)
    elif steps.tagged:
        wanted = tuple(row.values[steps.target[0]] for row in rows)
    else:
        wanted = _shared(rows, steps.target[0], "use --task tag for a target per step")
    others = [_shared(rows, column, "give each sequence one value") for column in steps.kept]
    if steps.split is not None:  # steps of two splits give "train, dev", which is not a split
        others.append(", ".join(islice(dict.fromkeys(str(row.values[steps.split]) for row in rows), 2)))
    return Record((vectors, wanted, *others), first.path, first.line)


def _number(row: Record, column: int) -> float:
    try:
        return number_of(row.values[column], column)
    except BadValue as bad:
        raise _Faulty(row, bad) from None


def _shared(rows: Sequence[Record], column: int, fix: str) -> Any:
    """The value that all steps share; the first step with another one raises _Faulty."""
    value = rows[0].values[column]
    for row in rows:
        other = row.values[column]
        if type(other) is not type(value) or other != value:
            text = f"expected one value per sequence, found {shown(value)} and {shown(other)}"
            raise _Faulty(row, BadValue(column, "sequence.target", text, fix))
    return value


SAMPLE = 200  # records that are read to infer the columns and the task


class Dataset(Protocol):
    """Examples in splits, which can be read any number of times."""

    @property
    def config(self) -> DataConfig:
        """The configuration, with all inferred settings filled in."""

    @property
    def schema(self) -> Schema:
        """The kinds of input and target of its examples."""

    @property
    def messages(self) -> tuple[str, ...]:
        """Lines that say what was inferred."""

    @property
    def splits(self) -> tuple[SplitName, ...]:
        """The splits that may be read; rows of the others are not yielded."""

    def rows(self, ledger: Ledger) -> Iterator[tuple[SplitName, Example]]:
        """Yield every example of these splits with its split, and close the ledger at the end."""

    def size(self) -> int:
        """The number of bytes to read; 0 if unknown."""

    def fingerprints(self, *others: Path) -> dict[str, Any]:
        """Fingerprints of the data and other files, by which a cache and a resumed run see that nothing changed."""


class EmbeddedSet(NamedTuple):
    """An embedded dataset, generated from a seed; it needs no file."""

    config: DataConfig
    source: "SyntheticSet"
    messages: tuple[str, ...] = ()
    splits: tuple[SplitName, ...] = SPLITS

    @property
    def schema(self) -> Schema:
        return self.source.schema

    def rows(self, ledger: Ledger) -> Iterator[tuple[SplitName, Example]]:
        for part in self.splits:
            for example in self.source.examples(part):
                ledger.rows += 1
                yield part, example

    def size(self) -> int:
        return 0

    def fingerprints(self, *others: Path) -> dict[str, Any]:
        """The version that generates it, and the fingerprints of other files."""
        return {self.source.name: __version__} | FileSums().of(others)


class FileSet(NamedTuple):
    """Files, the roles of their columns, and how they are split."""

    config: DataConfig
    schema: Schema
    split: AnySplit
    messages: tuple[str, ...]
    states: dict[Path, str]  # of every file when it was opened
    splits: tuple[SplitName, ...]
    sums: FileSums

    def files(self) -> Files:
        """The files of each split that is given and may be read."""
        return {part: paths for part, paths in files_of(self.config).items() if part in self.splits}

    def size(self) -> int:
        """The bytes of the stored files; folders are not counted."""
        paths = [path for group in self.files().values() for path in group]
        return sum(path.stat().st_size for path in paths if path.is_file())

    def fingerprints(self, *others: Path) -> dict[str, Any]:
        """Size and sha256 of every file, including those in folders, those named in a table, and `others`."""
        return self.sums.of([*self._every_file(), *others])

    def _every_file(self) -> Iterator[Path]:
        yield from stored(self.files())
        groups = self.files().values() if self.schema.input.in_files else ()  # a column may name picture files
        for (path,) in (group for group in groups if not is_folder(group[0])):
            table = _open(self.config, (path,), Ledger())
            column = table.columns.index(self.config.input[0])
            names = takewhile(lambda name: isinstance(name, str), (record.values[column] for record in table.records))
            yield from filter(is_file, (path.parent / name for name in names))

    def rows(self, ledger: Ledger) -> Iterator[tuple[SplitName, Example]]:
        """Yield every example with its split, in the order of the files, and close the ledger at the end."""
        for part, paths in self.files().items():
            table = _open(self.config, paths, ledger)
            first, sample, blocks = list[Sequence[Record]](), list[Record](), table.in_blocks()
            while len(sample) < SAMPLE and (block := next(blocks, None)) is not None:
                first.append(block)
                sample += block
            roles = _roles(self.config, table, sample[:SAMPLE], ledger)
            roles = roles._replace(schema=self.schema)  # all splits are read like the first
            blocks = chain(first, blocks)
            table = table._replace(records=chain.from_iterable(blocks), blocks=blocks)
            if self.schema.input.in_files:
                table = load_column(table, roles.input[0], self.schema.input, ledger)
            made = make_blocks(table, roles, ledger)
            divided = self._divided(part, made, table, roles, ledger)
            yield from (row for row in divided if row[0] in self.splits)
        now = states(self._every_file())  # files may have been written, added or removed meanwhile
        for path in dict.fromkeys([*self.states, *now]):
            require_state(path, self.states.get(path, "nothing"), now.get(path, "nothing"), ledger)
        ledger.close()

    def _divided(
        self, part: SplitName, made: Iterator[MadeBlock], table: Table, roles: Roles, ledger: Ledger
    ) -> Iterator[tuple[SplitName, Example]]:
        """Yield each example of these files with its split."""
        split = self.split
        if isinstance(split, ColumnSplit):
            assert roles.split is not None
            for example, record in chain.from_iterable(zip(*block, strict=True) for block in made):
                name = str(record.values[roles.split])
                if (named := SPLIT_NAMES.get(name.lower())) is not None:
                    yield named, example
                    continue
                ledger.rows -= 1
                place, fix = table.locate(record, roles.split), did_you_mean(name, SPLIT_NAMES)
                ledger.bad_row("split.unknown", f"expected train, dev or test, found '{name}'", place, fix)
        elif part != "train" or not isinstance(split, RandomSplit | FoldSplit):
            yield from zip(repeat(part), chain.from_iterable(block.examples for block in made))
        elif self.schema.target.is_running and self.config.reading.unit == "file":
            for example in chain.from_iterable(block.examples for block in made):
                yield from cut_document(example, split)
        else:
            group = None if split.group is None else table.columns.index(split.group)
            part_of = divider(split, self.schema)
            for examples, records in made:
                groups = repeat(None) if group is None else (record.values[group] for record in records)
                yield from zip(map(part_of, examples, groups), examples, strict=True)


def open_data(config: DataConfig, ledger: Ledger, parts: tuple[SplitName, ...] = SPLITS) -> Dataset:
    """Open a dataset: columns, task and split are given, or inferred from the first rows and reported in `messages`.

    Only the splits in `parts` may be read: files of the others are not opened, and their rows in a common file are
    skipped. If the data is refused although some options would open it, the error names all of them.
    """
    try:
        return _open_data(config, ledger, parts)
    except RejectedError as error:
        refuse_completely(config, error, ledger, lambda other: _open_data(other, Ledger(ANY_ROWS), parts).config)


def _open_data(config: DataConfig, ledger: Ledger, parts: tuple[SplitName, ...]) -> Dataset:
    name = config.train[0] if len(config.train) == 1 else ""
    if not name or is_there(Path(name)):
        return _open_files(config, ledger, parts)
    from seqloom.data.sources import SOURCES, require_known, resolve  # imported only if a named set is used
    from seqloom.data.synthetic.registry import NAMES

    if name in NAMES:
        _require_no_settings(config, NAMES[name])
        return EmbeddedSet(config, NAMES[name], (f"data: the built-in dataset '{name}'",), parts)
    resolved = resolve(config)
    if resolved is config and name.isidentifier():
        known = did_you_mean(name, [*NAMES, *SOURCES])
        fix = known if known.startswith("did you") else "check the path, or see `seqloom data list`"
        ledger.bad_file("file.missing", "there is no file or dataset of this name", Place(name), fix)
    if resolved is config:
        return _open_files(config, ledger, parts)
    require_known(name, resolved, ledger)
    left_out = f"split: a fold of train is the dev set; the dev file of '{name}' is not read"
    messages = (left_out,) if "dev" in SOURCES[name].files and not resolved.dev else ()
    return _open_files(resolved, ledger, parts, messages)


def _require_no_settings(config: DataConfig, source: "SyntheticSet") -> None:
    """Raise ConfigError for settings that an embedded set does not take. Its own task may be given."""
    own = {"train": config.train, "task": source.task, "bad_rows": config.bad_rows}  # it has no bad rows
    for field in msgspec.structs.fields(config):
        given = getattr(config, field.name)
        if given not in (field.default, own.get(field.name, field.default)):
            fixed = f"its splits and columns are fixed, and its task is {source.task}"
            text = f"the built-in dataset '{source.name}' has no setting '{field.name}': {fixed}"
            raise ConfigError(text, fix=f"leave out '{field.name}'")


def _open_files(
    config: DataConfig, ledger: Ledger, parts: tuple[SplitName, ...], before: tuple[str, ...] = ()
) -> FileSet:
    files = files_of(config)
    require_apart(files, ledger)
    needs = NEEDS[config.task]
    reading, guessed = guess(config, ledger, words=needs.each_step, prose=needs.documents)
    config, before = msgspec.structs.replace(config, reading=reading), (*before, *guessed)
    paths, first = files["train"], states(stored({part: files[part] for part in files if part in parts}))
    peeking = Ledger(ANY_ROWS)  # bad rows are reported when all is read
    table = _open(config, paths, peeking)
    sample = list(islice(table.records, SAMPLE))
    if not sample:
        # Report why there is no good row.
        path = paths[0]
        peeking.bad_rows = BadRows()
        peeking.close()
        ledger.bad_file("data.no_rows", "there are no rows in the file", Place(str(path)), "give a file with rows")
    roles = _roles(config, table, sample, ledger)
    split = config.split
    if split is None:  # the given files, a split column, or a random split for the missing ones
        default = GivenSplit() if config.dev else RandomSplit()
        split = default if roles.split is None else ColumnSplit(split_column=table.columns[roles.split])
    split = _drawn_only(split, config)
    messages = (*before, *roles.messages, *(() if config.split == split else (f"split: {_described(split)}",)))
    known = {
        "input": tuple(table.columns[column] for column in roles.input),
        "target": tuple(table.columns[column] for column in roles.target),
        "task": roles.schema.task,
        "split": split,
    }
    if config.sequence is not None:
        known |= {"input": config.input, "target": config.target}
    dataset = FileSet(msgspec.structs.replace(config, **known), roles.schema, split, messages, first, parts, FileSums())
    return dataset._replace(states=states(dataset._every_file()) | first)  # files named in a table are known only now


def _drawn_only(split: AnySplit, config: DataConfig) -> AnySplit:
    """The same split without the sets that are given as files."""
    if isinstance(split, FoldSplit) and config.dev:
        text = "--fold uses a fold of the training data as the dev set, but --dev is also given"
        raise ConfigError(text, fix="leave out --dev or --fold")
    if not isinstance(split, RandomSplit):
        return split
    given = {size: 0.0 for size, paths in (("dev_size", config.dev), ("test_size", config.test)) if paths}
    return msgspec.structs.replace(split, **given)


def _open(config: DataConfig, paths: tuple[Path, ...], ledger: Ledger) -> Table:
    table = read_table(paths, config.reading, ledger)
    return table if config.sequence is None else in_sequences(table, config, ledger)


def _roles(config: DataConfig, table: Table, sample: list[Record], ledger: Ledger) -> Roles:
    """The roles of the columns; in a table of sequences these are the vectors and their target."""
    if config.sequence is not None:
        config = msgspec.structs.replace(config, input=table.columns[:1], target=table.columns[1:2])
    return find_roles(config, table.columns, table.named, sample, ledger)


def _described(split: AnySplit) -> str:
    if isinstance(split, RandomSplit):
        shares = {"dev": split.dev_size, "test": split.test_size}
        drawn = " and ".join(f"{share(part)} {name}" for name, part in shares.items() if part)
        rest = "".join(f"; {name} is given" for name, part in shares.items() if not part)
        return f"{drawn} drawn from train with seed {split.split_seed}{rest}" if drawn else "the given files"
    return f"column '{split.split_column}'" if isinstance(split, ColumnSplit) else "the given files"


# Training and tuning open data without its test set, so the test set cannot influence any choice.
#
#     test files                     their names are kept for `seqloom evaluate --split test`; no row is read
#     a random split or a column     rows of the test set are dropped as soon as their values are parsed and their split
#                                    is known; no check of the data, tokenizer or count uses them
#
# So problems of the test set, and its overlap with train, are reported by `seqloom data check` before training and by
# `seqloom evaluate --split test` after it.

OPEN: tuple[SplitName, ...] = ("train", "dev")


def open_without_test(config: DataConfig, ledger: Ledger) -> Dataset:
    """Open a dataset that yields no row of its test set; test files must exist but are not read."""
    dataset = open_data(config, ledger, OPEN)
    for path in files_of(dataset.config).get("test", ()):
        if not is_folder(path):
            require_regular(path, ledger)
    return dataset


def all_fingerprints(dataset: Dataset) -> dict[str, Any]:
    """Fingerprints that a resumed run compares: of all files that are read, and of the test files."""
    files = files_of(dataset.config)
    return dataset.fingerprints(*stored({"test": files["test"]} if "test" in files else {}))
