"""The words of a text: as the keyword index knows them, and as they are compared letter by letter.

A word is a run of letters, digits and the marks on them, in the form NFKC and in small letters: "é" is one letter or a
letter and a mark, and both are the same word; the vowel signs of Hindi belong to theirs. What is written and not seen,
as a soft hyphen or the joiners of Persian, is left out. A run that is too long, as an address or a gene, is cut into
pieces.

The keyword index takes every letter of a script without spaces, with its marks, for a word: Chinese, Japanese, Thai,
Lao, Khmer, Burmese and the scripts of the Tai. It takes plurals back; the endings are those of Harman's S stemmer
(1991), which takes nothing else, so it does no harm to names and numbers.
"""

import re
import unicodedata

LONGEST = 256  # letters; databases keep no long ones, and nobody asks for them
# the letters, not the marks and digits, of scripts without spaces
UNSPACED = (
    "\u0e01-\u0e30\u0e32\u0e33\u0e40-\u0e46"  # Thai
    "\u0e81-\u0eb0\u0eb2\u0eb3\u0ebd-\u0ec6\u0edc-\u0edf"  # Lao
    "\u1000-\u102a\u103f\u1050-\u1055\u105a-\u105d\u1061\u1065\u1066\u106e-\u1070\u1075-\u1081\u108e"  # Burmese
    "\ua9e0-\ua9e4\ua9e6-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa76\uaa7a\uaa7e\uaa7f"  # and of its neighbours
    "\u1780-\u17b3\u17d7\u17dc"  # Khmer
    "\u1950-\u19c9\u1a20-\u1a54\u1aa7\uaa80-\uaaaf\uaab1\uaab5\uaab6\uaab9-\uaabd\uaac0\uaac2-\uaadd"  # Tai
    "\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\U0001aff0-\U0001b167"  # kana
    "\u3005-\u3007\u3105-\u312f\u31a0-\u31bf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
# both of a spaced text, in which all that is no letter, no digit and no space is a mark
RUN = re.compile(rf"\w[^ ]{{0,{LONGEST - 1}}}")
WORD = re.compile(rf"[{UNSPACED}][^\w ]{{0,{LONGEST - 1}}}|[^\W{UNSPACED}][^ {UNSPACED}]{{0,{LONGEST - 1}}}")
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

    >>> words_of("Two Studies of mice: 猫は cells' ดี DNA")
    ['two', 'study', 'of', 'mice', '猫', 'は', 'cell', 'ดี', 'dna']
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
