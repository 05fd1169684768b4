"""How many operators a step of training and a written symbol issue, and what the host spends on issuing them.

A small model on a GPU waits for the host: what counts is how many kernels are launched, and how long Python takes to
launch them. Both can be seen on a processor. Operators are what reaches aten; those in brackets are no views, so a GPU
has a kernel to launch for each. A layer issues what a model of two layers issues more than one of one. Times are those
of whole steps on so little data that there is hardly anything but overhead, beside a bare loop over torch.nn's layers
of the same number and width, in turns.

python benchmarks/operators.py
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom import recipes
from seqloom.config.decoding import GreedyConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.models import (
    AnyModel,
    EncoderDecoderConfig,
    LanguageModelConfig,
    SequenceModelConfig,
    model_from_toml,
)
from seqloom.decoding.answers import begins
from seqloom.decoding.decode import write
from seqloom.nn.types import Batch, Loss, Padded, Pair
from seqloom.text.special_tokens import COUNT
from training import bare, ours

TRANSLATOR = Path(__file__).parent / "quality" / "models" / "multi30k-transformer.toml"
ROUNDS, DEPTH = 40, 4
VOCABULARY, CLASSES = 200, 3
ROWS, TIME = 2, 4
SHORT, LONG = 4, 14  # symbols that are written; the difference is counted
HOST = ("_unsafe_view", "promote_types")  # operators that launch nothing, though they are not called views

AnyBatch = Batch[Any, Any]


class Count(NamedTuple):
    """Operators that were issued, and those of them that launch a kernel."""

    operators: float
    kernels: float

    def less(self, other: "Count", shares: int = 1) -> "Count":
        """What is more here than there, dealt out."""
        return Count((self.operators - other.operators) / shares, (self.kernels - other.kernels) / shares)

    def __str__(self) -> str:
        return f"{self.operators:5.0f} ({self.kernels:.0f})"


class Counting(TorchDispatchMode):
    """Inside the `with`, every operator that reaches aten is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = self.kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        self.kernels += not (func.is_view or func.overloadpacket.__name__ in HOST)
        return func(*args, **(kwargs or {}))


def counted(run: Callable[[], object]) -> Count:
    """What a call issues."""
    with Counting() as counting:
        run()
    return Count(counting.operators, counting.kernels)


def ragged(time_steps: int = TIME) -> Padded:
    """Rows of different lengths."""
    lengths = torch.tensor([time_steps - row % 2 for row in range(ROWS)])
    return Padded.of(torch.randint(COUNT, VOCABULARY, (ROWS, time_steps)), lengths)


def translator(depth: int) -> EncoderDecoderConfig:
    """The Transformer of the translation figure, with a small vocabulary."""
    model = model_from_toml(TRANSLATOR.read_text(encoding="utf-8").replace("10000", str(VOCABULARY)))
    assert isinstance(model, EncoderDecoderConfig)
    replace = msgspec.structs.replace
    return replace(model, encoder=replace(model.encoder, repeat=depth), decoder=replace(model.decoder, repeat=depth))


def gpt(depth: int) -> LanguageModelConfig:
    """The language model of that name."""
    model = recipes.language_model("gpt", vocab_size=VOCABULARY, size="tiny")
    return msgspec.structs.replace(model, decoder=msgspec.structs.replace(model.decoder, repeat=depth))


def encoder(depth: int) -> SequenceModelConfig:
    """The classifier of that name."""
    inputs = TokensConfig(vocab_size=VOCABULARY)
    model = recipes.classifier("encoder", inputs=inputs, num_classes=CLASSES, size="tiny")
    return msgspec.structs.replace(model, encoder=msgspec.structs.replace(model.encoder, repeat=depth))


class Bare(nn.Module):
    """torch.nn's layers between a table of vectors and a linear map, in the widths of one of our stacks."""

    def __init__(self, stack: Any, answers: int) -> None:
        super().__init__()
        (layer,) = stack.layers
        self.table, self.head = nn.Embedding(VOCABULARY, stack.width), nn.Linear(stack.width, answers)
        self.heads, self.hidden, self.rate = layer.mixer.num_heads, layer.feed_forward.hidden, layer.dropout
        self.pre = layer.arrangement == "pre"

    def settings(self) -> dict[str, Any]:
        """What torch's layers are told."""
        return {"dropout": self.rate, "batch_first": True, "norm_first": self.pre}

    def summed(self, vectors: Tensor, targets: Tensor) -> Loss:
        """The loss of vectors that the head reads."""
        total = nn.functional.cross_entropy(self.head(vectors).flatten(0, -2), targets.flatten(), reduction="sum")
        return Loss(total, torch.tensor(float(targets.numel())))


class BareEncoder(Bare):
    """The layers of an encoder: one answer for each element of a causal one, else one for each row."""

    def __init__(self, stack: Any, answers: int, *, causal: bool) -> None:
        super().__init__(stack, answers)
        layer = nn.TransformerEncoderLayer(stack.width, self.heads, self.hidden, **self.settings())
        self.layers = nn.TransformerEncoder(layer, stack.repeat, enable_nested_tensor=False)
        self.causal = causal

    def loss(self, batch: AnyBatch) -> Loss:
        x, vectors = batch.inputs, self.table(batch.inputs.values)
        if not self.causal:
            return self.summed(self.layers(vectors, src_key_padding_mask=~x.valid).mean(dim=1), batch.targets)
        ahead = nn.Transformer.generate_square_subsequent_mask(x.values.shape[1])
        return self.summed(self.layers(vectors, mask=ahead, is_causal=True), batch.targets)


class BareTranslator(Bare):
    """An encoder and a decoder."""

    def __init__(self, stack: Any, answers: int) -> None:
        super().__init__(stack, answers)
        sizes = (stack.width, self.heads, self.hidden)
        reading, writing = (
            kind(*sizes, **self.settings()) for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
        )
        self.encoder = nn.TransformerEncoder(reading, stack.repeat, nn.LayerNorm(stack.width), False)
        self.decoder = nn.TransformerDecoder(writing, stack.repeat, nn.LayerNorm(stack.width))

    def loss(self, batch: AnyBatch) -> Loss:
        source, target = batch.inputs
        beyond, ahead = ~source.valid, nn.Transformer.generate_square_subsequent_mask(target.values.shape[1])
        memory = self.encoder(self.table(source.values), src_key_padding_mask=beyond)
        entering = self.table(target.values)
        vectors = self.decoder(entering, memory, ahead, memory_key_padding_mask=beyond, tgt_is_causal=True)
        return self.summed(vectors, batch.targets)


class Case(NamedTuple):
    """A model of ours of any depth, torch's like it, and a batch for both."""

    model: Callable[[int], AnyModel]
    bare: Callable[[Any], nn.Module]
    batch: Callable[[], AnyBatch]


def cases() -> dict[str, Case]:
    """What is measured, by name."""
    symbols = partial(torch.randint, COUNT, VOCABULARY, (ROWS, TIME))
    return {
        "translator": Case(
            translator,
            lambda model: BareTranslator(model.encoder, VOCABULARY),
            lambda: Batch(Pair(ragged(TIME + 1), ragged()), symbols()),
        ),
        "gpt": Case(
            gpt,
            lambda model: BareEncoder(model.decoder, VOCABULARY, causal=True),
            lambda: Batch(ragged(), symbols()),
        ),
        "encoder": Case(
            encoder,
            lambda model: BareEncoder(model.encoder, CLASSES, causal=False),
            lambda: Batch(ragged(), torch.randint(CLASSES, (ROWS,))),
        ),
    }


class Counts(NamedTuple):
    """What a step issues in its parts."""

    forward: Count
    backward: Count
    update: Count  # all else

    def less(self, other: "Counts") -> "Counts":
        """What is more here than there."""
        return Counts(*(mine.less(theirs) for mine, theirs in zip(self, other, strict=True)))

    def row(self, name: str) -> str:
        """One line of the table."""
        return f"{name:<12}" + "".join(f"{part!s:>14}" for part in self)


def counts(model: nn.Module, batch: AnyBatch, step: Callable[[], None]) -> Counts:
    """What a step on a batch issues."""
    found: list[Tensor] = []
    model.zero_grad()  # else gradients would be added to those of an earlier step
    forward = counted(lambda: found.append(model.loss(batch).total))
    backward = counted(found[0].backward)
    return Counts(forward, backward, counted(step).less(forward).less(backward))


def own_counts(config: AnyModel, batch: AnyBatch) -> Counts:
    """What a step of one of our models issues."""
    model = config.build()
    return counts(model, batch, ours(model, batch, "cpu"))


def seconds(step: Callable[[], object]) -> float:
    """How long a step takes."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def report(name: str, case: Case) -> None:
    """Print the lines of one model."""
    batch, config = case.batch(), case.model(DEPTH)
    theirs, model = case.bare(config), config.build()
    mine, other = ours(model, batch, "cpu"), bare(theirs, batch, torch.device("cpu"))
    taken = [(seconds(mine), seconds(other)) for _ in range(ROUNDS + 1)][1:]  # the first round warms up
    own, bare_ = (statistics.median(column) * 1e3 for column in zip(*taken, strict=True))
    one, two = (own_counts(case.model(depth), batch) for depth in (1, 2))
    print(counts(model, batch, mine).row(name) + f"   {own:6.2f} ms, {own / bare_:.2f} of torch.nn's")
    print(two.less(one).row("  a layer"))
    print(counts(theirs, batch, other).row("  torch.nn") + f"   {bare_:6.2f} ms")


def written(config: AnyModel) -> tuple[Count, float]:
    """What a symbol issues that is written greedily, and its seconds."""
    model, prompt = config.build().eval(), begins(ROWS, torch.device("cpu"))
    with torch.no_grad():
        state = model.initial_state(ragged())

    def run(count: int) -> object:
        most = torch.full((ROWS,), count)
        return write(model, state, prompt, most, GreedyConfig(), never=range(COUNT))  # END is never said

    taken = [seconds(partial(run, LONG)) / LONG for _ in range(ROUNDS // 4 + 2)][1:]
    more, less = counted(partial(run, LONG)), counted(partial(run, SHORT))
    return more.less(less, LONG - SHORT), statistics.median(taken)


def main() -> None:
    """Print three lines for each model, and one for writing."""
    torch.manual_seed(0)
    print(f"operators (kernels) of models of {DEPTH} layers, {ROWS} x {TIME} symbols; times over {ROUNDS} rounds")
    print(f"{'':<12}" + "".join(f"{part:>14}" for part in Counts._fields))
    for name, case in cases().items():
        report(name, case)
    (one, _), (two, _), (whole, taken) = (written(translator(depth)) for depth in (1, 2, DEPTH))
    print(f"the translator, a written symbol: {whole}, of each layer {two.less(one)}; {taken * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
