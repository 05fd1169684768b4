"""Cross-attention: a decoder reads the outputs of an encoder."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqloom.config.mixers import Score as ScoreName
from seqloom.config.mixers import require_divisible
from seqloom.config.stacks import AlignmentConfig
from seqloom.nn.mixers.attention import Heads, Matcher
from seqloom.nn.mixers.contract import ConditionedMixer
from seqloom.nn.ops.attention import Request
from seqloom.nn.ops.attention_fast import attend
from seqloom.nn.ops.dropout import Dropout
from seqloom.nn.ops.linear import through
from seqloom.nn.ops.masks import Padding
from seqloom.nn.ops.scores import Score
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded, Places


class CrossSource(NamedTuple):
    """The memory in the form that attention reads."""

    keys: Tensor  # [B,H,S,D/H]
    values: Tensor  # [B,H,S,D/H], zero where the memory of a row is empty
    valid: Tensor  # [B,S] bool

    @property
    def depends_on_input_alone(self) -> bool:
        """Rows with the same source have the same memory (`select_rows`)."""
        return True

    @property
    def places(self) -> Places:
        """Return the positions of the keys; their order does not matter."""
        nowhere = torch.zeros_like(self.valid, dtype=torch.int64)
        return Places(nowhere, nowhere, self.valid)

    def asked(self, query: Tensor, x: Padded, score: Score, dropout: float) -> Request:
        """Return the request of queries [B,H,T,D/H] at the positions of x, with access to all of the memory."""
        layout = x.layout
        return Request(
            query,
            self.keys,
            self.values,
            layout.places,
            layout.once(("source", self.valid), lambda: self.places),
            score=score,
            mask=Padding(),
            dropout=dropout,
            heedless=True,
            shared=layout,
        )


class CrossAttention(ConditionedMixer[CrossSource]):
    """Attention to a memory: queries from the decoder, keys and values from the memory. The state never changes."""

    def __init__(self, score: ScoreName, num_heads: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        require_divisible(width, num_heads)
        self.dropout = dropout
        self.heads = Heads(width, num_heads)
        self.matcher = Matcher(score, num_heads, width // num_heads)
        self.weights = Tap()  # the Request
        self.mixed = Tap()  # [B,H,T,D/H]

    def begin(self, memory: Padded) -> CrossSource:
        layout, (keys, values) = memory.layout, self.heads.project(memory.values, self.heads.key, self.heads.value)
        if not memory.full:
            empty = layout.once("empty", lambda: (memory.lengths == 0)[:, None, None, None])
            values = values.masked_fill(empty, 0)
        return CrossSource(keys, values, layout.valid)

    def extend(self, x: Padded, inner: CrossSource) -> tuple[Padded, CrossSource]:
        query = self.heads.split(through(self.heads.query, x.values))
        request = inner.asked(query, x, self.matcher.score(), self.dropout if self.training else 0.0)
        self.weights.offer(lambda: request)
        return x.with_values(self.heads.join(self.mixed(attend(request)))), inner


class Alignment(ConditionedMixer[CrossSource]):
    """Attention of a recurrent decoder (deck E): a = sum_i alpha_i h_i, alpha from score(s, h_i); y = tanh(W [a; s]).

    The decoder state s is the query and the encoder states h_i are keys and values as they are, without projections.
    """

    def __init__(self, config: AlignmentConfig, width: int) -> None:
        super().__init__()
        self.matcher = Matcher(config.score, 1, width)
        self.combine, self.attention_dropout = nn.Linear(2 * width, width), config.attention_dropout
        self.dropout = Dropout(config.dropout)
        self.weights = Tap()  # the Request
        self.mixed = Tap()  # [B,1,T,D] the a of the formula

    def begin(self, memory: Padded) -> CrossSource:
        states = memory.with_values(memory.values).values[:, None]  # one head
        return CrossSource(states, states, memory.valid)

    def extend(self, x: Padded, inner: CrossSource) -> tuple[Padded, CrossSource]:
        dropout = self.attention_dropout if self.training else 0.0
        request = inner.asked(x.values[:, None], x, self.matcher.score(), dropout)
        self.weights.offer(lambda: request)
        both = torch.cat([self.mixed(attend(request))[:, 0], x.values], dim=-1)  # [a; s]
        return x.with_values(self.dropout(torch.tanh(self.combine(both)))), inner
