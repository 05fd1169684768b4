"""A trained model with its tokenizer, labels and calibration: predict, embed, generate, translate, evaluate."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import msgspec
import numpy as np
import torch
from torch import Tensor

from seqloom.bundle import built, model_folder, read_bundle, run_of
from seqloom.config.base import read
from seqloom.config.data import BadRows, EncodingConfig, Format, SplitName, Unit
from seqloom.config.data import Task as TaskName
from seqloom.config.decoding import AnyDecoding
from seqloom.config.options import settings as flags_of
from seqloom.config.options import stated, strict, with_flags
from seqloom.config.training import AnyBatching, ByLengthConfig, RunConfig, StreamsConfig
from seqloom.data.check import Names
from seqloom.data.endless import given_elements
from seqloom.data.inputs import given_inputs
from seqloom.data.prepared import ExampleEncoder, Prepared
from seqloom.data.problems import Ledger, Problem
from seqloom.data.run_files import RunData, located
from seqloom.data.schema import Example, Examples
from seqloom.errors import ConfigError
from seqloom.events import Show
from seqloom.files.folders import read_manifest
from seqloom.files.layouts import ModelFile, RunFile
from seqloom.inference.evaluation import (
    MOST_ERRORS,
    Origin,
    TestEvaluations,
    given_data,
    origin_for,
    own_data,
    require_errors,
    write_errors,
)
from seqloom.inference.generation import chosen, generate, stream, translating
from seqloom.inference.prediction import (
    GivenInputs,
    Limits,
    Reply,
    encoder_of,
    fitting,
    replies,
    report_too_long,
    windows_of,
)
from seqloom.inference.predictions import Predictions
from seqloom.inference.stream import BLOCK, ModelStream, StreamAnswer
from seqloom.inspect.subject import Subject, encoding
from seqloom.metrics.calibration import Calibration
from seqloom.nn.int8 import quantize
from seqloom.nn.models import count_parameters
from seqloom.nn.types import Batch, on_device
from seqloom.tasks.embed import VectorPrediction, vectors_of
from seqloom.tasks.encoders import lengths_read, longest_input
from seqloom.tasks.evaluation import Evaluation, Slice, answering, evaluate, sliced
from seqloom.tasks.task import Calibrator, Prediction, Streamer, Task, Vectorizer, Writer, task_of

# A trained model that was loaded from its folder, with the settings and data of its training.


class OpenedModel:
    """The parts of a trained model.

    Attributes:
        path: the model folder.
        device: where the model is.
        task: the task that it was trained for.
        config: the configuration of the model.
        spec: schema, tokenizers and calibration.
        model: the `torch.nn.Module`.
        notes: metrics, data and versions of the training, as JSON values.
        folder, run: the run folder and its configuration; None for a model folder outside a run.
    """

    def __init__(self, path: Path, device: torch.device | str) -> None:
        bundle = read_bundle(path)
        self.path, self.device = path, torch.device(device)
        self.config, self.spec, self.notes = bundle.config, bundle.spec, bundle.notes
        decided = bundle.notes.get("metric")  # during training
        self.task = task_of(bundle.spec).with_metric(None if decided is None else str(decided))
        self.task.require(bundle.config)
        self.model = built(bundle, device)
        self.folder = run_of(path)
        self.run = None if self.folder is None else cast(RunConfig, read(self.folder / RunFile.CONFIG, RunConfig))

    @cached_property
    def data(self) -> RunData | None:
        """The data of its run, with the current paths of its files; None outside a run."""
        return None if self.folder is None or self.run is None else located(self.folder, self.run)

    def __repr__(self) -> str:
        schema = self.spec.schema
        answer = f"{len(schema.labels):,} {schema.target.noun}s" if schema.labels else ""
        tokens = "" if self.spec.tokenizer is None else f"{self.spec.tokenizer.vocab_size:,} tokens"
        size = f"{count_parameters(self.model):,} parameters"
        facts = [f"{schema.input} to {schema.target}", answer, tokens, size, f"on {self.device}"]
        return f"{type(self).__name__}({self.task.name}: {', '.join(filter(None, facts))}; {self.path})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The input columns of the training data, as far as they are known."""
        if not isinstance(self.task.input_spec.schema.input, type(self.spec.schema.input)):
            return ()  # inputs for prediction are not those of training
        return self.run.data.input if self.run is not None else tuple(map(str, self.notes.get("columns", ())))

    @property
    def sequence(self) -> str | None:
        """The column that groups rows into sequences, if training used one."""
        return None if self.run is None else self.run.data.sequence

    @property
    def id_column(self) -> str | None:
        """The column of ids that training was given; empty if it was told to read none."""
        return None if self.run is None else self.run.data.id

    @property
    def bad_rows(self) -> BadRows:
        """The rule for bad rows of the run; outside a run, bad rows are errors."""
        return BadRows() if self.run is None else self.run.data.bad_rows

    @cached_property
    def encoding(self) -> EncodingConfig:
        """How texts were encoded in training; outside a run, as far as the notes say."""
        if self.run is not None:
            return self.run.encoding
        longest = self.notes.get("max_length")
        return EncodingConfig(max_length=longest) if isinstance(longest, int) else EncodingConfig()

    @property
    def positions(self) -> int | None:
        """The most tokens or steps of an input, for models with learned positions; None: no limit."""
        return longest_input(self.config)

    @property
    def max_length(self) -> int:
        """The most tokens or steps that are read of an input; tasks that read windows do not truncate."""
        return self.task.max_length or self.encoding.max_length

    def reading(self) -> EncodingConfig:
        """How inputs are encoded for prediction."""
        return msgspec.structs.replace(self.encoding, max_length=self.max_length)


if TYPE_CHECKING:
    from seqloom.inspect.inspector import Inspection

BATCH_TOKENS = 8_192  # in a batch
ON_PROCESSOR = 1_024  # in a batch for embedding on a CPU: it stays in the cache of a core


class LoadedModel(OpenedModel):
    """A trained model, as `seqloom.load` returns it.

    >>> model = seqloom.load("runs/reviews")  # doctest: +SKIP
    >>> model.predict(["a fine film"])[0].label  # doctest: +SKIP
    'good'
    """

    @overload
    def predict(self, inputs: str, *, batch_tokens: int = BATCH_TOKENS) -> Prediction: ...

    @overload
    def predict(self, inputs: Iterable[Any], *, batch_tokens: int = BATCH_TOKENS) -> Predictions: ...

    @strict
    def predict(self, inputs: str | Iterable[Any], *, batch_tokens: int = BATCH_TOKENS) -> Prediction | Predictions:
        """Predict the output for each input.

        Args:
            inputs: texts, pairs of texts, lists of words, or arrays of vectors or pixels, as in training; or one text.
            batch_tokens: tokens in a batch; it changes memory and speed, not the predictions.

        Returns:
            A sequence with one `Prediction` for each input, in order: `LabelPrediction`, `TagsPrediction`, ... It has
            `to_pandas()`, and a notebook shows it as a table. For one text, its prediction.
        """
        if isinstance(inputs, str):
            return self.predict([inputs], batch_tokens=batch_tokens)[0]
        examples, ledger = self._given(inputs)
        kind = self.task.input_spec.schema.input
        answers = self.answers(examples, ledger, batch_tokens=batch_tokens)
        return Predictions((" | ".join(kind.texts(one.input)) or None, prediction) for one, prediction in answers)

    @strict
    def embed(self, texts: Iterable[Any], *, batch_tokens: int | None = None) -> np.ndarray:
        """Embed texts.

        Args:
            texts: the inputs.
            batch_tokens: tokens in a batch (default: chosen by the device).

        Returns:
            [N,D] float32 vectors, in order. For a classifier or regressor these are the features that its head reads,
            scaled to length 1. ConfigError for a model that cannot embed.
        """
        size = self.vector_size
        examples, ledger = self._given(texts)
        found = self.vectors(windows_of(examples), ledger, batch_tokens=batch_tokens)
        vectors = [reply[1].vector for reply in found if isinstance(reply[1], VectorPrediction)]
        return np.stack(vectors) if vectors else np.empty((0, size), np.float32)

    @strict
    def count_tokens(self, inputs: Iterable[Any]) -> list[int]:
        """How many tokens or steps the model reads of each input; of one that is too long, those that are read."""
        examples, ledger = self._given(inputs)
        encoder, _ = self._encoder_and_limits(ledger)
        columns = (encoder.columns(Examples.of(window))["input"] for window in windows_of(examples))
        return [length for column in columns for length in column.lengths.tolist()]

    @strict
    def require_readable(self, inputs: Iterable[Any]) -> None:
        """Raise the error that `predict` would raise for these inputs, without computing anything."""
        examples, ledger = self._given(inputs)
        encoder, limits = self._encoder_and_limits(ledger)
        for window in windows_of(examples):
            fitting(window, encoder.columns(Examples.of(window)), encoder, limits)
            ledger.close()

    @strict
    def vectors(
        self, windows: Iterable[list[Example]], ledger: Ledger, *, batch_tokens: int | None = None
    ) -> Iterator[Reply]:
        """The same for windows of examples, each with its `VectorPrediction`; bad rows as in `replies`."""
        encoder, limits = self._encoder_and_limits(ledger)
        chosen = self.vector_budget if batch_tokens is None else batch_tokens
        return replies(windows, encoder, self._vectors, batch_tokens=chosen, limits=limits)

    @property
    def vector_size(self) -> int:
        """The number of dimensions of a vector; ConfigError for a model that cannot embed."""
        return Vectorizer.of(self.task).vector_size(self.config)

    @property
    def vector_budget(self) -> int:
        """The default number of tokens in a batch for embedding."""
        return ON_PROCESSOR if self.device.type == "cpu" else BATCH_TOKENS

    def _vectors(self, inputs: Any) -> list[VectorPrediction]:
        with torch.no_grad():
            return vectors_of(Vectorizer.of(self.task).vectors(self.model, on_device(inputs, self.device)))

    @strict
    def predict_stream(self, elements: Iterable[Any], *, batch_tokens: int = BLOCK) -> Iterator[StreamAnswer]:
        """Read one endless sequence and yield a prediction at each element, with constant memory.

        Args:
            elements: an open file, a generator or a list. Its items are lines of text, lists of words, lines of words
                with spaces between them, or rows of numbers. A row of numbers is one step; an array [T,D] is T steps.
            batch_tokens: most elements to read together; it changes speed and memory, not the predictions.

        Returns:
            A generator with one `StreamAnswer` for each token, word or step, with `line`, `token` and `prediction`.
            ConfigError if the model cannot read a stream.
        """
        reading = self.endless(batch_tokens)
        ledger = GivenInputs()
        examples = given_elements(elements, reading.kind, ledger, flows=self.flows)
        blocks = reading.answers(examples, ledger)
        return (answer for block in blocks for answer in block)

    @strict
    def endless(self, batch_tokens: int = BLOCK) -> ModelStream:
        """Return a reader for a new stream."""
        return ModelStream(self.task, self.model, self.device, flows=self.flows, most=batch_tokens)

    @property
    def flows(self) -> bool:
        """Whether the lines of a stream are parts of one text. Otherwise each line is a separate text."""
        kind, unit = self.task.spec.schema.input, None if self.run is None else self.run.data.reading.unit
        return kind.is_text and (unit not in (None, "line") or not Streamer.of(self.task).closing)

    def _given(self, inputs: Iterable[Any]) -> tuple[list[Example], Ledger]:
        """Values from Python as examples; bad values are reported before any work."""
        if isinstance(inputs, str):
            raise ConfigError("inputs must be a list, found one text", fix="put it in [ ]")
        ledger = GivenInputs()
        values = (one.numpy(force=True) if isinstance(one, Tensor) else one for one in inputs)
        examples = list(given_inputs(values, self.task.input_spec.schema.input, ledger))
        ledger.close()
        return examples, ledger

    @strict
    def answers(
        self, examples: Iterable[Example], ledger: Ledger, *, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[tuple[Example, Prediction]]:
        """Pairs of example and prediction, in order. Streams of any length: a few thousand examples are in memory."""
        replied = self.replies(windows_of(examples), ledger, batch_tokens=batch_tokens)
        return (one for one in replied if not isinstance(one, Problem))

    @strict
    def replies(
        self, windows: Iterable[list[Example]], ledger: Ledger, *, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Reply]:
        """The same for windows of examples; what a `BadRowLedger` keeps is yielded too, in its place."""
        encoder, limits = self._encoder_and_limits(ledger)
        return replies(windows, encoder, self._answer, batch_tokens=batch_tokens, limits=limits)

    def _encoder_and_limits(self, ledger: Ledger) -> tuple[ExampleEncoder, Limits]:
        """The encoder of inputs, and the limits of the model."""
        encoder = encoder_of(self.task.input_spec, self.max_length, ledger)
        return encoder, Limits(self.spec.sizes, self.positions)

    def _answer(self, inputs: Any) -> list[Prediction]:
        with torch.no_grad():
            return list(self.task.predict(self.model, on_device(inputs, self.device)))

    @strict
    def generate(
        self,
        prompts: Iterable[str],
        *,
        decoding: AnyDecoding | None = None,
        batch_tokens: int = BATCH_TOKENS,
        max_new_tokens: int | None = None,
        stop: Sequence[str] | None = None,
        repetition_penalty: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        num_samples: int | None = None,
        seed: int | None = None,
        cuda_graphs: bool | None = None,
        beam_size: int | None = None,
        n_best: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
    ) -> list[Sequence[Prediction]]:
        """Continue prompts with a language model.

        Args:
            prompts: texts to continue.
            decoding: a complete configuration, instead of the settings below.
            batch_tokens: tokens in a batch.
            max_new_tokens: most tokens to generate for a prompt (default: 64).
            stop: strings that end a text; they are not part of it.
            repetition_penalty: above 1, tokens that were generated before become less likely.
            temperature: above 0, tokens are sampled (default: the likeliest token, greedily).
            top_k: sample from the k likeliest tokens only.
            top_p: sample from the smallest set of tokens with this probability (nucleus).
            min_p: sample from tokens with at least this share of the probability of the likeliest one.
            num_samples: how many texts to sample for each prompt.
            seed: the random seed of samples.
            cuda_graphs: replay the generation of a token as a CUDA graph, on a GPU and without a beam (experimental).
            beam_size: search with a beam of this size.
            n_best: how many texts of a beam to return.
            length_penalty: above 0, a beam prefers longer texts.
            coverage_penalty: above 0, a beam prefers texts that attend to the whole source.

        Returns:
            For each prompt its continuations: `text`, `score` and `finish_reason` (end, stop or length).
        """
        named: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "stop": stop,
            "beam_size": beam_size,
            "n_best": n_best,
        }
        named |= {"repetition_penalty": repetition_penalty, "length_penalty": length_penalty}
        named |= {"coverage_penalty": coverage_penalty}
        named |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        named |= {"num_samples": num_samples, "seed": seed, "cuda_graphs": cuda_graphs}
        return generate(self.task, self.model, prompts, chosen(decoding, stated(named)), batch_tokens=batch_tokens)

    @strict
    def stream(
        self,
        prompt: str,
        *,
        decoding: AnyDecoding | None = None,
        max_new_tokens: int | None = None,
        stop: Sequence[str] | None = None,
        repetition_penalty: float | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        num_samples: int | None = None,
        seed: int | None = None,
        cuda_graphs: bool | None = None,
        beam_size: int | None = None,
        n_best: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
    ) -> Iterator[str]:
        """Continue one prompt and yield the text as it is generated. Arguments as in `generate`, without a beam."""
        named: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "stop": stop,
            "beam_size": beam_size,
            "n_best": n_best,
        }
        named |= {"repetition_penalty": repetition_penalty, "length_penalty": length_penalty}
        named |= {"coverage_penalty": coverage_penalty}
        named |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
        named |= {"num_samples": num_samples, "seed": seed, "cuda_graphs": cuda_graphs}
        return stream(self.task, self.model, prompt, chosen(decoding, stated(named)))

    @strict
    def translate(
        self,
        sources: Iterable[Any],
        *,
        decoding: AnyDecoding | None = None,
        replace_unknown: bool = False,
        batch_tokens: int = BATCH_TOKENS,
        max_new_tokens: int | None = None,
        stop: Sequence[str] | None = None,
        repetition_penalty: float | None = None,
        beam_size: int | None = None,
        n_best: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
    ) -> Predictions:
        """Translate sources with beam search.

        Args:
            sources: texts, or arrays of vectors or pixels, as in training.
            decoding: a complete configuration, instead of the settings of a beam.
            replace_unknown: copy words that the vocabulary lacks from the source.
            batch_tokens: tokens in a batch.
            max_new_tokens: most tokens of a translation (default: by the length of the source).
            stop: strings that end a text.
            repetition_penalty: above 1, tokens that were generated before become less likely.
            beam_size: the size of the beam (default: 5).
            n_best: how many translations to return, as `alternatives` of the best one.
            length_penalty: above 0, the beam prefers longer texts.
            coverage_penalty: above 0, the beam prefers texts that attend to the whole source.

        Returns:
            One `Translation` for each source, in order.
        """
        named: dict[str, Any] = {
            "max_new_tokens": max_new_tokens,
            "stop": stop,
            "beam_size": beam_size,
            "n_best": n_best,
        }
        named |= {"repetition_penalty": repetition_penalty, "length_penalty": length_penalty}
        named |= {"coverage_penalty": coverage_penalty}
        task = translating(self.task, self.model, decoding, stated(named), replace_unknown=replace_unknown)
        return self._with_task(task).predict(sources, batch_tokens=batch_tokens)

    @strict
    def translator(self, decoding: AnyDecoding | None = None, *, replace_unknown: bool = False) -> "LoadedModel":
        """Return the same model, but its `predict`, `answers` and `replies` translate like `translate`."""
        return self._with_task(translating(self.task, self.model, decoding, {}, replace_unknown=replace_unknown))

    def _with_task(self, task: Task) -> "LoadedModel":
        copied = copy.copy(self)
        copied.task = task
        return copied

    @property
    def subject(self) -> Subject:
        """The model as the functions of `seqloom.inspect` take it."""
        encode = encoding(self.task, self.max_length, self.positions, self.device)
        return Subject(self.task, self.config, self.model, encode)

    @strict
    def inspect(
        self, given: Any, *, target: str | None = None, data: Iterable[Any] = (), show: Show | None = None
    ) -> "Inspection":
        """Inspect the model on one input.

        Args:
            given: the input.
            target: the translation to inspect (default: the model's own).
            data: further inputs, for views of several inputs such as `filters`.
            show: called with the progress of long work.

        Returns:
            An `Inspection` with every view as a method: `.views()` lists them, `.attention()` is one.
        """
        from seqloom.inspect.inspector import Inspection

        return Inspection(self.subject, given, target=target, data=data, show=show)

    @strict
    def evaluate(
        self,
        *data: str | Path,
        split: Literal["dev", "test"] = "dev",
        keep: int = 20,
        batch_tokens: int | None = None,
        by: Iterable[str] = (),
        errors: str | Path | None = None,
        max_errors: int = MOST_ERRORS,
        decoding: AnyDecoding | None = None,
        task: TaskName | None = None,
        input: Names | None = None,
        target: Names | None = None,
        id: str | None = None,
        label_separator: str | None = None,
        sequence: str | None = None,
        format: Format | None = None,
        encoding: str | None = None,
        delimiter: str | None = None,
        header: bool | None = None,
        template: str | None = None,
        unit: Unit | None = None,
        skip_bad_rows: bool | None = None,
        max_bad_rows: float | str | None = None,
    ) -> Evaluation:
        """Evaluate the model and return its metrics with everything they were computed from.

        Args:
            data: files with targets, or the name of a dataset (default: the data of the run).
            split: which set of the run's data, or of a dataset: dev or test. Evaluations on test are recorded.
            keep: how many examples to keep in the result.
            batch_tokens: tokens in a batch, padding included (default: as in training).
            by: columns, or "length"; the result has `slices` with the metrics for each value.
            errors: a .jsonl or .csv file for the worst predictions, the worst first.
            max_errors: maximum number of predictions in `errors`.
            decoding: how texts are generated (default: greedy, as in training).

        Arguments from `task` on say how `data` is read, as in `seqloom.train` (default: as in training).

        Returns:
            An `Evaluation`: `metrics`, `intervals(model.task)`, `confusion`, `examples`, `slices`, ...
        """
        worst = 0 if errors is None else require_errors(Path(errors), max_errors)
        named: dict[str, Any] = {
            "task": task,
            "input": input,
            "target": target,
            "id": id,
            "label_separator": label_separator,
        }
        named |= {"sequence": sequence, "format": format, "encoding": encoding, "delimiter": delimiter}
        named |= {"header": header, "template": template, "unit": unit, "skip_bad_rows": skip_bad_rows}
        named |= {"max_bad_rows": max_bad_rows}
        evaluator = self.task if decoding is None else Writer.of(self.task, decoding.kind()).writing(decoding)
        origin = self._origin(data, split, stated(named))
        evaluator = evaluator.for_schema(origin.prepared.schema)
        columns = {name: origin.values(name, origin.prepared.splits[split].tolist()) for name in names_in(by)}
        if isinstance(
            self._batching(batch_tokens), ByLengthConfig
        ):  # in packs and streams documents may be longer than rows
            self._require_room(origin, split)
        batches = self._batches(origin.prepared, split, batch_tokens)
        if not data and split == "dev":
            evaluator = self._cross_fitted(evaluator, self._batches(origin.prepared, split, batch_tokens))
        evaluation = evaluate(evaluator, self.model, batches, keep=keep, worst=worst)
        if split == "test":
            self._record(evaluator, evaluation, {} if decoding is None else {"decoding": msgspec.to_builtins(decoding)})
        if errors is not None:
            write_errors(Path(errors), evaluator, evaluation, origin)
        unseen = origin.unseen(origin.prepared.splits[split])
        slices = _slices(evaluator, evaluation, origin, split, columns)
        counted, messages = "document" if origin.prepared.schema.target.is_running else "example", origin.messages
        if isinstance(self._batching(batch_tokens), StreamsConfig):
            counted = "piece"
            messages = (*messages, "the set is read as one text in consecutive pieces (streams), as in training")
        return evaluation._replace(unseen=unseen, slices=slices, messages=messages, unit=counted)

    def _cross_fitted(self, task: Task, dev: Iterable[Batch[Any, Any]]) -> Task:
        """Return the task for rows that the calibration was fitted on: each half uses that of the other half."""
        calibration = task.spec.calibration
        if self.run is None or calibration == Calibration() or not isinstance(task, Calibrator):
            return task
        with answering(self.model):
            fitted = task.with_metric(self.run.training.metric).fitted(self.model, dev)
        return task.calibrated(calibration, fitted.rows)

    def _require_room(self, origin: Origin, split: SplitName) -> None:
        """Refuse inputs that are longer than the positions of the model."""
        most, ledger, rows = self.positions, Ledger(), origin.prepared.splits[split]
        lengths = lengths_read(self.config, origin.prepared)
        for row in rows[lengths[rows] > most].tolist() if most is not None else ():
            report_too_long(int(lengths[row]), most or 0, origin.prepared.place_of(row), ledger)
        ledger.close()

    @strict
    def own_rows(self, split: SplitName) -> Prepared:
        """The rows of a split of the run's data, as `evaluate` reads them."""
        return self._origin((), split, {}).prepared

    def _origin(self, data: tuple[str | Path, ...], split: SplitName, settings: dict[str, Any]) -> Origin:
        rule = {name: value for name, value in settings.items() if name in flags_of(BadRows)}
        if not data and (others := settings.keys() - rule.keys()):
            raise ConfigError(f"'{min(others)}' is for reading data, but no data is given", fix="give data")
        run = None if self.data is None else self.data.config
        source = given_data(data, split, self.spec, run, settings) if data else own_data(self.data, split)
        return origin_for(
            source.under(with_flags(self.bad_rows, rule) if rule else None), split, self.spec, self.reading()
        )

    def _batching(self, batch_tokens: int | None) -> AnyBatching:
        """The batching of training, or batches by length if `batch_tokens` is given."""
        if self.run is not None and batch_tokens is None:
            return self.run.training.batching
        return ByLengthConfig(batch_tokens=batch_tokens or BATCH_TOKENS)

    def _batches(self, prepared: Prepared, split: SplitName, batch_tokens: int | None) -> Iterator[Batch[Any, Any]]:
        loader = self.task.loader(prepared, split, self._batching(batch_tokens), seed=0, workers=0)
        for step in loader.steps(until=1):
            if step.batch is not None:
                yield on_device(step.batch, self.device)

    @property
    def test_evaluations(self) -> tuple[dict[str, Any], ...]:
        """All evaluations on the test set so far, as recorded."""
        return TestEvaluations.of(self.path).records()

    def _record(self, task: Task, evaluation: Evaluation, facts: dict[str, Any]) -> None:
        sha256 = read_manifest(self.path).files[ModelFile.WEIGHTS].sha256
        intervals = evaluation.intervals(task)
        TestEvaluations.of(self.path).record(
            evaluation.metrics, intervals, model_sha256=sha256, rows=evaluation.rows, **facts
        )


def _slices(
    task: Task, evaluation: Evaluation, origin: Origin, split: SplitName, columns: dict[str, list[Any]]
) -> tuple[Slice, ...]:
    """The slices of each column, given the values of the rows of the split."""
    at = {str(row): place for place, row in enumerate(origin.prepared.splits[split].tolist())}
    rows = [at[name] for name in evaluation.ids]
    found = (sliced(task, evaluation, name, [values[row] for row in rows]) for name, values in columns.items())
    return tuple(chain.from_iterable(found))


def names_in(by: Iterable[str]) -> tuple[str, ...]:
    """The names of columns, each once; a single text is one name."""
    return (by,) if isinstance(by, str) else tuple(dict.fromkeys(by))


@strict
def load(path: str | Path, *, device: torch.device | str = "cpu", int8: bool = False) -> LoadedModel:
    """Load a trained model.

    Args:
        path: a run folder or a model folder.
        device: where the model runs.
        int8: use 8-bit integers in large matrices, such as the one that scores a vocabulary; for generating text on a
            CPU. Scores change slightly.

    Returns:
        The model, after the checksum of every file was verified.
    """
    loaded = LoadedModel(model_folder(path).absolute(), device)
    if int8:
        quantize(loaded.model)
    return loaded
