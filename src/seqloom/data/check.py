"""What `seqloom data check` does: read a data set as training would, and report on it. Nothing encoded is kept."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from seqloom.config.data import PARTS, AnySplit, BadRows, DataConfig, EncodingConfig, ReadingConfig, Task
from seqloom.config.options import stated, strict
from seqloom.data.dataset import open_data
from seqloom.data.order import Order, usual_budget
from seqloom.data.prepared import PART, Prepared, encoded, fitted_encoder, prepare
from seqloom.data.problems import Ledger
from seqloom.data.report import Batching, DataReport, ReportColumns, Reporter
from seqloom.data.survey import Survey
from seqloom.events import Progress, Work, finished


def looking(
    config: DataConfig, encoding: EncodingConfig, ledger: Ledger, *, budget: int | None = None
) -> Work[DataReport]:
    """The report on a data set; RejectedError if it cannot be read or has more bad rows than are read over.

    `budget` is how many symbols a batch holds, padding included; None: as many as training chooses.
    """
    dataset = open_data(config, ledger)
    reporter = Reporter(dataset.schema)
    survey = Survey(dataset, ledger, reporter)
    encoder = yield from fitted_encoder(survey, encoding, ledger)
    sizes: defaultdict[str, list[np.ndarray]] = defaultdict(list)  # [N,S] of each block of each part
    for columns in encoded(survey, encoder):
        if isinstance(columns, Progress):
            yield columns
        elif columns[PART].rows:
            sizes[PARTS[columns[PART].values[0]]].append(encoder.schema.target.sizes(columns))
    whole = {part: np.concatenate(blocks) for part, blocks in sizes.items()}
    return reporter.report(
        " + ".join(config.train),
        ledger,
        columns=ReportColumns(dataset.config.input, dataset.config.target),
        inferred=dataset.said,
        symbols={} if encoder.tokenizer is None else {part: rows[:, 0] for part, rows in whole.items()},
        batching=_batching(whole["train"], budget),
    )


def _batching(sizes: np.ndarray, budget: int | None) -> Batching:
    """What the batches of the training part come to in the first epoch."""
    order = Order(sizes, budget or usual_budget(int(sizes.sum())), seed=0)
    fill = order.summary(0)
    return Batching(fill.padding, fill.fill, fill.batches, order.together(0))


# Data from Python in one call: what the command line does, with the same words.

Names = str | Path | Sequence[str | Path]
LISTS = ("train", "dev", "test", "input", "target")  # the settings that are one name or several


@strict
def load_data(
    *train: str | Path,
    encoding: EncodingConfig = EncodingConfig(),  # noqa: B008  # frozen
    cache: str | Path | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    reading: ReadingConfig | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split: AnySplit | None = None,
    bad_rows: BadRows | None = None,
) -> Prepared:
    """Data read, checked and encoded: a file, a folder, two files of parallel text, or the name of a set.

    From `dev` on, settings are those of `DataConfig`.
    """
    named: dict[str, Any] = {"dev": dev, "test": test, "reading": reading, "task": task, "input": input, "id": id}
    named |= {"target": target, "label_separator": label_separator, "sequence": sequence, "split": split}
    named |= {"bad_rows": bad_rows}
    config = data_config(train, stated(named))
    ledger = Ledger(config.bad_rows)
    folder = None if cache is None else Path(cache)
    return prepare(open_data(config, ledger), encoding, ledger, cache=folder)


@strict
def check_data(
    *train: str | Path,
    encoding: EncodingConfig = EncodingConfig(),  # noqa: B008
    budget: int = 8_192,
    dev: Names | None = None,
    test: Names | None = None,
    reading: ReadingConfig | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split: AnySplit | None = None,
    bad_rows: BadRows | None = None,
) -> DataReport:
    """The data report, which draws itself in a notebook; settings as for `load_data`."""
    named: dict[str, Any] = {"dev": dev, "test": test, "reading": reading, "task": task, "input": input, "id": id}
    named |= {"target": target, "label_separator": label_separator, "sequence": sequence, "split": split}
    named |= {"bad_rows": bad_rows}
    config = data_config(train, stated(named))
    return finished(looking(config, encoding, Ledger(config.bad_rows), budget=budget))


def data_config(
    train: tuple[str | Path, ...], settings: Mapping[str, Any], before: DataConfig | None = None
) -> DataConfig:
    """What the data is, from files and settings as a call in Python gives them; all else is as it was `before`."""
    given = {"train": train, **settings}
    named = {name: _names(value) if name in LISTS else value for name, value in given.items()}
    return DataConfig(**named) if before is None else msgspec.structs.replace(before, **named)


def _names(value: Any) -> Any:
    """One name or several, as texts; anything else is left for the configuration to refuse."""
    if isinstance(value, str | Path):
        return (str(value),)
    if not isinstance(value, list | tuple):
        return value
    return tuple(str(one) if isinstance(one, Path) else one for one in value)
