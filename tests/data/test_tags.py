"""Tags: spans survive every scheme, and a file that breaks its own scheme is refused with its first places."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data.problems import Ledger, Place
from seqloom.data.tags import READ_AS, Scheme, Span, TagChecker, convert, fault, spans, tags_of
from seqloom.errors import DataError, RejectedError

SPAN_SCHEMES: tuple[Scheme, ...] = ("bio", "iob1", "bioes", "bilou")
LABELS = st.sampled_from(["PER", "LOC", "fromloc.city_name", "B-ORG", "-", "O"])


@st.composite
def marked_sentences(draw: st.DrawFn) -> tuple[list[Span], int]:
    found, at = [], 0
    for gap, length, label in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), LABELS), max_size=8)):
        found.append(Span(at + gap, at + gap + length, label))
        at += gap + length
    return found, at + draw(st.integers(0, 3))


def check(sentences: list[list[str]], expected: Scheme | None = None, ledger: Ledger | None = None) -> Scheme:
    checker, line = TagChecker(), 1
    for tags in sentences:
        checker.feed(tags, Place("a.conll", line))
        line += len(tags) + 1
    return checker.finish(ledger or Ledger(), Place("a.conll"), expected)


def refused(sentences: list[list[str]], expected: Scheme | None = None) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        check(sentences, expected)
    return caught.value


@pytest.mark.parametrize("scheme", SPAN_SCHEMES)
@given(marked_sentences())
def test_spans_survive_being_written_as_tags(scheme: Scheme, marked: tuple[list[Span], int]) -> None:
    found, length = marked
    tags = tags_of(found, length, scheme)
    assert len(tags) == length
    assert spans(tags) == found


@pytest.mark.parametrize("source", SPAN_SCHEMES)
@pytest.mark.parametrize("target", SPAN_SCHEMES)
@given(marked_sentences())
def test_converting_keeps_the_spans(source: Scheme, target: Scheme, marked: tuple[list[Span], int]) -> None:
    tags = tags_of(*marked, source)
    assert convert(tags, target) == tags_of(*marked, target)


@pytest.mark.parametrize("scheme", SPAN_SCHEMES)
@given(st.lists(marked_sentences(), min_size=1, max_size=5))
def test_what_we_write_is_lawful_and_read_back_with_the_same_spans(
    scheme: Scheme, sentences: list[tuple[list[Span], int]]
) -> None:
    written = [list(tags_of(*marked, scheme)) for marked in sentences]
    found = check(written)
    read = [spans(convert(tags, READ_AS[found])) for tags in written]
    assert read == [marked for marked, _ in sentences]
    assert all(
        fault(pair, scheme) is None for tags in written for pair in zip([None, *tags], [*tags, None], strict=True)
    )


@given(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "E-A", "S-A", "E-B", "S-B"]), max_size=6))
def test_a_sentence_is_lawful_exactly_when_its_spans_are_written_like_that(tags: list[str]) -> None:
    """The rule on neighbors against the codec: two independent definitions of the same language."""
    for scheme in ("bio", "bioes"):
        if scheme == "bio" and any(tag[0] in "ES" for tag in tags):
            continue
        by_neighbors = all(fault(pair, scheme) is None for pair in zip([None, *tags], [*tags, None], strict=True))
        assert by_neighbors == (convert(tags, scheme) == tuple(tags))


@given(st.lists(st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B", "E-A", "S-A", "E-B", "L-A", "U-B"]), max_size=12))
def test_unlawful_tags_still_mean_spans_that_lie_in_order(tags: list[str]) -> None:
    found = spans(tags)
    assert all(0 <= span.start < span.stop <= len(tags) for span in found)
    assert all(one.stop <= other.start for one, other in pairwise(found))
    covered = {index for span in found for index in range(span.start, span.stop)}
    assert covered == {index for index, tag in enumerate(tags) if tag != "O"}


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["S-A", "I-A"], [(0, 1), (1, 2)]),
        (["B-A", "E-A", "E-A"], [(0, 2), (2, 3)]),
        (["O", "I-A", "I-A", "I-B"], [(1, 3), (3, 4)]),
        (["B-A", "S-A", "L-A"], [(0, 1), (1, 2), (2, 3)]),
    ],
)
def test_what_cannot_go_on_begins_anew(tags: list[str], expected: list[tuple[int, int]]) -> None:
    assert [span[:2] for span in spans(tags)] == expected


@pytest.mark.parametrize(
    ("scheme", "sentences"),
    [
        ("bio", [["B-PER", "I-PER", "O"], ["B-PER", "B-LOC"]]),
        ("bio", [["O", "O"]]),
        ("bio", [["B-fromloc.city_name", "O", "B-toloc.city_name", "I-toloc.city_name"]]),
        ("bio", [["B-NP", "B-VP", "I-VP"]]),  # chunks: not one O
        ("iob1", [["I-PER", "I-PER", "O"], ["I-PER", "B-PER"]]),
        ("bioes", [["B-PER", "I-PER", "E-PER", "S-LOC"]]),
        ("bilou", [["B-PER", "I-PER", "L-PER", "U-LOC"]]),
        ("plain", [["PRON", "VERB", "X"], ["X", "X"]]),
        ("plain", [["NN", "I", "B", "X", "S", "E"]]),
        ("plain", [["B", "I", "X", "I"]]),
        ("plain", [["-LRB-", "NNP", "HYPH", "S-adj"]]),
    ],
)
def test_the_scheme_of_a_file_is_found(scheme: Scheme, sentences: list[list[str]]) -> None:
    assert check(sentences) == scheme


@pytest.mark.parametrize(
    ("code", "sentences", "line", "word"),
    [
        ("tags.orphan_I", [["B-PER", "O"], ["O", "I-PER"]], 4, 2),  # T03
        ("tags.type_change", [["B-PER", "I-LOC"]], 1, 2),  # T04
        ("tags.prefix", [["O", "B_PER"]], 1, 2),  # T05
        ("tags.prefix", [["O", "b-per", "i-per"]], 1, 2),
        ("tags.prefix", [["O", "X-PER", "B-PER"]], 1, 2),
        ("tags.prefix", [["B-PER", "0", "O"]], 1, 2),
        ("tags.scheme", [["S-PER", "O"], ["B-PER", "I-PER", "O"]], 4, 3),  # T06
        ("tags.scheme", [["B-PER", "I-PER"], ["B-PER", "E-PER"]], 1, 2),
        ("tags.scheme", [["B-PER", "E-PER"], ["U-PER"]], 4, 1),
        ("tags.no_type", [["B-", "O"]], 1, 1),  # T07
        ("tags.no_type", [["B", "I", "O"]], 1, 1),
        ("tags.no_type", [["B-PER", "I", "O"]], 1, 2),
        ("tags.orphan_E", [["O", "E-PER"]], 1, 2),  # T16
        ("tags.orphan_E", [["B-PER", "E-PER"], ["E-PER"]], 4, 1),
    ],
)
def test_a_file_that_breaks_its_scheme_is_refused_at_the_first_place(
    code: str, sentences: list[list[str]], line: int, word: int
) -> None:
    error = refused(sentences)
    assert error.codes == (code,)
    assert str(error).startswith(f"a.conll:{line}: {code}: word {word}: ")
    assert "Fix: " in str(error)


def test_the_first_five_places_and_the_total_are_named() -> None:
    error = refused([["B-PER", "O"], *[["O", "I-PER"]] * 7, ["O", "I-LOC"]])
    assert "8 such words in total, the next in the sentences at lines 7, 10, 13, 16" in str(error)


def test_both_sides_of_a_mixture_are_named() -> None:
    assert "'S-PER' at a.conll:1" in str(refused([["S-PER"], ["B-PER", "O"]]))


def test_converting_a_whole_file_of_iob1_is_noted() -> None:
    ledger = Ledger()
    assert check([["I-PER", "O"]], ledger=ledger) == "iob1"
    assert "converted" in ledger.samples["tags.converted"][0].text


def test_a_file_in_another_scheme_than_the_training_data_is_refused() -> None:
    assert refused([["B-PER", "O"]], expected="bioes").codes == ("tags.scheme",)
    assert refused([["B-PER", "O"]], expected="plain").codes == ("tags.scheme",)
    assert check([["I-PER", "O"]], expected="bio") == "iob1"
    assert check([["O"]], expected="bioes") == "bioes"


@given(st.lists(st.lists(st.text(max_size=4) | st.sampled_from(["O", "B-A", "I-A", "E-A", "B", "b-a"]), max_size=5)))
def test_any_texts_have_a_scheme_or_are_refused_with_a_place(sentences: list[list[str]]) -> None:
    try:
        scheme = check(sentences)
    except RejectedError as error:
        scheme, message = "plain", str(error)
    else:
        message = "a.conll: none"
    assert message.startswith("a.conll:")
    assert scheme == "plain" or all(convert(tags, scheme) == tuple(tags) for tags in sentences)


@pytest.mark.parametrize("wrong", [Span(0, 0, "A"), Span(2, 5, "A"), Span(1, 3, "A"), Span(3, 4, "")])
def test_spans_that_cannot_be_written_are_refused(wrong: Span) -> None:
    with pytest.raises(DataError, match="does not fit"):
        tags_of([Span(0, 2, "A"), wrong], 4, "bio")


def test_plain_tags_mark_no_spans() -> None:
    with pytest.raises(DataError, match="not a span tag"):
        spans(["NOUN"])
    with pytest.raises(DataError, match="have no spans"):
        tags_of([Span(0, 1, "A")], 1, "plain")
