"""The parts of the data, where they limit what any score can say: rows that dev shares with training, and few rows."""

import math
from collections.abc import Iterable, Iterator

from seqloom.data.report.findings import Finding as DataFinding

FEW = 100  # rows of a dev part, on which a share is unsure by a tenth in either direction
HALF_WIDTH = 0.98  # of the 95 % interval of a share of one half, times the root of the rows: the widest there is


def parts_said(warned: Iterable[DataFinding], dev_rows: int) -> Iterator[str]:
    """What should be known of the parts before a score is believed, in sentences; `dev_rows` is 0 where unknown."""
    leaks = [sample.text for one in warned if one.code.startswith("leak.") for sample in one.samples[:1]]
    if leaks:
        yield f"scores on dev may be too good; the data check warned before training: {'; '.join(leaks)}"
    if 0 < dev_rows < FEW:
        unsure = HALF_WIDTH / math.sqrt(dev_rows)
        yield (
            f"the dev part has {dev_rows} rows: a share of right answers is unsure by up to {unsure:.2f} in either "
            "direction; give it more rows with --dev FILE or --shares"
        )
