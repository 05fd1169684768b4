"""Data made ready for training: read once, checked, encoded, and kept in a mapped cache for the next time.

    first start    survey (checks, tokeniser fitted on the training part) ──▶ encode ──▶ cache
    next start     cache, verified; the sources' sums are compared, and another source builds it anew

All rows stand in one set of columns; a part is the list of its rows, in the order of its files. Where one file is
divided, its rows stand in blocks of one part each, so the numbers of rows do not follow the lines of the file;
`Prepared.place_of` tells where a row stood. One pass writes everything, whatever the split, and in memory or mapped
the rows have the same numbers.
"""

import hashlib
import heapq
import json
import platform
import unicodedata
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.config.data import PARTS, AnySplit, EncodingConfig, GivenSplit, Part
from seqloom.data.cache import open_or_build
from seqloom.data.checks.check import DataFinding, told
from seqloom.data.dataset import Dataset
from seqloom.data.kinds.kind import Coding, Columns
from seqloom.data.kinds.related import cut_texts, longest_texts
from seqloom.data.order import sample_order
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Schema
from seqloom.data.splits import Divided
from seqloom.data.survey import Survey
from seqloom.data.word_vectors import first_words, with_words
from seqloom.events import Progress, Show, Work, finished
from seqloom.text.cutter import closed
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import COUNT, NAMES, SEPARATOR, UNKNOWN
from seqloom.text.tokenizer import Tokenizer, TokenizerFit
from seqloom.version import __version__

PLACE = "place"  # the column [rows,2] that says where each row stood: the number of the file, and the line
_LONGER = "raise --longest"


class ExampleEncoder:
    """Makes columns of examples, block by block, as their kinds encode them; what is too long is cut.

    Labels and tokenisers are those of the training part.
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
        self.files: dict[str, int] = {}  # in the order in which they were read
        self.shapes: dict[str, tuple[int | str, ...]] = {}  # by code: of the first arrays and numbers of all parts
        self.numbers = {label: number for number, label in enumerate(schema.labels)}

    def columns(self, examples: Sequence[Example]) -> dict[str, Ragged]:
        """The columns of some examples; those that are too long are cut and counted, or left out as bad rows."""
        columns = self._encoded(examples)
        places = [example.place for example in examples]
        numbers = [(self.files.setdefault(place.path, len(self.files)), place.line or 0) for place in places]
        columns[PLACE] = Ragged(np.array(numbers, np.uint32).reshape(-1, 2), np.arange(len(numbers) + 1))
        lengths, longest = self._lengths(columns), self.config.longest
        long = np.flatnonzero(lengths > longest)
        if not len(long):
            return columns
        if self.config.too_long == "cut":
            for row in long.tolist():
                text = f"{lengths[row]:,} long; cut to {longest:,}"
                self.ledger.warn("seq.truncated", text, examples[row].place, _LONGER)
            return self._cut(columns)
        for row in long.tolist():
            text = f"{lengths[row]:,} long; {longest:,} allowed"
            self.ledger.bad_row("seq.too_long", text, examples[row].place, _LONGER)
        self.ledger.rows -= len(long)
        short = np.flatnonzero(lengths <= longest)
        return {name: column.select(short) for name, column in columns.items()}

    def _encoded(self, examples: Sequence[Example]) -> dict[str, Ragged]:
        kind, target = self.schema.input, self.schema.target
        inputs, targets = [example.input for example in examples], [example.target for example in examples]
        for likeness in (kind.likeness(inputs[0]), target.likeness(targets[0])):
            if likeness is not None:
                # Inside one part rows were compared; a part may be unlike those before it.
                code, shape = likeness
                before = self.shapes.setdefault(code, shape)
                if shape != before:
                    found, wanted = (" x ".join(map(str, one)) for one in (shape, before))
                    text = f"this part begins with {found} where another one has {wanted}"
                    fix = "give all parts arrays of one size and kind"
                    self.ledger.bad_file(code, text, examples[0].place, fix)
        columns = kind.encode(inputs, self.tokenizer)
        lengths, longest = columns["input"].lengths, self.config.longest
        coding = Coding(self.tokenizer, self.target_tokenizer, self.numbers, longest, kind, inputs, lengths)
        return columns | target.encode(targets, coding)

    def _lengths(self, columns: Columns) -> np.ndarray:
        """[rows] what is compared with `longest`: of texts that are read one by one the longest text of a row."""
        lengths, given = self.schema.target.lengths(columns), columns["input"]
        if self.schema.input.fixed_size:
            return lengths
        texts = longest_texts(given) if self.schema.target.apart else given.lengths
        return np.asarray(np.maximum(lengths, texts))

    def _cut(self, columns: dict[str, Ragged]) -> dict[str, Ragged]:
        most, framed = self.config.longest, self.tokenizer is not None and self.tokenizer.config.framed
        if self.schema.target.apart:
            texts = cut_texts(columns["input"], most)
            cut = columns | {"input": closed(texts) if framed else texts}
        else:
            cut = self.schema.input.cut(columns, most, framed=framed)
        return cut | self.schema.target.cut(cut, most)


FORMAT = 3
FACTS = "facts.json"
PART = "part"  # the column that says which part a row belongs to
SHOWN, LONGEST_SHOWN = 64, 1_000  # rows of dev that samples may be drawn from, and the characters kept of each


class PreparedFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about prepared data besides its columns."""

    input: str
    target: str
    labels: tuple[str, ...]
    tokenizer: str | None  # JSON texts
    target_tokenizer: str | None
    split: AnySplit
    findings: tuple[DataFinding, ...]
    files: tuple[str, ...]  # in the order in which they were read
    written: dict[int, str]  # inputs of a few rows of dev, of which the vocabulary lacks something, in one line each


class GivenEncoding(NamedTuple):
    """What a model brings along, to be used instead of being fitted to the training part; None: fitted."""

    labels: tuple[str, ...] | None = None
    tokenizer: Tokenizer | None = None
    target_tokenizer: Tokenizer | None = None

    def fingerprint(self) -> str:
        """A sum of all of it."""
        tokenizers = (self.tokenizer, self.target_tokenizer)
        texts = [None if one is None else one.to_json() for one in tokenizers]
        return hashlib.sha256(json.dumps([self.labels, *texts]).encode()).hexdigest()


class Unchecked:
    """Looks at nothing: whether labels could be learnt from data is no question where it is only judged."""

    def see(self, part: str, examples: Sequence[Example]) -> None:
        """Let the examples go."""

    def finish(self, ledger: Ledger) -> None:
        """Find nothing."""


class Prepared(NamedTuple):
    """Columns of all rows, the rows of each part, and what is needed to read further texts in the same way."""

    schema: Schema
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None
    columns: Columns
    parts: dict[Part, np.ndarray]  # the numbers of the rows, in the order of the part's files
    findings: tuple[DataFinding, ...]
    split: AnySplit
    places: np.ndarray  # [rows,2] the number of the file and the line of each row
    files: tuple[str, ...]
    written: dict[int, str]  # inputs of a few rows of dev as they stand in the data: their numbers lack some words

    def __repr__(self) -> str:
        rows = ", ".join(f"{part} {len(rows):,}" for part, rows in self.parts.items())
        symbols = "" if self.tokenizer is None else f", {self.tokenizer.vocab_size:,} symbols"
        kinds = f"{self.schema.input} to {self.schema.target}"
        return f"Prepared({self.schema.task}: {kinds}; {rows}{symbols}; {len(self.findings)} kinds of findings)"

    def shown(self, row: int) -> str:
        """The input of a row in one line, as a model reads it."""
        return self.schema.input.show(self.columns, row, self.tokenizer)

    def place_of(self, row: int) -> Place:
        """Where a row stood in the files; the ids of a batch are the numbers of its rows."""
        file, line = self.places[row].tolist()
        return Place(self.files[file], line or None)

    @property
    def divided(self) -> Divided:
        """The split as a run writes it down."""
        return Divided(self.split, {part: len(rows) for part, rows in self.parts.items()})


def prepare(
    dataset: Dataset,
    encoding: EncodingConfig,
    ledger: Ledger,
    *,
    cache: Path | None = None,
    given: GivenEncoding | None = None,
    show: Show | None = None,
) -> Prepared:
    """The encoded data set: from the cache if it holds exactly this, else read, checked, encoded and kept there."""
    return finished(preparing(dataset, encoding, ledger, cache=cache, given=given), show)


def preparing(
    dataset: Dataset,
    encoding: EncodingConfig,
    ledger: Ledger,
    *,
    cache: Path | None = None,
    given: GivenEncoding | None = None,
) -> Work[Prepared]:
    """The same, step by step."""
    judged = given is not None and given.labels is not None
    survey = Survey(dataset, ledger, Unchecked() if judged else None)
    if cache is not None:
        return (yield from _cached(survey, encoding, cache, given))
    encoder = yield from _encoder(survey, encoding, ledger, given)
    blocks = list[Columns]()
    for block in encoded(survey, encoder):
        if isinstance(block, Progress):
            yield block
        else:
            blocks.append(block)
    columns = {name: Ragged.joined([block[name] for block in blocks]) for name in blocks[0]}
    return _prepared(_facts(survey, encoder, ledger), columns)


def _encoder(
    survey: Survey, encoding: EncodingConfig, ledger: Ledger, given: GivenEncoding | None
) -> Work[ExampleEncoder]:
    """An encoder with what a model brings along; what it does not bring is fitted while the whole survey is done."""
    if given is None or (given.tokenizer is None and given.target_tokenizer is None):
        fitted = yield from fitted_encoder(survey, encoding, ledger)
    else:
        yield from survey.read()
        said = (given.target_tokenizer or given.tokenizer) if survey.dataset.schema.target.is_text else None
        fitted = ExampleEncoder(survey.schema(), encoding, given.tokenizer, said, ledger)
    if given is None or given.labels is None:
        return fitted
    schema = fitted.schema._replace(labels=given.labels)
    return ExampleEncoder(schema, encoding, fitted.tokenizer, fitted.target_tokenizer, ledger)


def fitted_encoder(survey: Survey, encoding: EncodingConfig, ledger: Ledger) -> Work[ExampleEncoder]:
    """An encoder with the tokenisers and labels of the training part; the whole survey is done on the way."""
    schema, separate = survey.dataset.schema, encoding.target_tokenizer is not None
    to_text = schema.target.is_text
    tokenizer = target_tokenizer = None
    if schema.input.reads_tokens:
        tokenizer = yield from _fitted(survey, encoding, inputs=True, targets=to_text and not separate)
        if to_text:
            target_tokenizer = tokenizer
        if to_text and encoding.target_tokenizer is not None:
            trained = (block for part, block in survey.again() if part == "train")
            target_tokenizer = encoding.target_tokenizer.fit(str(one.target) for block in trained for one in block)
    elif to_text:
        target_tokenizer = yield from _fitted(survey, encoding, inputs=False, targets=True)
    else:
        yield from survey.read()
    for fitted in {id(one): one for one in (tokenizer, target_tokenizer) if one is not None}.values():
        # Say how much of the training part a vocabulary has no room for.
        place = Place(survey.dataset.config.train[0])
        limit, kept = getattr(fitted.config, "limit", None), fitted.vocab_size - COUNT
        if fitted.dropped and fitted.vocab_size == limit:
            kind = fitted.config.kind()
            found = f"{kept + fitted.dropped:,} different {kind}"
            text = f"{found}; the {kept:,} most frequent are kept, others are unknown"
            ledger.warn("vocab.capped", text, place, f"raise --vocabulary above {limit:,}, or --tokenizer bpe")
    if tokenizer is not None and encoding.vectors is not None:
        tokenizer = with_words(tokenizer, first_words(encoding.vectors.path, encoding.vectors.words))
    return ExampleEncoder(survey.schema(), encoding, tokenizer, target_tokenizer, ledger)


def _fitted(survey: Survey, encoding: EncodingConfig, *, inputs: bool, targets: bool) -> Work[Tokenizer]:
    """A tokeniser of the texts of the training part, while the survey goes over all parts."""
    kind, config = survey.dataset.schema.input, encoding.tokenizer if inputs else encoding.target_tokenizer
    with TokenizerFit(config or encoding.tokenizer) as fitting:
        for part, block in survey.blocks():
            if part == "train":
                texts = list[str]()
                for example in block:
                    if inputs:
                        texts += kind.fitting_texts(example.input, encoding.tokenizer)
                    if targets:
                        texts.append(str(example.target))
                fitting.see(texts)
            yield survey.progress()
        return fitting.tokenizer()


def encoded(survey: Survey, encoder: ExampleEncoder) -> Iterator[dict[str, Ragged] | Progress]:
    """Columns, block by block, with the part of each row, and how far it is."""
    done = trained = first = 0
    for part, block in survey.again():
        columns = encoder.columns(block)
        rows = columns["input"].rows
        if part == "dev" and encoder.tokenizer is not None:
            found = survey.written | dict(_lacking(block, columns, encoder, first))
            survey.written = {
                row: found[row] for row in heapq.nsmallest(SHOWN, found, lambda row: sample_order(str(row)))
            }
        first += rows
        parts = Ragged(np.full(rows, PARTS.index(part), np.uint8), np.arange(rows + 1))
        done += len(block)
        trained += rows if part == "train" else 0
        yield Progress("rows encoded", done, sum(survey.rows.values()))
        yield columns | {PART: parts}
    encoder.ledger.close()  # what was too long is known only now
    if not trained:
        place = Place(survey.dataset.config.train[0])
        encoder.ledger.bad_file("data.no_train", "every row of the training part is too long", place, "raise --longest")


def _lacking(
    block: Sequence[Example], columns: Columns, encoder: ExampleEncoder, first: int
) -> Iterator[tuple[int, str]]:
    """The rows of a block whose numbers hold UNKNOWN, counted from `first`, and what was written there, in one line."""
    values, starts = columns["input"]
    lacking = np.unique(np.searchsorted(starts, np.flatnonzero(values == UNKNOWN), side="right") - 1)
    examples = {(encoder.files[example.place.path], example.place.line or 0): example for example in block}
    for row in lacking.tolist():
        given = examples[tuple(columns[PLACE].values[row].tolist())].input
        text = f" {NAMES[SEPARATOR]} ".join(encoder.schema.input.texts(given))
        yield first + row, " ".join(text.split())[:LONGEST_SHOWN]


def _facts(survey: Survey, encoder: ExampleEncoder, ledger: Ledger) -> PreparedFacts:
    first, second = encoder.tokenizer, encoder.target_tokenizer
    return PreparedFacts(
        input=encoder.schema.input.name,
        target=encoder.schema.target.name,
        labels=encoder.schema.labels,
        tokenizer=None if first is None else first.to_json(),
        target_tokenizer=None if second is None or second is first else second.to_json(),
        split=survey.dataset.config.split or GivenSplit(),
        findings=told(ledger),
        files=tuple(encoder.files),
        written=survey.written,
    )


def _prepared(facts: PreparedFacts, columns: Columns) -> Prepared:
    tokenizer = None if facts.tokenizer is None else Tokenizer.from_json(facts.tokenizer)
    second = None if facts.target_tokenizer is None else Tokenizer.from_json(facts.target_tokenizer)
    codes = columns[PART].values
    parts = {part: np.flatnonzero(codes == number) for number, part in enumerate(PARTS)}
    schema = Schema(facts.input, facts.target, facts.labels)
    if second is None and schema.target.is_text:
        second = tokenizer
    kept = {name: column for name, column in columns.items() if name not in (PART, PLACE)}
    places = columns[PLACE].values
    return Prepared(
        schema, tokenizer, second, kept, parts, facts.findings, facts.split, places, facts.files, facts.written
    )


def _cached(survey: Survey, encoding: EncodingConfig, cache: Path, given: GivenEncoding | None) -> Work[Prepared]:
    """From the cache, which is built when it is missing, damaged, or made from something else.

    What was asked for names the folder, so that two ways to read one file do not take each other's place. What was
    found, sources and versions, is compared: when it changes, the folder is built anew.
    """
    dataset, ledger, encoders = survey.dataset, survey.ledger, list[ExampleEncoder]()
    asked = {"data": msgspec.to_builtins(dataset.config), "encoding": msgspec.to_builtins(encoding)}
    asked |= {"parts": list(dataset.parts), "bad_rows": msgspec.to_builtins(ledger.bad_rows)} | (
        {} if given is None else {"given": given.fingerprint()}
    )
    name = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:24]
    sources = _sources(dataset, encoding, given)
    key = asked | {"format": FORMAT, "versions": versions(dataset), "sources": sources}

    def build() -> Iterator[Columns | Progress]:
        encoders.append((yield from _encoder(survey, encoding, ledger, given)))
        yield from encoded(survey, encoders[0])
        # Refuse to keep what was read while its files were written, added or taken away.
        now = _sources(dataset, encoding, given)
        for path in dict.fromkeys([*sources, *now]):
            if now.get(path) != sources.get(path):
                text = f"changed while it was read: {sources.get(path)} before, {now.get(path)} after"
                ledger.bad_file("data.changed", text, Place(path), "wait until nobody writes it")

    def notes() -> dict[str, bytes]:
        return {FACTS: msgspec.json.encode(_facts(survey, encoders[0], ledger))}

    store = yield from open_or_build(cache / name, key, build, notes)
    return _prepared(msgspec.json.decode(store.notes[FACTS], type=PreparedFacts), store.columns)


def versions(dataset: Dataset) -> dict[str, str]:
    """The versions of everything that has a say in what is read and encoded."""
    python = ".".join(platform.python_version_tuple()[:2])
    own = {"seqloom": __version__, "python": python, "unicode": unicodedata.unidata_version}
    libraries = ["tokenizers", *dataset.schema.input.libraries]
    if dataset.config.reading.format == "parquet" or any(".parquet" in path for path in dataset.config.train):
        libraries.append("pyarrow")
    return own | {name: metadata.version(name) for name in libraries}


def _sources(dataset: Dataset, encoding: EncodingConfig, given: GivenEncoding | None) -> dict[str, Any]:
    """The sums of all files that are read: of the data, and of the vectors whose words join a fitted tokeniser."""
    fitted = given is None or given.tokenizer is None
    read = [Path(encoding.vectors.path)] if encoding.vectors is not None and fitted else []
    return dataset.fingerprints(*read)
