"""One input from Python as the model reads it: a batch of one row.

A text that is longer than the positions of the model, empty, or of another kind than the model reads, is refused here
with the words that `predict` has for it.
"""

from collections.abc import Callable
from typing import Any

import torch

from seqloom.config.data import EncodingConfig
from seqloom.data.batches import INPUTS
from seqloom.data.encoding import Encoder
from seqloom.data.inputs import given_inputs
from seqloom.data.problems import Ledger
from seqloom.data.schema import Schema
from seqloom.errors import DataError
from seqloom.tasks.contract import Task
from seqloom.types import Padded, Subwords


def encoding(task: Task, longest: int, room: int | None, device: torch.device) -> Callable[[Any], Any]:
    """What makes a batch of one row of one input; `longest` symbols are read, `room` is what positions there are."""
    meaning = task.asked

    def encode(value: Any) -> Any:
        ledger = Ledger()
        examples = list(given_inputs([value], meaning.schema.input, ledger))
        ledger.close()
        schema = Schema(meaning.schema.input, "nothing")
        config = EncodingConfig(longest=longest, too_long="cut")
        inputs = INPUTS[schema.input](Encoder(schema, config, meaning.tokenizer, None, ledger).columns(examples))
        ledger.close()
        _require_room(inputs, room)
        return _moved(inputs, device)

    return encode


def _require_room(inputs: Any, room: int | None) -> None:
    read = inputs.pieces if isinstance(inputs, Subwords) else inputs
    if room is not None and isinstance(read, Padded) and int(read.lengths[0]) > room:
        raise DataError(
            f"{int(read.lengths[0]):,} symbols, and the learned positions of the model end at {room:,}",
            fix="look at a part of the text",
        )


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        kind: Any = type(value)
        return kind(*(_moved(part, device) for part in value))
    return value
