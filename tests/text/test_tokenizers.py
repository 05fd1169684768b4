"""Tokenizers of every kind: what goes in comes out, no text is special, and nothing crashes."""

from collections import Counter
from collections.abc import Iterator
from threading import Event
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.config.tokenizers import BpeConfig, CharactersConfig, UnigramConfig, WordsConfig
from seqloom.errors import DataError
from seqloom.text import segmenter
from seqloom.text.special_tokens import COUNT, NAMES, UNKNOWN
from seqloom.text.tokenizer import Tokenizer, TokenizerFit, fit
from seqloom.text.words import LONGEST
from text.samples import FORMS, KINDS, fitted, sentences

TEXTS = st.text(max_size=60)  # Hypothesis draws halves of surrogate pairs only when asked
LIKE_SPECIAL = (*NAMES, "[MASK]", "</s>", "<s>", "<unk>", "[UNK]", "<|endoftext|>", "unknown", "<0x0A>", "▁", "Ġ")

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@given(text=TEXTS)
def test_what_is_encoded_decodes_to_the_same_text(kind: str, text: str) -> None:
    tokenizer = fit(CharactersConfig(), [text]) if kind == "characters" else fitted(kind)
    decoded = tokenizer.decode(tokenizer.encode([text]).row(0))
    if kind == "words":  # without unknown words, and with other spaces
        rest = iter(text)
        assert all(letter in rest for letter in decoded.replace(" ", "")), "its characters, in their order"
    else:
        assert decoded == text


@every_kind
@given(texts=st.lists(TEXTS, max_size=5))
def test_every_text_is_encoded_by_itself(kind: str, texts: list[str]) -> None:
    rows = fitted(kind).encode(texts)
    assert rows.values.dtype == np.int32 and rows.rows == len(texts)
    for number, text in enumerate(texts):
        np.testing.assert_array_equal(rows.row(number), fitted(kind).encode_with_offsets(text).tokens)


@every_kind
def test_blocks_do_not_change_tokens(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [*sentences(40), "", "x" * 50]
    whole = fitted(kind).encode(texts)
    monkeypatch.setattr(segmenter, "BLOCK", 7)
    monkeypatch.setattr(segmenter, "BLOCK_CHARACTERS", 100)
    for block in segmenter.blocks(texts):
        assert len(block) <= 7 and (len(block) == 1 or sum(map(len, block)) <= 100)
    parts = fitted(kind).encode(texts)
    np.testing.assert_array_equal(whole.values, parts.values)
    np.testing.assert_array_equal(whole.starts, parts.starts)


@every_kind
def test_no_text_gives_no_tokens(kind: str) -> None:
    assert fitted(kind).encode([""]).lengths.tolist() == [0]
    assert fitted(kind).encode([]).rows == 0
    assert fitted(kind).encode_with_offsets("").spans.shape == (0, 2)
    assert fitted(kind).decode([]) == ""


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("form", FORMS)
def test_no_text_gives_a_special_token(kind: str, form: str) -> None:
    tokenizer = fitted(kind, form)
    for text in [*LIKE_SPECIAL, " ".join(LIKE_SPECIAL), "".join(LIKE_SPECIAL)]:
        found = {*tokenizer.encode([text]).values.tolist(), *tokenizer.encode_words([[text]])[0].values.tolist()}
        assert found & set(range(COUNT)) <= {UNKNOWN}
        assert kind in ("words", "characters") or UNKNOWN not in found


@every_kind
def test_special_names_are_learned_as_text_like_any_other(kind: str) -> None:
    tokenizer = fit(KINDS[kind](), [" ".join(LIKE_SPECIAL)] * 5)
    tokens = tokenizer.encode(LIKE_SPECIAL).values
    assert tokens.min() >= COUNT
    assert tokenizer.decode(tokenizer.encode(["<pad>"]).values).replace(" ", "") == "<pad>"


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_what_is_new_is_unknown(kind: str) -> None:
    tokenizer = fit(KINDS[kind](), ["a b"])
    assert tokenizer.encode(["ж a 北"]).row(0).tolist().count(UNKNOWN) == 2
    assert tokenizer.encode(["\x00\ufffe\U0010ffff"]).values.tolist() != []


@every_kind
@pytest.mark.parametrize("half", ["\ud800", "a\udfffb"])
def test_half_of_a_surrogate_pair_is_refused(kind: str, half: str) -> None:
    for call in (
        lambda: fitted(kind).encode(["ok", half]),
        lambda: fitted(kind).encode_with_offsets(half),
        lambda: fitted(kind).encode_words([["ok", half]]),
        lambda: fit(KINDS[kind](), ["ok", half]),
    ):
        with pytest.raises(DataError, match="half of a surrogate pair"):
            call()


@every_kind
def test_what_is_no_list_of_texts_is_refused(kind: str) -> None:
    for call in (
        lambda: fitted(kind).encode("text"),
        lambda: fitted(kind).encode([b"text"]),  # type: ignore[list-item]
        lambda: fitted(kind).encode(["ok", None]),  # type: ignore[list-item]
        lambda: fitted(kind).encode_words(["text"]),
        lambda: fit(KINDS[kind](), "text"),
        lambda: fit(KINDS[kind](), [1]),  # type: ignore[list-item]
    ):
        with pytest.raises(DataError):
            call()


@every_kind
def test_every_token_has_a_piece_and_no_other_number_has_one(kind: str) -> None:
    tokenizer = fitted(kind)
    pieces = [tokenizer.piece(token) for token in range(tokenizer.vocab_size)]
    assert tuple(pieces[:COUNT]) == NAMES
    assert all(isinstance(piece, str) and piece for piece in pieces)
    assert tokenizer.decode(range(COUNT)) == ""
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(DataError, match="is not a token id"):
            tokenizer.piece(wrong)
        with pytest.raises(DataError, match="is not a token id"):
            tokenizer.decode([wrong])


@pytest.mark.parametrize("kind", ["bytes", "bpe", "unigram"])
@given(tokens=st.lists(st.integers(0, COUNT + 255), max_size=20))
def test_any_tokens_decode(kind: str, tokens: list[int]) -> None:
    assert isinstance(fitted(kind).decode(tokens), str)


@pytest.mark.parametrize(
    ("config", "limit"), [(WordsConfig, 16), (CharactersConfig, 16), (BpeConfig, 300), (UnigramConfig, 300)]
)
@pytest.mark.parametrize("more", [0, 1, 50])
def test_the_limit_counts_the_special_tokens(config: type, limit: int, more: int) -> None:
    tokenizer = fit(config(vocab_size=limit + more), sentences())
    assert tokenizer.vocab_size <= limit + more
    assert tokenizer.vocab_size == limit + more or config is CharactersConfig


@given(texts=st.lists(st.text("ab !", max_size=12), max_size=8), least=st.integers(1, 4))
def test_words_are_the_most_frequent_ones_in_code_point_order(texts: list[str], least: int) -> None:
    tokenizer = fit(WordsConfig(vocab_size=16, min_count=least, word_split="space"), texts)
    counts = Counter(word for text in texts for word in text.split())
    expected = sorted((word for word in counts if counts[word] >= least), key=lambda word: (-counts[word], word))
    kept = [tokenizer.piece(token) for token in range(COUNT, tokenizer.vocab_size)]
    assert kept == expected[:10]
    assert tokenizer.dropped == len(counts) - len(kept)


@pytest.mark.slow
@given(texts=st.lists(st.text(max_size=12), max_size=8), least=st.integers(1, 3))
def test_characters_are_the_most_frequent_ones_in_code_point_order(texts: list[str], least: int) -> None:
    tokenizer = fit(CharactersConfig(vocab_size=16, min_count=least), texts)
    counts = Counter("".join(texts))
    expected = sorted((one for one in counts if counts[one] >= least), key=lambda one: (-counts[one], one))
    assert [tokenizer.piece(token) for token in range(COUNT, tokenizer.vocab_size)] == expected[:10]
    assert tokenizer.dropped == len(counts) - len(expected[:10])


def test_a_word_without_end_is_not_in_the_vocabulary() -> None:
    tokenizer = fit(WordsConfig(), ["x" * (LONGEST + 1), "y" * LONGEST])
    assert tokenizer.vocab_size == COUNT + 1 and tokenizer.dropped == 1
    assert tokenizer.encode(["x" * (LONGEST + 1)]).values.tolist() == [UNKNOWN]


@every_kind
def test_texts_may_come_from_a_generator_and_its_errors_come_through(kind: str) -> None:
    def broken():
        yield "a b c"
        raise KeyError("from the generator")

    tokenizer = fit(KINDS[kind](), (text for text in sentences(20)))
    assert tokenizer.encode(["ba"]).rows == 1
    with pytest.raises(KeyError, match="from the generator"):
        fit(KINDS[kind](), broken())


@every_kind
def test_fitting_on_nothing_knows_nothing_and_works(kind: str) -> None:
    tokenizer = fit(KINDS[kind](), [])
    assert tokenizer.vocab_size == (COUNT if kind in ("words", "characters") else COUNT + 256)
    assert tokenizer.encode(["ab"]).lengths[0] > 0


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_word_has_the_same_pieces_first_in_a_text_inside_it_and_alone(kind: str) -> None:
    tokenizer = fitted(kind)
    word = max(sentences()[0].split(" "), key=len)
    alone = tokenizer.encode([word]).row(0).tolist()
    twice = tokenizer.encode([f"{word} {word}"]).row(0).tolist()
    assert twice == alone * 2 == tokenizer.encode_words([[word, word]])[0].row(0).tolist()
    assert len(alone) < len(word)


@every_kind
def test_what_is_fitted_block_by_block_is_what_is_fitted_at_once(kind: str) -> None:
    config, texts = KINDS[kind](**({} if kind == "bytes" else {"vocab_size": 600})), sentences(40)
    with TokenizerFit(config) as fitting:
        for start in range(0, len(texts), 7):
            fitting.add(texts[start : start + 7])
        assert fitting.tokenizer().to_json() == fit(config, texts).to_json()


def test_texts_are_read_while_the_caller_finds_the_next_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    may_read, read = {"one": Event(), "two": Event()}, list[str]()

    def slow(config: WordsConfig, texts: Iterator[str]) -> Tokenizer:
        for text in texts:
            assert may_read[text].wait(20)
            read.append(text)
        return fit(config, read)

    monkeypatch.setattr("seqloom.text.tokenizer.fit", slow)
    with TokenizerFit(WordsConfig()) as fitting:
        fitting.add(["one"])  # returns although nothing can be read yet
        assert read == []
        may_read["one"].set()
        fitting.add(["two"])  # returns when the first text is read
        assert read == ["one"]
        may_read["two"].set()
        assert fitting.tokenizer().vocab_size == COUNT + 2
    assert read == ["one", "two"]


def test_an_error_of_a_fit_is_raised_at_the_next_call() -> None:
    with TokenizerFit(WordsConfig()) as fitting:
        fitting.add(["\ud800"])
        with pytest.raises(DataError, match="half of a surrogate pair"):
            fitting.tokenizer()


def test_whoever_is_stopped_does_not_wait_for_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = Event(), Event()

    def long(_: WordsConfig, texts: Iterator[str]) -> None:
        next(texts)
        begun.set()
        go_on.wait(20)

    def stopped() -> None:
        with TokenizerFit(WordsConfig()) as fitting:
            fitting._given.put(["a text"])
            assert begun.wait(20)
            raise KeyboardInterrupt

    monkeypatch.setattr("seqloom.text.tokenizer.fit", long)
    began = perf_counter()
    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert perf_counter() - began < 5
    go_on.set()
