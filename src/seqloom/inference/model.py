"""A trained model with everything that belongs to it, ready to answer and to be judged."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np
import torch
from torch import Tensor

from seqloom.bundle import built, model_folder, read_bundle, run_of
from seqloom.config.base import read
from seqloom.config.data import AnySplit, BadRows, EncodingConfig, Part, ReadingConfig
from seqloom.config.data import Task as TaskName
from seqloom.config.decoding import AnyDecoding
from seqloom.config.options import stated, strict
from seqloom.config.training import AnyFeed, ByLengthConfig, RunConfig
from seqloom.data.check import Names
from seqloom.data.inputs import given_inputs
from seqloom.data.prepared import ExampleEncoder, Prepared
from seqloom.data.problems import Ledger, Problem
from seqloom.data.run_files import RunData, located
from seqloom.data.schema import Example
from seqloom.errors import ConfigError
from seqloom.events import Show
from seqloom.files.folders import read_manifest
from seqloom.files.layouts import ModelFile, RunFile
from seqloom.inference.evaluation import (
    MOST_ERRORS,
    Looks,
    Origin,
    given_data,
    origin_for,
    own_data,
    require_errors,
    write_errors,
)
from seqloom.inference.generation import chosen, generate, stream, translating
from seqloom.inference.prediction import GivenInputs, Limits, Reply, encoder_of, replies, tell_too_long, windows_of
from seqloom.inspect.subject import Subject, encoding
from seqloom.metrics.calibration import Calibration
from seqloom.nn.models import count_parameters
from seqloom.nn.types import Batch, on_device
from seqloom.tasks.embed import VectorPrediction, vectors_of
from seqloom.tasks.encoders import lengths_read, longest_input
from seqloom.tasks.evaluation import Evaluation, Slice, answering, evaluate, sliced
from seqloom.tasks.registry import task_of
from seqloom.tasks.task import Calibrator, Prediction, Task, Vectorizer, Writer

# A trained model that was read from its folder: what it is made of, and what is known of its training.


class OpenedModel:
    """The parts of a model: `task`, `config`, `meaning`, `model` and `notes`, and its `run` if it is still in one."""

    def __init__(self, path: Path, device: torch.device | str) -> None:
        bundle = read_bundle(path)
        self.path, self.device = path, torch.device(device)
        self.config, self.meaning, self.notes = bundle.config, bundle.meaning, bundle.notes
        decided = bundle.notes.get("metric")  # in its training
        self.task = task_of(bundle.meaning).deciding_by(None if decided is None else str(decided))
        self.task.require(bundle.config)
        self.model = built(bundle, device)
        self.folder = run_of(path)  # of its run, if it is still in one
        self.run = None if self.folder is None else cast(RunConfig, read(self.folder / RunFile.CONFIG, RunConfig))

    @cached_property
    def data(self) -> RunData | None:
        """What its run was told, with its files where they lie now; None of a model folder alone."""
        return None if self.folder is None or self.run is None else located(self.folder, self.run)

    def __repr__(self) -> str:
        schema = self.meaning.schema
        answer = f"{len(schema.labels):,} {schema.target.thing}s" if schema.labels else ""
        symbols = "" if self.meaning.tokenizer is None else f"{self.meaning.tokenizer.vocab_size:,} symbols"
        size = f"{count_parameters(self.model):,} parameters"
        facts = [f"{schema.input} to {schema.target}", answer, symbols, size, f"on {self.device}"]
        return f"{type(self).__name__}({self.task.name}: {', '.join(filter(None, facts))}; {self.path})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that training read, as far as it is known."""
        if self.task.asked.schema.input != self.meaning.schema.input:
            return ()  # questions are no rows of the training data
        return self.run.data.input if self.run is not None else tuple(map(str, self.notes.get("columns", ())))

    @property
    def sequence(self) -> str | None:
        """The column whose value all steps of a sequence share, if training read such a table."""
        return None if self.run is None else self.run.data.sequence

    @property
    def bad_rows(self) -> BadRows:
        """The rule for bad rows that training had; of a model folder alone none is read over."""
        return BadRows() if self.run is None else self.run.data.bad_rows

    @property
    def encoding(self) -> EncodingConfig:
        """How texts became numbers in training; of a model folder alone, as far as its notes say."""
        if self.run is not None:
            return self.run.encoding
        longest = self.notes.get("longest")
        return EncodingConfig(longest=longest) if isinstance(longest, int) else EncodingConfig()

    @property
    def positions(self) -> int | None:
        """How many symbols or steps of one input it has positions for; None: any number."""
        return longest_input(self.config)

    def reading(self) -> EncodingConfig:
        """How inputs become numbers here: what is read in windows is not cut."""
        return msgspec.structs.replace(self.encoding, longest=self.task.longest or self.encoding.longest)


if TYPE_CHECKING:
    from seqloom.inspect.inspector import Inspection

BUDGET = 8_192  # elements of a batch
ON_PROCESSOR = 1_024  # of one whose vectors are wanted: what stays in the cache of a core


class LoadedModel(OpenedModel):
    """A model from a run or a model folder: `predict` answers, `evaluate` judges.

    `task`, `config`, `meaning`, `model` and `notes` are what it is made of; `looks` are the looks at its test set.
    """

    def predict(self, inputs: Iterable[Any], *, budget: int = BUDGET) -> list[Prediction]:
        """The answer to each input, in order: texts, pairs of texts, lists of words, arrays of vectors or pixels."""
        examples, ledger = self._given(inputs)
        return [prediction for _, prediction in self.answers(examples, ledger, budget=budget)]

    def embed(self, texts: Iterable[Any], *, budget: int | None = None) -> np.ndarray:
        """The vector of each text, [N,D] float32, in order; of a classifier or regressor what its head reads, unit.

        ConfigError for a model that makes no vector of a whole input.
        """
        size = self.vector_size
        examples, ledger = self._given(texts)
        found = self.vectors(windows_of(examples), ledger, budget=budget)
        vectors = [reply[1].vector for reply in found if isinstance(reply[1], VectorPrediction)]
        return np.stack(vectors) if vectors else np.empty((0, size), np.float32)

    def vectors(
        self, windows: Iterable[list[Example]], ledger: Ledger, *, budget: int | None = None
    ) -> Iterator[Reply]:
        """The same for examples that come some at a time, each with its `VectorPrediction`; `replies` has bad rows."""
        encoder, limits = self._asked(ledger)
        chosen = self.vector_budget if budget is None else budget
        return replies(windows, encoder, self._vectors, budget=chosen, limits=limits)

    @property
    def vector_size(self) -> int:
        """How many numbers a vector has; ConfigError for a model that makes none."""
        return Vectorizer.of(self.task).vector_size(self.config)

    @property
    def vector_budget(self) -> int:
        """Elements of a batch whose vectors are wanted, where nobody says how many."""
        return ON_PROCESSOR if self.device.type == "cpu" else BUDGET

    def _vectors(self, inputs: Any) -> list[VectorPrediction]:
        with torch.no_grad():
            return vectors_of(Vectorizer.of(self.task).vectors(self.model, on_device(inputs, self.device)))

    def _given(self, inputs: Iterable[Any]) -> tuple[list[Example], Ledger]:
        """Values from Python as examples; what is bad is told before any work."""
        if isinstance(inputs, str):
            raise ConfigError("inputs are a list, found one text", fix="put it in [ ]")
        ledger = GivenInputs()
        values = (one.numpy(force=True) if isinstance(one, Tensor) else one for one in inputs)
        examples = list(given_inputs(values, self.task.asked.schema.input, ledger))
        ledger.close()
        return examples, ledger

    def answers(
        self, examples: Iterable[Example], ledger: Ledger, *, budget: int = BUDGET
    ) -> Iterator[tuple[Example, Prediction]]:
        """Each example with its answer, in order and without end: memory is that of some thousand examples."""
        replied = self.replies(windows_of(examples), ledger, budget=budget)
        return (one for one in replied if not isinstance(one, Problem))

    def replies(self, windows: Iterable[list[Example]], ledger: Ledger, *, budget: int = BUDGET) -> Iterator[Reply]:
        """The same for examples that come some at a time; with a ledger `Told`, bad rows too, each in its place."""
        encoder, limits = self._asked(ledger)
        return replies(windows, encoder, self._answer, budget=budget, limits=limits)

    def _asked(self, ledger: Ledger) -> tuple[ExampleEncoder, Limits]:
        """What makes numbers of questions, and what can be asked."""
        encoder = encoder_of(self.task.asked, self.reading().longest, ledger)
        return encoder, Limits(self.meaning.sizes, self.positions)

    def _answer(self, inputs: Any) -> list[Prediction]:
        with torch.no_grad():
            return list(self.task.predict(self.model, on_device(inputs, self.device)))

    @strict
    def generate(
        self,
        prompts: Iterable[str],
        *,
        decoding: AnyDecoding | None = None,
        budget: int = BUDGET,
        longest: int | None = None,
        stop: Sequence[str] | None = None,
        repetition: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        count: int | None = None,
        seed: int | None = None,
        width: int | None = None,
        best: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
    ) -> list[Sequence[Prediction]]:
        """What a language model writes after each prompt, one answer or several, in the order of the prompts.

        The settings are those of one way to write: greedy, a sample (`temperature`, `seed`, ...) or a beam (`width`,
        ...). `decoding` is a whole one.
        """
        named: dict[str, Any] = {"longest": longest, "stop": stop, "repetition": repetition, "width": width}
        named |= {"best": best, "length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
        named |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        named |= {"count": count, "seed": seed}
        return generate(self.task, self.model, prompts, chosen(decoding, stated(named)), budget=budget)

    @strict
    def stream(
        self,
        prompt: str,
        *,
        decoding: AnyDecoding | None = None,
        longest: int | None = None,
        stop: Sequence[str] | None = None,
        repetition: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        count: int | None = None,
        seed: int | None = None,
        width: int | None = None,
        best: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
    ) -> Iterator[str]:
        """The same for one prompt, piece by piece as it is written."""
        named: dict[str, Any] = {"longest": longest, "stop": stop, "repetition": repetition, "width": width}
        named |= {"best": best, "length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
        named |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        named |= {"count": count, "seed": seed}
        return stream(self.task, self.model, prompt, chosen(decoding, stated(named)))

    @strict
    def translate(
        self,
        sources: Iterable[Any],
        *,
        decoding: AnyDecoding | None = None,
        replace_unknown: bool = False,
        budget: int = BUDGET,
        longest: int | None = None,
        stop: Sequence[str] | None = None,
        repetition: float | None = None,
        width: int | None = None,
        best: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
    ) -> list[Prediction]:
        """The text for each source, in order, written with a beam of five: texts, arrays of vectors or pixels.

        The settings are those of the beam; `decoding` is a whole way to write. With `replace_unknown`, words that the
        vocabulary lacks are copied from the source.
        """
        named: dict[str, Any] = {"longest": longest, "stop": stop, "repetition": repetition, "width": width}
        named |= {"best": best, "length_penalty": length_penalty, "coverage_penalty": coverage_penalty}
        task = translating(self.task, self.model, decoding, stated(named), replace_unknown=replace_unknown)
        return self._asking(task).predict(sources, budget=budget)

    def translator(self, decoding: AnyDecoding | None = None, *, replace_unknown: bool = False) -> "LoadedModel":
        """The same model that answers as `translate` does: for files, and for streams without end."""
        return self._asking(translating(self.task, self.model, decoding, {}, replace_unknown=replace_unknown))

    def _asking(self, task: Task) -> "LoadedModel":
        asked = copy.copy(self)
        asked.task = task
        return asked

    @property
    def subject(self) -> Subject:
        """The model as the functions of `seqloom.inspect` take it."""
        encode = encoding(self.task, self.reading().longest, self.positions, self.device)
        return Subject(self.task, self.config, self.model, encode)

    def inspect(
        self, given: Any, *, target: str | None = None, among: Iterable[Any] = (), show: Show | None = None
    ) -> "Inspection":
        """A look inside at one input, with every view as a method: `.views()` lists them, `.attention()` is one.

        `target` is the translation that is looked at, else the model writes it; views of data, such as `filters`, are
        of this input and of those in `among`. `show` is told how far long work is.
        """
        from seqloom.inspect.inspector import Inspection

        return Inspection(self.subject, given, target=target, among=among, show=show)

    @strict
    def evaluate(
        self,
        *data: str | Path,
        part: Part = "dev",
        keep: int = 20,
        budget: int | None = None,
        by: Iterable[str] = (),
        errors: str | Path | None = None,
        most: int = MOST_ERRORS,
        decoding: AnyDecoding | None = None,
        bad_rows: BadRows | None = None,
        reading: ReadingConfig | dict[str, Any] | None = None,
        task: TaskName | None = None,
        input: Names | None = None,
        target: Names | None = None,
        id: str | None = None,
        label_separator: str | None = None,
        sequence: str | None = None,
        split: AnySplit | None = None,
    ) -> Evaluation:
        """How well the model does on data, or on the dev or test part of its run's.

        From `reading` on, settings are those of `DataConfig`, for data that is given; what they leave open is as in
        training. A look at a test part is written down first. Batches are those of training, or of examples of about
        one length, `budget` symbols together. `by` names columns of the data, or "length": `slices` are then the
        evaluations of the rows that share their values. `errors` is a file, .jsonl or .csv, for the `most` worst
        answers, the worst first. Texts are written greedily, as in training, unless `decoding` says how. Rows that
        cannot be read are refused, unless `bad_rows` skips them, or the rule of the run does.
        """
        worst = 0 if errors is None else require_errors(Path(errors), most)
        named = {"reading": reading, "task": task, "input": input, "target": target, "id": id, "split": split}
        named |= {"label_separator": label_separator, "sequence": sequence}
        judge = self.task if decoding is None else Writer.of(self.task, decoding.kind()).writing(decoding)
        origin = self._origin(data, part, stated(named), bad_rows)
        judge = judge.judging(origin.prepared.schema)
        columns = {name: origin.values(name, origin.prepared.parts[part].tolist()) for name in names_in(by)}
        if isinstance(self._feed(budget), ByLengthConfig):  # in packs and streams documents may be longer than rows
            self._require_room(origin, part)
        batches = self._batches(origin.prepared, part, budget)
        if not data and part == "dev":
            judge = self._cross_fitted(judge, self._batches(origin.prepared, part, budget))
        evaluation = evaluate(judge, self.model, batches, keep=keep, worst=worst)
        if part == "test":
            self._record(judge, evaluation, {} if decoding is None else {"decoding": msgspec.to_builtins(decoding)})
        if errors is not None:
            write_errors(Path(errors), judge, evaluation, origin)
        unseen = origin.unseen(origin.prepared.parts[part])
        slices = _slices(judge, evaluation, origin, part, columns)
        return evaluation._replace(unseen=unseen, slices=slices, said=origin.said)

    def _cross_fitted(self, task: Task, dev: Iterable[Batch[Any, Any]]) -> Task:
        """The task for rows that found its calibration: each half of them is read as the other asks for."""
        calibration = task.meaning.calibration
        if self.run is None or calibration == Calibration() or not isinstance(task, Calibrator):
            return task
        with answering(self.model):
            fitted = task.deciding_by(self.run.training.metric).fitted(self.model, dev)
        return task.calibrated(calibration, fitted.rows)

    def _require_room(self, origin: Origin, part: Part) -> None:
        """Refuse inputs that are longer than the positions of the model, with their places."""
        most, ledger, rows = self.positions, Ledger(), origin.prepared.parts[part]
        lengths = lengths_read(self.config, origin.prepared)
        for row in rows[lengths[rows] > most].tolist() if most is not None else ():
            tell_too_long(int(lengths[row]), most or 0, origin.prepared.place_of(row), ledger)
        ledger.close()

    def own_rows(self, part: Part) -> Prepared:
        """The rows of a part of its run's data, read as `evaluate` reads them."""
        return self._origin((), part, {}, None).prepared

    def _origin(
        self, data: tuple[str | Path, ...], part: Part, settings: dict[str, Any], bad_rows: BadRows | None
    ) -> Origin:
        if not data and settings:
            raise ConfigError(f"'{next(iter(settings))}' says how data is read, and none is given", fix="give data")
        run = None if self.data is None else self.data.config
        source = given_data(data, part, self.meaning, run, settings) if data else own_data(self.data, part)
        return origin_for(source.under(bad_rows), part, self.meaning, self.reading())

    def _feed(self, budget: int | None) -> AnyFeed:
        """Batches of examples of about one length where a budget is given, else those of training."""
        if self.run is not None and budget is None:
            return self.run.training.feed
        return ByLengthConfig(budget=budget or BUDGET)

    def _batches(self, prepared: Prepared, part: Part, budget: int | None) -> Iterator[Batch[Any, Any]]:
        loader = self.task.loader(prepared, part, self._feed(budget), seed=0, workers=0)
        for step in loader.steps(until=1):
            if step.batch is not None:
                yield on_device(step.batch, self.device)

    @property
    def looks(self) -> tuple[dict[str, Any], ...]:
        """Every look at the test part so far."""
        return Looks.of(self.path).records()

    def _record(self, task: Task, evaluation: Evaluation, facts: dict[str, Any]) -> None:
        sha256 = read_manifest(self.path).files[ModelFile.WEIGHTS].sha256
        intervals = evaluation.intervals(task)
        Looks.of(self.path).record(evaluation.metrics, intervals, model_sha256=sha256, rows=evaluation.rows, **facts)


def _slices(
    task: Task, evaluation: Evaluation, origin: Origin, part: Part, columns: dict[str, list[Any]]
) -> tuple[Slice, ...]:
    """The slices of each column, whose values are those of the rows of the part."""
    at = {str(row): place for place, row in enumerate(origin.prepared.parts[part].tolist())}
    rows = [at[name] for name in evaluation.ids]
    found = (sliced(task, evaluation, name, [values[row] for row in rows]) for name, values in columns.items())
    return tuple(chain.from_iterable(found))


def names_in(by: Iterable[str]) -> tuple[str, ...]:
    """The names of columns, each once; one text is one name."""
    return (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))


def load(path: str | Path, *, device: torch.device | str = "cpu") -> LoadedModel:
    """The model in a run folder or a model folder, every byte of it verified."""
    return LoadedModel(model_folder(path).absolute(), device)
