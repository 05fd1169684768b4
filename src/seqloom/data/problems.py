"""What is wrong with data, where, and what to do: one wording, one counter, one rule for when to stop.

    path:line:column: code: text. Fix: ...

A *bad row* spoils only itself: it is counted, and read over when the user says so. A *bad file* cannot be read on. A
*warning* is counted and shown in the data report; a *note* tells of something that was understood in the right way.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple, NoReturn

from seqloom.config.data import BadRows  # the rule for all that is counted here
from seqloom.errors import RejectedError
from seqloom.report.numbers import counted

SHOWN = 20  # of the refusals
SAMPLES = 5  # of each kind of refusal or warning
MOST_ALLOWED = 0.1  # the share of bad rows up to which we say how to allow them

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

    def data(self) -> dict[str, object]:
        """The finding as plain values."""
        return {"code": self.code, **self.place._asdict(), "text": self.text, "fix": self.fix}


def escaped(text: str) -> str:
    r"""The text with every character that could disturb a terminal or a log written out.

    >>> escaped("a\x1b[31mb\n\u202e\x85")
    'a\\x1b[31mb\\n\\u202e\\x85'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


class Ledger:
    """Everything found while reading: bad rows up to the limit, warnings by code with their first samples, notes.

    Readers count the rows they hand out with `rows`. `close` is called when all is read, and refuses what the rule for
    bad rows does not allow; so a strict reading still sees the whole file, and the total is always known.
    """

    def __init__(self, bad_rows: BadRows = BadRows()) -> None:  # noqa: B008  # an immutable value
        self.bad_rows = bad_rows
        self.rows = 0  # good ones
        self.bytes = 0  # of the files as they are stored, read so far
        self.skipped = 0  # bad rows, all of them
        self.bad: Counter[str] = Counter()  # the same by code
        self.counts: Counter[str] = Counter()  # warnings and notes by code
        self.samples: dict[str, list[Problem]] = {}  # their first SAMPLES
        self._bad_samples: dict[str, list[Problem]] = {}  # the first of each code by place
        self._files: dict[str, int] = {}  # of these samples: their numbers in the order in which they were read

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        """Count a row that cannot be used; the caller leaves it out and goes on."""
        self.skipped += 1
        self.bad[code] += 1
        self.counts[code] += 1
        samples = self._bad_samples.setdefault(code, [])
        if len(samples) < SAMPLES or place.path in self._files:  # else it is behind all of them
            self._files.setdefault(place.path, len(self._files))
            insort(samples, Problem("reject", code, text, place, fix), key=self._order)
            del samples[SAMPLES:]

    def _order(self, problem: Problem) -> tuple[int, int, int]:
        path, line, column = problem.place
        return self._files[path], line or 0, column or 0

    @property
    def refused(self) -> list[Problem]:
        """The bad rows that are shown: of as many kinds as possible, in the order of files and lines."""
        return self._shown(SHOWN)

    def _shown(self, most: int) -> list[Problem]:
        ranks = range(SAMPLES)
        chosen = [one for rank in ranks for kind in self._bad_samples.values() for one in kind[rank : rank + 1]]
        return sorted(chosen[:most], key=self._order)

    def bad_file(self, code: str, text: str, place: Place, fix: str = "") -> NoReturn:
        """Stop: what follows in this file cannot be trusted or reached."""
        last = Problem("reject", code, text, place, fix)
        raise self._rejected([*self._shown(SHOWN - 1), last], self.bad + Counter([code]))

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
        if self.bad_rows.skip and self.skipped / (self.skipped + self.rows) <= self.bad_rows.share:
            return
        raise self._rejected(self.refused, self.bad, self._too_many() if self.bad_rows.skip else "")

    def _too_many(self) -> str:
        rows = self.skipped + self.rows
        needed = -(-10_000 * self.skipped // rows) / 10_000  # rounded up, so that it is enough
        allow = f", or allow so many with --max-bad {_percent(needed)}" if needed <= MOST_ALLOWED else ""
        bad = f"{self.skipped:,} of {counted(rows, 'row')} ({self.skipped / rows:.2%})"
        are = "is" if self.skipped == 1 else "are"
        return f"{bad} {are} bad, and --max-bad allows {_percent(self.bad_rows.share)}. Fix: mend the rows{allow}."

    def _rejected(self, problems: list[Problem], kinds: Counter[str], verdict: str = "") -> RejectedError:
        return RejectedError(
            [str(problem) for problem in problems],
            codes=[problem.code for problem in problems],
            total=kinds.total(),
            verdict=verdict,
            kinds=dict(kinds.most_common()),
            details=[problem.data() for problem in problems],
        )

    def warnings(self) -> Iterator[tuple[str, int, list[Problem]]]:
        """Code, count and first samples of every kind of warning and note, in the order in which they came up."""
        for code, samples in self.samples.items():
            yield code, self.counts[code], samples


def _percent(share: float) -> str:
    """A share as it is typed: 0.1%."""
    return f"{share * 100:.4f}".rstrip("0").rstrip(".") + "%"
