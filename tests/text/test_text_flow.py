"""A text that arrives line by line gives the tokens of the whole text."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from seqloom.config.tokenizers import BpeConfig, BytesConfig, CharactersConfig, UnigramConfig, WordsConfig
from seqloom.text.flow import SPACES, TextFlow
from seqloom.text.tokenizer import Tokenizer, fit

CORPUS = ["the cat sat on the mat", "a dog\n\n\nran  \n so far", "it's 3 o'clock, café! \n \t\n\n done"] * 3
KINDS = {
    "bytes": BytesConfig(),
    "characters": CharactersConfig(normalize="nfc"),
    "words": WordsConfig(lowercase=True, normalize="nfkc"),
    "bpe": BpeConfig(vocab_size=400, normalize="nfc"),
    "unigram": UnigramConfig(vocab_size=300),
}
FITTED = {name: fit(config, CORPUS) for name, config in KINDS.items()}
TEXTS = st.text(st.sampled_from("thecats dog\n\n\n \t3'!é\u0301\xa0\u2028\x1cΣ"), max_size=60) | st.text(max_size=40)


def flowed(tokenizer: Tokenizer, lines: list[str]) -> list[int]:
    flow = TextFlow(tokenizer)
    found: list[int] = np.concatenate([*map(flow.tokens, lines), flow.rest()]).tolist()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(text=TEXTS)
@example(text="\n" * 200)
@example(text="a" + "\n" * 200 + "b")
@example(text="a" + "\n" * 65 + "  b\n" + "\n" * 63 + " c")
@example(text="the cat\n\n\n sat\n on\n")
def test_lines_give_the_tokens_of_the_whole_text(kind: str, text: str) -> None:
    tokenizer = FITTED[kind]
    lines = [f"{line}\n" for line in text.split("\n")[:-1]] + [text.split("\n")[-1]]
    assert flowed(tokenizer, lines) == tokenizer.encode([text]).row(0).tolist()


def test_endless_white_space_does_not_wait_for_its_end() -> None:
    flow = TextFlow(FITTED["bpe"])
    flow.tokens("a\n")
    for _ in range(1_000):
        flow.tokens("\n")
    assert len(flow._pending) <= 64


def test_white_space_is_what_the_pattern_of_subwords_takes_for_it() -> None:
    cut = pre_tokenizers.Split(Regex(r"\s"), "isolated")
    every = [chr(code) for code in range(0x3100) if not 0xD800 <= code < 0xE000]
    found = {one for one in every if [part for part, _ in cut.pre_tokenize_str(f"a{one}a")] == ["a", one, "a"]}
    assert found == SPACES
