"""The bad-input corpus: every row of its table, each with one case or several."""

from data.corpus.case import Case
from data.corpus.characters import CHARACTERS
from data.corpus.encodings import ENCODINGS, LINES
from data.corpus.files import FILES
from data.corpus.json_lines import JSON_LINES
from data.corpus.parallel import PARALLEL
from data.corpus.tables import TABLES
from data.corpus.tagged import TAGGED

CASES: list[Case] = [*ENCODINGS, *LINES, *TABLES, *JSON_LINES, *TAGGED, *PARALLEL, *CHARACTERS, *FILES]
