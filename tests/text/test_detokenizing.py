"""Words become text that people read, and the text gives the same words again."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seqloom.config.tokenizers import WordsConfig
from seqloom.text.tokenizer import fit
from seqloom.text.words import detokenized, word_pattern

SENTENCES = [
    "Hello, world!",
    "It's well-known (so they say) that 3.14 is less than 1,000.",
    "He came at 10:30; she didn't.",
    'She said: "No way." Then she left.',
    "„Guten Tag“, sagte er.",
    "“No,” he said.",
    "¿Qué pasa? ¡Nada!",
    "L'homme a 50% de chance...",
    "She paid $5 and/or €6.",
    "a cat sat",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_survives_being_cut_into_words(sentence: str) -> None:
    assert detokenized(word_pattern().findall(sentence)) == sentence


@settings(max_examples=60, deadline=None)
@example(text="( \u0301a")
@given(text=st.text(alphabet="ab1 .,-'\"“„’()é\u0301\u200d👍🏽中!?", max_size=14) | st.text(max_size=10))
def test_detokenized_text_gives_the_same_words_again(text: str) -> None:
    words = word_pattern().findall(text)
    assert word_pattern().findall(detokenized(words)) == words


def test_text_that_was_cut_at_spaces_keeps_them() -> None:
    text = "a man 's hat , it is ."
    spaced = fit(WordsConfig(word_split="space"), [text])
    tokens = spaced.encode([text]).row(0)
    assert spaced.decode(tokens) == spaced.tokenized(tokens) == text


def test_words_are_decoded_for_people_and_tokenized_for_scores() -> None:
    tokenizer = fit(WordsConfig(lowercase=True), ["Hello, world!"])
    tokens = tokenizer.encode(["Hello, world!"]).row(0)
    assert tokenizer.decode(tokens) == "hello, world!"
    assert tokenizer.tokenized(tokens) == "hello , world !"
    assert list(tokenizer.normalized(["Hello, World!"])) == ["hello, world!"]
