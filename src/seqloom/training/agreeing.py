"""Work on a disk that several processes do together: one that fails is told to all, and all go the same way."""

from collections.abc import Callable
from typing import TypeVar

from seqloom.errors import DurableError
from seqloom.training.ranks import Ranks

Result = TypeVar("Result")


def agreed(ranks: Ranks, work: Callable[[], Result]) -> tuple[Result | None, str]:
    """What the work gave here, or None and what the disk said to the first process that failed.

    Whoever went on while another process has failed would wait for it in vain.

    >>> from seqloom.training.ranks import Alone
    >>> agreed(Alone(), lambda: 3)
    (3, '')
    """
    result, problem = None, ""
    try:
        result = work()
    except DurableError as error:
        problem = str(error)
    told = next(filter(None, ranks.gather(problem.encode())), b"").decode()
    return (None, told) if told else (result, "")
