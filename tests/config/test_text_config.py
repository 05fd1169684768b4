"""Configurations of tokenizers: read, written, and refused like all others."""

from typing import get_args

import pytest

from seqloom.config.base import from_json, from_toml
from seqloom.config.tokenizers import AnyTokenizer, BpeConfig, WordsConfig
from seqloom.errors import ConfigError


@pytest.mark.parametrize("kind", get_args(AnyTokenizer))
def test_a_tokenizer_configuration_read_back_is_the_same(kind: type) -> None:
    config = kind(normalize="nfkc", lowercase=True)
    assert from_json(config.to_json(), AnyTokenizer) == config
    assert from_toml(config.to_toml(), AnyTokenizer) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "sentencepiece"}', "unknown kind 'sentencepiece'"),
        ('{"kind": "bpe", "vocab_size": 299}', "vocab_size: expected a whole number from 300"),
        ('{"kind": "words", "vocab_size": 15}', "vocab_size: expected a whole number from 16"),
        ('{"kind": "words", "min_count": 0}', "min_count: expected a whole number from 1"),
        ('{"kind": "words", "word_split": "comma"}', "unknown name 'comma'"),
        ('{"kind": "bytes", "vocab_size": 300}', "unknown key 'vocab_size'"),
        ('{"kind": "bytes", "normalize": "NFC"}', "Did you mean 'nfc'"),
        ('{"kind": "bytes", "lowercase": 1}', "lowercase: expected true or false"),
    ],
)
def test_a_wrong_tokenizer_configuration_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_json(text, AnyTokenizer)


def test_a_configuration_fits_a_tokenizer() -> None:
    assert WordsConfig().fit(["a b"]).vocab_size == 8
    assert BpeConfig().fit(["a b"]).config == BpeConfig()
