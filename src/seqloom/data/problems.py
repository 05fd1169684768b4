"""What is wrong with data, where, and what to do: one wording, one counter, one rule for when to stop.

    path:line:column: code: text. Fix: ...

A *bad row* spoils only itself: it is counted, and read over when the user says so. A *bad file* cannot be read on. A
*warning* is counted and shown in the data report; a *note* tells of something that was understood in the right way.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple, NoReturn

from seqloom.errors import RejectedError

SHOWN = 20  # of the refusals
SAMPLES = 5  # of each kind of warning

Severity = Literal["reject", "warn", "note"]


class Place(NamedTuple):
    """Where something was found: lines and columns count from 1, and a column is a character of its line."""

    path: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number is not None]
        return ":".join([escaped(self.path), *numbers])


class Problem(NamedTuple):
    """One finding; `code` is the name that programs may rely on."""

    severity: Severity
    code: str
    text: str
    place: Place
    fix: str = ""

    def __str__(self) -> str:
        cure = f" Fix: {self.fix}{'' if self.fix.endswith(('?', '.')) else '.'}" if self.fix else ""
        end = "" if self.text.endswith((".", "?")) else "."
        return f"{self.place}: {self.code}: {escaped(self.text)}{end}{escaped(cure)}"


def escaped(text: str) -> str:
    r"""The text with every character that could disturb a terminal or a log written out.

    >>> escaped("a\x1b[31mb\n\u202e\x85")
    'a\\x1b[31mb\\n\\u202e\\x85'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


class BadRows(NamedTuple):
    """How many bad rows are read over: by default not one."""

    skip: bool = False
    share: float = 0.001  # of all rows; more than that is refused even when skipping


class Ledger:
    """Everything found while reading: bad rows up to the limit, warnings by code with their first samples, notes.

    Readers count the rows they hand out with `rows`. `close` is called when all is read, and refuses what the rule for
    bad rows does not allow; so a strict reading still sees the whole file, and the total is always known.
    """

    def __init__(self, bad_rows: BadRows = BadRows()) -> None:  # noqa: B008  # an immutable value
        self.bad_rows = bad_rows
        self.rows = 0  # good ones
        self.bytes = 0  # of the files as they are stored, read so far
        self.refused: list[Problem] = []  # the first SHOWN
        self.skipped = 0  # bad rows, all of them
        self.counts: Counter[str] = Counter()  # warnings and notes by code
        self.samples: dict[str, list[Problem]] = {}  # their first SAMPLES

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        """Count a row that cannot be used; the caller leaves it out and goes on."""
        self.skipped += 1
        self.counts[code] += 1
        if len(self.refused) < SHOWN:
            self.refused.append(Problem("reject", code, text, place, fix))

    def bad_file(self, code: str, text: str, place: Place, fix: str = "") -> NoReturn:
        """Stop: what follows in this file cannot be trusted or reached."""
        raise self._rejected([*self.refused[: SHOWN - 1], Problem("reject", code, text, place, fix)], self.skipped + 1)

    def warn(self, code: str, text: str, place: Place, fix: str = "", count: int = 1) -> None:
        """Count something that will be read as it stands but looks wrong."""
        self._keep(Problem("warn", code, text, place, fix), count)

    def note(self, code: str, text: str, place: Place, count: int = 1) -> None:
        """Count something unusual that was understood."""
        self._keep(Problem("note", code, text, place), count)

    def _keep(self, problem: Problem, count: int) -> None:
        self.counts[problem.code] += count
        samples = self.samples.setdefault(problem.code, [])
        if len(samples) < SAMPLES:
            samples.append(problem)

    def close(self) -> None:
        """Raise RejectedError if there were more bad rows than are read over."""
        if not self.skipped:
            return
        share = self.skipped / (self.skipped + self.rows)
        if self.bad_rows.skip and share <= self.bad_rows.share:
            return
        raise self._rejected(self.refused, self.skipped, self._too_many(share) if self.bad_rows.skip else "")

    def _too_many(self, share: float) -> str:
        allowed = f"{self.bad_rows.share:.4%}".rstrip("0%").rstrip(".")
        return f"{share:.2%} of the rows are bad, and --max-bad allows {allowed}%."

    def _rejected(self, problems: list[Problem], total: int, verdict: str = "") -> RejectedError:
        lines = [str(problem) for problem in problems]
        codes = [problem.code for problem in problems]
        return RejectedError(lines, codes=codes, total=total, verdict=verdict)

    def warnings(self) -> Iterator[tuple[str, int, list[Problem]]]:
        """Code, count and first samples of every kind of warning and note, in the order in which they came up."""
        for code, samples in self.samples.items():
            yield code, self.counts[code], samples
