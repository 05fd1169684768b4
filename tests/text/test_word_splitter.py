"""Raw text is split as the training words are: learned from these words alone."""

import lzma
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.data.synthetic.registry import named
from seqloom.errors import DataError
from seqloom.text.word_splitter import LONGEST_CHUNK, SplitterFit, WordSplitter

TREEBANK = """\
Yesterday John Smith , of Acme Corp. , visited Paris .
Mr. Jones of Bank Inc. did n't go to London , he said .
Ann 's brother is n't here ; " we 'll wait " , said J. Lee .
The U.S. office ( in Rome ) was n't open in 1990 .
They do n't pay $ 5 or 10 % of 1,000 - year - old debts .
It costs 3.50 , Bo said ... well , maybe .
The well - known long - term plan : wait .
Cleo 's plan ? It 's fine !
"""
TWEETS = """\
@user I love #mondays so much!!! http://t.co/abc
@anna @bo #happy days, really? :)
don't miss it: #sale (today!)
"""


@cache
def splitter(text: str) -> WordSplitter:
    fitting = SplitterFit()
    for line in text.splitlines():
        fitting.add(line.split())
    return fitting.splitter()


def split(learned: WordSplitter, text: str) -> list[str]:
    return [text[start:stop] for start, stop in learned.spans(text)]


def test_a_clitic_with_one_host_is_split_if_it_is_frequent_and_never_attached() -> None:
    often = "I 'm sure we did n't know .\n" * 3
    assert split(splitter(often), "I'm here, it didn't.") == ["I", "'m", "here", ",", "it", "did", "n't", "."]
    assert split(splitter("I did n't know .\n"), "it didn't.") == ["it", "didn't", "."]  # once may be a typing error
    assert split(splitter(often + "we wo n't , they can't .\n"), "they can't") == ["they", "can't"]


@pytest.mark.parametrize(
    "words",
    [
        "Yesterday Mary Stone , of Acme Corp. , visited Oslo .",
        "Dora was n't there .",
        "Emil 's sister ( in Bonn ) left .",
        "We visited the U.S. , and saw K. Stone .",
        'He said " wait " .',
        "See http://example.com/a?b=c , or ask me@example.com .",
        "It costs $ 7 !",
        "A 2,500 euro , 4.75 % loan .",
    ],
)
def test_new_sentences_are_split_as_a_treebank_is(words: str) -> None:
    raw = re.sub(r" (?=[.,!)%])|(?<=[($]) | (?=n't|'s)", "", words)
    raw = raw.replace('" wait "', '"wait"')
    assert raw != words
    assert split(splitter(TREEBANK), raw) == split(splitter(TREEBANK), words) == words.split()


@pytest.mark.parametrize("text", ["@carl #new words, didn't stop!!!", "(so) http://t.co/x, ok :) U.S."])
def test_data_that_is_split_at_spaces_only_stays_so(text: str) -> None:
    assert split(splitter(TWEETS), text) == text.split()


def test_hyphens_follow_the_training_data() -> None:
    apart = splitter("a well - known plan\nthe long - term plan\none ice - cold day")
    whole = splitter("a well-known plan\nthe long-term plan\nParis - Nice")
    assert split(apart, "old-fashioned") == ["old", "-", "fashioned"]
    assert split(whole, "old-fashioned") == ["old-fashioned"]


def test_a_training_word_stays_whole_unless_the_data_splits_it_more_often() -> None:
    learned = splitter("see No. 7\nI said no . no . No .\nhe said no .\nMr. X left .\nthe etc. etc . etc . end")
    assert split(learned, "Mr. No. no. etc.") == ["Mr.", "No.", "no", ".", "etc", "."]


def test_different_marks_are_one_word_only_if_they_often_are() -> None:
    posts = "I saw it .\n" * 3 + "well ., it rains :) , they said .\n" * 2 + "no , yes ... wow !!! :(\n"
    learned = splitter(posts + "ok :(\nso :(\n")
    assert split(learned, "wait., :) fine:( so:), it...") == [
        "wait",
        ".",
        ",",
        ":)",
        "fine",
        ":(",
        "so",
        ":",
        ")",
        ",",
        "it",
        "...",
    ]
    assert split(learned, "well ., it") == ["well", ".,", "it"]  # a training word by itself


@pytest.mark.parametrize(
    ("abbreviations", "words"), [("at 5 p.m. in the U.K. , yes .", ["Corp.", ","]), ("", ["Corp", ".", ","])]
)
def test_a_dot_before_a_comma_belongs_to_its_word_if_training_words_end_in_dots(
    abbreviations: str, words: list[str]
) -> None:
    learned = splitter("He left , and she saw it .\n" * 3 + abbreviations)
    assert split(learned, 'Of Acme Corp., it\'s "Corp.," here. 3., no') == [
        *("Of", "Acme", *words, "it's", '"', *words, '"', "here", "."),
        *(("3.", ",") if abbreviations else ("3", ".", ",")),
        "no",
    ]
    separate = splitter("He left , and she saw it .\n" * 3 + abbreviations + "\nof Corp . , it\n" * 3)
    assert split(separate, "Inc., it") == ["Inc", ".", ",", "it"]


@pytest.mark.parametrize("words", ["Acme Corp. 's plan ?", "The U.S. 's chief , Beta Ltd. 's Bo .", "Ann 's brother ."])
def test_a_dot_before_a_clitic_belongs_to_its_word(words: str) -> None:
    raw = words.replace(" '", "'").replace(" ?", "?").replace(" ,", ",").removesuffix(" .") + "." * words.endswith(" .")
    assert split(splitter(TREEBANK), raw) == words.split()


def test_french_clitics_before_a_word_are_split() -> None:
    learned = splitter("l' homme et l' enfant d' Anne d' Eve\nl' eau aujourd'hui")
    assert split(learned, "l'arbre d'Yves aujourd'hui") == ["l'", "arbre", "d'", "Yves", "aujourd'hui"]


@given(st.text(alphabet="ab1.,-'!()#@/:\" \n\té’…€", max_size=60))
def test_words_cover_all_characters_but_spaces_in_order(text: str) -> None:
    learned, at = splitter(TREEBANK), 0
    for start, stop in learned.spans(text):
        assert at <= start < stop and not text[at:start].strip()
        at = stop
    assert not text[at:].strip()


def test_a_text_of_ten_thousand_marks_is_split_without_delay() -> None:
    learned = splitter(TREEBANK)
    assert split(learned, "." * 10_000) == ["." * 10_000]
    assert len(split(learned, "a," * (LONGEST_CHUNK // 2))) == LONGEST_CHUNK
    endless = "a," * 100_000  # not split: the time would grow with its square
    assert split(learned, endless) == [endless]


def test_json_gives_back_the_same_splitter_and_no_other_file_is_read() -> None:
    learned = splitter(TREEBANK)
    assert WordSplitter.from_json(learned.to_json()) == learned
    assert b"n't" in learned.to_json()
    for data in (b"{", b"[]", b'{"begin": {}}'):
        with pytest.raises(DataError, match="expected rules for splitting words"):
            WordSplitter.from_json(data)


def repeated(learned: WordSplitter, sentences: Iterable[list[str]]) -> float:
    """The share of sentences that stay as they are."""
    same = [split(learned, " ".join(words)) == words for words in sentences]
    return sum(same) / len(same)


def fitted(sentences: Iterable[list[str]]) -> WordSplitter:
    fitting = SplitterFit()
    for words in sentences:
        fitting.add(words)
    return fitting.splitter()


def test_sentences_of_movies_stay_as_they_are() -> None:
    sentences = [one.input.words() for one in islice(named("movies").examples("train", 0), 500)]
    assert repeated(fitted(sentences), sentences) == 1.0


needs_data = pytest.mark.skipif("SEQLOOM_DATA" not in os.environ, reason="SEQLOOM_DATA names no folder of sets")


def treebank(name: str) -> Iterator[tuple[str, list[str]]]:
    """The raw text and the words of each sentence of a CoNLL-U file."""
    path = Path(os.environ["SEQLOOM_DATA"]) / "ud_english_ewt" / f"{name}.conllu.xz"
    for sentence in lzma.decompress(path.read_bytes()).decode().split("\n\n"):
        lines = sentence.split("\n")
        text = next((line[9:] for line in lines if line.startswith("# text = ")), "")
        rows = [line.split("\t") for line in lines if line and line[0] != "#"]
        if words := [row[1] for row in rows if row[0].isdigit()]:
            yield text, words


@needs_data
@pytest.mark.slow
def test_new_sentences_of_a_treebank_are_split_as_its_annotators_did() -> None:
    train = [words for _, words in treebank("en_ewt-ud-train")]
    learned = fitted(train)
    found = expected = correct = 0
    for text, words in treebank("en_ewt-ud-dev"):
        at, true = 0, set()
        for word in words:
            at = text.index(word, at) + len(word)
            true.add((at - len(word), at))
        said = set(learned.spans(text))
        found, expected, correct = found + len(said), expected + len(true), correct + len(said & true)
    assert 2 * correct / (found + expected) > 0.985  # 0.791 if split at spaces
    assert repeated(learned, train) > 0.99


@needs_data
@pytest.mark.slow
def test_sentences_of_tweets_and_of_spoken_questions_stay_as_they_are() -> None:
    folder = Path(os.environ["SEQLOOM_DATA"])
    tweets = (folder / "wnut17/train.conll").read_text("utf-8").split("\n\n")
    tweets_words = [[line.split("\t")[0] for line in one.split("\n") if line.strip()] for one in tweets]
    questions = lzma.decompress((folder / "atis/train.tsv.xz").read_bytes()).decode().splitlines()
    for sentences in (list(filter(None, tweets_words)), [line.split("\t")[1].split() for line in questions]):
        assert repeated(fitted(sentences), sentences) > 0.99
