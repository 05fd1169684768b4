"""Spans are counted as others count them: conlleval's rule in plain code, and seqeval in both of its modes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import accuracy_score, classification_report
from seqeval.scheme import IOB2, IOBES

from seqloom.data.tags import Span, tags_of
from seqloom.metrics.classification import Counts, count_by_type

TYPES = ["LOC", "PER", "a-b.c"]
BIO = ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in TYPES)]
BIOES = [*BIO, *(f"{letter}-{kind}" for letter in "ES" for kind in TYPES)]
ALONE = "B-PER"  # said and true in every set: seqeval has no report on a set without spans

Sentences = list[tuple[list[str], list[str]]]  # said, true


def pairs(tags: list[str]) -> st.SearchStrategy[Sentences]:
    """Sentences of tags that may break every rule."""
    sentence = st.lists(st.tuples(st.sampled_from(tags), st.sampled_from(tags)), min_size=1, max_size=8)
    return st.lists(sentence.map(lambda words: ([one for one, _ in words], [two for _, two in words])), max_size=4)


@st.composite
def lawful(draw: st.DrawFn, scheme: str) -> Sentences:
    """Sentences whose tags keep to a scheme."""
    lengths = draw(st.lists(st.integers(1, 8), max_size=4))
    return [(_spans(draw, length, scheme), _spans(draw, length, scheme)) for length in lengths]


def _spans(draw: st.DrawFn, length: int, scheme: str) -> list[str]:
    marked, place = [], 0
    while place < length:
        stop = place + draw(st.integers(1, length - place))
        if draw(st.booleans()):
            marked.append(Span(place, stop, draw(st.sampled_from(TYPES))))
        place = stop
    return list(tags_of(marked, length, scheme))  # type: ignore[arg-type]  # a scheme


def ours(sentences: Sentences) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The figures of all spans, and those of each type."""
    counts = sum(count_by_type(said, true, TYPES) for said, true in [*sentences, ([ALONE], [ALONE])])
    found = Counts(*counts)
    return {name: float(value) for name, value in found.figures.items()}, found.named(TYPES)


def theirs(sentences: Sentences, alone: str = ALONE, **mode: Any) -> dict[str, dict[str, float]]:
    """What seqeval reports."""
    said, true = zip(*[*sentences, ([alone], [alone])], strict=True)
    report = classification_report(list(true), list(said), output_dict=True, zero_division=0, **mode)
    return {name: {key: float(value) for key, value in figures.items()} for name, figures in report.items()}


def require_equal(sentences: Sentences, report: dict[str, dict[str, float]]) -> None:
    whole, by_type = ours(sentences)
    micro, macro = report.pop("micro avg"), report.pop("macro avg")
    report.pop("weighted avg")
    assert [whole[name] for name in ("f1", "precision", "recall")] == pytest.approx(
        [micro[name] for name in ("f1-score", "precision", "recall")]
    )
    assert whole["macro_f1"] == pytest.approx(macro["f1-score"])
    renamed = {kind: {key.removesuffix("-score"): value for key, value in row.items()} for kind, row in report.items()}
    assert by_type.keys() == renamed.keys()
    for kind, figures in by_type.items():
        assert figures == pytest.approx(renamed[kind])


@settings(max_examples=40)
@given(pairs(BIO) | pairs(BIOES))
def test_every_figure_is_that_of_seqeval_lawful_or_not(sentences: Sentences) -> None:
    require_equal(sentences, theirs(sentences))


@settings(max_examples=25)
@given(lawful("bio"))
def test_of_lawful_bio_every_figure_is_also_that_of_seqeval_in_its_strict_mode(sentences: Sentences) -> None:
    require_equal(sentences, theirs(sentences, mode="strict", scheme=IOB2))


@settings(max_examples=25)
@given(lawful("bioes"))
def test_of_lawful_bioes_every_figure_is_also_that_of_seqeval_in_its_strict_mode(sentences: Sentences) -> None:
    require_equal(sentences, theirs(sentences, alone="S-PER", mode="strict", scheme=IOBES))


def test_the_counts_of_all_types_are_those_of_all_spans() -> None:
    said, true = ["B-PER", "I-PER", "O", "I-LOC", "B-LOC"], ["B-PER", "I-PER", "B-LOC", "I-LOC", "B-LOC"]
    assert count_by_type(said, true, ["LOC", "PER"]).sum(axis=1).tolist() == [2, 3, 3]
    assert accuracy_score([true], [said]) == 4 / 5


def test_resampled_counts_give_the_figures_of_each_draw() -> None:
    counts = np.array([[1, 0, 2, 1, 1, 2], [0, 0, 0, 0, 0, 0]])
    together = Counts.of(counts).figures
    for number in range(2):
        assert {name: values[number] for name, values in together.items()} == {
            name: float(value) for name, value in Counts.of(counts[number]).figures.items()
        }
    assert together["macro_f1"][1] == 0
