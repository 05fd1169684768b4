"""CoNLL columns: one word per line, its tag last, a blank line after each sentence.

    EU       B-ORG         columns are separated by tabs or by spaces, as the first word of the file shows;
    rejects  O             between them everything belongs to the word, no-break spaces included

    -DOCSTART- O           begins a document and is no sentence
    # id = 7               a comment, because it does not have the columns of a word; "#" and a tag is a word

A sentence with a bad line is one bad row.
"""

import re
from collections.abc import Callable, Iterator
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import NamedTuple

from seqloom.config.data import ReadingConfig
from seqloom.data.problems import Ledger, Place
from seqloom.data.readers.passages import lines_of
from seqloom.data.values import Record, Table
from seqloom.report.numbers import counted

LONGEST = 10_000  # words of a sentence
COMMENTS = 100  # paragraphs of comments that may stand before the first word
DOCUMENT = "-DOCSTART-"
SEPARATORS = {"\t": "tabs", " ": "spaces"}


class Sentence(NamedTuple):
    """The lines between two breaks, and their numbers."""

    path: str
    numbers: list[int]
    lines: list[str]


class ConllLayout(NamedTuple):
    """How the lines of a file are cut: by what, into how many columns, and which line showed it."""

    separator: str
    width: int
    line: int


class Fault(NamedTuple):
    """What is wrong with one line of a sentence."""

    line: int
    code: str
    text: str
    fix: str

    def report(self, path: str, ledger: Ledger) -> None:
        """Count the sentence as a bad row."""
        ledger.bad_row(self.code, self.text, Place(path, self.line), self.fix)


def cells_of(line: str, separator: str) -> list[str]:
    """The columns of a line; several spaces separate like one, and those at the end do not.

    >>> cells_of("EU  B-ORG ", " "), cells_of("New York\\tB-LOC", "\\t")
    (['EU', 'B-ORG'], ['New York', 'B-LOC'])
    """
    if separator != " ":
        return line.split(separator)
    cells = line.split(" ")
    return cells if all(cells) else [*cells[:1], *(cell for cell in cells[1:] if cell)]


def read_conll(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of the sentences: their words, further columns by number, and the tags, each a tuple of texts."""
    (path,) = paths
    breaks = _Breaks(reading.delimiter)
    sentences = sentences_of(path, reading, ledger, breaks)
    head: list[Sentence] = []  # the first sentences, until one has a line that is no comment
    for sentence in islice(sentences, COMMENTS):
        head.append(sentence)
        if not all(line.startswith("#") for line in sentence.lines):
            break
    if not head:
        fix = "give a file with a word and its tag per line"
        ledger.bad_file("data.empty", "there is no sentence in this file", Place(str(path)), fix)
    pairs = [pair for sentence in head for pair in zip(sentence.lines, sentence.numbers, strict=True)]
    line, number = next((pair for pair in pairs if not pair[0].startswith("#")), pairs[0])
    separator = reading.delimiter or ("\t" if "\t" in line else " ")
    layout = ConllLayout(separator, len(cells_of(line, separator)), number)
    if layout.width < 2:
        text, place = "expected a word and its tag, found one column", Place(str(path), layout.line)
        ledger.bad_file("conll.columns", text, place, "write a tag behind each word, or set --delimiter")
    columns = ("tokens", *(str(number) for number in range(2, layout.width)), "tags")
    return Table(columns, _records(chain(head, sentences), layout, breaks, ledger))


def sentences_of(
    path: Path, reading: ReadingConfig, ledger: Ledger, is_break: Callable[[str], bool]
) -> Iterator[Sentence]:
    """The groups of lines between breaks, which are lines of their own."""
    sentence = Sentence(str(path), [], [])
    for number, line in lines_of(path, reading, ledger):
        if not is_break(line):
            sentence.numbers.append(number)
            sentence.lines.append(line)
            if len(sentence.lines) > LONGEST:
                text = f"a sentence of more than {LONGEST:,} words: blank lines missing?"
                place = Place(sentence.path, sentence.numbers[0])
                ledger.bad_file("conll.sentence_too_long", text, place, "put a blank line after each sentence")
        elif sentence.lines:
            yield sentence
            sentence = Sentence(str(path), [], [])
    if sentence.lines:
        yield sentence


class _Breaks:
    """Tells blank lines, which may hold separators, and lines that begin a document, which it counts."""

    def __init__(self, separator: str | None) -> None:
        self.blank = f" \t{separator or ''}"
        self.documents = 0

    def __call__(self, line: str) -> bool:
        if line.startswith(DOCUMENT) and line[len(DOCUMENT) :][:1] in self.blank:
            self.documents += 1
            return True
        return not line.strip(self.blank) or line.isspace()


def _records(sentences: Iterator[Sentence], layout: ConllLayout, breaks: _Breaks, ledger: Ledger) -> Iterator[Record]:
    path = ""
    for sentence in sentences:
        path = sentence.path
        # A comment begins with # and has not the columns of a word.
        comments = takewhile(
            lambda line: line.startswith("#") and len(cells_of(line, layout.separator)) != layout.width, sentence.lines
        )
        if start := len(list(comments)):
            text = "lines that begin with # and are no words were left out"
            ledger.note("conll.comment", text, Place(path, sentence.numbers[0]), start)
        lines, numbers = sentence.lines[start:], sentence.numbers[start:]
        rows = [cells_of(line, layout.separator) for line in lines]
        faults = (_fault(*one, layout) for one in zip(rows, lines, numbers, strict=True))
        if fault := next(filter(None, faults), None):
            fault.report(path, ledger)
        elif rows:
            ledger.rows += 1
            yield Record(tuple(zip(*rows, strict=True)), path, numbers[0])
    if breaks.documents:
        ledger.note("conll.document", f"{DOCUMENT} lines are no sentences", Place(path), breaks.documents)


def _fault(cells: list[str], line: str, number: int, layout: ConllLayout) -> Fault | None:
    separator, width, shown = layout
    tab_between = separator == " " and "\t" in line
    if len(cells) == width and all(cells) and not tab_between:
        return None
    if len(cells) == width and not cells[0]:
        return Fault(number, "conll.empty_token", "there is no word before the first separator", "write the word")
    other = {"\t": " ", " ": "\t"}.get(separator)
    if tab_between or (other and len(cells_of(line, other)) == width != len(cells)):
        text = f"line {shown} is separated by {SEPARATORS[separator]}, this one by {SEPARATORS[str(other)]}"
        return Fault(number, "conll.separator", text, "use one separator throughout")
    if len(cells) == width:
        return Fault(number, "conll.columns", f"column {cells.index('') + 1} is empty", "give every word all columns")
    text = f"{counted(len(cells), 'column')}, line {shown} has {width}"
    return Fault(number, "conll.columns", text, "give every word all columns, the tag last")


# CoNLL-U, the format of Universal Dependencies: ten columns with tabs between them, comments, a blank line at the end.
#
#     # text = Vámonos al mar.
#     1-2   Vámonos  _       ...            a range: how words 1 and 2 are written; skipped and counted
#     1     Vamos    ir      VERB  ...
#     2     nos      nosotros PRON ...
#     5.1   ...                             an empty node: not written in the text; skipped and counted
#
# The words are the *syntactic* ones (Vamos, nos), since these have the parts of speech. `spaces` says whether a space
# follows each: no after `SpaceAfter=No`. Inside a range there is none, and after its last word the range's own MISC
# decides. So joined words show the original text only where there are no ranges; `text` holds it in any case.
# See https://universaldependencies.org/format.html.

COLUMNS = ("tokens", "upos", "xpos", "lemma", "feats", "deprel", "spaces", "text")
CELLS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
ID, FORM, LEMMA, UPOS, XPOS, FEATS, _, DEPREL, _, MISC = range(len(CELLS))
TEXT = re.compile(r"# *text *= *(.*)", re.DOTALL)
RANGE = re.compile("([1-9][0-9]{0,5})-([1-9][0-9]{0,5})")
EMPTY = re.compile(r"[0-9]{1,6}\.[1-9][0-9]{0,5}")
NO_SPACE = "SpaceAfter=No"


class Parsed(NamedTuple):
    """A sentence: the line of its first word, the cells of its words, and which of them a space follows."""

    line: int
    words: list[list[str]]
    spaces: list[bool]
    skipped: int  # ranges and empty nodes


def read_conllu(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of the sentences: seven columns of tuples, one entry per word, and the text of the whole."""
    (path,) = paths
    sentences = sentences_of(path, reading, ledger, lambda line: not line or line.isspace())
    records = _conllu_records(sentences, ledger)
    first = next(records, None)
    if first is None:
        fix = "give a file with ten columns separated by tabs"
        return ledger.bad_file("data.empty", "there is no sentence in this file", Place(str(path)), fix)
    return Table(COLUMNS, chain([first], records))


def _conllu_records(sentences: Iterator[Sentence], ledger: Ledger) -> Iterator[Record]:
    for sentence in sentences:
        parsed = _parse(sentence)
        if isinstance(parsed, Fault):
            parsed.report(sentence.path, ledger)
        elif parsed.words:
            if parsed.skipped:
                place = Place(sentence.path, parsed.line)
                ledger.note("conllu.skipped", "ranges and empty nodes are no words", place, parsed.skipped)
            ledger.rows += 1
            columns = (FORM, UPOS, XPOS, LEMMA, FEATS, DEPREL)
            words = (tuple(word[column] for word in parsed.words) for column in columns)
            text = next((match[1] for line in sentence.lines if (match := TEXT.fullmatch(line))), "")
            yield Record((*words, tuple(parsed.spaces), text), sentence.path, parsed.line)


def _parse(sentence: Sentence) -> Parsed | Fault:
    """The words of a sentence, or what is wrong with the first bad line."""
    words: list[list[str]] = []
    spaces: list[bool] = []
    line = skipped = range_stop = 0
    range_space = True
    for number, text in zip(sentence.numbers, sentence.lines, strict=True):
        if text.startswith("#") and not line:
            continue
        line = line or number
        cells = text.split("\t")
        if fault := _conllu_fault(cells, number):
            return fault
        following, space = len(words) + 1, NO_SPACE not in cells[MISC].split("|")
        if cells[ID] == str(following):
            words.append(cells)
            spaces.append(space if following > range_stop else range_space and following == range_stop)
        elif stop := _range_stop(cells[ID], following, range_stop):
            range_stop, range_space = stop, space
            skipped += 1
        elif EMPTY.fullmatch(cells[ID]) and cells[ID].startswith(f"{len(words)}."):
            skipped += 1
        else:
            text = f"the id {cells[ID]!r} does not fit, word {following} was expected"
            return Fault(number, "conllu.id", text, "number the words of each sentence from 1")
    if range_stop > len(words):
        text = f"a range ends at word {range_stop}, the sentence at word {len(words)}"
        return Fault(sentence.numbers[-1], "conllu.id", text, "number the words of each sentence from 1")
    return Parsed(line, words, spaces, skipped)


def _range_stop(number: str, following: int, before: int) -> int:
    """The last word of a range that begins with the following word, behind the range before; 0 if it is none."""
    match = RANGE.fullmatch(number)
    if match is None or int(match[1]) != following or following <= before or int(match[2]) < following:
        return 0
    return int(match[2])


def _conllu_fault(cells: list[str], number: int) -> Fault | None:
    if len(cells) != len(CELLS):
        text = f"{counted(len(cells), 'column')}, CoNLL-U has {len(CELLS)}, separated by tabs"
        return Fault(number, "conll.columns", text, "write _ for what is not known")
    if all(cells):
        return None
    if not cells[FORM]:
        return Fault(number, "conll.empty_token", "the word itself is empty", "write the word")
    return Fault(number, "conll.columns", f"{CELLS[cells.index('')]} is empty", "write _ for what is not known")
