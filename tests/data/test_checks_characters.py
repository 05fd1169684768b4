"""Characters that nobody sees, and those that only look like it."""

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks_common import check_parts
from seqloom.data.checks import texts as module
from seqloom.data.kinds.text import TextPair
from seqloom.data.problems import Ledger, Place
from seqloom.data.schema import Example, Schema
from seqloom.data.survey import Checks


def checked(*texts: str) -> Ledger:
    ledger = Ledger()
    rows = [Example(text, None, "", Place("x.txt", row + 1)) for row, text in enumerate(texts)]
    check_parts({"train": rows}, Schema("text", "nothing"), ledger)
    return ledger


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("uni.bidi_control", "safe \u202etxt.exe"),
        ("uni.bidi_control", "a\u2066b\u2069"),
        ("uni.invisible", "a\u200bb"),
        ("uni.invisible", "soft\u00adhyphen"),
        ("uni.invisible", "\ufeffstart"),
        ("uni.invisible", "a\u200d\u200db"),
        ("uni.invisible", "a\U000e0041\U000e0042"),
        ("uni.odd", "\ufdd0"),
        ("uni.odd", "a\U0001fffeb"),
        ("uni.odd", "private \ue000"),
        ("uni.odd", "\U0010fffd"),
    ],
)
def test_a_character_is_told_with_its_row_and_its_number(code: str, text: str) -> None:
    ledger = checked("plain", "Grüße", text, "ünd")
    assert ledger.counts == {code: 1}
    (problem,) = ledger.samples[code]
    assert problem.place == Place("x.txt", 3)
    assert problem.text.startswith("U+")


@pytest.mark.parametrize(
    "text",
    [
        "family 👨‍👩‍👧‍👦, flags 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 🇩🇪, heart ❤️",
        "می‌خواهم",
        "क्‍ष",
        "שלום עולם",
        "\u00a0non-breaking\u3000wide",
        "tab\tand bell\a",
        "e" + "\u0301" * 50,
    ],
)
def test_what_scripts_and_emoji_need_is_left_in_peace(text: str) -> None:
    assert checked(text).counts == {}


def test_rows_are_counted_not_characters() -> None:
    ledger = checked("a" + "\u200b" * 1000, "b\u200b\u202e", "c")
    assert ledger.counts == {"uni.bidi_control": 1, "uni.invisible": 2}


def test_at_most_five_samples_are_kept_and_all_rows_counted() -> None:
    ledger = checked(*["x\u200by"] * 9000)
    assert ledger.counts == {"uni.invisible": 9000}
    assert [problem.place.line for problem in ledger.samples["uni.invisible"]] == [1, 2, 3, 4, 5]


def test_both_texts_of_a_pair_and_the_target_text_are_looked_at() -> None:
    ledger = Ledger()
    pairs = [
        Example(TextPair("a", "b\u202e"), "c", "", Place("x", 1)),
        Example(TextPair("a\u202e", "b"), "c", "", Place("x", 2)),
    ]
    check_parts({"train": pairs}, Schema("pair", "nothing"), ledger)
    check_parts({"train": [Example("a", "b\u202e", "", Place("y", 1))]}, Schema("text", "text"), ledger)
    assert ledger.counts == {"uni.bidi_control": 3}


def is_bidi_control(letter: str) -> bool:
    return unicodedata.bidirectional(letter) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=6))
def test_bidi_controls_are_those_of_unicode(texts: list[str]) -> None:
    assert checked(*texts).counts["uni.bidi_control"] == sum(any(map(is_bidi_control, text)) for text in texts)


@pytest.mark.slow
def test_every_bidi_control_is_found() -> None:
    controls = [chr(code) for code in range(0x110000) if is_bidi_control(chr(code))]
    assert checked(*controls).counts == {"uni.bidi_control": len(controls)}


@given(st.lists(st.text("aä\u200b\u200d\n", max_size=5), min_size=1, max_size=8), st.integers(1, 8))
def test_findings_do_not_depend_on_how_texts_are_cut_into_slices(texts: list[str], size: int) -> None:
    whole, sliced = checked(*texts), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SLICE", size)
        sliced = checked(*texts)
    assert (whole.counts, whole.samples) == (sliced.counts, sliced.samples)


def test_a_lone_surrogate_does_not_stop_the_check() -> None:
    assert checked("a\ud800\u200b").counts == {"uni.invisible": 1}


@pytest.mark.slow
def test_all_cheap_checks_of_200_000_short_rows_take_less_than_a_second() -> None:
    words = ["red", "green", "blue", "grün", "bleu", "rot"]
    rows = [
        Example(
            " ".join(words[(row * step) % 6] for step in range(1, 13)) + str(row),
            "ab"[row % 2],
            str(row),
            Place("x", row),
        )
        for row in range(200_000)
    ]
    start = time.process_time()
    checks = Checks(Schema("text", "label"))
    for at in range(0, len(rows), 4096):
        checks.update("train", rows[at : at + 4096])
    checks.finish(Ledger())
    assert time.process_time() - start < 1.0  # 0.3 s where this was written
