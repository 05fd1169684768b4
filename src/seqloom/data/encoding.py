"""From examples to columns of numbers: symbols for text, numbers for labels and tags, arrays as they are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from seqloom.config.data import EncodingConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.joining import cut_framed_words, cut_pairs, cut_texts, cut_words, longest_texts, paired, whole_words
from seqloom.data.problems import Ledger
from seqloom.data.references import REFERENCE, reference_column
from seqloom.data.schema import TOGETHER, Example, Schema, TextPair, TextTriple, Words
from seqloom.text.characters import letters_of
from seqloom.text.frames import closed
from seqloom.text.ragged import Ragged
from seqloom.text.special_tokens import SEPARATOR
from seqloom.text.tokenizer import Tokenizer

# -----------------------------------------------------------------------------
# How much of the original text each symbol of a language model stands for, in bytes of UTF-8.
#
# A loss per symbol depends on how the text was cut: words are harder to guess than characters, and there are fewer of
# them. A loss per byte of the original does not, so models with different tokenisers can be compared by it. An END
# counts as one byte, the line break or the end of file that it stands for:
#
#     bits per byte = (loss of all symbols and ENDs) / log 2 / (bytes of all texts + number of texts)
#
# A text's bytes are dealt out to its symbols evenly, in whole numbers. So what a step, a row or a rank has read adds up
# to exactly the bytes of a whole part, however it was cut; what one piece of a text was worth is known roughly.
# -----------------------------------------------------------------------------

BYTES = "bytes"  # the column that says how many each text is worth


def bytes_of(text: str) -> int:
    """How many bytes a text is worth: its own, and one for its END.

    >>> bytes_of("naïve")
    7
    """
    return len(text.encode()) + 1


def bytes_of_first(tokenizer: Tokenizer, text: str, symbols: int) -> int:
    """The same of a text of which only so many symbols are read."""
    _, stop = tokenizer.encode_with_offsets(text).spans[symbols - 1].tolist()
    return bytes_of(text[:stop])


def dealt(total: np.ndarray, count: np.ndarray, places: np.ndarray) -> np.ndarray:
    """What each of the places 0..count-1 gets of a total that is dealt out evenly, in whole numbers.

    >>> dealt(np.array(7), np.array(3), np.arange(3)).tolist()
    [2, 2, 3]
    """
    return np.asarray((places + 1) * total // count - places * total // count)


LETTERS = "letters"  # the column of the spelling of each word
PLACE = "place"  # the column that says where each row stood
UNSEEN = -1  # the number of a label that training never saw: scored as an error, never trained on
_LONGER = "raise --longest"


def keeps_letters(tokenizer: object) -> bool:
    """Whether the configuration of a tokeniser asks for the letters of words."""
    return isinstance(tokenizer, WordsConfig) and tokenizer.letters


def texts_of(schema: Schema, config: EncodingConfig, example: Example) -> Iterator[str]:
    """Every text of an example that the tokeniser of its input reads; words by themselves where each is one symbol."""
    given: Any = example.input
    if schema.input == "text":
        yield given
    elif schema.input in ("pair", "triple"):
        yield from given
    elif schema.input == "words" and keeps_letters(config.tokenizer):
        yield " ".join(given.words())
    elif schema.input == "words":
        yield given.text


class ExampleEncoder:
    """Makes columns of examples, block by block. Labels and tokenisers are those of the training part."""

    def __init__(
        self,
        schema: Schema,
        config: EncodingConfig,
        tokenizer: Tokenizer | None,
        target_tokenizer: Tokenizer | None,
        ledger: Ledger,
    ) -> None:
        self.schema, self.config, self.ledger = schema, config, ledger
        self.tokenizer, self.target_tokenizer = tokenizer, target_tokenizer
        self.files: dict[str, int] = {}  # in the order in which they were read
        self.shapes: dict[str, tuple[int | str, ...]] = {}  # by code: of the first arrays and numbers of all parts
        self.numbers = {label: number for number, label in enumerate(schema.labels)}

    def columns(self, examples: Sequence[Example]) -> dict[str, Ragged]:
        """The columns of some examples; those that are too long are cut and counted, or left out as bad rows."""
        columns = _INPUTS[self.schema.input](self, examples) | _TARGETS[self.schema.target](self, examples)
        columns[PLACE] = self._places(examples)
        lengths = np.max(
            [np.zeros(len(examples), np.int64), *(self._lengths(name, columns) for name in self._limited())], axis=0
        )
        long = np.flatnonzero(lengths > self.config.longest)
        if not len(long):
            return columns
        most = f"{self.config.longest:,}"
        if self.config.too_long == "cut":
            for row in long.tolist():
                self.ledger.warn("seq.truncated", f"{lengths[row]:,} long; cut to {most}", examples[row].place, _LONGER)
            if BYTES in columns:
                columns[BYTES] = self._bytes_of_cut(columns[BYTES], examples, long)
            return self._cut(columns)
        for row in long.tolist():
            self.ledger.bad_row("seq.too_long", f"{lengths[row]:,} long; {most} allowed", examples[row].place, _LONGER)
        self.ledger.rows -= len(long)
        short = np.flatnonzero(lengths <= self.config.longest)
        return {name: column.select(short) for name, column in columns.items()}

    def _places(self, examples: Sequence[Example]) -> Ragged:
        """[rows,2] the number of the file and the line of each example."""
        places = [example.place for example in examples]
        numbers = [(self.files.setdefault(place.path, len(self.files)), place.line or 0) for place in places]
        return Ragged(np.array(numbers, np.uint32).reshape(-1, 2), np.arange(len(numbers) + 1))

    def _limited(self) -> list[str]:
        """The columns whose lengths count: symbols of texts, pieces of words, steps."""
        inputs = [] if self.schema.input == "picture" else ["input"]
        return [*inputs, *(["target"] if self.schema.target == "text" else [])]

    def _lengths(self, name: str, columns: Mapping[str, Ragged]) -> np.ndarray:
        """[rows] what is compared with `longest`: of texts that are read one by one the longest text of a row."""
        by_text = name == "input" and self.schema.target in TOGETHER
        return longest_texts(columns[name]) if by_text else columns[name].lengths

    def _cut(self, columns: dict[str, Ragged]) -> dict[str, Ragged]:
        most = self.config.longest
        cut = {name: columns[name].shorten(np.full(columns[name].rows, most)) for name in self._limited()}
        if self.schema.target in TOGETHER:
            cut["input"] = cut_texts(columns["input"], most)
        elif self.schema.input == "pair":
            cut["input"] = cut_pairs(columns["input"], most)
        framed = self.tokenizer is not None and self.tokenizer.config.framed
        if self.schema.input == "words":
            cut_by = cut_framed_words if framed else cut_words
            cut["input"], cut["firsts"] = cut_by(columns["input"], columns["firsts"], most)
        elif framed:
            cut["input"] = closed(cut["input"])
        if LETTERS in columns:
            cut[LETTERS] = columns[LETTERS].shorten(cut["firsts"].lengths)
        if self.schema.target in ("tags", "series"):  # one for each word or step that is left
            cut["target"] = columns["target"].shorten(cut.get("firsts", cut["input"]).lengths)
        return columns | cut

    def _bytes_of_cut(self, sizes: Ragged, examples: Sequence[Example], long: np.ndarray) -> Ragged:
        """The bytes of texts, where those that are too long count as far as they are read."""
        values, tokenizer = sizes.values.copy(), _tokenizer(self.tokenizer)
        for row in long.tolist():
            values[row] = bytes_of_first(tokenizer, cast(str, examples[row].input), self.config.longest)
        return Ragged(values, sizes.starts)

    def number_of(self, label: str) -> int:
        """The number of a label; UNSEEN for one that training never saw."""
        return self.numbers.get(label, UNSEEN)

    def require_alike(self, code: str, shape: tuple[int | str, ...], example: Example) -> None:
        """Refuse a part whose arrays are unlike those of the parts before; inside one part rows were compared."""
        before = self.shapes.setdefault(code, shape)
        if shape != before:
            found, wanted = (" x ".join(map(str, one)) for one in (shape, before))
            text = f"this part begins with {found} where another one has {wanted}"
            self.ledger.bad_file(code, text, example.place, "give all parts arrays of one size and kind")


def _tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    assert tokenizer is not None, "a schema with text has a tokeniser"
    return tokenizer


def _encode_text(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    texts = [cast(str, example.input) for example in examples]
    return {"input": _tokenizer(encoder.tokenizer).encode(texts)}


def _encode_pair(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    tokenizer, pairs = _tokenizer(encoder.tokenizer), [cast(TextPair, example.input) for example in examples]
    first, second = (tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1))
    return {"input": paired(first, second, SEPARATOR)}


def _encode_triple(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    tokenizer, triples = _tokenizer(encoder.tokenizer), [cast(TextTriple, example.input) for example in examples]
    first, second, third = (tokenizer.encode([triple[side] for triple in triples]) for side in (0, 1, 2))
    return {"input": paired(paired(first, second, SEPARATOR), third, SEPARATOR)}


def _encode_words(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    sentences = [cast(Words, example.input).words() for example in examples]
    tokenizer = _tokenizer(encoder.tokenizer)
    pieces, firsts = tokenizer.encode_words(sentences)
    if not keeps_letters(tokenizer.config):
        return {"input": pieces, "firsts": firsts}
    letters = Ragged(letters_of([word for words in sentences for word in words]), firsts.starts)
    return {**whole_words(pieces, firsts), LETTERS: letters}


def _encode_vectors(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    columns = _encode_array(examples)
    encoder.require_alike("array.width", columns["input"].values.shape[1:], examples[0])
    return columns


def _encode_picture(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    first = cast(np.ndarray, examples[0].input)
    encoder.require_alike("picture.size", (*first.shape, first.dtype.name), examples[0])
    return _encode_array(examples)


def _encode_array(examples: Sequence[Example]) -> dict[str, Ragged]:
    arrays = [cast(np.ndarray, example.input) for example in examples]
    return {"input": Ragged.of(arrays, arrays[0].dtype)}


def _encode_label(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    numbers = [encoder.number_of(cast(str, example.target)) for example in examples]
    return {"target": Ragged(np.array(numbers, np.int32), np.arange(len(numbers) + 1))}


def _encode_labels(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    rows = [[encoder.number_of(label) for label in cast(tuple[str, ...], one.target)] for one in examples]
    return {"target": Ragged.of(rows, np.int32)}


def _encode_numbers(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    numbers = [cast(tuple[float, ...], example.target) for example in examples]
    encoder.require_alike("type.number", (len(numbers[0]),), examples[0])
    return {"target": Ragged.of(numbers, np.float32)}


def _encode_series(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    rows = [np.array(example.target, np.float32) for example in examples]
    encoder.require_alike("type.number", rows[0].shape[1:], examples[0])
    return {"target": Ragged.of(rows, np.float32)}


def _encode_target_text(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    texts = [cast(str, example.target) for example in examples]
    return {"target": _tokenizer(encoder.target_tokenizer).encode(texts), REFERENCE: reference_column(texts)}


def _encode_nothing(encoder: ExampleEncoder, examples: Sequence[Example]) -> dict[str, Ragged]:
    if encoder.schema.input != "text":  # inputs that are only to be answered
        return {}
    sizes = [bytes_of(cast(str, example.input)) for example in examples]
    return {BYTES: Ragged(np.array(sizes, np.int64), np.arange(len(sizes) + 1))}


_Encode = Callable[[ExampleEncoder, Sequence[Example]], dict[str, Ragged]]
_INPUTS: Mapping[str, _Encode] = {
    "text": _encode_text,
    "pair": _encode_pair,
    "triple": _encode_triple,
    "words": _encode_words,
    "vectors": _encode_vectors,
    "picture": _encode_picture,
}
_TARGETS: Mapping[str, _Encode] = {
    "label": _encode_label,
    "labels": _encode_labels,
    "numbers": _encode_numbers,
    "tags": _encode_labels,
    "series": _encode_series,
    "text": _encode_target_text,
    "nothing": _encode_nothing,
    "masked": lambda _, __: {},
    "related": lambda _, __: {},
    "similarity": _encode_numbers,
}
