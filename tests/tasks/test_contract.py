"""What a task says of itself to those who must not ask which one it is."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from seqloom.config.training import AnyBatching, ByLengthConfig, PacksConfig, StreamsConfig
from seqloom.errors import ConfigError
from seqloom.nn.types import Batch
from seqloom.tasks.task import HeadSettings
from seqloom.training.resolve import class_weights

Find = Callable[[str], Any]
SHORT = ByLengthConfig(batch_tokens=16)
SLOW = ("labels", "numbers", "pairs", "vectors", "pictures", "vectors with tags", "parallel")
STREAMS, PACKS = StreamsConfig(batch_rows=2, row_length=8), PacksConfig(batch_rows=2, row_length=16)


def shapes(batches: list[Batch[Any, Any]]) -> set[tuple[torch.Size, ...]]:
    """The shapes of the numbers of each batch."""
    return {tuple(_shapes(batch.inputs)) + tuple(_shapes(batch.targets)) for batch in batches}


def _shapes(value: Any) -> list[torch.Size]:
    if isinstance(value, torch.Tensor):
        return [value.shape]
    return [shape for part in value for shape in _shapes(part)] if isinstance(value, tuple) else []


@pytest.mark.parametrize(
    ("kind", "feed", "one"),
    [
        ("csv", SHORT, False),
        ("text", STREAMS, True),
        ("text", PACKS, True),
        ("text", SHORT, False),
        pytest.param("pictures", SHORT, True, marks=pytest.mark.slow),
        pytest.param("pictures to text", SHORT, False, marks=pytest.mark.slow),
    ],
)
def test_batches_have_one_shape_where_the_task_says_so(small: Find, kind: str, feed: AnyBatching, one: bool) -> None:
    found = small(kind)
    assert found.task.has_one_shape(feed) == one
    full = found.batches("train", feed)[:-1]  # the last one is what is left
    assert len(full) > 1 and (len(shapes(full)) == 1 or not one)


@pytest.mark.parametrize(
    "kind", ["csv", "conll", "text", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
)
def test_class_weights_can_be_balanced_exactly_where_the_task_says_so(small: Find, kind: str) -> None:
    found = small(kind)
    try:
        weights = class_weights("balanced", found.prepared)
        found.task.model(found.task.recipes()[0], "nano", HeadSettings(class_weights=weights))
        accepted = True
    except ConfigError:
        accepted = False
    assert found.prepared.schema.target.one_label == accepted
