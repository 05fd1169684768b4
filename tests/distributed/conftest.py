"""One server of ranks for all tests of a process."""

from collections.abc import Iterator

import pytest

from distributed.forking import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks() as server:
        yield server
