"""What each task needs of the columns of a file: one small value for each, and one where no task is named."""

from collections.abc import Callable
from typing import NamedTuple

from seqloom.config.data import Task
from seqloom.data.roles import targets
from seqloom.data.roles.finder import Finder
from seqloom.data.roles.inputs import as_anything, as_text, as_text_or_numbers, as_texts, as_words, by_cells
from seqloom.data.roles.names import PAIRS, RELATED, TRIPLES
from seqloom.data.schema import InputKind


class Needs(NamedTuple):
    """What finds the target of a task and the kind of its input, and the names of columns that make one together."""

    target: Callable[[Finder, tuple[int, ...], InputKind], targets.Found]
    input_kind: Callable[[Finder, tuple[int, ...]], InputKind] = by_cells(as_text)
    together: tuple[tuple[str, ...], ...] = PAIRS  # in the order in which they are looked for


NEEDS: dict[Task | None, Needs] = {
    None: Needs(targets.inferred, by_cells(as_anything)),
    "classify": Needs(targets.labels, by_cells(as_text_or_numbers)),
    "regress": Needs(targets.numbers, by_cells(as_text_or_numbers)),
    "tag": Needs(targets.tags, by_cells(as_words)),
    "lm": Needs(targets.none_of_text),
    "masked": Needs(targets.none_of_masked),
    "translate": Needs(targets.text),
    "embed": Needs(targets.score_of_pair, as_texts, (*TRIPLES, *RELATED, *PAIRS)),
}
