"""The regularizers of recurrent language models (Merity et al. 2018): what each leaves out, and that off is off."""

from typing import Any

import pytest
import torch
from torch import Tensor

from seqloom.config.heads import NextTokenHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import GruConfig, LstmConfig, RnnConfig
from seqloom.config.models import LanguageModelConfig
from seqloom.config.stacks import BlockConfig, DecoderConfig
from seqloom.nn.ops.dropout import dropout
from seqloom.nn.ops.recurrence import recur
from seqloom.nn.stacks import SequenceDropout
from seqloom.nn.types import Batch, Padded
from tolerances import assert_equal_up_to_rounding

WIDTH, VOCABULARY = 8, 11
RECURRENCES = [RnnConfig, GruConfig, LstmConfig]


def language_model(seed: int = 0, **settings: Any) -> Any:
    """A small LSTM; `settings` are those of the model, and with dots those of its parts."""
    own = {name: value for name, value in settings.items() if "." not in name}

    def of(part: str) -> dict[str, Any]:
        return {name.removeprefix(f"{part}."): value for name, value in settings.items() if name.startswith(f"{part}.")}

    torch.manual_seed(seed)
    layer = BlockConfig(mixer=LstmConfig(**of("mixer")), **of("layer"))
    decoder = DecoderConfig(
        input=TokensConfig(vocab_size=VOCABULARY, **of("input")), width=WIDTH, layers=(layer, layer), **of("decoder")
    )
    return LanguageModelConfig(decoder=decoder, head=NextTokenHeadConfig(vocab_size=VOCABULARY), **own).build()


def batch(rows: int = 3, time: int = 6) -> Batch[Padded, Tensor]:
    tokens = torch.randint(0, VOCABULARY, (rows, time + 1), generator=torch.Generator().manual_seed(5))
    return Batch(Padded.of(tokens[:, :-1], torch.tensor([time, time - 2, 1])), tokens[:, 1:])


ON: list[dict[str, Any]] = [
    {"decoder.dropout": 0.5, "decoder.dropout_mask": "sequence"},
    {"layer.dropout": 0.5, "layer.dropout_mask": "sequence"},
    {"input.token_dropout": 0.5},
    {"mixer.weight_dropout": 0.5},
    {"size_penalty": 2.0},
    {"change_penalty": 1.0},
]


@pytest.mark.parametrize("settings", ON, ids=lambda settings: next(iter(settings)))
def test_a_regularizer_acts_in_training_and_only_there(settings: dict[str, Any]) -> None:
    plain, regularized = language_model(), language_model(**settings)
    regularized.load_state_dict(plain.state_dict())
    assert torch.equal(plain.eval().loss(batch()).total, regularized.eval().loss(batch()).total)
    torch.manual_seed(1)
    assert not torch.equal(plain.train().loss(batch()).total, regularized.train().loss(batch()).total)


@pytest.mark.parametrize("settings", ON, ids=lambda settings: next(iter(settings)))
def test_training_is_decided_by_the_seed_of_the_step(settings: dict[str, Any]) -> None:
    model, found = language_model(**settings).train(), []
    for seed in (3, 3):
        torch.manual_seed(seed)
        model.zero_grad()
        loss, _ = model.continued_loss(batch(), None)
        loss.total.backward()
        found.append([weight.grad.clone() for weight in model.parameters()])
    assert all(map(torch.equal, *found))


def test_with_everything_off_nothing_is_drawn() -> None:
    model = language_model(**{"decoder.dropout_mask": "sequence", "layer.dropout_mask": "sequence"}).train()
    before = torch.get_rng_state()
    model.loss(batch())
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_of_a_sequence_has_one_mask_for_all_elements_and_another_for_each_row() -> None:
    torch.manual_seed(0)
    kept = SequenceDropout(0.4).train()(torch.ones(50, 7, 40))
    assert torch.equal(kept, kept[:, :1].expand_as(kept))
    assert sorted(kept.unique().tolist()) == pytest.approx([0, 1 / 0.6])
    assert not torch.equal(kept[0], kept[1])
    assert kept.mean().item() == pytest.approx(1, abs=0.05)  # 2,000 draws


def test_a_token_is_left_out_at_all_its_places_of_a_step_or_at_none() -> None:
    table = TokensConfig(vocab_size=500, token_dropout=0.3).build(4)
    tokens = torch.arange(500).repeat(2, 3)  # every token three times in each of two rows
    torch.manual_seed(0)
    out = table.train()(Padded.of(tokens)).values.view(6, 500, 4)
    assert torch.equal(out, out[:1].expand_as(out))
    gone = (out[0] == 0).all(dim=-1)
    assert gone.float().mean().item() == pytest.approx(0.3, abs=0.07)
    assert_equal_up_to_rounding(out[0][~gone], table.table[~gone] / 0.7, "kept tokens")


@pytest.mark.parametrize("kind", RECURRENCES, ids=lambda kind: kind.kind())
def test_weights_from_state_to_state_are_left_out_and_no_others(kind: Any) -> None:
    torch.manual_seed(0)
    mixer = kind(weight_dropout=0.5).build(WIDTH)
    x = Padded.of(torch.randn(2, 5, WIDTH))
    torch.manual_seed(7)
    found = mixer.train()(x).values
    torch.manual_seed(7)
    hidden = dropout(mixer.hidden_weight, 0.5)
    assert 0 < int((hidden == 0).sum()) < hidden.numel()
    expected, _ = recur(mixer.cell, x, mixer.begin(2), mixer.weights._replace(hidden=hidden))
    assert_equal_up_to_rounding(found, expected, "dropped weights")
    first = mixer.eval()(x).values[:, 0]  # the first state is zero: what leads from it changes nothing
    assert_equal_up_to_rounding(found[:, 0], first, "the first element")


def test_weights_that_were_left_out_get_no_gradient() -> None:
    torch.manual_seed(0)
    mixer, x = LstmConfig(weight_dropout=0.5).build(WIDTH).train(), Padded.of(torch.randn(2, 5, WIDTH))
    torch.manual_seed(7)
    mixer(x).values.sum().backward()
    torch.manual_seed(7)
    gone = dropout(torch.ones_like(mixer.hidden_weight), 0.5) == 0
    assert bool((mixer.hidden_weight.grad[gone] == 0).all())
    assert bool((mixer.hidden_weight.grad[~gone] != 0).any())


def test_penalties_are_those_of_the_definition() -> None:
    model = language_model(size_penalty=2.0, change_penalty=1.0).train()
    given = batch()
    x = model.features(given.inputs)
    rows = [x.values[row, : int(length)] for row, length in enumerate(given.inputs.lengths)]
    size = sum(row.square().mean(dim=-1).sum() for row in rows)
    change = sum((row[1:] - row[:-1]).square().mean(dim=-1).sum() for row in rows)
    loss = model.head.loss(x, given.targets)
    assert_equal_up_to_rounding(model.loss(given).total, loss.total + 2 * size + change, "penalties")
    assert torch.equal(model.loss(given).weight, loss.weight)


def test_the_change_from_one_packed_document_to_the_next_is_no_change() -> None:
    model = language_model(change_penalty=1.0).train()
    tokens = torch.randint(0, VOCABULARY, (1, 7))
    together = Padded.of(tokens[:, :-1], segments=torch.tensor([[0, 0, 0, 0, 1, 1]]))
    apart = [Padded.of(tokens[:, :4]), Padded.of(tokens[:, 4:6])]
    expected = model.loss(Batch(apart[0], tokens[:, 1:5])).total + model.loss(Batch(apart[1], tokens[:, 5:])).total
    assert_equal_up_to_rounding(model.loss(Batch(together, tokens[:, 1:])).total, expected, "packed")
