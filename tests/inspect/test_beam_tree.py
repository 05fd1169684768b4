"""The tree of a beam search is the search that happened."""

from pathlib import Path

import pytest

from inspection_common import subject_of, task_on
from seqloom.config.decoding import BeamConfig
from seqloom.errors import ConfigError
from seqloom.inspect.beam_tree import BeamTreeView, beam_tree
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Subject


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(task_on(tmp_path_factory.mktemp("translate"), "translate"), "transformer")


@pytest.fixture(scope="module")
def tree(translator: Subject) -> BeamTreeView:
    return beam_tree(translator, read(translator, "the cat sat"), width=3)


def test_the_winner_is_what_the_task_writes(translator: Subject, tree: BeamTreeView) -> None:
    task = translator.task.writing(BeamConfig(width=3))  # type: ignore[attr-defined]
    ((best, *_),) = task.answers(translator.model, translator.encode("the cat sat"))
    assert tree.answers[0] == (best.text, pytest.approx(best.score))
    written = [branch.symbol for branch in tree.branches if branch.wins]
    assert written == [*(translator.name(symbol) for symbol in best.symbols), "END"]


def test_a_branch_has_the_log_probability_of_its_symbols(translator: Subject, tree: BeamTreeView) -> None:
    """Each symbol is read once more by the model as a whole, without a search."""
    for number in (0, len(tree.branches) // 2, len(tree.branches) - 1):
        path, at = [], number
        while at >= 0:
            path.append(tree.branches[at].symbol)
            at = tree.branches[at].parent
        text = [symbol for symbol in reversed(path) if symbol != "END"]
        reading = read(translator, "the cat sat", target=" ".join(text))
        logs = scores(translator, reading.inputs)[0].detach().log_softmax(dim=-1)
        assert reading.said is not None
        total = sum(float(logs[row, reading.said[row]]) for row in range(len(path)))
        assert tree.branches[number].log == pytest.approx(total, abs=1e-4)


def test_every_branch_has_a_fate_and_a_parent_that_went_on(tree: BeamTreeView) -> None:
    steps = {branch.step for branch in tree.branches}
    for branch in tree.branches:
        assert branch.parent == -1 or tree.branches[branch.parent].fate == "went on"
        assert (branch.score is not None) == (branch.fate == "answer")
    for step in steps:
        assert sum(branch.step == step and branch.fate == "went on" for branch in tree.branches) <= tree.width
    assert any(branch.fate == "dropped" for branch in tree.branches)


def test_a_language_model_goes_on_with_its_text(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "lstm")
    view = beam_tree(subject, read(subject, "the cat"), width=2, longest=5)
    assert max(branch.step for branch in view.branches) <= 5
    assert "●" in view.text() and view.figures()[0].kind == "network"


@pytest.mark.slow
def test_a_search_too_large_to_draw_shows_the_winners_way(translator: Subject) -> None:
    with_end = translator.model.head.bias[3].item()  # type: ignore[union-attr, index]
    translator.model.head.bias.data[3] = -50.0  # type: ignore[union-attr]
    view = beam_tree(translator, read(translator, "the cat", target="le"), width=2, longest=30)
    translator.model.head.bias.data[3] = with_end  # type: ignore[union-attr]
    assert view.figures()[0].kind == "line"


def test_what_writes_nothing_is_refused(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    with pytest.raises(ConfigError, match="writes no text"):
        beam_tree(subject, read(subject, "the cat"))
