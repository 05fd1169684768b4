"""R10: the first signal is remembered, the second ends the process at once, and handlers are as before afterwards."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from seqloom.training.session import SIGNALS, StopSignals

# A process that goes on after the first signal, as a run does that saves; it tells when it is ready and what it heard.
SCRIPT = """if True:
    import time
    from seqloom.training.session import StopSignals
    with StopSignals() as stopping:
        print("ready", flush=True)
        while stopping.signal is None:
            time.sleep(0.005)
        print(stopping.signal, flush=True)
        time.sleep(30)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_remembered_and_the_handlers_are_restored(number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with StopSignals() as stopping:
        assert stopping.signal is None
        os.kill(os.getpid(), number)
        assert stopping.signal == number
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_handlers_are_restored_when_the_block_raises() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ZeroDivisionError), StopSignals():
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stopping.signal is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_changes() -> None:
    found = []

    def work() -> None:
        with StopSignals() as stopping:
            found.append((stopping.signal, signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(None, before)]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("second", SIGNALS)
def test_the_second_signal_ends_the_process_within_a_second(second: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "2\n"
        began = time.monotonic()
        process.send_signal(second)
        assert process.wait(10) == 128 + second
        assert time.monotonic() - began < 1
