"""Data whose test part stays shut: training and tuning open it here, and so cannot choose by what they never see.

    test files              their names are kept for `seqloom evaluate --test`, their bytes are summed, no row is read
    a drawn or named part   its rows stand among the others; they are let go as soon as the split has named them,
                            before a check, a tokeniser or a count sees them

So what is wrong in a test file, or in common between test and train, is told by whoever may look: `seqloom data check`
before training, `seqloom evaluate --test` after it.
"""

from typing import Any

from seqloom.config.data import DataConfig
from seqloom.data.dataset import Dataset, open_data
from seqloom.data.named_files import files_of, stored, sums
from seqloom.data.opening.files import is_folder, require_regular
from seqloom.data.problems import Ledger
from seqloom.data.schema import Part

OPEN: tuple[Part, ...] = ("train", "dev")


def open_sealed(config: DataConfig, ledger: Ledger) -> Dataset:
    """A data set that yields no row of its test part; test files must be there, and are not read."""
    dataset = open_data(config, ledger, OPEN)
    for path in files_of(dataset.config).get("test", ()):
        if not is_folder(path):
            require_regular(path, ledger)
    return dataset


def every_sum(dataset: Dataset) -> dict[str, Any]:
    """What a run that goes on compares: the sums of all that is read, and those of the test files."""
    files = files_of(dataset.config)
    return dataset.fingerprints() | sums(stored({"test": files["test"]} if "test" in files else {}))
