"""Several labels out of a list, or one, or none."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqloom.config.data import Task
from seqloom.data.kinds.kind import Coding, Columns, TargetKind
from seqloom.data.kinds.targets.label import LABELS, UNSEEN, LabelNames
from seqloom.data.values import Read, Remarks, Unfit, kind_name
from seqloom.errors import DataError
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


class LabelsTarget(TargetKind):
    """Column "target": the numbers of the labels, each once. In a batch: zeros and ones [B,K].

    Labels that training never saw have no column there; `unseen_labels` counts them for an evaluation.
    """

    name = "labels"
    task: ClassVar[Task] = "classify"
    usual: ClassVar[tuple[str, ...]] = LABELS
    has_labels = True

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the labels of a row: a list, or a cell with a separator between them."""
        (column,), name = roles.target, LabelNames(roles, remarks)

        def read(values: tuple[Any, ...]) -> tuple[str, ...]:
            value = values[column]
            if type(value) is str:  # an empty cell has no label, which is an answer
                separator = roles.label_separator
                value = [part for part in value.split(separator) if part] if separator else [value]
            if not isinstance(value, list | tuple):
                raise Unfit(column, "type.label", f"expected a list of labels, got {kind_name(value)}")
            return tuple(dict.fromkeys(map(name, value)))

        return read

    def labels(self, value: Any) -> Iterable[str]:
        """The labels."""
        return value  # type: ignore[no-any-return]

    def encode(self, values: Sequence[Any], coding: Coding) -> dict[str, Ragged]:
        """The numbers of the labels."""
        return {"target": Ragged.of([[coding.numbers.get(one, UNSEEN) for one in row] for row in values], np.int32)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """A column for each label."""
        from torch import from_numpy

        target = columns["target"]
        if target.values.size and not -1 <= int(target.values.min()) <= int(target.values.max()) < num_labels:
            raise DataError(f"labels are numbers below {num_labels}, found {int(target.values.max())}")
        rows, known = np.repeat(np.arange(target.rows), target.lengths), target.values >= 0
        hot = np.zeros((target.rows, num_labels), np.float32)
        hot[rows[known], target.values[known]] = 1
        return inputs, from_numpy(hot)
