"""From a request to a complete configuration: the data is read without its test set, model and settings are chosen.

A run that starts from another model (`init`) uses that model's tokenizers. They are copied into its folder, so a
resumed run does not need the other model.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from seqloom.bundle import Bundle, model_folder, read_bundle
from seqloom.config.base import dropouts, with_dropout, with_setting
from seqloom.config.data import SPLITS, DataConfig, EncodingConfig, encoding_over
from seqloom.config.models import AnyModel, objective_of
from seqloom.config.training import AnyDuration, RunConfig, SecondsConfig, TrainingConfig
from seqloom.data.dataset import Dataset, open_without_test
from seqloom.data.prepared import GivenEncoding, Prepared, default_encoding, preparing
from seqloom.data.problems import Ledger, escaped
from seqloom.data.readers.files import cache_folder
from seqloom.data.run_files import is_one, located, names_of, with_known_starts
from seqloom.data.schema import Schema
from seqloom.data.survey import Survey
from seqloom.data.word_vectors import width_of
from seqloom.errors import ConfigError
from seqloom.events import Work, finished
from seqloom.recipes.families import Size, recipe_called
from seqloom.tasks.encoders import ENCODING, word_vectors_of
from seqloom.tasks.task import HeadSettings, ModelSpec, Task, task_class, task_of
from seqloom.training.data_defaults import (
    OFTEN,
    class_weights,
    counting_recipe,
    default_dropout,
    dropout_follows_text,
    require_balanceable,
    unknown_word_messages,
    with_word_inputs,
    with_word_settings,
    word_messages,
)
from seqloom.training.estimate import DEFAULT_SIZES, Pace, Processor, estimate_line, fitted, smaller_sizes
from seqloom.training.learning_rate import (
    batching_message,
    default_training,
    expected_epochs,
    training_line,
    training_tokens,
    with_default_warmup,
)
from seqloom.training.newton import require_solvable
from seqloom.training.request import WORD_VECTORS, RunRequest
from seqloom.training.run_folder import DataFacts, RunFolder
from seqloom.training.run_location import RunLocation

RUNNING = ("paragraph", "file")  # units of a text file that follow each other in one text
SHOWN = 5  # labels in a message


class Resolved(NamedTuple):
    """A run with its complete configuration and its data."""

    config: RunConfig
    prepared: Prepared  # without the test set
    task: Task
    facts: DataFacts
    messages: tuple[str, ...]
    init: Bundle | None = None  # the model that a new run starts from
    folder: Path | None = None  # the run folder, if a location was given
    before: RunConfig | None = None  # of the run that is resumed
    vectors: str | None = None  # the word vector file of a new run
    files: dict[str, str] = {}  # noqa: RUF012  # the path of each file that the configuration names


class _Start(NamedTuple):
    """The model that a run starts from: that of `init`, or the copy that the run keeps."""

    model: AnyModel
    spec: ModelSpec
    bundle: Bundle | None
    messages: tuple[str, ...] = ()

    @property
    def learned_at(self) -> float:
        """Its learning rate; infinity if that is not known."""
        rate = None if self.bundle is None else self.bundle.notes.get("lr")
        return float(rate) if isinstance(rate, float) and rate > 0 else inf


def resolve(
    data: DataConfig,
    request: RunRequest,
    *,
    location: RunLocation | None = None,
    cache: Path | None = None,
    machine: Processor | None = None,
) -> Resolved:
    """Read and encode the data, and choose all open settings. Only the cache is written.

    With a machine, the default size and number of epochs are those that fit it, and a message estimates the time.
    """
    return finished(resolving(data, request, location=location, cache=cache, machine=machine))


def resolving(
    data: DataConfig,
    request: RunRequest,
    *,
    location: RunLocation | None = None,
    cache: Path | None = None,
    dataset: Dataset | None = None,
    machine: Processor | None = None,
) -> Work[Resolved]:
    """Do the same as `resolve` with progress events, optionally for data that is already open.

    If there is a run at the location, open settings, model and tokenizers are taken from it.
    """
    _require_changeable(request)
    if request.freeze_word_vectors:
        patterns = (*request.training.get("freeze", ()), WORD_VECTORS)
        request = request._replace(training={**request.training, "freeze": tuple(dict.fromkeys(patterns))})
    folder = location.named if location is not None else None
    before, own = (location.existing_run() if location is not None else None) or (None, None)
    original, request = request, request if own is None else request.filled(own)
    written = isinstance(request.encoding, EncodingConfig) and request.encoding.word_vectors is not None
    if request.training.get("init") and (written or request.word_vectors is not None):
        raise ConfigError("--word-vectors and --init both initialize the word vectors", fix="leave one of them out")
    start, ledger = _start(request, folder, own), Ledger.of(data)
    dataset = open_without_test(data, ledger) if dataset is None else dataset
    # Settings that the task does not have are refused before all data is read.
    metric, batching = request.training.get("metric"), request.training.get("batching")
    kind = task_class(dataset.schema.target.name)
    kind.check(metric=metric, head=request.head, settings=request.of_vectors(), batching=batching)
    require_balanceable(request.class_weights, dataset.schema)
    plain = encoding_over(request.encoding, _default_encoding(dataset.schema, start))
    encoding = with_word_settings(plain, request, dataset.schema)
    width = None  # of pretrained vectors
    if encoding.word_vectors is not None:
        width = word_vectors_of(before.model) if before is not None else width_of(encoding.word_vectors.path)
    given = _given(start.spec, dataset.schema) if start is not None else _own_words(folder, own)
    place = cache if cache is not None else cache_folder() / "prepared"
    survey = Survey(dataset, ledger)
    prepared = yield from preparing(survey, encoding, cache=place, given=given)
    task = task_of(ModelSpec.of(prepared))
    is_open = start is None and before is None and request.model is None
    recipe, why = counting_recipe(request, task, prepared) if is_open else ("", "")
    if recipe:  # lengths are known only now; words change
        request = request._replace(model=recipe)
        encoding = with_word_settings(plain, request, dataset.schema)
        prepared = yield from preparing(survey, encoding, cache=place, given=given)
        task = task_of(ModelSpec.of(prepared))
    if metric is None and before is None and (metric := task.default_metric(prepared)) is not None:
        request = request._replace(training={**request.training, "metric": metric})
    task = task.with_metric(metric)
    folder = (
        None if location is None else location.folder(dataset.config.train[0], task.name, _name(task, request, start))
    )
    if before is None and RunLocation(folder).existing_run() is not None:  # the default folder, and a run is there
        there = RunLocation(folder)
        return (yield from resolving(data, original, location=there, cache=cache, dataset=dataset, machine=machine))
    if request.label_smoothing is None:  # it reads targets, so it is chosen once for all sizes
        request = request._replace(label_smoothing=task.default_label_smoothing(prepared))
    runs_on = dataset.config.reading.unit in RUNNING
    choice = _Choice(task, request, prepared, start, before, width, runs_on)
    choice, estimated = choice.fitted(machine if before is None else None)
    (model, messages), training = choice.model(), choice.training()
    if why:
        messages = (f"{messages[0]}; {why}", *messages[1:])
    config = RunConfig(task=dataset.schema.task, data=dataset.config, encoding=encoding, model=model, training=training)
    if training.strengths:
        require_solvable(model)
    unknown = (
        unknown_word_messages(prepared)
        if start is not None
        else tuple(word_messages(request, plain, encoding, prepared))
    )
    if batching is None and before is None and (line := batching_message(training.batching, prepared, runs_on=runs_on)):
        messages = (*messages, line)
    messages = (
        *dataset.messages,
        *prepared.messages,
        *_label_messages(prepared.schema),
        *messages,
        *unknown,
        training_line(config.training),
        *estimated,
    )
    facts, bundle = DataFacts.of(dataset, prepared), start.bundle if start else None
    file = None if encoding.word_vectors is None else encoding.word_vectors.path
    return Resolved(config, prepared, task, facts, messages, bundle, folder, before, file)


def _name(task: Task, request: RunRequest, start: _Start | None) -> str:
    """The name of the model in the default folder name."""
    if isinstance(request.model, str):
        return request.model
    model = request.model or (start.model if start is not None else None)
    return task.recipes()[0] if model is None else model.kind()


def _require_changeable(request: RunRequest) -> None:
    """Refuse recipe settings for a given model: they would silently do nothing. Also those that do not fit a recipe."""
    request.require_char_encoder()
    if names := request.in_vain():
        source = "the model of init" if request.model is None else "the given model"
        raise ConfigError(
            f"{', '.join(names)} cannot be combined with {source}, whose layers are fixed",
            fix="name a recipe, or change the model itself",
        )


def init_bundle(name: str) -> Bundle:
    """The model in a run folder or a model folder."""
    return read_bundle(model_folder(name))


def _start(request: RunRequest, folder: Path | None, own: RunConfig | None) -> _Start | None:
    """The model that the run starts from, if any."""
    name = request.training.get("init")
    if not name:
        return None
    mine = None if own is None else own.training.init
    if folder is not None and own is not None and mine and is_one(mine, name):
        return _Start(own.model, RunFolder(folder).spec(), None)
    bundle = init_bundle(name)
    message = f"model: from --init, {bundle.config.parameters():,} parameters before its head is replaced"
    return _Start(bundle.config, bundle.spec, bundle, (message,))


def _default_encoding(schema: Schema, start: _Start | None) -> EncodingConfig:
    """The default of the task; inputs are truncated where the positions of the model of --init end."""
    usual = default_encoding(schema)
    if start is None or not isinstance(start.model, ENCODING) or schema.target.is_running:
        return usual
    return msgspec.structs.replace(
        usual, max_length=min(usual.max_length, start.model.encoder.limit() or usual.max_length)
    )


def _given(spec: ModelSpec, found: Schema) -> GivenEncoding:
    """The tokenizers of a model that training starts from; labels are those of the data."""
    own = spec.schema.input
    if own != found.input and not (own.reads_tokens and found.input.reads_tokens):  # one tokenizer reads all texts
        raise ConfigError(
            f"the model of --init reads {own}, but the data contains {found.input}",
            fix="start from a model with the same kind of input",
        )
    return GivenEncoding(None, spec.tokenizer, spec.target_tokenizer)


def _own_words(folder: Path | None, own: RunConfig | None) -> GivenEncoding | None:
    """The tokenizers of a resumed run that started from a word vector file, which it does not need any more."""
    if folder is None or own is None or own.encoding.word_vectors is None:
        return None
    spec = RunFolder(folder).spec()
    return GivenEncoding(None, spec.tokenizer, spec.target_tokenizer)


def _label_messages(schema: Schema) -> Iterator[str]:
    """A message with the number of labels and the first of them."""
    if not schema.labels:
        return
    first = ", ".join(escaped(label) for label in schema.labels[:SHOWN])
    more = ", ..." if len(schema.labels) > SHOWN else ""
    yield f"labels: {len(schema.labels):,} ({first}{more})"


class _Choice(NamedTuple):
    """What model and training are chosen from, and the size and duration that are chosen so far."""

    task: Task
    request: RunRequest
    prepared: Prepared
    start: _Start | None
    before: RunConfig | None
    width: int | None  # of pretrained vectors
    runs_on: bool  # whether the documents are parts of one text
    size: Size | None = None  # None: as requested, or the default
    duration: AnyDuration | None = None  # None: the same

    def model(self) -> tuple[AnyModel, tuple[str, ...]]:
        """The model configuration, and messages about chosen settings."""
        size = self.size or self.sizes()[0]
        request = self.request._replace(dropout=self.dropout(size))
        model, notes = _model(self.task, request, self.prepared, self.start, self.before, self.width, size)
        return model, (*notes, *self._dropout_notes(size, model))

    def _dropout_notes(self, size: Size, model: AnyModel) -> Iterator[str]:
        """A message about dropout that follows the amount of text, or would if the number of epochs were known."""
        if self.request.dropout is not None or self.before is not None:
            return
        tokens, chosen = training_tokens(self.prepared), self.dropout(size)
        few = f"for few training tokens ({tokens:,})"
        if chosen is not None:
            yield f"dropout: {chosen:g}, {few} that are read often"
        elif (
            isinstance(self.duration or self.request.training.get("duration"), SecondsConfig)
            and dropout_follows_text(self.recipe(), size, self.task)
            and (usual := default_dropout(tokens, OFTEN)) is not None
        ):
            now = f"dropout: {max(dropouts(model)):g}, as with --seconds the number of epochs is not known"
            yield f"{now}; with {OFTEN} epochs or more, --dropout {usual:g} is better {few}"

    def dropout(self, size: Size) -> float | None:
        """As requested, as in the run that is resumed, or by the amount of data; None: the dropout of the recipe."""
        if self.request.dropout is not None or not dropout_follows_text(self.recipe(), size, self.task):
            return self.request.dropout
        if self.before is not None:  # it may be resumed for more epochs, and keeps its rate
            return next(dropouts(self.before.model), 0.0)
        tokens, named = training_tokens(self.prepared), self.request.training
        epochs = expected_epochs(self.duration or named.get("duration"), tokens, named.get("batching"))
        return default_dropout(tokens, epochs)

    def training(self) -> TrainingConfig:
        """All settings of training."""
        learned_at = inf if self.start is None else self.start.learned_at
        size, named = self.request.dimensions(self.size or self.sizes()[0]), self.request.training
        duration = {} if self.duration is None else {"duration": self.duration}
        settings = default_training(
            self.prepared,
            self.recipe(),
            size,
            duration | named,
            learned_at,
            runs_on=self.runs_on,
            carries_state=self.model()[0].carries_state(),
        )
        return with_default_warmup(TrainingConfig(**settings | named), self.prepared)

    def sizes(self) -> tuple[Size, ...]:
        """The sizes to choose from, by preference; that of the run that is resumed, if the request leaves it open."""
        if self.request.size is not None:
            return (self.request.size,)
        recipe = self.recipe()
        if not recipe_called(recipe).dimensions or self.request.dimensions(DEFAULT_SIZES[0]).changed():
            return DEFAULT_SIZES[:1]
        if self.before is None:
            return DEFAULT_SIZES
        same = [size for size in DEFAULT_SIZES if self._replace(size=size).model()[0] == self.before.model]
        return (*same, *DEFAULT_SIZES)

    def recipe(self) -> str:
        """The name of the recipe; empty for a given model and for that of --init."""
        if self.request.model is None and self.start is None:
            return self.task.recipes()[0]
        return self.request.model if isinstance(self.request.model, str) else ""

    def fitted(self, machine: Processor | None) -> "tuple[_Choice, tuple[str, ...]]":
        """The choice that fits the machine, and a message with the estimated time.

        Recipes without sizes, and those that newton solves, stay as they are.
        """
        usual = self.training()
        if machine is None or usual.strengths:
            return self, ()

        def pace(size: Size) -> Pace:
            return Pace.of(self._replace(size=size).model()[0], usual, self.prepared, machine)

        paces = {size: pace(size) for size in self.sizes()}
        size, duration = fitted(paces, usual.duration, named="duration" in self.request.training)
        first = self.sizes()[0]
        wanted = (first, usual.duration, paces[first].seconds(usual.duration))
        chosen = (size, duration, paces[size].seconds(duration))

        def smaller() -> dict[str, float]:
            found = dict[str, float]()
            for flag, other in self.smaller(size):
                with suppress(ConfigError):  # a width that the heads do not divide
                    made = Pace.of(other.model()[0], usual, self.prepared, machine)
                    found[flag] = made.seconds(duration)
            return found

        return self._replace(size=size, duration=duration), (estimate_line(wanted, chosen, machine, smaller),)

    def smaller(self, size: Size) -> "Iterator[tuple[str, _Choice]]":
        """Yield the flags of smaller models, and the choices with them, the largest first: of the named numbers, half,
        a quarter and an eighth of the width or else of the layers; without them the smaller sizes.
        """
        recipe, request = self.recipe(), self.request
        if not recipe_called(recipe).dimensions:
            return
        for name in ("width", "layers"):
            if (number := getattr(request, name)) is not None:
                for less in dict.fromkeys(max(1, number // part) for part in (2, 4, 8)):
                    if less < number:
                        yield f"--{name} {less}", self._replace(size=size, request=request._replace(**{name: less}))
                return
        for one in smaller_sizes(size):
            yield f"--size {one}", self._replace(size=one)


def _model(
    task: Task,
    request: RunRequest,
    prepared: Prepared,
    start: _Start | None,
    before: RunConfig | None,
    width: int | None,
    size: Size,
) -> tuple[AnyModel, tuple[str, ...]]:
    """Return the model configuration, and messages about chosen settings."""
    if before is not None and request.model is before.model:  # if the data has changed, the run folder refuses it
        return before.model, (f"model: from the run, {before.model.parameters():,} parameters",)
    if request.model is not None and not isinstance(request.model, str):
        task.require(request.model)
        if width is not None and (found := word_vectors_of(request.model)) != width:
            raise ConfigError(
                f"the vectors in the file have {width:,} dimensions, those of the model {found:,}",
                fix=f"set size = {width} in the model's input",
            )
        return request.model, ()
    if start is not None and request.model is None:
        return _adapted(task, start.model, request), start.messages
    recipe, sized = request.model or task.recipes()[0], request.dimensions(size)
    weights = class_weights(request.class_weights, prepared)
    of_tags = request.label_smoothing or weights or start is not None  # what a crf cannot have, or has not learned
    kind = request.head or (task.heads[0] if of_tags else task.default_head(recipe))
    wanted = HeadSettings(
        request.label_smoothing or 0.0, weights, kind, request.pooling, request.objective, request.micro_batch
    )
    model = task.model(recipe, sized, wanted)
    if request.dropout is not None:
        model = with_dropout(model, request.dropout)
    model = with_word_inputs(model, request, prepared, width)
    notes = (
        ()
        if request.model and request.size and not sized.changed()
        else (f"model: {recipe}, size {sized}, {model.parameters():,} parameters",)
    )
    if request.head is None and kind != task.heads[0]:
        notes = (*notes, f"head: {kind}, because the tags mark spans (--head {task.heads[0]} is faster)")
    if request.dropout and not any(dropouts(model)):
        notes = (*notes, f"dropout: {recipe} has no dropout layers, so --dropout {request.dropout:g} has no effect")
    return model, notes


def _adapted(task: Task, model: AnyModel, request: RunRequest) -> AnyModel:
    """The model of --init with the head that the task needs."""
    try:
        adapted = task.adapted(model)
    except ConfigError as error:
        raise ConfigError(
            f"--init: {error.problem}", fix=f"start from a model for the task {task.name}, or leave --init out"
        ) from error
    for name in request.of_vectors():
        value = getattr(request, name)
        adapted = with_setting(adapted, name, objective_of(value) if name == "objective" else value)
    task.require(adapted)
    return adapted


# The files of a run by the names in its configuration, so that it resumes however its data is spelled now.
#
# A name is the path that was given when the run started. A file that is given by another path, or that was moved, keeps
# its name if it is the same file or has the same hash. So the configuration stays the same to the byte.


def with_known_names(folder: RunFolder, resolved: Resolved) -> Resolved:
    """The run with its files by the names in its folder, if the run exists, and with the path of each."""
    config = resolved.config
    if not folder.exists():
        return resolved._replace(files=_data_files(config, config) | _starts(config, config))
    before = folder.config()
    own = located(folder.path, before).config
    known = names_of(folder.path, before.data, own.data, config.data)
    facts = msgspec.structs.replace(resolved.facts, fingerprints=named_sums(resolved.facts.fingerprints, known))
    now = with_known_starts(msgspec.structs.replace(config, data=named(config.data, known)), before, own)
    files = _data_files(now, config) | _starts(now, config) | _starts(before, own)
    return resolved._replace(config=now, facts=facts, files=files)


def _data_files(names: RunConfig, places: RunConfig) -> dict[str, str]:
    """The path of each data file by its name."""
    pairs = (zip(getattr(names.data, part), getattr(places.data, part), strict=True) for part in SPLITS)
    return {name: place for pair in pairs for name, place in pair}


def _starts(names: RunConfig, places: RunConfig) -> dict[str, str]:
    """Return the paths of the model or word vector file that a run starts from."""
    found = {names.training.init: places.training.init} if names.training.init and places.training.init else {}
    if names.encoding.word_vectors is not None and places.encoding.word_vectors is not None:
        found[names.encoding.word_vectors.path] = places.encoding.word_vectors.path
    return found


def named(data: DataConfig, names: Mapping[str, str]) -> DataConfig:
    """The same data, its files under other names."""
    parts = {part: tuple(names.get(path, path) for path in getattr(data, part)) for part in SPLITS}
    return msgspec.structs.replace(data, **parts)


def named_sums(sums: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The same hashes, the files under other names: also those inside a folder, and images that a table names.

    >>> named_sums({"/data/a.csv": 1, "/data/pictures/1.png": 2}, {"/data/a.csv": "a.csv"})
    {'a.csv': 1, 'pictures/1.png': 2}
    """
    spelled = {str(Path(root)): str(Path(name)) for root, name in names.items()}  # ./a.csv is listed as a.csv
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
