"""`seqloom data check`: read a dataset as training would, and report on it. Nothing encoded is kept."""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.config.data import (
    SPLITS,
    AskedEncoding,
    BadRows,
    DataConfig,
    Format,
    Overlong,
    ReadingConfig,
    Task,
    Unit,
    asked_encoding,
    encoding_over,
)
from seqloom.config.options import as_arguments, stated, strict, typed_changes, with_flags
from seqloom.config.tokenizers import FittedTokenizer, UnicodeForm, WordSplit
from seqloom.data.checks.check import DataFinding, FindingSample
from seqloom.data.checks.labels import BY_TABLE, TYPOS_MERGED
from seqloom.data.checks.spelling import one_spelling, trimmed
from seqloom.data.clean import rows_with_lines, unreadable_rows
from seqloom.data.clean_commands import label_table
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
from seqloom.report.numbers import counted

SKIPPED_THERE = re.compile(r"[,;] or skip (?:such rows|them) with --skip-bad-rows(?: and --max-bad-rows \S+)?$")
DROPPED = ("row.empty_text", "row.empty_label")  # rows that can be read, and that cleaning drops
MOST_SHARED = 100  # spellings in a command that writes a table
UTF_8 = ReadingConfig().encoding
# Options that the user decides about: a table to write, and rows and labels of which many may be dropped.
DECIDED = (BY_TABLE, "--conflicts", "--repeats", "--rare")


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
    opened = _opened(config)
    try:
        return (yield from _checking(opened, encoding, batch_tokens))
    except RejectedError:
        if opened.refusal is None:
            raise
        raise opened.refusal from None  # what was assumed does not fit all files, and nobody asked for it


def _checking(opened: "Opened", encoding: AskedEncoding | None, batch_tokens: int | None) -> Work[DataReport]:
    dataset, config, ledger, missing, mixed, _ = opened
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
    labels = [Counter({one.label: one.counts[at] for one in report.labels}) for at in range(len(report.splits))]
    findings, following = _with_commands(config, encoder.ledger, (*mixed, *report.findings), labels)
    return replace(report, findings=(*missing, *findings), next=following)


class Opened(NamedTuple):
    """A dataset, its settings as commands repeat them, its ledger, and findings about what kept it from opening."""

    dataset: Dataset
    config: DataConfig
    ledger: ReportedRows
    missing: tuple[DataFinding, ...] = ()  # settings
    mixed: tuple[DataFinding, ...] = ()  # lines in two encodings
    refusal: RejectedError | None = None  # without the settings that were assumed


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
                opened = _opened_with_remedy(config, read, later)._replace(refusal=error)
            except RejectedError:
                raise error from None  # it has the options for both
        return opened._replace(mixed=(_mixed_lines(opened, error.details[-1]),))


def _opened_with_remedy(config: DataConfig, read: DataConfig, error: RejectedError) -> Opened:
    """The dataset with the settings that its refusal names; raise the refusal if these do not open it."""
    if not error.remedy or error.total > 1:
        raise error
    config = with_flags(config, error.remedy)
    ledger = ReportedRows.of(config)
    try:
        dataset = open_data(with_flags(read, error.remedy), ledger)
    except SeqloomError:
        raise error from None
    last = error.details[-1]
    place = str(Place(**{name: last[name] for name in Place._fields}))  # type: ignore[arg-type]  # as it was written
    sample = FindingSample(place, f"{last['text']}; this report uses the options of the fix", str(last["fix"]))
    missing = DataFinding("reject", str(last["code"]), 0, (sample,))
    return Opened(dataset, config, ledger, (missing,), refusal=error)


def _mixed_lines(opened: Opened, first: Mapping[str, Any]) -> DataFinding:
    """A finding about lines in Windows-1252 among lines in UTF-8; of the first one more is known."""
    config, samples, rows = opened.config, [], 0
    for path in (*config.train, *config.dev, *config.test):
        if found := lines_in_windows(Path(path), Ledger()):
            rows += rows_with_lines(Path(path), config.reading, found)
            place = str(Place(path, found[0]))
            text = f"{counted(len(found), 'line')} in Windows-1252 among lines in UTF-8"
            if path == first["path"]:
                place, text = f"{place}:{first['column']}", str(first["text"])
            samples.append(FindingSample(place, text, opened.ledger.or_clean("save the whole file as UTF-8", path)))
    return DataFinding("reject", "enc.mixed", rows, tuple(samples))


def _with_commands(
    config: DataConfig, ledger: Ledger, findings: Sequence[DataFinding], labels: Sequence[Counter[str]]
) -> tuple[tuple[DataFinding, ...], tuple[str, ...]]:
    """The findings, whose fixes clean files with the options that unreadable rows need, and the commands to run next.

    How many rows of a file cannot be read is known only when all fixes are written.
    """
    paths = dict.fromkeys((*config.train, *config.dev, *config.test))
    commands = {path: ledger.clean_command(path) for path in paths}
    unreadable = {
        path: unreadable_rows(path, config.reading, config.bad_rows)
        for path, command in commands.items()
        if command and ledger.skipped
    }
    files = {
        path: _skipping_command(path, config, ledger, unreadable[path]) if path in unreadable else command
        for path, command in commands.items()
    }
    write_table, by_table = _shared_table(files, commands, findings, labels)
    for path, command in commands.items():
        if files[path]:
            options = [one for one in _options_of(findings, command) if not by_table or one != TYPOS_MERGED]
            files[path] = full = " ".join([files[path], *options, *([by_table] if by_table else [])])
            findings = [_with_command(one, command, full) for one in findings]
            if ledger.skipped:
                findings = [_left_out_by(full, path, one) for one in findings]
    skipped = set(ledger.bad) if all(files.values()) else set[str]()  # the copies are without these rows
    clean = {*DROPPED, *(code for rows in unreadable.values() for code in rows.bad)} >= set(ledger.bad)
    following = _next(config, files, ledger.format, findings, skipped, every=bool(by_table), clean=clean)
    return (*findings,), (*([write_table] if write_table else []), *following)


def _shared_table(
    files: Mapping[str, str],
    commands: Mapping[str, str],
    findings: Sequence[DataFinding],
    labels: Sequence[Counter[str]],
) -> tuple[str, str]:
    """The command that writes a table of spellings, and the option that uses it; empty if none is needed.

    Several files are cleaned one by one, and the spelling that is most frequent in one may be rare in another.

    Args:
        files: the command that cleans each file; empty if a file cannot be cleaned.
        commands: the same without the options that its bad rows need, as the findings have them.
        findings: what the check found.
        labels: the labels of each split.
    """
    fixes = [case.fix for one in findings if one.code in ("label.case", "label.rare") for case in one.samples]
    used = [fix for fix in fixes if any(command and command in fix for command in commands.values())]
    if len(files) < 2 or not used or not all(files.values()):
        return "", ""
    typos = any(f" {TYPOS_MERGED}`" in fix for fix in used)
    renamed = one_spelling(sum(labels, Counter()), typos=typos)
    if len(files) == len(labels) and all(_agree(one_spelling(+own, typos=typos), renamed, +own) for own in labels):
        return "", ""
    table = {trimmed(label): name for label, name in renamed.items() if trimmed(label) != name}
    return label_table(Path(next(iter(commands))), table) if 0 < len(table) <= MOST_SHARED else ("", "")


def _skipping_command(path: str, config: DataConfig, ledger: Ledger, unreadable: Ledger) -> str:
    """The command that cleans a file without its unreadable rows; empty if these are too many."""
    bad_rows = unreadable.skipping()
    if bad_rows is None:
        return ""
    skipping = Ledger.of(msgspec.structs.replace(config, bad_rows=bad_rows))
    skipping.format = ledger.format
    return skipping.clean_command(path)


def _options_of(findings: Sequence[DataFinding], command: str) -> Iterator[str]:
    """The options that the fixes add to a command, so that one command does what all of them advise.

    Options that the user has to decide about are left to each fix.
    """
    fixes = (sample.fix for one in findings for sample in one.samples)
    added = (one for fix in fixes for one in re.findall(f"`{re.escape(command)} ([^`]*)`", fix))
    return iter(dict.fromkeys(one for one in added if not one.startswith(DECIDED)))


def _agree(names: Mapping[str, str], others: Mapping[str, str], labels: Iterable[str]) -> bool:
    return all(names.get(label, label) == others.get(label, label) for label in labels)


def _with_command(finding: DataFinding, command: str, full: str) -> DataFinding:
    """The finding, whose fixes have the complete command and say which of its options they mean."""

    def completed(found: re.Match[str]) -> str:
        words, added = found[1], found[2] or ""
        if added == BY_TABLE and "--labels" in full:
            return f"{words} with more rows in its table: `{full}`"
        if added.startswith(DECIDED):
            return f"{words}: `{full} {added}`"
        return f"{words} with {added}: `{full}`" if added and added in full else f"{words}: `{full}`"

    advised = re.compile(f"(in a copy|clean a copy): `{re.escape(command)}(?: ([^`]*))?`")
    samples = (one._replace(fix=advised.sub(completed, one.fix)) for one in finding.samples)
    return finding._replace(samples=(*samples,))


def _left_out_by(command: str, path: str, finding: DataFinding) -> DataFinding:
    """The finding; rows of the file that could be skipped are left out of a copy, with the limit that this needs."""

    def left_out(sample: FindingSample) -> FindingSample:
        if not sample.place.startswith(f"{path}:"):
            return sample
        advice = "" if f"`{command}`" in sample.fix else f", or leave such rows out of a copy: `{command}`"
        return sample._replace(fix=SKIPPED_THERE.sub(advice, sample.fix))

    return finding._replace(samples=tuple(map(left_out, finding.samples)))


def _next(
    config: DataConfig,
    commands: Mapping[str, str],
    format: Format | None,
    findings: Sequence[DataFinding],
    skipped: Collection[str] = (),
    *,
    every: bool = False,
    clean: bool = False,
) -> tuple[str, ...]:
    """The commands to run next: clean the files that have something to clean, then train; none after other errors.

    `commands` are those that clean each file; empty for a file that cannot be cleaned. They leave out bad rows with the
    codes `skipped`. All files are cleaned if `every`, because they share a table of labels. `clean` is whether the
    copies have no bad rows.
    """
    files = {path: f"`{command}`" for path, command in commands.items()}
    advised = {
        one: [path for path in files if _advises(one, files[path]) or (one.code in skipped and _concerns(one, path))]
        for one in findings
    }
    copies = {
        path: cleaned_name(path, format) or path
        for path in files
        if every or any(path in some for some in advised.values())
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
    bad_rows = BadRows() if clean and len(copies) == len(files) else config.bad_rows
    after = msgspec.structs.replace(config, **parts, reading=reading, bad_rows=bad_rows)
    names = ["seqloom", "data check" if errors else "train", *map(shlex.quote, after.train), *typed_changes(after)]
    return (*cleaning, " ".join(names))


def _concerns(finding: DataFinding, path: str) -> bool:
    return finding.severity == "reject" and any(sample.place.startswith(f"{path}:") for sample in finding.samples)


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
    report = finished(checking(config, asked_encoding(stated(named)), batch_tokens=batch_tokens))
    return report.reworded(lambda text: as_arguments(text, check_data))


def data_config(
    train: tuple[str | Path, ...], given: Mapping[str, Any], before: DataConfig | None = None
) -> DataConfig:
    """Return the configuration of these files with the given options; other settings come from `before`."""
    paths = tuple(map(str, train))
    defaults = DataConfig(train=paths) if before is None else msgspec.structs.replace(before, train=paths)
    return with_flags(defaults, given)
