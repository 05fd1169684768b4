"""Predictions with their inputs, which a notebook shows as a table."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

from seqloom.data.cells import flat
from seqloom.report.document import Document, Shown, TableBlock
from seqloom.report.frames import data_frame
from seqloom.report.labels import excerpt
from seqloom.report.numbers import counted
from seqloom.tasks.task import Prediction

SHOWN = 5  # predictions in `repr`
SHOWN_ROWS = 100  # in a notebook
LONGEST = 80  # characters of an input or a prediction


class Predictions(Sequence[Prediction], Shown):
    """The predictions for some inputs, in order: a sequence with `to_pandas()`, and a table in notebooks.

    It does not change, so each prediction stays with its input. It is equal to any list of the same predictions.

    >>> from seqloom.tasks.task import TextPrediction
    >>> found = Predictions([("a", TextPrediction("b")), ("c", TextPrediction("d"))])
    >>> found[1:].inputs, found[1:] == [TextPrediction("d")]
    (['c'], True)
    """

    __slots__ = ("_pairs",)
    __hash__ = None  # type: ignore[assignment]  # like a list, to which it can be equal

    def __init__(self, pairs: Iterable[tuple[str | None, Prediction]]) -> None:
        """Keep pairs of the text of an input and its prediction; None for an input that is not text."""
        self._pairs = tuple(pairs)

    @property
    def inputs(self) -> list[str | None]:
        """The texts of the inputs; None for inputs that are not text."""
        return [text for text, _ in self._pairs]

    if not TYPE_CHECKING:  # a type checker finds a wrong name by itself

        def __getattr__(self, name: str) -> NoReturn:
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and any(hasattr(one, name) for one in self):
                message += f", but each prediction has: predictions[0].{name}, or [one.{name} for one in predictions]"
            raise AttributeError(message, name=name, obj=self)

    def __len__(self) -> int:
        return len(self._pairs)

    @overload
    def __getitem__(self, at: int) -> Prediction: ...

    @overload
    def __getitem__(self, at: slice) -> "Predictions": ...

    def __getitem__(self, at: int | slice) -> "Prediction | Predictions":
        return Predictions(self._pairs[at]) if isinstance(at, slice) else self._pairs[at][1]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Predictions | list) else NotImplemented

    def __repr__(self) -> str:
        more = [f"… {counted(len(self), 'prediction')} in all"] if len(self) > SHOWN else []
        return ",\n ".join([*map(repr, list(self)[:SHOWN]), *more]).join("[]")

    def document(self) -> Document:
        """A table of the predictions, with the inputs if they are texts."""
        rows = [
            (str(at), excerpt(given or "", LONGEST), excerpt(one.to_text(), LONGEST))
            for at, (given, one) in enumerate(self._pairs[:SHOWN_ROWS])
        ]
        rest = f", the first {SHOWN_ROWS:,}" if len(self) > SHOWN_ROWS else ""
        return Document(f"{counted(len(self), 'prediction')}{rest}", [TableBlock(("", "input", "prediction"), rows)])

    def to_json(self) -> dict[str, Any]:
        """The predictions as plain values."""
        return {"predictions": [one.to_json() for one in self]}

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each input: the text in `input`, and the columns of `seqloom predict -o x.csv`."""
        rows = [({} if text is None else {"input": text}) | flat(one.to_json()) for text, one in self._pairs]
        return data_frame(rows)
