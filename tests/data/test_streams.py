"""Claims about plans for language modeling: every token is said once, contiguous or packed, and models agree."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from seqloom import recipes
from seqloom.data.loader import Loader, collate, packed_batch, stream_batch
from seqloom.data.order import Packs, Streams, rows_of_sizes
from seqloom.data.schema import Schema
from seqloom.errors import DataError
from seqloom.nn.ops.losses import cross_entropy
from seqloom.nn.types import Batch, Padded
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import BEGIN, END
from tolerances import assert_equal_up_to_rounding

documents = st.lists(st.lists(st.integers(6, 40), max_size=15), min_size=1, max_size=25)


def column(rows: list[list[int]]) -> Ragged:
    return Ragged.of(rows, np.int32)


def model() -> nn.Module:
    torch.manual_seed(0)
    built = recipes.language_model("lstm", vocab_size=41, size="nano").build()
    for weight in built.parameters():
        nn.init.normal_(weight, std=0.3)
    return built.double().eval()


@given(documents, st.integers(1, 6), st.integers(1, 9), st.integers(1, 3), st.integers(0, 3))
def test_streams_say_every_token_once_and_read_the_one_before_it(
    rows: list[list[int]], width: int, length: int, ranks: int, epoch: int
) -> None:
    said = [token for row in rows for token in [*row, END]]
    read = [BEGIN, *said[:-1]]
    streams = Streams(column(rows), width, length)
    lines: dict[int, list[tuple[int, int]]] = {row: [] for row in range(width)}
    for index in range(streams.count(epoch)):
        assert streams.carried(index) == (index > 0)
        for rank in range(ranks):
            cut = streams.share(epoch, index, rank, ranks)
            if cut is None:
                assert rank >= width
                continue
            assert cut.rows.tolist() == list(range(width))[rank::ranks]
            assert cut.width <= length
            for row, size, *pairs in zip(cut.rows.tolist(), cut.lengths.tolist(), *streams.read(cut), strict=True):
                lines[row].extend(zip(pairs[0][:size].tolist(), pairs[1][:size].tolist(), strict=True))
                assert not pairs[0][size:].any() and not pairs[1][size:].any()
    assert [pair for row in range(width) for pair in lines[row]] == list(zip(read, said, strict=True))
    assert max(map(len, lines.values())) - min(map(len, lines.values())) <= 1


def test_gradients_of_streams_end_at_other_tokens_in_each_epoch_but_the_first_is_cut_from_the_beginning() -> None:
    streams = Streams(column([[7] * 999]), rows=2, length=50, seed=3)
    firsts = [int(streams.share(epoch, 0, 0, 1).lengths[0]) for epoch in range(20)]
    assert firsts[0] == 50 and len(set(firsts)) > 10 and min(firsts) >= 1
    assert all(set(streams.share(epoch, 1, 0, 1).lengths) == {50} for epoch in range(20))
    assert firsts == [int(streams.share(epoch, 0, 0, 1).lengths[0]) for epoch in range(20)]


def test_streams_read_a_part_of_a_larger_column() -> None:
    whole = column([[10, 11], [12], [13, 14, 15], [16]])
    part = Ragged(whole.values, whole.starts[1:4])
    cut = Streams(part, 1, 99).share(0, 0, 0, 1)
    assert Streams(part, 1, 99).read(cut)[1].tolist() == [[12, END, 13, 14, 15, END]]


def test_the_state_carried_over_streams_gives_the_loss_of_the_whole_row() -> None:
    rows = [list(range(6 + start, 12 + start)) for start in range(9)]
    net, streams = model(), Streams(column(rows), rows=3, length=5)
    total, state = 0.0, None
    for step in Loader(streams, lambda cut: stream_batch(streams, cut)).steps(until=1):
        x, targets, *_ = step.batch
        state = state if step.carried else net.initial_state(len(x.lengths))
        scores, state = net.step(x, state)
        total += cross_entropy(scores.values, targets, weights=x.valid).total
    whole = Streams(column(rows), rows=3, length=10_000)
    assert whole.count(0) == 1 < streams.count(0)
    expected = net.loss(stream_batch(whole, whole.share(0, 0, 0, 1))).total
    assert_equal_up_to_rounding(total, expected, "carried")


def elements(batch: Batch, row: int) -> list[tuple[int, int, int]]:
    """Segment, token read and token to say of the real elements of a row."""
    size, x = int(batch.inputs.lengths[row]), batch.inputs
    return list(zip(*(t[row, :size].tolist() for t in (x.segments, x.values, batch.targets)), strict=True))


def windows(whole: list[tuple[int, int]], size: int) -> list[list[tuple[int, int]]]:
    return [whole[start : start + size] for start in range(len(whole) - size + 1)]


@pytest.mark.slow
@given(documents, st.integers(1, 20), st.integers(1, 4), st.integers(0, 2**63 - 1), st.integers(1, 3))
def test_packs_hold_every_document_or_piece_once_and_never_mix_them(
    rows: list[list[int]], row_length: int, height: int, seed: int, ranks: int
) -> None:
    tokens = column(rows)
    packs = Packs(tokens.lengths + 1, row_length, height, seed)
    assert packs.cut == sum(len(row) + 1 > row_length for row in rows)
    found: dict[str, list[list[tuple[int, int]]]] = {}
    for index in range(packs.count(4)):
        for rank in range(ranks):
            share = packs.share(4, index, rank, ranks)
            if share is None:
                continue
            batch = packed_batch(tokens, share)
            assert batch.inputs.values.shape[1] <= row_length and len(batch.inputs.lengths) <= height
            names = iter(batch.ids)
            for row in range(len(batch.inputs.lengths)):
                line = elements(batch, row)
                for segment in dict.fromkeys(element[0] for element in line):
                    piece = [element[1:] for element in line if element[0] == segment]
                    found.setdefault(next(names), []).append(piece)
            assert next(names, None) is None
    for number, row in enumerate(rows):
        expected = list(zip([BEGIN, *row], [*row, END], strict=True))
        pieces = found.pop(str(number))
        assert sorted(pair for piece in pieces for pair in piece) == sorted(expected)
        assert all(piece in windows(expected, len(piece)) for piece in pieces)
        assert sum(len(piece) < row_length for piece in pieces) <= 2  # the first and the last
    assert not found


@settings(max_examples=30)
@given(documents, st.integers(0, 2**63 - 1), st.integers(0, 99))
def test_packing_is_a_function_of_seed_and_epoch_alone(rows: list[list[int]], seed: int, epoch: int) -> None:
    sizes = column(rows).lengths + 1
    one, other = Packs(sizes, 16, 2, seed), Packs(sizes, 16, 2, seed)
    other.packed(epoch + 1)
    for field, same in zip(one.packed(epoch), other.packed(epoch), strict=True):
        assert field.tolist() == same.tolist()


def sentences() -> np.ndarray:
    """Lengths like those of the Penn Treebank: 42,068 sentences of 21 words, 82 at most, and END."""
    drawn = np.random.Generator(np.random.PCG64(3)).lognormal(2.93, 0.52, 42_068)
    return np.clip(np.rint(drawn), 1, 82).astype(np.int64) + 1


@pytest.mark.parametrize("row_length", [96, 128, 256, 512])
def test_rows_of_packed_sentences_are_full(row_length: int) -> None:
    packs = Packs(sentences(), row_length, 32, seed=0)
    fill = packs.summary(0)
    assert fill.fill >= 0.95 and packs.cut == 0
    assert fill.padding == pytest.approx(1 - sentences().sum() / (packs.packed(0).rows * row_length))


def test_documents_that_fit_exactly_share_a_row() -> None:
    packs = Packs(np.array([7, 1] * 50), row_length=8, rows=4, seed=0)
    assert packs.summary(0).fill == 1.0


def test_packed_neighbors_change_from_epoch_to_epoch_and_from_seed_to_seed() -> None:
    def neighbors(seed: int, epoch: int) -> set[tuple[int, int]]:
        packed = Packs(sentences()[:4000], 128, 16, seed).packed(epoch)
        rows = (sorted(packed.row(row).tolist()) for row in range(packed.rows))
        return {(one, other) for row in rows for one in row for other in row if one < other}

    first = neighbors(0, 0)
    assert len(first & neighbors(0, 1)) < 0.05 * len(first)
    assert len(first & neighbors(1, 0)) < 0.05 * len(first)


def test_the_loss_of_a_packed_batch_is_the_sum_of_the_losses_of_its_documents() -> None:
    rows = [[7, 8, 9], [10], [], [11, 12, 13, 14], [15, 16], [17, 18, 19, 20, 21, 22]]
    net, tokens = model(), column(rows)
    packs = Packs(tokens.lengths + 1, 8, 8, seed=1)
    batch = packed_batch(tokens, packs.share(0, 0, 0, 1))
    assert packs.count(0) == 1 and packs.packed(0).rows < len(rows)
    alone = [net.loss(collate(Schema("text", "nothing"), {"input": tokens}, np.array([n]))) for n in range(len(rows))]
    found = net.loss(batch)
    assert_equal_up_to_rounding(found.total, torch.stack([loss.total for loss in alone]).sum(), "packed")
    assert float(found.weight) == sum(float(loss.weight) for loss in alone)


def test_both_go_through_the_loader_alike_for_any_workers() -> None:
    tokens = column([list(range(6, 6 + size)) for size in range(1, 30)])
    streams, packs = Streams(tokens, 4, 7), Packs(tokens.lengths + 1, 32, 3, seed=2)
    for plan, make in (
        (streams, lambda cut: stream_batch(streams, cut)),
        (packs, lambda rows: packed_batch(tokens, rows)),
    ):
        expected = list(Loader(plan, make, workers=0).steps(until=2))
        for workers in (1, 3):
            found = list(Loader(plan, make, workers=workers).steps(until=2))
            assert len(found) == len(expected) > 4
            for one, other in zip(found, expected, strict=True):
                assert (one.epoch, one.index, one.carried) == (other.epoch, other.index, other.carried)
                assert torch.equal(one.batch.inputs.values, other.batch.inputs.values)
                assert torch.equal(one.batch.targets, other.batch.targets) and one.batch.ids == other.batch.ids


def test_a_full_batch_says_so() -> None:
    streams = Streams(column([[7] * 9, [8] * 9]), rows=2, length=5)
    cut = streams.share(0, 0, 0, 1)
    assert isinstance(stream_batch(streams, cut).inputs, Padded) and stream_batch(streams, cut).inputs.full
    odd = Streams(column([[7] * 9, [8] * 8]), rows=2, length=5)
    assert not stream_batch(odd, odd.share(0, 1, 0, 1)).inputs.full


@pytest.mark.parametrize(("rows", "length"), [(0, 5), (5, 0)])
def test_nothing_to_read_is_refused(rows: int, length: int) -> None:
    with pytest.raises(DataError):
        Streams(column([[7]]), rows, length)
    with pytest.raises(DataError):
        Packs(np.array([3]), length, rows, 0)
    with pytest.raises(DataError, match="1 or more"):
        Packs(np.array([3, 0]), 5, 5, 0)


def test_the_fingerprint_of_a_plan_changes_with_everything_that_decides_it() -> None:
    documents, others = column([[7] * 3, [8] * 5]), [column([[7] * 5, [8] * 3]), column([[7] * 3, [8] * 5, []])]
    streams = [
        Streams(documents, 2, 5),
        Streams(documents, 3, 5),
        Streams(documents, 2, 6),
        Streams(documents, 2, 5, 1),
    ]
    streams += [Streams(other, 2, 5) for other in others]
    packs = [Packs(documents.lengths + 1, 8, 2, seed=0), Packs(documents.lengths + 1, 9, 2, seed=0)]
    packs += [Packs(documents.lengths + 1, 8, 3, seed=0), Packs(documents.lengths + 1, 8, 2, seed=1)]
    packs += [Packs(other.lengths + 1, 8, 2, seed=0) for other in others]
    assert len({plan.fingerprint() for plan in [*streams, *packs]}) == len(streams) + len(packs) == 12
    assert Streams(column([[9] * 3, [9] * 5]), 2, 5).fingerprint() == streams[0].fingerprint()


def best_fit_decreasing(sizes: list[int], row_length: int) -> list[int]:
    """The rule said plainly: the largest first, each into the row with the least room that is enough."""
    rows: list[int] = []
    for size in sorted(sizes, reverse=True):
        fullest = max((row for row in rows if row + size <= row_length), default=None)
        if fullest is not None:
            rows.remove(fullest)
        rows.append((fullest or 0) + size)
    return sorted(rows)


@given(st.lists(st.integers(1, 12), max_size=40), st.integers(12, 20))
def test_rows_filled_together_are_as_full_as_those_filled_one_by_one(sizes: list[int], row_length: int) -> None:
    alike = rows_of_sizes(np.array(sizes, np.int64), row_length)
    assert sorted(sum(one.sizes) for one in alike for _ in range(one.rows)) == best_fit_decreasing(sizes, row_length)
    assert sorted(size for one in alike for size in one.sizes * one.rows) == sorted(sizes)


def first_pieces(packs: Packs, epoch: int) -> list[int]:
    pieces = packs.pieces(epoch)
    return pieces.sizes[pieces.starts == 0].tolist()


def test_a_document_longer_than_a_row_is_cut_at_other_places_in_every_epoch_but_the_first() -> None:
    packs = Packs(np.array([1_000, 5, 900]), row_length=64, rows=2, seed=3)
    assert first_pieces(packs, 0) == [64, 5, 64]  # evaluation reads this one
    drawn = [tuple(first_pieces(packs, epoch)) for epoch in range(1, 30)]
    assert len(set(drawn)) > 25
    assert all(1 <= first <= 64 and short == 5 and 1 <= last <= 64 for first, short, last in drawn)


def test_where_documents_are_cut_is_a_function_of_seed_and_epoch_alone() -> None:
    one, other = (Packs(np.array([1_000, 900]), 64, 2, seed=3) for _ in range(2))
    other.packed(9)
    assert first_pieces(one, 4) == first_pieces(other, 4)
    assert first_pieces(one, 4) != first_pieces(Packs(np.array([1_000, 900]), 64, 2, seed=4), 4)


def test_documents_that_fit_are_never_cut() -> None:
    packs = Packs(sentences()[:500], 128, 4, seed=0)
    assert first_pieces(packs, 7) == sentences()[:500].tolist()
