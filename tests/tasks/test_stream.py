"""A stream: at every element the answer of `predict` for what was read so far, however the sequence is cut."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.heads import NumberHeadConfig, Pooling
from seqloom.config.inputs import TokensConfig, VectorsConfig
from seqloom.config.mixers import GruConfig, WindowConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import BlockConfig, EncoderConfig
from seqloom.config.tokenizers import BpeConfig, CharactersConfig, FittedTokenizer, WordsConfig
from seqloom.config.training import StreamsConfig
from seqloom.data.endless import given_elements
from seqloom.data.kinds.words import Words
from seqloom.data.problems import Ledger
from seqloom.errors import ConfigError, RejectedError
from seqloom.inference.stream import ModelStream, StreamAnswer
from seqloom.nn.running import running
from seqloom.nn.types import Padded
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.lm import NextPrediction
from seqloom.tasks.regress import NumbersPrediction, SeriesPrediction
from seqloom.tasks.tag import TagPrediction, TagsPrediction
from seqloom.tasks.task import HeadSettings, Prediction
from seqloom.text.special_tokens import BEGIN, END, UNKNOWN
from tolerances import assert_equal_up_to_rounding

Find = Callable[[str], Any]
CPU = torch.device("cpu")
ENDLESS = {"bag", "cnn", "rnn", "gru", "lstm", "window", "linear-attention"}  # language models whose memory stays small
ONE_WAY = {"rnn", "gru", "lstm"}  # of taggers and classifiers
LINES = ["the good film 3 of 3 evenings", "bad", "the film of 2 evenings unheard", "good good"] * 3


def stream_of(found: Any, model: nn.Module, *, most: int = 256, flows: bool | None = None) -> ModelStream:
    flowing = found.task.spec.schema.input.is_text and not found.task.closing if flows is None else flows
    return ModelStream(found.task, model.eval(), CPU, flows=flowing, most=most)


def answers(found: Any, model: nn.Module, elements: Any, *, most: int = 256) -> list[StreamAnswer]:
    ledger, stream = Ledger(), stream_of(found, model, most=most)
    windows = given_elements(elements, stream.kind, ledger, flows=stream.flow is not None)
    return [answer for block in stream.answers(windows, ledger) for answer in block]


def numbers_of(prediction: Prediction) -> list[float]:
    """All numbers of a prediction, so that two can be compared."""
    if isinstance(prediction, NextPrediction):
        return [prediction.loss, *(one.probability for one in prediction.next)]
    if isinstance(prediction, NumbersPrediction):
        return list(prediction.numbers)
    return list(getattr(prediction, "scores", {}).values())


def assert_same(found: list[StreamAnswer], wanted: list[StreamAnswer]) -> None:
    assert [one.token for one in found] == [one.token for one in wanted]
    numbers = [torch.tensor([numbers_of(one.prediction) for one in some]) for some in (found, wanted)]
    assert_equal_up_to_rounding(*numbers, "numbers of a stream")
    tags = [[getattr(one.prediction, "tag", None) for one in some] for some in (found, wanted)]
    assert tags[0] == tags[1]


# Language models.


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("recipe", recipes.names("language-model"))
def test_a_language_model_of_every_family_reads_a_stream_as_the_whole_or_refuses(small: Find, recipe: str) -> None:
    found = small("text")
    model = found.model(recipe).eval()
    if recipe not in ENDLESS:
        with pytest.raises(ConfigError, match=r"memory grows|learned positions end"):
            stream_of(found, model)
        return
    lines = LINES * 10
    tokens = found.task.tokenizer.encode(lines)
    whole = [token for row in range(len(lines)) for token in (*tokens.row(row).tolist(), END)]
    assert len(whole) > 300, "longer than the window"
    with torch.no_grad():
        scores = model(Padded.of(torch.tensor([[BEGIN, *whole]]))).values[0]
    losses = F.cross_entropy(scores[:-1], torch.tensor(whole), reduction="none")
    for most in (1, 7, 1_000):
        got = answers(found, model, iter(lines), most=most)
        assert [one.token for one in got] == [found.task.tokenizer.piece(token) for token in whole]
        assert_equal_up_to_rounding(torch.tensor([one.prediction.loss for one in got]), losses, "losses")
        best = torch.tensor([one.prediction.next[0].probability for one in got])
        assert_equal_up_to_rounding(best, scores[1:].softmax(dim=-1).amax(dim=-1), "probability of the likeliest")


def test_the_losses_of_a_stream_are_those_of_an_evaluation_in_streams(small: Find) -> None:
    found = small("text")
    model = found.model("gru").eval()
    batches = found.batches("dev", StreamsConfig(batch_rows=1, row_length=16))
    rows = [found.prepared.columns["input"].row(row) for row in found.prepared.splits["dev"].tolist()]
    piece = found.task.tokenizer.piece
    lines = [" ".join("unheard" if token == UNKNOWN else piece(token) for token in row.tolist()) for row in rows]
    losses = [one.prediction.loss for one in answers(found, model, lines)]
    assert np.mean(losses) == pytest.approx(evaluate(found.task, model, batches).metrics["loss"], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(ENDLESS))
def test_the_state_of_a_stream_stops_growing(small: Find, recipe: str) -> None:
    model = small("text").model(recipe).eval()
    reading, sizes = running(model), []
    state = reading.mixer.initial_state(1)
    with torch.no_grad():
        for _ in range(3):
            _, state = reading.mixer.step(reading.enter(Padded.of(torch.full((1, 300), END))), state)
            sizes.append(size_of(state))
    assert sizes[1] == sizes[2]


def size_of(state: Any) -> int:
    return state.numel() if isinstance(state, Tensor) else sum(map(size_of, state))


def test_learned_positions_are_refused_whatever_reads_them() -> None:
    config = recipes.language_model("lstm", vocab_size=20, size="nano")
    learned = replace(config, decoder=replace(config.decoder, position="learned", max_length=4_000))
    with pytest.raises(ConfigError, match="learned positions end at 4,000"):
        running(learned.build())


def test_a_large_window_is_not_taken_for_a_memory_that_grows() -> None:
    config = recipes.language_model("window", vocab_size=20, size="nano")
    (layer,) = config.decoder.layers
    wide = replace(layer, mixer=replace(layer.mixer, pattern=WindowConfig(size=5_000)))
    running(replace(config, decoder=replace(config.decoder, layers=(wide,))).build())


# Taggers, classifiers and regressors.

KINDS = ["csv", "labels", "numbers", "vectors", "words with a label", "conll", "conllu", "vectors with tags", "series"]


def elements_of(found: Any, row: int) -> tuple[Any, list[Any]]:
    """An input as the elements of a stream, and all that was read up to each of them."""
    kind = found.task.spec.schema.input
    if kind.of_numbers:
        value = np.random.default_rng(row).normal(size=(9, found.task.spec.sizes[0])).astype(np.float32)
        return list(value), [value[: end + 1] for end in range(len(value))]
    words = " ".join(LINES[row : row + 3]).split()
    if kind.in_words:
        return [words[:4], words[4:]], [Words.join(words[: end + 1]) for end in range(len(words))]
    return [" ".join(words[:4]), " ".join(words[4:])], [" ".join(words[: end + 1]) for end in range(len(words))]


def last_of(prediction: Prediction) -> Prediction:
    """What is said of the last element."""
    if isinstance(prediction, TagsPrediction):
        return TagPrediction(prediction.tags[-1])
    return NumbersPrediction(prediction.series[-1]) if isinstance(prediction, SeriesPrediction) else prediction


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_is_that_of_predict_for_what_was_read_so_far(small: Find, kind: str) -> None:
    found = small(kind)
    task, input_kind = found.task, found.task.spec.schema.input
    for recipe in task.recipes():
        model = found.model(recipe).eval()
        if recipe not in ONE_WAY and recipe != "mlp":
            with pytest.raises(ConfigError, match=r"reads later elements.*--model rnn, gru or lstm"):
                stream_of(found, model)
            continue
        for row in range(3):
            elements, prefixes = elements_of(found, row)
            got = answers(found, model, elements, most=5)
            with torch.no_grad():
                said = [
                    last_of(task.predict(model, input_kind.collate(input_kind.encode([one], task.spec.tokenizer)))[0])
                    for one in prefixes
                ]
            assert_same(got, [one._replace(prediction=answer) for one, answer in zip(got, said, strict=True)])


@pytest.mark.slow
@pytest.mark.parametrize("head", ["class", "crf"])
def test_tags_of_spans_are_those_of_the_best_allowed_path_so_far(small: Find, head: Any) -> None:
    found = small("conll")
    model = found.model("gru", HeadSettings(kind=head)).eval()
    words = " ".join(LINES).split()
    kind, revised = found.task.spec.schema.input, 0
    batch = [kind.collate(kind.encode([Words.join(words[:end])], found.task.spec.tokenizer)) for end in range(1, 17)]
    for seed in range(5):
        draws = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in model.head.parameters():
                weight.normal_(std=1.0, generator=draws)
            model.head.linear.weight.mul_(20)  # so that words decide
            if head == "crf":
                model.head.end.mul_(20)  # and so does where a text may end
            paths = [found.task.predict(model, inputs)[0].tags for inputs in batch]
        got = [one.prediction.tag for one in answers(found, model, [words], most=3)]
        assert got[:16] == [path[-1] for path in paths]
        revised += list(paths[-1]) != got[:16]
    assert revised, "some answer is another one when the tagger has read on"


@pytest.mark.slow
@pytest.mark.parametrize(
    "tokenizer", [BpeConfig(vocab_size=300), CharactersConfig(), WordsConfig(keep_characters=True)]
)
def test_words_in_subwords_or_with_their_letters_are_answered_once_each(
    written: Callable[..., Any], tokenizer: FittedTokenizer
) -> None:
    """A tagger answers at the first subword of a word, and a classifier when it has read the last one."""
    rows = [{"tokens": text.split(), "tags": text.upper().split(), "label": text[:3]} for text in LINES]
    for target, task in (("tags", "tag"), ("label", "classify")):
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        found = written("a.jsonl", text, text, target=target, task=task, input="tokens", tokenizer=tokenizer)
        kind, model = found.task.spec.schema.input, found.model("gru").eval()
        assert kind.in_words
        words = " ".join(LINES[:4]).split()
        got = answers(found, model, [words[:3], words[3:]], most=4)
        assert [one.token for one in got] == words
        for end, one in enumerate(got, 1):
            columns = kind.encode([Words.join(words[:end])], found.task.spec.tokenizer)
            with torch.no_grad():
                (said,) = found.task.predict(model, kind.collate(columns))
            assert_same([one], [one._replace(prediction=last_of(said))])


@pytest.mark.parametrize("pooling", ["last", "first", "mean", "sum", "max"])
def test_pooling_runs_along(pooling: Pooling) -> None:
    config = SequenceModelConfig(
        encoder=EncoderConfig(input=VectorsConfig(size=3), width=6, layers=(BlockConfig(mixer=GruConfig()),)),
        head=NumberHeadConfig(size=2),
        pooling=pooling,
        hidden=(5,),
    )
    torch.manual_seed(0)
    model, values = config.build().double().eval(), torch.randn(1, 12, 3, dtype=torch.float64)
    reading = running(model)
    reading.mixer.double()
    with torch.no_grad():
        wanted = torch.stack([model(Padded.of(values[:, : end + 1]))[0] for end in range(12)])
        for most in (1, 5, 12):
            state, found = reading.mixer.initial_state(1), []
            for block in values.split(most, dim=1):
                scores, state = reading.mixer.step(reading.enter(Padded.of(block)), state)
                found.append(scores.values[0])
            assert_equal_up_to_rounding(torch.cat(found), wanted, f"pooling {pooling} in blocks of {most}")


def test_attention_pooling_and_tasks_without_answers_on_the_way_are_refused(small: Find) -> None:
    config = SequenceModelConfig(
        encoder=EncoderConfig(input=VectorsConfig(size=3), width=6), head=NumberHeadConfig(size=2), pooling="attention"
    )
    with pytest.raises(ConfigError, match="attention pooling"):
        running(config.build())
    for kind, why in (
        ("parallel", "cannot read a stream: its task is translate"),
        ("pairs", "the model reads two texts"),
    ):
        found = small(kind)
        with pytest.raises(ConfigError, match=why):
            stream_of(found, found.model(), flows=False)
    with pytest.raises(ConfigError, match="reads its input to the end"):
        running(
            recipes.translator(
                "transformer", source=TokensConfig(vocab_size=9), target_vocab_size=9, size="nano"
            ).build()
        )


# Any cutting gives the same answers.


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "recipe"), [("text", "gru"), ("text", "window"), ("conll", "lstm"), ("series", "rnn")]
)
@settings(max_examples=25)
@given(data=st.data())
def test_any_cutting_gives_the_same_answers(small: Find, kind: str, recipe: str, data: st.DataObject) -> None:
    found = small(kind)
    model = found.model(recipe).eval()
    count = data.draw(st.integers(1, 30))
    if found.task.spec.schema.input.of_numbers:
        elements: Any = np.random.default_rng(count).normal(size=(count, found.task.spec.sizes[0]))
        cuts = sorted(data.draw(st.sets(st.integers(1, count), max_size=5)))
        other: Any = [part for part in np.split(elements, cuts) if len(part)]
    else:
        elements = (LINES * 3)[:count]
        other = list(elements)
        if found.task.spec.schema.input.in_words:  # a line break means nothing between words
            words = " ".join(elements).split()
            cut = data.draw(st.integers(1, len(words)))
            other = [part for part in (words[:cut], words[cut:]) if part]
    most = data.draw(st.integers(1, 40))
    assert_same(answers(found, model, iter(other), most=most), answers(found, model, elements, most=1_000))


def test_a_bad_row_ends_a_stream_before_more_is_read(small: Find) -> None:
    found = small("series")
    ledger, stream, asked = Ledger(), stream_of(found, found.model("gru")), []

    def rows() -> Any:
        for row in ([1.0] * 3, [1.0] * 2, [1.0] * 3):
            asked.append(row)
            yield row

    with pytest.raises(RejectedError, match=r"stream:2: array\.width"):
        list(stream.answers(given_elements(rows(), stream.kind, ledger, flows=False), ledger))
    assert len(asked) == 2


def test_answers_come_with_their_line_and_before_the_next_one_is_asked_for(small: Find) -> None:
    found = small("conll")
    asked = []

    def lines() -> Any:
        for number, line in enumerate(["the good film", "bad"], 1):
            asked.append(number)
            yield line

    ledger, stream = Ledger(), stream_of(found, found.model("gru"))
    windows = given_elements(lines(), stream.kind, ledger, flows=False)
    blocks = stream.answers(windows, ledger)
    first = [*next(blocks), *next(blocks)]  # of two elements and one
    assert [(one.line, one.token) for one in first] == [(1, "the"), (1, "good"), (1, "film")]
    assert asked == [1]
