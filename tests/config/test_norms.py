"""Claims about where norms stand and what they add to a variance; what was built before is built as it was."""

from typing import Any

import pytest
import torch
from torch import nn

from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig
from seqloom.config.stacks import BlockConfig, ConditionedDecoderConfig, DecoderBlockConfig, EncoderConfig
from seqloom.errors import ConfigError
from seqloom.nn.models import count_parameters
from seqloom.nn.types import Padded

TOKENS = TokensConfig(vocab_size=11)
USUAL = {"layer": 1e-5, "rms": 1e-6}


def norms(module: nn.Module) -> list[float | None]:
    return [one.eps for one in module.modules() if isinstance(one, nn.LayerNorm | nn.RMSNorm)]


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("epsilon", [None, 1e-12])
def test_every_norm_of_a_stack_adds_what_is_asked_for_or_the_usual(norm: Any, epsilon: float | None) -> None:
    mixer, expected = AttentionConfig(num_heads=2), USUAL[norm] if epsilon is None else epsilon
    block = BlockConfig(mixer=mixer, arrangement="post", norm=norm, norm_epsilon=epsilon)
    layer = DecoderBlockConfig(mixer=mixer, num_heads=2, norm=norm, norm_epsilon=epsilon)
    around: Any = {"width": 8, "entry_norm": norm, "final_norm": norm, "norm_epsilon": epsilon, "input": TOKENS}
    for config, count in (
        (EncoderConfig(layers=(block,), **around), 3),
        (ConditionedDecoderConfig(layers=(layer,), **around), 5),
    ):
        built = config.build()
        assert norms(built) == [expected] * count
        assert count_parameters(built) == config.parameters()


def test_the_entry_norm_reads_inputs_with_their_positions() -> None:
    torch.manual_seed(0)
    encoder = EncoderConfig(input=TOKENS, width=8, position="learned", max_length=4, entry_norm="layer").build()
    tokens = Padded.of(torch.tensor([[3, 1, 4, 1]]))
    expected = nn.functional.layer_norm(encoder.input.table[tokens.values] + encoder.entry[0].table, (8,))
    assert torch.allclose(encoder(tokens).values, expected, atol=1e-6)


def test_names_of_weights_stand_where_they_stood_without_an_entry_norm() -> None:
    encoder = EncoderConfig(input=TOKENS, width=8, position="learned", max_length=4, final_norm="layer").build()
    assert list(encoder.state_dict()) == [
        *("input.table", "entry.0.table", "exit.0.module.weight", "exit.0.module.bias")
    ]


def test_a_norm_that_adds_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="norm_epsilon"):
        EncoderConfig(input=TOKENS, width=8, norm_epsilon=0.0)
