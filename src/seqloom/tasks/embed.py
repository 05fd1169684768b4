"""Embed: a vector for each text, such that texts of one meaning lie together.

    pearson     of scored pairs: the correlation of cosines and scores; decides
    spearman    of scored pairs: whether the cosines put them into the order of the scores
    accuracy    of pairs: how often the text that belongs to it is the nearest of its batch; of triples: how often it is
                nearer than the negative; decides

A row is a text, a pair, a triple or a scored pair (`seqloom.data.schema`), and the objective of the model says what is
asked of their vectors. Whatever it learned from, a trained model is asked about single texts.

What a batch is compared with is the batch: `accuracy` of pairs and `loss` depend on how large batches are, so compare
models with the same --batch. A text alone is judged by a second reading, and decides itself what is left out of it.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
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
from seqloom.metrics import ratio
from seqloom.metrics.correlation import correlation, correlation_statistics, spearman
from seqloom.nn.models import Embedder
from seqloom.nn.objectives import Contrast, Objective, ObjectiveLoss, RowObjective, thinned
from seqloom.nn.types import Batch, Loss, Padded
from seqloom.recipes.families import Size
from seqloom.tasks.encoders import encoder_in, require_shape, stepped_input_of
from seqloom.tasks.task import (
    LOSS,
    Asking,
    Division,
    HeadSettings,
    Judged,
    Meaning,
    Metric,
    Prediction,
    Task,
    Vectorizer,
    numbers_shown,
)

USUAL: dict[str, AnyObjective] = {
    "text": ViewsConfig(),
    "pair": ContrastConfig(),
    "triple": TripletConfig(),
    "scored": RankConfig(),
}
JUDGED_WITHOUT = 0.3  # of the symbols of a text that is judged by a second reading
SHOWN_OF_VECTOR = 4  # numbers
NEVER_CHANGES = "the cosines or the true scores are all the same"


@dataclass(frozen=True, eq=False)
class VectorPrediction(Prediction):
    """The vector of a text, [D] float32."""

    vector: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """`vector`, a list of numbers."""
        return {"vector": self.vector.tolist()}

    def shown(self) -> str:
        first = numbers_shown(self.vector[:SHOWN_OF_VECTOR].tolist())
        return f"{first}, ..." if len(self.vector) > SHOWN_OF_VECTOR else first


def vectors_of(vectors: Tensor) -> list[VectorPrediction]:
    """The rows of vectors [N,D] as answers, in float32 on the host."""
    return [VectorPrediction(row) for row in vectors.detach().float().cpu().numpy()]


def together(schema: Schema) -> str:
    """What stands together in a row, as objectives call it."""
    return "scored" if schema.target.measured else schema.input.name


class Embed(Vectorizer):
    """Vectors learned from texts of which it is only known that they stand together."""

    name = "embed"
    made_by = "embedder", "bag"
    settings = frozenset({"pooling", "objective", "rows_at_once", "vectors"})
    metrics = (Metric("accuracy"), LOSS)
    asking = Asking(
        'echo "some text" | seqloom predict RUN -',
        "seqloom embed RUN FILE -o vectors.npy",
        ("seqloom index RUN FILE --out INDEX", 'seqloom search INDEX "some words"'),
    )
    statistics = 3  # right ones, loss, weight
    chunks = 1  # in which the vectors of a batch are computed in training

    @property
    def asked(self) -> Meaning:
        """What questions mean: single texts."""
        return self.meaning._replace(schema=self.meaning.schema._replace(input=TextInput()))

    def judging(self, found: Schema) -> Task:
        """The task that judges the same model by data of any kind that is for embed; its vectors fit all of them."""
        if found.task != self.name or found[:2] == self.meaning.schema[:2]:
            return super().judging(found)
        kind = EmbedScored if found.target.measured else Embed
        return kind(self.meaning._replace(schema=self.meaning.schema._replace(input=found.input, target=found.target)))

    def model(self, recipe: str, size: Size, head: HeadSettings) -> EmbedderConfig:
        """The model that a recipe makes, with the objective and the pooling that are wanted."""
        self.require_settings(head)
        made = recipes.embedder(
            recipe, inputs=stepped_input_of(self.meaning), objective=self.objective(head.objective), size=size
        )
        wanted = {"pooling": head.pooling, "rows_at_once": head.rows_at_once}
        return msgspec.structs.replace(made, **{name: value for name, value in wanted.items() if value is not None})

    def objective(self, asked: str | AnyObjective | None = None) -> AnyObjective:
        """The objective of a name, or the usual one of this data; ConfigError for one that cannot read it."""
        chosen = USUAL[together(self.meaning.schema)] if asked is None else objective_of(asked)
        if not self._fits(chosen):
            possible = [name for name, kind in OBJECTIVES.items() if together(self.meaning.schema) in kind.reads()]
            raise ConfigError(
                f"objective '{chosen.kind()}' reads {' or '.join(_named(kind) for kind in chosen.reads())}, and the "
                f"data has {_named(together(self.meaning.schema))}",
                fix=f"choose from {', '.join(possible)}, or name other columns",
            )
        return chosen

    def _fits(self, objective: AnyObjective) -> bool:
        return together(self.meaning.schema) in objective.reads()

    def adapted(self, model: AnyModel) -> EmbedderConfig:
        """The same encoder with a pooling, and an objective that can read the data."""
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
        """The batch cut where the objective asks each row by itself, else its vectors computed in chunks.

        A batch that was cut would lose the negatives in its other pieces (gradient caching, Gao et al. 2021).
        """
        if pieces == 1 or isinstance(cast(Embedder, model).objective, RowObjective):
            return super().divided(model, pieces)
        whole = copy.copy(self)
        whole.chunks = pieces
        said = f"the vectors of a batch are computed in {pieces} chunks, each twice, and compared over the whole batch"
        return Division(whole, 1, said)

    def scaled(self, targets: Tensor) -> Tensor:
        """Targets as they are learned."""
        return targets

    def found(self, model: nn.Module, batch: Batch[Any, Tensor]) -> ObjectiveLoss:
        """What came of a batch: of the model's objective, or of the usual one where that cannot read it."""
        embedder = cast(Embedder, model)
        if isinstance(batch.inputs, Padded):
            return _second_reading(embedder, batch.inputs)
        fits = self._fits(embedder.config.objective)
        objective: Objective = embedder.objective if fits else self.objective().build()
        return objective(embedder.read, batch.inputs, self.scaled(batch.targets))

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each row judged: right if what belongs together lies nearer than what does not."""
        found = self.found(model, batch)
        rows = zip(batch.ids, found.right.tolist(), found.losses.cpu().double().tolist(), strict=True)
        return [
            Judged(id_, "nearest" if right else "not nearest", "nearest", right, np.array([right, loss, 1.0]))
            for id_, right, loss in rows
        ], None

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        right, loss, weight = np.moveaxis(sums, -1, 0)
        return {"accuracy": ratio(right, weight), "loss": ratio(loss, weight)}

    def predict(self, model: nn.Module, inputs: Any) -> Sequence[VectorPrediction]:
        return vectors_of(self.vectors(model, inputs))

    def vectors(self, model: nn.Module, inputs: Any) -> Tensor:
        vectors: Tensor = cast(Embedder, model)(inputs)
        return vectors

    def vector_size(self, model: AnyModel) -> int:
        assert isinstance(model, EmbedderConfig), "require has seen it"
        return model.head.size or model.encoder.width


class EmbedScored(Embed):
    """Vectors learned from pairs with a score."""

    metrics = (Metric("pearson"), LOSS)
    statistics = 4  # the cosine, the true score, loss, weight

    def scaled(self, targets: Tensor) -> Tensor:
        """Scores in 0..1, by the range of the training part."""
        least, size = self.meaning.units[0] if self.meaning.units else (0.0, 1.0)
        return (targets - least) / size

    def judge(self, model: nn.Module, batch: Batch[Any, Tensor], state: Any) -> tuple[list[Judged], Any]:
        """Each pair judged; none of them is right or wrong."""
        found = self.found(model, batch)
        columns = (found.cosines, batch.targets, found.losses, torch.ones_like(found.losses))
        table = torch.stack([column.detach().cpu().double() for column in columns], dim=1).numpy()
        rows = zip(batch.ids, table, strict=True)
        return [Judged(id_, numbers_shown(row[:1]), numbers_shown(row[1:2]), None, row) for id_, row in rows], None

    def summed(self, statistics: np.ndarray, times: np.ndarray | None = None) -> np.ndarray:
        """[...,7] what a correlation is made of, loss and weight."""
        said, true = statistics[:, 0], statistics[:, 1]
        middle = self.meaning.units[0][0] if self.meaning.units else 0.0
        columns = correlation_statistics(said, true - middle)
        return super().summed(np.concatenate([columns, statistics[:, -2:]], axis=1), times)

    def measure(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {"pearson": correlation(sums[..., :-2], sums[..., -1]), "loss": ratio(sums[..., -2], sums[..., -1])}

    def measure_rows(self, statistics: np.ndarray) -> dict[str, float]:
        return {"spearman": spearman(statistics[:, 0], statistics[:, 1])}

    def undefined(self, statistics: np.ndarray) -> dict[str, str]:
        """The correlations, where cosines or scores never change."""
        if len(statistics) > 1 and np.ptp(statistics[:, :2], axis=0).all():
            return {}
        return {"pearson": NEVER_CHANGES, "spearman": NEVER_CHANGES}


def _named(kind: str) -> str:
    """What stands together, for people."""
    return {"text": "single texts", "pair": "pairs", "triple": "triples", "scored": "pairs with a score"}[kind]


def _second_reading(model: Embedder, texts: Padded) -> ObjectiveLoss:
    """What came of contrasting texts with themselves without some symbols: which ones, the text alone decides."""
    width, symbols = texts.values.shape[1], texts.values.cpu().numpy()
    seeds = [crc32(row[:length].tobytes()) for row, length in zip(symbols, texts.lengths.tolist(), strict=True)]
    draws = [np.random.Generator(np.random.PCG64(seed)).random(width, np.float32) for seed in seeds]
    second = thinned(texts, torch.from_numpy(np.stack(draws)).to(texts.values.device), JUDGED_WITHOUT)
    asked = model.config.objective
    temperature = asked.temperature if isinstance(asked, ContrastConfig | ViewsConfig) else ViewsConfig().temperature
    return Contrast(ViewsConfig(temperature=temperature)).of((model.read(texts), model.read(second)), (texts, texts))
