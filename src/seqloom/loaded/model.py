"""A trained model with everything that belongs to it, ready to answer and to be judged."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from seqloom.bundle import built, read_bundle
from seqloom.bundle.folder import WEIGHTS
from seqloom.bundle.places import RUN_CONFIG, model_folder, run_of
from seqloom.config.data import EncodingConfig
from seqloom.config.reading import read
from seqloom.config.training import AnyFeed, ByLengthConfig, RunConfig
from seqloom.data.examples import Example
from seqloom.data.inputs import given_inputs
from seqloom.data.preparing import Prepared
from seqloom.data.problems import Ledger
from seqloom.data.schema import Part
from seqloom.durable import read_manifest
from seqloom.errors import ConfigError
from seqloom.loaded.judging import given_data, own_data, prepared_for
from seqloom.loaded.looks import Looks
from seqloom.loaded.predicting import answers, encoder_of, on_device
from seqloom.models import count_parameters
from seqloom.tasks.choosing import task_of
from seqloom.tasks.contract import Prediction
from seqloom.tasks.judging import Evaluation, evaluate
from seqloom.types import Batch

BUDGET = 8_192  # elements of a batch
LONGEST = EncodingConfig().longest


class LoadedModel:
    """A model from a run or a model folder: `predict` answers, `evaluate` judges.

    `task`, `config`, `meaning`, `model` and `notes` are what it is made of; `looks` are the looks at its test set.
    """

    def __init__(self, path: Path, device: torch.device | str) -> None:
        bundle = read_bundle(path)
        self.path, self.device = path, torch.device(device)
        self.config, self.meaning, self.notes = bundle.config, bundle.meaning, bundle.notes
        self.task = task_of(bundle.meaning)
        self.task.require(bundle.config)
        self.model = built(bundle, device)
        self.folder = run_of(path)  # of its run, if it is still in one
        self.run = None if self.folder is None else cast(RunConfig, read(self.folder / RUN_CONFIG, RunConfig))

    def __repr__(self) -> str:
        schema = self.meaning.schema
        answer = f"{len(schema.labels):,} {'tags' if schema.target == 'tags' else 'labels'}" if schema.labels else ""
        symbols = "" if self.meaning.tokenizer is None else f"{self.meaning.tokenizer.vocab_size:,} symbols"
        size = f"{count_parameters(self.model):,} parameters"
        facts = [f"{schema.input} to {schema.target}", answer, symbols, size, f"on {self.device}"]
        return f"LoadedModel({self.task.name}: {', '.join(filter(None, facts))}; {self.path})"

    def predict(self, inputs: Iterable[Any], *, budget: int = BUDGET) -> list[Prediction]:
        """The answer to each input, in order: texts, pairs of texts, lists of words, arrays of vectors or pixels."""
        if isinstance(inputs, str):
            raise ConfigError("inputs are a list, found one text", fix="put it in [ ]")
        ledger = Ledger()
        values = (one.numpy(force=True) if isinstance(one, Tensor) else one for one in inputs)
        examples = list(given_inputs(values, self.meaning.schema.input, ledger))
        ledger.close()  # what is bad is told before any work
        return [prediction for _, prediction in self.answers(examples, ledger, budget=budget)]

    def answers(
        self, examples: Iterable[Example], ledger: Ledger, *, budget: int = BUDGET
    ) -> Iterator[tuple[Example, Prediction]]:
        """Each example with its answer, in order and without end: memory is that of some thousand examples."""
        encoder = encoder_of(self.meaning, self.encoding.longest, ledger)
        sizes = self.meaning.sizes
        return answers(examples, encoder, self._answer, budget=budget, sizes=sizes)

    def _answer(self, inputs: Any) -> list[Prediction]:
        with torch.no_grad():
            return list(self.task.predict(self.model, on_device(inputs, self.device)))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that training read; none where rows were the steps of sequences, or nothing is known."""
        if self.run is not None:
            return self.run.data.input if self.run.data.sequence is None else ()
        return tuple(map(str, self.notes.get("columns", ())))

    @property
    def encoding(self) -> EncodingConfig:
        """How texts became numbers in training; of a model folder alone, as far as its notes say."""
        if self.run is not None:
            return self.run.encoding
        longest = self.notes.get("longest")
        return EncodingConfig(longest=longest) if isinstance(longest, int) else EncodingConfig()

    def evaluate(
        self, *data: str | Path, part: Part = "dev", keep: int = 20, budget: int | None = None, **settings: Any
    ) -> Evaluation:
        """How well the model does on data, or on the dev or test part of its run's.

        `settings` are those of `DataConfig`, for data that is given. A look at a test part is written down first.
        Batches are those of training, or of examples of about one length, `budget` symbols together.
        """
        prepared = self._prepared(data, part, settings)
        evaluation = evaluate(self.task, self.model, self._batches(prepared, part, budget), keep=keep)
        if part == "test":
            self._record(evaluation)
        return evaluation

    def _prepared(self, data: tuple[str | Path, ...], part: Part, settings: dict[str, Any]) -> Prepared:
        if not data and settings:
            raise ConfigError(f"'{next(iter(settings))}' says how data is read, and none is given", fix="give data")
        source = given_data(data, part, self.meaning, self.run, settings) if data else own_data(self.run, part)
        return prepared_for(source, part, self.meaning, self.encoding)

    def _batches(self, prepared: Prepared, part: Part, budget: int | None) -> Iterator[Batch[Any, Any]]:
        feed: AnyFeed = ByLengthConfig(budget=budget or BUDGET)
        if self.run is not None and budget is None:
            feed = self.run.training.feed
        loader = self.task.loader(prepared, part, feed, seed=0, workers=0)
        for step in loader.steps(until=1):
            if step.batch is not None:
                yield on_device(step.batch, self.device)

    @property
    def looks(self) -> tuple[dict[str, Any], ...]:
        """Every look at the test part so far."""
        return Looks.of(self.path).records()

    def _record(self, evaluation: Evaluation) -> None:
        sha256 = read_manifest(self.path).files[WEIGHTS].sha256
        intervals = evaluation.intervals(self.task)
        Looks.of(self.path).record(evaluation.metrics, intervals, model_sha256=sha256, rows=evaluation.rows)


def load(path: str | Path, *, device: torch.device | str = "cpu") -> LoadedModel:
    """The model in a run folder or a model folder, every byte of it verified."""
    return LoadedModel(model_folder(path).absolute(), device)
