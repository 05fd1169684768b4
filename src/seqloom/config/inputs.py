"""Inputs: how tokens, vectors and pictures become a sequence of vectors of the model's width."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from seqloom.config.base import Config, Pixels, Rate, Taps, VocabSize, Width
from seqloom.config.work import Work, linear_work
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.nn.inputs import Input
    from seqloom.nn.mixers.contract import CausalMixer

CharEncoder = Literal["cnn", "lstm"]
CharEncoderName = Literal["cnn", "lstm", "ngrams", "none"]
NUM_LETTERS = 256  # the bytes; 0 is padding
SPELLING_TAPS = 3  # letters that a filter spans
USUAL_LETTERS = 12  # of the longest word in a batch, which all others are padded to


class InputConfig(Config):
    """Base of the inputs."""

    def fit(self, width: int) -> None:
        """Raise ConfigError if the input cannot have this width."""

    def parameters(self, width: int) -> int:
        """The number of weights it will have."""
        raise NotImplementedError

    def elements(self, length: float) -> float:
        """The length of the sequence that layers read, for a row of this length in the data."""
        return length

    def work(self, width: int, length: float) -> Work:
        """What it computes for a row of this length; here it looks up a vector for each element."""
        return Work(0.0, length * width, 1)

    def build(self, width: int) -> "Input | CausalMixer[Any]":
        """The module that reads this input."""
        raise NotImplementedError


class SteppedInputConfig(InputConfig):
    """Base of the inputs that can be read one element at a time."""

    def build(self, width: int) -> "CausalMixer[Any]":
        """The module that reads this input."""
        raise NotImplementedError


class TokensConfig(SteppedInputConfig, tag="tokens", kw_only=True):
    """Tokens, each with a learned vector; if its size differs from the model's width, a linear map follows."""

    vocab_size: VocabSize
    size: Width | None = None
    token_dropout: Rate = 0.0  # of complete vectors, drawn once per step for each token (Gal and Ghahramani 2016)

    def parameters(self, width: int) -> int:
        size = width if self.size is None else self.size
        return self.vocab_size * size + (0 if size == width else size * width + width)

    def work(self, width: int, length: float) -> Work:
        found = InputConfig.work(self, self.size or width, length)
        return found if self.size in (None, width) else found + linear_work(length, self.size or width, width)

    def build(self, width: int) -> "CausalMixer[Any]":
        from seqloom.nn.inputs import Tokens

        return Tokens(self, width)


class NgramsConfig(SteppedInputConfig, tag="ngrams", kw_only=True):
    """Tokens and the n-grams that end at them: tokens have a vector each, longer n-grams share hashed ones."""

    vocab_size: VocabSize
    order: Taps = 2
    buckets: VocabSize = 2**16

    def parameters(self, width: int) -> int:
        return (self.vocab_size + (self.buckets if self.order > 1 else 0)) * width

    def work(self, width: int, length: float) -> Work:
        return InputConfig.work(self, width, self.order * length)

    def build(self, width: int) -> "CausalMixer[Any]":
        from seqloom.nn.inputs import Ngrams

        return Ngrams(self, width)


class TfidfConfig(InputConfig, tag="tfidf", kw_only=True):
    """The same tokens and n-grams, weighted by TF-IDF over the text: (1 + log count) idf, of length one."""

    vocab_size: VocabSize
    order: Taps = 2
    buckets: VocabSize = 2**16

    def parameters(self, width: int) -> int:
        return NgramsConfig(vocab_size=self.vocab_size, order=self.order, buckets=self.buckets).parameters(width)

    def build(self, width: int) -> "Input":
        from seqloom.nn.inputs import Tfidf

        return Tfidf(self, width)


class CharTfidfConfig(TfidfConfig, tag="char-tfidf", kw_only=True):
    """The same, and the TF-IDF of the character n-grams inside each word, also of length one.

    N-grams are those of `TfidfVectorizer(analyzer="char_wb")` in scikit-learn: a space is added at both ends of a word,
    and no n-gram reaches beyond them. So prefixes and suffixes differ from the middle of a word.
    """

    min_chars: Taps = 3
    max_chars: Taps = 5
    char_buckets: VocabSize = 2**18

    def check(self) -> None:
        if self.min_chars > self.max_chars:
            raise ConfigError(
                f"character n-grams of {self.min_chars} to {self.max_chars} characters",
                fix="give min_chars at most as high as max_chars",
            )

    def parameters(self, width: int) -> int:
        return super().parameters(width) + self.char_buckets * width

    def build(self, width: int) -> "Input":
        from seqloom.nn.inputs import CharTfidf

        return CharTfidf(self, width)


class VectorsConfig(SteppedInputConfig, tag="vectors", kw_only=True):
    """Numeric vectors (frames, sensors), mapped linearly to the model's width."""

    size: Width

    def parameters(self, width: int) -> int:
        return self.size * width + width

    def work(self, width: int, length: float) -> Work:
        return linear_work(length, self.size, width)

    def build(self, width: int) -> "CausalMixer[Any]":
        from seqloom.nn.inputs import Vectors

        return Vectors(self, width)


class SpelledConfig(InputConfig, tag="spelled", kw_only=True):
    """Words and their letters: the word's vector and a vector of its spelling, joined and mapped to the width.

    Letters are UTF-8 bytes, so no letter is unknown. Filters find prefixes and suffixes at any place (Ma and Hovy
    2016); an LSTM from each end reads the complete word (Lample et al. 2016). In training a rare word is sometimes read
    as UNKNOWN, so that UNKNOWN has a trained vector for new words (Lample et al. 2016).
    """

    vocab_size: VocabSize
    size: Width | None = None  # of the word's vector; None: the model's width
    char_encoder: CharEncoder = "cnn"
    letter_size: Width = 30
    spelling_size: Width = 50  # filters, or both halves of the LSTM together
    rare_from: VocabSize | None = None  # the first rare token: ids are sorted by frequency; None: no token is rare
    unknown_rate: Rate = 0.5  # probability that a rare word is read as UNKNOWN

    def check(self) -> None:
        if self.char_encoder == "lstm" and self.spelling_size % 2:
            raise ConfigError(
                f"spelling_size {self.spelling_size} is odd, but the LSTM uses half of it for each direction",
                fix=f"use {self.spelling_size + 1}",
            )

    def parameters(self, width: int) -> int:
        size, letter, spelling = width if self.size is None else self.size, self.letter_size, self.spelling_size
        half = spelling // 2
        lstm, cnn = 2 * 4 * half * (letter + half + 2), spelling * (letter * SPELLING_TAPS + 1)
        reader = lstm if self.char_encoder == "lstm" else cnn
        return self.vocab_size * size + NUM_LETTERS * letter + reader + (size + spelling) * width + width

    def work(self, width: int, length: float) -> Work:
        size, half = width if self.size is None else self.size, self.spelling_size // 2
        letters, taps = length * USUAL_LETTERS, self.letter_size * SPELLING_TAPS
        gates = 2 * 4 * half
        lstm = Work(letters * gates * (self.letter_size + half), 2 * letters * gates, 2 * USUAL_LETTERS)
        reader = lstm if self.char_encoder == "lstm" else linear_work(letters, taps, self.spelling_size)
        vectors = InputConfig.work(self, size, length) + InputConfig.work(self, self.letter_size, letters)
        return vectors + reader + linear_work(length, size + self.spelling_size, width)

    def build(self, width: int) -> "Input":
        from seqloom.nn.inputs import SpelledWords

        return SpelledWords(self, width)


class PictureConfig(InputConfig, kw_only=True):
    """Base of the picture inputs: [rows, height, width, channels] of numbers."""

    height: Pixels
    width: Pixels
    channels: Pixels = 1

    def length(self) -> int:
        """The length of the sequence of one picture."""
        raise NotImplementedError

    def elements(self, length: float) -> float:
        return self.length()

    def work(self, width: int, length: float) -> Work:
        return Work(self.length() * self.parameters(width), self.length() * width, 1)


class FlatConfig(PictureConfig, tag="flat", kw_only=True):
    """The complete picture as one vector, for a fully connected network."""

    def length(self) -> int:
        return 1

    def parameters(self, width: int) -> int:
        return self.height * self.width * self.channels * width + width

    def build(self, width: int) -> "Input":
        from seqloom.nn.inputs import Flat

        return Flat(self, width)


class PatchesConfig(PictureConfig, tag="patches", kw_only=True):
    """Square patches in reading order, each mapped linearly to one vector (Dosovitskiy et al. 2021)."""

    patch: Pixels

    def check(self) -> None:
        if self.height % self.patch or self.width % self.patch:
            raise ConfigError(
                f"a picture of {self.height} x {self.width} cannot be divided into patches of {self.patch} x "
                f"{self.patch}",
                fix=f"use patch = {self._nearest()}, or crop the pictures",
            )

    def _nearest(self) -> int:
        both = math.gcd(self.height, self.width)
        return min((side for side in range(1, both + 1) if both % side == 0), key=lambda side: abs(side - self.patch))

    def length(self) -> int:
        return (self.height // self.patch) * (self.width // self.patch)

    def parameters(self, width: int) -> int:
        return self.patch**2 * self.channels * width + width

    def build(self, width: int) -> "Input":
        from seqloom.nn.inputs import Patches

        return Patches(self, width)


class FiltersConfig(PictureConfig, tag="filters", kw_only=True):
    """2-D convolutions, each with ReLU and 2 x 2 pooling; every place of the last map becomes one vector."""

    filters: tuple[Width, ...] = (32, 64)
    kernel_size: Taps = 3

    def check(self) -> None:
        if not self.filters:
            raise ConfigError("filters is empty", fix="give the number of filters of each layer, for example [32, 64]")
        self._map()

    def _map(self) -> tuple[int, int]:
        """Return height and width of the last map; raise ConfigError if a filter is too large for it."""
        return self._maps()[-1]

    def _maps(self) -> list[tuple[int, int]]:
        """Return the same for the map of each layer."""
        size, maps = self.kernel_size, list[tuple[int, int]]()
        height, width = self.height, self.width
        for layer in range(len(self.filters)):
            if min(height, width) < size:
                raise ConfigError(
                    f"layer {layer + 1} of {len(self.filters)}: filters of {size} x {size} are larger than its input "
                    f"of {height} x {width}",
                    fix="use fewer layers or smaller filters",
                )
            height, width = height - size + 1, width - size + 1
            if min(height, width) > 1:
                height, width = height // 2, width // 2
            maps.append((height, width))
        return maps

    def length(self) -> int:
        return math.prod(self._map())

    def parameters(self, width: int) -> int:
        depths = (self.channels, *self.filters)
        convolutions = sum(deeper * (depth * self.kernel_size**2 + 1) for depth, deeper in pairwise(depths))
        return convolutions + depths[-1] * width + width

    def work(self, width: int, length: float) -> Work:
        depths, places = (self.channels, *self.filters), [4 * math.prod(sides) for sides in self._maps()]  # unpooled
        layers = zip(places, pairwise(depths), strict=True)
        filters = [linear_work(count, depth * self.kernel_size**2, deeper) for count, (depth, deeper) in layers]
        return sum(filters, linear_work(self.length(), depths[-1], width))

    def build(self, width: int) -> "Input":
        from seqloom.nn.inputs import PictureFilters

        return PictureFilters(self, width)


SteppedInput = TokensConfig | NgramsConfig | VectorsConfig
SequenceInput = SteppedInput | SpelledConfig | TfidfConfig | CharTfidfConfig  # all but pictures
AnyInput = SequenceInput | FlatConfig | PatchesConfig | FiltersConfig
