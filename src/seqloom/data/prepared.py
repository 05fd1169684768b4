"""Data prepared for training: read, checked, encoded, and kept in a memory-mapped cache for the next time.

    first start    survey (checks, tokenizer fitted on the training set) ──▶ encode ──▶ cache
    next start     cache, verified; it is rebuilt if the fingerprint of a source file changed

All rows are in one set of columns; a split is a list of row numbers, in the order of its files. If one file is split,
its rows are stored in blocks of one split each, so row numbers do not follow the lines of the file; `Prepared.place_of`
returns the file and line of a row. Rows have the same numbers in memory and in the cache.
"""

import hashlib
import heapq
import json
import platform
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from seqloom.config.data import SPLITS, AnySplit, EncodingConfig, GivenSplit, SplitName
from seqloom.config.tokenizers import WordpieceConfig
from seqloom.data.cache import open_or_build
from seqloom.data.checks.check import DataFinding, findings_in, numbered_places
from seqloom.data.dataset import Dataset
from seqloom.data.kinds.kind import Coding, Columns, InputKind
from seqloom.data.kinds.related import cut_texts, longest_texts
from seqloom.data.kinds.words import Words
from seqloom.data.order import sample_order
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Examples, Schema
from seqloom.data.splits import SplitSummary
from seqloom.data.survey import Survey
from seqloom.data.word_vectors import first_words, with_words
from seqloom.events import Progress, Show, Work, finished
from seqloom.report.numbers import counted
from seqloom.text.ragged import Ragged
from seqloom.text.segmenter import closed
from seqloom.text.special_tokens import COUNT, NAMES, SEPARATOR, UNKNOWN
from seqloom.text.tokenizer import Tokenizer, TokenizerFit
from seqloom.text.word_splitter import SplitterFit, WordSplitter
from seqloom.version import __version__

PLACE = "place"  # the column [rows,2] with the file number and the line of each row
_LONGER = "raise --max-length"


def default_encoding(schema: Schema) -> EncodingConfig:
    """The encoding of a run that names no setting of it."""
    tokenizer = schema.input.tokenizer(schema.target.default_tokenizer)
    assert not isinstance(tokenizer, WordpieceConfig), "no data asks for the tokenizer of an imported model"
    return EncodingConfig(tokenizer=tokenizer)


class ExampleEncoder:
    """Encodes blocks of examples as columns; inputs over the maximum length are truncated or rejected.

    Labels and tokenizers are those of the training set.
    """

    def __init__(
        self,
        schema: Schema,
        config: EncodingConfig,
        tokenizer: Tokenizer | None,
        target_tokenizer: Tokenizer | None,
        ledger: Ledger,
    ) -> None:
        self.schema, self.config, self.ledger = schema, config, ledger
        self.tokenizer, self.target_tokenizer = tokenizer, target_tokenizer
        self.files: dict[str, int] = {}  # in reading order
        self.shapes: dict[str, tuple[int | str, ...]] = {}  # by code: of the first arrays and numbers
        self.numbers = {label: number for number, label in enumerate(schema.labels)}
        self.dev_texts: dict[int, str] = {}  # inputs of dev rows that their tokens do not show as written
        self.splitting = SplitterFit() if schema.input.in_words else None  # of training words

    def columns(self, examples: Examples) -> dict[str, Ragged]:
        """Return the columns of some examples; overlong ones are truncated and counted, or skipped as bad rows."""
        columns = self._encoded(examples)
        numbers = np.stack(numbered_places(examples, self.files), axis=1).astype(np.uint32)
        columns[PLACE] = Ragged(numbers, np.arange(len(numbers) + 1))
        lengths, longest = self._lengths(columns), self.config.max_length
        long = np.flatnonzero(lengths > longest)
        if not len(long):
            return columns
        if self.config.overlong == "truncate":
            for row in long.tolist():
                text = f"length {lengths[row]:,}, truncated to {longest:,}"
                self.ledger.warn("seq.truncated", text, examples.place(row), _LONGER)
            return self._cut(columns)
        for row in long.tolist():
            text = f"length {lengths[row]:,}; at most {longest:,} is allowed"
            self.ledger.bad_row("seq.too_long", text, examples.place(row), _LONGER)
        self.ledger.rows -= len(long)
        short = np.flatnonzero(lengths <= longest)
        return {name: column.select(short) for name, column in columns.items()}

    def _encoded(self, examples: Examples) -> dict[str, Ragged]:
        kind, target = self.schema.input, self.schema.target
        inputs, targets = examples.inputs, examples.targets
        for common_shape in (kind.common_shape(inputs[0]), target.common_shape(targets[0])):
            if common_shape is not None:
                # The reader compared the rows of one split; here splits are compared.
                code, shape = common_shape
                before = self.shapes.setdefault(code, shape)
                if shape != before:
                    found, wanted = (" x ".join(map(str, one)) for one in (shape, before))
                    text = f"expected {wanted} as in the other splits, found {found}"
                    fix = "use arrays of one shape and type in all splits"
                    self.ledger.bad_file(code, text, examples.place(0), fix)
        columns = kind.encode(inputs, self.tokenizer)
        lengths, longest = columns["input"].lengths, self.config.max_length
        coding = Coding(self.tokenizer, self.target_tokenizer, self.numbers, longest, kind, inputs, lengths)
        return columns | target.encode(targets, coding)

    def _lengths(self, columns: Columns) -> np.ndarray:
        """[rows] the lengths to compare with `max_length`: of texts encoded one by one, the longest of each row."""
        lengths, given = self.schema.target.lengths(columns), columns["input"]
        if self.schema.input.fixed_size:
            return lengths
        texts = longest_texts(given) if self.schema.target.separate_texts else given.lengths
        return np.asarray(np.maximum(lengths, texts))

    def _cut(self, columns: dict[str, Ragged]) -> dict[str, Ragged]:
        most, framed = self.config.max_length, self.tokenizer is not None and self.tokenizer.config.framed
        if self.schema.target.separate_texts:
            texts = cut_texts(columns["input"], most)
            cut = columns | {"input": closed(texts) if framed else texts}
        else:
            cut = self.schema.input.cut(columns, most, framed=framed)
        return cut | self.schema.target.cut(cut, most)


FORMAT = 6
FACTS = "facts.json"
SPLIT = "split"  # the column with the split of each row
KEPT_TEXTS, LONGEST_KEPT = 4_096, 240  # dev rows whose text is kept, and characters of each


class PreparedFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The metadata of prepared data, stored next to its columns."""

    input: str
    target: str
    labels: tuple[str, ...]
    tokenizer: str | None  # JSON texts
    target_tokenizer: str | None
    split: AnySplit
    findings: tuple[DataFinding, ...]
    files: tuple[str, ...]  # in reading order
    dev_texts: dict[int, str]  # original inputs of dev rows that their tokens do not show as written, one line each
    skipped: dict[str, int]  # bad rows by code
    splitter: WordSplitter | None = None


class GivenEncoding(NamedTuple):
    """Labels and tokenizers of an existing model; None: taken from the training set."""

    labels: tuple[str, ...] | None = None
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None

    def fingerprint(self) -> str:
        """A hash of all of it."""
        tokenizers = (self.tokenizer, self.target_tokenizer)
        texts = [None if one is None else one.to_json() for one in tokenizers]
        return hashlib.sha256(json.dumps([self.labels, *texts]).encode()).hexdigest()


class NoChecks:
    """Checks nothing: for data on which a model is only evaluated."""

    def update(self, split: str, examples: Examples) -> None:
        """Do nothing."""

    def finish(self, ledger: Ledger) -> None:
        """Do nothing."""


class Prepared(NamedTuple):
    """Encoded data: the columns of all rows, the rows of each split, and the tokenizers and labels."""

    schema: Schema
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    columns: Columns
    splits: dict[SplitName, np.ndarray]  # row numbers of each split, in the order of its files
    findings: tuple[DataFinding, ...]
    split: AnySplit
    places: np.ndarray  # [rows,2] the file number and the line of each row
    files: tuple[str, ...]
    dev_texts: dict[int, str]  # original inputs of dev rows that their tokens do not show as written
    skipped: Mapping[str, int] = {}  # bad rows by code
    splitter: WordSplitter | None = None  # learned from the words of the training set, if the input is in words

    def __repr__(self) -> str:
        rows = ", ".join(f"{split} {len(rows):,}" for split, rows in self.splits.items())
        tokens = "" if self.tokenizer is None else f", {self.tokenizer.vocab_size:,} tokens"
        kinds = f"{self.schema.input} to {self.schema.target}"
        return f"Prepared({self.schema.task}: {kinds}; {rows}{tokens}; {len(self.findings)} kinds of findings)"

    @property
    def messages(self) -> tuple[str, ...]:
        """A line that says how many bad rows were skipped, if any were."""
        if not self.skipped:
            return ()
        kinds = ", ".join(f"{count:,} {code}" for code, count in self.skipped.items())
        return (f"data: {counted(sum(self.skipped.values()), 'bad row')} skipped ({kinds})",)

    def shown(self, row: int) -> str:
        """The input of a row in one line, as a model reads it."""
        return self.schema.input.show(self.columns, row, self.tokenizer)

    def place_of(self, row: int) -> Place:
        """The file and line of a row; the ids of a batch are row numbers."""
        file, line = self.places[row].tolist()
        return Place(self.files[file], line or None)

    @property
    def split_summary(self) -> SplitSummary:
        """The split rule and the number of rows in each split, as written to a run folder."""
        return SplitSummary(self.split, {split: len(rows) for split, rows in self.splits.items()})


def prepare(
    dataset: Dataset,
    encoding: EncodingConfig,
    ledger: Ledger,
    *,
    cache: Path | None = None,
    given: GivenEncoding | None = None,
    show: Show | None = None,
) -> Prepared:
    """Return the encoded dataset: from the cache if it is there, else read, checked, encoded and cached.

    Args:
        dataset: what `open_data` returned.
        encoding: tokenizers and lengths.
        ledger: collects the problems.
        cache: a folder for the encoded data (default: none).
        given: labels and tokenizers of an existing model, used instead of those of the training set.
        show: is called with the progress.
    """
    evaluated = given is not None and given.labels is not None
    survey = Survey(dataset, ledger, NoChecks() if evaluated else None)
    return finished(preparing(survey, encoding, cache=cache, given=given), show)


def preparing(
    survey: Survey, encoding: EncodingConfig, *, cache: Path | None = None, given: GivenEncoding | None = None
) -> Work[Prepared]:
    """The same as a generator that yields its progress. If a survey is encoded twice, its rows are checked once."""
    if cache is not None:
        return (yield from _cached(survey, encoding, cache, given))
    encoder = yield from _encoder(survey, encoding, given)
    blocks = list[Columns]()
    for block in encoded(survey, encoder):
        if isinstance(block, Progress):
            yield block
        else:
            blocks.append(block)
    columns = {name: Ragged.joined([block[name] for block in blocks]) for name in blocks[0]}
    return _prepared(_facts(survey, encoder), columns)


def _encoder(survey: Survey, encoding: EncodingConfig, given: GivenEncoding | None) -> Work[ExampleEncoder]:
    """Return an encoder with the given labels and tokenizers; the rest is fitted during the survey."""
    if given is None or (given.tokenizer is None and given.target_tokenizer is None):
        fitted = yield from fitted_encoder(survey, encoding)
    else:
        yield from survey.read()
        target = (given.target_tokenizer or given.tokenizer) if survey.dataset.schema.target.is_text else None
        fitted = ExampleEncoder(survey.schema(), encoding, given.tokenizer, target, deepcopy(survey.ledger))
    if given is None or given.labels is None:
        return fitted
    schema = fitted.schema._replace(labels=given.labels)
    return ExampleEncoder(schema, encoding, fitted.tokenizer, fitted.target_tokenizer, fitted.ledger)


def fitted_encoder(survey: Survey, encoding: EncodingConfig) -> Work[ExampleEncoder]:
    """Run the survey, and return an encoder with the tokenizers and labels of the training set.

    Its ledger continues that of the survey, which keeps only what is true of every encoding.
    """
    schema, separate = survey.dataset.schema, encoding.target_tokenizer is not None
    to_text = schema.target.is_text
    tokenizer = target_tokenizer = None
    if schema.input.reads_tokens:
        tokenizer = yield from _fitted(survey, encoding, inputs=True, targets=to_text and not separate)
        if to_text:
            target_tokenizer = tokenizer
        if to_text and encoding.target_tokenizer is not None:
            trained = (block.targets for part, block in survey.again() if part == "train")
            target_tokenizer = encoding.target_tokenizer.fit(map(str, chain.from_iterable(trained)))
    elif to_text:
        target_tokenizer = yield from _fitted(survey, encoding, inputs=False, targets=True)
    else:
        yield from survey.read()
    ledger = deepcopy(survey.ledger)
    for fitted in {id(one): one for one in (tokenizer, target_tokenizer) if one is not None}.values():
        # Report words that do not fit into the vocabulary.
        place = Place(survey.dataset.config.train[0])
        limit, kept = getattr(fitted.config, "vocab_size", None), fitted.vocab_size - COUNT
        if fitted.dropped and fitted.vocab_size == limit:
            kind = fitted.config.kind()
            found = f"{kept + fitted.dropped:,} different {kind}"
            text = f"{found}; the {kept:,} most frequent are kept, the others are unknown"
            ledger.warn("vocab.capped", text, place, f"raise --vocab-size above {limit:,}, or use --tokenizer bpe")
    if tokenizer is not None and encoding.word_vectors is not None:
        tokenizer = with_words(tokenizer, first_words(encoding.word_vectors.path, encoding.word_vectors.limit))
    return ExampleEncoder(survey.schema(), encoding, tokenizer, target_tokenizer, ledger)


def _fitted(survey: Survey, encoding: EncodingConfig, *, inputs: bool, targets: bool) -> Work[Tokenizer]:
    """Fit a tokenizer to the texts of the training set while the survey reads all splits."""
    kind, config = survey.dataset.schema.input, encoding.tokenizer if inputs else encoding.target_tokenizer
    config = config or encoding.tokenizer
    with TokenizerFit(kind.tokenizer(config) if inputs else config) as fitting:
        for part, block in survey.blocks():
            if part == "train":
                fitting.add(list(_fitting_texts(block, kind, encoding, inputs=inputs, targets=targets)))
            yield survey.progress()
        return fitting.tokenizer()


def _fitting_texts(
    block: Examples, kind: InputKind, encoding: EncodingConfig, *, inputs: bool, targets: bool
) -> Iterable[str]:
    """The texts of a block to which a tokenizer is fitted, in the order of the rows."""
    if kind.is_text and not targets:
        return cast(list[str], block.inputs)
    own = (kind.fitting_texts(value, encoding.tokenizer) if inputs else () for value in block.inputs)
    others = ((str(target),) if targets else () for target in block.targets)
    return chain.from_iterable(chain.from_iterable(zip(own, others, strict=True)))


def encoded(survey: Survey, encoder: ExampleEncoder) -> Iterator[dict[str, Ragged] | Progress]:
    """Yield the encoded columns block by block, with the split of each row, and the progress."""
    done = trained = first = 0
    for part, block in survey.again():
        columns = encoder.columns(block)
        rows = columns["input"].rows
        if part == "dev" and encoder.tokenizer is not None:
            found = encoder.dev_texts | dict(_changed_texts(block, columns, encoder, first))
            encoder.dev_texts = {
                row: found[row] for row in heapq.nsmallest(KEPT_TEXTS, found, lambda row: sample_order(str(row)))
            }
        if part == "train" and encoder.splitting is not None:
            for given in block.inputs:
                encoder.splitting.add(cast(Words, given).words())
        first += rows
        parts = Ragged(np.full(rows, SPLITS.index(part), np.uint8), np.arange(rows + 1))
        done += len(block)
        trained += rows if part == "train" else 0
        yield Progress("rows encoded", done, sum(survey.rows.values()))
        yield columns | {SPLIT: parts}
    encoder.ledger.close()  # overlong rows are known only now
    if not trained:
        place = Place(survey.dataset.config.train[0])
        encoder.ledger.bad_file("data.no_train", "every row of the training set is too long", place, _LONGER)


def _changed_texts(block: Examples, columns: Columns, encoder: ExampleEncoder, first: int) -> Iterator[tuple[int, str]]:
    """Yield the rows of a block that their tokens do not show as written, and their original text in one line.

    These are rows with unknown tokens, or all if the tokenizer drops the case. Rows are counted from `first`.
    """
    values, starts = columns["input"]
    lowered = encoder.tokenizer is not None and encoder.tokenizer.config.lowercase
    changed = np.ones_like(values, bool) if lowered else values == UNKNOWN
    rows = np.unique(np.searchsorted(starts, np.flatnonzero(changed), side="right") - 1)
    places = zip((encoder.files[path] for path in block.paths), (line or 0 for line in block.lines), strict=True)
    inputs = dict(zip(places, block.inputs, strict=True))
    for row in rows.tolist():
        given = inputs[tuple(columns[PLACE].values[row].tolist())]
        text = f" {NAMES[SEPARATOR]} ".join(encoder.schema.input.texts(given))
        yield first + row, " ".join(text.split())[:LONGEST_KEPT]


def _facts(survey: Survey, encoder: ExampleEncoder) -> PreparedFacts:
    first, second = encoder.tokenizer, encoder.target_tokenizer
    return PreparedFacts(
        input=encoder.schema.input.name,
        target=encoder.schema.target.name,
        labels=encoder.schema.labels,
        tokenizer=None if first is None else first.to_json(),
        target_tokenizer=None if second is None or second is first else second.to_json(),
        split=survey.dataset.config.split or GivenSplit(),
        findings=findings_in(encoder.ledger),
        files=tuple(encoder.files),
        dev_texts=encoder.dev_texts,
        skipped=dict(encoder.ledger.bad),
        splitter=None if encoder.splitting is None else encoder.splitting.splitter(),
    )


def _prepared(facts: PreparedFacts, columns: Columns) -> Prepared:
    tokenizer = None if facts.tokenizer is None else Tokenizer.from_json(facts.tokenizer)
    second = None if facts.target_tokenizer is None else Tokenizer.from_json(facts.target_tokenizer)
    codes = columns[SPLIT].values
    parts = {part: np.flatnonzero(codes == number) for number, part in enumerate(SPLITS)}
    schema = Schema(facts.input, facts.target, facts.labels)
    if second is None and schema.target.is_text:
        second = tokenizer
    kept = {name: column for name, column in columns.items() if name not in (SPLIT, PLACE)}
    return Prepared(
        schema=schema,
        tokenizer=tokenizer,
        target_tokenizer=second,
        columns=kept,
        splits=parts,
        findings=facts.findings,
        split=facts.split,
        places=columns[PLACE].values,
        files=facts.files,
        dev_texts=facts.dev_texts,
        skipped=facts.skipped,
        splitter=facts.splitter,
    )


def _cached(survey: Survey, encoding: EncodingConfig, cache: Path, given: GivenEncoding | None) -> Work[Prepared]:
    """Read the cache, which is built if it is missing, damaged, or out of date.

    The settings name the folder, so that two ways to read one file do not replace each other. Source files and versions
    are compared: if they changed, the folder is rebuilt.
    """
    dataset, encoders = survey.dataset, list[ExampleEncoder]()
    settings = {"data": msgspec.to_builtins(dataset.config), "encoding": msgspec.to_builtins(encoding)}
    settings |= {"splits": list(dataset.splits), "bad_rows": msgspec.to_builtins(survey.ledger.bad_rows)} | (
        {} if given is None else {"given": given.fingerprint()}
    )
    name = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]
    sources = _sources(dataset, encoding, given)
    key = settings | {"format": FORMAT, "versions": versions(dataset), "sources": sources}

    def build() -> Iterator[Columns | Progress]:
        encoders.append((yield from _encoder(survey, encoding, given)))
        yield from encoded(survey, encoders[0])
        # Reject files that were written, added or removed while they were read.
        now = _sources(dataset, encoding, given)
        for path in dict.fromkeys([*sources, *now]):
            if now.get(path) != sources.get(path):
                text = f"the file changed while it was read: {sources.get(path)} before, {now.get(path)} after"
                encoders[0].ledger.bad_file("data.changed", text, Place(path), "wait until no program writes it")

    def notes() -> dict[str, bytes]:
        return {FACTS: msgspec.json.encode(_facts(survey, encoders[0]))}

    store = yield from open_or_build(cache / name, key, build, notes)
    return _prepared(msgspec.json.decode(store.notes[FACTS], type=PreparedFacts), store.columns)


def versions(dataset: Dataset) -> dict[str, str]:
    """The versions of all software that affects what is read and encoded."""
    python = ".".join(platform.python_version_tuple()[:2])
    own = {"seqloom": __version__, "python": python, "unicode": unicodedata.unidata_version}
    libraries = ["tokenizers", *dataset.schema.input.libraries]
    if dataset.config.reading.format == "parquet" or any(".parquet" in path for path in dataset.config.train):
        libraries.append("pyarrow")
    return own | {name: metadata.version(name) for name in libraries}


def _sources(dataset: Dataset, encoding: EncodingConfig, given: GivenEncoding | None) -> dict[str, Any]:
    """Fingerprints of all source files: the data, and word vectors whose words are added to a fitted tokenizer."""
    fitted = given is None or given.tokenizer is None
    read = [Path(encoding.word_vectors.path)] if encoding.word_vectors is not None and fitted else []
    return dataset.fingerprints(*read)
