"""The errors of Seqloom.

    SeqloomError
    ├── ConfigError        a wrong option or configuration
    ├── DataError          input that cannot be used: files, batches, lengths
    │   └── RejectedError  bad files or rows, each with its place and a code
    ├── KernelError        a kernel does not support the request
    ├── DurableError       a file or folder that could not be written or verified
    │   ├── DamagedError   the bytes on disk differ from the manifest
    │   └── HeldError      another process writes to the folder
    ├── RepeatError        run the same command again: it resumes
    └── MissingExtraError  an optional dependency is not installed

An error states the request, the problem and the fix: `SeqloomError(problem, fix=...)`. `assert` is for bugs.
"""

import difflib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

NAMES_READ = 10_000  # maximum names of a folder to compare with a misspelled one
WORDED = ("text", "fix")  # sentences in the details of a rejected row
ALIKE = 0.6  # minimum similarity of suggested names


def fix_sentence(fix: str) -> str:
    """Return a fix as a sentence of a message; a suggested name is a question.

    >>> fix_sentence("use at least 1"), fix_sentence("did you mean 'lstm'?")
    ('Fix: use at least 1.', "Did you mean 'lstm'?")
    """
    end = "" if fix.endswith(("?", ".")) else "."
    return f"D{fix[1:]}{end}" if fix.startswith("did you mean ") else f"Fix: {fix}{end}"


class SeqloomWarning(UserWarning):
    """Something that works but should be known; the command line prints it as a message."""


class SeqloomError(Exception):
    """Base of all errors raised on purpose; `str()` has a sentence about the problem and one about the fix."""

    def __init__(self, problem: str, *, fix: str = "") -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem}. {fix_sentence(fix)}" if fix else f"{problem}.")

    @property
    def in_brief(self) -> str:
        """The same in one line, for a report."""
        return str(self)

    def reword(self, words: Callable[[str], str]) -> None:
        """Change the sentences for other readers: what the shell calls --batch-tokens is batch_tokens in Python."""
        self.problem, self.fix = words(self.problem), words(self.fix)
        self.args = tuple(words(one) if isinstance(one, str) else one for one in self.args)


class ConfigError(SeqloomError):
    """An option or configuration that is unknown, out of range, contradictory or too large."""


class DataError(SeqloomError):
    """Input that a model or reader cannot use."""


class RejectedError(DataError):
    """Rejected files or rows: one line for each, `path:line:column: code: text. Fix: ...`, and the total.

    `kinds` counts the problems of each code, `details` are the lines as plain values, `verdict` is a last line, and
    `remedy` are settings of the data, by name, with which the file may be readable, and `suggested` further ones that
    are a guess.
    """

    def __init__(
        self,
        lines: Sequence[str],
        *,
        codes: Sequence[str],
        total: int,
        verdict: str = "",
        kinds: Mapping[str, int] | None = None,
        details: Sequence[Mapping[str, object]] = (),
        remedy: Mapping[str, object] | None = None,
        suggested: Mapping[str, object] | None = None,
    ) -> None:
        self.remedy, self.suggested = dict(remedy or {}), dict(suggested or {})
        self.codes = tuple(codes)  # of the lines, in order
        self.total = total
        self.details = tuple(details)
        each = [f"{count:,} {code}" for code, count in (kinds or {}).items()]
        named = f": {', '.join(each)}" if len(each) > 1 else ""
        shown = f"; {len(lines)} are shown" if total > len(lines) else ""
        count = [f"{total:,} problems in all{named}{shown}."] if total > 1 else []
        self.problem, self.fix = "\n".join([*lines, *count, *([verdict] if verdict else [])]), ""
        Exception.__init__(self, self.problem)

    def reword(self, words: Callable[[str], str]) -> None:
        """The same, also in the details."""
        super().reword(words)
        self.details = tuple(
            {name: words(one) if isinstance(one, str) and name in WORDED else one for name, one in line.items()}
            for line in self.details
        )

    @property
    def in_brief(self) -> str:
        """The first problem in one line, and how many there are."""
        first = self.problem.partition("\n")[0]
        return first if self.total <= 1 else f"{first} It is the first of {self.total:,} problems."


class KernelError(SeqloomError):
    """A kernel does not support the mask, bias, score, dtype or device."""


class DurableError(SeqloomError):
    """A failed write, or a folder that is not complete."""


class DamagedError(DurableError):
    """Stored bytes differ from the checksums in their manifest."""


class HeldError(DurableError):
    """Another process writes to the folder; try again later."""


class RepeatError(SeqloomError):
    """Work that stopped; the same command resumes it in another way."""


class MissingExtraError(SeqloomError):
    """An optional dependency is missing; the message holds the install command."""

    def __init__(self, package: str, *, extra: str) -> None:
        super().__init__(f"{package} is not installed", fix=f"pip install 'seqloom[{extra}]'")
        self.package = package
        self.extra = extra


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Make a failed import in the block name the extra to install.

    >>> with needing("data"):
    ...     import no_such_package
    Traceback (most recent call last):
    seqloom.errors.MissingExtraError: no_such_package is not installed. Fix: pip install 'seqloom[data]'.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "a package", extra=extra) from None


def did_you_mean(name: str, known: Iterable[str], *, ordered: bool = False) -> str:
    """Return the fix for an unknown name: the nearest known one, or the list, sorted unless its order has a meaning.

    >>> did_you_mean("lsmt", ["gru", "lstm"])
    "did you mean 'lstm'?"
    >>> did_you_mean("zzz", ["gru", "lstm"])
    'choose from gru, lstm'
    """
    names = list(known) if ordered else sorted(known)
    near = [other for other in names if other.lower() == name.lower()]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=ALIKE)
    return f"did you mean '{near[0]}'?" if near else f"choose from {', '.join(names)}"


def near_name(path: Path) -> str:
    """Return the fix for a missing file: the nearest name in its folder, or to check the path."""
    if not path.parent.is_dir():
        return f"check the path: the folder {path.parent} is missing too"
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, NAMES_READ)]
    except OSError:
        names = []
    return _meant(path.name, names)


def near_folder(path: Path) -> str:
    """Return the fix for a missing folder; only folders are suggested."""
    try:
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, NAMES_READ) if entry.is_dir()]
    except OSError:
        return near_name(path)
    return _meant(path.name, names)


def _meant(name: str, others: Iterable[str]) -> str:
    near = _nearest(name, sorted(others))
    return f"did you mean {near}?" if near else "check the path"


def _nearest(name: str, others: Sequence[str]) -> str:
    """The most similar name, or ''. The suffix does not count.

    >>> _nearest("tran.csv", ["dev.csv", "train.csv", "train.tsv"]), _nearest("nope.csv", ["ans.csv"])
    ('train.csv', '')
    """
    by_stem: dict[str, list[str]] = {}
    for other in others:
        by_stem.setdefault(_stem(other), []).append(other)
    stems = difflib.get_close_matches(_stem(name), by_stem, n=1, cutoff=ALIKE)
    return difflib.get_close_matches(name, by_stem[stems[0]], n=1, cutoff=0.0)[0] if stems else ""


def _stem(name: str) -> str:
    """A name without its suffixes, in lower case."""
    return (name.partition(".")[0] or name).lower()
