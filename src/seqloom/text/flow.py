"""The tokens of one text that arrives line by line: the same as those of the whole text.

Characters, bytes, words and word pieces never look beyond a line break, so a line is cut when it has come. Subwords of
bpe and unigram do: white space belongs to what stands behind it. There the white space at the end of what has arrived
waits for the next line.
"""

from itertools import takewhile

import numpy as np

from seqloom.text.subwords import SubwordSegmenter
from seqloom.text.tokenizer import Tokenizer

LONGEST_SPACE = 64  # white space that subwords cut together; see PATTERN in subwords.py
SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
BEFORE = "x"  # a word of its own, if white space follows


class TextFlow:
    """Cuts the lines of one text, one after another.

    >>> from seqloom.config.tokenizers import BpeConfig
    >>> tokenizer = BpeConfig(vocab_size=300).fit(["to be or not to be"])
    >>> flow = TextFlow(tokenizer)
    >>> found = [flow.tokens("to be\\n"), flow.tokens("or not\\n"), flow.rest()]
    >>> np.concatenate(found).tolist() == tokenizer.encode(["to be\\nor not\\n"]).row(0).tolist()
    True
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._waits = isinstance(tokenizer.segmenter, SubwordSegmenter)
        self._held = ""  # white space that waits for what stands behind it
        self._begun = False

    def tokens(self, line: str) -> np.ndarray:
        """[n] the tokens that are certain when a line, with its line break, has come."""
        if not self._waits:
            return self._tokenizer.encode_inner([line]).values
        text = self._held + line
        space = sum(1 for _ in takewhile(SPACES.__contains__, reversed(text)))
        cut = len(text) - space
        first = int(not self._begun and cut == 0)  # the space that subwords put before a text
        cut += max(0, (space + first - 1) // LONGEST_SPACE * LONGEST_SPACE - first)  # cut apart whatever comes
        self._held = text[cut:]
        return self._cut(text[:cut])

    def rest(self) -> np.ndarray:
        """[n] the tokens of what has waited, when the text is at its end."""
        text, self._held = self._held, ""
        return self._cut(text)

    def _cut(self, text: str) -> np.ndarray:
        if not text:
            return np.empty(0, np.int32)
        if not self._begun:
            self._begun = True
            return self._tokenizer.encode_inner([text]).values
        # Subwords put a space before a text, and this is no beginning: a word stands before it and is left out again.
        both = self._tokenizer.encode_inner([BEFORE + text, BEFORE])
        return both.row(0)[len(both.row(1)) :]
