"""Parity with torch: the same weights give the same values and the same gradients, by every input and every weight."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from threads, and on a busy machine lose much."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
