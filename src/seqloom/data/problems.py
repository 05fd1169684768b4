"""Problems in data: each with its place, a description and a fix.

    path:line:column: code: text. Fix: ...

A *bad row* affects only itself: it is counted, and skipped with --skip-bad-rows. A *bad file* stops the reading. A
*warning* is counted and shown in the data report. A *note* reports something unusual that was read correctly.
"""

import os
import re
import shlex
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count
from pathlib import Path, PurePath
from typing import Literal, NamedTuple, NoReturn, Self

from seqloom.config.cleaning import CLEANED, READ_BY
from seqloom.config.data import BadRows, DataConfig, Format, percent_of, share_of
from seqloom.config.options import typed_settings
from seqloom.errors import RejectedError, fix_sentence
from seqloom.report.numbers import counted

SHOWN = 20  # bad rows in an error message
SAMPLES = 5  # of each code
MOST_ALLOWED = 0.1  # the share of bad rows up to which the message says how to allow them
PACKED = re.compile(r"\.(?:gz|xz)$", re.IGNORECASE)
COPY = re.compile(r"-clean(?:-[0-9]+)?$")
CLEANABLE = {ending for endings in CLEANED.values() for ending in endings} - {".txt"}  # these tell the format
SKIP = "--skip-bad-rows"
EMPTY_FIX = f"fill it in, or skip such rows with {SKIP}"
ADVICE_TO_SKIP = re.compile(rf"[,;]? or [^,;]*{SKIP}$")  # at the end of a fix
KEEP_REPEATS = "--repeats keep"  # for verbs that need every row: documents, predictions
UNLIMITED = BadRows(max_bad_rows=1.0)  # bad rows are errors; where they can be skipped, any number of them can

Severity = Literal["reject", "warn", "note"]


class Place(NamedTuple):
    """Where a problem was found. Lines and columns count from 1; a column counts characters."""

    path: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number is not None]
        return ":".join([escaped(self.path), *numbers])


class Problem(NamedTuple):
    """One problem. `code` is a stable name that programs may rely on."""

    severity: Severity
    code: str
    text: str
    place: Place
    fix: str = ""

    def __str__(self) -> str:
        cure = f" {fix_sentence(self.fix)}" if self.fix else ""
        end = "" if self.text.endswith((".", "?")) else "."
        return f"{self.place}: {self.code}: {escaped(self.text)}{end}{escaped(cure)}"

    def data(self) -> dict[str, object]:
        """The problem as plain values."""
        return {"code": self.code, **self.place._asdict(), "text": self.text, "fix": self.fix}


def cleaned_name(path: str, format: Format | None = None) -> str | None:
    """An unused name for a cleaned copy beside a file; None if `seqloom data clean` does not read such a file.

    `format` is what the file is read as, if its extension does not decide.

    >>> cleaned_name("data/films.csv.gz"), cleaned_name("data/films.txt"), cleaned_name("data/films.txt", "conll")
    ('data/films-clean.csv', None, 'data/films-clean.txt')
    """
    bare = PACKED.sub("", path)
    ending = PurePath(bare).suffix
    endings = CLEANABLE if format is None else CLEANED.get(format, ())
    original = COPY.sub("", bare.removesuffix(ending))  # a copy of a copy has a number
    return str(unused(Path(f"{original}-clean{ending}"))) if ending.lower() in endings else None


def unused(path: Path) -> Path:
    """The path, or with a number where it exists."""
    names = chain([path], (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2)))
    return next(name for name in names if not os.path.exists(name))  # noqa: PTH110  # False for a long name


def escaped(text: str) -> str:
    r"""The text with every character escaped that could disturb a terminal or a log.

    >>> escaped("a\x1b[31mb\n\u202e\x85")
    'a\\x1b[31mb\\n\\u202e\\x85'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


class Ledger:
    """All problems found while reading: bad rows, warnings and notes, counted by code with their first samples.

    Readers count good rows in `rows`. `close` is called after the last row and raises RejectedError if there are more
    bad rows than `bad_rows` allows. So a file is always read to its end, and the message has the total.
    """

    def __init__(self, bad_rows: BadRows = UNLIMITED, flags: str = "", format: Format | None = None) -> None:
        self.bad_rows = bad_rows
        self._flags: str | Callable[[], DataConfig] = flags
        self.cleaning = ""  # options of the commands that clean a file, besides those of the problem
        self.format = format  # of the files; None: their extensions decide
        self.rows = 0  # good rows
        self.bytes = 0  # of the stored files, read so far
        self.skipped = 0  # bad rows
        self.bad: Counter[str] = Counter()  # bad rows by code
        self.counts: Counter[str] = Counter()  # bad rows, warnings and notes by code
        self.samples: dict[str, list[Problem]] = {}  # the first SAMPLES warnings and notes of each code
        self._bad_samples: dict[str, list[Problem]] = {}  # the first bad rows of each code, by place
        self._files: dict[str, int] = {}  # files of these samples, numbered in reading order

    @classmethod
    def of(cls, config: DataConfig, cleaning: str = "") -> Self:
        """A ledger for this data."""
        ledger = cls(config.bad_rows, " ".join(typed_settings(config, READ_BY)), config.reading.format)
        ledger.cleaning = cleaning
        return ledger

    @property
    def flags(self) -> str:
        """The flags of the command line that say how the files are read; commands in fixes repeat them."""
        if not isinstance(self._flags, str):
            read, self._flags = self._flags, ""
            self._flags = " ".join(typed_settings(read(), READ_BY))
        return self._flags

    def read_as(self, read: Callable[[], DataConfig], cleaning: str = "") -> None:
        """Let the commands in fixes say how the files are read, unless they do; `read` is called when one is needed."""
        if self._flags == "":
            self._flags = read
        self.cleaning = self.cleaning or cleaning

    def clean_command(self, path: str, options: str = "", *, words: bool = False, out: str | None = None) -> str:
        """The command that writes a cleaned copy of a file; empty if it does not read such a file.

        `out` is the copy (None: beside the file), and `words` is whether it also helps if the file has words with tags.

        >>> Ledger(flags="--delimiter ';'").clean_command("my films.csv", "--rare 2")
        "seqloom data clean 'my films.csv' -o 'my films-clean.csv' --delimiter ';' --rare 2"
        """
        copy = out or cleaned_name(path, self.format)
        if copy is None or (copy.lower().endswith(CLEANED["conll"]) and not words):
            return ""
        named = f"seqloom data clean {shlex.quote(path)} -o {shlex.quote(copy)}"
        return " ".join(filter(None, (named, self.flags, self.cleaning, options)))

    def or_clean(self, fix: str, path: str, options: str = "", *, words: bool = False) -> str:
        """The fix of a problem that `seqloom data clean` can change, with this command if it reads such a file.

        >>> Ledger().or_clean("remove the space", "films.csv.gz"), Ledger().or_clean("merge", "films.txt.gz")
        ('remove the space, or clean a copy: `seqloom data clean films.csv.gz -o films-clean.csv`', 'merge')
        """
        command = self.clean_command(path, options, words=words)
        return f"{fix}, or clean a copy: `{command}`" if command else fix

    def or_clean_and_skip(self, fix: str, path: str) -> str:
        r"""The fix of an empty value, with the command that removes such rows from a copy, if it reads such a file.

        >>> print(Ledger().or_clean_and_skip(EMPTY_FIX, "my films.csv.gz").replace("; ", ";\n"))
        fill it in, or drop such rows in a copy: `seqloom data clean 'my films.csv.gz' -o 'my films-clean.csv'`;
        or skip them with --skip-bad-rows
        """
        command = self.clean_command(path) if fix == EMPTY_FIX else ""
        return f"fill it in, or drop such rows in a copy: `{command}`; or skip them with {SKIP}" if command else fix

    def bad_row(self, code: str, text: str, place: Place, fix: str = "") -> None:
        """Count a row that cannot be used; the caller skips it and continues."""
        self.skipped += 1
        self.bad[code] += 1
        self.counts[code] += 1
        samples = self._bad_samples.setdefault(code, [])
        if len(samples) < SAMPLES or place.path in self._files:  # else it comes after all of them
            self._files.setdefault(place.path, len(self._files))
            insort(samples, Problem("reject", code, text, place, fix), key=self._order)
            del samples[SAMPLES:]

    def unreadable_row(self, code: str, text: str, place: Place, fix: str) -> None:
        """Count a row that its reader cannot read; the fix also says how to skip such rows where that is an option."""
        skippable = fix and self.bad_rows != UNLIMITED
        self.bad_row(code, text, place, f"{fix}, or skip such rows with {SKIP}" if skippable else fix)

    def _order(self, problem: Problem) -> tuple[int, int, int]:
        path, line, column = problem.place
        return self._files[path], line or 0, column or 0

    @property
    def refused(self) -> list[Problem]:
        """The bad rows to show: of as many codes as possible, in the order of files and lines."""
        return self._shown(SHOWN)

    def _shown(self, most: int) -> list[Problem]:
        ranks = range(SAMPLES)
        chosen = [one for rank in ranks for kind in self._bad_samples.values() for one in kind[rank : rank + 1]]
        return [one._replace(fix=self._allowed(one.fix)) for one in sorted(chosen[:most], key=self._order)]

    def _allowed(self, fix: str) -> str:
        """The fix; skipping rows is advised only where it is allowed, together with the limit that it needs."""
        if not fix.endswith(SKIP):
            return fix
        if self.bad_rows.skip_bad_rows or not self._enough:
            return ADVICE_TO_SKIP.sub("", fix)
        return fix if self._is_allowed else f"{fix} and --max-bad-rows {self._enough}"

    @property
    def _is_allowed(self) -> bool:
        """Whether the share of bad rows is allowed if they are skipped."""
        return self.skipped / (self.skipped + self.rows) <= self.bad_rows.max_bad_rows

    @property
    def _enough(self) -> str:
        """The share of bad rows as users type it, rounded up; empty if so many should not be skipped."""
        needed = -(-10_000 * self.skipped // (self.skipped + self.rows)) / 10_000
        return percent_of(needed) if needed <= MOST_ALLOWED or self._is_allowed else ""

    def bad_file(
        self,
        code: str,
        text: str,
        place: Place,
        fix: str = "",
        remedy: Mapping[str, object] | None = None,
        suggested: Mapping[str, object] | None = None,
    ) -> NoReturn:
        """Raise RejectedError: the rest of this file cannot be read.

        `remedy` are settings that mend it, `suggested` settings that a user may mean.
        """
        last = Problem("reject", code, text, place, fix)
        # No name for the error here: it would keep what the reader holds in memory while the file is opened again.
        raise self._rejected([*self._shown(SHOWN - 1), last], self.bad + Counter([code]), "", remedy, suggested)

    def warn(self, code: str, text: str, place: Place, fix: str = "", count: int = 1) -> None:
        """Count something that is used as it is but looks wrong."""
        self._keep(Problem("warn", code, text, place, fix), count)

    def note(self, code: str, text: str, place: Place, count: int = 1, fix: str = "") -> None:
        """Count something unusual that was read correctly."""
        self._keep(Problem("note", code, text, place, fix), count)

    def blank_line(self, place: Place) -> None:
        """Count a blank line between lines of text, which is no row."""
        self.note("text.blank", "a blank line, skipped", place)

    def _keep(self, problem: Problem, count: int) -> None:
        self.counts[problem.code] += count
        samples = self.samples.setdefault(problem.code, [])
        if len(samples) < SAMPLES:
            samples.append(problem)

    def close(self) -> None:
        """Raise RejectedError if there were more bad rows than allowed."""
        if not self.accepts:
            raise self._rejected(self.refused, self.bad, self.too_many())

    @property
    def accepts(self) -> bool:
        """Whether there were no more bad rows than allowed."""
        return not self.skipped or (self.bad_rows.skip_bad_rows and self._is_allowed)

    def skipping(self) -> BadRows | None:
        """The setting that skips the bad rows; None if these are too many."""
        if self.accepts:
            return self.bad_rows
        return BadRows(skip_bad_rows=True, max_bad_rows=share_of(self._enough)) if self._enough else None

    def too_many(self) -> str:
        """That more rows were bad than may be skipped, and what to do; empty if they are not skipped."""
        if not self.bad_rows.skip_bad_rows:
            return ""
        rows = self.skipped + self.rows
        allow = f", or raise the limit with --max-bad-rows {self._enough}" if self._enough else ""
        bad = f"{self.skipped:,} of {counted(rows, 'row')} ({self.skipped / rows:.2%})"
        are = "is" if self.skipped == 1 else "are"
        allowed = percent_of(self.bad_rows.max_bad_rows)
        return f"{bad} {are} bad; --max-bad-rows allows {allowed}. Fix: correct the rows{allow}."

    def _rejected(
        self,
        problems: list[Problem],
        kinds: Counter[str],
        verdict: str = "",
        remedy: Mapping[str, object] | None = None,
        suggested: Mapping[str, object] | None = None,
    ) -> RejectedError:
        fixes = [problem.fix for problem in problems]  # each is written once, with the first problem that has it
        again = [fix in fixes[:place] for place, fix in enumerate(fixes)]
        return RejectedError(
            [str(one._replace(fix="") if known else one) for one, known in zip(problems, again, strict=True)],
            codes=[problem.code for problem in problems],
            total=kinds.total(),
            verdict=verdict,
            kinds=dict(kinds.most_common()),
            details=[problem.data() for problem in problems],
            remedy=remedy,
            suggested=suggested,
        )

    def warnings(self) -> Iterator[tuple[str, int, list[Problem]]]:
        """Yield code, count and first samples of each kind of warning and note, in the order of appearance."""
        for code, samples in self.samples.items():
            yield code, self.counts[code], samples
