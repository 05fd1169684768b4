"""Language modeling: perplexity by its definition, whatever the feed, and state that is carried."""

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqloom.config.tokenizers import BpeConfig, BytesConfig, CharactersConfig, WordsConfig
from seqloom.config.training import ByLengthConfig, PacksConfig, StreamsConfig
from seqloom.errors import ConfigError
from seqloom.nn.types import Batch, Padded
from seqloom.tasks import lm
from seqloom.tasks import lm as continuing
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.task import HeadSettings
from seqloom.text.special_tokens import BEGIN, END

Find = Callable[[str], Any]
LINES = "der Bär läuft\nein Bär\n" * 3 + "läuft , läuft und läuft  weiter\n\u4f60\u597d \u4f60\n"
TOKENIZERS = [
    WordsConfig(),
    WordsConfig(word_split="space", lowercase=True),
    CharactersConfig(),
    BytesConfig(),
    BpeConfig(vocab_size=300),
]
FEEDS = [
    ByLengthConfig(batch_tokens=50),
    StreamsConfig(batch_rows=3, row_length=7),
    PacksConfig(batch_rows=2, row_length=30),
]


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.kind())
def test_every_token_and_every_end_is_judged_once(small: Find, feed: Any) -> None:
    found = small("text")
    rows, column = found.prepared.splits["dev"], found.prepared.columns["input"]
    evaluation = evaluate(found.task, found.model("lstm"), found.batches("dev", feed))
    assert evaluation.statistics[:, -1].sum() == column.lengths[rows].sum() + len(rows)


def test_perplexity_is_the_definition_document_by_document(small: Find) -> None:
    found = small("text")
    model, total, count = found.model("gru").eval(), 0.0, 0
    for row in found.prepared.splits["dev"]:
        tokens = torch.from_numpy(found.prepared.columns["input"].row(int(row)).astype("int64"))
        read = torch.cat([torch.tensor([BEGIN]), tokens])[None]
        with torch.no_grad():
            scores = model(Padded.of(read)).values[0]
        total += F.cross_entropy(scores, torch.cat([tokens, torch.tensor([END])]), reduction="sum").item()
        count += len(tokens) + 1
    expected = math.exp(total / count)
    for feed in (
        ByLengthConfig(batch_tokens=60),
        PacksConfig(batch_rows=2, row_length=64),
    ):  # no document is longer than a row
        metrics = evaluate(found.task, model, found.batches("dev", feed)).metrics
        assert metrics["perplexity"] == pytest.approx(expected, rel=1e-5)


def test_packed_documents_are_told_apart_and_called_by_their_rows(small: Find) -> None:
    found = small("text")
    model = found.model("lstm")
    packed = evaluate(found.task, model, found.batches("dev", PacksConfig(batch_rows=2, row_length=64)), keep=1_000)
    apart = evaluate(found.task, model, found.batches("dev"), keep=1_000)
    assert [one.id for one in packed.examples] == [one.id for one in apart.examples]
    assert [one.expected for one in packed.examples] == [one.expected for one in apart.examples]
    for one, other in zip(packed.examples, apart.examples, strict=True):
        assert one.statistics == pytest.approx(other.statistics, rel=1e-4)


def test_streams_are_judged_as_one_text_whatever_the_length_of_a_step(small: Find) -> None:
    found = small("text")
    model = found.model("lstm")
    ways = [StreamsConfig(batch_rows=2, row_length=length) for length in (1, 5, 1_000)]
    first, *others = (evaluate(found.task, model, found.batches("dev", way)).metrics["loss"] for way in ways)
    assert others == pytest.approx([first, first], rel=1e-5)


def test_without_the_carried_state_the_length_of_a_step_would_matter(small: Find, monkeypatch: Any) -> None:
    found = small("text")
    model = found.model("lstm")
    evaluate_batch = lm.LanguageModeling.evaluate_batch
    monkeypatch.setattr(lm.LanguageModeling, "evaluate_batch", lambda *given: evaluate_batch(*given[:-1], None))
    ways = [StreamsConfig(batch_rows=2, row_length=length) for length in (1, 1_000)]
    short, long = (evaluate(found.task, model, found.batches("dev", way)).metrics["loss"] for way in ways)
    assert short != pytest.approx(long, rel=1e-4)


def test_training_on_streams_goes_on_from_a_detached_state(small: Find) -> None:
    found = small("text")
    model = found.model("lstm").eval()
    first, second = found.batches("train", StreamsConfig(batch_rows=2, row_length=4))[:2]
    _, state = found.task.loss(model, first, None)
    assert not any(tensor.requires_grad for tensor in tensors(state))
    carried, _ = found.task.loss(model, second, state)
    alone, _ = found.task.loss(model, second, None)
    both = torch.cat([first.inputs.tokens.values, second.inputs.tokens.values], dim=1)
    targets = torch.cat([first.targets, second.targets], dim=1)
    whole = model.loss(Batch(Padded.of(both), targets)).total
    begun = model.loss(Batch(first.inputs.tokens, first.targets)).total
    assert (begun + carried.total).item() == pytest.approx(whole.item(), rel=1e-5)
    assert (begun + alone.total).item() != pytest.approx(whole.item(), rel=1e-5)


def tensors(state: Any) -> list[torch.Tensor]:
    return [state] if isinstance(state, torch.Tensor) else [one for part in state for one in tensors(part)]


def test_a_step_of_examples_carries_nothing(small: Find) -> None:
    found = small("text")
    for feed in (FEEDS[0], FEEDS[2]):
        assert found.task.loss(found.model("lstm"), found.batches("train", feed)[0], None)[1] is None


def test_ids_of_streams_are_the_documents_in_which_their_rows_stand(small: Find) -> None:
    found = small("text")
    rows, column = found.prepared.splits["train"], found.prepared.columns["input"]
    text = [token for row in rows for token in [*column.row(int(row)).tolist(), END]]
    owner = [int(row) for row in rows for _ in range(int(column.lengths[row]) + 1)]
    batches = found.batches("train", StreamsConfig(batch_rows=1, row_length=5))
    for place, batch in enumerate(batches):
        assert int(batch.ids[0]) == owner[place * 5]
        assert batch.targets[0, 0] == text[place * 5]


@pytest.mark.parametrize(("recipe", "grows"), [("lstm", False), ("gpt", True)])
def test_streams_are_refused_where_the_memory_would_grow_for_ever(small: Find, recipe: str, grows: bool) -> None:
    found = small("text")
    model = found.model(recipe)
    found.task.require_batching(model, PacksConfig())
    if grows:
        with pytest.raises(ConfigError, match="grows with every token"):
            found.task.require_batching(model, StreamsConfig())
    else:
        found.task.require_batching(model, StreamsConfig())
    assert model.training  # looked at, and left as it was


@pytest.mark.slow
def test_attention_to_everything_may_not_read_streams(small: Find) -> None:
    found = small("text")
    with pytest.raises(ConfigError, match="the state of this model grows"):
        found.task.require_batching(found.model("transformer"), StreamsConfig())


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["bag", "cnn", "rnn", "gru", "window", "linear-attention"])
def test_families_that_forget_may_read_streams(small: Find, recipe: str) -> None:
    found = small("text")
    found.task.require_batching(found.model(recipe), StreamsConfig())


@pytest.mark.slow
def test_a_prompt_is_gone_on_with_whether_or_not_begin_stands_before_it(small: Find) -> None:
    found = small("text")
    model = found.model("lstm").eval()
    with torch.no_grad():
        model.head.bias[END] = -9.0
    text = found.task.tokenizer.encode(["the good film", "the"])
    plain = Padded.stack([torch.from_numpy(text.row(row).astype("int64")) for row in (0, 1)])
    begun = Padded.stack(
        [torch.cat([torch.tensor([BEGIN]), plain.values[row, : plain.lengths[row]]]) for row in (0, 1)]
    )
    answers = [found.task.predict(model, prompt) for prompt in (plain, begun)]
    assert answers[0] == answers[1]
    assert all(len(found.task.tokenizer.encode([one.text]).row(0)) == continuing.CONTINUATION for one in answers[0])


def test_learned_positions_bound_a_continuation(small: Find) -> None:
    found = small("text")
    model = found.model("gpt").eval()
    with torch.no_grad():
        model.head.bias[END] = -9.0
    prompt = torch.full((1, model.config.decoder.max_length - 3), found.task.tokenizer.vocab_size - 1)
    (said,) = found.task.predict(model, Padded.of(prompt))
    assert len(found.task.tokenizer.encode([said.text]).row(0)) == 3


def test_a_model_of_another_vocabulary_is_refused(small: Find) -> None:
    task = small("text").task
    model = task.model("lstm", "nano", HeadSettings(label_smoothing=0.1))
    assert model.head.label_smoothing == 0.1
    other = lm.recipes.language_model("lstm", vocab_size=model.head.vocab_size + 1, size="nano")
    with pytest.raises(ConfigError, match="tokens"):
        task.require(other)


# Bits per byte


def by_tokenizer(written: Callable[..., Any], tokenizer: Any, lines: str = LINES) -> Any:
    return written("a.txt", lines, lines, task="lm", tokenizer=tokenizer)


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda tokenizer: tokenizer.kind())
@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.kind())
def test_a_part_is_worth_the_bytes_of_its_file_however_it_is_cut(
    written: Callable[..., Any], tokenizer: Any, feed: Any
) -> None:
    found = by_tokenizer(written, tokenizer)
    model = found.model("bag")
    evaluation = evaluate(found.task, model, found.batches("dev", feed))
    assert evaluation.statistics[:, 0].sum() == len(LINES.encode())
    losses, weights = evaluation.statistics[:, -2:].sum(axis=0)
    metrics = evaluation.metrics
    assert metrics["bits_per_byte"] == pytest.approx(losses / math.log(2) / len(LINES.encode()))
    assert metrics["loss"] == pytest.approx(losses / weights) and metrics["unknown"] == 0


def test_of_bytes_the_bits_per_byte_are_the_bits_per_token(written: Callable[..., Any]) -> None:
    found = by_tokenizer(written, BytesConfig())
    metrics = evaluate(found.task, found.model("gru"), found.batches("dev")).metrics
    assert metrics["bits_per_byte"] == pytest.approx(metrics["loss"] / math.log(2))


def test_of_a_document_that_is_cut_only_what_is_read_counts(written: Callable[..., Any]) -> None:
    found = written("a.txt", LINES, LINES, task="lm", tokenizer=CharactersConfig(), max_length=5)
    evaluation = evaluate(found.task, found.model("bag"), found.batches("dev"))
    assert evaluation.statistics[:, 0].sum() == sum(len(line[:5].encode()) + 1 for line in LINES.splitlines())


def test_unknown_tokens_are_told_because_bits_per_byte_are_not_comparable_then(written: Callable[..., Any]) -> None:
    found = written("a.txt", "one two\n" * 4, "one three four\n", task="lm")
    assert evaluate(found.task, found.model("bag"), found.batches("dev")).metrics["unknown"] == 0.5


@pytest.mark.parametrize("config", TOKENIZERS, ids=lambda config: config.kind())
@pytest.mark.parametrize("settings", [{}, {"lowercase": True}, {"normalize": "nfkd"}], ids=["as-is", "lower", "nfkd"])
def test_bits_per_byte_are_signed_where_the_text_cannot_be_read_back(
    written: Callable[..., Any], config: Any, settings: dict[str, Any]
) -> None:
    tokenizer = msgspec.structs.replace(config, **settings)
    task = by_tokenizer(written, tokenizer).task
    lines = LINES.splitlines()
    read_back = [task.tokenizer.decode(task.tokenizer.encode([line]).row(0)) for line in lines] == lines
    assert ("bits_per_byte" in task.signatures(np.zeros((1, 4)))) is not read_back


def test_bits_per_byte_of_lower_case_are_told_to_be_without_case(written: Callable[..., Any]) -> None:
    signed = by_tokenizer(written, CharactersConfig(lowercase=True)).task.signatures(np.zeros((1, 4)))
    assert "ignores case;" in signed["bits_per_byte"]


def test_bits_per_byte_may_decide(small: Find) -> None:
    task = small("text").task
    assert task.with_metric("bits_per_byte").metric.name == "bits_per_byte"
    assert not task.with_metric("bits_per_byte").metric.higher_is_better


def test_a_test_part_in_streams_is_one_row_from_its_first_token_to_its_last(written: Callable[..., Any]) -> None:
    found = by_tokenizer(written, CharactersConfig())
    prepared = found.prepared._replace(splits=found.prepared.splits | {"test": found.prepared.splits["dev"]})
    model, feed = found.model("lstm"), StreamsConfig(batch_rows=4, row_length=3)
    steps = found.task.loader(prepared, "test", feed, seed=0, workers=0).steps(until=1)
    loss = evaluate(found.task, model, [step.batch for step in steps]).metrics["loss"]
    whole = found.batches("dev", StreamsConfig(batch_rows=1, row_length=10_000))
    assert len(whole) == 1
    assert loss == pytest.approx(evaluate(found.task, model, whole).metrics["loss"], rel=1e-5)
    assert loss != pytest.approx(evaluate(found.task, model, found.batches("dev", feed)).metrics["loss"], rel=1e-5)
