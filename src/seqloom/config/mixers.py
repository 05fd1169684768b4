"""Mixers: all layers in which positions of a sequence exchange information, as one closed union.

One table defines which choices can be combined; the configuration and the tests use it:

position    where it acts                        with
none        nowhere                              everything
learned     added to (or beside) the inputs      everything
sinusoidal  added to (or beside) the inputs      everything
alibi       a bias on the scores                 softmax attention, any score
t5          a bias on the scores                 softmax attention, any score
shaw        vectors in keys and values           softmax attention, scores that are dot products
rotary      rotates queries and keys             softmax attention, dot and scaled_dot
"""

from typing import TYPE_CHECKING, Any, Literal, get_args

from seqloom.config.base import MAX_WIDTH, Config, Heads, Rate, Span, Taps
from seqloom.config.work import Work, linear_work
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.nn.mixers.contract import CausalMixer, Mixer
    from seqloom.nn.mixers.recurrent import Recurrent

Position = Literal["none", "learned", "sinusoidal", "shaw", "alibi", "rotary", "t5"]
Score = Literal["dot", "scaled_dot", "additive", "bilinear"]

POSITIONS: tuple[Position, ...] = get_args(Position)
SCORES: tuple[Score, ...] = get_args(Score)
RELATIVE: tuple[Position, ...] = ("shaw", "alibi", "rotary", "t5")

_NO_SCORES = "linear attention does not compute attention scores, so no bias can be added to them"
_NOT_POSITIVE = "rotation makes some features negative, so the attention weights would not be a distribution"
_REFUSALS: dict[tuple[str, str], str] = {
    ("linear-attention", "shaw"): _NO_SCORES,
    ("linear-attention", "alibi"): _NO_SCORES,
    ("linear-attention", "t5"): _NO_SCORES,
    ("linear-attention", "rotary"): _NOT_POSITIVE,
    ("additive", "shaw"): "Shaw's key vectors need a dot product with the query, which an additive score does not have",
    ("additive", "rotary"): "rotating queries and keys makes a score relative only if it is their dot product",
    ("bilinear", "rotary"): "the matrix between query and key does not commute with the rotation",
}


def refusal(mixer: str, *, score: Score = "scaled_dot", position: Position = "none") -> str | None:
    """Return why a mixer, a score and a kind of position cannot be combined, or None if they can.

    >>> refusal("lstm", position="rotary")
    "relative positions change attention scores, but 'lstm' has none"
    >>> refusal("attention", score="additive", position="alibi") is None
    True
    """
    if position not in RELATIVE:
        return None
    if mixer == "cross-attention":
        return "positions in the source and in the target have no distance to each other"
    if reason := _REFUSALS.get((mixer, position)):
        return reason
    if mixer != "attention":
        return f"relative positions change attention scores, but '{mixer}' has none"
    return _REFUSALS.get((score, position))


SHAW_RADIUS = 16
T5_BUCKETS = 32
T5_FARTHEST = 128
MAX_HELD = 2**24  # maximum numbers in a convolution's state for each row
MAX_REACH = 2**20  # maximum elements that a convolution looks back: all are in its state


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
        """Raise ConfigError if this mixer cannot run one element at a time."""

    def carries_state(self) -> bool:
        """Whether it reads a text in consecutive pieces as well as at once: its memory is a state of fixed size."""
        return False

    def reads_edges(self) -> bool:
        """Whether its input must be a graph with edges."""
        return False

    def parameters(self, width: int, position: Position = "none") -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def work(self, width: int, length: float) -> Work:
        """What it computes for a sequence of this length; here every weight is used once for each element."""
        return Work(length * self.parameters(width), length * width, 1)

    def build(self, width: int, position: Position = "none") -> "Mixer":
        """Return the mixer for complete sequences: positions see both sides if the family can."""
        raise NotImplementedError

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        """Return the mixer that never looks ahead and can run step by step."""
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
    """Filters applied along the sequence, centered or causal; several sizes share the width, as in Kim 2014."""

    kernel_sizes: tuple[Taps, ...] = (3,)
    dilation: Span = 1
    activation: Literal["none", "relu", "tanh", "gelu"] = "relu"

    def check(self) -> None:
        if not self.kernel_sizes:
            raise ConfigError("kernel_sizes is empty", fix="give at least one, for example [3, 4, 5]")
        reach = (max(self.kernel_sizes) - 1) * self.dilation
        if reach > MAX_REACH:
            raise ConfigError(
                f"a filter with kernel size {max(self.kernel_sizes)} and dilation {self.dilation:,} covers {reach:,} "
                f"elements; the limit is {MAX_REACH:,}",
                fix="use a smaller dilation",
            )

    def fit(self, width: int, position: Position = "none") -> None:
        MixerConfig.fit(self, width, position)
        if (held := (max(self.kernel_sizes) - 1) * self.dilation * width) > MAX_HELD:
            raise ConfigError(
                f"a filter that covers {held // width:,} elements of width {width:,} needs a state of {held:,} "
                f"numbers for each row; the limit is {MAX_HELD:,}",
                fix="use a smaller dilation",
            )
        count = len(self.kernel_sizes)
        if width % count:
            raise ConfigError(
                f"a width of {width} cannot be divided evenly among {count} kernel sizes",
                fix=f"use width = {nearest_width(width, count)}, or another number of kernel sizes",
            )

    def parameters(self, width: int, position: Position = "none") -> int:
        filters = width // len(self.kernel_sizes)
        return sum(filters * (width * size + 1) for size in self.kernel_sizes)

    def work(self, width: int, length: float) -> Work:
        copied = 2 * length * width * sum(self.kernel_sizes) / len(self.kernel_sizes)  # an element for each tap
        return Work(length * self.parameters(width), copied, 2 * len(self.kernel_sizes))

    def build(self, width: int, position: Position = "none") -> "Mixer":
        from seqloom.nn.mixers.convolution import Convolution

        return Convolution(self, width)

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        from seqloom.nn.mixers.convolution import CausalConvolution

        return CausalConvolution(self, width)


class RecurrentConfig(MixerConfig, kw_only=True):
    """Base of the recurrences: a hidden state of the model's width, read left to right."""

    weight_dropout: Rate = 0.0  # of the recurrent weights, drawn once per step (Merity et al. 2018)

    def carries_state(self) -> bool:
        return True

    def gates(self) -> int:
        """The number of row blocks in the weight matrices."""
        raise NotImplementedError

    def parameters(self, width: int, position: Position = "none") -> int:
        return self.parameters_reading(width, width)

    def parameters_reading(self, input_width: int, width: int) -> int:
        """The number of weights of a layer whose input has another width than its state."""
        return self.gates() * (input_width * width + width * width + 2 * width)

    def work(self, width: int, length: float) -> Work:
        return self.work_reading(width, width, length)

    def work_reading(self, input_width: int, width: int, length: float) -> Work:
        """What a layer computes whose input has another width than its state: one call for each element."""
        products = length * self.parameters_reading(input_width, width)
        return Work(products, 2 * length * self.gates() * width, 1 + length)

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


class PatternConfig(Config):
    """Base of the patterns: which positions attention sees."""

    def seen(self, length: float) -> float:
        """About how many positions each one sees."""
        return length


class FullConfig(PatternConfig, tag="full", kw_only=True):
    """Every position sees every other."""


class WindowConfig(PatternConfig, tag="window", kw_only=True):
    """Positions see those less than `size` away."""

    size: Span = 256

    def seen(self, length: float) -> float:
        return min(length, 2 * self.size)


class SparseConfig(PatternConfig, tag="sparse", kw_only=True):
    """Positions see their own block of `size` and every size-th position from theirs (Child et al. 2019)."""

    size: Span = 64

    def seen(self, length: float) -> float:
        return min(length, self.size + length / self.size)


class EdgesConfig(PatternConfig, tag="edges", kw_only=True):
    """Each node of a graph sees itself and the nodes that an edge connects it to (Velickovic et al. 2018)."""


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
                f"position '{position}' with the pattern 'edges': nodes of a graph have no order",
                fix="choose position 'none'",
            )

    def fit_causal(self) -> None:
        if self.reads_edges():
            raise ConfigError(
                "the pattern 'edges' needs the complete graph, so it cannot run one element at a time",
                fix="use the pattern 'full', 'window' or 'sparse' in a decoder",
            )

    def reads_edges(self) -> bool:
        return isinstance(self.pattern, EdgesConfig)

    def parameters(self, width: int, position: Position = "none") -> int:
        tables = {"shaw": 2 * (2 * SHAW_RADIUS + 1) * width // self.num_heads, "t5": T5_BUCKETS * self.num_heads}
        return heads_parameters(width, self.num_heads, self.score) + tables.get(position, 0)

    def work(self, width: int, length: float) -> Work:
        return heads_work(width, self.num_heads, length, length, self.pattern.seen(length))

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

    def work(self, width: int, length: float) -> Work:
        return heads_work(width, self.num_heads, length, length, 2 * width / self.num_heads)  # a matrix per head

    def build(self, width: int, position: Position = "none") -> "Mixer":
        from seqloom.nn.mixers.linear import LinearAttention

        return LinearAttention(self, width)

    def build_causal(self, width: int, position: Position = "none") -> "CausalMixer[Any]":
        from seqloom.nn.mixers.linear import CausalLinearAttention

        return CausalLinearAttention(self, width)


class BidirectionalConfig(MixerConfig, tag="bidirectional", kw_only=True):
    """Two recurrences with half the width each, one reading from each end, concatenated."""

    mixer: RnnConfig | GruConfig | LstmConfig = LstmConfig()

    def fit(self, width: int, position: Position = "none") -> None:
        MixerConfig.fit(self, width, position)
        if width % 2:
            raise ConfigError(
                f"a width of {width} cannot be divided evenly between two directions", fix=f"use width = {width + 1}"
            )

    def fit_causal(self) -> None:
        raise ConfigError(
            "'bidirectional' reads a sequence in both directions, so a decoder cannot use it",
            fix=f"use '{self.mixer.kind()}' without 'bidirectional' in a decoder",
        )

    def parameters(self, width: int, position: Position = "none") -> int:
        return 2 * self.mixer.parameters_reading(width, width // 2)

    def work(self, width: int, length: float) -> Work:
        return self.mixer.work_reading(width, width // 2, length) * 2

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


def require_divisible(width: int, num_heads: int, position: Position = "none", setting: str = "num_heads") -> None:
    """Raise ConfigError unless the heads divide the width evenly; rotary positions need an even head width.

    `setting` is the name of the number of heads in the fix.
    """
    share = 2 if position == "rotary" else 1
    if width % (num_heads * share) == 0:
        return
    evenly = "evenly" if share == 1 else "into pairs, which rotary positions need"
    fewer = [f"{setting} = {heads}" for heads in range(1, num_heads) if width % (heads * share) == 0]
    raise ConfigError(
        f"a width of {width} cannot be divided among {num_heads} heads {evenly}",
        fix=f"use {' or '.join([*fewer[-1:], f'width = {nearest_width(width, num_heads * share)}'])}",
    )


def nearest_width(width: int, multiple_of: int) -> int:
    """Return the valid width nearest to an invalid one.

    >>> nearest_width(510, 8), nearest_width(3, 8), nearest_width(65_535, 1_000)
    (512, 8, 65000)
    """
    count = min((width + multiple_of // 2) // multiple_of, MAX_WIDTH // multiple_of)
    return max(1, count) * multiple_of


def heads_parameters(width: int, num_heads: int, score: Score) -> int:
    """The number of weights of attention: four linear maps, and the weights of each head's score."""
    return 4 * (width * width + width) + score_parameters(width, num_heads, score)


def heads_work(width: int, num_heads: int, length: float, memory: float, seen: float) -> Work:
    """What attention computes: maps of queries, keys, values and outputs, then scores and their weighted sums.

    Args:
        width: that of the model.
        num_heads: the number of heads.
        length: the number of queries.
        memory: the number of keys.
        seen: how many keys each query sees.
    """
    maps = linear_work(length, width, 2 * width) + linear_work(memory, width, 2 * width)
    return maps + Work(2 * length * seen * width, length * seen * num_heads, 2)


def score_parameters(width: int, num_heads: int, score: Score) -> int:
    """The number of weights of a score: zero, one matrix per head, or two matrices and a vector."""
    head = width // num_heads
    return {"dot": 0, "scaled_dot": 0, "bilinear": width * head, "additive": 2 * width * head + width}[score]
