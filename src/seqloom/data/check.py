"""`seqloom data check`: read a dataset as training would, and report on it. Nothing encoded is kept."""

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from seqloom.config.data import (
    SPLITS,
    AskedEncoding,
    DataConfig,
    Format,
    Overlong,
    ReadingConfig,
    Task,
    Unit,
    asked_encoding,
    encoding_over,
)
from seqloom.config.options import stated, strict, typed_changes, with_flags
from seqloom.config.tokenizers import FittedTokenizer, UnicodeForm, WordSplit
from seqloom.data.checks.check import DataFinding, FindingSample
from seqloom.data.dataset import Dataset, open_data
from seqloom.data.order import Order, default_batch_tokens
from seqloom.data.prepared import SPLIT, Prepared, default_encoding, encoded, fitted_encoder, prepare
from seqloom.data.problems import Ledger, Place, cleaned_name
from seqloom.data.proposal import in_two_encodings
from seqloom.data.readers.passages import lines_in_windows
from seqloom.data.report import Batching, DataReport, ReportColumns, Reporter
from seqloom.data.survey import Survey
from seqloom.errors import RejectedError
from seqloom.events import Progress, Work, finished

UTF_8 = ReadingConfig().encoding


class ReportedRows(Ledger):
    """A ledger whose bad rows become findings of a report; it refuses data only if no row is good."""

    def close(self) -> None:
        """Raise RejectedError if all rows are bad."""
        if not self.rows:
            super().close()


def checking(
    config: DataConfig, encoding: AskedEncoding | None, *, batch_tokens: int | None = None
) -> Work[DataReport]:
    """Return the report on a dataset; raise RejectedError if it cannot be read.

    Bad rows are findings of the report, which describes the other rows.

    `encoding` None: the default of training. `batch_tokens` is the size of a batch in tokens, padding included; None:
    the default of training.
    """
    ledger = ReportedRows.of(config)
    dataset, mixed = _opened(config, ledger)
    reporter = Reporter(dataset.schema)
    survey = Survey(dataset, ledger, reporter)
    encoder = yield from fitted_encoder(survey, encoding_over(encoding, default_encoding(dataset.schema)))
    sizes: defaultdict[str, list[np.ndarray]] = defaultdict(list)  # [N,S] of each block of each split
    for columns in encoded(survey, encoder):
        if isinstance(columns, Progress):
            yield columns
        elif columns[SPLIT].rows:
            sizes[SPLITS[columns[SPLIT].values[0]]].append(encoder.schema.target.sizes(columns))
    whole = {split: np.concatenate(blocks) for split, blocks in sizes.items()}
    report = reporter.report(
        " + ".join(config.train),
        encoder.ledger,
        columns=ReportColumns(dataset.config.input, dataset.config.target),
        inferred=dataset.messages,
        tokens={} if encoder.tokenizer is None else {split: rows[:, 0] for split, rows in whole.items()},
        batching=_batching(whole["train"], batch_tokens),
    )
    report = replace(report, findings=(*mixed, *report.findings))
    return replace(report, next=_next(config, encoder.ledger, report.findings))


def _opened(config: DataConfig, ledger: Ledger) -> tuple[Dataset, tuple[DataFinding, ...]]:
    """The dataset, and a finding if its files have lines in two encodings, which are all read."""
    try:
        return open_data(config, ledger), ()
    except RejectedError as error:
        read = in_two_encodings(config, error)
        if read is None:
            raise
        try:
            dataset = open_data(read, Ledger.of(config))
        except RejectedError:
            raise error from None  # it has the options for both
        lines = {path: lines_in_windows(Path(path), Ledger()) for path in (*config.train, *config.dev, *config.test)}
        samples, last = [], error.details[-1]
        for path, found in lines.items():
            if found:
                place, text = f"{Place(path, found[0])}", "lines in Windows-1252 among lines in UTF-8"
                if path == last["path"]:  # it says more
                    place, text = f"{place}:{last['column']}", str(last["text"])
                fix = ledger.or_clean("save the whole file as UTF-8", path)
                samples.append(FindingSample(place, text, fix))
        return dataset, (DataFinding("reject", "enc.mixed", sum(map(len, lines.values())), tuple(samples)),)


def _next(config: DataConfig, ledger: Ledger, findings: Sequence[DataFinding]) -> tuple[str, ...]:
    """The commands to run next: clean the files that have something to clean, then train; none after other errors."""
    files = {path: f"`{ledger.clean_command(path)}`" for path in (*config.train, *config.dev, *config.test)}
    advised = {one: [path for path in files if _advises(one, files[path])] for one in findings}
    copies = {
        path: cleaned_name(path, ledger.format) or path
        for path in files
        if any(path in some for some in advised.values())
    }
    errors = [one for one, some in advised.items() if one.severity == "reject" and not some]
    if errors and not copies:
        return ()
    reading = config.reading
    if copies and reading.encoding != UTF_8:  # a copy is UTF-8, and one command reads all files in one encoding
        copies = {path: copy for path in files if (copy := cleaned_name(path, ledger.format))}
        reading = msgspec.structs.replace(reading, encoding=UTF_8)
    cleaning = tuple(files[path].strip("`") for path in copies)
    if reading != config.reading and len(copies) < len(files):
        return cleaning
    parts = {part: tuple(copies.get(path, path) for path in getattr(config, part)) for part in SPLITS}
    after = msgspec.structs.replace(config, **parts, reading=reading)
    names = ["seqloom", "data check" if errors else "train", *map(shlex.quote, after.train), *typed_changes(after)]
    return (*cleaning, " ".join(names))


def _advises(finding: DataFinding, command: str) -> bool:
    return any(command in sample.fix for sample in finding.samples)


def _batching(sizes: np.ndarray, batch_tokens: int | None) -> Batching:
    """How the batches of the training set are filled in the first epoch."""
    order = Order(sizes, batch_tokens or default_batch_tokens(int(sizes.sum())), seed=0)
    fill = order.summary(0)
    return Batching(fill.padding, fill.fill, fill.batches, order.together(0))


# The Python functions take the options of the command line, with the same names.

Names = str | Path | Sequence[str | Path]


@strict
def load_data(
    *train: str | Path,
    cache: str | Path | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split_column: str | None = None,
    dev_size: float | str | None = None,
    test_size: float | str | None = None,
    split_seed: int | None = None,
    group: str | None = None,
    folds: int | None = None,
    fold: int | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    template: str | None = None,
    unit: Unit | None = None,
    skip_bad_rows: bool | None = None,
    max_bad_rows: float | str | None = None,
    tokenizer: str | FittedTokenizer | None = None,
    target_tokenizer: str | FittedTokenizer | None = None,
    normalize: UnicodeForm | None = None,
    lowercase: bool | None = None,
    vocab_size: int | None = None,
    min_count: int | None = None,
    word_split: WordSplit | None = None,
    max_length: int | None = None,
    overlong: Overlong | None = None,
) -> Prepared:
    """Read, check and encode data, and return it as training uses it.

    Args:
        train: a file, a folder, two files of parallel text, or the name of a dataset.
        cache: a folder for the encoded data, so that the next call is faster (default: none).

    All other arguments are the options of `seqloom data check`, with the same names.

    Raises RejectedError if the data cannot be used; its message says where and why.
    """
    named: dict[str, Any] = {"dev": dev, "test": test, "task": task, "input": input, "target": target, "id": id}
    named |= {"label_separator": label_separator, "sequence": sequence, "split_column": split_column}
    named |= {"dev_size": dev_size, "test_size": test_size, "split_seed": split_seed, "group": group, "folds": folds}
    named |= {"fold": fold, "format": format, "encoding": encoding, "delimiter": delimiter, "header": header}
    named |= {"template": template, "unit": unit, "skip_bad_rows": skip_bad_rows, "max_bad_rows": max_bad_rows}
    named |= {"tokenizer": tokenizer, "target_tokenizer": target_tokenizer, "normalize": normalize}
    named |= {"lowercase": lowercase, "vocab_size": vocab_size, "min_count": min_count, "word_split": word_split}
    named |= {"max_length": max_length, "overlong": overlong}
    config = data_config(train, stated(named))
    ledger = Ledger.of(config)
    folder = None if cache is None else Path(cache)
    dataset = open_data(config, ledger)
    how = encoding_over(asked_encoding(stated(named)), default_encoding(dataset.schema))
    return prepare(dataset, how, ledger, cache=folder)


@strict
def check_data(
    *train: str | Path,
    batch_tokens: int | None = None,
    dev: Names | None = None,
    test: Names | None = None,
    task: Task | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split_column: str | None = None,
    dev_size: float | str | None = None,
    test_size: float | str | None = None,
    split_seed: int | None = None,
    group: str | None = None,
    folds: int | None = None,
    fold: int | None = None,
    format: Format | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    template: str | None = None,
    unit: Unit | None = None,
    skip_bad_rows: bool | None = None,
    max_bad_rows: float | str | None = None,
    tokenizer: str | FittedTokenizer | None = None,
    target_tokenizer: str | FittedTokenizer | None = None,
    normalize: UnicodeForm | None = None,
    lowercase: bool | None = None,
    vocab_size: int | None = None,
    min_count: int | None = None,
    word_split: WordSplit | None = None,
    max_length: int | None = None,
    overlong: Overlong | None = None,
) -> DataReport:
    """Read and check data, and return the report, which a notebook shows as a page.

    Args:
        train: a file, a folder, two files of parallel text, or the name of a dataset.
        batch_tokens: size of a batch in tokens, padding included; the report says how full batches are (default:
            that of training).

    All other arguments are the options of `seqloom data check`, with the same names.

    Raises RejectedError if the data cannot be read; its message says where and why.
    """
    named: dict[str, Any] = {"dev": dev, "test": test, "task": task, "input": input, "target": target, "id": id}
    named |= {"label_separator": label_separator, "sequence": sequence, "split_column": split_column}
    named |= {"dev_size": dev_size, "test_size": test_size, "split_seed": split_seed, "group": group, "folds": folds}
    named |= {"fold": fold, "format": format, "encoding": encoding, "delimiter": delimiter, "header": header}
    named |= {"template": template, "unit": unit, "skip_bad_rows": skip_bad_rows, "max_bad_rows": max_bad_rows}
    named |= {"tokenizer": tokenizer, "target_tokenizer": target_tokenizer, "normalize": normalize}
    named |= {"lowercase": lowercase, "vocab_size": vocab_size, "min_count": min_count, "word_split": word_split}
    named |= {"max_length": max_length, "overlong": overlong}
    config = data_config(train, stated(named))
    checked = checking(config, asked_encoding(stated(named)), batch_tokens=batch_tokens)
    return finished(checked)


def data_config(
    train: tuple[str | Path, ...], given: Mapping[str, Any], before: DataConfig | None = None
) -> DataConfig:
    """Return the configuration of these files with the given options; other settings come from `before`."""
    paths = tuple(map(str, train))
    defaults = DataConfig(train=paths) if before is None else msgspec.structs.replace(before, train=paths)
    return with_flags(defaults, given)
