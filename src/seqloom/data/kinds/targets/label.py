"""One label out of a list: what a classifier says of each example."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.kind import Coding, Columns, TargetKind
from seqloom.data.values import Read, Remark, Remarks, label_of, shown
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles

LABELS = ("label", "labels", "class", "category", "sentiment", "intent", "topic", "target", "y")
UNSEEN = -1  # the number of a label that training never saw: scored as an error, never trained on
MOST_LABELS = 2**17  # whose types are remembered: classes are fewer, and memory has an end


class LabelTarget(TargetKind):
    """Column "target": the number of the label; UNSEEN for one that training never saw. In a batch: [B]."""

    name = "label"
    task = "classify"
    usual = LABELS
    has_labels = True
    one_label = True
    exclusive = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the label of a row."""
        (column,), name = roles.target, LabelNames(roles, remarks)
        return lambda values: name(values[column])

    def labels(self, value: Any) -> Iterable[str]:
        """The label."""
        return (value,)

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The numbers of the labels."""
        numbers = [coding.numbers.get(label, UNSEEN) for label in values]
        return {"target": Ragged(np.array(numbers, np.int32), np.arange(len(numbers) + 1))}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """A number for each row."""
        from torch import from_numpy

        from seqloom.data.kinds import tensors

        return inputs, from_numpy(tensors.even(columns["target"], "labels")[:, 0].astype(np.int64))


class LabelNames:
    """Names labels, and tells of values of different types, `true` and "true", which can only be one label."""

    def __init__(self, roles: "Roles", remarks: Remarks) -> None:
        (self.column,) = roles.target
        self.whole, self.remarks = roles.whole, remarks
        self.types: dict[str, type] = {}  # in which each label was first written

    def __call__(self, value: Any) -> str:
        label = label_of(value, self.column, whole=self.whole)
        before = self.types.get(label)
        if before is not type(value):
            if before is not None:
                text = f"label {shown(label)} is {_TYPES[type(value)]} here and {_TYPES[before]} before; both are one"
                self.remarks.append(Remark(self.column, "label.types", text, "write it in one way in all rows"))
            elif len(self.types) < MOST_LABELS:
                self.types[label] = type(value)
        return label


_TYPES = {str: "a text", bool: "true or false", int: "a whole number", float: "a number with a point"}
