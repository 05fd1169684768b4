"""How many operators a training step and a generated token launch, and how long the host takes to launch them.

A small model on a GPU waits for the host: what matters is how many kernels are launched, and how long Python takes to
launch them. Both can be measured on a CPU. Operators are calls that reach aten; the number in parentheses leaves out
views, so it is the number of kernels on a GPU. The cost of a layer is the difference between models of two layers and
one. Times are whole steps on so little data that almost everything is overhead, beside a plain loop over torch.nn
layers of the same number and width, alternating.

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
SHORT, LONG = 4, 14  # generated tokens; the difference is counted
HOST = ("_unsafe_view", "promote_types")  # operators that launch nothing, although they are not views

AnyBatch = Batch[Any, Any]


class Count(NamedTuple):
    """The number of operators, and of those that launch a kernel."""

    operators: float
    kernels: float

    def less(self, other: "Count", shares: int = 1) -> "Count":
        """Return the difference, divided by `shares`."""
        return Count((self.operators - other.operators) / shares, (self.kernels - other.kernels) / shares)

    def __str__(self) -> str:
        return f"{self.operators:5.0f} ({self.kernels:.0f})"


class Counting(TorchDispatchMode):
    """A context in which every operator that reaches aten is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = self.kernels = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        self.kernels += not (func.is_view or func.overloadpacket.__name__ in HOST)
        return func(*args, **(kwargs or {}))


def counted(run: Callable[[], object]) -> Count:
    """Count the operators of a call."""
    with Counting() as counting:
        run()
    return Count(counting.operators, counting.kernels)


def ragged(time_steps: int = TIME) -> Padded:
    """Return rows of different lengths."""
    lengths = torch.tensor([time_steps - row % 2 for row in range(ROWS)])
    return Padded.of(torch.randint(COUNT, VOCABULARY, (ROWS, time_steps)), lengths)


def translator(depth: int) -> EncoderDecoderConfig:
    """Return the Transformer of the Multi30k experiment, with a small vocabulary."""
    model = model_from_toml(TRANSLATOR.read_text(encoding="utf-8").replace("10000", str(VOCABULARY)))
    assert isinstance(model, EncoderDecoderConfig)
    replace = msgspec.structs.replace
    return replace(model, encoder=replace(model.encoder, repeat=depth), decoder=replace(model.decoder, repeat=depth))


def gpt(depth: int) -> LanguageModelConfig:
    """Return the gpt recipe."""
    model = recipes.language_model("gpt", vocab_size=VOCABULARY, size="nano")
    return msgspec.structs.replace(model, decoder=msgspec.structs.replace(model.decoder, repeat=depth))


def encoder(depth: int) -> SequenceModelConfig:
    """Return the encoder recipe."""
    inputs = TokensConfig(vocab_size=VOCABULARY)
    model = recipes.classifier("encoder", inputs=inputs, num_classes=CLASSES, size="nano")
    return msgspec.structs.replace(model, encoder=msgspec.structs.replace(model.encoder, repeat=depth))


class Bare(nn.Module):
    """torch.nn layers between an embedding and a linear layer, with the widths of a Seqloom stack."""

    def __init__(self, stack: Any, answers: int) -> None:
        super().__init__()
        (layer,) = stack.layers
        self.table, self.head = nn.Embedding(VOCABULARY, stack.width), nn.Linear(stack.width, answers)
        self.heads, self.hidden, self.rate = layer.mixer.num_heads, layer.feed_forward.hidden, layer.dropout
        self.pre = layer.arrangement == "pre"

    def settings(self) -> dict[str, Any]:
        """Return the arguments of torch's layers."""
        return {"dropout": self.rate, "batch_first": True, "norm_first": self.pre}

    def summed(self, vectors: Tensor, targets: Tensor) -> Loss:
        """Return the loss of the head on vectors."""
        total = nn.functional.cross_entropy(self.head(vectors).flatten(0, -2), targets.flatten(), reduction="sum")
        return Loss(total, torch.tensor(float(targets.numel())))


class BareEncoder(Bare):
    """Encoder layers; causal ones predict per token, others per row."""

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
    """Encoder and decoder layers."""

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
    """A Seqloom model by depth, the same with torch.nn, and a batch for both."""

    model: Callable[[int], AnyModel]
    bare: Callable[[Any], nn.Module]
    batch: Callable[[], AnyBatch]


def cases() -> dict[str, Case]:
    """Return the cases by name."""
    tokens = partial(torch.randint, COUNT, VOCABULARY, (ROWS, TIME))
    return {
        "translator": Case(
            translator,
            lambda model: BareTranslator(model.encoder, VOCABULARY),
            lambda: Batch(Pair(ragged(TIME + 1), ragged()), tokens()),
        ),
        "gpt": Case(
            gpt,
            lambda model: BareEncoder(model.decoder, VOCABULARY, causal=True),
            lambda: Batch(ragged(), tokens()),
        ),
        "encoder": Case(
            encoder,
            lambda model: BareEncoder(model.encoder, CLASSES, causal=False),
            lambda: Batch(ragged(), torch.randint(CLASSES, (ROWS,))),
        ),
    }


class Counts(NamedTuple):
    """The operators of a step by phase."""

    forward: Count
    backward: Count
    update: Count  # everything else

    def less(self, other: "Counts") -> "Counts":
        """Return the difference."""
        return Counts(*(mine.less(theirs) for mine, theirs in zip(self, other, strict=True)))

    def row(self, name: str) -> str:
        """Return one line of the table."""
        return f"{name:<12}" + "".join(f"{part!s:>14}" for part in self)


def counts(model: nn.Module, batch: AnyBatch, step: Callable[[], None]) -> Counts:
    """Count the operators of a step on a batch."""
    found: list[Tensor] = []
    model.zero_grad()  # otherwise gradients would be added to earlier ones
    forward = counted(lambda: found.append(model.loss(batch).total))
    backward = counted(found[0].backward)
    return Counts(forward, backward, counted(step).less(forward).less(backward))


def own_counts(config: AnyModel, batch: AnyBatch) -> Counts:
    """Count the operators of a step of a Seqloom model."""
    model = config.build()
    return counts(model, batch, ours(model, batch, "cpu"))


def seconds(step: Callable[[], object]) -> float:
    """Return the seconds of a step."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def report(name: str, case: Case) -> None:
    """Print the lines of one model."""
    batch, config = case.batch(), case.model(DEPTH)
    theirs, model = case.bare(config), config.build()
    mine, other = ours(model, batch, "cpu"), bare(theirs, batch, torch.device("cpu"))
    taken = [(seconds(mine), seconds(other)) for _ in range(ROUNDS + 1)][1:]  # the first round is a warm-up
    own, bare_ = (statistics.median(column) * 1e3 for column in zip(*taken, strict=True))
    one, two = (own_counts(case.model(depth), batch) for depth in (1, 2))
    print(counts(model, batch, mine).row(name) + f"   {own:6.2f} ms, {own / bare_:.2f} times torch.nn")
    print(two.less(one).row("  per layer"))
    print(counts(theirs, batch, other).row("  torch.nn") + f"   {bare_:6.2f} ms")


def generated(config: AnyModel) -> tuple[Count, float]:
    """Return the operators and seconds of a greedily generated token."""
    model, prompt = config.build().eval(), begins(ROWS, torch.device("cpu"))
    with torch.no_grad():
        state = model.initial_state(ragged())

    def run(count: int) -> object:
        most = torch.full((ROWS,), count)
        return write(model, state, prompt, most, GreedyConfig(), never=range(COUNT))  # END is never generated

    taken = [seconds(partial(run, LONG)) / LONG for _ in range(ROUNDS // 4 + 2)][1:]
    more, less = counted(partial(run, LONG)), counted(partial(run, SHORT))
    return more.less(less, LONG - SHORT), statistics.median(taken)


def main() -> None:
    """Print three lines per model, and one for generation."""
    torch.manual_seed(0)
    print(f"operators (kernels) of models of {DEPTH} layers, {ROWS} x {TIME} tokens; times over {ROUNDS} rounds")
    print(f"{'':<12}" + "".join(f"{part:>14}" for part in Counts._fields))
    for name, case in cases().items():
        report(name, case)
    (one, _), (two, _), (whole, taken) = (generated(translator(depth)) for depth in (1, 2, DEPTH))
    print(f"translator, per generated token: {whole}, per layer {two.less(one)}; {taken * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
