"""Claims about locks whose holder takes the folder away: what is held is always the file that stands at the path."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_common import QUICK
from durable_faults import QuickFiles
from seqloom.errors import DurableError, HeldError
from seqloom.files import lock
from seqloom.files.lock import hold, remove_held


@contextmanager
def before_the_next_lock(what: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A block in which something happens between the opening of the next lock and its locking."""
    real, happened = fcntl.flock, list[str]()

    def flock(handle: int, how: int) -> None:
        if not happened:
            happened.append("yes")
            what()
        real(handle, how)

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", flock)
        yield happened


def left(path: Path) -> Callable[[], None]:
    """What lets go of a folder that is held now, and takes it away first."""
    held = hold(path, files=QUICK)
    held.__enter__()

    def leave() -> None:
        remove_held(path, files=QUICK)
        held.__exit__(None, None, None)

    return leave


def test_who_opened_the_lock_of_a_folder_that_goes_holds_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "held"
    with before_the_next_lock(left(path), monkeypatch) as happened, hold(path, files=QUICK):
        assert happened
        with pytest.raises(HeldError, match="in use by process"), hold(path, files=QUICK):
            pass


def test_twin_without_the_comparison_a_folder_is_held_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "held"
    monkeypatch.setattr(lock, "_stands", lambda *_: True)
    with before_the_next_lock(left(path), monkeypatch), hold(path, files=QUICK), hold(path, files=QUICK):
        pass


def test_who_comes_after_the_next_holder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, leave, third = tmp_path / "held", left(tmp_path / "held"), hold(tmp_path / "held", files=QUICK)

    def change() -> None:
        leave()
        third.__enter__()

    with before_the_next_lock(change, monkeypatch):
        with pytest.raises(HeldError, match="in use by process"), hold(path, files=QUICK):
            pass
        third.__exit__(None, None, None)


@pytest.mark.slow
def test_a_folder_that_goes_before_its_lock_is_opened_is_made_again_and_not_for_ever(tmp_path: Path) -> None:
    class Vanishing(QuickFiles):
        times = 1

        def open_to_hold(self, path: Path) -> int:
            if self.times:
                self.times -= 1
                path.parent.rmdir()
            return super().open_to_hold(path)

    with hold(tmp_path / "held", files=Vanishing()):
        pass
    assert (tmp_path / "held" / ".lock").exists()
    files = Vanishing()
    files.times = 1_000
    with pytest.raises(DurableError, match="in use by another process"), hold(tmp_path / "other", files=files):
        pass


def test_a_held_folder_that_a_person_removed_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "held"
    with hold(path, files=QUICK):
        remove_held(path, files=QUICK)
        remove_held(path, files=QUICK)
    assert not list(tmp_path.iterdir())


def test_leftovers_that_two_sweep_at_once_are_no_error(tmp_path: Path) -> None:
    class Racing(QuickFiles):
        def remove_file(self, path: Path) -> None:
            path.unlink()  # by the other one
            path.unlink()

        def remove_folder(self, path: Path) -> None:
            path.rmdir()
            path.rmdir()

    with hold(tmp_path / "held", files=QUICK):
        remove_held(tmp_path / "held", files=Racing())
    assert not list(tmp_path.iterdir())
