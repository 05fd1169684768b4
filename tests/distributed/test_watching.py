"""The watch-dog, in processes that import no torch."""

import subprocess
import sys
import time

import pytest

HANGS = """
import threading, time
from seqloom.training.watchdog import Watch
def somewhere():
    time.sleep(60)
with Watch("rank 1 of 2", patience={patience}) as watch:
    {body}
"""


def ended(body: str, patience: float = 0.3) -> tuple[int, str, float]:
    started = time.monotonic()
    program = HANGS.format(body=body, patience=patience)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    return done.returncode, done.stderr, time.monotonic() - started


@pytest.mark.slow
def test_silence_ends_the_process_with_the_stacks_of_all_threads() -> None:
    code, said, _ = ended("threading.Thread(target=somewhere, daemon=True).start(); time.sleep(30)")
    assert code == 1
    assert said.startswith("error: rank 1 of 2: no step was finished within 0 s\n")
    assert "in somewhere" in said and "in <module>" in said


@pytest.mark.slow
def test_without_the_watch_dog_silence_goes_on() -> None:
    code, said, seconds = ended("watch._over.set(); time.sleep(1)")
    assert (code, said) == (0, "") and seconds > 1


@pytest.mark.slow
@pytest.mark.parametrize("body", ["[(time.sleep(0.2), watch.alive()) for _ in range(4)]", "pass"])
def test_signs_of_life_keep_it_going(body: str) -> None:
    assert ended(body)[:2] == (0, "")


@pytest.mark.slow
def test_what_is_given_time_may_take_it() -> None:
    assert ended("exec('with watch.patient(20):\\n time.sleep(0.8)')")[:2] == (0, "")


@pytest.mark.slow
def test_a_library_that_holds_the_interpreter_is_no_way_out() -> None:
    """A regular expression that takes for ever never lets another thread run."""
    code, said, seconds = ended("time.sleep(0.1); __import__('re').match('(a+)+b', 'a' * 60)")
    assert code == 1 and "Timeout" in said and "in match" in said
    assert seconds < 15
