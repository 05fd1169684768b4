"""The tree of a beam search is the search that happened."""

from pathlib import Path

import pytest

from inspection_common import subject_of, task_on
from seqloom.config.decoding import BeamConfig
from seqloom.errors import ConfigError
from seqloom.inspect.beam_tree import BeamTreeView, beam_tree
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Subject
from seqloom.report.figures.network import Network


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(task_on(tmp_path_factory.mktemp("translate"), "translate"), "transformer")


@pytest.fixture(scope="module")
def tree(translator: Subject) -> BeamTreeView:
    return beam_tree(translator, read(translator, "the cat sat"), beam_size=3)


def test_the_winner_is_what_the_task_writes(translator: Subject, tree: BeamTreeView) -> None:
    task = translator.task.writing(BeamConfig(beam_size=3))  # type: ignore[attr-defined]
    ((best, *_),) = task.answers(translator.model, translator.encode("the cat sat"))
    assert tree.hypotheses[0] == (best.text, pytest.approx(best.score))
    written = [branch.token for branch in tree.branches if branch.is_best]
    assert written == [*(translator.name(token) for token in best.tokens), "<end>"]


def test_a_branch_has_the_log_probability_of_its_tokens(translator: Subject, tree: BeamTreeView) -> None:
    """Each token is read once more by the model as a whole, without a search."""
    for number in (0, len(tree.branches) // 2, len(tree.branches) - 1):
        path, at = [], number
        while at >= 0:
            path.append(tree.branches[at].token)
            at = tree.branches[at].parent
        text = [token for token in reversed(path) if token != "<end>"]
        reading = read(translator, "the cat sat", target=" ".join(text))
        logs = scores(translator, reading.inputs)[0].detach().log_softmax(dim=-1)
        assert reading.targets is not None
        total = sum(float(logs[row, reading.targets[row]]) for row in range(len(path)))
        assert tree.branches[number].log_prob == pytest.approx(total, abs=1e-4)


def test_every_branch_has_a_fate_and_a_parent_that_went_on(tree: BeamTreeView) -> None:
    steps = {branch.step for branch in tree.branches}
    for branch in tree.branches:
        assert branch.parent == -1 or tree.branches[branch.parent].status == "kept"
        assert (branch.score is not None) == (branch.status == "finished")
    for step in steps:
        assert sum(branch.step == step and branch.status == "kept" for branch in tree.branches) <= tree.beam_size
    for step in steps - {max(steps)}:  # as many are left out as are kept or finished
        assert sum(branch.step == step for branch in tree.branches) == 2 * tree.beam_size
    assert any(branch.status == "pruned" for branch in tree.branches)


def test_pruned_hypotheses_are_drawn_if_they_are_asked_for(translator: Subject, tree: BeamTreeView) -> None:
    every = beam_tree(translator, read(translator, "the cat sat"), beam_size=3, pruned=True)
    assert every.branches == tree.branches
    drawn, complete = tree.figures()[0], every.figures()[0]
    assert isinstance(drawn, Network) and isinstance(complete, Network)
    lost = sum(branch.status in ("pruned", "stopped") and not branch.is_best for branch in tree.branches)
    assert lost > 5 and len(complete.nodes) - len(drawn.nodes) == lost
    assert f"{lost} pruned or stopped hypotheses are not drawn." in drawn.caption
    assert "Input: “the cat sat”." in drawn.caption and "not drawn" not in complete.caption
    assert "natural logarithm" in drawn.svg()


def test_the_beam_is_as_wide_as_that_of_translate(translator: Subject) -> None:
    assert beam_tree(translator, read(translator, "the cat sat")).beam_size == BeamConfig().beam_size


def test_a_language_model_goes_on_with_its_text(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "lstm")
    view = beam_tree(subject, read(subject, "the cat"), beam_size=2, max_new_tokens=5)
    assert max(branch.step for branch in view.branches) <= 5
    assert "●" in view.text() and view.figures()[0].kind == "network"


@pytest.mark.slow
def test_a_search_too_large_to_draw_shows_the_winners_way(translator: Subject) -> None:
    with_end = translator.model.head.bias[3].item()  # type: ignore[union-attr, index]
    translator.model.head.bias.data[3] = -50.0  # type: ignore[union-attr]
    view = beam_tree(translator, read(translator, "the cat", target="le"), beam_size=2, max_new_tokens=30)
    translator.model.head.bias.data[3] = with_end  # type: ignore[union-attr]
    assert view.figures()[0].kind == "line"


def test_what_writes_nothing_is_refused(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    with pytest.raises(ConfigError, match="does not generate text"):
        beam_tree(subject, read(subject, "the cat"))
