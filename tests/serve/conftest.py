"""One set of models and one forkserver for all tests of the server in a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from serve_common import RunningEngine, SharedForks, make_models, running


@pytest.fixture(scope="session")
def forks() -> Iterator[SharedForks]:
    started = SharedForks(threads=1)
    started.start()
    yield started
    started.end()


@pytest.fixture(scope="session")
def models(forks: SharedForks, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_models(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="session")
def engine(models: dict[str, Path], forks: SharedForks) -> Iterator[RunningEngine]:
    """An engine with every model, for tests that leave it as it is."""
    with running(models, forks, max_waiting=10_000) as started:
        yield started
