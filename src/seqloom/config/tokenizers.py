"""Tokenisers: how text becomes symbols. Each is fitted on training data only, or comes with an imported model."""

from typing import TYPE_CHECKING, Annotated, Literal, cast

from msgspec import Meta

from seqloom.config.base import Config
from seqloom.config.options import Flag
from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from seqloom.text.tokenizer import Tokenizer

UnicodeForm = Literal["as-is", "nfc", "nfd", "nfkc", "nfkd"]
WordLimit = Annotated[int, Meta(ge=16, le=2**24, examples=[32])]
PieceLimit = Annotated[int, Meta(ge=300, le=2**20, examples=[300])]  # 256 bytes, the special symbols, some merges
Count = Annotated[int, Meta(ge=1, le=2**30, examples=[1])]


VOCABULARY = Flag("The most symbols of the tokeniser.", "COUNT", name="--vocabulary")
LEAST = Flag("How often a word or character must occur, else it is unknown.", "COUNT")


class TokenizerConfig(Config, kw_only=True):
    """Base of the tokenisers: what is done to a text before it is cut. Offsets always point into the original."""

    unicode: Annotated[UnicodeForm, Flag("The form of the text: {names}.", "FORM", shown=True)] = "as-is"
    lower: Annotated[bool, Flag("Lower-case the text.")] = False

    @property
    def forgets(self) -> tuple[str, ...]:
        """What of a text its symbols do not tell, even where none of them is unknown.

        >>> CharactersConfig().forgets, WordsConfig(lower=True, unicode="nfc").forgets
        ((), ('unicode form', 'case', 'spacing'))
        """
        form = () if self.unicode == "as-is" else ("unicode form",)
        return (*form, "case") if self.lower else form

    @property
    def framed(self) -> bool:
        """Whether every text stands between BEGIN and END."""
        return False

    def fit(self, texts: "Iterable[str]") -> "Tokenizer":
        """The tokeniser whose vocabulary comes from these texts, which must be training data."""
        from seqloom.text.tokenizer import fit

        return fit(cast("FittedTokenizer", self), texts)


class WordsConfig(TokenizerConfig, tag="words", kw_only=True):
    """Words and marks of punctuation; with `split = "space"`, whatever stands between white space."""

    limit: Annotated[WordLimit, VOCABULARY] = 50_000
    least: Annotated[Count | None, LEAST] = None  # None: once, or as training chooses for its task
    split: Annotated[
        Literal["punctuation", "space"],
        Flag("Words end at punctuation, or only at space (text cut before).", "RULE", name="--word-split", shown=True),
    ] = "punctuation"
    or_lower: bool = False  # a word that is not in the vocabulary is looked up in lower case before it is unknown
    letters: bool = False  # of data that is cut into words: each is one symbol, and its letters are kept beside it

    @property
    def forgets(self) -> tuple[str, ...]:
        case = ("case",) if self.or_lower and not self.lower else ()
        return (*super().forgets, *case, "spacing")


class CharactersConfig(TokenizerConfig, tag="characters", kw_only=True):
    """Unicode code points."""

    limit: Annotated[WordLimit, VOCABULARY] = 4_096
    least: Annotated[Count, LEAST] = 1


class BytesConfig(TokenizerConfig, tag="bytes", kw_only=True):
    """The bytes of UTF-8: nothing is unknown, nothing is fitted."""


class BpeConfig(TokenizerConfig, tag="bpe", kw_only=True):
    """Subwords by byte-pair merges over bytes (Sennrich et al. 2016): nothing is unknown."""

    limit: Annotated[PieceLimit, VOCABULARY] = 8_000


class UnigramConfig(TokenizerConfig, tag="unigram", kw_only=True):
    """Subwords by a unigram language model over bytes (Kudo 2018): nothing is unknown."""

    limit: Annotated[PieceLimit, VOCABULARY] = 8_000


class WordpieceConfig(TokenizerConfig, tag="wordpiece", kw_only=True):
    """Subwords by the longest match from the left (Devlin et al. 2019), framed; it comes with an imported model."""

    clean: bool = True  # control characters are left out
    chinese_apart: bool = True  # each Chinese character is a word
    accents: bool = False  # whether they are kept
    longest_word: Count = 100  # characters; a longer one is unknown

    @property
    def forgets(self) -> tuple[str, ...]:
        return (*super().forgets, *(() if self.accents else ("accents",)), "spacing")

    @property
    def framed(self) -> bool:
        return True

    def fit(self, texts: "Iterable[str]") -> "Tokenizer":
        raise ConfigError(
            "a wordpiece vocabulary comes with the weights of an imported model, and none is fitted to data",
            fix="take bpe, or start from an imported model: seqloom train DATA --init MODEL",
        )


FittedTokenizer = WordsConfig | CharactersConfig | BytesConfig | BpeConfig | UnigramConfig
AnyTokenizer = FittedTokenizer | WordpieceConfig
