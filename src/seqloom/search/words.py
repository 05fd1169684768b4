"""The words of a text: as the keyword index knows them, and as they are compared letter by letter.

A word is a run of letters, digits and the marks on them, in the form NFKC and in small letters: "é" is one letter or a
letter and a mark, and both are the same word; the vowel signs of Hindi belong to theirs. What is written and not seen,
as a soft hyphen or the joiners of Persian, is left out. A run that is too long, as an address or a gene, is cut into
pieces.

The keyword index takes every character of a script without spaces for a word, and plurals back. The endings are those
of Harman's S stemmer (1991), which takes nothing else, so it does no harm to names and numbers.
"""

import re
import unicodedata

LONGEST = 256  # letters; databases keep no long ones, and nobody asks for them
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana and Chinese characters
# both of a spaced text, in which all that is no letter, no digit and no space is a mark
RUN = re.compile(rf"\w[^ ]{{0,{LONGEST - 1}}}")
WORD = re.compile(rf"[{UNSPACED}][^\w ]*|[^\W{UNSPACED}][^ {UNSPACED}]{{0,{LONGEST - 1}}}")
SHORTEST = 4  # letters that a word has if its last one may be an ending
ZERO_WIDTH_SPACE = 0x200B  # unseen, and yet it ends a word


class Spaced(dict[int, str]):
    """What stands for a character where only words are left: itself, nothing, or a space between words."""

    def __missing__(self, number: int) -> str:
        sign = chr(number)
        kind = unicodedata.category(sign)
        unseen = kind == "Cf" or unicodedata.name(sign, "").startswith("VARIATION SELECTOR")
        word = sign == "_" or sign.isalnum() or kind in ("Mn", "Mc")
        self[number] = "" if unseen and number != ZERO_WIDTH_SPACE else sign if word else " "
        return self[number]


SPACED = Spaced()  # filled as characters come


def runs_of(text: str) -> list[str]:
    """The runs of letters and digits of a text in order, in one form and in small letters.

    >>> runs_of("Cafe\u0301s: हिन्दी 猫は co\u00adop")
    ['cafés', 'हिन्दी', '猫は', 'coop']
    """
    return RUN.findall(_spaced(text))


def _spaced(text: str) -> str:
    """The text in one form, with nothing but words and spaces left; twice, for small letters may be of another form."""
    small = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", small).translate(SPACED)


def words_of(text: str) -> list[str]:
    """The words of a text in order, as the keyword index knows them.

    >>> words_of("Two Studies of mice: 猫は cells' DNA")
    ['two', 'study', 'of', 'mice', '猫', 'は', 'cell', 'dna']
    """
    return [singular(word) for word in WORD.findall(_spaced(text))]


def singular(word: str) -> str:
    """The word without the ending of a plural.

    >>> [singular(word) for word in ("ponies", "houses", "cats", "glass", "virus", "gas", "fees")]
    ['pony', 'house', 'cat', 'glass', 'virus', 'gas', 'fee']
    """
    if len(word) < SHORTEST or not word.endswith("s") or word.endswith(("us", "ss")):
        return word
    if word.endswith("ies") and not word.endswith(("eies", "aies")):
        return f"{word[:-3]}y"
    return word[:-1]
