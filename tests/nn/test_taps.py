"""Taps: named points that cost nothing when nobody listens, and change nothing when somebody does."""

import pytest
import torch

from seqloom import recipes
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig, GruConfig, LstmConfig, RnnConfig
from seqloom.errors import ConfigError
from seqloom.nn.ops.attention import weights
from seqloom.nn.ops.recurrence import GRU, LSTM, plain
from seqloom.nn.taps import listening, recording, taps
from seqloom.nn.types import Padded
from tolerances import assert_equal_up_to_rounding


def _batch(width: int = 8) -> Padded:
    return Padded.of(torch.randn(2, 6, width).double(), torch.tensor([6, 3]))


@pytest.mark.parametrize("name", recipes.names("language-model"))
def test_listening_to_everything_changes_nothing(name: str) -> None:
    torch.manual_seed(0)
    model = recipes.language_model(name, vocab_size=11, size="nano").build().eval()
    x = Padded.of(torch.randint(0, 11, (2, 5)))
    quiet = model(x).values
    with recording(model, "*") as heard:
        assert torch.equal(model(x).values, quiet)
    assert heard, "a family without a tap"
    assert torch.equal(model(x).values, quiet)


def test_nothing_is_made_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqloom.nn.mixers import recurrent

    made: list[object] = []
    monkeypatch.setattr(recurrent, "gates", lambda *asked: made.append(asked))
    mixer = LstmConfig().build(8).double()
    mixer(_batch())
    assert not made
    with recording(mixer, "gates"):
        mixer(_batch())
    assert made


def test_attention_weights_of_chosen_rows_are_those_that_were_used() -> None:
    torch.manual_seed(0)
    mixer, x = AttentionConfig(num_heads=2).build_causal(8).double(), _batch()
    with recording(mixer, "weights") as heard, recording(mixer, "mixed") as mixed:
        mixer(x)
    (request,) = heard["weights"]
    rows = weights(request.rows(2, 4))
    assert rows.shape == (2, 2, 2, 6)
    assert_equal_up_to_rounding(rows @ request.value, mixed["mixed"][0][:, :, 2:4], "what each head found")


@pytest.mark.parametrize(("config", "cell"), [(GruConfig(), GRU), (LstmConfig(), LSTM)])
def test_gates_recomputed_at_once_are_those_of_the_recurrence(config: object, cell: object) -> None:
    torch.manual_seed(0)
    mixer, x = config.build_causal(8).double(), _batch()
    with recording(mixer, "gates") as heard:
        mixer(x)
    (found,) = heard["gates"]
    assert found.names == cell.gates
    state = mixer.begin(2)
    for time in range(3):  # all rows are real up to here
        kept = state[0] @ mixer.hidden_weight.T + mixer.hidden_bias
        fed = x.values[:, time] @ mixer.input_weight.T + mixer.input_bias
        expected = torch.stack(cell.open(fed, kept), dim=1)
        assert_equal_up_to_rounding(found.values[:, time], expected, f"gates at {time}")
        _, state = plain(cell, x.cut(time, time + 1), state, mixer.weights)


def test_a_listener_can_put_something_else_in_place() -> None:
    mixer, x = RnnConfig().build_causal(8).double(), _batch()
    with listening(mixer, "hidden", lambda _, value: torch.zeros_like(value)):
        assert bool((mixer(x).values == 0).all())
    assert bool((mixer(x).values != 0).any())


def test_a_name_that_fits_nothing_is_an_error_with_a_suggestion() -> None:
    mixer = RnnConfig().build_causal(8)
    with pytest.raises(ConfigError, match=r"no tap matches 'hiden'.*Did you mean 'hidden'"), recording(mixer, "hiden"):
        pass


def test_every_model_names_its_taps_by_their_path() -> None:
    model = recipes.translator("transformer", source=TokensConfig(vocab_size=5), target_vocab_size=5).build()
    names = set(taps(model))
    assert "encoder.layers.0.mixer.weights" in names
    assert "decoder.layers.2.cross.weights" in names
    assert not any("Tap" in key for key in model.state_dict())


def test_what_is_offered_cannot_be_replaced() -> None:
    mixer = AttentionConfig(num_heads=2).build_causal(8).double()
    with listening(mixer, "weights", lambda _, value: value), pytest.raises(ConfigError, match="cannot be replaced"):
        mixer(_batch())
