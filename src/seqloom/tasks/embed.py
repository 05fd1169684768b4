"""Embed: a vector for each text, so that texts with similar meanings have similar vectors.

    pearson     for scored pairs: the correlation of cosine similarities and scores; decides
    spearman    for scored pairs: the rank correlation of cosine similarities and scores
    accuracy    for pairs: how often the matching text is the nearest in its batch; for triples: how often it is nearer
                than the negative; decides

A row is a text, a pair, a triple or a scored pair (`seqloom.data.schema`), and the objective of the model is the loss
on their vectors. A trained model embeds single texts.

Pairs are compared within their batch. So their `accuracy` and `loss` depend on the batch size: compare models with the
same --batch-tokens. A single text is compared with a copy of itself in which some tokens are dropped; the text itself
decides which ones.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from zlib import crc32

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.models import (
    OBJECTIVES,
    AnyModel,
    AnyObjective,
    ContrastConfig,
    EmbedderConfig,
    RankConfig,
    SequenceModelConfig,
    TripletConfig,
    ViewsConfig,
    objective_of,
)
from seqloom.data.kinds.text import TextInput
from seqloom.data.schema import Schema
from seqloom.errors import ConfigError
from seqloom.metrics.bootstrap import ratio
from seqloom.metrics.correlation import correlation, correlation_statistics, spearman
from seqloom.nn.models import Embedder
from seqloom.nn.objectives import Contrast, Objective, ObjectiveLoss, Read, RowObjective, thinned
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import AnySize
from seqloom.tasks.encoders import encoder_in, require_shape, stepped_input_of
from seqloom.tasks.task import (
    LOSS,
    Baseline,
    Division,
    EvaluatedExample,
    HeadSettings,
    Metric,
    ModelSpec,
    Prediction,
    ShellUsage,
    Task,
    Vectorizer,
    numbers_shown,
)
from seqloom.text.special_tokens import COUNT

DEFAULTS: dict[str, AnyObjective] = {
    "text": ViewsConfig(),
    "pair": ContrastConfig(),
    "triple": TripletConfig(),
    "scored": RankConfig(),
}
DROPPED_SHARE = 0.3  # of the tokens in the second copy of a single text
SHOWN_OF_VECTOR = 4  # numbers
NEVER_CHANGES = "the cosine similarities or the expected scores are all the same"


@dataclass(frozen=True, eq=False, repr=False)
class VectorPrediction(Prediction):
    """The vector of a text, [D] float32."""

    vector: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """`vector`, a list of numbers."""
        return {"vector": self.vector.tolist()}

    def to_text(self) -> str:
        first = numbers_shown(self.vector[:SHOWN_OF_VECTOR].tolist())
        return f"{first}, ..." if len(self.vector) > SHOWN_OF_VECTOR else first


def vectors_of(vectors: Tensor) -> list[VectorPrediction]:
    """The rows of vectors [N,D] as predictions, in float32 on the CPU."""
    return [VectorPrediction(row) for row in vectors.detach().float().cpu().numpy()]


def together(schema: Schema) -> str:
    """Return the kind of row, in the words of objectives: text, pair, triple or scored."""
    return "scored" if schema.target.measured else schema.input.name


class Embed(Vectorizer):
    """Vectors learned from texts, pairs or triples."""

    name = "embed"
    default_recipe = "embedder", "bag"
    settings = frozenset({"pooling", "objective", "micro_batch", "word_vectors"})
    metrics = (Metric("accuracy"), LOSS)
    usage = ShellUsage(
        'echo "some text" | seqloom predict RUN -',
        "seqloom embed RUN FILE -o vectors.npy",
        ("seqloom index RUN FILE --out INDEX", 'seqloom search INDEX "some words"'),
    )
    statistics = 3  # correct rows, loss, weight
    chunks = 1  # in which the vectors of a batch are computed in training

    @property
    def input_spec(self) -> ModelSpec:
        """Inputs for prediction are single texts."""
        return self.spec._replace(schema=self.spec.schema._replace(input=TextInput()))

    def for_schema(self, found: Schema) -> Task:
        """The task that evaluates the same model on any data for embed."""
        if found.task != self.name or found[:2] == self.spec.schema[:2]:
            return super().for_schema(found)
        kind = EmbedScored if found.target.measured else Embed
        return kind(self.spec._replace(schema=self.spec.schema._replace(input=found.input, target=found.target)))

    def model(self, recipe: str, size: AnySize, head: HeadSettings) -> EmbedderConfig:
        """The configuration of a recipe, with the given objective and pooling."""
        self.require_settings(head)
        made = recipes.embedder(
            recipe, inputs=stepped_input_of(self.spec), objective=self.objective(head.objective), size=size
        )
        wanted = {"pooling": head.pooling, "micro_batch": head.micro_batch}
        return msgspec.structs.replace(made, **{name: value for name, value in wanted.items() if value is not None})

    def objective(self, asked: str | AnyObjective | None = None) -> AnyObjective:
        """The objective of a name, or the default for this data; ConfigError for one that does not fit the data."""
        chosen = DEFAULTS[together(self.spec.schema)] if asked is None else objective_of(asked)
        if not self._fits(chosen):
            possible = [name for name, kind in OBJECTIVES.items() if together(self.spec.schema) in kind.reads()]
            raise ConfigError(
                f"objective '{chosen.kind()}' needs {' or '.join(_named(kind) for kind in chosen.reads())}, but "
                f"the data has {_named(together(self.spec.schema))}",
                fix=f"choose from {', '.join(possible)}, or choose other columns",
            )
        return chosen

    def _fits(self, objective: AnyObjective) -> bool:
        return together(self.spec.schema) in objective.reads()

    def adapted(self, model: AnyModel) -> EmbedderConfig:
        """The same encoder with a pooling, and an objective that fits the data."""
        if not isinstance(model, EmbedderConfig):
            pooling = model.pooling if isinstance(model, SequenceModelConfig) else "mean"
            encoder = encoder_in(self, EmbedderConfig, model)
            model = EmbedderConfig(encoder=encoder, pooling=pooling, objective=self.objective())
        if not self._fits(model.objective):
            model = msgspec.structs.replace(model, objective=self.objective())
        self.require(model)
        return model

    def require(self, model: AnyModel) -> None:
        self.objective(require_shape(self, EmbedderConfig, model).objective)

    def loss(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[Loss, Any]:
        scaled = batch._replace(targets=self.scaled(batch.targets))
        return cast(Embedder, model).loss(scaled, chunks=self.chunks), None

    def divided(self, model: nn.Module, pieces: int) -> Division:
        """Micro-batches if the objective treats rows separately; else vectors are computed in chunks.

        Micro-batches of a contrastive objective would lose negatives (gradient caching, Gao et al. 2021).
        """
        if pieces == 1 or isinstance(cast(Embedder, model).objective, RowObjective):
            return super().divided(model, pieces)
        whole = copy.copy(self)
        whole.chunks = pieces
        message = (
            f"the vectors of a batch are computed in {pieces} chunks, each twice; the loss compares the whole batch"
        )
        return Division(whole, 1, message)

    def scaled(self, targets: Tensor) -> Tensor:
        """Targets as they are learned."""
        return targets

    def found(self, model: nn.Module, batch: Batch[Any, Tensor]) -> ObjectiveLoss:
        """The loss of a batch, by the objective of the model, or by the default one if that does not fit the data."""
        embedder = cast(Embedder, model)
        fits = self._fits(embedder.config.objective)
        objective: Objective = embedder.objective if fits else self.objective().build()
        return self._compared(embedder.read, objective, embedder.config.objective, batch)

    def _compared(
        self, read: Read, objective: Objective, goal: AnyObjective, batch: Batch[Any, Tensor]
    ) -> ObjectiveLoss:
        """The loss of a batch of texts with these vectors."""
        if isinstance(batch.inputs, Padded):
            return _second_reading(read, goal, batch.inputs)
        return objective(read, batch.inputs, self.scaled(batch.targets))

    def simple_baseline(
        self, train: Sequence[Batch[Any, Tensor]], dev: Sequence[Batch[Any, Tensor]]
    ) -> Baseline | None:
        """Texts with the same words: the TF-IDF of their tokens as vectors."""
        assert self.spec.tokenizer is not None, "texts have a tokenizer"
        overlap, goal = WordOverlap.of(train, self.spec.tokenizer.vocab_size), self.objective()
        objective: Objective = goal.build()
        found = [
            one.statistics
            for batch in dev
            for one in self._rows(batch, self._compared(overlap.vectors, objective, goal, batch))
        ]
        return Baseline("TF-IDF of the tokens, without training", np.stack(found)) if found else None

    def evaluate_batch(
        self, model: nn.Module, batch: Batch[Any, Tensor], state: Any
    ) -> tuple[list[EvaluatedExample], Any]:
        """The evaluated rows."""
        return self._rows(batch, self.found(model, batch)), None

    def _rows(self, batch: Batch[Any, Tensor], found: ObjectiveLoss) -> list[EvaluatedExample]:
        """Each row: correct if the matching text is nearer than the others."""
        rows = zip(batch.ids, found.correct.tolist(), found.losses.cpu().double().tolist(), strict=True)
        return [
            EvaluatedExample(
                id_, "nearest" if correct else "not nearest", "nearest", correct, np.array([correct, loss, 1.0])
            )
            for id_, correct, loss in rows
        ]

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        correct, loss, weight = np.moveaxis(sums, -1, 0)
        return {"accuracy": ratio(correct, weight), "loss": ratio(loss, weight)}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[VectorPrediction]:
        return vectors_of(self.vectors(model, inputs))

    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        vectors: Tensor = cast(Embedder, model)(inputs)
        return vectors

    def vector_size(self, model: AnyModel) -> int:
        assert isinstance(model, EmbedderConfig), "checked by require"
        return model.head.size or model.encoder.width


class EmbedScored(Embed):
    """Vectors learned from pairs with a score."""

    metrics = (Metric("pearson"), LOSS)
    statistics = 4  # cosine similarity, expected score, loss, weight

    def scaled(self, targets: Tensor) -> Tensor:
        """Scores in 0..1, by the range of the training set."""
        least, size = self.spec.units[0] if self.spec.units else (0.0, 1.0)
        return (targets - least) / size

    def _rows(self, batch: Batch[Any, Tensor], found: ObjectiveLoss) -> list[EvaluatedExample]:
        """Each pair; it is neither correct nor wrong."""
        columns = (found.cosines, batch.targets, found.losses, torch.ones_like(found.losses))
        table = torch.stack([column.detach().cpu().double() for column in columns], dim=1).numpy()
        rows = zip(batch.ids, table, strict=True)
        return [EvaluatedExample(id_, numbers_shown(row[:1]), numbers_shown(row[1:2]), None, row) for id_, row in rows]

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,7] the sums of a correlation, loss and weight."""
        predicted, expected = statistics[:, 0], statistics[:, 1]
        middle = self.spec.units[0][0] if self.spec.units else 0.0
        columns = correlation_statistics(predicted, expected - middle)
        return super().summed(np.concatenate([columns, statistics[:, -2:]], axis=1), times)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"pearson": correlation(sums[..., :-2], sums[..., -1]), "loss": ratio(sums[..., -2], sums[..., -1])}

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        return {"spearman": spearman(statistics[:, 0], statistics[:, 1])}

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """The correlations, if cosine similarities or scores never change."""
        if len(statistics) > 1 and np.ptp(statistics[:, :2], axis=0).all():
            return {}
        return {"pearson": NEVER_CHANGES, "spearman": NEVER_CHANGES}


def _named(kind: str) -> str:
    """Return the kind of row as a readable name."""
    return {"text": "single texts", "pair": "pairs", "triple": "triples", "scored": "pairs with a score"}[kind]


class WordOverlap(NamedTuple):
    """Vectors of texts without training: the TF-IDF of their tokens, so that texts with the same rare words are near.

    tf-idf(t) = c(t) log((1 + N) / (1 + n(t)))        N texts, n(t) of them with t
    """

    weights: Tensor  # [V] the logarithm

    @classmethod
    def of(cls, batches: Sequence[Batch[Any, Any]], size: int) -> "WordOverlap":
        """Learn the weights from batches of texts, with a vocabulary of this size."""
        texts, seen = 0, torch.zeros(size)
        for batch in batches:
            for side in (batch.inputs,) if isinstance(batch.inputs, Padded) else batch.inputs:
                texts += len(side.lengths)
                seen += (_counted(side, size) > 0).sum(dim=0).cpu()
        return cls(((1 + texts) / (1 + seen)).log())

    def vectors(self, texts: Padded) -> Tensor:
        """[B,V] a vector for each text."""
        return _counted(texts, len(self.weights)) * self.weights.to(texts.values.device)


def _counted(texts: Padded, size: int) -> Tensor:
    """[B,V] how often each text has each token; special tokens do not count."""
    ordinary = (texts.valid & (texts.values >= COUNT)).float()
    counts = torch.zeros(len(texts.lengths), size, device=texts.values.device)
    return counts.scatter_add(1, texts.values.long(), ordinary)


def _second_reading(read: Read, goal: AnyObjective, texts: Padded) -> ObjectiveLoss:
    """The loss of contrasting texts with copies of themselves; the text decides which tokens are dropped."""
    width, tokens = texts.values.shape[1], texts.values.cpu().numpy()
    seeds = [crc32(row[:length].tobytes()) for row, length in zip(tokens, texts.lengths.tolist(), strict=True)]
    draws = [np.random.Generator(np.random.PCG64(seed)).random(width, np.float32) for seed in seeds]
    second = thinned(texts, torch.from_numpy(np.stack(draws)).to(texts.values.device), DROPPED_SHARE)
    temperature = goal.temperature if isinstance(goal, ContrastConfig | ViewsConfig) else ViewsConfig().temperature
    return Contrast(ViewsConfig(temperature=temperature)).of((read(texts), read(second)), (texts, texts))
