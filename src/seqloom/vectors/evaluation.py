"""Scores of word vectors on a file of analogies or of similarities; the content of the file decides.

    : capital-common-countries                         analogies: sections, and lines of four words; the score is the
    Athens Greece Baghdad Iraq                         share of lines whose fourth word is the answer of 3CosAdd

    Word 1,Word 2,Human (mean)                         similarities: two words and a number, separated by tabs, commas
    tiger,cat,7.35                                     or spaces; the score is Spearman's correlation with the cosines

A header is optional. If a column of words follows the two words (SimLex-999 has the part of speech there), the first
column of numbers after them counts. Lines with a word that has no vector are left out of the score and counted.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
import numpy as np

from seqloom.config.options import strict
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.files import require_regular
from seqloom.errors import DataError
from seqloom.metrics.correlation import spearman
from seqloom.report.document import Document, Paragraph, Shown, TableBlock
from seqloom.report.numbers import counted, part_of
from seqloom.vectors.lookup import VectorSpace

TOGETHER = 256  # questions whose cosines with all words are computed at once


class VectorScore(NamedTuple):
    """The score of one section."""

    section: str
    score: float | None  # None if no line could be used
    used: int  # lines whose words all have vectors
    lines: int


class VectorEvaluation(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The scores of a file: one per section, the total last."""

    metric: str  # accuracy or spearman
    scores: tuple[VectorScore, ...]

    @property
    def score(self) -> float | None:
        """The total score."""
        return self.scores[-1].score

    def document(self) -> Document:
        total = self.scores[-1]
        rows = [(each.section, each.score, part_of(each.used, each.lines)) for each in self.scores]
        missing = total.lines - total.used
        note = f"Left out, because a word has no vector: {counted(missing, 'line')}." if missing else ""
        return Document(
            f"Word vectors: {self.metric}",
            (TableBlock(("section", self.metric, "lines used"), rows), Paragraph(note)),
        )


@strict
def evaluate(path: str | Path, file: str | Path, *, limit: int | None = None) -> VectorEvaluation:
    """Score a file of vectors on a file of analogies or similarities.

    Args:
        path: the vectors.
        file: lines of four words with ": section" lines, or lines of two words and a number.
        limit: only the first words of the file of vectors are used (default: all).
    """
    lines = list(_lines(Path(file)))
    if not lines:
        _refuse(Path(file), None, "the file is empty", "give a file of analogies or similarities")
    if lines[0][1].startswith(":") or (len(lines[0][1].split()) == 4 and not _has_numbers(lines)):
        questions = _questions(Path(file), lines)
        return _analogies(VectorSpace.read(path, limit), questions)
    pairs = _pairs(Path(file), lines)
    return _similarities(VectorSpace.read(path, limit), pairs)


def _refuse(path: Path, line: int | None, text: str, fix: str) -> NoReturn:
    Ledger().bad_file("vec.evaluation", text, Place(str(path), line), fix)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with text, each with its number."""
    require_regular(path, Ledger())
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: byte {error.start:,}", fix="convert the file to UTF-8") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) else None


def _has_numbers(lines: list[tuple[int, str]]) -> bool:
    return any(_number(field) is not None for _, line in lines[:2] for field in re.split(r"[\t,;\s]+", line))


Question = tuple[str, tuple[str, str, str, str]]  # section and words


def _questions(path: Path, lines: list[tuple[int, str]]) -> list[Question]:
    section, found = "analogies", []
    for number, line in lines:
        if line.startswith(":"):
            section = line[1:].strip()
            continue
        words = line.split()
        if len(words) != 4:
            _refuse(path, number, f"expected four words, found {len(words)}", "correct the line")
        found.append((section, (words[0], words[1], words[2], words[3])))
    if not found:
        _refuse(path, None, "there are no analogies", "give lines of four words")
    return found


def _analogies(space: VectorSpace, questions: list[Question]) -> VectorEvaluation:
    numbers = [[space.find(word) for word in words] for _, words in questions]
    usable = [at for at, row in enumerate(numbers) if None not in row]
    right = np.zeros(len(questions), bool)
    for start in range(0, len(usable), TOGETHER):
        some = usable[start : start + TOGETHER]
        a, b, c, d = np.array([numbers[at] for at in some], np.int64).T
        targets = space.units[b] - space.units[a] + space.units[c]
        best, cosines = space.nearest(targets, np.stack([a, b, c], axis=1), 1)
        if best.size:  # else there are no other words
            right[some] = (best[:, 0] == d) & np.isfinite(cosines[:, 0])
    used = np.isin(np.arange(len(questions)), usable)
    sections = np.array([section for section, _ in questions])
    masks = {name: sections == name for name in dict.fromkeys(sections.tolist())}
    if len(masks) > 1:
        masks["all"] = np.ones(len(questions), bool)
    scores = []
    for name, mask in masks.items():
        count = int((mask & used).sum())
        scores.append(VectorScore(name, float(right[mask].sum() / count) if count else None, count, int(mask.sum())))
    return VectorEvaluation(metric="accuracy", scores=tuple(scores))


SimilarPair = tuple[str, str, float]


def _pairs(path: Path, lines: list[tuple[int, str]]) -> list[SimilarPair]:
    mark = next((mark for mark in "\t,;" if all(mark in line for _, line in lines)), None)
    rows = [(number, [field.strip() for field in line.split(mark)]) for number, line in lines]
    if len(rows) > 1 and not any(_number(field) is not None for field in rows[0][1][2:]):
        del rows[0]  # the names of the columns
    column = next((at for at, field in enumerate(rows[0][1]) if at > 1 and _number(field) is not None), 2)
    found = []
    for number, fields in rows:
        score = _number(fields[column]) if len(fields) > column else None
        if score is None:
            text = f"expected two words and a number in column {column + 1}"
            _refuse(path, number, text, "correct the line, or give a file of analogies")
        found.append((fields[0], fields[1], score))
    return found


def _similarities(space: VectorSpace, pairs: list[SimilarPair]) -> VectorEvaluation:
    numbers = [(space.find(a), space.find(b), score) for a, b, score in pairs]
    used = [(a, b, score) for a, b, score in numbers if a is not None and b is not None]
    value = None
    if len(used) > 1:
        cosines = np.array([float(space.units[a] @ space.units[b]) for a, b, _ in used])
        value = spearman(cosines, np.array([score for *_, score in used]))
    score = VectorScore("similarities", value, len(used), len(pairs))
    return VectorEvaluation(metric="spearman", scores=(score,))
