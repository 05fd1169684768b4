"""Results as DataFrames of pandas, which is an extra."""

from collections.abc import Mapping, Sequence
from typing import Any

from seqloom.errors import needing


def data_frame(
    rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Any]], index: Sequence[str] | None = None
) -> Any:
    """Return rows, or columns by name, as a pandas DataFrame; MissingExtraError if pandas is not installed."""
    with needing("pandas"):
        import pandas
    return pandas.DataFrame(rows, index=index)
