"""CoNLL files: one word per line with its tag last, and a blank line after each sentence.

    EU       B-ORG         columns are separated by tabs or by spaces, as in the first line with a word;
    rejects  O             all other characters belong to the word, including no-break spaces

    -DOCSTART- O           begins a document and is not a sentence
    # id = 7               a comment, because it does not have the columns of a word; "#" with a tag is a word

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
COMMENTS = 100  # maximum paragraphs of comments before the first word
DOCUMENT = "-DOCSTART-"
SEPARATORS = {"\t": "tabs", " ": "spaces"}
OR_TEXT = "or read plain text with --format text"


class Sentence(NamedTuple):
    """The lines between two breaks, and their numbers."""

    path: str
    numbers: list[int]
    lines: list[str]


class ConllLayout(NamedTuple):
    """The separator and the number of columns of a file, and the line that shows them."""

    separator: str
    width: int
    line: int


class Fault(NamedTuple):
    """A problem in one line of a sentence."""

    line: int
    code: str
    text: str
    fix: str

    def report(self, path: str, ledger: Ledger) -> None:
        """Count the sentence as a bad row."""
        ledger.unreadable_row(self.code, self.text, Place(path, self.line), self.fix)


def cells_of(line: str, separator: str) -> list[str]:
    """The columns of a line; several spaces count as one, and trailing spaces are ignored.

    >>> cells_of("EU  B-ORG ", " "), cells_of("New York\\tB-LOC", "\\t")
    (['EU', 'B-ORG'], ['New York', 'B-LOC'])
    """
    if separator != " ":
        return line.split(separator)
    cells = line.split(" ")
    return cells if all(cells) else [*cells[:1], *(cell for cell in cells[1:] if cell)]


def read_conll(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of the sentences: words, other columns by number, and tags, each a tuple of texts."""
    (path,) = paths
    breaks = _Breaks(reading.delimiter)
    sentences = sentences_of(path, reading, ledger, breaks)
    head: list[Sentence] = []  # the first sentences, until one has a line that is not a comment
    for sentence in islice(sentences, COMMENTS):
        head.append(sentence)
        if not all(line.startswith("#") for line in sentence.lines):
            break
    if not head:
        fix = "give a file with a word and its tag on each line"
        ledger.bad_file("data.empty", "there is no sentence in the file", Place(str(path)), fix)
    pairs = [pair for sentence in head for pair in zip(sentence.lines, sentence.numbers, strict=True)]
    line, number = next((pair for pair in pairs if not pair[0].startswith("#")), pairs[0])
    separator = reading.delimiter or ("\t" if "\t" in line else " ")
    layout = ConllLayout(separator, len(cells_of(line, separator)), number)
    if layout.width < 2:
        text, place = "expected a word and its tag, found one column", Place(str(path), layout.line)
        ledger.bad_file("conll.columns", text, place, f"write a tag after each word, set --delimiter, {OR_TEXT}")
    columns = ("tokens", *(str(number) for number in range(2, layout.width)), "tags")
    return Table(columns, _records(chain(head, sentences), layout, breaks, ledger))


def sentences_of(
    path: Path, reading: ReadingConfig, ledger: Ledger, is_break: Callable[[str], bool]
) -> Iterator[Sentence]:
    """Yield the groups of lines between breaks."""
    sentence = Sentence(str(path), [], [])
    for number, line in lines_of(path, reading, ledger):
        if not is_break(line):
            sentence.numbers.append(number)
            sentence.lines.append(line)
            if len(sentence.lines) > LONGEST:
                text = f"a sentence of more than {LONGEST:,} words; are blank lines missing?"
                place = Place(sentence.path, sentence.numbers[0])
                ledger.bad_file("conll.sentence_too_long", text, place, "put a blank line after each sentence")
        elif sentence.lines:
            yield sentence
            sentence = Sentence(str(path), [], [])
    if sentence.lines:
        yield sentence


class _Breaks:
    """Recognizes blank lines, which may contain separators, and lines that begin a document, which it counts."""

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
        # A comment begins with # and does not have the columns of a word.
        comments = takewhile(
            lambda line: line.startswith("#") and len(cells_of(line, layout.separator)) != layout.width, sentence.lines
        )
        if start := len(list(comments)):
            text = "comment lines, skipped"
            ledger.note("conll.comment", text, Place(path, sentence.numbers[0]), start)
        lines, numbers = sentence.lines[start:], sentence.numbers[start:]
        rows = [cells_of(line, layout.separator) for line in lines]
        faults = (_fault(*one, layout) for one in zip(rows, lines, numbers, strict=True))
        if fault := next(filter(None, faults), None):
            fault.report(path, ledger)
        elif rows:
            ledger.rows += 1
            yield Record(tuple(zip(*rows, strict=True)), path, numbers[0], "".join(f"{line}\n" for line in lines))
    if breaks.documents:
        ledger.note("conll.document", f"{DOCUMENT} lines, skipped", Place(path), breaks.documents)


def _fault(cells: list[str], line: str, number: int, layout: ConllLayout) -> Fault | None:
    separator, width, shown = layout
    tab_between = separator == " " and "\t" in line
    if len(cells) == width and all(cells) and not tab_between:
        return None
    if len(cells) == width and not cells[0]:
        return Fault(number, "conll.empty_token", "there is no word before the first separator", "add the word")
    other = {"\t": " ", " ": "\t"}.get(separator)
    if tab_between or (other and len(cells_of(line, other)) == width != len(cells)):
        text = f"line {shown} is separated by {SEPARATORS[separator]}, this one by {SEPARATORS[str(other)]}"
        return Fault(number, "conll.separator", text, "use one separator in all lines")
    if len(cells) == width:
        return Fault(number, "conll.columns", f"column {cells.index('') + 1} is empty", "give every word all columns")
    text = f"{counted(len(cells), 'column')}, but line {shown} has {width}"
    return Fault(number, "conll.columns", text, f"give every word all columns, the tag last, {OR_TEXT}")


# CoNLL-U, the format of Universal Dependencies: ten columns with tabs between them, comments, a blank line at the end.
#
#     # text = Vámonos al mar.
#     1-2   Vámonos  _       ...            a range: the written form of words 1 and 2; skipped and counted
#     1     Vamos    ir      VERB  ...
#     2     nos      nosotros PRON ...
#     5.1   ...                             an empty node: not in the text; skipped and counted
#
# The words are the *syntactic* ones (Vamos, nos), which have the parts of speech. `spaces` says whether a space follows
# each word: not after `SpaceAfter=No`. Inside a range there is none, and after its last word the MISC of the range
# decides. So the joined words are the original text only if there are no ranges; `text` always is.
# See https://universaldependencies.org/format.html.

COLUMNS = ("tokens", "upos", "xpos", "lemma", "feats", "deprel", "spaces", "text")
CELLS = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")
ID, FORM, LEMMA, UPOS, XPOS, FEATS, _, DEPREL, _, MISC = range(len(CELLS))
TEXT = re.compile(r"# *text *= *(.*)", re.DOTALL)
RANGE = re.compile("([1-9][0-9]{0,5})-([1-9][0-9]{0,5})")
EMPTY = re.compile(r"[0-9]{1,6}\.[1-9][0-9]{0,5}")
NO_SPACE = "SpaceAfter=No"


class Parsed(NamedTuple):
    """A sentence: the line of its first word, the cells of its words, and whether a space follows each word."""

    line: int
    words: list[list[str]]
    spaces: list[bool]
    skipped: int  # ranges and empty nodes


def read_conllu(paths: tuple[Path, ...], reading: ReadingConfig, ledger: Ledger) -> Table:
    """The table of the sentences: seven columns of tuples with one entry per word, and the text."""
    (path,) = paths
    sentences = sentences_of(path, reading, ledger, lambda line: not line or line.isspace())
    records = _conllu_records(sentences, ledger)
    first = next(records, None)
    if first is None:
        fix = "give a file with ten columns separated by tabs"
        return ledger.bad_file("data.empty", "there is no sentence in the file", Place(str(path)), fix)
    return Table(COLUMNS, chain([first], records))


def _conllu_records(sentences: Iterator[Sentence], ledger: Ledger) -> Iterator[Record]:
    for sentence in sentences:
        parsed = _parse(sentence)
        if isinstance(parsed, Fault):
            parsed.report(sentence.path, ledger)
        elif parsed.words:
            if parsed.skipped:
                place = Place(sentence.path, parsed.line)
                ledger.note("conllu.skipped", "ranges and empty nodes, skipped", place, parsed.skipped)
            ledger.rows += 1
            columns = (FORM, UPOS, XPOS, LEMMA, FEATS, DEPREL)
            words = (tuple(word[column] for word in parsed.words) for column in columns)
            text = next((match[1] for line in sentence.lines if (match := TEXT.fullmatch(line))), "")
            yield Record((*words, tuple(parsed.spaces), text), sentence.path, parsed.line)


def _parse(sentence: Sentence) -> Parsed | Fault:
    """The words of a sentence, or the problem of the first bad line."""
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
            text = f"expected the id {following}, found {cells[ID]!r}"
            return Fault(number, "conllu.id", text, "number the words of each sentence from 1")
    if range_stop > len(words):
        text = f"a range ends at word {range_stop}, but the sentence ends at word {len(words)}"
        return Fault(sentence.numbers[-1], "conllu.id", text, "number the words of each sentence from 1")
    return Parsed(line, words, spaces, skipped)


def _range_stop(number: str, following: int, before: int) -> int:
    """Return the last word of a range that begins with the following word; 0 if it is not a valid range."""
    match = RANGE.fullmatch(number)
    if match is None or int(match[1]) != following or following <= before or int(match[2]) < following:
        return 0
    return int(match[2])


def _conllu_fault(cells: list[str], number: int) -> Fault | None:
    if len(cells) != len(CELLS):
        text = f"{counted(len(cells), 'column')}; CoNLL-U has {len(CELLS)}, separated by tabs"
        return Fault(number, "conll.columns", text, f"write _ for unknown values, {OR_TEXT}")
    if all(cells):
        return None
    if not cells[FORM]:
        return Fault(number, "conll.empty_token", "the word is empty", "add the word")
    return Fault(number, "conll.columns", f"{CELLS[cells.index('')]} is empty", "write _ for unknown values")
