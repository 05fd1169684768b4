"""One server of runs and one set of data for all tests of a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from survival.cases import write_data
from survival.forking import Runs


@pytest.fixture(scope="session")
def runs() -> Iterator[Runs]:
    with Runs() as server:
        yield server


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of all cases."""
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder
