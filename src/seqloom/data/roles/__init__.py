"""Which column means what: given by the user, or found by name and content, and said aloud.

Names are compared without regard to case. A file in which no name fits is refused with what was found and the flags to
use; a column is never taken because it happens to be the only one left. What a task needs of them is said in `needs`.
"""

from seqloom.data.roles.finding import Roles, find_roles
from seqloom.data.roles.names import (
    ARRAYS,
    IDS,
    LABELS,
    NUMBERS,
    PAIRS,
    PART_NAMES,
    SOURCES,
    SPLITS,
    TAGS,
    TEXTS,
    TRANSLATIONS,
    WORDS,
)

__all__ = [
    "ARRAYS",
    "IDS",
    "LABELS",
    "NUMBERS",
    "PAIRS",
    "PART_NAMES",
    "SOURCES",
    "SPLITS",
    "TAGS",
    "TEXTS",
    "TRANSLATIONS",
    "WORDS",
    "Roles",
    "find_roles",
]
