"""What the command line makes of a case: `seqloom data check --json` in this process, and its findings in words."""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import seqloom.cli
from data.corpus.case import Around, Case, labeled, table
from seqloom.data.problems import Place, Problem

CLOCK = re.compile(r"written at \d+")


class Said(NamedTuple):
    """A finding: how grave it is, its code, how often it was found, and all of its lines."""

    severity: str
    code: str
    count: int
    lines: tuple[str, ...]


class Run(NamedTuple):
    """The exit code, the findings, and what was written to both streams."""

    code: int
    found: tuple[Said, ...]
    report: dict[str, Any]
    out: str
    err: str

    def message(self) -> str:
        """Everything that was found, as the snapshot has it."""
        rows = [
            line
            for one in self.found
            for line in (f"{one.severity} × {one.count}" if one.count > 1 else one.severity, *one.lines)
        ]
        return CLOCK.sub("written at <time>", "\n".join([f"exit {self.code}", *rows]))


def check(folder: Path, *arguments: str, around: Around = contextlib.nullcontext) -> Run:
    """The command line in this process, in a folder."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    before = Path.cwd(), sys.argv
    os.chdir(folder)
    sys.argv = ["seqloom", "data", "check", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), around():
            seqloom.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os.chdir(before[0])
        sys.argv = before[1]
    report = json.loads(out.getvalue()) if "--json" in arguments and out.getvalue() else {}
    return Run(code, tuple(_found(report, err.getvalue())), report, out.getvalue(), err.getvalue())


def run(case: Case, folder: Path) -> Run:
    """The command line on the files of a case, which are written first."""
    case.write(folder)
    if case.around is not contextlib.nullcontext:
        import_everything()
    return check(folder, *case.arguments, "--json", around=case.around)


@cache
def import_everything() -> None:
    """Load what is loaded late, while the files of the package may be read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "good.csv").write_bytes(table(*labeled()))
        assert check(Path(folder), "good.csv", "--json").code == 0


def _found(report: dict[str, Any], err: str) -> Iterator[Said]:
    """Refusals as they were printed, or the findings of the report in the same form."""
    if err:
        lines = tuple(err.rstrip("\n").split("\n"))
        first = re.match(r".*?: ([a-z0-9]+\.[A-Za-z0-9_]+): ", lines[0])
        yield Said("reject", first[1] if first else "", 1, lines)
    for finding in report.get("findings", ()):
        severity, code = finding["severity"], finding["code"]
        samples = [Problem(severity, code, one["text"], Place(one["place"]), one["fix"]) for one in finding["samples"]]
        yield Said(severity, code, finding["rows"], tuple(map(str, samples)))
