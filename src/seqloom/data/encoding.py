"""From examples to columns of numbers, as the kinds of input and target encode them; and what is too long is cut."""

from collections.abc import Sequence

import numpy as np

from seqloom.config.data import EncodingConfig
from seqloom.data.kinds.kind import Coding, Columns
from seqloom.data.kinds.targets.related import cut_texts, longest_texts
from seqloom.data.problems import Ledger
from seqloom.data.schema import Example, Schema
from seqloom.text.cutter import closed
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

PLACE = "place"  # the column that says where each row stood
_LONGER = "raise --longest"


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
        columns = self._encoded(examples)
        columns[PLACE] = self._places(examples)
        lengths, longest = self._lengths(columns), self.config.longest
        long = np.flatnonzero(lengths > longest)
        if not len(long):
            return columns
        if self.config.too_long == "cut":
            for row in long.tolist():
                text = f"{lengths[row]:,} long; cut to {longest:,}"
                self.ledger.warn("seq.truncated", text, examples[row].place, _LONGER)
            return self._cut(columns)
        for row in long.tolist():
            text = f"{lengths[row]:,} long; {longest:,} allowed"
            self.ledger.bad_row("seq.too_long", text, examples[row].place, _LONGER)
        self.ledger.rows -= len(long)
        short = np.flatnonzero(lengths <= longest)
        return {name: column.select(short) for name, column in columns.items()}

    def _encoded(self, examples: Sequence[Example]) -> dict[str, Ragged]:
        kind, target = self.schema.input, self.schema.target
        inputs, targets = [example.input for example in examples], [example.target for example in examples]
        for likeness in (kind.likeness(inputs[0]), target.likeness(targets[0])):
            if likeness is not None:
                self._require_alike(*likeness, examples[0])
        columns = kind.encode(inputs, self.tokenizer)
        lengths, longest = columns["input"].lengths, self.config.longest
        coding = Coding(self.tokenizer, self.target_tokenizer, self.numbers, longest, kind, inputs, lengths)
        return columns | target.encode(targets, coding)

    def _places(self, examples: Sequence[Example]) -> Ragged:
        """[rows,2] the number of the file and the line of each example."""
        places = [example.place for example in examples]
        numbers = [(self.files.setdefault(place.path, len(self.files)), place.line or 0) for place in places]
        return Ragged(np.array(numbers, np.uint32).reshape(-1, 2), np.arange(len(numbers) + 1))

    def _lengths(self, columns: Columns) -> np.ndarray:
        """[rows] what is compared with `longest`: of texts that are read one by one the longest text of a row."""
        lengths, given = self.schema.target.lengths(columns), columns["input"]
        if self.schema.input.fixed_size:
            return lengths
        texts = longest_texts(given) if self.schema.target.apart else given.lengths
        return np.asarray(np.maximum(lengths, texts))

    def _cut(self, columns: dict[str, Ragged]) -> dict[str, Ragged]:
        most, framed = self.config.longest, self.tokenizer is not None and self.tokenizer.config.framed
        if self.schema.target.apart:
            texts = cut_texts(columns["input"], most)
            cut = columns | {"input": closed(texts) if framed else texts}
        else:
            cut = self.schema.input.cut(columns, most, framed=framed)
        return cut | self.schema.target.cut(cut, most)

    def _require_alike(self, code: str, shape: tuple[int | str, ...], example: Example) -> None:
        """Refuse a part whose arrays are unlike those of the parts before; inside one part rows were compared."""
        before = self.shapes.setdefault(code, shape)
        if shape != before:
            found, wanted = (" x ".join(map(str, one)) for one in (shape, before))
            text = f"this part begins with {found} where another one has {wanted}"
            self.ledger.bad_file(code, text, example.place, "give all parts arrays of one size and kind")
