"""A reading has a token for everything that the model reads, and a row for every answer."""

from pathlib import Path

import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.readings import left_out, read, scores
from seqloom.inspect.subject import encoding, repeated
from seqloom.text.special_tokens import END, UNKNOWN


@pytest.mark.parametrize(
    ("name", "recipe", "given"),
    [
        ("classify", "transformer", "the cat ran"),
        ("classify", "cnn", "the cat ran"),
        ("tag", "bilstm", ["the", "big", "dog"]),
        ("lm", "lstm", "the cat sat"),
        ("translate", "transformer", "a big cat"),
        ("translate", "seq2seq-dot", "a big cat"),
        ("embed", "bag", ("the cat", "a dog ran")),
    ],
)
def test_scores_have_a_row_for_each_answer(tmp_path: Path, name: str, recipe: str, given: object) -> None:
    subject = subject_of(task_on(tmp_path, name), recipe)
    reading = read(subject, given)
    found = scores(subject, repeated(reading.inputs, 3))
    assert found.shape[:2] == (3, len(reading.rows))
    torch.testing.assert_close(found[0], scores(subject, reading.inputs)[0])
    if reading.targets is not None:
        assert len(reading.targets) == len(reading.rows)


def test_tokens_show_the_text_as_it_was_written(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    side = read(subject, "the ZEBRA sat").side()
    assert side.texts == ("the", "ZEBRA", "sat")
    assert [token.word for token in side.tokens] == [0, 1, 2]


def test_row_t_of_a_translation_is_the_token_that_is_said_there(tmp_path: Path) -> None:
    """The decoder reads a token one step after it was said (tensor2tensor#917 drew it shifted by one)."""
    subject = subject_of(task_on(tmp_path, "translate"), "transformer")
    reading = read(subject, "the cat sat", target="le chat assis")
    assert reading.rows == ("le", "chat", "assis", "<end>")
    assert reading.targets is not None
    assert reading.inputs.target.values[0, 1:].tolist() == list(reading.targets[:-1])


def test_a_text_that_is_cut_goes_on_with_what_comes_next_in_it_and_not_with_its_end(tmp_path: Path) -> None:
    task = task_on(tmp_path, "lm")
    whole = subject_of(task, "lstm")
    short = whole._replace(encode=encoding(task, 3, None, torch.device("cpu")))
    reading, entire = (read(subject, "the cat sat on the mat") for subject in (short, whole))
    assert reading.targets is not None and entire.targets is not None
    assert reading.rows == ("<begin>", "the", "cat", "sat") and reading.targets == entire.targets[:4]
    assert (left_out(short, reading), left_out(whole, entire)) == (3, 0)


@pytest.mark.parametrize("given", ["", 3])
def test_a_refused_input_is_not_told_of_options_for_files(tmp_path: Path, given: object) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    with pytest.raises(DataError, match=r"Fix: give an input that is not empty; the model reads text\.$"):
        read(subject, given)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    with pytest.raises(ConfigError, match="target is only for translation"):
        read(subject, "the cat", target="le chat")
    with pytest.raises(DataError, match="no side 'source'"):
        read(subject, "the cat").side("source")
    with pytest.raises(DataError, match="no answer 'maybe'"):
        subject.column("maybe")


def test_an_answer_that_the_model_cannot_give_is_refused_and_a_special_one_has_its_name(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "gru")
    assert subject.name(subject.column("cat")) == "cat"
    with pytest.raises(DataError, match=r"'zzzqq' is not one of the \d+ tokens.*<unknown>"):
        subject.column("zzzqq")
    assert [subject.column(subject.name(token)) for token in (UNKNOWN, END)] == [UNKNOWN, END]


def test_a_number_of_a_vector_is_no_word(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "bag")
    with pytest.raises(DataError, match="predicts numbers, and 'cat' is not one of them"):
        subject.column("cat")
    assert subject.column(subject.name(6)) == 6
