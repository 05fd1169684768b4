"""Links that are known to be right are between the words that people count, whatever a tokenizer cuts them into."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspection_common import subject_of, task_on
from seqloom.config.tokenizers import BpeConfig, BytesConfig, CharactersConfig, UnigramConfig, WordsConfig
from seqloom.errors import DataError
from seqloom.inspect.alignment import AlignmentView, Gold, WordPair, alignment, alignment_scores, gold_links
from seqloom.inspect.attention import attention
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject, Token
from seqloom.report.figures.matrix import Matrix
from seqloom.text.special_tokens import COUNT, END, MASK, NAMES, UNKNOWN

pytestmark = pytest.mark.slow

TOKENIZERS: dict[str, Any] = {
    "words": WordsConfig(),
    "bpe": BpeConfig(vocab_size=300),
    "unigram": UnigramConfig(vocab_size=300),
    "bytes": BytesConfig(),
    "characters": CharactersConfig(),
}
PAIRS = ["the cats are sitting\tles chats sont assis", "a big dog runs\tun grand chien court"]
SOURCE, TARGET = "the  cats, unhappily sitting.", "été tristement  assis, là !"  # rare words, marks, two spaces


def translator(folder: Path, name: str) -> Subject:
    return subject_of(task_on(folder, "translate", rows=PAIRS, tokenizer=TOKENIZERS[name]), "transformer")


def framed(view: AlignmentView) -> list[tuple[str, str]]:
    """The source and the target word of each frame, as they are shown."""
    matrix = view.figures()[0]
    assert isinstance(matrix, Matrix)
    return [(matrix.columns[source].strip(), matrix.rows[target].strip()) for target, source in matrix.framed]


def owners(text: str, tokens: Sequence[Token]) -> np.ndarray:
    """[T] the word of `text.split()` that each token stands in, or stands before; -1 for a special token."""
    ends = np.array([word.end() for word in re.finditer(r"\S+", text)])
    before = [-1 if token.is_special else int((ends <= token.start).sum()) for token in tokens]
    return np.minimum(before, len(ends) - 1)


def links_by_hand(subject: Subject, reading: Reading) -> list[WordPair]:
    """The links between words, from the weights between tokens."""
    values = alignment(subject, reading).weights.values
    assert values is not None
    sources, targets = owners(SOURCE, reading.sides[0].tokens), owners(TARGET, reading.sides[1].tokens)
    found = []
    for word in range(len(TARGET.split())):
        row = values[targets == word].mean(axis=0)
        shares = {other: row[sources == other].sum() for other in set(sources.tolist())}
        found.append((max(shares, key=shares.__getitem__), word))
    return [pair for pair in found if pair[0] >= 0]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_known_links_are_numbered_by_the_words_between_spaces(tmp_path: Path, name: str) -> None:
    subject, gold = translator(tmp_path, name), Gold(tuple((at, at) for at in range(4)))
    reading = read(subject, SOURCE, target=TARGET)
    view = alignment(subject, reading, gold=gold)
    assert framed(view) == list(zip(re.sub(" +", " ", SOURCE).split(), TARGET.split(), strict=False))
    assert view.scores == alignment_scores(links_by_hand(subject, reading), gold)
    for link in ("4-0", "0-5"):
        with pytest.raises(DataError, match=rf"link {link} is outside the 4 source and 5 target words"):
            alignment(subject, reading, gold=link)


# "un grand chien court" as a model may write it, in pieces into which its tokenizer would never cut it
WRITTEN = ["u", "n", " g", "r", "a", "n", "d", " ", "c", "h", "i", "e", "n", " ", "c", "o", "u", "r", "t"]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("in_pieces", [False, True])
def test_words_of_a_written_target_are_those_of_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, in_pieces: bool
) -> None:
    subject = translator(tmp_path, name)
    task: Any = subject.task
    tokens = task.tokenizer.encode_inner(["un grand chien court"]).row(0).tolist()
    if in_pieces and name != "words":
        known = {task.tokenizer.piece(token): token for token in range(COUNT, task.tokenizer.vocab_size)}
        tokens = [known[letter] for letter in "".join(WRITTEN)]
    monkeypatch.setattr(type(task), "written", lambda *_: [[*tokens, END]])
    reading = read(subject, "a big dog runs")
    view = alignment(subject, reading, gold="0-0 1-1 2-2 3-3")
    assert framed(view) == [("a", "un"), ("big", "grand"), ("dog", "chien"), ("runs", "court")]
    with pytest.raises(DataError, match=r"outside the 4 source and 4 target words"):
        alignment(subject, reading, gold="0-4")
    joined = alignment(subject, reading, words=True)
    assert joined.target[:4] == ("un", "grand", "chien", "court")  # without the spaces between them
    assert joined.source[-4:] == ("a", "big", "dog", "runs") or joined.source[:4] == ("a", "big", "dog", "runs")


def test_an_unknown_word_and_a_special_token_that_were_written_keep_the_numbers_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = translator(tmp_path, "words")
    task: Any = subject.task
    un, court = (int(task.tokenizer.encode_inner([word]).row(0)[0]) for word in ("un", "court"))
    monkeypatch.setattr(type(task), "written", lambda *_: [[un, UNKNOWN, MASK, court, END]])
    view = alignment(subject, read(subject, "a big dog"), gold="0-0 1-1 2-2")
    assert framed(view) == [("a", "un"), ("big", NAMES[UNKNOWN]), ("dog", "court")]


def test_links_are_judged_however_many_words_there_are(tmp_path: Path) -> None:
    """Beyond 512 the table is not held: its links are found some rows at a time, and are the same."""
    subject = translator(tmp_path, "words")
    source, target = ("the cats are sitting " * 140).split(), ("les chats sont " * 20).split()
    reading = read(subject, " ".join(source), target=" ".join(target))
    view = alignment(subject, reading, gold=[(at, at) for at in range(60)])
    assert view.weights.values is None and view.scores is not None and view.gold is not None
    rows = [alignment_row(subject, reading, at) for at in range(0, 60, 13)]
    assert [view.links[at] for at in range(0, 60, 13)] == rows
    assert view.scores == alignment_scores([link for link in view.links if link[0] < 560 and link[1] < 60], view.gold)
    assert any("Alignment error rate" in sentence for sentence in view.sentences())


def alignment_row(subject: Subject, reading: Reading, at: int) -> WordPair:
    values = attention(subject, reading, layer=alignment(subject, reading).weights.layer, token=at).values
    assert values is not None
    return int(np.nanargmax(values[0])), at


def test_frames_of_every_matrix_stand_at_their_words(tmp_path: Path) -> None:
    """Many words are drawn as several matrices of some rows each."""
    subject = translator(tmp_path, "words")
    words = [f"w{at}" for at in range(60)]
    reading = read(subject, " ".join(words), target=" ".join(reversed(words)))
    view = alignment(subject, reading, gold=[(at, 59 - at) for at in range(59)])
    matrices = [figure for figure in view.figures() if isinstance(figure, Matrix)]
    found = [(one.columns[source], one.rows[target]) for one in matrices for target, source in one.framed]
    assert len(matrices) > 1 and matrices[1].framed
    assert sorted(found) == sorted((word, word) for word in words[:59])


def test_numbers_of_a_link_are_whole_whoever_made_them() -> None:
    assert gold_links(np.array([[0, 1], [2, 3]])) == Gold(((0, 1), (2, 3)))  # type: ignore[arg-type]
    for wrong in ([(True, False)], [(0, 1.5)], [1, 2], [(0, 1, 2)], [None]):
        with pytest.raises(DataError, match="is not an alignment link"):
            gold_links(wrong)  # type: ignore[arg-type]
