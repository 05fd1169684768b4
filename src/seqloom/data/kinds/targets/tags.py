"""A tag for each word or step of the input."""

from typing import TYPE_CHECKING, Any

import numpy as np

from seqloom.data.kinds.kind import Columns
from seqloom.data.kinds.targets.label import LabelNames
from seqloom.data.kinds.targets.labels import LabelsTarget
from seqloom.data.values import Read, Remarks, Unfit, kind_name
from seqloom.text.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

    from seqloom.data.roles import Roles


class TagsTarget(LabelsTarget):
    """Column "target": the number of each tag. In a batch: [B,W] or [B,T], 0 in the padding."""

    name = "tags"
    task = "tag"
    usual = ("tags", "ner_tags", "pos_tags", "upos", "labels")
    thing = "tag"
    exclusive = True
    of_steps = True
    length_code = "tags.length"

    def reader(self, roles: "Roles", remarks: Remarks) -> Read:
        """What takes the tags of a row: a list, or a cell in which they have spaces between them."""
        (column,), name = roles.target, LabelNames(roles, remarks)

        def read(values: tuple[Any, ...]) -> tuple[str, ...]:
            value = values[column]
            if isinstance(value, str):
                value = [tag for tag in value.split(" ") if tag]
            if isinstance(value, np.ndarray):
                value = value.tolist()
            if not isinstance(value, list | tuple):
                raise Unfit(column, "type.tags", f"expected a list of tags, got {kind_name(value)}")
            return tuple(map(name, value))

        return read

    def cut(self, columns: Columns, most: int) -> dict[str, Ragged]:
        """One for each word or step that is left."""
        return {"target": columns["target"].shorten(columns.get("firsts", columns["input"]).lengths)}

    def collate(self, inputs: Any, columns: Columns, num_labels: int) -> tuple[Any, "Tensor"]:
        """A number for each word or step."""
        from torch import from_numpy

        from seqloom.data.kinds import tensors

        return inputs, from_numpy(tensors.filled(columns["target"], np.int64))
