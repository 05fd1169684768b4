"""From wishes to a run with nothing left open: data read without its test part, model and settings chosen.

A run that starts from another model (`init`) takes that model's tokenisers. Once it has begun they are in its own
folder, and the other model is not needed any more.
"""

import re
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from seqloom.bundle import Bundle, read_bundle
from seqloom.bundle.places import model_folder
from seqloom.config.changing import dropouts, with_dropout, with_setting
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.models import AnyModel
from seqloom.config.objectives import objective_of
from seqloom.config.training import RunConfig, TrainingConfig
from seqloom.data.preparing import Given, Prepared, prepare
from seqloom.data.problems import Ledger, escaped
from seqloom.data.run_files import is_one, located
from seqloom.data.schema import RUNNING, Schema
from seqloom.data.sealing import open_sealed
from seqloom.data.sources.shelves import cache_folder
from seqloom.data.survey import Watch
from seqloom.errors import ConfigError
from seqloom.tasks.choosing import BY_TARGET, task_of
from seqloom.tasks.contract import HeadSettings, Meaning, Task
from seqloom.tasks.reading import ENCODING
from seqloom.training.defaults import default_encoding, default_training, told
from seqloom.training.folder import DataFacts, RunFolder
from seqloom.training.places import Home, has_kept
from seqloom.training.solving import require_solvable
from seqloom.training.starting import unknown_said
from seqloom.training.wishes import Wishes
from seqloom.training.wording import reading_words, require_one_start, require_width, vector_width, worded, words_said

SHOWN = 5  # labels in a sentence
SYMBOLS = {
    "text",
    "pair",
    "triple",
    "words",
}  # inputs that one tokeniser reads, so that a model of one can read another
NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")


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


def resolve(
    data: DataConfig,
    wishes: Wishes,
    *,
    home: Home | None = None,
    cache: Path | None = None,
    watch: Watch | None = None,
) -> Resolved:
    """The data read and encoded, and everything chosen that was left open; nothing is written but the cache.

    What the wishes leave open about a run that has begun in its home is as it is there: its settings, its model, and
    the tokenisers that it started from.
    """
    _require_changeable(wishes)
    folder = home.named if home is not None else None
    before, asked = _begun(folder), wishes
    own = None if folder is None or before is None else located(folder, before).config  # its files where they lie now
    wishes = wishes if own is None else wishes.filled(own)
    require_one_start(wishes)
    start, ledger = _start(wishes, folder, own), Ledger(data.bad_rows)
    dataset = open_sealed(data, ledger)
    _require_of_task(wishes, dataset.schema)
    plain = wishes.encoding or _usual_encoding(dataset.schema, start)
    encoding = worded(plain, wishes, dataset.schema)
    width = vector_width(encoding, before)
    given = _given(start.meaning, dataset.schema) if start is not None else _own_words(folder, own)
    place = cache if cache is not None else cache_folder() / "prepared"
    prepared = prepare(dataset, encoding, ledger, cache=place, watch=watch, given=given)
    task = task_of(Meaning.of(prepared)).deciding_by(wishes.training.get("metric"))
    folder = None if home is None else home.folder(dataset.config.train[0], task.name, _name(task, wishes, start))
    if before is None and _begun(folder) is not None:  # a home that nobody named, and a run is there
        return resolve(data, asked, home=Home(folder), cache=cache, watch=watch)
    model, recipe, said = _model(task, wishes, prepared, start, before, width)
    settings = default_training(prepared, recipe, wishes.size or "small", wishes.training)
    settings["rate"] = min(settings["rate"], _learned_at(start))
    settings |= wishes.training
    config = RunConfig(
        task=task.name, data=dataset.config, encoding=encoding, model=model, training=TrainingConfig(**settings)
    )
    require_solvable(config.model, config.training)
    unknown = unknown_said(prepared) if start is not None else tuple(words_said(wishes, plain, encoding, prepared))
    said = (*dataset.said, *_labels_said(prepared.schema), *said, *unknown, told(config.training))
    facts, bundle = DataFacts.of(dataset, prepared), start.bundle if start else None
    file = None if encoding.vectors is None else encoding.vectors.path
    return Resolved(config, prepared, task, facts, said, bundle, folder, before, file)


def _begun(folder: Path | None) -> RunConfig | None:
    """The configuration of the run in a folder, if one has begun there and kept something; else it starts again."""
    kept = folder is not None and RunFolder(folder).has_begun() and has_kept(folder)
    return RunFolder(folder).config() if folder is not None and kept else None


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


def _require_of_task(wishes: Wishes, schema: Schema) -> None:
    """Refuse what no data of the task can have, before all of it is read."""
    kind = BY_TARGET[schema.target]
    kind.require_decider(wishes.training.get("metric"))
    kind.head_kind(wishes.head)
    kind.require_settings_of_vectors(wishes.of_vectors())
    if "feed" in wishes.training:
        kind.require_feeding(wishes.training["feed"])
    _require_balanceable(wishes.class_weights, schema)


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
    return _Start(
        bundle.config,
        bundle.meaning,
        bundle,
        (f"model: that of --init, {bundle.config.parameters():,} parameters before its head is replaced",),
    )


def _learned_at(start: _Start | None) -> float:
    """The rate at which the start learned, or may go on: a larger one would soon lose what it knows; else any."""
    rate = None if start is None or start.bundle is None else start.bundle.notes.get("rate")
    return float(rate) if isinstance(rate, float) and rate > 0 else inf


def _usual_encoding(schema: Schema, start: _Start | None) -> EncodingConfig:
    """What is usual for the task; single inputs are cut where the positions of the model of --init end."""
    usual = default_encoding(schema.task)
    if start is None or not isinstance(start.model, ENCODING) or schema.target in RUNNING:
        return usual
    return msgspec.structs.replace(usual, longest=min(usual.longest, start.model.encoder.limit() or usual.longest))


def _given(meaning: Meaning, found: Schema) -> Given:
    """The tokenisers of a model that training starts from; labels are those of the data."""
    if meaning.schema.input != found.input and not {meaning.schema.input, found.input} <= SYMBOLS:
        raise ConfigError(
            f"--init reads {meaning.schema.input}, and the data has {found.input}",
            fix="start from a model of the same kind of input",
        )
    return Given(None, meaning.tokenizer, meaning.target_tokenizer)


def _own_words(folder: Path | None, own: RunConfig | None) -> Given | None:
    """The tokenisers of the run itself, if it has begun with words of a file that nobody needs any more."""
    if folder is None or own is None or own.encoding.vectors is None:
        return None
    meaning = RunFolder(folder).meaning()
    return Given(None, meaning.tokenizer, meaning.target_tokenizer)


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
        require_width(wishes.model, width)
        return wishes.model, "", ()
    if start is not None and wishes.model is None:
        return _adapted(task, start.model, wishes), "", start.said
    recipe, size = wishes.model or task.recipes()[0], wishes.size or "small"
    weights = class_weights(wishes.class_weights, prepared)
    kind = task.head_kind(wishes.head)
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
    if schema.target != "label":
        raise ConfigError(
            f"balanced class weights are for data with one label each, and its target is {schema.target}",
            fix="leave them out",
        )
