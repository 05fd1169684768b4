"""What the tests of difficulty share: a vocabulary, batches, and a plain loop that trains a model and scores it.

Words are cut at spaces (characters for translation) and numbered as in `seqloom.text.special_tokens`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import CrfHeadConfig, NumberHeadConfig
from seqloom.config.inputs import TokensConfig, VectorsConfig
from seqloom.data.kinds.words import Words
from seqloom.data.schema import Example
from seqloom.data.synthetic.grammar import surprise
from seqloom.data.synthetic.registry import NAMES
from seqloom.nn.types import Batch, Padded, Pair
from seqloom.text.special_tokens import BEGIN, COUNT, END, UNKNOWN

Encode = Callable[[Sequence[Example]], Batch[Any, Tensor]]
Score = Callable[[nn.Module, Batch[Any, Tensor], Sequence[Example]], tuple[float, float]]  # a sum and its weight


class Plan(NamedTuple):
    """How a model is trained; the rate falls to zero along a line."""

    rate: float
    epochs: int
    batch: int = 64
    warm_up: int = 50
    clip: float = 1.0
    decay: float = 0.01


class Pieces:
    """A vocabulary of words or characters, numbered in order of their first use."""

    def __init__(self, texts: Sequence[str], cut: Callable[[str], list[str]] = str.split) -> None:
        self.cut = cut
        self.names = list(dict.fromkeys(piece for text in texts for piece in cut(text)))
        self.numbers = {piece: number + COUNT for number, piece in enumerate(self.names)}

    @property
    def size(self) -> int:
        return COUNT + len(self.names)

    def encode(self, text: str) -> list[int]:
        return [self.numbers.get(piece, UNKNOWN) for piece in self.cut(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.names[token - COUNT] for token in tokens if token >= COUNT)


def stack(rows: Sequence[Sequence[int]]) -> Padded:
    return Padded.stack([torch.tensor(row) for row in rows])


def text_of(example: Example) -> str:
    return example.input.text if isinstance(example.input, Words) else str(example.input)


def classes(pieces: Pieces, labels: Sequence[str]) -> Encode:
    """Texts and the number of their label."""
    return lambda rows: Batch(
        stack([pieces.encode(text_of(row)) for row in rows]), torch.tensor([labels.index(row.target) for row in rows])
    )


def tags(pieces: Pieces, labels: Sequence[str]) -> Encode:
    """Texts and the number of the tag of each word."""
    return lambda rows: Batch(
        stack([pieces.encode(text_of(row)) for row in rows]),
        stack([[labels.index(tag) for tag in row.target] for row in rows]).values,
    )


def numbers(rows: Sequence[Example]) -> Batch[Any, Tensor]:
    """Vectors and the numbers that belong to them."""
    return Batch(
        Padded.stack([torch.from_numpy(row.input) for row in rows]), torch.tensor([row.target for row in rows])
    )


def pictures(labels: Sequence[str]) -> Encode:
    """Pictures and the number of their label."""
    return lambda rows: Batch(
        torch.from_numpy(np.stack([row.input for row in rows])),
        torch.tensor([labels.index(row.target) for row in rows]),
    )


def next_words(pieces: Pieces) -> Encode:
    """Texts as a language model reads them, and what comes next."""

    def encode(rows: Sequence[Example]) -> Batch[Any, Tensor]:
        texts = [pieces.encode(text_of(row)) for row in rows]
        return Batch(stack([[BEGIN, *text] for text in texts]), stack([[*text, END] for text in texts]).values)

    return encode


def pairs(source: Pieces, target: Pieces) -> Encode:
    """Sources with their targets shifted right, and the targets."""

    def encode(rows: Sequence[Example]) -> Batch[Any, Tensor]:
        answers = [target.encode(str(row.target)) for row in rows]
        given = stack([source.encode(text_of(row)) for row in rows])
        shifted = stack([[BEGIN, *answer] for answer in answers])
        return Batch(Pair(given, shifted), stack([[*answer, END] for answer in answers]).values)

    return encode


def train(model: nn.Module, encode: Encode, rows: Sequence[Example], plan: Plan, seed: int) -> None:
    """AdamW over shuffled batches; rows of like length are put together, to pad little."""
    shuffler = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=plan.decay)
    steps = plan.epochs * math.ceil(len(rows) / plan.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / plan.warm_up, 1 - step / steps)
    )
    model.train()
    for _ in range(plan.epochs):
        for chosen in _batches(rows, plan.batch, shuffler):
            optimizer.zero_grad()
            model.loss(encode(chosen)).mean.backward()
            nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
            optimizer.step()
            schedule.step()


def _batches(rows: Sequence[Example], size: int, shuffler: torch.Generator) -> list[list[Example]]:
    order = torch.randperm(len(rows), generator=shuffler).tolist()
    pools = [order[start : start + 20 * size] for start in range(0, len(order), 20 * size)]
    ordered = [one for pool in pools for one in sorted(pool, key=lambda index: _length(rows[index]))]
    cuts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [[rows[one] for one in cuts[at]] for at in torch.randperm(len(cuts), generator=shuffler).tolist()]


def _length(row: Example) -> int:
    return len(row.input) if isinstance(row.input, np.ndarray) else len(text_of(row))


def score(model: nn.Module, encode: Encode, rows: Sequence[Example], by: Score, size: int = 100) -> float:
    """The mean of a score over the examples."""
    model.eval()
    with torch.no_grad():
        parts = [by(model, encode(rows[at : at + size]), rows[at : at + size]) for at in range(0, len(rows), size)]
    return sum(total for total, _ in parts) / sum(weight for _, weight in parts)


def accuracy(model: nn.Module, batch: Batch[Any, Tensor], rows: Sequence[Example]) -> tuple[float, float]:
    return float((model.predict(batch.inputs) == batch.targets).sum()), len(rows)


def mean_loss(model: nn.Module, batch: Batch[Any, Tensor], rows: Sequence[Example]) -> tuple[float, float]:
    loss = model.loss(batch)
    return float(loss.total), float(loss.weight)


def exact_match(pieces: Pieces, longest: int) -> Score:
    """Greedy decoding, the likeliest token at every step, against the whole answer."""

    def by(model: nn.Module, batch: Batch[Any, Tensor], rows: Sequence[Example]) -> tuple[float, float]:
        state = model.initial_state(batch.inputs.source)
        last, answers = torch.full((len(rows), 1), BEGIN), []
        for _ in range(longest):
            scores, state = model.step(Padded.of(last), state)
            last = scores.values.argmax(dim=-1)
            answers.append(last)
        said = [pieces.decode(_until_end(answer)) for answer in torch.cat(answers, dim=1).tolist()]
        return sum(answer == row.target for answer, row in zip(said, rows, strict=True)), len(rows)

    return by


def _until_end(answer: list[int]) -> list[int]:
    return answer[: answer.index(END)] if END in answer else [*answer, COUNT]


def spans(tags_of_words: Sequence[str]) -> set[tuple[int, int, str]]:
    """Start, stop and kind of every entity in the BIO scheme."""
    found, start = set(), None
    for at, tag in enumerate([*tags_of_words, "O"]):
        if start is not None and not tag.startswith("I-"):
            found.add((start, at, tags_of_words[start][2:]))
            start = None
        if tag.startswith("B-"):
            start = at
    return found


def entity_f1(model: nn.Module, encode: Encode, rows: Sequence[Example], labels: Sequence[str]) -> float:
    """F1 of whole entities: start, stop and kind must be right."""
    right = said = true = 0
    model.eval()
    for at in range(0, len(rows), 100):
        some = rows[at : at + 100]
        with torch.no_grad():
            answers = model.predict(encode(some).inputs).tolist()
        for row, answer in zip(some, answers, strict=True):
            gold, found = spans(row.target), spans([labels[tag] for tag in answer[: len(row.target)]])
            right, said, true = right + len(gold & found), said + len(found), true + len(gold)
    return 2 * right / (said + true)


def sized(config: Any, width: int) -> Any:
    """The same model of another width: recipes are 12 wide, then 192 or more, and most sets want something between."""
    halves = {name: half for name in ("encoder", "decoder") if (half := getattr(config, name, None)) is not None}
    layers = {name: tuple(_block(layer, width) for layer in half.layers) for name, half in halves.items()}
    return replace(config, **{name: replace(half, width=width, layers=layers[name]) for name, half in halves.items()})


def _block(layer: Any, width: int) -> Any:
    if getattr(layer, "feed_forward", None) is None:
        return layer
    return replace(layer, feed_forward=replace(layer.feed_forward, hidden=4 * width))


# one set, one model, one seed: the score on the test set

TEST_SEED = 1  # plans and generators were chosen while looking at the test set of seed 0, so that one is spent


def _parts(name: str, count: int | None, parameters: dict[str, int]) -> tuple[list[Example], list[Example]]:
    one = NAMES[name]
    tested = one.examples("test", TEST_SEED, **parameters)
    return list(one.examples("train", count=count, **parameters)), list(tested)


def _built(config: Any, width: int | None, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return (config if width is None else sized(config, width)).build()


def fit_classes(
    name: str,
    family: str,
    plan: Plan,
    *,
    seed: int = 0,
    width: int | None = None,
    count: int | None = None,
    **given: int,
) -> float:
    """Accuracy of a classifier of texts; without a width, that of the size `nano`."""
    (learned, tested), labels = _parts(name, count, given), NAMES[name].schema.labels
    pieces = Pieces([text_of(row) for row in learned])
    inputs = TokensConfig(vocab_size=pieces.size)
    size = "nano" if width is None else "small"
    model = _built(recipes.classifier(family, inputs=inputs, num_classes=len(labels), size=size), width, seed)
    encode = classes(pieces, labels)
    train(model, encode, learned, plan, seed)
    return score(model, encode, tested, accuracy)


def fit_pictures(family: str, plan: Plan, *, seed: int = 0, width: int = 48) -> float:
    """Accuracy of a classifier of pictures."""
    (learned, tested), labels = _parts("pictures", None, {}), NAMES["pictures"].schema.labels
    config = recipes.picture_classifier(family, height=16, width=16, num_classes=len(labels))
    model, encode = _built(config, width, seed), pictures(labels)
    train(model, encode, learned, plan, seed)
    return score(model, encode, tested, accuracy)


def fit_dates(family: str, plan: Plan, *, seed: int = 0, width: int = 64) -> float:
    """Share of the test dates that greedy decoding writes without a mistake."""
    learned, tested = _parts("dates", None, {})
    source, target = (
        Pieces(texts, list) for texts in zip(*((text_of(row), row.target) for row in learned), strict=True)
    )
    inputs = TokensConfig(vocab_size=source.size)
    config = recipes.translator(family, source=inputs, target_vocab_size=target.size, size="small")
    model, encode = _built(config, width, seed), pairs(source, target)
    train(model, encode, learned, plan, seed)
    return score(model, encode, tested, exact_match(target, longest=11))


def fit_movies(plan: Plan, *, seed: int = 0, width: int = 32) -> float:
    """Entity F1 of a bidirectional LSTM with a CRF."""
    (learned, tested), labels = _parts("movies", None, {}), NAMES["movies"].schema.labels
    pieces = Pieces([text_of(row) for row in learned])
    config = recipes.tagger("bilstm", inputs=TokensConfig(vocab_size=pieces.size), num_tags=len(labels))
    model = _built(replace(config, head=CrfHeadConfig(labels=labels, scheme="bio")), width, seed)
    encode = tags(pieces, labels)
    train(model, encode, learned, plan, seed)
    return entity_f1(model, encode, tested, labels)


def fit_grammar(family: str, plan: Plan, *, seed: int = 0, width: int = 64) -> float:
    """Bits per word of a language model above the floor of the very texts that it is tested on."""
    learned, tested = _parts("grammar", None, {})
    pieces = Pieces([text_of(row) for row in learned])
    model = _built(recipes.language_model(family, vocab_size=pieces.size), width, seed)
    encode = next_words(pieces)
    train(model, encode, learned, plan, seed)
    texts = [text_of(row) for row in tested]
    floor = sum(surprise(text) for text in texts) / sum(len(text.split()) + 1 for text in texts)
    return score(model, encode, tested, mean_loss) / math.log(2) - floor


def fit_adding(
    family: str, plan: Plan, *, seed: int = 0, width: int = 32, count: int = 5_000, length: int = 30
) -> float:
    """Mean squared error; always answering 1 has 1/6."""
    learned, tested = _parts("adding", count, {"length": length})
    config = recipes.classifier(family, inputs=VectorsConfig(size=2), num_classes=2)
    model = _built(replace(config, head=NumberHeadConfig(), dropout=0.0), width, seed)
    train(model, numbers, learned, plan, seed)
    return score(model, numbers, tested, mean_loss)
