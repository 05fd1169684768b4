"""Packed documents in groups of similar length: the same results as alone, in little more room than they need."""

import pytest
import torch
from torch.testing import assert_close

from seqloom.config.mixers import (
    ConvolutionConfig,
    GruConfig,
    LinearAttentionConfig,
    LstmConfig,
    MixerConfig,
    PoolConfig,
)
from seqloom.nn.packing import by_document, unpack
from seqloom.nn.taps import recording
from seqloom.nn.types import Layout, Padded

SIZES = [[3, 40, 2], [5, 4, 3, 6, 2, 1, 9], [1], []]


def batch(sizes: list[list[int]], width: int = 8) -> Padded:
    """Rows of packed documents of these sizes."""
    time = max(sum(row) for row in sizes)
    segments = torch.zeros(len(sizes), time, dtype=torch.int64)
    for row, of_row in enumerate(sizes):
        segments[row, : sum(of_row)] = torch.repeat_interleave(torch.tensor(of_row, dtype=torch.int64))
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(len(sizes), time, width, generator=generator, dtype=torch.float64).requires_grad_()
    return Padded.of(values, torch.tensor([sum(row) for row in sizes]), segments)


@pytest.mark.parametrize(
    "config",
    [
        LstmConfig(),
        GruConfig(weight_dropout=0.5),
        ConvolutionConfig(kernel_sizes=(3,)),
        LinearAttentionConfig(num_heads=2),
        PoolConfig(),
    ],
    ids=lambda config: config.kind(),
)
def test_every_document_is_computed_as_if_it_were_alone(config: MixerConfig) -> None:
    torch.manual_seed(0)
    layer = config.build_causal(8).double()
    x = batch(SIZES).laid_out()
    torch.manual_seed(1)
    y = layer(x).values
    torch.manual_seed(1)
    alone = unpack(x)
    expected = alone.repack(layer(alone.rows), x).values
    assert_close(y, expected)
    (mine,) = torch.autograd.grad(y.square().sum(), x.values)
    (theirs,) = torch.autograd.grad(expected.square().sum(), x.values)
    assert_close(mine, theirs)


def test_one_long_document_does_not_make_all_others_long() -> None:
    sizes = [[400], *([[20] * 20] * 15)]
    shapes: list[tuple[int, ...]] = []

    def keep(rows: Padded) -> Padded:
        shapes.append(tuple(rows.values.shape[:2]))
        return rows

    x = batch(sizes, 1)
    assert torch.equal(by_document(keep, x).values, x.values)
    assert sorted(shapes) == [(1, 400), (300, 20)]


def test_documents_of_one_length_are_one_group_without_padding() -> None:
    seen: list[bool] = []
    by_document(lambda rows: seen.append(rows.full) or rows, batch([[7, 7], [7, 7]]))
    assert seen == [True]


def test_groups_are_made_once_for_all_layers_and_from_the_copy_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    x = batch(SIZES)
    host = x.lengths.clone(), x.segments.clone()
    x = x._replace(shared=Layout(x.lengths, x.segments, time=x.values.shape[1], host=host))
    monkeypatch.setattr(torch.Tensor, "item", lambda _: pytest.fail("the device was waited for"))
    shared = x.layout
    by_document(lambda rows: rows, x)
    (groups,) = (made for key, made in shared._made.items() if key == ("documents", False))
    host[0].zero_()  # a second layer does not look at it
    by_document(lambda rows: rows, x.with_any(x.values))
    assert x.layout is shared and shared._made["documents", False] is groups


def test_listeners_see_all_documents_in_one_call() -> None:
    layer = LstmConfig().build_causal(8).double()
    with recording(layer, "hidden") as heard:
        layer(batch([[400], [3] * 100]))
    assert [tuple(value.shape) for value in heard["hidden"]] == [(101, 400, 8)]


def test_a_batch_without_elements_stays_empty() -> None:
    x = Padded.of(torch.zeros(2, 3, 8), torch.tensor([0, 0]), torch.zeros(2, 3, dtype=torch.int64))
    assert not LstmConfig().build_causal(8)(x).values.any()
