"""Which rows of which data a model is judged on.

    nothing given        the run's own data, its dev or test part
    a file               every row of it
    the name of a set    its dev or test part

Labels, tokenisers and numbers are the model's: what training never saw counts as an error. Where a part has files of
its own, no other file is read.
"""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.config.data import ColumnSplit, DataConfig, EncodingConfig, GivenSplit, RandomSplit, ReadingConfig
from seqloom.config.training import RunConfig
from seqloom.data.dataset import Dataset, open_data
from seqloom.data.front import data_config
from seqloom.data.preparing import Given, prepare
from seqloom.data.problems import BadRows, Ledger
from seqloom.data.readers import read_table
from seqloom.data.schema import PARTS, Part
from seqloom.data.sources import SOURCES, resolve
from seqloom.data.synthetic import NAMES
from seqloom.errors import ConfigError, RejectedError
from seqloom.loaded.origins import Origin
from seqloom.tasks.choosing import task_of
from seqloom.tasks.contract import Meaning

Paths = tuple[str | Path, ...]


class Source(NamedTuple):
    """Data, and which part of it is looked at."""

    config: DataConfig
    part: Part


def own_data(run: RunConfig | None, part: Part) -> Source:
    """The data that a run was trained on, as far as a part needs it."""
    if run is None:
        raise ConfigError("a model folder alone has no data", fix="give a file with targets, or the run folder")
    return narrowed(run.data, part)


def narrowed(config: DataConfig, part: Part) -> Source:
    """The files of one part as the whole of the data; where rows were drawn from train, all but the test files."""
    paths = {"train": config.train, "dev": config.dev, "test": config.test}[part]
    if part != "train" and paths:
        return Source(msgspec.structs.replace(config, train=paths, dev=(), test=(), split=GivenSplit()), "train")
    sealed = msgspec.structs.replace(config, test=()) if part != "test" and config.split is not None else config
    return Source(sealed, part)


def given_data(paths: Paths, part: Part, meaning: Meaning, run: RunConfig | None, settings: dict[str, Any]) -> Source:
    """The data that somebody names: all rows of files, or a part of a known set."""
    name = str(paths[0])
    if len(paths) == 1 and not Path(name).exists() and name in NAMES:
        return Source(data_config(paths, settings), part)
    settings = {"task": meaning.schema.task} | settings
    if len(paths) == 1 and not Path(name).exists() and name in SOURCES:
        return narrowed(resolve(data_config(paths, settings)), part)
    _require_unsealed(paths, part, run)
    usual = _usual(paths, run, settings)
    return Source(data_config(paths, {"split": GivenSplit()} | usual | settings), "train")


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


def _usual(paths: Paths, run: RunConfig | None, settings: dict[str, Any]) -> dict[str, Any]:
    """What training said about its columns, where the file has them and nothing else was said."""
    if run is None or not run.data.input or settings.keys() & {"input", "target", "reading"}:
        return {}
    table = read_table(tuple(map(Path, paths)), ReadingConfig(), Ledger())
    if not {*run.data.input, *run.data.target} <= set(table.columns):
        return {}
    names = ("input", "target", "label_separator", "sequence")
    return {name: getattr(run.data, name) for name in names}


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
    source: Source,
    part: Part,
    meaning: Meaning,
    encoding: EncodingConfig,
    bad_rows: BadRows = BadRows(),  # noqa: B008  # an immutable value
) -> Origin:
    """The data in the numbers of the model, what is looked at as the named part of it, and no other part."""
    ledger = Ledger(bad_rows)
    dataset = _opened(source.config, ledger)
    asked = task_of(meaning).judging(dataset.schema).meaning.schema
    given = Given(asked.labels, meaning.tokenizer, meaning.target_tokenizer)
    prepared = prepare(dataset, encoding, ledger, given=given)
    if (sizes := Meaning.of(prepared).sizes) != meaning.sizes:
        raise ConfigError(f"the model reads {asked.input} of size {meaning.sizes}, found {sizes}", fix="give such data")
    none = {other: np.empty(0, np.int64) for other in PARTS}
    return Origin(dataset, prepared._replace(parts=none | {part: prepared.parts[source.part]}), source.part)
