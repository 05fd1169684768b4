"""Which rows of which data a model is judged on.

    nothing given        the run's own data, its dev or test part
    a file               every row of it
    the name of a set    its dev or test part

Labels, tokenisers and numbers are the model's: what training never saw counts as an error. Where a part has files of
its own, no other file is read.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.bundle import run_of
from seqloom.config.data import (
    PARTS,
    BadRows,
    ColumnSplit,
    DataConfig,
    EncodingConfig,
    GivenSplit,
    Part,
    RandomSplit,
    ReadingConfig,
)
from seqloom.config.training import RunConfig
from seqloom.data.cells import rounded_text, row
from seqloom.data.check import data_config
from seqloom.data.dataset import Dataset, FileSet, open_data
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.labels import UNSEEN
from seqloom.data.prepared import GivenEncoding, Prepared, prepare
from seqloom.data.problems import Ledger, escaped
from seqloom.data.readers.registry import read_table
from seqloom.data.run_files import RunData
from seqloom.data.schema import Example
from seqloom.data.sources import SOURCES, resolve
from seqloom.data.synthetic.registry import NAMES
from seqloom.errors import ConfigError, RejectedError, did_you_mean
from seqloom.files.disk import write_file
from seqloom.files.jsonl import append_line, read_lines
from seqloom.files.layouts import RunFile
from seqloom.inference.as_trained import FileReading, columns_as_trained, columns_said, reading_as_trained
from seqloom.tasks.evaluation import Evaluation, Unseen, badness
from seqloom.tasks.registry import task_of
from seqloom.tasks.task import Judged, Meaning, Task
from seqloom.version import __version__

# The record of every look at the test part.
#
# A test set measures only as long as nobody chooses by it. Whoever looks ten times and keeps the best has trained on
# it, slowly. So a look cannot be had without being written down: the line is on the disk before anybody sees a number.


class Looks(NamedTuple):
    """The looks at the test part with one model, or with the models of one run."""

    path: Path

    @classmethod
    def of(cls, folder: Path) -> "Looks":
        """The record that belongs to a model folder: its run's, or a file beside it."""
        run = run_of(folder)
        return cls(folder.with_name(f"{folder.name}.{RunFile.LOOKS}") if run is None else run / RunFile.LOOKS)

    def records(self) -> tuple[dict[str, Any], ...]:
        """All looks so far, the first one first."""
        return read_lines(self.path).records

    def record(self, metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]], **facts: Any) -> None:
        """Write the look down; when it returns, it is on the disk."""
        line = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "seqloom": __version__,
            **facts,
            "metrics": {name: _finite(value) for name, value in metrics.items()},
            "intervals": {name: [_finite(low), _finite(high)] for name, (low, high) in intervals.items()},
        }
        append_line(self.path, line)


def _finite(value: float) -> float | None:
    """A number as JSON has it: there is no infinite one."""
    return float(value) if math.isfinite(value) else None


# Where judged examples came from: the original input of a row, and what other columns say about it.
#
# Prepared data keeps numbers only, and the place of each row. So whoever wants the text of an error, or a column that
# the model never reads, has the file read once more, and finds the row by its place.

LENGTH = "length"  # of the input: a column that every data set has

Where = tuple[str, int | None]  # the file and the line of a row
EVERY = BadRows(skip=True, share=1.0)  # also for a second reading: what was bad has been told by the first


class Origin(NamedTuple):
    """Prepared data with the data set that it was made of."""

    dataset: Dataset
    prepared: Prepared
    part: Part  # of the data set: the one that is looked at
    said: tuple[str, ...] = ()  # how it was found and read, where that is to be known

    def values(self, column: str, rows: Sequence[int]) -> list[Any]:
        """What a column says of some rows, in their order; ConfigError for one that the data does not have."""
        if not isinstance(self.dataset, FileSet):
            return self._own(column, rows, ())
        places = [self._where(row) for row in rows]
        found: dict[Where, Any] = {}
        for paths in self.dataset.files().values():
            table = read_table(paths, self.dataset.config.reading, Ledger(EVERY))
            if column not in table.columns:
                return self._own(column, rows, table.columns)
            at, wanted = table.columns.index(column), set(places)
            for record in table.records:
                if (record.path, record.line) in wanted:
                    found[record.path, record.line] = record.values[at]
        return [found.get(place) for place in places]

    def _own(self, column: str, rows: Sequence[int], others: Collection[str]) -> list[Any]:
        """The length of each input, in words or steps or symbols; any other name is refused."""
        if column == LENGTH:
            columns = self.prepared.columns
            lengths = columns.get("firsts", columns["input"]).lengths
            return [int(lengths[row]) for row in rows]
        known = [LENGTH, *map(escaped, others)]
        raise ConfigError(f"--by {column}: the data has no such column", fix=did_you_mean(column, known))

    def examples(self, rows: Collection[int]) -> dict[int, Example]:
        """The examples of some rows as they were read, by their rows."""
        wanted = {self._where(row): row for row in rows}
        found: dict[int, Example] = {}
        for part, example in self.dataset.rows(Ledger(EVERY)):
            row = wanted.get((example.place.path, example.place.line))
            if part == self.part and row is not None:
                found[row] = example
        return found

    def unseen(self, rows: np.ndarray) -> Unseen:
        """The labels of these rows that training never saw."""
        schema = self.prepared.schema
        if not schema.target.has_labels:
            return Unseen()
        target = self.prepared.columns["target"]
        bad = [int(row) for row in rows if (target.row(int(row)) == UNSEEN).any()]
        known, counts = set(schema.labels), Counter[str]()
        for example in self.examples(bad).values() if bad else ():
            counts.update(label for label in schema.target.labels(example.target) if label not in known)
        return Unseen(len(bad), tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))))

    def _where(self, row: int) -> Where:
        path, line, _ = self.prepared.place_of(row)
        return path, line


Paths = tuple[str | Path, ...]


class EvaluationSource(NamedTuple):
    """Data, which part of it is looked at, and what should be known about how it was found."""

    config: DataConfig
    part: Part
    said: tuple[str, ...] = ()

    def under(self, rule: BadRows | None) -> "EvaluationSource":
        """The same data, with another rule for bad rows if one is given."""
        return self if rule is None else self._replace(config=msgspec.structs.replace(self.config, bad_rows=rule))


def own_data(run: RunData | None, part: Part) -> EvaluationSource:
    """The data that a run was trained on, as far as a part needs it.

    Where training skipped bad rows, it has decided about all that it read; of a test part nobody has.
    """
    if run is None:
        raise ConfigError("a model folder alone has no data", fix="give a file with targets, or the run folder")
    decided = run.config.data.bad_rows.skip and part != "test"
    return narrowed(run.config.data, part)._replace(said=run.said).under(EVERY if decided else None)


def narrowed(config: DataConfig, part: Part) -> EvaluationSource:
    """The files of one part as the whole of the data; where rows were drawn from train, all but the test files."""
    paths = {"train": config.train, "dev": config.dev, "test": config.test}[part]
    if part != "train" and paths:
        return EvaluationSource(
            msgspec.structs.replace(config, train=paths, dev=(), test=(), split=GivenSplit()), "train"
        )
    sealed = msgspec.structs.replace(config, test=()) if part != "test" and config.split is not None else config
    return EvaluationSource(sealed, part)


def given_data(
    paths: Paths, part: Part, meaning: Meaning, run: RunConfig | None, settings: dict[str, Any]
) -> EvaluationSource:
    """The data that somebody names: all rows of files, or a part of a known set.

    What the settings leave open about a file is as in training. `reading` is a whole `ReadingConfig`, or a dict of
    those of its settings that are given.
    """
    name = str(paths[0])
    is_set = len(paths) == 1 and not Path(name).exists() and name in (*NAMES, *SOURCES)
    if is_set and isinstance(settings.get("reading"), dict):
        settings = settings | {"reading": ReadingConfig(**settings["reading"])}
    if is_set and name in NAMES:
        return EvaluationSource(data_config(paths, settings), part)
    settings = {"task": meaning.schema.task} | settings
    if is_set:
        return narrowed(resolve(data_config(paths, settings)), part)
    _require_unsealed(paths, part, run)
    usual, said = _usual(paths, run, settings)
    return EvaluationSource(data_config(paths, {"split": GivenSplit()} | settings | usual), "train", said)


def _require_unsealed(paths: Paths, part: Part, run: RunConfig | None) -> None:
    """Refuse to look, by the name of a file, at the run's test files or at test rows inside its other files."""
    sealed = () if run is None or part == "test" else _with_test_rows(run.data)
    for path in map(Path, paths):
        if any(_overlap(path.resolve(), Path(other).resolve()) for other in sealed):
            raise ConfigError(
                f"{path} holds the test part of this run",
                fix="leave it out to see the dev part, or add --test, which writes the look down",
            )


def _with_test_rows(data: DataConfig) -> tuple[str, ...]:
    """The files of a run that hold rows of its test part: its test files, and those that its split divides."""
    if isinstance(data.split, ColumnSplit):
        return (*data.train, *data.dev, *data.test)
    drawn = isinstance(data.split, RandomSplit) and data.split.test > 0
    return (*data.train, *data.test) if drawn else data.test


def _overlap(path: Path, other: Path) -> bool:
    """Whether two files are the same, or one of them is a folder that the other lies in."""
    return path.is_relative_to(other) or other.is_relative_to(path)


def _usual(paths: Paths, run: RunConfig | None, settings: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What is as in training, and the same in a sentence."""
    files, given = tuple(map(Path, paths)), settings.get("reading", {})
    read = FileReading(given) if isinstance(given, ReadingConfig) else reading_as_trained(run, files, given)
    if run is None:
        return {"reading": read.config}, ()
    found = read_table(files, read.config, Ledger(EVERY)).columns if run.data.input else ()
    columns = columns_as_trained(run, found, settings)
    read = read._replace(reused=(*columns_said(columns), *read.reused))
    return {"reading": read.config, "bad_rows": run.data.bad_rows, **columns}, read.said


def _opened(config: DataConfig, ledger: Ledger) -> Dataset:
    """The data set; of a file without the column of the targets the cure is another than in training."""
    try:
        return open_data(config, ledger)
    except RejectedError as error:
        if not {"csv.column", "data.column"} & set(error.codes):
            raise
        (*_, last) = error.details
        fix = "name the columns, with --input and --target; `seqloom predict` answers inputs that have no targets"
        raise ConfigError(f"{' '.join(config.train)}: {last['text']}", fix=fix) from error


def origin_for(
    source: EvaluationSource,
    part: Part,
    meaning: Meaning,
    encoding: EncodingConfig,
) -> Origin:
    """The data in the numbers of the model, what is looked at as the named part of it, and no other part."""
    ledger = Ledger(source.config.bad_rows)
    dataset = _opened(source.config, ledger)
    asked = task_of(meaning).judging(dataset.schema).meaning.schema
    given = GivenEncoding(asked.labels, meaning.tokenizer, meaning.target_tokenizer)
    prepared = prepare(dataset, encoding, ledger, given=given)
    if (sizes := Meaning.of(prepared).sizes) != meaning.sizes:
        raise ConfigError(f"the model reads {asked.input} of size {meaning.sizes}, found {sizes}", fix="give such data")
    none = {other: np.empty(0, np.int64) for other in PARTS}
    kept = prepared._replace(parts=none | {part: prepared.parts[source.part]})
    return Origin(dataset, kept, source.part, source.said)


# The error file: the answers that are furthest from right, the worst first, each with its whole input.
#
#     {"id": "r7", "file": "a.csv", "line": 12, "input": "...", "said": "bad", "true": "good", "right": false, ...}
#
# Wrong answers stand before right ones, and where answers are only better or worse, the badness alone decides. `id` is
# the name that the data gives a row, if any; file and line always tell where it stands. The file is a table (.csv) or
# JSON lines, and written whole or not at all.

MOST_ERRORS = 1_000
ENDINGS = (".jsonl", ".csv")
OWN = ("id", "file", "line", "input", "said", "true", "right", "loss")  # what every line has


def require_errors(path: Path, most: int) -> int:
    """How many answers are kept; ConfigError, before any work, for a file that cannot be written."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"errors: {path.name} has no format", fix=f"name it {path.stem}{' or '.join(ENDINGS)}")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"errors: there is no folder {path.parent}", fix="make it, or give another path")
    if most < 1:
        raise ConfigError(f"errors: {most} answers are none", fix="take at least 1")
    return most


def write_errors(path: Path, task: Task, evaluation: Evaluation, origin: Origin) -> None:
    """Write a line for each of the worst answers to the file."""
    examples = origin.examples({int(one.id) for one in evaluation.worst})
    lines = [_line(task, one, examples.get(int(one.id)), origin) for one in evaluation.worst]
    if path.suffix.lower() == ".csv":  # a table whose columns are all names that a line has
        columns = list(dict.fromkeys([*OWN, *(name for line in lines for name in line)]))
        rows = [row(columns), *(row(line.get(name) for name in columns) for line in lines)]
    else:
        rows = [msgspec.json.encode(line) + b"\n" for line in lines]
    write_file(path, rows)


def _line(task: Task, judged: Judged, example: Example | None, origin: Origin) -> Any:
    """What a line of the file holds, by name."""
    place, loss = origin.prepared.place_of(int(judged.id)), badness(judged)
    told = None if example is None else whole(origin.prepared.schema.input, example)
    own = {
        "id": None if example is None else example.id or None,
        "file": place.path,
        "line": place.line,
        "input": told or origin.prepared.shown(int(judged.id)),
        "said": judged.said,
        "true": judged.true if example is None else task.truth(judged, example.target),
        "right": judged.right,
        "loss": loss if np.isfinite(loss) else None,
    }
    return rounded_text(own | {name: value for name, value in task.details(judged).items() if name not in own})


def whole(kind: InputKind, example: Example) -> str | list[str] | None:
    """The whole input where it is text: a text, or a list of several; None for arrays."""
    texts = kind.texts(example.input)
    return list(texts) if len(texts) > 1 else texts[0] if texts else None
