"""Attributions of many inputs as JSON lines: one line for each, in their order.

    {"row": 0, "label": "yes", "answer": "“yes”", "method": "integrated", "baseline": "zero", "score": 1.2,
     "baseline_scores": [0.1], "error": 0.0004, "sides": [{"side": "input", "tokens": ["not", "bad"],
     "offsets": [[0, 3], [4, 7]], "scores": [-0.3, 1.4]}]}

Inputs are read one after another, however many there are; the file is there when all of them are done, and as long as
they are not, what was there before is.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from seqloom.durable import write_file
from seqloom.errors import DataError, SeqloomError
from seqloom.inspection.asking import read
from seqloom.inspection.attribution.methods import method_of
from seqloom.inspection.attribution.single import AttributionView, attribution
from seqloom.inspection.plain_values import plain
from seqloom.inspection.subject import Subject

Progress = Callable[[int], None]  # (how many are done)


def attribute_file(
    subject: Subject,
    rows: Iterable[Any],
    out: str | Path,
    *,
    method: str = "integrated",
    answer: str | int | None = None,
    against: str | int | None = None,
    baseline: str | None = None,
    words: bool = False,
    progress: Progress | None = None,
) -> int:
    """How many inputs were written to `out`; an input that cannot be read ends it, and the error says which it was."""
    method_of(method)
    written = 0

    def lines() -> Iterator[bytes]:
        nonlocal written
        for number, given in enumerate(rows):
            try:
                view = attribution(
                    subject,
                    read(subject, given),
                    method=method,
                    answer=answer,
                    against=against,
                    baseline=baseline,
                    words=words,
                )
            except SeqloomError as error:
                raise DataError(f"row {number}: {error.problem}", fix=error.fix) from error
            yield (json.dumps(line_of(number, view), ensure_ascii=False, allow_nan=False) + "\n").encode()
            written = number + 1
            if progress is not None:
                progress(written)

    write_file(Path(out), lines())
    return written


def line_of(number: int, view: AttributionView) -> dict[str, Any]:
    """One input as its line has it."""
    sides = [
        {
            "side": part.name,
            "tokens": list(part.texts),
            "offsets": [[token.start, token.stop] for token in part.tokens],
            "scores": plain(part.values),
        }
        for part in view.parts
    ]
    names = ("label", "answer", "method", "baseline", "score", "baseline_scores")
    told = {name: plain(getattr(view, name)) for name in names}
    return {"row": number, **told, "error": plain(view.error), "sides": sides}
