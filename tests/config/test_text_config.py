"""Configurations of tokenisers: read, written, and refused like all others."""

from typing import get_args

import pytest

from seqloom.config.base import from_json, from_toml
from seqloom.config.tokenizers import AnyTokenizer, BpeConfig, WordsConfig
from seqloom.errors import ConfigError


@pytest.mark.parametrize("kind", get_args(AnyTokenizer))
def test_a_tokenizer_configuration_read_back_is_the_same(kind: type) -> None:
    config = kind(unicode="nfkc", lower=True)
    assert from_json(config.to_json(), AnyTokenizer) == config
    assert from_toml(config.to_toml(), AnyTokenizer) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"kind": "sentencepiece"}', "unknown kind 'sentencepiece'"),
        ('{"kind": "bpe", "limit": 299}', "limit: expected a whole number from 300"),
        ('{"kind": "words", "limit": 15}', "limit: expected a whole number from 16"),
        ('{"kind": "words", "least": 0}', "least: expected a whole number from 1"),
        ('{"kind": "words", "split": "comma"}', "unknown name 'comma'"),
        ('{"kind": "bytes", "limit": 300}', "unknown key 'limit'"),
        ('{"kind": "bytes", "unicode": "NFC"}', "did you mean 'nfc'"),
        ('{"kind": "bytes", "lower": 1}', "lower: expected true or false"),
    ],
)
def test_a_wrong_tokenizer_configuration_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_json(text, AnyTokenizer)


def test_a_configuration_fits_a_tokenizer() -> None:
    assert WordsConfig().fit(["a b"]).vocab_size == 8
    assert BpeConfig().fit(["a b"]).config == BpeConfig()
