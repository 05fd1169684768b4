"""RUN/report.html and RUN/card.md, written whenever a run ends and after each look at the test part."""

from pathlib import Path

from seqloom.files.disk import write_file
from seqloom.files.layouts import RunFile
from seqloom.training.pages.card import card_md
from seqloom.training.pages.html import report_html
from seqloom.training.pages.summary import AnyRun, RunSummary, path_of, summary_of


def write_pages(run: AnyRun) -> RunSummary:
    """The summary from which the report and the card of a run were written; both replace what was there."""
    path: Path = path_of(run)
    summary = summary_of(path)
    write_file(path / RunFile.REPORT, report_html(summary))
    write_file(path / RunFile.CARD, card_md(summary))
    return summary
