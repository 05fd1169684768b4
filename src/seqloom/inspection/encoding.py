"""One input from Python as the model reads it: a batch of one row.

A text that is longer than the positions of the model, empty, or of another kind than the model reads, is refused here
with what was found; what to do is said for a call from Python, not for the rows of a file.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from seqloom.config.data import EncodingConfig
from seqloom.data.batches import INPUTS
from seqloom.data.encoding import Encoder
from seqloom.data.inputs import given_inputs
from seqloom.data.problems import Ledger
from seqloom.data.schema import Schema
from seqloom.errors import DataError, RejectedError
from seqloom.tasks.contract import Task
from seqloom.types import Padded, Subwords, on_device


def encoding(task: Task, longest: int, room: int | None, device: torch.device) -> Callable[[Any], Any]:
    """What makes a batch of one row of one input; `longest` symbols are read, `room` is what positions there are."""
    meaning = task.asked

    def encode(value: Any) -> Any:
        ledger, schema = Ledger(), Schema(meaning.schema.input, "nothing")
        config = EncodingConfig(longest=longest, too_long="cut")
        with _worded(schema.input):
            examples = list(given_inputs([value], schema.input, ledger))
            ledger.close()
            inputs = INPUTS[schema.input](Encoder(schema, config, meaning.tokenizer, None, ledger).columns(examples))
            ledger.close()
        _require_room(inputs, room)
        return on_device(inputs, device)

    return encode


@contextmanager
def _worded(kind: str) -> Iterator[None]:
    """Inside, a refused row is one refused input: there are no other rows that could be read without it."""
    try:
        yield
    except RejectedError as error:
        found = "; ".join(str(detail["text"]) for detail in error.details)
        raise DataError(found, fix=f"give one input that is not empty: the model reads {kind}") from error


def _require_room(inputs: Any, room: int | None) -> None:
    read = inputs.pieces if isinstance(inputs, Subwords) else inputs
    if room is not None and isinstance(read, Padded) and int(read.lengths[0]) > room:
        raise DataError(
            f"{int(read.lengths[0]):,} symbols, and the learned positions of the model end at {room:,}",
            fix="look at a part of the text",
        )
