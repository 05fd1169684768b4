"""What all tests share: one thread each, fixed draws, and the device that SEQLOOM_TEST_DEVICE names."""

import gc
import os
import signal
from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import cache
from zlib import crc32

import pytest
import torch
import typer.main
import typer.testing
from _pytest.doctest import DoctestModule
from hypothesis import is_hypothesis_test, settings

# Some virtual machines announce AMX and then fail with an illegal instruction. oneDNN reads this at its first call.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# A shell that starts tests in the background has them ignore Ctrl-C, and nohup also a lost terminal. So would all
# processes that the tests start and then stop by a signal.
for ignored in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL)

gc.disable()  # until all is collected: what collecting makes is no rubbish
torch.set_num_threads(1)  # the cores belong to the processes of pytest-xdist

# `make test` draws the same examples every time, `make check` the first few of them; `make soak` draws fresh ones, and
# as many as each test asks for, and Hypothesis prints what failed.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("quick", settings.get_profile("fixed"), max_examples=20)
settings.register_profile("fresh", deadline=None, database=None, print_blob=True)
DRAWS = "fresh" if os.environ.get("SEQLOOM_SOAK") == "1" else os.environ.get("SEQLOOM_DRAWS", "fixed")
settings.load_profile(DRAWS)

if not torch.accelerator.is_available():  # else a seed waits for devices that never come, with the stack of its caller
    torch.manual_seed = torch.default_generator.manual_seed

if device := os.environ.get("SEQLOOM_TEST_DEVICE"):
    torch.set_default_device(device)
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32 here
else:
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads this when it is imported, and compiles for GPUs otherwise


def pytest_configure(config: pytest.Config) -> None:
    """On a GPU, ignore what torch says of itself, whichever test has it.

    These are its announcement of the first matrix product of a backward pass, and old names that its compiler uses.
    """
    if device:
        config.addinivalue_line("filterwarnings", "ignore:`torch.jit.script_method` is deprecated")
        config.addinivalue_line("filterwarnings", "ignore:TensorFloat32 tensor cores for float32 matrix")
        config.addinivalue_line("filterwarnings", "ignore:Attempting to run cuBLAS, but there was no current CUDA")


# No test cuts the power: what a killed process wrote is there, synced or not. Tests of what is synced watch the calls.
os.fsync = lambda _: None

# To build the command line takes longer than most of its verbs do.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """No test holds examples, so that none is searched for them."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


def claims(items: Iterable[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of each claim, always in the same order.

    The order is a hash of their names: the first few cases of a product of parameters then differ in all of them.
    """
    found = defaultdict[str, list[pytest.Item]](list)
    for item in sorted(items, key=lambda case: crc32(case.nodeid.encode())):
        found[item.nodeid.partition("[")[0]].append(item)
    return list(found.values())


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Choose the cases of claims about many cases: always the same ones.

    `make test` has COUNT cases of a claim with the marker `sampled(COUNT)`, `make soak` the others; `make check` has
    two of every claim. Both have fewer draws than soak.
    """
    for cases in claims(item for item in items if item.get_closest_marker("sampled")):
        mark = cases[0].get_closest_marker("sampled")
        for case in cases[mark.args[0] :] if mark else []:
            case.add_marker("soak")
    yield  # markers select
    if DRAWS == "quick":
        kept = {item for cases in claims(items) for item in cases[:2]}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]
    if DRAWS == "fresh":
        return
    most = settings.get_profile(DRAWS).max_examples
    for item in items:
        if is_hypothesis_test(test := getattr(item, "obj", None)):
            asked = test._hypothesis_internal_use_settings
            drawn = settings(asked, max_examples=min(asked.max_examples, most))
            getattr(test, "__func__", test)._hypothesis_internal_use_settings = drawn


def pytest_collection_finish() -> None:
    """What collecting made stays to the end: nobody looks through it for rubbish after every few tests."""
    gc.freeze()
    gc.enable()
