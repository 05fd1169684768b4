"""One part or table of a known set, read by name."""

from seqloom.data.problems import Ledger
from seqloom.data.readers import read_table
from seqloom.data.sources import Shelves, find_source, source_named, usual_shelves
from seqloom.data.sources.verifying import require_content
from seqloom.data.tables import Table
from seqloom.errors import ConfigError, did_you_mean


def read_source(name: str, part: str, ledger: Ledger, shelves: Shelves | None = None) -> Table:
    """The records of a part (train, dev, test) or of a table (corpus, queries) of a set."""
    source = source_named(name)
    if part not in source.files:
        raise ConfigError(f"the set '{name}' has no part '{part}'", fix=did_you_mean(part, source.files))
    where = shelves or usual_shelves()
    paths = find_source(name, where)[part]
    for path, file in zip(paths, source.files[part], strict=True):
        require_content(path, file, source, where, ledger)
    return read_table(paths, source.reading, ledger)
