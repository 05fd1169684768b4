"""Labels: one per example, any number per example, or a tag for each word or step."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqloom.config.data import Task
from seqloom.data.kinds.kind import Coding, Columns, TargetKind, even, filled, tensor
from seqloom.data.values import BadValue, Read, ReadMany, Remark, Remarks, kind_name, label_of, shown, texts_of
from seqloom.errors import DataError
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


LABELS = ("label", "labels", "class", "category", "sentiment", "intent", "topic", "target", "y")
UNSEEN = -1  # the number of a label that is not in the training set: it counts as an error
MOST_LABELS = 2**17  # whose types are remembered, to limit memory


class LabelTarget(TargetKind):
    """Column "target": the number of the label; UNSEEN if it is not in the training set. In a batch: [B]."""

    name = "label"
    task = "classify"
    column_names = LABELS
    has_labels = True
    one_label = True
    exclusive = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the label of a row."""
        return self.readers(roles, remarks)[0]

    def readers(self, roles: "Roles", remarks: Remarks) -> tuple[Read, ReadMany]:
        (column,), name = roles.target, LabelNames(roles, remarks)
        return lambda values: name(values[column]), lambda columns: name.of_texts(list(columns[column]))

    def labels(self, value: Any) -> Iterable[str]:
        return (value,)

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        numbers = [coding.numbers.get(label, UNSEEN) for label in values]
        return {"target": Ragged(np.array(numbers, np.int32), np.arange(len(numbers) + 1))}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        return inputs, tensor(even(columns["target"], "labels")[:, 0].astype(np.int64))


class LabelNames:
    """Converts values to labels, and remarks on labels written as different types, such as `true` and "true"."""

    def __init__(self, roles: "Roles", remarks: Remarks) -> None:
        (self.column,) = roles.target
        self.whole, self.remarks = roles.whole, remarks
        self.types: dict[str, type] = {}  # the first type of each label

    def __call__(self, value: Any) -> str:
        label = label_of(value, self.column, whole=self.whole)
        before = self.types.get(label)
        if before is not type(value):
            if before is not None:
                text = (
                    f"label {shown(label)} is {_TYPES[type(value)]} here but was {_TYPES[before]}; both are one label"
                )
                self.remarks.append(Remark(self.column, "label.types", text, "use one type in all rows"))
            elif len(self.types) < MOST_LABELS:
                self.types[label] = type(value)
        return label

    def of_texts(self, values: list[Any]) -> list[str] | None:
        """The labels of texts, or None if a value is another one or blank, or its label was no text before."""
        labels = texts_of(list(dict.fromkeys(values))) if set(map(type, values)) == {str} else None
        if labels is None or any(self.types.get(label, str) is not str for label in labels):
            return None
        for label in labels:
            self(label)
        return values


_TYPES = {str: "text", bool: "a boolean", int: "an integer", float: "a float"}


class LabelsTarget(TargetKind):
    """Column "target": the numbers of the labels, each once. In a batch: zeros and ones [B,K].

    Labels that are not in the training set have no column; `unseen_labels` counts them for evaluation.
    """

    name = "labels"
    task: ClassVar[Task] = "classify"
    column_names: ClassVar[tuple[str, ...]] = LABELS
    has_labels = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the labels of a row: a list, or a cell with a separator between them."""
        (column,), name = roles.target, LabelNames(roles, remarks)

        def read(values: tuple[Any, ...]) -> tuple[str, ...]:
            value = values[column]
            if type(value) is str:  # an empty cell means no label
                separator = roles.label_separator
                value = [part for part in value.split(separator) if part] if separator else [value]
            if not isinstance(value, list | tuple):
                raise BadValue(column, "type.label", f"expected a list of labels, found {kind_name(value)}")
            return tuple(dict.fromkeys(map(name, value)))

        return read

    def labels(self, value: Any) -> Iterable[str]:
        return value  # type: ignore[no-any-return]

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        return {"target": Ragged.of([[coding.numbers.get(one, UNSEEN) for one in row] for row in values], np.int32)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        target = columns["target"]
        if target.values.size and not -1 <= int(target.values.min()) <= int(target.values.max()) < num_labels:
            raise DataError(f"expected label numbers below {num_labels}, found {int(target.values.max())}")
        rows, known = np.repeat(np.arange(target.rows), target.lengths), target.values >= 0
        hot = np.zeros((target.rows, num_labels), np.float32)
        hot[rows[known], target.values[known]] = 1
        return inputs, tensor(hot)


class TagsTarget(LabelsTarget):
    """Column "target": the number of each tag. In a batch: [B,W] or [B,T], 0 in the padding."""

    name = "tags"
    task = "tag"
    column_names = ("tags", "ner_tags", "pos_tags", "upos", "labels")
    noun = "tag"
    exclusive = True
    of_steps = True
    length_code = "tags.length"

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """A function that reads the tags of a row: a list, or a cell with spaces between them."""
        (column,), name = roles.target, LabelNames(roles, remarks)

        def read(values: tuple[Any, ...]) -> tuple[str, ...]:
            value = values[column]
            if isinstance(value, str):
                value = [tag for tag in value.split(" ") if tag]
            if isinstance(value, np.ndarray):
                value = value.tolist()
            if not isinstance(value, list | tuple):
                raise BadValue(column, "type.tags", f"expected a list of tags, found {kind_name(value)}")
            return tuple(map(name, value))

        return read

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """A number for each word or step."""
        return inputs, tensor(filled(columns["target"], np.int64))
