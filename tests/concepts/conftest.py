"""The lectures' worked numbers and formulas, row by row of the table of concepts; deck letters are the table's."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Everything here is float64 and drawn from one seed; small tensors gain nothing from threads."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
