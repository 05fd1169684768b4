"""Claims about words: what people take for the same word is one, however it was written down."""

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.search.bm25 import LONGEST, UNSPACED, WORD, _spaced, runs_of, singular, words_of
from seqloom.search.similarity import features

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
ODD = "aS_ é\u0301\u0323\u0345ẛİßΣℌﬁ²１हि्猫がか\u3099\u309aカ한\u1100\u1161\u00ad\u200b\u200c\ufe0f\u20e3😀.\n"
ODD += "ไ\u0e33\u0e35๒ກ\u0eb1က\u1031\u1039ខ\u17d2ꩢ𠮷々"
TEXTS = st.text(ODD, max_size=20)


@settings(max_examples=30)
@given(TEXTS)
def test_a_text_has_the_same_words_in_every_form(text: str) -> None:
    assert len({tuple(words_of(unicodedata.normalize(form, text))) for form in FORMS}) == 1
    if words_of(text):
        assert len({frozenset(features(unicodedata.normalize(form, text))) for form in FORMS}) == 1


@given(st.text(st.characters(max_codepoint=127), max_size=400))
def test_ascii_text_has_the_words_that_the_map_of_characters_gives(text: str) -> None:
    assert words_of(text) == [singular(word) for word in WORD.findall(_spaced(text))]


@given(TEXTS)
def test_every_letter_and_digit_is_in_a_word_once(text: str) -> None:
    small = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    letters = [one for one in small if one.isalnum()]
    assert [one for run in runs_of(text) for one in run if one.isalnum()] == letters


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Cafe\u0301!", ["café"]),
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs belong to their letters
        ("ﬁne １２３ ℌ", ["fine", "123", "h"]),
        ("می\u200cخواهم", ["میخواهم"]),  # a joiner is no letter and no end
        ("co\u00adoperate", ["cooperate"]),
        ("ab\u200bcd", ["ab", "cd"]),
        ("\u2764\ufe0f 1\ufe0f\u20e3 \u0301", ["1"]),  # signs are no words, nor are marks without a letter
        ("か\u3099猫か\u309a", ["が", "猫", "か\u309a"]),
    ],
)
def test_marks_belong_to_words_and_what_is_not_seen_does_not(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ภาษาไทยดี ๒๕๖๗", ["ภ", "า", "ษ", "า", "ไ", "ท", "ย", "ดี", "๒๕๖๗"]),  # numbers stay whole
        ("ພາສາລາວ", ["ພ", "າ", "ສ", "າ", "ລ", "າ", "ວ"]),
        ("ភាសាខ្មែរ", ["ភា", "សា", "ខ្", "មែ", "រ"]),
        ("မြန်မာ", ["မြ", "န်", "မာ"]),
        ("𠮷𠮟家の人々", ["𠮷", "𠮟", "家", "の", "人", "々"]),
        ("ໄa\u0e35ກ", ["ໄ", "a\u0e35", "ກ"]),  # a mark of theirs on a letter of others
        ("\u0e35 \u309a", []),
    ],
)
def test_each_letter_of_a_script_without_spaces_is_a_word_with_its_marks(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_scripts_without_spaces_are_recognized_by_their_letters() -> None:
    found = re.findall(f"[{UNSPACED}]", "".join(map(chr, range(0x40000))))
    kinds = {unicodedata.category(one) for one in found}
    assert kinds <= {"Lo", "Lm", "Nl", "Cn"}  # what is not assigned is no letter, so no text keeps it


@given(TEXTS)
def test_a_part_of_a_text_without_spaces_is_found_by_its_words(text: str) -> None:
    whole = words_of(f"ภาษา{text}ไทย猫")
    assert whole[:3] == ["ภ", "า", "ษ"] and whole[-4:] == ["ไ", "ท", "ย", "猫"]


@given(st.text("a猫ไ\u0e35\u0301\u0323", max_size=4).map(lambda text: "".join(one * 300 for one in text)))
def test_no_word_is_longer_than_a_database_keeps(text: str) -> None:
    assert all(len(word) <= LONGEST for word in (*words_of(text), *runs_of(text)))


def test_a_word_that_is_too_long_is_cut_and_nothing_of_it_is_lost() -> None:
    text = "acgt" * 2_000 + "猫" + "k" * 600
    for words in (words_of(text), runs_of(text)):
        assert max(map(len, words)) == LONGEST and "".join(words) == text
    assert len(features("acgt" * 200 + "tttt")) > len(features("acgt" * 200))
