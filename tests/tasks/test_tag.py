"""Tags and spans, counted by somebody else's rules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from seqeval.metrics import accuracy_score, classification_report
from seqeval.scheme import IOB2

from seqloom.config.heads import CrfHeadConfig
from seqloom.data.kinds.words import Words
from seqloom.errors import ConfigError
from seqloom.metrics.classification import count_by_type, types_of
from seqloom.nn.types import Padded
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.tag import TagsPrediction
from seqloom.tasks.task import HeadSettings

Find = Callable[[str], Any]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def chunks(tags: list[str]) -> set[tuple[int, int, str]]:
    """The spans of BIO tags, told by whether one starts and ends between two neighbors, as conlleval.pl does."""
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
    counts = count_by_type(said, true, types_of(TAGS)).sum(axis=1).tolist()
    assert counts == [len(chunks(said) & chunks(true)), len(chunks(said)), len(chunks(true))]


def test_f1_and_accuracy_are_those_of_plain_counts(small: Find) -> None:
    found = small("conll")
    model, labels = found.model("cnn").eval(), found.task.spec.schema.labels
    metrics = evaluate(found.task, model, found.batches()).metrics
    right = words = 0
    spans = np.zeros(3)
    for batch in found.batches():
        with torch.no_grad():
            said = found.task.chain.best(model.head, model.features(batch.inputs))
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
    measured = [set(task.measure(np.ones(task.statistics))) for task in (spans, plain)]
    assert measured[0] - measured[1] == {"f1", "precision", "recall", "macro_f1"}
    assert {metric.name for metric in spans.metrics} < measured[0]


def test_a_tag_that_training_never_saw_is_a_word_wrong_and_a_span_missed(written: Callable[..., Any]) -> None:
    train = "Ada B-PER\nmet O\nBo B-PER\n\n" * 6
    small = written("a.conll", train, "Ada B-PER\nsaw O\nNew B-LOC\nYork I-LOC\n\n")
    model = small.model("cnn")
    evaluation = evaluate(small.task, model, small.batches())
    (one,) = evaluation.examples
    words, right, *_, weight = one.statistics
    assert one.expected.split()[2:] == ["I-?", "I-?"]
    assert small.task.expected_text(one, ("B-PER", "O", "B-LOC", "I-LOC")) == "B-PER O B-LOC I-LOC"
    assert (words, weight) == (4, 2)
    supports = {kind: row["support"] for kind, row in small.task.by_label(evaluation.statistics).items()}
    assert supports == {"?": 1, "PER": 1}
    assert right <= 2
    assert not one.correct


def test_where_no_span_is_true_and_none_was_said_there_is_no_f1(small: Find) -> None:
    task = small("conll").task
    statistics = np.zeros((2, task.statistics))
    figures = ("f1", "precision", "recall", "macro_f1")
    assert task.undefined(statistics) == dict.fromkeys(figures, "no spans")
    statistics[0, 2 + len(task.types)] = 1.0  # a span was said
    assert task.undefined(statistics) == {}


def test_entities_of_a_known_text_are_places_in_it_and_quote_it() -> None:
    said = TagsPrediction.of(("B-PER", "I-PER", "O", "B-LOC"), in_scheme=True, confidences=(0.9, 0.5))
    assert [tuple(one) for one in said.entities] == [("", "PER", 0, 2, 0.9), ("", "LOC", 3, 4, 0.5)]
    assert said.to_json()["entities"][1] == {"label": "LOC", "start": 3, "end": 4, "confidence": 0.5}
    text = Words.join(["Ada", "King", "met", "Rome"], [False, True, True, False])
    first, second = said.with_input(text).entities
    assert tuple(first) == ("AdaKing", "PER", 0, 7, 0.9)
    assert text.text[second.start : second.end] == second.text == "Rome"
    assert said.with_input(np.ones((4, 2))).to_json() == said.to_json()


def test_plain_tags_have_their_words_with_offsets_and_no_entities() -> None:
    said = TagsPrediction.of(("NOUN", "VERB"), in_scheme=False).with_input(Words("Ada sings", ((0, 3), (4, 9))))
    words = [{"text": "Ada", "start": 0, "end": 3}, {"text": "sings", "start": 4, "end": 9}]
    assert said.to_json() == {"tags": ["NOUN", "VERB"], "words": words}
    assert said.entities == () and "NOUN" in said._repr_html_(), "a table, as of other predictions"


def test_predictions_are_shown_with_their_text_in_one_line() -> None:
    said = TagsPrediction.of(("B-PER", "O", "O"), in_scheme=True)
    assert said.with_input(Words.join(["Anna", "sings\nloud", "!"])).to_text() == "[Anna](PER) sings loud !"
    assert said.to_text() == "B-PER O O"
    plain = TagsPrediction.of(("NOUN", "VERB"), in_scheme=False)
    assert plain.with_input(Words.join(["Anna", "sings"])).to_text() == "Anna/NOUN sings/VERB"


def test_a_notebook_shows_entities_in_color_and_escapes_the_text() -> None:
    said = TagsPrediction.of(("B-PER", "O"), in_scheme=True, confidences=(0.75,), types=("LOC", "PER"))
    shown = said.with_input(Words.join(["<b>Bo</b>", "left"]))._repr_html_() or ""
    assert '<mark class="m1" title="confidence 0.75">&lt;b&gt;Bo&lt;/b&gt;<small>PER</small></mark> left' in shown
    assert "prefers-color-scheme:dark" in shown


def test_a_chain_of_tags_is_judged_too_and_its_loss_is_that_of_training(small: Find) -> None:
    found = small("conll")
    labels = found.task.spec.schema.labels
    config = found.task.model("bilstm", "nano", HeadSettings(kind="crf"))
    assert config.head == CrfHeadConfig(labels=labels, scheme="bio")
    found.task.require(config)
    with torch.random.fork_rng():
        model = config.build().eval()
    loss = found.task.loss(model, batch := found.batches()[0], None)[0]
    statistics = np.sum([one.statistics for one in found.task.evaluate_batch(model, batch, None)[0]], axis=0)
    assert statistics[-2:] == pytest.approx([loss.total.item(), loss.weight.item()], rel=1e-5)
    with pytest.raises(ConfigError, match="the head 'crf' of the model does not fit them"):
        found.task.require(replace(config, head=CrfHeadConfig(labels=labels[::-1])))
    assert found.task.adapted(replace(config, head=CrfHeadConfig(labels=labels[::-1]))) == config


def test_class_weights_reach_the_head_of_a_tagger(small: Find) -> None:
    task = small("conll").task
    weights = tuple(float(number + 1) for number in range(len(task.spec.schema.labels)))
    assert task.model("bilstm", "nano", HeadSettings(0.1, weights)).head.class_weights == weights
    with pytest.raises(ConfigError, match="2 class weights for"):
        task.model("bilstm", "nano", HeadSettings(class_weights=(1.0, 2.0)))


def test_a_chain_of_tags_has_no_single_tags_to_weigh_or_to_smooth(small: Find) -> None:
    task = small("conll").task
    for settings_ in (HeadSettings(label_smoothing=0.1, kind="crf"), HeadSettings(0.0, (1.0,) * 9, "crf")):
        with pytest.raises(ConfigError, match="are for single tags"):
            task.model("bilstm", "nano", settings_)


def test_only_tags_are_chained(small: Find) -> None:
    assert small("conll").task.heads == ("softmax", "crf")
    small("conll").task.check(head="crf")
    with pytest.raises(ConfigError, match="classify has no 'crf' head: a crf scores sequences of tags"):
        small("words with a label").task.check(head="crf")


@pytest.mark.parametrize("kind", ["softmax", "crf"])
def test_the_figures_of_an_evaluation_are_those_of_seqeval(small: Find, kind: Any) -> None:
    found = small("conll")
    model, task = found.model("cnn", HeadSettings(kind=kind)), found.task
    evaluation = evaluate(task, model, found.batches(), keep=10**6)
    said, true = ([getattr(one, side).split() for one in evaluation.examples] for side in ("predicted", "expected"))
    report = classification_report(true, said, output_dict=True, zero_division=0, mode="strict", scheme=IOB2)
    assert evaluation.metrics["f1"] == pytest.approx(report["micro avg"]["f1-score"])
    assert evaluation.metrics["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
    assert evaluation.metrics["accuracy"] == accuracy_score(true, said)
    for label, figures in task.by_label(evaluation.statistics).items():
        assert figures["f1"] == pytest.approx(report[label]["f1-score"])
        assert figures["support"] == report[label]["support"]


@pytest.mark.slow  # the first use of the device without values loads much
def test_on_a_device_that_must_be_waited_for_the_loss_of_a_chain_looks_at_no_value(small: Find) -> None:
    found = small("conll")
    head = found.model("bilstm", HeadSettings(kind="crf")).head.to("meta")  # it has shapes and no values
    x = Padded.of(
        torch.empty(2, 3, head.linear.in_features, device="meta"), torch.empty(2, dtype=torch.int64, device="meta")
    )
    assert head.loss(x, torch.empty(2, 3, dtype=torch.int64, device="meta")).total.shape == ()


def test_a_type_called_as_the_unseen_one_is_not_found_where_something_unseen_stands(
    written: Callable[..., Any],
) -> None:
    train = "Ada B-?\nKing I-?\nmet O\nBo B-PER\n\n" * 6
    small = written("a.conll", train, "Ada B-LOC\nKing I-LOC\nmet O\n\n")
    labels = small.task.spec.schema.labels
    said = [labels.index(tag) for tag in ("I-?", "I-?", "O")]  # read as a span of the known type
    one = small.task._evaluated("0", said, [-1, -1, labels.index("O")], 1.0, 1.0)
    assert small.task.measure(one.statistics)["f1"] == 0
    assert set(small.task.by_label(one.statistics[None])) == {"?", "??"}


def test_the_loss_may_decide_with_and_without_spans(small: Find) -> None:
    for task in (small("conll").task, small("conllu").task):
        assert not task.with_metric("loss").metric.higher_is_better
