"""Tags and spans, counted by somebody else's rules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from seqloom.config.heads import CrfHeadConfig
from seqloom.data.examples import Words
from seqloom.errors import ConfigError
from seqloom.metrics.spans import count_spans
from seqloom.tasks.contract import HeadSettings
from seqloom.tasks.judging import evaluate
from seqloom.tasks.predictions import TagsPrediction

Find = Callable[[str], Any]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def chunks(tags: list[str]) -> set[tuple[int, int, str]]:
    """The spans of BIO tags, told by whether one starts and ends between two neighbours, as conlleval.pl does."""
    found, start = set(), 0
    for place, (before, after) in enumerate(zip(["O", *tags], [*tags, "O"], strict=True)):
        old, new = before.split("-")[-1], after.split("-")[-1]
        inside = before != "O"
        ends = inside and (after == "O" or after.startswith("B") or old != new)
        starts = after != "O" and (after.startswith("B") or not inside or old != new)
        if ends:
            found.add((start, place, old))
        if starts:
            start = place
    return found


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), max_size=12))
def test_spans_are_counted_as_conlleval_counts_them_lawful_or_not(pairs: list[tuple[str, str]]) -> None:
    said, true = [one for one, _ in pairs], [other for _, other in pairs]
    counts = count_spans(said, true)
    assert counts == (len(chunks(said) & chunks(true)), len(chunks(said)), len(chunks(true)))


def test_f1_and_accuracy_are_those_of_plain_counts(small: Find) -> None:
    found = small("conll")
    model, labels = found.model("cnn").eval(), found.task.meaning.schema.labels
    metrics = evaluate(found.task, model, found.batches()).metrics
    right = words = 0
    spans = np.zeros(3)
    for batch in found.batches():
        with torch.no_grad():
            said = model.predict(batch.inputs)
        for row, length in enumerate(batch.inputs.firsts.lengths.tolist()):
            one, other = ([labels[tag] for tag in tags[row, :length].tolist()] for tags in (said, batch.targets))
            right, words = right + sum(a == b for a, b in zip(one, other, strict=True)), words + length
            spans += [len(chunks(one) & chunks(other)), len(chunks(one)), len(chunks(other))]
    assert metrics["accuracy"] == right / words
    assert metrics["f1"] == pytest.approx(2 * spans[0] / (spans[1] + spans[2]))
    assert metrics["recall"] == pytest.approx(spans[0] / spans[2])


def test_tags_that_mark_no_spans_are_judged_by_accuracy(small: Find) -> None:
    spans, plain = small("conll").task, small("conllu").task
    assert (spans.metric.name, plain.metric.name) == ("f1", "accuracy")
    sums = np.arange(1.0, 8.0)
    assert set(spans.measure(sums)) - set(plain.measure(sums)) == {"f1", "precision", "recall"}


def test_a_tag_that_training_never_saw_is_a_word_wrong_and_a_span_missed(written: Callable[..., Any]) -> None:
    train = "Ada B-PER\nmet O\nBo B-PER\n\n" * 6
    small = written("a.conll", train, "Ada B-PER\nsaw O\nNew B-LOC\nYork I-LOC\n\n")
    model = small.model("cnn")
    evaluation = evaluate(small.task, model, small.batches())
    (one,) = evaluation.judged
    words, right, _, _, true, _, weight = one.statistics
    assert one.true.split()[2:] == ["I-?", "I-?"]
    assert (words, true, weight) == (4, 2, 2)
    assert right <= 2
    assert not one.right


def test_spans_of_a_known_text_are_places_in_it_and_quote_it() -> None:
    said = TagsPrediction.of(("B-PER", "I-PER", "O", "B-LOC"), in_scheme=True)
    assert said.to_json()["spans"] == [{"start": 0, "end": 2, "label": "PER"}, {"start": 3, "end": 4, "label": "LOC"}]
    text = Words.join(["Ada", "King", "met", "Rome"], [False, True, True, False])
    first, second = said.located(text).to_json()["spans"]
    assert first == {"start": 0, "end": 7, "label": "PER", "text": "AdaKing"}
    assert text.text[second["start"] : second["end"]] == second["text"] == "Rome"
    assert said.located(np.ones((4, 2))).to_json() == said.to_json()
    assert TagsPrediction.of(("NOUN", "VERB"), in_scheme=False).to_json()["spans"] == []


def test_a_chain_of_tags_is_judged_too_and_its_loss_is_that_of_training(small: Find) -> None:
    found = small("conll")
    labels = found.task.meaning.schema.labels
    made = found.task.model("bilstm", "tiny", HeadSettings())
    config = replace(made, head=CrfHeadConfig(labels=labels, scheme="bio"))
    found.task.require(config)
    with torch.random.fork_rng():
        model = config.build().eval()
    loss = found.task.loss(model, batch := found.batches()[0], None)[0]
    statistics = np.sum([one.statistics for one in found.task.judge(model, batch)], axis=0)
    assert statistics[-2:] == pytest.approx([loss.total.item(), loss.weight.item()], rel=1e-5)
    with pytest.raises(ConfigError, match="another head: crf"):
        found.task.require(replace(made, head=CrfHeadConfig(labels=labels[::-1])))


def test_class_weights_reach_the_head_of_a_tagger(small: Find) -> None:
    task = small("conll").task
    weights = tuple(float(number + 1) for number in range(len(task.meaning.schema.labels)))
    assert task.model("bilstm", "tiny", HeadSettings(0.1, weights)).head.class_weights == weights
    with pytest.raises(ConfigError, match="2 class weights for"):
        task.model("bilstm", "tiny", HeadSettings(class_weights=(1.0, 2.0)))
