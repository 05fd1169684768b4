"""Character n-grams of `linear`: they are scikit-learn's, they see through misspellings, and only linear has them."""

import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer

import seqloom
from seqloom.config.data import DataConfig
from seqloom.config.inputs import CharTfidfConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.kinds.text import TextInput
from seqloom.errors import ConfigError, DataError
from seqloom.nn.inputs import CharTfidf, characters
from seqloom.nn.types import Padded
from seqloom.text.characters import letters_of
from seqloom.training.request import RunRequest
from seqloom.training.resolve import Resolved, resolve

KINDS = st.sampled_from(["abc", "abé", "ab你", "a😀ß"])
SENTENCES = KINDS.flatmap(
    lambda kind: st.lists(
        st.lists(st.text(kind, min_size=1, max_size=7), min_size=1, max_size=5), min_size=2, max_size=6
    )
)


def read(texts: list[str]) -> tuple[Any, int]:
    """The batch of some texts, with their characters, and the size of its vocabulary."""
    tokenizer = WordsConfig(keep_characters=True, word_split="space").fit(texts)
    return TextInput().collate(TextInput().encode(texts, tokenizer)), tokenizer.vocab_size


def features(texts: list[str], **settings: int) -> tuple[CharTfidf, csr_array, csr_array]:
    """The input layer, and what it makes of the words of each text and of their characters."""
    batch, size = read(texts)
    layer = CharTfidf(CharTfidfConfig(vocab_size=size, order=1, **settings), 1)
    layer.fit([batch])
    bags = layer.bags(batch)
    found = csr_array((bags.values.numpy(), (bags.texts.numpy(), bags.rows.numpy())), (len(texts), len(layer.idf)))
    return layer, found[:, : layer.first_char], found[:, layer.first_char :]


def products(rows: Any) -> np.ndarray:
    """The products of all pairs of texts, which do not depend on the order of features."""
    return np.asarray((rows @ rows.T).toarray())


@pytest.mark.slow
@given(words=SENTENCES, lengths=st.sampled_from([(3, 5), (1, 2), (4, 4), (5, 6)]))
def test_the_features_of_characters_are_those_of_scikit_learn(words: list[list[str]], lengths: tuple[int, int]) -> None:
    texts, (shortest, longest) = [" ".join(row) for row in words], lengths
    theirs = TfidfVectorizer(sublinear_tf=True, lowercase=False, analyzer="char_wb", ngram_range=lengths)
    expected = theirs.fit_transform(texts)
    tried = [features(texts, min_chars=shortest, max_chars=longest, char_buckets=count) for count in (2**16, 65_521)]
    # Two n-grams may share a row by chance, but hardly in tables of both sizes.
    of = max(tried, key=lambda one: len(np.unique(one[2].nonzero()[1])))
    np.testing.assert_allclose(products(of[2]), products(expected), atol=1e-5)
    assert sorted(of[2].count_nonzero(axis=1)) == sorted(expected.count_nonzero(axis=1))
    plain = TfidfVectorizer(sublinear_tf=True, lowercase=False, token_pattern=r"\S+").fit_transform(texts)
    np.testing.assert_allclose(products(of[1]), products(plain), atol=1e-5)


def test_few_ngrams_share_a_row() -> None:
    """Of n random numbers below m, n^2 / 2m pairs are equal; words of two letters are the hardest case."""
    words = ["".join(letters) for letters in product("ab", repeat=11)]
    batch, size = read([" ".join(words)])
    layer = CharTfidf(CharTfidfConfig(vocab_size=size, min_chars=13, max_chars=13, char_buckets=2**18), 1)
    layer.fit([batch])
    assert len(words) - (layer.bags(batch).rows >= layer.first_char).sum() < 3 * len(words) ** 2 / 2**19


def test_the_contributions_of_words_add_up_to_the_features() -> None:
    texts = ["one two two three", "three fours", "ones"]
    layer, of_words, of_characters = features(texts, char_buckets=2**12)
    torch.nn.init.normal_(layer.table)
    batch, _ = read(texts)
    phi = torch.from_numpy(np.concatenate([of_words.toarray(), of_characters.toarray()], axis=1)).float()
    torch.testing.assert_close(layer(batch).values.sum(dim=1), phi @ layer.table, rtol=1e-4, atol=1e-5)
    batch = batch._replace(letters=torch.nn.functional.pad(batch.letters, (0, 3)))  # however it is padded
    torch.testing.assert_close(layer(batch).values.sum(dim=1), phi @ layer.table, rtol=1e-4, atol=1e-5)


@given(word=st.text(st.characters(exclude_categories=["Cs", "Z", "C"]), max_size=7))
def test_characters_are_counted_and_not_bytes(word: str) -> None:
    words, line, left = characters(torch.from_numpy(letters_of([word, "x"])))
    numbers = [int.from_bytes(letter.encode(), "big") for letter in word]
    spaced = [32, *numbers, 32] if word else []
    assert line.tolist() == [*spaced, 32, ord("x"), 32]
    assert words.tolist() == [0] * len(spaced) + [1, 1, 1]
    assert left.tolist() == [*range(len(spaced), 0, -1), 3, 2, 1]


def test_words_without_their_characters_are_refused() -> None:
    layer = CharTfidf(CharTfidfConfig(vocab_size=9), 2)
    with pytest.raises(DataError, match="expected words with their characters"):
        layer(Padded.of(torch.tensor([[1, 2]])))
    with pytest.raises(ConfigError, match="6 to 5 characters"):
        CharTfidfConfig(vocab_size=9, min_chars=6)


# --- runs ------------------------------------------------------------------------------------------------------------


def misspelled(word: str, draw: random.Random) -> str:
    at = draw.randrange(len(word))
    return word[:at] + draw.choice("xyz") + word[at:]


def write(path: Path) -> Path:
    """Texts in which a misspelled word decides; hardly two of them are spelled the same."""
    draw, words = random.Random(0), {"good": "wonderful magnificent", "bad": "terrible disappointing"}
    rows = [
        f"the film {misspelled(misspelled(draw.choice(some.split()), draw), draw)} was {number},{label}"
        for number in range(150)
        for label, some in words.items()
    ]
    path.write_text("\n".join(["text,label", *rows, ""]), encoding="utf-8")
    return path


def wanting(data: Path, **settings: Any) -> Resolved:
    return resolve(DataConfig(train=(str(data),)), RunRequest(**settings), cache=data.parent / "cache")


@pytest.mark.slow
def test_linear_takes_them_and_keeps_its_words(tmp_path: Path) -> None:
    found = wanting(write(tmp_path / "data.csv"), model="linear", char_encoder="ngrams")
    assert isinstance(found.config.model.encoder.input, CharTfidfConfig)  # type: ignore[union-attr]
    tokenizer = found.config.encoding.tokenizer
    assert isinstance(tokenizer, WordsConfig) and tokenizer.keep_characters and tokenizer.word_split == "punctuation"
    plain = wanting(tmp_path / "data.csv", model="linear")
    assert not isinstance(plain.config.model.encoder.input, CharTfidfConfig)  # type: ignore[union-attr]
    assert "letters" not in plain.prepared.columns


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model": "cnn", "char_encoder": "ngrams"}, "--char-encoder ngrams does not fit the recipe cnn"),
        ({"char_encoder": "ngrams"}, "--char-encoder ngrams does not fit the default recipe"),
        ({"model": "linear", "char_encoder": "lstm"}, "--char-encoder lstm does not fit the recipe linear"),
    ],
)
def test_other_recipes_are_refused_before_the_data_is_read(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        wanting(tmp_path / "not there.csv", **settings)
    assert "choose" in str(caught.value.fix)


def test_pairs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("premise,hypothesis,label\na,b,c\n" * 9, encoding="utf-8")
    with pytest.raises(ConfigError, match="character n-grams are for one text"):
        wanting(tmp_path / "pairs.csv", model="linear", char_encoder="ngrams")


@pytest.mark.slow
def test_they_see_through_misspellings_and_the_model_loads_explains_and_resumes(tmp_path: Path) -> None:
    data, usual = write(tmp_path / "data.csv"), {"model": "linear", "device": "cpu"}
    words = seqloom.train(data, out=tmp_path / "words", **usual)
    run = seqloom.train(data, out=tmp_path / "run", char_encoder="ngrams", **usual)
    assert run.metrics["accuracy"] >= 0.95 > 0.8 > words.metrics["accuracy"]
    model = seqloom.load(tmp_path / "run")
    (prediction,) = model.predict(["the film wonnderfull was 8"])
    assert prediction.label == "good"
    found = model.inspect("the film wonnderfull was 8").ngrams()
    assert max(found.ngrams, key=lambda one: abs(one.value)).text == "characters of wonnderfull"
    assert found.bias + sum(one.value for one in found.ngrams) == pytest.approx(found.score, abs=1e-4)
    again = seqloom.train(data, out=tmp_path / "run", **usual)
    assert again.metrics == run.metrics
