"""Claims about long work: it is run to its end, and it ends where nobody can be shown how far it is."""

import pytest

from seqloom.events import Progress, Work, finished


def counting(ended: list[str]) -> Work[str]:
    """Two events and a result, or an early end, which is written down."""
    try:
        yield Progress("rows", 1, 2)
        yield Progress("rows", 2, 2)
        return "all"
    finally:
        ended.append("ended")


def test_work_gives_its_result_and_shows_every_event() -> None:
    seen: list[Progress] = []
    assert finished(counting([]), seen.append) == "all"
    assert [progress.share for progress in seen] == [0.5, 1.0]


def test_work_ends_at_once_where_showing_fails() -> None:
    def broken(_: Progress) -> None:
        raise BrokenPipeError

    ended: list[str] = []
    with pytest.raises(BrokenPipeError) as kept:  # the traceback keeps the work alive; it has ended all the same
        finished(counting(ended), broken)
    assert ended == ["ended"] and kept.traceback
