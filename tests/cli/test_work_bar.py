"""The bar of long work: what is left is told of the work that goes on, not of the one before it."""

import pytest
from rich.progress import Progress as Bar

from seqloom.cli import terminal as module
from seqloom.cli.terminal import work_bar
from seqloom.events import Progress


def test_work_behind_work_that_is_done_has_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    bars, now = list[Bar](), [0.0]

    class Watched(Bar):
        def __init__(self, *columns: object, **options: object) -> None:
            super().__init__(*columns, get_time=lambda: now[0], **options)  # type: ignore[arg-type]
            bars.append(self)

    monkeypatch.setattr(module, "Bar", Watched)
    with work_bar() as show:
        for done in range(5):
            now[0] += 1
            show(Progress("inputs", done, 4))
        assert bars[0].tasks[0].finished
        for done in range(3):
            now[0] += 10
            show(Progress("tests", done, 4))
        assert not bars[0].tasks[0].finished
        assert bars[0].tasks[0].time_remaining == pytest.approx(20, abs=1)
