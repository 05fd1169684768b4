"""`seqloom data check`: read a dataset as training would, and report on it. Nothing encoded is kept."""

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

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
from seqloom.data.checks.labels import BY_TABLE
from seqloom.data.clean import unreadable_rows
from seqloom.data.dataset import Dataset, open_data
from seqloom.data.order import Order, default_batch_tokens
from seqloom.data.prepared import SPLIT, Prepared, default_encoding, encoded, fitted_encoder, prepare
from seqloom.data.problems import Ledger, Place, cleaned_name
from seqloom.data.proposal import in_two_encodings
from seqloom.data.readers.passages import lines_in_windows
from seqloom.data.report import Batching, DataReport, ReportColumns, Reporter
from seqloom.data.survey import Survey
from seqloom.errors import RejectedError, SeqloomError
from seqloom.events import Progress, Work, finished

UTF_8 = ReadingConfig().encoding
DECIDED = (BY_TABLE, "--conflicts", "--repeats")  # by the user: a table to write, and rows of which many may be dropped


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
    dataset, config, ledger, missing, mixed = _opened(config)
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
    findings, following = _with_commands(config, encoder.ledger, (*mixed, *report.findings))
    return replace(report, findings=(*missing, *findings), next=following)


class Opened(NamedTuple):
    """A dataset, its settings as commands repeat them, its ledger, and findings about what kept it from opening."""

    dataset: Dataset
    config: DataConfig
    ledger: ReportedRows
    missing: tuple[DataFinding, ...] = ()  # settings
    mixed: tuple[DataFinding, ...] = ()  # lines in two encodings


def _opened(config: DataConfig) -> Opened:
    """The dataset. If it is refused and the settings that open it are clear, it is opened with these.

    Lines in two encodings are all read; no setting does that, so `config` has the encoding that was given.
    """
    ledger = ReportedRows.of(config)
    try:
        return Opened(open_data(config, ledger), config, ledger)
    except RejectedError as error:
        read = in_two_encodings(config, error)
        if read is None:
            return _opened_with_remedy(config, config, error)
        ledger = ReportedRows.of(config)
        try:
            opened = Opened(open_data(read, ledger), config, ledger)
        except RejectedError as later:
            try:
                opened = _opened_with_remedy(config, read, later)
            except RejectedError:
                raise error from None  # it has the options for both
        return opened._replace(mixed=(_mixed_lines(opened, error.details[-1]),))


def _opened_with_remedy(config: DataConfig, read: DataConfig, error: RejectedError) -> Opened:
    """The dataset with the settings that its refusal names; raise the refusal if these do not open it."""
    if not error.remedy or error.total > 1:
        raise error
    config, ledger = with_flags(config, error.remedy), ReportedRows.of(with_flags(config, error.remedy))
    try:
        dataset = open_data(with_flags(read, error.remedy), ledger)
    except SeqloomError:
        raise error from None
    last = error.details[-1]
    place = str(Place(**{name: last[name] for name in Place._fields}))  # type: ignore[arg-type]  # as it was written
    sample = FindingSample(place, f"{last['text']}; this report uses the options of the fix", str(last["fix"]))
    return Opened(dataset, config, ledger, (DataFinding("reject", str(last["code"]), 0, (sample,)),))


def _mixed_lines(opened: Opened, first: Mapping[str, Any]) -> DataFinding:
    """A finding about lines in Windows-1252 among lines in UTF-8; of the first one more is known."""
    config, samples, rows = opened.config, [], 0
    for path in (*config.train, *config.dev, *config.test):
        if found := lines_in_windows(Path(path), Ledger()):
            place, text, rows = (
                f"{Place(path, found[0])}",
                "lines in Windows-1252 among lines in UTF-8",
                rows + len(found),
            )
            if path == first["path"]:
                place, text = f"{place}:{first['column']}", str(first["text"])
            samples.append(FindingSample(place, text, opened.ledger.or_clean("save the whole file as UTF-8", path)))
    return DataFinding("reject", "enc.mixed", rows, tuple(samples))


def _with_commands(
    config: DataConfig, ledger: Ledger, findings: Sequence[DataFinding]
) -> tuple[tuple[DataFinding, ...], tuple[str, ...]]:
    """The findings, whose fixes clean files with the options that unreadable rows need, and the commands to run next.

    How many rows of a file cannot be read is known only when all fixes are written.
    """
    files = dict.fromkeys((*config.train, *config.dev, *config.test), "")
    for path in files:
        if command := ledger.clean_command(path):
            full = _skipping_command(path, config, ledger) if ledger.skipped else command
            if full:
                files[path] = full = " ".join([full, *_options_of(findings, command)])
                findings = [_with_command(one, command, full) for one in findings]
    skipped = set(ledger.bad) if all(files.values()) else set[str]()  # the copies are without these rows
    return (*findings,), _next(config, files, ledger.format, findings, skipped)


def _skipping_command(path: str, config: DataConfig, ledger: Ledger) -> str:
    """The command that cleans a file without its unreadable rows; empty if these are too many."""
    bad_rows = unreadable_rows(path, config.reading, config.bad_rows).skipping()
    if bad_rows is None:
        return ""
    skipping = Ledger.of(msgspec.structs.replace(config, bad_rows=bad_rows))
    skipping.format = ledger.format
    return skipping.clean_command(path)


def _options_of(findings: Sequence[DataFinding], command: str) -> Iterator[str]:
    """The options that the fixes add to a command, so that one command does what all of them advise.

    Options that the user has to decide about are left to each fix. Of two counts the larger one does both.
    """
    options: dict[str, str] = {}
    for fix in (sample.fix for one in findings for sample in one.samples):
        for added in re.findall(f"`{re.escape(command)} ([^`]*)`", fix):
            if not added.startswith(DECIDED):
                words = added.split()
                for flag, value in zip(words[::2], words[1::2], strict=True):
                    options[flag] = max(options.get(flag, ""), value, key=lambda one: (len(one), one))
    return (f"{flag} {value}" for flag, value in options.items())


def _with_command(finding: DataFinding, command: str, full: str) -> DataFinding:
    """The finding, whose fixes have the complete command and say which of its options they mean."""

    def completed(found: re.Match[str]) -> str:
        words, added = found[1], found[2] or ""
        if added.startswith(DECIDED):
            return f"{words}: `{full} {added}`"
        return f"{words} with {added}: `{full}`" if added else f"{words}: `{full}`"

    advised = re.compile(f"(in a copy|clean a copy): `{re.escape(command)}(?: ([^`]*))?`")
    samples = (one._replace(fix=advised.sub(completed, one.fix)) for one in finding.samples)
    return finding._replace(samples=(*samples,))


def _next(
    config: DataConfig,
    commands: Mapping[str, str],
    format: Format | None,
    findings: Sequence[DataFinding],
    skipped: Collection[str] = (),
) -> tuple[str, ...]:
    """The commands to run next: clean the files that have something to clean, then train; none after other errors.

    `commands` are those that clean each file; empty for a file that cannot be cleaned. They leave out bad rows with the
    codes `skipped`.
    """
    files = {path: f"`{command}`" for path, command in commands.items()}
    advised = {one: [path for path in files if _advises(one, files[path])] for one in findings}
    copies = {
        path: cleaned_name(path, format) or path for path in files if any(path in some for some in advised.values())
    }
    unclean = (one for one, some in advised.items() if not some and one.code not in skipped)
    errors = [one for one in unclean if one.severity == "reject"]
    if errors and not copies:
        return ()
    reading = config.reading
    if copies and reading.encoding != UTF_8:  # a copy is UTF-8, and one command reads all files in one encoding
        copies = {path: copy for path in files if (copy := cleaned_name(path, format))}
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
