"""Tokenizers: how text becomes tokens. They are fitted on the training set, or come with an imported model."""

from typing import TYPE_CHECKING, Annotated, Literal, cast

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.options import TOKENS, Flag
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from seqloom.text.tokenizer import Tokenizer

WordSplit = Literal["punctuation", "space"]
UnicodeForm = Literal["as-is", "nfc", "nfd", "nfkc", "nfkd"]
WordLimit = Annotated[int, Meta(ge=16, le=2**24, examples=[32])]
SubwordLimit = Annotated[int, Meta(ge=300, le=2**20, examples=[300])]  # 256 bytes, the special tokens, some merges
Count = Annotated[int, Meta(ge=1, le=2**30, examples=[1])]


VOCAB_SIZE = Flag(
    "Maximum vocabulary size (default: 50,000 words, 4,096 characters or 8,000 subwords).", "COUNT", TOKENS
)
MIN_COUNT = Flag(
    "Map words or characters that occur less often than this in the training set to the unknown token "
    "(default: 1; 2 for word-level language models).",
    "COUNT",
    TOKENS,
)


class TokenizerConfig(Config, kw_only=True):
    """Base of the tokenizers, with normalization. Offsets always point into the original text."""

    normalize: Annotated[
        UnicodeForm, Flag("Unicode normalization: {names} (default: as-is, no normalization).", "NAME", TOKENS)
    ] = "as-is"
    lowercase: Annotated[
        bool,
        Flag(
            "Lowercase the text (default: keep the case; a tagger that reads characters drops it in words, and linear "
            "in texts).",
            panel=TOKENS,
            negatable=True,
        ),
    ] = False

    @property
    def forgets(self) -> tuple[str, ...]:
        """The information that tokens lose, even without unknown tokens.

        >>> CharactersConfig().forgets, WordsConfig(lowercase=True, normalize="nfc").forgets
        ((), ('unicode form', 'case', 'spacing'))
        """
        form = () if self.normalize == "as-is" else ("unicode form",)
        return (*form, "case") if self.lowercase else form

    @property
    def framed(self) -> bool:
        """Whether every text gets BEGIN and END tokens."""
        return False

    @property
    def of_characters(self) -> bool:
        """Whether every token is a character or a byte."""
        return False

    def fit(self, texts: "Iterable[str]") -> "Tokenizer":
        """Fit a tokenizer on these texts, which must be training data."""
        from seqloom.text.tokenizer import fit

        return fit(cast("FittedTokenizer", self), texts)


class WordsConfig(TokenizerConfig, tag="words", kw_only=True):
    """Words and punctuation; with `word_split = "space"`, the text between white space."""

    vocab_size: Annotated[WordLimit, VOCAB_SIZE] = 50_000
    min_count: Annotated[Count | None, MIN_COUNT] = None  # None: 1, or chosen by training for its task
    word_split: Annotated[
        WordSplit,
        Flag(
            "Where to split text into words: punctuation (at spaces and punctuation marks) or space (only at spaces, "
            "for text that is already tokenized) (default: punctuation).",
            "RULE",
            TOKENS,
        ),
    ] = "punctuation"
    lowercase_fallback: bool = (
        False  # a word outside the vocabulary is looked up in lower case before it becomes unknown
    )
    keep_characters: bool = (
        False  # for data that is split into words, or texts whose characters are counted: letters are stored too
    )

    @property
    def forgets(self) -> tuple[str, ...]:
        case = ("case",) if self.lowercase_fallback and not self.lowercase else ()
        return (*super().forgets, *case, "spacing")


class CharactersConfig(TokenizerConfig, tag="characters", kw_only=True):
    """Unicode code points."""

    vocab_size: Annotated[WordLimit, VOCAB_SIZE] = 4_096
    min_count: Annotated[Count, MIN_COUNT] = 1

    @property
    def of_characters(self) -> bool:
        return True


class BytesConfig(TokenizerConfig, tag="bytes", kw_only=True):
    """UTF-8 bytes: no token is unknown, and nothing is fitted."""

    @property
    def of_characters(self) -> bool:
        return True


class BpeConfig(TokenizerConfig, tag="bpe", kw_only=True):
    """Subwords by byte-pair merges over bytes (Sennrich et al. 2016): nothing is unknown."""

    vocab_size: Annotated[SubwordLimit, VOCAB_SIZE] = 8_000


class UnigramConfig(TokenizerConfig, tag="unigram", kw_only=True):
    """Subwords by a unigram language model over bytes (Kudo 2018): nothing is unknown."""

    vocab_size: Annotated[SubwordLimit, VOCAB_SIZE] = 8_000


class WordpieceConfig(TokenizerConfig, tag="wordpiece", kw_only=True):
    """Greedy longest-match subwords (Devlin et al. 2019), framed; it comes with an imported model."""

    clean: bool = True  # remove control characters
    chinese_apart: bool = True  # each Chinese character is a word
    accents: bool = False  # whether accents are kept
    max_word_length: Count = 100  # characters; a longer one is unknown

    @property
    def forgets(self) -> tuple[str, ...]:
        return (*super().forgets, *(() if self.accents else ("accents",)), "spacing")

    @property
    def framed(self) -> bool:
        return True

    def fit(self, texts: "Iterable[str]") -> "Tokenizer":
        raise ConfigError(
            "a wordpiece vocabulary comes with an imported model and cannot be fitted",
            fix="use bpe, or start from an imported model: seqloom train FILE --init MODEL",
        )


FittedTokenizer = WordsConfig | CharactersConfig | BytesConfig | BpeConfig | UnigramConfig
AnyTokenizer = FittedTokenizer | WordpieceConfig
