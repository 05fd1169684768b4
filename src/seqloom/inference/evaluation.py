"""Which rows of which data a model is evaluated on.

    no data given              the dev or test set of the run's own data
    a file                     every row of it
    the name of a dataset     its dev or test set

Labels and tokenizers are those of the model: labels that are not in the training data count as errors. If a split has
its own files, no other file is read.
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
    ANY_ROWS,
    SPLITS,
    BadRows,
    DataConfig,
    EncodingConfig,
    GivenSplit,
    ReadingConfig,
    SplitName,
)
from seqloom.config.options import said, with_flags
from seqloom.config.training import RunConfig
from seqloom.data.cells import rounded_text, row
from seqloom.data.check import data_config
from seqloom.data.dataset import Dataset, FileSet, open_data
from seqloom.data.kinds.kind import InputKind
from seqloom.data.kinds.labels import UNSEEN
from seqloom.data.prepared import GivenEncoding, Prepared, prepare
from seqloom.data.problems import KEEP_REPEATS, Ledger, escaped
from seqloom.data.readers.passages import in_either_encoding
from seqloom.data.readers.registry import read_table
from seqloom.data.run_files import RunData
from seqloom.data.schema import Example
from seqloom.data.sources import SOURCES, resolve
from seqloom.data.synthetic.registry import NAMES
from seqloom.errors import ConfigError, RejectedError, did_you_mean
from seqloom.files.disk import existing, write_file
from seqloom.files.jsonl import append_line, read_lines
from seqloom.files.layouts import RunFile
from seqloom.inference.as_trained import columns_as_trained, reading_as_trained, worded_columns
from seqloom.tasks.evaluation import Evaluation, Unseen, badness
from seqloom.tasks.task import EvaluatedExample, ModelSpec, Task, task_of
from seqloom.version import __version__

# The record of test evaluations.
#
# A test set is only unbiased as long as nobody selects models by it: evaluating ten models and keeping the best is a
# form of training on it. So every evaluation on the test set is recorded on disk before its result is shown.


class TestEvaluations(NamedTuple):
    """The record of evaluations on the test set: of one model, or of the models of one run."""

    path: Path

    @classmethod
    def of(cls, folder: Path) -> "TestEvaluations":
        """The record that belongs to a model folder: its run's, or a file beside it."""
        run = run_of(folder)
        return cls(
            existing(
                folder.with_name(f"{folder.name}.{RunFile.TEST_EVALUATIONS}")
                if run is None
                else run / RunFile.TEST_EVALUATIONS
            )
        )

    def records(self) -> tuple[dict[str, Any], ...]:
        """All test evaluations so far, the oldest first."""
        return read_lines(self.path).records

    def record(self, metrics: Mapping[str, float], intervals: Mapping[str, tuple[float, float]], **facts: Any) -> None:
        """Record a test evaluation durably."""
        line = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "seqloom": __version__,
            **facts,
            "metrics": {name: _finite(value) for name, value in metrics.items()},
            "intervals": {name: [_finite(low), _finite(high)] for name, (low, high) in intervals.items()},
        }
        append_line(self.path, line)


def _finite(value: float) -> float | None:
    """Return the number, or None if it is not finite, which JSON cannot represent."""
    return float(value) if math.isfinite(value) else None


# The original data of evaluated examples: the input of a row, and the values of other columns.
#
# Prepared data keeps only token numbers and the file and line of each row. So texts and further columns are read from
# the file again, and rows are found by file and line.

LENGTH = "length"  # length of the input: a column for slices in every dataset

Where = tuple[str, int | None]  # the file and the line of a row


class Origin(NamedTuple):
    """Prepared data with the dataset that it comes from."""

    dataset: Dataset
    prepared: Prepared
    split: SplitName  # of the dataset that is evaluated
    messages: tuple[str, ...] = ()  # how the data was found and read

    def values(self, column: str, rows: Sequence[int]) -> list[Any]:
        """The values of a column for some rows, in order; ConfigError if the column does not exist."""
        if not isinstance(self.dataset, FileSet):
            return self._own(column, rows, ())
        places = [self._where(row) for row in rows]
        found: dict[Where, Any] = {}
        for paths in self.dataset.files().values():
            table = read_table(paths, self.dataset.config.reading, Ledger(ANY_ROWS))
            if column not in table.columns:
                return self._own(column, rows, table.columns)
            at, wanted = table.columns.index(column), set(places)
            for record in table.records:
                if (record.path, record.line) in wanted:
                    found[record.path, record.line] = record.values[at]
        return [found.get(place) for place in places]

    def _own(self, column: str, rows: Sequence[int], others: Collection[str]) -> list[Any]:
        """The length of each input in words, steps or tokens; ConfigError for any other name."""
        if column == LENGTH:
            columns = self.prepared.columns
            lengths = columns.get("firsts", columns["input"]).lengths
            return [int(lengths[row]) for row in rows]
        known = [LENGTH, *map(escaped, others)]
        raise ConfigError(f"--by {column}: the data has no such column", fix=did_you_mean(column, known))

    def examples(self, rows: Collection[int]) -> dict[int, Example]:
        """The examples of some rows as they were read, by row."""
        wanted = {self._where(row): row for row in rows}
        found: dict[int, Example] = {}
        for part, example in self.dataset.rows(Ledger(ANY_ROWS)):
            row = wanted.get((example.place.path, example.place.line))
            if part == self.split and row is not None:
                found[row] = example
        return found

    def unseen(self, rows: np.ndarray) -> Unseen:
        """The labels of these rows that are not in the training data."""
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
    """Data, which split of it is evaluated, and messages about how it was found."""

    config: DataConfig
    split: SplitName
    messages: tuple[str, ...] = ()

    def under(self, rule: BadRows | None) -> "EvaluationSource":
        """The same data, with another rule for bad rows if one is given."""
        return self if rule is None else self._replace(config=msgspec.structs.replace(self.config, bad_rows=rule))


def own_data(run: RunData | None, part: SplitName) -> EvaluationSource:
    """The data of a run, as far as a split needs it.

    If training skipped bad rows, so does an evaluation on train or dev. The test set was not read by training.
    """
    if run is None:
        raise ConfigError(
            "a model folder contains no data",
            fix="give a file with targets, or the run folder that the model comes from",
        )
    decided = run.config.data.bad_rows.skip_bad_rows and part != "test"
    return narrowed(run.config.data, part)._replace(messages=run.messages).under(ANY_ROWS if decided else None)


def narrowed(config: DataConfig, part: SplitName) -> EvaluationSource:
    """The data of one split: its files if it has some; else all files, without test files that are not needed."""
    paths = {"train": config.train, "dev": config.dev, "test": config.test}[part]
    if part != "train" and paths:
        return EvaluationSource(
            msgspec.structs.replace(config, train=paths, dev=(), test=(), split=GivenSplit()), "train"
        )
    sealed = msgspec.structs.replace(config, test=()) if part != "test" and config.split is not None else config
    return EvaluationSource(sealed, part)


def given_data(
    paths: Paths, part: SplitName, spec: ModelSpec, run: RunConfig | None, settings: dict[str, Any]
) -> EvaluationSource:
    """The data that is given: all rows of files, or a split of a known dataset.

    Files are read as in training, unless the settings say otherwise.
    """
    name = str(paths[0])
    is_set = len(paths) == 1 and not Path(name).exists() and name in (*NAMES, *SOURCES)
    if is_set and name in NAMES:
        return EvaluationSource(data_config(paths, settings), part)
    settings = {"task": spec.schema.task} | settings
    if is_set:
        return narrowed(resolve(data_config(paths, settings)), part)
    _require_unsealed(paths, part, run)
    reused, messages = _reused(paths, run, settings)
    config = data_config(paths, settings)
    whole = msgspec.structs.replace(config, **({"split": GivenSplit()} | reused))
    return EvaluationSource(with_flags(whole, settings), "train", messages)


def _require_unsealed(paths: Paths, part: SplitName, run: RunConfig | None) -> None:
    """Refuse files that hold test rows of the run, unless the split is test."""
    if run is None or part == "test":
        return
    for path in map(Path, paths):
        if any(_overlap(path.resolve(), Path(other).resolve()) for other in run.data.test_files):
            raise ConfigError(
                f"{path} {_held(path, run.data)}",
                fix="leave it out to evaluate on the dev set, or replace it by --split test to evaluate on the test "
                "set, which is logged in the run folder",
            )


def _held(path: Path, data: DataConfig) -> str:
    """Describe what a file with test rows is in its run."""
    if any(path.resolve() == Path(other).resolve() for other in data.test):
        return "is the test set of this run"
    return "is data of this run, and some of its rows are the test set"


def _overlap(path: Path, other: Path) -> bool:
    """Whether two paths are the same, or one of them is a folder that contains the other."""
    return path.is_relative_to(other) or other.is_relative_to(path)


def _reused(paths: Paths, run: RunConfig | None, settings: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Settings reused from training, and a message about them."""
    files = tuple(map(Path, paths))
    read = reading_as_trained(run, files, said(ReadingConfig, settings))
    if run is None:
        return {"reading": read.config}, ()
    ledger = Ledger(ANY_ROWS)
    either = in_either_encoding(read.config, files[0], ledger)  # the complete error comes when all rows are read
    found = read_table(files, either, ledger).columns if run.data.input else ()
    columns = columns_as_trained(run, found, settings)
    read = read._replace(files=files, reused=(*read.reused, *worded_columns(columns)))
    return {"reading": read.config, "bad_rows": run.data.bad_rows, **columns}, read.messages


def _opened(config: DataConfig, ledger: Ledger) -> Dataset:
    """The dataset; a file without a target column gets an error that suits evaluation."""
    try:
        return open_data(config, ledger)
    except RejectedError as error:
        if not {"csv.column", "data.column"} & set(error.codes):
            raise
        (*_, last) = error.details
        fix = "name the columns with --input and --target; for data without targets use `seqloom predict`"
        raise ConfigError(f"{' '.join(config.train)}: {last['text']}", fix=fix) from error


def origin_for(
    source: EvaluationSource,
    part: SplitName,
    spec: ModelSpec,
    encoding: EncodingConfig,
) -> Origin:
    """The data encoded for the model; the rows to evaluate are its split `part`, and all other splits are empty."""
    ledger = Ledger.of(source.config, KEEP_REPEATS)
    dataset = _opened(source.config, ledger)
    asked = task_of(spec).for_schema(dataset.schema).spec.schema
    given = GivenEncoding(asked.labels, spec.tokenizer, spec.target_tokenizer)
    prepared = prepare(dataset, encoding, ledger, given=given)
    if (sizes := ModelSpec.of(prepared).sizes) != spec.sizes:
        raise ConfigError(
            f"the model reads {asked.input} of size {spec.sizes}, but the data has size {sizes}",
            fix="give data of this size",
        )
    none = {other: np.empty(0, np.int64) for other in SPLITS}
    kept = prepared._replace(splits=none | {part: prepared.splits[source.split]})
    return Origin(dataset, kept, source.split, source.messages)


# The error file: the worst predictions, the worst first, each with its complete input.
#
#     {"id": "r7", "file": "a.csv", "line": 12, "predicted": "bad", "expected": "good", "correct": false, ...}
#
# Wrong predictions come before correct ones, then the highest loss first. `id` is the one in the data, if any. The file
# is a table (.csv) or JSON lines, and is written atomically.

MOST_ERRORS = 1_000
ENDINGS = (".jsonl", ".csv")
OWN = ("id", "file", "line", "input", "predicted", "expected", "correct", "loss")  # columns of every line


def require_errors(path: Path, most: int) -> int:
    """How many predictions to keep; ConfigError, before any work, for a file that cannot be written."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(
            f"--errors {path.name}: unknown file extension", fix=f"name it {path.stem}{' or '.join(ENDINGS)}"
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(
            f"--errors {path.name}: the folder {path.parent} does not exist", fix="create it, or give another path"
        )
    if most < 1:
        raise ConfigError(f"--max-errors {most}", fix="use at least 1")
    return most


def write_errors(path: Path, task: Task, evaluation: Evaluation, origin: Origin) -> None:
    """Write a line for each of the worst predictions."""
    examples = origin.examples({int(one.id) for one in evaluation.worst})
    lines = [_line(task, one, examples.get(int(one.id)), origin) for one in evaluation.worst]
    if path.suffix.lower() == ".csv":  # the columns are all names of all lines
        columns = list(dict.fromkeys([*OWN, *(name for line in lines for name in line)]))
        rows = [row(columns), *(row(line.get(name) for name in columns) for line in lines)]
    else:
        rows = [msgspec.json.encode(line) + b"\n" for line in lines]
    write_file(path, rows)


def _line(task: Task, one: EvaluatedExample, example: Example | None, origin: Origin) -> Any:
    """The fields of a line."""
    place, loss = origin.prepared.place_of(int(one.id)), badness(one)
    text = None if example is None else whole(origin.prepared.schema.input, example)
    own = {
        "id": None if example is None else example.id or None,
        "file": place.path,
        "line": place.line,
        "input": text or origin.prepared.shown(int(one.id)),
        "predicted": one.predicted,
        "expected": one.expected if example is None else task.expected_text(one, example.target),
        "correct": one.correct,
        "loss": loss if np.isfinite(loss) else None,
    }
    return rounded_text(own | {name: value for name, value in task.details(one).items() if name not in own})


def whole(kind: InputKind, example: Example) -> str | list[str] | None:
    """Return the complete input if it is text, or a list of several texts; None for arrays."""
    texts = kind.texts(example.input)
    return list(texts) if len(texts) > 1 else texts[0] if texts else None
