"""Inputs: modules that turn tokens, vectors and pictures into sequences of vectors."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.config.inputs import (
    NUM_LETTERS,
    SPELLING_TAPS,
    CharTfidfConfig,
    FiltersConfig,
    FlatConfig,
    NgramsConfig,
    PatchesConfig,
    PictureConfig,
    SpelledConfig,
    TfidfConfig,
    TokensConfig,
    VectorsConfig,
)
from seqloom.config.mixers import LstmConfig
from seqloom.errors import DataError
from seqloom.nn.mixers.contract import CausalMixer, Stateless
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.convolution import convolve, convolve_2d
from seqloom.nn.ops.kernels import is_recorded
from seqloom.nn.ops.lookup import look_up
from seqloom.nn.ops.pooling import maximum
from seqloom.nn.ops.transforms import is_transformed
from seqloom.nn.packing import by_document
from seqloom.nn.taps import Tap
from seqloom.nn.types import Padded, Spelled, count_rows, require_padded
from seqloom.text.special_tokens import UNKNOWN

LONGER = 0.5  # weight of n-grams of two tokens and more in TF-IDF


class Input(nn.Module):
    """Turns raw inputs into a sequence of vectors."""

    def forward(self, raw: Any) -> Padded:
        """The sequence of vectors."""
        raise NotImplementedError


class ElementInput(Input):
    """An input in which each vector depends only on its own element, so that a sequence can be read in parts."""


def _require_numbers(values: Tensor, like: Tensor, what: str) -> None:
    if values.dtype != like.dtype:
        raise DataError(f"expected {what} of {like.dtype}, found {values.dtype}", fix="convert them first")


def _require_tokens(x: Padded, vocab_size: int) -> None:
    """Raise DataError for values that would be an index error deep inside torch.

    They are checked on the CPU only, and not where numbers cannot be read: in compiled code, which a check would split,
    under torch.func, and where steps are recorded, whose tokens were chosen from the vocabulary.
    """
    require_padded(x)
    if x.values.ndim != 2 or x.values.dtype not in (torch.int32, torch.int64):
        raise DataError(
            f"expected tokens as int64 or int32 [rows, time], found {x.values.dtype} {list(x.values.shape)}"
        )
    if x.values.device.type == "cpu" and x.values.numel() and not (is_transformed() or is_recorded()):
        low, high = (int(bound) for bound in x.with_values(x.values).values.aminmax())
        if low < 0 or high >= vocab_size:
            found = low if low < 0 else high
            raise DataError(
                f"token {found} is outside the vocabulary of {vocab_size} tokens", fix=f"tokens are 0..{vocab_size - 1}"
            )


class Lookup:
    """A module with a table whose rows are looked up.

    With `sparse`, the gradient of the table has the rows that were looked up in training, and no others.
    """

    table: nn.Parameter
    training: bool
    sparse: bool = False

    def look_up(self, rows: Tensor) -> Tensor:
        """The vectors of these rows."""
        if self.sparse and self.training:
            return nn.functional.embedding(rows, self.table, sparse=True)
        return look_up(rows, self.table)


class Tokens(Stateless, Lookup):
    """A learned vector for each token."""

    def __init__(self, config: TokensConfig, width: int) -> None:
        super().__init__()
        size = width if config.size is None else config.size
        self.table = nn.Parameter(torch.randn(config.vocab_size, size) * size**-0.5)
        self.token_dropout = config.token_dropout
        if size != width:
            self.widen = nn.Linear(size, width)

    def forward(self, x: Padded) -> Padded:
        _require_tokens(x, len(self.table))
        tokens = x.with_values(x.values).values
        values = self.look_up(tokens)
        if self.training and self.token_dropout:  # all occurrences of a token together
            kept = nn.functional.dropout(self.table.new_ones(len(self.table)), self.token_dropout)
            values = values * kept[tokens, None]
        return x.with_values(self.widen(values) if hasattr(self, "widen") else values)


class Ngrams(CausalMixer[tuple[Tensor]], Lookup):
    """phi(x): at each element the sum of the vectors of the n-grams, of order 1 to n, that end there.

    Tokens have a row each (counted); longer n-grams share `buckets` rows through a hash. Summed over a text this is
    W phi(x), the handcrafted features and weights of a linear model.
    """

    def __init__(self, config: NgramsConfig, width: int) -> None:
        super().__init__()
        self.vocab_size, self.order, self.buckets = config.vocab_size, config.order, config.buckets
        rows = config.vocab_size + (config.buckets if config.order > 1 else 0)
        self.table = nn.Parameter(torch.zeros(rows, width))

    def begin(self, batch_size: int) -> tuple[Tensor]:
        return (torch.full((batch_size, self.order - 1), -1, dtype=torch.int64, device=self.device),)

    def extend(self, x: Padded, inner: tuple[Tensor]) -> tuple[Padded, tuple[Tensor]]:
        _require_tokens(x, self.vocab_size)
        reach, time = self.order - 1, x.values.shape[1]
        tokens = torch.cat([inner[0], x.values.masked_fill(~x.valid, 0)], dim=1)  # [B,R+T]
        rows, known = self.features(tokens, time)
        vectors = self.look_up(rows).masked_fill(~known[..., None], 0)
        columns = x.lengths[:, None] + torch.arange(reach, device=tokens.device)
        return x.with_values(vectors.sum(dim=2)), (tokens.gather(1, columns),)

    def features(self, tokens: Tensor, time: int) -> tuple[Tensor, Tensor]:
        """[B,T,n] the row of each n-gram that ends at each of the last `time` tokens, and whether it is complete."""
        reach = self.order - 1
        code = tokens[:, reach : reach + time]
        rows, known = [code], [torch.ones_like(code, dtype=torch.bool)]
        for back in range(1, self.order):
            earlier = tokens[:, reach - back : reach - back + time]
            code = _joined(code, earlier)
            rows.append(self.vocab_size + code % self.buckets)
            known.append(known[-1] & (earlier >= 0))
        return torch.stack(rows, dim=2), torch.stack(known, dim=2)

    def occurrences(self, x: Padded) -> tuple[Tensor, Tensor]:
        """[B,T,n] the row of each n-gram that ends at each element, and its weight: 1, or 0 if it is incomplete."""
        tokens = torch.cat([self.begin(len(x.lengths))[0], x.values.masked_fill(~x.valid, 0)], dim=1)
        rows, known = self.features(tokens, x.values.shape[1])
        return rows, (known & x.valid[..., None]).to(self.table.dtype)


def _joined(code: Tensor, earlier: Tensor) -> Tensor:
    """Return the hash code of n-grams with one more token before them.

    A multiplicative hash: neighboring token ids get distant buckets.
    """
    return (code * 1_000_003 + earlier + 1) % 2**31 * 0x5BD1E995 % 2**31


class Bags(NamedTuple):
    """The distinct n-grams of each text, ordered by text and row; M in total."""

    texts: Tensor  # [M] the number of the text
    rows: Tensor  # [M] the row of the n-gram
    counts: Tensor  # [M] its count in the text
    values: Tensor  # [M] phi, its weight


class Tfidf(Input):
    """phi(x): sublinear TF-IDF of the n-grams of a text, of order 1 to n (Salton and Buckley 1988).

        phi_g(x) = (1 + log c_g) idf_g / norm        c_g: the count of n-gram g in the text
        idf_g = 1 + log((1 + N) / (1 + n_g))         g is in n_g of the N texts of the training set; 0 if n_g is 0

    The contribution of g to the scores, phi_g w_g, is divided evenly among its occurrences. So the sum over a text is
    W phi(x), and each element has a contribution. Tokens have a row each. Longer n-grams share `buckets` rows through a
    hash and have weight 0.5: most of them are rare, and with weight 1 they would dominate the norm.
    """

    idf: Tensor

    def __init__(self, config: TfidfConfig, width: int) -> None:
        super().__init__()
        self.vocab_size, self.order, self.buckets = config.vocab_size, config.order, config.buckets
        rows = config.parameters(1)
        self.table = nn.Parameter(torch.zeros(rows, width))
        self.register_buffer("idf", torch.ones(rows))

    def forward(self, raw: Padded) -> Padded:
        return by_document(self._weighted, raw)

    def _weighted(self, x: Padded) -> Padded:
        rows, weights = self._shares(x)
        vectors = nn.functional.embedding(rows, self.table)  # [B,T,n,D]
        return x.with_values(torch.einsum("btn,btnd->btd", weights, vectors))

    def occurrences(self, x: Padded) -> tuple[Tensor, Tensor]:
        """[B,T,n] the row of each n-gram that ends at each element, and its share in phi(x); every row is one text."""
        return self._shares(x)

    def _shares(self, x: Padded) -> tuple[Tensor, Tensor]:
        rows, known = self._features(x)
        bags, places = self._counted(rows, known)
        weights = torch.zeros(rows.shape, dtype=self.idf.dtype, device=rows.device)
        weights[known] = (bags.values / bags.counts)[places]
        return rows, weights

    def bags(self, x: Padded) -> Bags:
        """The n-grams of each text with their weights; every row is one text."""
        return self._counted(*self._features(x))[0]

    def fit(self, texts: Iterable[Any]) -> None:
        """Compute `idf` from these texts, which must be the training set; every row is one text."""
        total, containing = 0, torch.zeros_like(self.idf, dtype=torch.int64)
        for x in texts:
            total += count_rows(x) or 0
            containing += torch.bincount(self.bags(x).rows, minlength=len(containing))
        idf = 1 + torch.log((1 + total) / (1 + containing.double()))
        idf[self.vocab_size : self.vocab_size + (self.buckets if self.order > 1 else 0)] *= LONGER
        self.idf.copy_(idf.masked_fill(containing == 0, 0))

    def _features(self, x: Padded) -> tuple[Tensor, Tensor]:
        """[B,T,n] the row of each n-gram that ends at each element, and whether it is complete."""
        _require_tokens(x, self.vocab_size)
        code = x.values.masked_fill(~x.valid, 0).long()
        tokens, rows, known = code, [code], [x.valid]
        for back in range(1, self.order):
            code = _joined(code, _later(tokens, back))
            rows.append(self.vocab_size + code % self.buckets)
            known.append(x.valid & (torch.arange(x.values.shape[1], device=code.device) >= back))
        return torch.stack(rows, dim=2), torch.stack(known, dim=2)

    def _counted(self, rows: Tensor, known: Tensor) -> tuple[Bags, Tensor]:
        """Return the n-grams of each text, and the index of the n-gram of each occurrence."""
        text = torch.arange(len(rows), device=rows.device)[:, None, None].expand_as(rows)
        return self._weighed(text[known], rows[known], len(rows))

    def _weighed(self, text: Tensor, rows: Tensor, count: int) -> tuple[Bags, Tensor]:
        """Return the n-grams of `count` texts, given the text and row of each occurrence, and the index of each."""
        keys, places, counts = torch.unique(text * len(self.idf) + rows, return_inverse=True, return_counts=True)
        texts, found, counts = keys // len(self.idf), keys % len(self.idf), counts.to(self.idf.dtype)
        values = (1 + counts.log()) * self.idf[found]
        norms = self.idf.new_zeros(count).index_add_(0, texts, values.square()).sqrt()
        values = values / norms[texts].clamp(min=torch.finfo(values.dtype).tiny)
        return Bags(texts, found, counts, values), places


class CharTfidf(Tfidf):
    """phi(x) of the words, and phi(x) of the character n-grams inside each word: two vectors of length one, joined.

    Character n-grams share `char_buckets` rows through a hash.
    """

    def __init__(self, config: CharTfidfConfig, width: int) -> None:
        super().__init__(config, width)
        self.min_chars, self.max_chars, self.char_buckets = config.min_chars, config.max_chars, config.char_buckets
        self.first_char = len(self.idf) - config.char_buckets  # the first row of character n-grams

    def forward(self, raw: Any) -> Padded:
        _require_spelled(raw, self.vocab_size)
        grams, shares = self._shared(raw)
        batch, time = raw.words.values.shape
        starts = torch.searchsorted(grams.words, torch.arange(batch * time, device=grams.words.device))
        inside = nn.functional.embedding_bag(grams.rows, self.table, starts, mode="sum", per_sample_weights=shares)
        x = super().forward(raw.words)
        return x.with_values(x.values + inside.view(batch, time, -1))

    def occurrences(self, x: Any) -> tuple[Tensor, Tensor]:
        """[B,T,n + M] the rows of the n-grams that end at each word, then of those inside it; and their shares."""
        _require_spelled(x, self.vocab_size)
        grams, shares = self._shared(x)
        counts = torch.bincount(grams.words, minlength=x.words.values.numel())
        place = torch.arange(len(grams.words), device=counts.device) - (counts.cumsum(0) - counts)[grams.words]
        rows = grams.rows.new_zeros(len(counts), int(counts.max()))
        weights = shares.new_zeros(rows.shape)
        rows[grams.words, place], weights[grams.words, place] = grams.rows, shares
        shape, (of_words, word_shares) = (*x.words.values.shape, -1), self._shares(x.words)
        return torch.cat([of_words, rows.view(shape)], dim=2), torch.cat([word_shares, weights.view(shape)], dim=2)

    def bags(self, x: Any) -> Bags:
        """The n-grams of each text with their weights; every row is one text."""
        _require_spelled(x, self.vocab_size)
        joined = Bags(*(torch.cat(parts) for parts in zip(super().bags(x.words), self._inside(x)[1], strict=True)))
        order = joined.texts.argsort(stable=True)
        return Bags(*(column[order] for column in joined))

    def _shared(self, x: Spelled) -> tuple["CharGrams", Tensor]:
        """The character n-grams of a batch, and the share of each in phi(x)."""
        grams, bags, places = self._inside(x)
        return grams, (bags.values / bags.counts)[places]

    def _inside(self, x: Spelled) -> tuple["CharGrams", Bags, Tensor]:
        """The character n-grams of a batch, those of each text, and the index of each in them."""
        grams = char_grams(x.letters.flatten(0, 1), self.min_chars, self.max_chars)
        grams = grams._replace(rows=self.first_char + grams.rows % self.char_buckets)
        texts, time = x.words.values.shape
        return grams, *self._weighed(grams.words // time, grams.rows, texts)


class CharGrams(NamedTuple):
    """The character n-grams inside words, ordered by word."""

    words: Tensor  # [G] the number of the word
    rows: Tensor  # [G] the row of the n-gram, or its hash code


def char_grams(letters: Tensor, shortest: int, longest: int) -> CharGrams:
    """The n-grams of words [N,L] with their hash codes: of `shortest` to `longest` characters, spaces included."""
    words, x, left = characters(letters)
    found, code = list[tuple[Tensor, Tensor]](), x
    first = torch.cat([words.new_tensor([-1]), words[:-1]]) != words
    for length in range(1, longest + 1):
        if length > 1:  # the character `length - 1` places further; beyond the word, it does not matter
            later = nn.functional.pad(x, (0, length - 1))[length - 1 :]
            code = _mixed(code, later.masked_fill(left < length, 0))
        if length >= shortest:  # a shorter word counts as a whole
            there = left >= length if length > shortest else (left >= length) | first
            found.append((words[there], code[there]))
    words, code = (torch.cat(parts) for parts in zip(*found, strict=True))
    order = words.argsort(stable=True)
    return CharGrams(words[order], code[order])


def characters(letters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The characters of words [N,L] in one line, with a space before and after each word that has some.

    `letters` are UTF-8 bytes: one that starts a character, and up to three 10xxxxxx that continue it.

    Returns:
        For each character the number of its word, a number of its own, and how many are left in the word, with it.
    """
    real = letters > 0
    word, x = real.nonzero()[:, 0], letters[real].long()
    starts = x >> 6 != 2
    code, ahead, goes_on = x, x, starts
    for _ in range(3):
        ahead = nn.functional.pad(ahead, (0, 1))[1:]
        goes_on = goes_on & (ahead >> 6 == 2)
        code = torch.where(goes_on, code * 256 + ahead, code)
    named, number, counts = torch.unique_consecutive(word[starts], return_inverse=True, return_counts=True)
    ends = (counts + 2).cumsum(0)
    line = x.new_full((int(ends[-1]) if len(ends) else 0,), ord(" "))
    line[torch.arange(len(number), device=x.device) + 2 * number + 1] = code[starts]
    sizes = torch.repeat_interleave(counts + 2)
    left = ends[sizes] - torch.arange(len(line), device=x.device)
    return named[sizes], line, left


def _mixed(code: Tensor, later: Tensor) -> Tensor:
    """Return the hash code of n-grams with one more character after them.

    The shifts carry high bits to low ones: n-grams of few different characters would often share a row without them.
    """
    low = 2**31 - 1
    code = (code * 1_000_003 + later + 1) & low
    code = (code ^ code >> 15) * 0x5BD1E995 & low
    return code ^ code >> 13


def _require_spelled(raw: Any, vocab_size: int) -> None:
    """Raise DataError unless the input is words of the vocabulary with their characters."""
    if not isinstance(raw, Spelled):
        raise DataError(
            f"expected words with their characters, found {type(raw).__name__}",
            fix="fit the tokenizer with WordsConfig(keep_characters=True)",
        )
    words, letters = raw
    _require_tokens(words, vocab_size)
    if letters.dtype != torch.uint8 or letters.shape[:2] != words.values.shape or letters.ndim != 3:
        raise DataError(
            f"characters are bytes [rows, time, length], found {letters.dtype} {list(letters.shape)} for words of "
            f"shape {list(words.values.shape)}"
        )


def _later(tokens: Tensor, steps: int) -> Tensor:
    """[B,T] each row shifted to the right by `steps` elements."""
    return nn.functional.pad(tokens, (steps, 0))[:, : tokens.shape[1]]


class Vectors(Stateless):
    """A linear map of each numeric vector."""

    def __init__(self, config: VectorsConfig, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(config.size, width)

    def forward(self, x: Padded) -> Padded:
        require_padded(x)
        if x.values.ndim != 3 or x.values.shape[2] != self.widen.in_features:
            raise DataError(f"expected vectors of size {self.widen.in_features}, found {list(x.values.shape)}")
        _require_numbers(x.values, self.widen.weight, "vectors")
        return x.with_values(self.widen(x.values))


class LetterFilters(nn.Module):
    """Filters over the characters of a word with maximum pooling: max_t (b + sum_k W_k x_{t+k}), k = -1, 0, 1."""

    def __init__(self, letter_size: int, size: int) -> None:
        super().__init__()
        bound = (letter_size * SPELLING_TAPS) ** -0.5
        self.weight = nn.Parameter(torch.empty(size, letter_size, SPELLING_TAPS).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Padded) -> Tensor:
        """[N,size] the vector of each word, from its characters [N,L,D]."""
        return maximum(x.with_values(convolve(x.values, self.weight, self.bias, left=SPELLING_TAPS // 2)))


class LetterReaders(nn.Module):
    """A bidirectional LSTM over the characters of a word: the last state of each direction."""

    def __init__(self, letter_size: int, size: int) -> None:
        super().__init__()
        self.onward, self.back = (Recurrent(LstmConfig(), letter_size, size // 2) for _ in range(2))

    def forward(self, x: Padded) -> Tensor:
        """[N,size] the vector of each word, from its characters [N,L,D]."""
        return torch.cat([self.onward(x).last(), self.back(x.reverse()).last()], dim=1)


class SpelledWords(ElementInput, Lookup):
    """W [v; s] + b, with v the vector of a word and s that of its characters."""

    def __init__(self, config: SpelledConfig, width: int) -> None:
        super().__init__()
        size = width if config.size is None else config.size
        self.table = nn.Parameter(torch.randn(config.vocab_size, size) * size**-0.5)
        self.letters = nn.Parameter(torch.randn(NUM_LETTERS, config.letter_size) * config.letter_size**-0.5)
        readers = {"cnn": LetterFilters, "lstm": LetterReaders}
        self.spelling = readers[config.char_encoder](config.letter_size, config.spelling_size)
        self.widen = nn.Linear(size + config.spelling_size, width)
        self.rare_from, self.unknown_rate = config.rare_from, config.unknown_rate

    def forward(self, raw: Spelled) -> Padded:
        _require_spelled(raw, len(self.table))
        words, letters = raw
        vectors = self.look_up(self._some_unknown(words.values.masked_fill(~words.valid, 0)))
        return words.with_values(self.widen(torch.cat([vectors, self._spelled(letters)], dim=2)))

    def _spelled(self, letters: Tensor) -> Tensor:
        """[B,T,S] the vectors of characters; zero for a word without characters."""
        flat = letters.flatten(0, 1).int()  # [N,L]
        x = Padded(nn.functional.embedding(flat, self.letters), (flat > 0).sum(dim=1))
        vectors: Tensor = self.spelling(x.with_values(x.values))
        return vectors.view(*letters.shape[:2], vectors.shape[1])

    def _some_unknown(self, tokens: Tensor) -> Tensor:
        """Return the tokens; in training, some rare ones are replaced by UNKNOWN."""
        if not (self.training and self.unknown_rate) or self.rare_from is None:
            return tokens
        drawn = torch.rand(tokens.shape, device=tokens.device) < self.unknown_rate
        return tokens.masked_fill(drawn & (tokens >= self.rare_from), UNKNOWN)


class _Picture(Input):
    """Base class of the picture inputs: checks the shape."""

    def __init__(self, config: PictureConfig) -> None:
        super().__init__()
        self.shape = (config.height, config.width, config.channels)

    def require_picture(self, pictures: Tensor) -> None:
        """Raise DataError unless the pictures have the configured shape."""
        if not isinstance(pictures, Tensor):
            raise DataError(f"expected a tensor of pictures, found {type(pictures).__name__}")
        if pictures.ndim != 4 or tuple(pictures.shape[1:]) != self.shape or len(pictures) == 0:
            height, width, channels = self.shape
            first = tuple(pictures.shape[1:]) == (channels, height, width)
            raise DataError(
                f"expected pictures [rows, height, width, channels] = [rows, {height}, {width}, {channels}], found "
                f"{list(pictures.shape)}",
                fix="put the channels last: pictures.permute(0, 2, 3, 1)" if first else "convert them to that shape",
            )
        _require_numbers(pictures, next(self.parameters()), "pictures")


class Flat(_Picture):
    """The complete picture as one vector, mapped linearly: a sequence of length one."""

    def __init__(self, config: FlatConfig, width: int) -> None:
        super().__init__(config)
        self.widen = nn.Linear(config.height * config.width * config.channels, width)

    def forward(self, raw: Tensor) -> Padded:
        self.require_picture(raw)
        return Padded.of(self.widen(raw.flatten(1))[:, None])


class Patches(_Picture):
    """Square patches in reading order, each mapped linearly to one vector."""

    def __init__(self, config: PatchesConfig, width: int) -> None:
        super().__init__(config)
        self.patch = config.patch
        self.widen = nn.Linear(config.patch**2 * config.channels, width)

    def forward(self, raw: Tensor) -> Padded:
        self.require_picture(raw)
        tiles = raw.unfold(1, self.patch, self.patch).unfold(2, self.patch, self.patch)  # [B,Y,X,C,p,p]
        tiles = tiles.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)  # [B,Y*X,p*p*C]
        return Padded.of(self.widen(tiles))


class PictureFilters(_Picture):
    """2-D convolutions with ReLU and 2 x 2 maximum pooling; every place of the last map is one vector."""

    def __init__(self, config: FiltersConfig, width: int) -> None:
        super().__init__(config)
        depths = (config.channels, *config.filters)
        self.weights, self.biases, self.maps = nn.ParameterList(), nn.ParameterList(), nn.ModuleList()
        for depth, deeper in pairwise(depths):
            bound = (depth * config.kernel_size**2) ** -0.5
            filters = torch.empty(deeper, depth, config.kernel_size, config.kernel_size)
            self.weights.append(nn.Parameter(filters.uniform_(-bound, bound)))
            self.biases.append(nn.Parameter(torch.zeros(deeper)))
            self.maps.append(Tap())  # [B,filters,Y,X] activation maps
        self.widen = nn.Linear(depths[-1], width)

    def forward(self, raw: Tensor) -> Padded:
        self.require_picture(raw)
        maps = raw.permute(0, 3, 1, 2)
        for weight, bias, tap in zip(self.weights, self.biases, self.maps, strict=True):
            maps = tap(torch.relu(convolve_2d(maps, weight, bias)))
            if min(maps.shape[2:]) > 1:
                maps = nn.functional.max_pool2d(maps, 2)
        return Padded.of(self.widen(maps.flatten(2).transpose(1, 2)))
