"""From words and marks back to text that people read: "Hello , world !" becomes "Hello, world!".

How words were spaced is not kept by a vocabulary of words, so it is put back by rule. A rule looks at a mark and its
neighbours, never at the language:

    closes    . , ! ? ; : ) ] } % … » ” ’        no space before it
    opens     ( [ { ¿ ¡ « „ ‚ ‘ $ £ € #          no space after it
    joins     - / ' ’ @ between two words        no space on either side: well-known, don't
    pairs     " and “, which opens where nothing is open and closes what is; ' at the border of words
    numbers   . , : between digits as they stand in 3.14, 1,000 and 10:30

Cut again by the same pattern, the text gives the same words: that is the law. What cannot be known is guessed: a dash
that stood alone becomes a hyphen, the owner's apostrophe of "dogs' bones" joins.
"""

from collections.abc import Sequence

CLOSING = frozenset(".,!?;:)]}%…»”°、。，！？；：）」』")
OPENING = frozenset("([{¿¡«„‚‘$£€#（「『")
JOINING = frozenset("-/'’@")
PAIRED = {'"': '"', "“": "„", "'": "'"}  # a mark that closes if the other one is open, and opens else
DIGITS_AFTER = {".": range(1, 9), ",": range(3, 4), ":": range(2, 3)}  # how many a number goes on with


def detokenised(words: Sequence[str]) -> str:
    """The text of words and marks, as `word_pattern` cuts them.

    >>> detokenised(["He", "said", ":", '"', "It", "'", "s", "3", ".", "50", "(", "well", "-", "known", ")", ".", '"'])
    'He said: "It\\'s 3.50 (well-known)."'
    """
    text, opened, glued = [], set[str](), True  # glued: no space before the next word
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        after = words[number + 1] if number + 1 < len(words) else ""
        left, right = _joins(before, word, after, opened)
        text.append(word if glued or left else f" {word}")
        glued = right and _begins_plainly(after)
    return "".join(text)


def _joins(before: str, mark: str, after: str, opened: set[str]) -> tuple[bool, bool]:
    """Whether a word or mark stands without a space before it, and after it; what is open is kept up to date."""
    if mark in JOINING and _is_word(before) and _is_word(after):
        return True, True
    if mark in PAIRED:
        closes = PAIRED[mark] in opened or (mark == "'" and _is_word(before))
        opened.discard(PAIRED[mark]) if closes else opened.add(mark)
        return closes, not closes
    if mark == "„":
        opened.add(mark)
    return mark in CLOSING, mark in OPENING or _in_number(before, mark, after)


def _is_word(text: str) -> bool:
    return text[-1:].isalnum() and text[:1].isalnum()


def _in_number(before: str, mark: str, after: str) -> bool:
    return before[-1:].isdigit() and after.isdigit() and len(after) in DIGITS_AFTER.get(mark, ())


def _begins_plainly(word: str) -> bool:
    """Whether a word can follow a mark without a space and still be cut from it: an accent would belong to the mark."""
    return word[:1].isalnum() or word.isascii()
