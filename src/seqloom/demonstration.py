"""What `seqloom demo` shows: small computations, each returned as a typed result or a figure."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.data.feeding import feed
from seqloom.data.front import load_data
from seqloom.data.preparing import Prepared
from seqloom.data.schema import Part
from seqloom.figures import Bars, Figure, HeatMap, Line, Matrix, Series
from seqloom.models import LanguageModel, count_parameters
from seqloom.operators.attention import Request, weights
from seqloom.operators.scores import Dot
from seqloom.positions import sinusoids
from seqloom.types import Batch, Padded, places_of

_SYMBOLS = 50


class ReadInSteps(NamedTuple):
    """How far a model that reads in steps is from one that reads at once."""

    name: str
    parameters: int
    gap: float
    allowed: float


def families() -> list[str]:
    """The recipes that make a language model."""
    return recipes.names("language-model")


def _fresh(name: str, size: recipes.Size) -> LanguageModel:
    """A fresh language model, the same one every time; the caller's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return recipes.language_model(name, vocab_size=_SYMBOLS, size=size).build().eval()


def read_in_steps(name: str) -> ReadInSteps:
    """The largest difference between the scores of 64 symbols read at once and read a few at a time."""
    model = _fresh(name, "tiny")
    x = Padded.of(torch.arange(128).view(2, 64) ** 2 % _SYMBOLS)
    with torch.no_grad():
        at_once, state, pieces, start = model(x).values, model.initial_state(2), [], 0
        while start < 64:
            stop = min(64, start + 1 + start % 7)
            y, state = model.step(x.cut(start, stop), state)
            pieces.append(y.values)
            start = stop
        gap = (torch.cat(pieces, dim=1) - at_once).abs().max().item()
    return ReadInSteps(name, count_parameters(model), gap, 1e-5 * max(1.0, at_once.abs().max().item()))


LEARNERS = ("bag", "cnn", "gru", "transformer")


def questions() -> Prepared:
    """An embedded set of statements and questions: each pair has the same words in another order."""
    return load_data("questions")


def learn(name: str, data: Prepared) -> float:
    """The accuracy on unseen sentences of a tiny model after three passes over the data."""
    inputs = TokensConfig(vocab_size=data.tokenizer.vocab_size if data.tokenizer else 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = recipes.classifier(name, inputs=inputs, num_classes=len(data.schema.labels), size="tiny").build()
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
        for batch in _batches(data, "train", epochs=3):
            optimiser.zero_grad()
            model.loss(batch).mean.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
    model.eval()
    with torch.no_grad():
        right = [model.predict(batch.inputs) == batch.targets for batch in _batches(data, "dev", epochs=1)]
    return torch.cat(right).double().mean().item()


def _batches(data: Prepared, part: Part, epochs: int) -> Iterator[Batch[Any, Tensor]]:
    """The batches of a part; one process has a share in every step."""
    for step in feed(data, part, budget=2_048, workers=0).steps(until=epochs):
        assert step.batch is not None
        yield step.batch


def order_matters(scores: dict[str, float]) -> Figure:
    """How well each family tells questions from statements of the same words."""
    return Bars(
        title="Question or statement? The same words in another order",
        labels=list(scores),
        values=list(scores.values()),
        x_label="accuracy on unseen sentences",
        caption="A bag of words cannot see order and stays at one half. Families that see it learn it in seconds.",
    )


def soft_lookup() -> Figure:
    """Attention as a lookup table: the more a query is scaled, the nearer the mixture is to one exact entry."""
    words = ["time", "flies", "like", "an", "arrow"]
    keys = torch.eye(5)
    queries = torch.stack([keys[2] * scale for scale in (0.0, 1.0, 3.0, 10.0)])
    places = places_of(Padded.of(keys[None]))
    asked = Request(queries[None, None], keys[None, None], keys[None, None], places.cut(0, 4), places, score=Dot())
    return Matrix(
        title='Looking up "like" with a query of growing length',
        rows=["0 x", "1 x", "3 x", "10 x"],
        columns=words,
        values=weights(asked)[0, 0].tolist(),
        caption="Attention is a soft lookup: the stronger the query, the nearer the mixture is to one exact entry.",
    )


def gradient_reach(length: int = 40) -> Figure:
    """How strongly the last output still depends on each earlier input: |d y_T / d x_t| against the distance T - t."""
    series = []
    for name in ("rnn", "lstm", "transformer"):
        norms = _reach(_fresh(name, "small").double(), length)
        series.append(Series(name=name, x=list(range(length)), y=norms))
    return Line(
        title="How far back a gradient reaches, before any training",
        x_label="distance in elements",
        y_label="norm of the gradient",
        series=series,
        y_axis="log",
        caption="How much the last output still depends on an input so many elements back.",
    )


def _reach(model: LanguageModel, length: int) -> list[float]:
    """The norm of the gradient of the last output, summed with fixed signs, for inputs 0, 1, 2... elements back."""
    chain = model.decoder
    x = chain.links[0](Padded.of(torch.arange(length)[None] % _SYMBOLS))
    leaf = x.values.detach().requires_grad_()
    y = x.with_values(leaf)
    for link in chain.links[1:]:
        y = link(y)
    signs = torch.where(torch.arange(y.values.shape[2]) % 2 == 0, 1.0, -1.0).double()
    (gradient,) = torch.autograd.grad((y.values[0, -1] * signs).sum(), leaf)
    norms: list[float] = gradient[0].norm(dim=-1).flip(0).tolist()
    return norms


def positions(length: int = 24, width: int = 32) -> Figure:
    """The sinusoidal vectors of the first positions."""
    table = sinusoids(torch.arange(length), width)
    return HeatMap(
        title="Sinusoidal positions",
        values=table.tolist(),
        caption="Each position has its own pattern of sines and cosines, from fast to slow.",
        x_label="dimension",
        y_label="position",
    )
