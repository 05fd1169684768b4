"""What `seqloom data check` does: read a data set as training would, and report on it. Nothing encoded is kept."""

from collections import defaultdict

import numpy as np

from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.data.dataset import open_data
from seqloom.data.order import Order
from seqloom.data.preparing import PART, encoded, fitted_encoder
from seqloom.data.problems import Ledger
from seqloom.data.report.report import Batching, Columns, DataReport, Reporter
from seqloom.data.schema import PARTS
from seqloom.data.sizes import sizes_of, usual_budget
from seqloom.data.survey import Survey, Watch


def look(
    config: DataConfig,
    encoding: EncodingConfig,
    ledger: Ledger,
    *,
    budget: int | None = None,
    watch: Watch | None = None,
) -> DataReport:
    """The report on a data set; RejectedError if it cannot be read or has more bad rows than are read over.

    `budget` is how many symbols a batch holds, padding included; None: as many as training chooses.
    """
    dataset = open_data(config, ledger)
    reporter = Reporter(dataset.schema)
    survey = Survey(dataset, ledger, watch, reporter)
    encoder = fitted_encoder(survey, encoding, ledger)
    sizes: defaultdict[str, list[np.ndarray]] = defaultdict(list)  # [N,S] of each block of each part
    for columns in encoded(survey, encoder):
        if columns[PART].rows:
            sizes[PARTS[columns[PART].values[0]]].append(sizes_of(encoder.schema, columns))
    whole = {part: np.concatenate(blocks) for part, blocks in sizes.items()}
    return reporter.report(
        " + ".join(config.train),
        ledger,
        columns=Columns(dataset.config.input, dataset.config.target),
        inferred=dataset.said,
        symbols={} if encoder.tokenizer is None else {part: rows[:, 0] for part, rows in whole.items()},
        batching=_batching(whole["train"], budget),
    )


def _batching(sizes: np.ndarray, budget: int | None) -> Batching:
    """What the batches of the training part come to in the first epoch."""
    order = Order(sizes, budget or usual_budget(int(sizes.sum())), seed=0)
    fill = order.summary(0)
    return Batching(fill.padding, fill.fill, fill.batches, order.together(0))
