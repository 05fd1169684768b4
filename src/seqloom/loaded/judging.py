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
from seqloom.data.run_files import RunData
from seqloom.data.schema import PARTS, Part
from seqloom.data.sources import SOURCES, resolve
from seqloom.data.synthetic import NAMES
from seqloom.errors import ConfigError, RejectedError
from seqloom.loaded.as_trained import FileReading, columns_as_trained, columns_said, reading_as_trained
from seqloom.loaded.origins import Origin
from seqloom.tasks.choosing import task_of
from seqloom.tasks.contract import Meaning

Paths = tuple[str | Path, ...]
EVERY = BadRows(skip=True, share=1.0)


class Source(NamedTuple):
    """Data, which part of it is looked at, and what should be known about how it was found."""

    config: DataConfig
    part: Part
    said: tuple[str, ...] = ()

    def under(self, rule: BadRows | None) -> "Source":
        """The same data, with another rule for bad rows if one is given."""
        return self if rule is None else self._replace(config=msgspec.structs.replace(self.config, bad_rows=rule))


def own_data(run: RunData | None, part: Part) -> Source:
    """The data that a run was trained on, as far as a part needs it.

    Where training skipped bad rows, it has decided about all that it read; of a test part nobody has.
    """
    if run is None:
        raise ConfigError("a model folder alone has no data", fix="give a file with targets, or the run folder")
    decided = run.config.data.bad_rows.skip and part != "test"
    return narrowed(run.config.data, part)._replace(said=run.said).under(EVERY if decided else None)


def narrowed(config: DataConfig, part: Part) -> Source:
    """The files of one part as the whole of the data; where rows were drawn from train, all but the test files."""
    paths = {"train": config.train, "dev": config.dev, "test": config.test}[part]
    if part != "train" and paths:
        return Source(msgspec.structs.replace(config, train=paths, dev=(), test=(), split=GivenSplit()), "train")
    sealed = msgspec.structs.replace(config, test=()) if part != "test" and config.split is not None else config
    return Source(sealed, part)


def given_data(paths: Paths, part: Part, meaning: Meaning, run: RunConfig | None, settings: dict[str, Any]) -> Source:
    """The data that somebody names: all rows of files, or a part of a known set.

    What the settings leave open about a file is as in training. `reading` is a whole `ReadingConfig`, or a dict of
    those of its settings that are given.
    """
    name = str(paths[0])
    is_set = len(paths) == 1 and not Path(name).exists() and name in (*NAMES, *SOURCES)
    if is_set and isinstance(settings.get("reading"), dict):
        settings = settings | {"reading": ReadingConfig(**settings["reading"])}
    if is_set and name in NAMES:
        return Source(data_config(paths, settings), part)
    settings = {"task": meaning.schema.task} | settings
    if is_set:
        return narrowed(resolve(data_config(paths, settings)), part)
    _require_unsealed(paths, part, run)
    usual, said = _usual(paths, run, settings)
    return Source(data_config(paths, {"split": GivenSplit()} | settings | usual), "train", said)


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
    source: Source,
    part: Part,
    meaning: Meaning,
    encoding: EncodingConfig,
) -> Origin:
    """The data in the numbers of the model, what is looked at as the named part of it, and no other part."""
    ledger = Ledger(source.config.bad_rows)
    dataset = _opened(source.config, ledger)
    asked = task_of(meaning).judging(dataset.schema).meaning.schema
    given = Given(asked.labels, meaning.tokenizer, meaning.target_tokenizer)
    prepared = prepare(dataset, encoding, ledger, given=given)
    if (sizes := Meaning.of(prepared).sizes) != meaning.sizes:
        raise ConfigError(f"the model reads {asked.input} of size {meaning.sizes}, found {sizes}", fix="give such data")
    none = {other: np.empty(0, np.int64) for other in PARTS}
    kept = prepared._replace(parts=none | {part: prepared.parts[source.part]})
    return Origin(dataset, kept, source.part, source.said)
