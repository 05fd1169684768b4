"""Tokenize one text that arrives line by line, with the same tokens as for the complete text.

With characters, bytes, words and word pieces, tokens never depend on text after a line break, so a line is tokenized as
soon as it arrives. The tokenizers bpe and unigram put white space before the word that follows it. With these, white
space at the end of a line is kept until the next line arrives.
"""

from itertools import takewhile

import numpy as np

from seqloom.text.subwords import SubwordSegmenter
from seqloom.text.tokenizer import Tokenizer

LONGEST_SPACE = 64  # white space characters in one piece of text; see PATTERN in subwords.py
SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))))
BEFORE = "x"  # a separate word if white space follows


class TextFlow:
    """Tokenizes the lines of one text, one after another.

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
        self._pending = ""  # white space that belongs to the text after it
        self._begun = False

    def tokens(self, line: str) -> np.ndarray:
        """[n] the tokens that are certain after this line, which includes its line break."""
        if not self._waits:
            return self._tokenizer.encode_inner([line]).values
        text = self._pending + line
        space = sum(1 for _ in takewhile(SPACES.__contains__, reversed(text)))
        cut = len(text) - space
        first = int(not self._begun and cut == 0)  # the tokenizer adds a space before a text
        cut += max(
            0, (space + first - 1) // LONGEST_SPACE * LONGEST_SPACE - first
        )  # full pieces do not depend on later text
        self._pending = text[cut:]
        return self._cut(text[:cut])

    def rest(self) -> np.ndarray:
        """[n] the tokens of the pending white space, at the end of the text."""
        text, self._pending = self._pending, ""
        return self._cut(text)

    def _cut(self, text: str) -> np.ndarray:
        if not text:
            return np.empty(0, np.int32)
        if not self._begun:
            self._begun = True
            return self._tokenizer.encode_inner([text]).values
        # The tokenizer adds a space before a text, but this is not the start of the text. So tokenize it after a word,
        # and remove the tokens of that word.
        both = self._tokenizer.encode_inner([BEFORE + text, BEFORE])
        return both.row(0)[len(both.row(1)) :]
