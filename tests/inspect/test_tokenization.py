"""Pieces stand for the parts of the text that they say, and nothing of it is lost."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.config.tokenizers import AnyTokenizer, BpeConfig, BytesConfig, CharactersConfig, UnigramConfig, WordsConfig
from seqloom.data.check import load_data
from seqloom.errors import ConfigError
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Subject, encoding
from seqloom.inspect.tokenization import tokenization
from seqloom.tasks.task import ModelSpec, task_of
from seqloom.text.special_tokens import COUNT

TEXT = "the cät  sat\tон 🙂 mat"


def _subject(folder: Path, tokenizer: AnyTokenizer) -> Subject:
    return subject_of(task_on(folder, "classify", tokenizer=tokenizer), "bag")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tokenizer",
    [BpeConfig(vocab_size=300), UnigramConfig(vocab_size=300), BytesConfig(), CharactersConfig(), WordsConfig()],
    ids=lambda config: config.kind(),
)
def test_pieces_cover_the_text_in_characters_and_in_bytes(tmp_path: Path, tokenizer: AnyTokenizer) -> None:
    subject = _subject(tmp_path, tokenizer)
    view = tokenization(subject, read(subject, TEXT))
    covered = {at for piece in view.tokens for at in range(piece.start, piece.stop)}
    assert covered >= {at for at, letter in enumerate(TEXT) if not letter.isspace()}
    for piece in view.tokens:
        assert TEXT.encode()[piece.first_byte : piece.last_byte] == TEXT[piece.start : piece.stop].encode()
        assert not set(piece.text) & {" ", "\t"}
    assert [token.id for token in view.read_tokens] == subject.encode(TEXT).values[0].tolist()


def test_merges_lead_from_the_bytes_to_the_piece(tmp_path: Path) -> None:
    """Each merge joins two neighbors, and the last of them leaves the piece that the library cut."""
    subject = _subject(tmp_path, BpeConfig(vocab_size=300))
    pieces = tokenization(subject, read(subject, "the cat sat on the big house")).tokens
    tokenizer = subject.task.spec.tokenizer
    assert tokenizer is not None
    shown = [tokenizer.piece(token).replace(" ", "␣") for token in range(COUNT, tokenizer.vocab_size)]
    merges = tokenizer.segmenter.data().merges  # type: ignore[attr-defined]
    order = [(shown[left], shown[right]) for left, right in merges]
    assert max(len(piece.merges) for piece in pieces) > 2
    for piece in pieces:
        assert all(len(part) == 1 for part in piece.merges[0])
        for before, after in zip(piece.merges, piece.merges[1:], strict=False):
            assert len(after) == len(before) - 1 and "".join(after) == "".join(before)
            at = next(at for at, part in enumerate(after) if part != before[at])
            pairs = [pair for pair in itertools.pairwise(_seen(before)) if pair in order]
            assert tuple(_seen(before[at : at + 2])) == min(pairs, key=order.index), "the first learned is the first"
        assert len(piece.merges[-1]) == 1


def _seen(parts: Sequence[str]) -> list[str]:
    return [part.replace(" ", "␣") for part in parts]


def test_what_is_cut_off_is_told(tmp_path: Path) -> None:
    subject = _subject(tmp_path, WordsConfig())
    short = subject._replace(encode=encoding(subject.task, 3, None, torch.device("cpu")))
    view = tokenization(short, read(short, "the cat sat on the mat"))
    assert [piece.truncated for piece in view.tokens] == [False] * 3 + [True] * 3
    assert "3 tokens are truncated" in view.sentences()[1]
    assert [piece.text for piece in view.read_tokens] == ["the", "cat", "sat"]


def test_unknown_words_and_special_tokens_are_told_apart(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    reading = read(subject, "the zebra sat", target="le chat")
    assert [(piece.text, piece.unknown) for piece in tokenization(subject, reading).tokens][1] == ("zebra", True)
    last = tokenization(subject, reading, side="target").tokens[-1]
    assert (last.text, last.special, last.start, last.stop) == ("<end>", True, 7, 7)


def test_two_words_of_a_tagger_are_no_pair_of_texts(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    pieces = tokenization(subject, read(subject, ["the", "zebra"])).tokens
    assert [(piece.text, piece.start, piece.stop) for piece in pieces] == [("the", 0, 3), ("zebra", 4, 9)]


def test_a_long_text_is_a_curve_and_the_first_pieces_stand_in_a_table(tmp_path: Path) -> None:
    subject = _subject(tmp_path, WordsConfig())
    long, short = (tokenization(subject, read(subject, "cat " * count)) for count in (600, 4))
    assert [figure.kind for figure in long.figures()] == ["line", "strip"]
    assert short.html().count("<tr>") == 1 + 4 and long.html().count("<tr>") == 1 + 64
    assert long.text(80).splitlines()[-1].split()[:3] == ["63", "cat", "cat"]


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b,label\n" + "1.0,2.0,x\n3.0,4.0,y\n" * 12, encoding="utf-8")
    task = task_of(ModelSpec.of(load_data(path, input=("a", "b"), target="label")))
    subject = subject_of(task, "mlp")
    with pytest.raises(ConfigError, match="is not a text"):
        tokenization(subject, read(subject, [[1.0, 2.0]]))


@pytest.mark.parametrize(
    ("task", "given"),
    [
        ("classify", "the cat sat on"),
        ("lm", "the cat sat on"),
        ("tag", ["the", "cat", "sat", "on"]),
        ("translate", "the cat sat on"),
        ("embed", ("the cat sat on", "a dog")),
    ],
)
def test_what_the_model_never_reads_is_marked_and_nothing_else(tmp_path: Path, task: str, given: Any) -> None:
    subject = subject_of(task_on(tmp_path, task))
    short = subject._replace(encode=encoding(subject.task, 2, None, torch.device("cpu")))
    reading = read(short, given, **({"target": "le chat"} if task == "translate" else {}))
    view = tokenization(short, reading)
    assert tuple(piece.text for piece in view.read_tokens) == reading.sides[0].texts
    assert [piece.text for piece in view.tokens if piece.truncated] == ["sat", "on"]
    assert [(piece.start, piece.stop) for piece in view.tokens if piece.truncated] == [(8, 11), (12, 14)]
