"""From wishes to a run with nothing left open: data read without its test part, model and settings chosen.

A run that starts from another model (`init`) takes that model's tokenisers. Once it has begun they are in its own
folder, and the other model is not needed any more.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from seqloom.bundle import Bundle, model_folder, read_bundle
from seqloom.config.base import dropouts, with_dropout, with_setting
from seqloom.config.data import PARTS, DataConfig, EncodingConfig, VectorFileConfig
from seqloom.config.models import AnyModel, objective_of
from seqloom.config.tokenizers import FittedTokenizer, WordsConfig
from seqloom.config.training import RunConfig, TrainingConfig
from seqloom.data.dataset import Dataset, open_sealed
from seqloom.data.prepared import GivenEncoding, Prepared, preparing
from seqloom.data.problems import Ledger, escaped
from seqloom.data.readers.files import cache_folder
from seqloom.data.run_files import is_one, located, names_of, with_known_starts
from seqloom.data.schema import Schema
from seqloom.data.word_vectors import width_of
from seqloom.errors import ConfigError
from seqloom.events import Work, finished
from seqloom.report.numbers import share
from seqloom.tasks.encoders import (
    ENCODING,
    counts_pairs,
    reads_letters,
    require_letters,
    require_vectors,
    with_words_input,
    word_vectors_of,
)
from seqloom.tasks.registry import BY_TARGET, task_of
from seqloom.tasks.task import HeadSettings, Meaning, Task
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.training.home import Home
from seqloom.training.learning_rate import default_training, told
from seqloom.training.newton import require_solvable
from seqloom.training.run_folder import DataFacts, RunFolder
from seqloom.training.wishes import WORD_VECTORS, Wishes

# Letters, counts and pretrained vectors: what these wishes mean for how words become numbers, and for the model.
#
#     --letters cnn      the data keeps the letters of its words, and the model reads them beside the words
#     --least 2          words that occur less often are UNKNOWN
#     --vectors FILE     the file's first words join the vocabulary, and the model's word vectors start from the file
#
# All are written into the configuration, wished or chosen. A run that has begun has its vocabulary in its folder and
# its vectors in its weights, so it goes on without the file.

SHOWN = 5  # labels in a sentence
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
MUCH = 0.1  # of the symbols of a training part: what cannot be read cannot be learnt from
LONG = 100  # symbols of a text, in the mean: there pairs of words say little beside the words, and cost the most


def worded(encoding: EncodingConfig, wishes: Wishes, schema: Schema) -> EncodingConfig:
    """The encoding with the letters, counts and vectors that are wanted or usual; ConfigError where they make no sense.

    With letters a word is one symbol, cut where the data cuts.
    """
    if wishes.vector_words is not None and wishes.vectors is None:
        raise ConfigError("vector_words says how many words of a file are taken, and no file is named", fix="--vectors")
    own = wishes.model is not None and not isinstance(wishes.model, str) and reads_letters(wishes.model)
    changed: dict[str, Any] = {}
    usual = wishes.letters is None and default_letters(wishes, encoding.tokenizer, schema)
    if wishes.letters == "none" and isinstance(encoding.tokenizer, WordsConfig):
        changed["tokenizer"] = msgspec.structs.replace(encoding.tokenizer, letters=False)
    elif wishes.letters not in (None, "none") or own or usual:
        tokenizer = require_letters(schema, encoding.tokenizer)
        changed["tokenizer"] = msgspec.structs.replace(tokenizer, letters=True, split="space")
    if wishes.vectors is not None:
        words = {} if wishes.vector_words is None else {"words": wishes.vector_words}
        changed["vectors"] = VectorFileConfig(path=str(wishes.vectors), **words)
    encoding = msgspec.structs.replace(encoding, **changed)
    if encoding.vectors is not None:
        require_vectors(BY_TARGET[schema.target.name], schema, encoding.tokenizer)
    return default_counts(encoding, schema)


def reading_words(model: AnyModel, wishes: Wishes, prepared: Prepared, width: int | None) -> AnyModel:
    """The model of a recipe, its input as letters, vectors of this width and the length of the texts want it."""
    if reads_letters(model):
        said = {} if wishes.letters in (None, "none") else {"letters": wishes.letters}
        model = with_words_input(model, rare_from=first_rare(prepared), **said)
    if width is not None and word_vectors_of(model) != width:
        model = with_words_input(model, size=width)
    if counts_pairs(model) and float(prepared.columns["input"].lengths[prepared.parts["train"]].mean()) > LONG:
        model = with_words_input(model, order=1)
    return model


def words_said(wishes: Wishes, asked: EncodingConfig, chosen: EncodingConfig, prepared: Prepared) -> Iterator[str]:
    """What was chosen about words where nobody said it: that letters are read, and that some words are unknown."""
    if wishes.letters is None and default_letters(wishes, chosen.tokenizer, prepared.schema):
        yield "letters: read beside each word; --letters none reads words alone"
    to_text = prepared.schema.target.is_text
    before, now = ((one.target_tokenizer if to_text else None) or one.tokenizer for one in (asked, chosen))
    if isinstance(before, WordsConfig) and isinstance(now, WordsConfig) and before.least is None and now.least != 1:
        said = prepared.columns["target" if to_text else "input"].select(prepared.parts["train"]).values
        if unknown := float((said == UNKNOWN).mean()):
            cure = "; there is too little text for words: --tokenizer characters or bpe" if unknown >= MUCH else ""
            least = f"words that occur once are unknown, {share(unknown)} of the training text"
            yield f"{least}; --least 1 keeps them{cure}"


def first_rare(prepared: Prepared) -> int:
    """The symbol behind the last one that training reads more than once: symbols are numbered by their frequency."""
    read = prepared.columns["input"].select(prepared.parts["train"]).values
    return max(COUNT, 1 + int(np.flatnonzero(np.bincount(read) > 1).max(initial=0)))


def unknown_said(prepared: Prepared) -> tuple[str, ...]:
    """How much of the training part the tokeniser of --init does not know, in a sentence; none where it knows all."""
    read = prepared.columns["input"].select(prepared.parts["train"]).values
    unknown = float((read == UNKNOWN).mean()) if prepared.tokenizer is not None and len(read) else 0.0
    if not unknown:
        return ()
    cure = "; pretrain on text that has these words, or with --tokenizer bpe" if unknown >= MUCH else ""
    return (f"{share(unknown)} of the symbols are unknown to the tokeniser of --init{cure}",)


def default_counts(encoding: EncodingConfig, schema: Schema) -> EncodingConfig:
    """The encoding with how often words must occur, where it does not say so.

    Where words are said, in running text or as an answer, those that occur once are UNKNOWN: so the model learns how
    likely a new word is. With every word in the vocabulary UNKNOWN would never be said in training, and a new word
    would cost more than any other.
    """
    first, second = encoding.tokenizer, encoding.target_tokenizer
    said = schema.target.is_running or (schema.target.is_text and second is None)
    first, second = _counted(first, 2 if said else 1), second if second is None else _counted(second, 2)
    return msgspec.structs.replace(encoding, tokenizer=first, target_tokenizer=second)


def _counted(tokenizer: FittedTokenizer, least: int) -> FittedTokenizer:
    unsaid = isinstance(tokenizer, WordsConfig) and tokenizer.least is None
    return msgspec.structs.replace(tokenizer, least=least) if unsaid else tokenizer


def default_letters(wishes: Wishes, tokenizer: FittedTokenizer, schema: Schema) -> bool:
    """Whether a recipe reads the letters of words where nobody says so: taggers do, who meet many new words."""
    recipe = wishes.model is None or isinstance(wishes.model, str)
    reading = schema.input.in_words and "letters" in BY_TARGET[schema.target.name].settings
    return recipe and reading and isinstance(tokenizer, WordsConfig) and not wishes.training.get("init")


class Resolved(NamedTuple):
    """A run with nothing left open."""

    config: RunConfig
    prepared: Prepared  # its test part is sealed: no row of it is here
    task: Task
    facts: DataFacts
    said: tuple[str, ...]
    init: Bundle | None = None  # what a new run starts from
    folder: Path | None = None  # where it belongs, if it has a home
    before: RunConfig | None = None  # of the run that is there already
    vectors: str | None = None  # the file that a new run's vectors of words start from
    files: dict[str, str] = {}  # noqa: RUF012  # where each file lies that the configuration names


class _Start(NamedTuple):
    """What a run starts from: the model of `init`, or what the run itself has kept of it."""

    model: AnyModel
    meaning: Meaning
    bundle: Bundle | None
    said: tuple[str, ...] = ()

    @property
    def learned_at(self) -> float:
        """The rate at which it learned, or may go on: any, where that is not known."""
        rate = None if self.bundle is None else self.bundle.notes.get("rate")
        return float(rate) if isinstance(rate, float) and rate > 0 else inf


def resolve(data: DataConfig, wishes: Wishes, *, home: Home | None = None, cache: Path | None = None) -> Resolved:
    """The data read and encoded, and everything chosen that was left open; nothing is written but the cache."""
    return finished(resolving(data, wishes, home=home, cache=cache))


def resolving(
    data: DataConfig,
    wishes: Wishes,
    *,
    home: Home | None = None,
    cache: Path | None = None,
    dataset: Dataset | None = None,
) -> Work[Resolved]:
    """The same, step by step, of data that may be open already.

    What the wishes leave open about a run that has begun in its home is as it is there: its settings, its model, and
    the tokenisers that it started from.
    """
    _require_changeable(wishes)
    if wishes.freeze_vectors:
        patterns = (*wishes.training.get("freeze", ()), WORD_VECTORS)
        wishes = wishes._replace(training={**wishes.training, "freeze": tuple(dict.fromkeys(patterns))})
    folder = home.named if home is not None else None
    before, own = (home.own_run() if home is not None else None) or (None, None)
    asked, wishes = wishes, wishes if own is None else wishes.filled(own)
    written = wishes.encoding is not None and wishes.encoding.vectors is not None
    if wishes.training.get("init") and (written or wishes.vectors is not None):
        raise ConfigError("--vectors and --init both say where the vectors of words start", fix="leave one of them out")
    start, ledger = _start(wishes, folder, own), Ledger(data.bad_rows)
    dataset = open_sealed(data, ledger) if dataset is None else dataset
    # What no data of the task can have is refused before all of it is read.
    metric, feed = wishes.training.get("metric"), wishes.training.get("feed")
    kind = BY_TARGET[dataset.schema.target.name]
    kind.check(metric=metric, head=wishes.head, settings=wishes.of_vectors(), feed=feed)
    _require_balanceable(wishes.class_weights, dataset.schema)
    plain = wishes.encoding or _usual_encoding(dataset.schema, start)
    encoding = worded(plain, wishes, dataset.schema)
    width = None  # of pretrained vectors
    if encoding.vectors is not None:
        width = word_vectors_of(before.model) if before is not None else width_of(encoding.vectors.path)
    given = _given(start.meaning, dataset.schema) if start is not None else _own_words(folder, own)
    place = cache if cache is not None else cache_folder() / "prepared"
    prepared = yield from preparing(dataset, encoding, ledger, cache=place, given=given)
    task = task_of(Meaning.of(prepared)).deciding_by(metric)
    folder = None if home is None else home.folder(dataset.config.train[0], task.name, _name(task, wishes, start))
    if before is None and Home(folder).own_run() is not None:  # a home that nobody named, and a run is there
        return (yield from resolving(data, asked, home=Home(folder), cache=cache, dataset=dataset))
    model, recipe, said = _model(task, wishes, prepared, start, before, width)
    learned_at = inf if start is None else start.learned_at
    settings = default_training(prepared, recipe, wishes.size or "small", wishes.training, learned_at)
    training = TrainingConfig(**settings | wishes.training)
    config = RunConfig(task=dataset.schema.task, data=dataset.config, encoding=encoding, model=model, training=training)
    if training.strengths:
        require_solvable(model)
    unknown = unknown_said(prepared) if start is not None else tuple(words_said(wishes, plain, encoding, prepared))
    said = (*dataset.said, *_labels_said(prepared.schema), *said, *unknown, told(config.training))
    facts, bundle = DataFacts.of(dataset, prepared), start.bundle if start else None
    file = None if encoding.vectors is None else encoding.vectors.path
    return Resolved(config, prepared, task, facts, said, bundle, folder, before, file)


def _name(task: Task, wishes: Wishes, start: _Start | None) -> str:
    """What the model is called in the name of a folder."""
    if isinstance(wishes.model, str):
        return wishes.model
    model = wishes.model or (start.model if start is not None else None)
    return task.recipes()[0] if model is None else model.kind()


def _require_changeable(wishes: Wishes) -> None:
    """Refuse settings of a recipe for a model that is ready: they would change nothing, and nobody would notice."""
    if names := wishes.in_vain():
        source = "the model of init" if wishes.model is None else "the given model"
        raise ConfigError(f"{', '.join(names)} would change {source}", fix="name a recipe, or change the model itself")


def init_bundle(name: str) -> Bundle:
    """The model that a run starts from: a run folder or a model folder."""
    return read_bundle(model_folder(name))


def _start(wishes: Wishes, folder: Path | None, own: RunConfig | None) -> _Start | None:
    """What the run starts from; None where that is nothing."""
    name = wishes.training.get("init")
    if not name:
        return None
    mine = None if own is None else own.training.init
    if folder is not None and own is not None and mine and is_one(mine, name):
        return _Start(own.model, RunFolder(folder).meaning(), None)
    bundle = init_bundle(name)
    said = f"model: that of --init, {bundle.config.parameters():,} parameters before its head is replaced"
    return _Start(bundle.config, bundle.meaning, bundle, (said,))


def _usual_encoding(schema: Schema, start: _Start | None) -> EncodingConfig:
    """What is usual for the task; single inputs are cut where the positions of the model of --init end."""
    usual = EncodingConfig(tokenizer=BY_TARGET[schema.target.name].usual_tokenizer)
    if start is None or not isinstance(start.model, ENCODING) or schema.target.is_running:
        return usual
    return msgspec.structs.replace(usual, longest=min(usual.longest, start.model.encoder.limit() or usual.longest))


def _given(meaning: Meaning, found: Schema) -> GivenEncoding:
    """The tokenisers of a model that training starts from; labels are those of the data."""
    own = meaning.schema.input
    if own != found.input and not (own.reads_tokens and found.input.reads_tokens):  # one tokeniser reads all texts
        raise ConfigError(
            f"--init reads {own}, and the data has {found.input}",
            fix="start from a model of the same kind of input",
        )
    return GivenEncoding(None, meaning.tokenizer, meaning.target_tokenizer)


def _own_words(folder: Path | None, own: RunConfig | None) -> GivenEncoding | None:
    """The tokenisers of the run itself, if it has begun with words of a file that nobody needs any more."""
    if folder is None or own is None or own.encoding.vectors is None:
        return None
    meaning = RunFolder(folder).meaning()
    return GivenEncoding(None, meaning.tokenizer, meaning.target_tokenizer)


def _labels_said(schema: Schema) -> Iterator[str]:
    """How many labels there are, the first of them, and what numbers among them might have been meant as."""
    if not schema.labels:
        return
    first = ", ".join(escaped(label) for label in schema.labels[:SHOWN])
    more = ", ..." if len(schema.labels) > SHOWN else ""
    numbers = len(schema.labels) > 2 and all(map(NUMBER.fullmatch, schema.labels))
    hint = "; each number is a name here, --task regress would learn how large they are" if numbers else ""
    yield f"labels: {len(schema.labels):,} ({first}{more}){hint}"


def _model(
    task: Task,
    wishes: Wishes,
    prepared: Prepared,
    start: _Start | None,
    before: RunConfig | None,
    width: int | None,
) -> tuple[AnyModel, str, tuple[str, ...]]:
    """The configuration of the model, the name of its recipe, and what was chosen."""
    if before is not None and wishes.model is before.model:  # if the data is not, the folder says so
        return before.model, "", (f"model: that of the run, {before.model.parameters():,} parameters",)
    if wishes.model is not None and not isinstance(wishes.model, str):
        task.require(wishes.model)
        if width is not None and (found := word_vectors_of(wishes.model)) != width:
            raise ConfigError(
                f"the vectors of the file have {width:,} numbers, and those of the model's words {found:,}",
                fix=f"set size = {width} in the model's input",
            )
        return wishes.model, "", ()
    if start is not None and wishes.model is None:
        return _adapted(task, start.model, wishes), "", start.said
    recipe, size = wishes.model or task.recipes()[0], wishes.size or "small"
    weights = class_weights(wishes.class_weights, prepared)
    kind = wishes.head or task.heads[0]
    wanted = HeadSettings(wishes.smoothing, weights, kind, wishes.pooling, wishes.objective, wishes.rows_at_once)
    model = task.model(recipe, size, wanted)
    if wishes.dropout is not None:
        model = with_dropout(model, wishes.dropout)
    model = reading_words(model, wishes, prepared, width)
    said = () if wishes.model and wishes.size else (f"model: {recipe}, size {size}, {model.parameters():,} parameters",)
    if wishes.dropout and not any(dropouts(model)):
        said = (*said, f"dropout: {recipe} has none, so a rate of {wishes.dropout:g} changes nothing")
    return model, recipe, said


def _adapted(task: Task, model: AnyModel, wishes: Wishes) -> AnyModel:
    """The model of --init with the head that the task needs; ConfigError says that it is the one of --init."""
    try:
        adapted = task.adapted(model)
    except ConfigError as error:
        raise ConfigError(
            f"--init: {error.problem}", fix=f"start from a run whose task is {task.name}, or leave --init out"
        ) from error
    for name in wishes.of_vectors():
        value = getattr(wishes, name)
        adapted = with_setting(adapted, name, objective_of(value) if name == "objective" else value)
    task.require(adapted)
    return adapted


def class_weights(asked: str | tuple[float, ...], prepared: Prepared) -> tuple[float, ...]:
    """The weight of each label: as given, or such that all labels weigh the same together."""
    if not isinstance(asked, str):
        return asked
    _require_balanceable(asked, prepared.schema)
    labels = prepared.columns["target"].select(prepared.parts["train"]).values
    counts = np.bincount(labels[labels >= 0], minlength=len(prepared.schema.labels))
    return tuple((counts.sum() / np.maximum(1, counts) / len(counts)).tolist())


def _require_balanceable(asked: str | tuple[float, ...], schema: Schema) -> None:
    """Refuse to balance what is no single label, and any other word."""
    if not isinstance(asked, str):
        return
    if asked != "balanced":
        raise ConfigError(f"class weights {asked!r}", fix="'balanced', or a number for each label")
    if not schema.target.one_label:
        raise ConfigError(
            f"balanced class weights are for data with one label each, and its target is {schema.target}",
            fix="leave them out",
        )


# The files of a run by the names that its folder knows, so that it goes on however its data is spelled now.
#
# A name is what was typed when the run began. A file that is typed in another way, or lies elsewhere by now, has the
# name of the one that the run knows if it is the same file or has the same sums. So the run stays the same one to the
# byte.


def with_known_names(folder: RunFolder, resolved: Resolved) -> Resolved:
    """The run with its files by the names of the run that is in the folder, if one is, and with the place of each."""
    config = resolved.config
    if not folder.has_begun():
        return resolved._replace(files=_data_files(config, config) | _starts(config, config))
    before = folder.config()
    own = located(folder.path, before).config
    known = names_of(folder.path, before.data, own.data, config.data)
    facts = msgspec.structs.replace(resolved.facts, fingerprints=named_sums(resolved.facts.fingerprints, known))
    now = with_known_starts(msgspec.structs.replace(config, data=named(config.data, known)), before, own)
    files = _data_files(now, config) | _starts(now, config) | _starts(before, own)
    return resolved._replace(config=now, facts=facts, files=files)


def _data_files(names: RunConfig, places: RunConfig) -> dict[str, str]:
    """Where the data lies: the same files twice, by name and by place."""
    pairs = (zip(getattr(names.data, part), getattr(places.data, part), strict=True) for part in PARTS)
    return {name: place for pair in pairs for name, place in pair}


def _starts(names: RunConfig, places: RunConfig) -> dict[str, str]:
    """Where that lies which a run starts from: another model, a file of vectors."""
    found = {names.training.init: places.training.init} if names.training.init and places.training.init else {}
    if names.encoding.vectors is not None and places.encoding.vectors is not None:
        found[names.encoding.vectors.path] = places.encoding.vectors.path
    return found


def named(data: DataConfig, names: Mapping[str, str]) -> DataConfig:
    """The same data, its files by other names."""
    parts = {part: tuple(names.get(path, path) for path in getattr(data, part)) for part in PARTS}
    return msgspec.structs.replace(data, **parts)


def named_sums(sums: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The same sums, their files by other names: also those inside a folder, and pictures that a table names.

    >>> named_sums({"/data/a.csv": 1, "/data/pictures/1.png": 2}, {"/data/a.csv": "a.csv"})
    {'a.csv': 1, 'pictures/1.png': 2}
    """
    spelled = {str(Path(root)): str(Path(name)) for root, name in names.items()}  # ./a.csv is summed as a.csv
    longest_first = sorted(spelled.items(), key=lambda one: -len(one[0]))

    def other_name(path: str) -> str:
        for root, name in longest_first:
            if path == root or path.startswith(f"{root}/"):
                return name + path[len(root) :]
        for root, name in longest_first:
            if Path(path).is_relative_to(Path(root).parent):
                return str(Path(name).parent / Path(path).relative_to(Path(root).parent))
        return path

    return {other_name(path): value for path, value in sums.items()}
