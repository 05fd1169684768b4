"""The lattice tells what all paths together are: checked by writing all of them out."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.data.tags import spans
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.lattice import LatticeView, best_paths, lattice
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Subject
from seqloom.nn.ops import crf

WORDS = ["the", "big", "cat", "ran", "on"]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    subject = subject_of(task_on(tmp_path_factory.mktemp("tag"), "tag"), "bilstm", kind="crf")
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        head = subject.model.head
        for part in (head.between, head.start, head.end):  # type: ignore[union-attr]
            part.copy_(torch.randn(part.shape, generator=random))  # type: ignore[operator, arg-type, union-attr]
    return subject


@pytest.fixture(scope="module")
def view(tagger: Subject) -> LatticeView:
    return lattice(tagger, read(tagger, WORDS))


def _every_path(view: LatticeView) -> dict[tuple[int, ...], float]:
    """The score of every lawful path, by its definition."""
    assert view.transitions is not None and view.starts is not None and view.ends is not None
    found = {}
    for path in itertools.product(range(len(view.tags)), repeat=len(view.words)):
        moves = sum(view.transitions[pair] for pair in itertools.pairwise(path))
        total = (
            view.starts[path[0]]
            + view.ends[path[-1]]
            + moves
            + sum(view.emissions[at, tag] for at, tag in enumerate(path))
        )
        if not np.isnan(total):
            found[path] = float(total)
    return found


def test_the_two_best_paths_are_the_best_of_all_that_are_lawful(view: LatticeView) -> None:
    ranked = sorted(_every_path(view).items(), key=lambda pair: -pair[1])[:2]
    assert [path.tags for path in view.paths] == [path for path, _ in ranked]
    assert [path.score for path in view.paths] == pytest.approx([score for _, score in ranked], abs=1e-4)


def test_marginals_are_shares_of_all_paths(view: LatticeView) -> None:
    every = _every_path(view)
    weights = {path: np.exp(score) for path, score in every.items()}
    total = sum(weights.values())
    for at, tag in itertools.product(range(len(view.words)), range(len(view.tags))):
        share = sum(weight for path, weight in weights.items() if path[at] == tag) / total
        assert view.marginals[at, tag] == pytest.approx(share, abs=1e-5)


def test_the_confidence_of_a_span_is_the_share_of_paths_that_mark_exactly_it(
    tagger: Subject, view: LatticeView
) -> None:
    every = _every_path(view)
    weights = {path: float(np.exp(score)) for path, score in every.items()}
    shares: dict[tuple[int, int], float] = {}
    for path, weight in weights.items():
        for start, stop, _ in spans([view.tags[tag] for tag in path]):
            shares[start, stop] = shares.get((start, stop), 0.0) + weight / sum(weights.values())
    begin, inside = view.tags.index("B-X"), view.tags.index("I-X")
    asked = [crf.SpanScore(start, stop, (begin, *[inside] * (stop - start - 1)), (inside,)) for start, stop in shares]
    moves = tagger.model.head.transitions  # type: ignore[union-attr]
    scores, lengths = torch.tensor(view.emissions)[None], torch.tensor([len(view.words)])
    (found,) = crf.span_probabilities(scores, lengths, moves, [asked])  # type: ignore[arg-type]
    assert found == pytest.approx(list(shares.values()), abs=1e-5)
    assert {(one.start, one.stop): one.confidence for one in view.entities} == pytest.approx(
        {(one.start, one.stop): shares[one.start, one.stop] for one in view.entities}, abs=1e-5
    )


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("time", [1, 2, 6])
def test_the_best_paths_agree_with_viterbi_and_come_in_order(count: int, time: int) -> None:
    random = torch.Generator().manual_seed(count * 10 + time)
    scores = torch.randn(time, 3, generator=random)
    legal = torch.rand(3, 3, generator=random) > 0.2
    free = torch.ones(3, dtype=torch.bool)
    moves = crf.Transitions(*(torch.randn(size, generator=random) for size in ((3,), (3, 3), (3,))), free, legal, free)
    found = best_paths(scores, moves, count)
    best, score = crf.viterbi(scores[None], torch.tensor([time]), moves)
    assert list(found[0].tags) == best[0].tolist()
    assert found[0].score == pytest.approx(float(score), abs=1e-5)
    assert [path.score for path in found] == sorted((path.score for path in found), reverse=True)
    assert len({path.tags for path in found}) == len(found) <= count


def test_the_best_path_is_what_the_task_predicts(tagger: Subject, view: LatticeView) -> None:
    (said,) = tagger.task.predict(tagger.model, tagger.encode(WORDS))
    assert said.tags == view.best  # type: ignore[attr-defined]


def test_a_head_without_a_chain_has_emissions_alone(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm", kind="softmax")
    view = lattice(subject, read(subject, WORDS))
    assert view.transitions is None
    np.testing.assert_allclose(view.marginals, torch.tensor(view.emissions).softmax(-1), atol=1e-6)
    (said,) = subject.task.predict(subject.model, subject.encode(WORDS))
    assert said.tags == view.best  # type: ignore[attr-defined]


def test_errors_are_told_against_gold(tagger: Subject) -> None:
    view = lattice(tagger, read(tagger, WORDS), gold=["O"] * 5)
    wrong = sum(tag != "O" for tag in view.best)
    assert f"{wrong} of 5 tags " in view.sentences()[0]
    with pytest.raises(DataError, match="3 gold tags for 5 words"):
        lattice(tagger, read(tagger, WORDS), gold=["O"] * 3)
    with pytest.raises(DataError, match="no tag 'B-Y'"):
        lattice(tagger, read(tagger, WORDS), gold=["B-Y"] * 5)


@pytest.mark.parametrize(
    ("count", "kind"),
    [(5, "network"), (40, "matrix"), (100, "heat_map"), pytest.param(600, "line", marks=pytest.mark.slow)],
)
def test_what_is_drawn_goes_with_the_length(tagger: Subject, count: int, kind: str) -> None:
    view = lattice(tagger, read(tagger, (WORDS * 120)[:count]))
    assert view.figures()[0].kind == kind
    assert view.text(60)


def test_what_gives_no_tags_is_refused(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "bag")
    with pytest.raises(ConfigError, match="does not predict tags"):
        lattice(subject, read(subject, "the cat"))
