"""The columns of the input, and what kind of input they make."""

from collections.abc import Callable, Sequence

from seqloom.data.problems import escaped
from seqloom.data.roles.finder import Finder, first_row, shown
from seqloom.data.roles.names import ARRAYS, PAIRS, SOURCES, TAGS, TEXTS, WORDS
from seqloom.data.schema import InputKind
from seqloom.data.values import Content

CellKind = Callable[[Finder, int], InputKind]  # what the plain cells of one column are read as
EMBEDDED: tuple[InputKind, ...] = ("text", "pair", "triple")  # by the number of columns


def find_input(finder: Finder, together: Sequence[tuple[str, ...]]) -> tuple[int, ...]:
    """The columns with the usual names of an input; of names that belong together, all are there or none counts."""
    found = next((names for names in together if all(name in finder.lower for name in names)), None)
    if found is not None:
        inputs: tuple[int, ...] = tuple(finder.lower[name] for name in found)
    elif (one := finder.first((*WORDS, *ARRAYS, *TEXTS, *SOURCES))) is not None:
        inputs = (one,)
    elif not finder.named:
        finder.refuse(
            f"{len(finder.columns)} columns without a header; which is the input? {first_row(finder)}",
            "--input 1 --target 2, by number",
        )
    else:
        finder.refuse(
            f"no column '{TEXTS[0]}'; found {finder.known()}",
            _only_other(finder)
            or f"--input NAME --target NAME, or --no-header if this is data: {shown(finder.columns)}",
        )
    finder.said.append(f"input: {finder.names(inputs)} (by name)")
    return inputs


def _only_other(finder: Finder) -> str:
    """The option that names the one column that is left beside a target that the user named."""
    others = [name for name in finder.columns if name not in finder.config.target]
    return f"--input '{escaped(others[0])}'" if finder.config.target and len(others) == 1 else ""


def by_cells(cells: CellKind) -> Callable[[Finder, tuple[int, ...]], InputKind]:
    """What finds the kind of an input: by the number and content of its columns, of plain cells as `cells` has it."""
    return lambda finder, inputs: _kind(finder, inputs, cells)


def _kind(finder: Finder, inputs: tuple[int, ...], cells: CellKind) -> InputKind:
    contents, numeric = {finder.content(column) for column in inputs}, all(map(finder.numeric, inputs))
    if len(inputs) == 2 and contents <= {"text", "nothing"} and (_named_pair(finder, inputs) or not numeric):
        return "pair"
    if len(inputs) > 1:
        if not numeric:
            finder.refuse(
                f"{len(inputs)} input columns are two texts or all numbers; found {first_row(finder)}",
                "give one column, two of text, or numeric ones",
            )
        return "vectors"
    if finder.columns[inputs[0]].lower() in ("picture", "image") and contents <= {"text", "picture"}:
        return "picture"
    (content,) = contents
    kinds: dict[Content, InputKind] = {
        "texts": "words",
        "vectors": "vectors",
        "number": "vectors",
        "picture": "picture",
    }
    return kinds[content] if content in kinds else cells(finder, inputs[0])


def as_text(_finder: Finder, _column: int) -> InputKind:
    """Text, whatever it spells."""
    return "text"


def as_words(_finder: Finder, _column: int) -> InputKind:
    """Words with spaces between them."""
    return "words"


def as_text_or_numbers(finder: Finder, column: int) -> InputKind:
    """Text, unless the user named a column of numbers."""
    return "vectors" if _meant_as_number(finder, column) else "text"


def as_anything(finder: Finder, column: int) -> InputKind:
    """The same where no task is named: words, if the column is called so and tags stand beside it."""
    words = finder.columns[column].lower() in WORDS and finder.first(TAGS[:-1]) is not None
    return "words" if words else as_text_or_numbers(finder, column)


def as_texts(finder: Finder, inputs: tuple[int, ...]) -> InputKind:
    """One text, two or three: whatever their cells look like, they are text."""
    held = {finder.content(column) for column in inputs}
    if len(inputs) > len(EMBEDDED) or not held <= {"text", "number", "nothing"}:
        found = f"{len(inputs)} columns of {' and '.join(sorted(held))}"
        finder.refuse(f"embed reads one text, two or three, found {found}", "--input NAME of a text, up to three times")
    return EMBEDDED[len(inputs) - 1]


def _named_pair(finder: Finder, inputs: tuple[int, ...]) -> bool:
    """Whether two columns are called as pairs of texts are: then digits in them are text."""
    return tuple(finder.columns[column].lower() for column in inputs) in (*PAIRS, *(pair[::-1] for pair in PAIRS))


def _meant_as_number(finder: Finder, column: int) -> bool:
    """Whether a column that the user named holds numbers and nothing says that they are text."""
    named = column in (finder.columns.index(name) for name in finder.config.input)
    texts = (*TEXTS, *SOURCES, *WORDS)
    return named and finder.columns[column].lower() not in texts and bool(finder.sample) and finder.numeric(column)
