"""The mixers: every way in which the positions of a sequence may see one another. One closed union of our own names.

Which choices mean something together is one table, used by the configuration, the laws and the kernel tests:

position    where it acts                        with
none        nowhere                              everything
learned     added to (or beside) the inputs      everything
sinusoidal  added to (or beside) the inputs      everything
alibi       a bias on the scores                 softmax attention, any score
t5          a bias on the scores                 softmax attention, any score
shaw        vectors in keys and values           softmax attention, scores that are dot products
rotary      turns queries and keys               softmax attention, dot and scaled_dot
"""

from typing import TYPE_CHECKING, Any, Literal, get_args

from seqloom.config.base import MAX_WIDTH, Config, Heads, Rate, Span, Taps
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.nn.mixers.contract import CausalMixer, Mixer
    from seqloom.nn.mixers.recurrent import Recurrent

Position = Literal["none", "learned", "sinusoidal", "shaw", "alibi", "rotary", "t5"]
Score = Literal["dot", "scaled_dot", "additive", "bilinear"]

POSITIONS: tuple[Position, ...] = get_args(Position)
SCORES: tuple[Score, ...] = get_args(Score)
RELATIVE: tuple[Position, ...] = ("shaw", "alibi", "rotary", "t5")

_NO_SCORES = "linear attention never forms the scores, so nothing can be added to one of them"
_NOT_POSITIVE = "turned features are no longer positive, so the weights would not be a distribution"
_REFUSALS: dict[tuple[str, str], str] = {
    ("linear-attention", "shaw"): _NO_SCORES,
    ("linear-attention", "alibi"): _NO_SCORES,
    ("linear-attention", "t5"): _NO_SCORES,
    ("linear-attention", "rotary"): _NOT_POSITIVE,
    ("additive", "shaw"): "Shaw's key vectors enter by a dot product with the query, and an additive score has none",
    ("additive", "rotary"): "turning queries and keys makes a score relative only when it is their dot product",
    ("bilinear", "rotary"): "the matrix between query and key does not commute with the turning",
}


def refusal(mixer: str, *, score: Score = "scaled_dot", position: Position = "none") -> str | None:
    """Why a mixer, a score and a kind of position make no sense together, or None when they do.

    >>> refusal("lstm", position="rotary")
    "relative positions act on attention scores, and 'lstm' has none"
    >>> refusal("attention", score="additive", position="alibi") is None
    True
    """
    if position not in RELATIVE:
        return None
    if mixer == "cross-attention":
        return "source and target have no common distance"
    if reason := _REFUSALS.get((mixer, position)):
        return reason
    if mixer != "attention":
        return f"relative positions act on attention scores, and '{mixer}' has none"
    return _REFUSALS.get((score, position))


SHAW_RADIUS = 16
T5_BUCKETS = 32
T5_FARTHEST = 128
MAX_HELD = 2**24  # numbers that a convolution may have to remember for each row
MAX_REACH = 2**20  # elements that a convolution may look back: it remembers them all


class MixerConfig(Config):
    """Base of the mixers: each maps a sequence of vectors to one of the same width."""

    def fit(self, width: int, position: Position = "none") -> None:
        """Raise ConfigError if this mixer cannot have this width or take this kind of position."""
        if reason := refusal(self.kind(), position=position):
            raise ConfigError(
                f"position '{position}' with the mixer '{self.kind()}': {reason}",
                fix="choose position 'sinusoidal', 'learned' or 'none'",
            )

    def fit_causal(self) -> None:
        """Raise ConfigError if this mixer cannot be read one element at a time."""

    def reads_edges(self) -> bool:
        """Whether its input must be a graph: nodes with edges."""
        return False

    def parameters(self, width: int, position: Position = "none") -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def build(self, width: int, position: Position = "none") -> "Mixer":
        """The mixer for whole sequences: positions see both sides where the family can."""
        raise NotImplementedError

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        """The mixer that never looks ahead and can be stepped."""
        raise NotImplementedError


class PoolConfig(MixerConfig, tag="pool", kw_only=True):
    """Every position sees the mean, sum or maximum of all; causal: of all so far."""

    how: Literal["mean", "sum", "max"] = "mean"

    def parameters(self, width: int, position: Position = "none") -> int:
        return 0

    def build(self, width: int, position: Position = "none") -> "Mixer":
        from seqloom.nn.mixers.pool import Pool

        return Pool(self, width)

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        from seqloom.nn.mixers.pool import RunningPool

        return RunningPool(self, width)


class ConvolutionConfig(MixerConfig, tag="convolution", kw_only=True):
    """Filters slid over the sequence, centered or causal; several sizes share the width, as in Kim 2014."""

    kernel_sizes: tuple[Taps, ...] = (3,)
    dilation: Span = 1
    activation: Literal["none", "relu", "tanh", "gelu"] = "relu"

    def check(self) -> None:
        if not self.kernel_sizes:
            raise ConfigError("kernel_sizes is empty", fix="give at least one, for example [3, 4, 5]")
        reach = (max(self.kernel_sizes) - 1) * self.dilation
        if reach > MAX_REACH:
            raise ConfigError(
                f"a filter of {max(self.kernel_sizes)} taps {self.dilation:,} apart reaches over {reach:,} elements; "
                f"the limit is {MAX_REACH:,}",
                fix="take a smaller dilation",
            )

    def fit(self, width: int, position: Position = "none") -> None:
        MixerConfig.fit(self, width, position)
        if (held := (max(self.kernel_sizes) - 1) * self.dilation * width) > MAX_HELD:
            raise ConfigError(
                f"a filter that reaches over {held // width:,} elements of width {width:,} would have {held:,} numbers "
                f"to remember for each row; the limit is {MAX_HELD:,}",
                fix="take a smaller dilation",
            )
        count = len(self.kernel_sizes)
        if width % count:
            raise ConfigError(
                f"{count} kernel sizes cannot share a width of {width} evenly",
                fix=f"take width = {nearest_width(width, count)}, or another number of kernel sizes",
            )

    def parameters(self, width: int, position: Position = "none") -> int:
        filters = width // len(self.kernel_sizes)
        return sum(filters * (width * size + 1) for size in self.kernel_sizes)

    def build(self, width: int, position: Position = "none") -> "Mixer":
        from seqloom.nn.mixers.convolution import Convolution

        return Convolution(self, width)

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        from seqloom.nn.mixers.convolution import CausalConvolution

        return CausalConvolution(self, width)


class RecurrentConfig(MixerConfig, kw_only=True):
    """Base of the recurrences: a hidden state of the model's width, read left to right in every model."""

    weight_dropout: Rate = 0.0  # of the weights from state to state, drawn once a step (Merity et al. 2018)

    def gates(self) -> int:
        """How many blocks of rows the weight matrices have."""
        raise NotImplementedError

    def parameters(self, width: int, position: Position = "none") -> int:
        return self.parameters_reading(width, width)

    def parameters_reading(self, input_width: int, width: int) -> int:
        """The number of weights of a layer whose input has another width than its state."""
        return self.gates() * (input_width * width + width * width + 2 * width)

    def build(self, width: int, position: Position = "none") -> "Recurrent":
        return self.build_reading(width, width)

    def build_causal(self, width: int, position: Position = "none") -> "Recurrent":
        return self.build_reading(width, width)

    def build_reading(self, input_width: int, width: int) -> "Recurrent":
        """The layer whose input has another width than its state."""
        from seqloom.nn.mixers.recurrent import Recurrent

        return Recurrent(self, input_width, width)


class RnnConfig(RecurrentConfig, tag="rnn", kw_only=True):
    """The Elman network: h' = f(W x + U h)."""

    activation: Literal["tanh", "relu"] = "tanh"

    def gates(self) -> int:
        return 1


class GruConfig(RecurrentConfig, tag="gru", kw_only=True):
    """The gated recurrent unit of Cho et al. 2014."""

    def gates(self) -> int:
        return 3


class LstmConfig(RecurrentConfig, tag="lstm", kw_only=True):
    """The long short-term memory of Hochreiter and Schmidhuber 1997, with forget gate."""

    def gates(self) -> int:
        return 4


class FullConfig(Config, tag="full", kw_only=True):
    """Every position sees every other."""


class WindowConfig(Config, tag="window", kw_only=True):
    """Positions see those less than `size` away."""

    size: Span = 256


class SparseConfig(Config, tag="sparse", kw_only=True):
    """Positions see their own block of `size` and every size-th position from theirs (Child et al. 2019)."""

    size: Span = 64


class EdgesConfig(Config, tag="edges", kw_only=True):
    """Nodes of a graph see themselves and the nodes that an edge joins to them (Velickovic et al. 2018)."""


Pattern = FullConfig | WindowConfig | SparseConfig | EdgesConfig


class AttentionConfig(MixerConfig, tag="attention", kw_only=True):
    """Multi-head self-attention: full, windowed, sparse or along the edges of a graph, with any score."""

    num_heads: Heads = 8
    score: Score = "scaled_dot"
    pattern: Pattern = FullConfig()
    dropout: Rate = 0.0

    def fit(self, width: int, position: Position = "none") -> None:
        require_divisible(width, self.num_heads, position)
        if reason := refusal(self.kind(), score=self.score, position=position):
            raise ConfigError(
                f"position '{position}' with an attention score '{self.score}': {reason}",
                fix="choose another score or position",
            )
        if self.reads_edges() and position in RELATIVE:
            raise ConfigError(
                f"position '{position}' with the pattern 'edges': nodes of a graph have no order, so no distance",
                fix="choose position 'none'",
            )

    def fit_causal(self) -> None:
        if self.reads_edges():
            raise ConfigError(
                "the pattern 'edges' needs a whole graph, so it cannot go forward one element at a time",
                fix="take the pattern 'full', 'window' or 'sparse' in a decoder",
            )

    def reads_edges(self) -> bool:
        return isinstance(self.pattern, EdgesConfig)

    def parameters(self, width: int, position: Position = "none") -> int:
        tables = {"shaw": 2 * (2 * SHAW_RADIUS + 1) * width // self.num_heads, "t5": T5_BUCKETS * self.num_heads}
        return heads_parameters(width, self.num_heads, self.score) + tables.get(position, 0)

    def build(self, width: int, position: Position = "none") -> "Mixer":
        from seqloom.nn.mixers.attention import SelfAttention

        return SelfAttention(self, width, position)

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        self.fit_causal()
        from seqloom.nn.mixers.attention import CausalSelfAttention

        return CausalSelfAttention(self, width, position)


class LinearAttentionConfig(MixerConfig, tag="linear-attention", kw_only=True):
    """Attention without the softmax, linear in the length (Katharopoulos et al. 2020)."""

    num_heads: Heads = 8

    def fit(self, width: int, position: Position = "none") -> None:
        MixerConfig.fit(self, width, position)
        require_divisible(width, self.num_heads)

    def parameters(self, width: int, position: Position = "none") -> int:
        return heads_parameters(width, self.num_heads, "dot")

    def build(self, width: int, position: Position = "none") -> "Mixer":
        from seqloom.nn.mixers.linear import LinearAttention

        return LinearAttention(self, width)

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        from seqloom.nn.mixers.linear import CausalLinearAttention

        return CausalLinearAttention(self, width)


class BidirectionalConfig(MixerConfig, tag="bidirectional", kw_only=True):
    """Two recurrences with half the width each, one reading from each end, side by side."""

    mixer: RnnConfig | GruConfig | LstmConfig = LstmConfig()

    def fit(self, width: int, position: Position = "none") -> None:
        MixerConfig.fit(self, width, position)
        if width % 2:
            raise ConfigError(f"two directions cannot share a width of {width} evenly", fix=f"take width = {width + 1}")

    def fit_causal(self) -> None:
        raise ConfigError(
            "'bidirectional' reads from both ends, so it cannot go forward one element at a time",
            fix=f"take '{self.mixer.kind()}' by itself in a decoder",
        )

    def parameters(self, width: int, position: Position = "none") -> int:
        return 2 * self.mixer.parameters_reading(width, width // 2)

    def build(self, width: int, position: Position = "none") -> "Mixer":
        from seqloom.nn.mixers.bidirectional import Bidirectional

        return Bidirectional(self, width)

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        self.fit_causal()
        raise AssertionError("fit_causal refuses")


OneWay = (
    PoolConfig
    | ConvolutionConfig
    | RnnConfig
    | GruConfig
    | LstmConfig
    | AttentionConfig
    | LinearAttentionConfig  # one line for each, so that a new one is one line
)
AnyMixer = OneWay | BidirectionalConfig


def require_divisible(width: int, num_heads: int, position: Position = "none") -> None:
    """Raise ConfigError unless the heads share the width evenly; rotary positions turn pairs, so a share is even."""
    share = 2 if position == "rotary" else 1
    if width % (num_heads * share) == 0:
        return
    evenly = "evenly" if share == 1 else "in the pairs that rotary positions turn"
    fewer = [f"num_heads = {heads}" for heads in range(1, num_heads) if width % (heads * share) == 0]
    raise ConfigError(
        f"{num_heads} heads cannot share a width of {width} {evenly}",
        fix=f"take {' or '.join([*fewer[-1:], f'width = {nearest_width(width, num_heads * share)}'])}",
    )


def nearest_width(width: int, multiple_of: int) -> int:
    """The legal width nearest to one that would not do.

    >>> nearest_width(510, 8), nearest_width(3, 8), nearest_width(65_535, 1_000)
    (512, 8, 65000)
    """
    count = min((width + multiple_of // 2) // multiple_of, MAX_WIDTH // multiple_of)
    return max(1, count) * multiple_of


def heads_parameters(width: int, num_heads: int, score: Score) -> int:
    """The number of weights of attention: four linear maps, and what the score of each head has of its own."""
    return 4 * (width * width + width) + score_parameters(width, num_heads, score)


def score_parameters(width: int, num_heads: int, score: Score) -> int:
    """The number of weights of a score: none, one matrix per head, or two and a vector."""
    head = width // num_heads
    return {"dot": 0, "scaled_dot": 0, "bilinear": width * head, "additive": 2 * width * head + width}[score]
