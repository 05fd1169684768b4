"""Claims about collation: every kind of input and target, checked row by row, and models that read subwords."""

import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.data.loader import collate, unseen_labels
from seqloom.data.schema import Schema
from seqloom.errors import DataError
from seqloom.nn.types import Batch, Padded, Subwords
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END
from tolerances import assert_equal_up_to_rounding

rows_of_tokens = st.lists(st.lists(st.integers(6, 90), max_size=7), min_size=1, max_size=9)


def tokens(rows: list[list[int]]) -> Ragged:
    return Ragged.of(rows, np.int32)


def assert_padded(x: Padded, rows: list[list], dtype: torch.dtype) -> None:
    """Fail unless a batch holds exactly these rows, zeros behind them, and knows whether it is full."""
    assert x.values.dtype == dtype and x.lengths.dtype == torch.int64 and x.segments is None
    assert x.lengths.tolist() == [len(row) for row in rows]
    assert x.values.shape[:2] == (len(rows), max(map(len, rows)))
    for line, row in zip(x.values, rows, strict=True):
        assert line[: len(row)].tolist() == row
        assert not line[len(row) :].any()
    assert x.full == all(len(row) == x.values.shape[1] for row in rows)


@given(rows_of_tokens, st.data())
def test_texts_and_labels_are_those_of_the_chosen_rows(rows: list[list[int]], data: st.DataObject) -> None:
    labels = [[number % 3] for number in range(len(rows))]
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    kind = data.draw(st.sampled_from(["text", "pair"]))
    columns = {"input": tokens(rows), "target": Ragged.of(labels, np.int32)}
    batch = collate(Schema(kind, "label", ("a", "b", "c")), columns, np.array(chosen))
    assert_padded(batch.inputs, [rows[row] for row in chosen], torch.int64)
    assert batch.targets.dtype == torch.int64 and batch.targets.tolist() == [labels[row][0] for row in chosen]
    assert batch.ids == tuple(str(row) for row in chosen)
    assert Schema(kind, "label").target.sizes(columns).tolist() == [[len(row)] for row in rows]


@given(rows_of_tokens)
def test_a_translation_reads_begin_and_says_end(rows: list[list[int]]) -> None:
    sources = [[7] * (number + 1) for number in range(len(rows))]
    schema, columns = Schema("text", "text"), {"input": tokens(sources), "target": tokens(rows)}
    inputs, targets, *_ = collate(schema, columns, np.arange(len(rows)))
    assert_padded(inputs.source, sources, torch.int64)
    assert_padded(inputs.target, [[BEGIN, *row] for row in rows], torch.int64)
    assert_padded(inputs.target._replace(values=targets), [[*row, END] for row in rows], torch.int64)
    sizes = torch.stack([inputs.source.lengths, inputs.target.lengths], 1)
    assert schema.target.sizes(columns).tolist() == sizes.tolist()


@given(rows_of_tokens)
def test_a_language_model_reads_begin_and_says_end(rows: list[list[int]]) -> None:
    schema, columns = Schema("text", "nothing"), {"input": tokens(rows)}
    inputs, targets, *_ = collate(schema, columns, np.arange(len(rows)))
    assert_padded(inputs, [[BEGIN, *row] for row in rows], torch.int64)
    assert_padded(inputs._replace(values=targets), [[*row, END] for row in rows], torch.int64)
    assert schema.target.sizes(columns)[:, 0].tolist() == inputs.lengths.tolist()


@given(st.lists(st.lists(st.integers(1, 3), max_size=5), min_size=1, max_size=6))
def test_words_come_as_pieces_firsts_and_tags(words: list[list[int]]) -> None:
    pieces = [[9] * sum(row) for row in words]
    firsts = [np.cumsum([0, *row])[:-1].tolist() for row in words]
    tags = [[number % 4 - 1 for number in range(len(row))] for row in words]
    columns = {"input": tokens(pieces), "firsts": tokens(firsts), "target": tokens(tags)}
    inputs, targets, *_ = collate(Schema("words", "tags", ("a", "b", "c")), columns, np.arange(len(words)))
    assert isinstance(inputs, Subwords)
    assert_padded(inputs.pieces, pieces, torch.int64)
    assert_padded(inputs.firsts, firsts, torch.int64)
    assert_padded(inputs.firsts._replace(values=targets), tags, torch.int64)
    assert Schema("words", "tags").target.sizes(columns)[:, 0].tolist() == inputs.pieces.lengths.tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_vectors_become_float32(dtype: type) -> None:
    rows = [np.arange(6).reshape(3, 2), np.zeros((0, 2)), np.arange(2).reshape(1, 2)]
    columns = {"input": Ragged.of(rows, dtype), "target": Ragged.of([[0.5, 2], [1, 3], [0, -1]], np.float32)}
    inputs, targets, *_ = collate(Schema("vectors", "numbers"), columns, np.array([2, 0, 1]))
    assert_padded(inputs, [rows[row].tolist() for row in (2, 0, 1)], torch.float32)
    assert targets.dtype == torch.float32 and targets.tolist() == [[0, -1], [0.5, 2], [1, 3]]


def test_pictures_of_bytes_are_scaled_and_others_are_not() -> None:
    pictures = np.arange(2 * 3 * 4).reshape(2, 3, 4, 1) * 11
    target = Ragged.of([[0], [1]], np.int32)
    for dtype, scale in ((np.uint8, 255), (np.float64, 1)):
        columns = {"input": Ragged.of(list(pictures), dtype), "target": target}
        inputs, *_ = collate(Schema("picture", "label", ("a", "b")), columns, np.array([1, 0]))
        assert inputs.dtype == torch.float32 and inputs.shape == (2, 3, 4, 1)
        assert_equal_up_to_rounding(inputs, torch.tensor(pictures[::-1].copy() / scale).float(), "scaled")
        assert Schema("picture", "label").target.sizes(columns).tolist() == [[3], [3]]


@given(st.lists(st.lists(st.integers(-1, 2), max_size=5), min_size=1, max_size=6), st.data())
def test_every_label_is_a_one_in_the_targets_or_is_counted_as_unseen(
    rows: list[list[int]], data: st.DataObject
) -> None:
    rows = [[*(number for number in sorted(set(row)) if number >= 0), *[-1] * row.count(-1)] for row in rows]
    chosen = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1)))
    columns = {"input": tokens([[7]] * len(rows)), "target": Ragged.of(rows, np.int32)}
    batch = collate(Schema("text", "labels", ("a", "b", "c")), columns, chosen)
    unseen = unseen_labels(columns, chosen)
    assert unseen.tolist() == [rows[row].count(-1) for row in chosen]
    assert (batch.targets.sum(1).numpy() + unseen).tolist() == [len(rows[row]) for row in chosen]


def test_labels_become_zeros_and_ones_and_unseen_ones_have_no_column() -> None:
    columns = {"input": tokens([[7], [8], [9]]), "target": Ragged.of([[2, 0], [], [-1, 1]], np.int32)}
    batch = collate(Schema("text", "labels", ("a", "b", "c")), columns, np.arange(3))
    assert batch.targets.dtype == torch.float32
    assert batch.targets.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("schema", "target"),
    [
        (Schema("text", "labels", ("a", "b")), [[2], [0]]),
        (Schema("text", "labels", ("a", "b")), [[-2], [0]]),
        (Schema("text", "numbers"), [[1.0, 2.0], [3.0]]),
        (Schema("text", "label", ("a", "b")), [[0], []]),
    ],
)
def test_targets_that_do_not_fit_are_refused(schema: Schema, target: list[list[float]]) -> None:
    columns = {
        "input": tokens([[7], [8]]),
        "target": Ragged.of(target, np.float32 if "numbers" in schema else np.int32),
    }
    with pytest.raises(DataError):
        collate(schema, columns, np.arange(2))


def test_pictures_of_two_sizes_and_a_batch_of_no_rows_are_refused() -> None:
    pictures = [np.zeros((2, 4, 1), np.uint8), np.zeros((3, 4, 1), np.uint8)]
    columns = {"input": Ragged.of(pictures, np.uint8), "target": Ragged.of([[0], [1]], np.int32)}
    with pytest.raises(DataError, match="expected pictures of one size, found 2 and 3"):
        collate(Schema("picture", "label", ("a", "b")), columns, np.arange(2))
    with pytest.raises(DataError, match="no rows"):
        collate(Schema("text", "nothing"), {"input": tokens([[7]])}, np.arange(0))


def test_rows_without_elements_make_a_batch_of_no_columns() -> None:
    batch = collate(Schema("text", "nothing"), {"input": tokens([[], []])}, np.arange(2))
    assert batch.inputs.values.tolist() == [[BEGIN], [BEGIN]] and batch.targets.tolist() == [[END], [END]]
    plain = collate(Schema("text", "tags"), {"input": tokens([[]]), "target": tokens([[]])}, np.arange(1))
    assert plain.inputs.values.shape == (1, 0) and plain.inputs.full


@pytest.mark.slow
def test_collation_does_not_slow_down_with_the_size_of_the_column() -> None:
    def milliseconds(rows: int) -> float:
        column = Ragged(np.ones(rows * 10, np.int32), np.arange(rows + 1) * 10)
        columns, chosen = {"input": column, "target": column}, np.arange(0, rows, rows // 300)
        times = []
        for _ in range(15):
            began = time.perf_counter()
            collate(Schema("text", "text"), columns, chosen)
            times.append(time.perf_counter() - began)
        return min(times) * 1e3

    small, large = milliseconds(3_000), milliseconds(3_000_000)
    assert small < 1
    assert large < 5 * small  # a walk over three million rows would take fifty times as long


def tagger(name: str) -> nn.Module:
    torch.manual_seed(0)
    inputs = TokensConfig(vocab_size=30)
    model = recipes.tagger(name, inputs=inputs, num_tags=3, size="nano").build()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.4)
    return model.double().eval()


def subwords(words: list[list[list[int]]]) -> Subwords:
    """Sentences of words of pieces."""
    pieces = [torch.tensor([piece for word in sentence for piece in word]) for sentence in words]
    firsts = [torch.tensor(np.cumsum([0, *map(len, sentence)])[:-1].tolist()) for sentence in words]
    return Subwords(Padded.stack(pieces), Padded.stack(firsts))


NAMES = recipes.names("tagger")
SENTENCES = [[[5, 6], [7]], [[8], [9, 10, 11], [12], [13, 14]], [[15]]]


@pytest.mark.parametrize("name", NAMES)
def test_with_one_piece_per_word_subwords_are_scored_like_tokens(name: str) -> None:
    model, plain = tagger(name), Padded.of(torch.arange(12).view(3, 4) + 5, torch.tensor([4, 2, 3]))
    words = Subwords(plain, plain.with_values(torch.arange(4).expand(3, 4)))
    targets = torch.arange(12).view(3, 4) % 3
    assert_equal_up_to_rounding(model(words).values, model(plain).values, "scores")
    assert_equal_up_to_rounding(
        model.loss(Batch(words, targets)).total, model.loss(Batch(plain, targets)).total, "loss"
    )
    assert torch.equal(model.predict(words), model.predict(plain))


@pytest.mark.parametrize("name", NAMES)
def test_neither_padding_nor_neighbors_matter_to_the_words_of_a_sentence(name: str) -> None:
    model, together = tagger(name), subwords(SENTENCES)
    scores, best = model(together), model.predict(together)
    assert scores.values.shape[:2] == best.shape == (3, 4) and scores.lengths.tolist() == [2, 4, 1]
    total = torch.zeros(()).double()
    for row, sentence in enumerate(SENTENCES):
        alone, size = subwords([sentence]), len(sentence)
        assert_equal_up_to_rounding(scores.values[row, :size], model(alone).values[0], "scores")
        assert best[row, :size].tolist() == model.predict(alone)[0].tolist()
        total = total + model.loss(Batch(alone, torch.ones(1, size).long())).total
    assert not scores.values[~scores.valid].any()
    assert_equal_up_to_rounding(model.loss(Batch(together, torch.ones(3, 4).long())).total, total, "loss")


def test_gradients_reach_every_piece_through_a_bilstm() -> None:
    model, words = tagger("bilstm"), subwords(SENTENCES)
    model.loss(Batch(words, torch.ones(3, 4).long())).total.backward()
    table = next(weight for weight in model.encoder.input.parameters() if weight.shape[0] == 30)
    assert table.grad is not None
    reached = table.grad.abs().sum(dim=1) > 0
    assert bool(reached[5:16].all()) and not bool(reached[16:].any())


def test_targets_of_pieces_instead_of_words_are_refused() -> None:
    words = subwords(SENTENCES)
    with pytest.raises(DataError, match="do not fit"):
        tagger("bilstm").loss(Batch(words, torch.zeros(3, 7).long()))


@pytest.mark.parametrize("wrong", [torch.tensor([[0, 3]]), torch.tensor([[0, -1]]), torch.tensor([[0, 1], [0, 1]])])
def test_a_word_that_begins_outside_its_row_is_refused(wrong: Tensor) -> None:
    with pytest.raises(DataError):
        tagger("bilstm")(Subwords(Padded.of(torch.tensor([[5, 6, 7]])), Padded.of(wrong)))


def test_picking_keeps_packed_documents_apart() -> None:
    x = Padded.of(torch.tensor([[5, 6, 7, 8]]), segments=torch.tensor([[0, 0, 1, 1]]))
    picked = x.pick(Padded.of(torch.tensor([[0, 2, 3]])))
    assert picked.values.tolist() == [[5, 7, 8]] and picked.segments.tolist() == [[0, 1, 1]] and picked.full
    assert x.pick(Padded.of(torch.zeros(1, 0).long(), torch.tensor([0]))).values.shape == (1, 0)
