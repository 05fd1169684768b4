"""Why a request is not answered. Each refusal says what was asked, what was found and what to do.

    Refusal
    ├── UnknownModel    404  no model of this name
    ├── Unable          422  the model cannot do this
    ├── BadItem         422  an item or an option that the model cannot use
    ├── Overloaded      429  the queue is full; `retry_after` seconds
    ├── Draining        503  the server is stopping
    ├── WaitedTooLong   503  no worker was free in time, or none could load the model
    ├── WorkerLost      503  the worker ended while it computed the answer
    ├── TimedOut        504  the answer took too long
    └── ModelFailed     500  an error of ours; its details are in the log, not in the message

No message contains the text of a request.
"""

import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from seqloom.errors import SeqloomError, did_you_mean

ITEMS = "items"  # what the engine calls that which a model reads; a request has it in another field


class Refusal(SeqloomError):  # noqa: N818  # it is no fault of the server
    """A request that is not answered; `status` is its HTTP status."""

    status: ClassVar[int] = 500


class UnknownModel(Refusal):
    """No model of this name is served."""

    status = 404

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__("no model of this name is served", fix=did_you_mean(name[:80], known))


class Unable(Refusal):
    """The model cannot do what is asked: its task is another one."""

    status = 422


class BadItem(Refusal):
    """An item or option that cannot be used.

    Attributes:
        index: the number of the item, from 0; None for an option.
        field: the name of the option, or ITEMS.
    """

    status = 422

    def __init__(self, index: int | None, field: str, problem: str, fix: str = "") -> None:
        super().__init__(problem, fix=fix)
        self.index, self.field = index, field


class Overloaded(Refusal):
    """As many requests are waiting as may wait."""

    status = 429

    def __init__(self, waiting: int, retry_after: int = 1) -> None:
        super().__init__(f"{waiting} requests are waiting already", fix=f"try again in {retry_after} s")
        self.retry_after = retry_after


class Draining(Refusal):
    """The server is stopping and takes no more requests."""

    status = 503


class WaitedTooLong(Refusal):
    """The request waited in the queue for as long as it may."""

    status = 503


class WorkerLost(Refusal):
    """The worker that computed the answer has ended; another one is started."""

    status = 503


class TimedOut(Refusal):
    """The answer took longer than a request may take."""

    status = 504


class ModelFailed(Refusal):
    """The model raised an error that is not the fault of the request."""

    status = 500


@contextmanager
def naming(fields: Mapping[str, str]) -> Iterator[None]:
    """Make refusals in the block name the fields of the request: `fields` has them by the names of the engine."""
    try:
        yield
    except BadItem as refusal:
        before = refusal.field
        after = refusal.field = fields.get(before, before)
        refusal.reword(lambda text: text.replace(f"{before}: ", f"{after}: ", 1))
        raise


def place_of(error: Exception) -> str:
    """The kind of an error and the lines of code that led to it; its message may hold text of a request."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return f"{type(error).__name__} at " + " < ".join(
        f"{Path(one.filename).name}:{one.lineno} {one.name}" for one in reversed(frames)
    )
