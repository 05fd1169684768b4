"""Filters are shown by what fires them: sums are those of the layer, planted n-grams are found, gifts add up."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from inspection_common import subject_of, subject_with, task_on
from seqloom.config.mixers import ConvolutionConfig
from seqloom.errors import ConfigError, DataError
from seqloom.inspect import filters as filters_module
from seqloom.inspect.filters import OUTSIDE, banks, convolution_place, filter_activations, filters, reach_before
from seqloom.inspect.layers import heard
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.types import Padded
from seqloom.tasks.task import HeadSettings, Task

WORDS = ("the", "cat", "sat", "on", "mat", "a", "dog", "ran", "to", "big", "house")


def sentences(count: int, length: int, seed: int = 0) -> list[str]:
    draws = np.random.default_rng(seed)
    return [" ".join(draws.choice(WORDS, length)) for _ in range(count)]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("data"), "classify")


@pytest.fixture
def subject(task: Task) -> Subject:
    return subject_of(task, "cnn")


def _readings(subject: Subject, count: int = 12, length: int = 9) -> list[Reading]:
    return [read(subject, line) for line in sentences(count, length)]


@pytest.mark.parametrize(("name", "dilation"), [("classify", 1), ("classify", 2), ("lm", 1)])
def test_sums_of_slots_are_what_the_layer_computes(tmp_path: Path, name: str, dilation: int) -> None:
    task = task_on(tmp_path, name)
    config: Any = task.model("cnn", "nano", HeadSettings())
    stack = "encoder" if name == "classify" else "decoder"
    body = getattr(config, stack)
    mixer = ConvolutionConfig(kernel_sizes=(2, 3, 5), dilation=dilation)
    layers = tuple(msgspec.structs.replace(layer, mixer=mixer) for layer in body.layers)
    config = msgspec.structs.replace(config, **{stack: msgspec.structs.replace(body, layers=layers)})
    subject = subject_with(task, config)
    reading = read(subject, "the cat sat on the mat")
    place = convolution_place(subject, reading, None, None)
    found = banks(subject, reading, place)
    maps = heard(subject, reading, [f"{place.path}.maps"])[f"{place.path}.maps"][0][0]
    np.testing.assert_allclose(np.concatenate([bank.activations for bank in found], axis=1), maps, atol=1e-6)
    module: Any = place.module(subject.model)
    for bank, group in zip(found, module.filters, strict=True):
        rest = bank.sums - bank.slots.sum(axis=2)
        np.testing.assert_allclose(rest, np.tile(group.bias.detach(), (len(rest), 1)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 4_096])
def test_the_strongest_and_lowest_ngrams_are_those_of_a_plain_search(
    monkeypatch: pytest.MonkeyPatch, subject: Subject, at_once: int
) -> None:
    monkeypatch.setattr(filters_module, "AT_ONCE", at_once)
    readings = _readings(subject)
    view = filters(subject, readings, top_k=4)
    place = convolution_place(subject, readings[0], None, None)
    best: dict[int, dict[tuple[str, ...], list[float]]] = {}
    counts: Counter[tuple[str, ...]] = Counter()
    for reading in readings:
        tokens = [token.text for token in reading.side().tokens]
        for bank in banks(subject, reading, place):
            for at in range(len(tokens)):
                window = tuple(tokens[at + o] if 0 <= at + o < len(tokens) else OUTSIDE for o in bank.offsets)
                counts[window] += 1
                for number in range(bank.sums.shape[1]):
                    kept = best.setdefault(bank.first + number, {})
                    kept.setdefault(window, []).append(float(bank.sums[at, number]))
    for one in view.filters:
        order = sorted(best[one.number], key=lambda window: -max(best[one.number][window]))
        assert [each.pre_activation for each in one.strongest] == [
            max(best[one.number][window]) for window in order[:4]
        ]
        lows = sorted(min(found) for found in best[one.number].values())
        assert [each.pre_activation for each in one.lowest] == lows[:4]
        assert all(each.frequency == counts[each.tokens] for each in (*one.strongest, *one.lowest))


def plant(subject: Subject, number: int, words: tuple[str, ...]) -> None:
    """Make a filter the sum of the products with the vectors of these words, one slot each."""
    model: Any = subject.model
    module = model.encoder.layers[0].mixer
    table = model.encoder.input.table.detach()
    tokenizer: Any = subject.task.spec.tokenizer
    tokens = [int(tokenizer.encode_inner([word]).row(0)[0]) for word in words]
    start = 0
    for group in module.filters:
        if start <= number < start + len(group.weight):
            assert group.weight.shape[2] == len(words)
            with torch.no_grad():
                for slot, token in enumerate(tokens):
                    vector = table[token] - table.mean(dim=0)
                    group.weight[number - start, :, slot] = vector / vector.norm()
        start += len(group.weight)


def test_a_planted_ngram_fires_its_filter_most_and_each_slot_adds_its_part(subject: Subject) -> None:
    plant(subject, 1, ("big", "dog", "ran"))
    lines = [*sentences(30, 12), "the big dog ran to the mat"]
    view = filters(subject, [read(subject, line) for line in lines], unit=1)
    one = view.filters[1]
    assert one.strongest[0].tokens == ("big", "dog", "ran") and one.strongest[0].frequency >= 1
    assert min(one.strongest[0].slots) > 0
    shared = [sum(a == b for a, b in zip(each.tokens, ("big", "dog", "ran"), strict=True)) for each in one.lowest]
    assert max(shared) == 0, "what holds it down has no word of it in its place"
    assert "big dog ran" in view.text(100) and "big dog ran" in view.svg()
    assert '">1</td>' in view.html()


def test_gifts_and_the_bias_add_up_to_the_score_and_only_winners_give(subject: Subject) -> None:
    """One layer, the maximum over places, and a linear head: nothing is left out."""
    reading = read(subject, "the big dog ran to the mat")
    model: Any = subject.model
    view = filter_activations(subject, reading, answer="yes")
    column = subject.column("yes")
    assert view.score == pytest.approx(float(scores(subject, reading.inputs)[0, 0, column].detach()), abs=1e-6)
    assert view.total + float(model.head.linear.bias[column].detach()) == pytest.approx(view.score, abs=1e-5)
    place = convolution_place(subject, reading, None, None)
    active = np.concatenate([bank.activations for bank in banks(subject, reading, place)], axis=1)
    weight = model.head.linear.weight[column].detach().numpy()
    for each in view.filters:
        assert each.activation == pytest.approx(active[:, each.filter].max(), abs=1e-6)
        assert each.contribution == pytest.approx(weight[each.filter] * active[:, each.filter].max(), abs=1e-5)
    gifts = [abs(each.contribution) for each in view.filters]
    assert gifts == sorted(gifts, reverse=True)


@pytest.mark.parametrize(("count", "kind"), [(1, "matrix"), (20, "heat_map"), (300, "heat_map")])
def test_what_is_drawn_follows_the_length(subject: Subject, count: int, kind: str) -> None:
    view = filter_activations(subject, read(subject, " ".join(["the cat sat on a mat"] * count)))
    *_, drawn = view.figures()
    assert drawn.kind == kind
    if count == 300:
        peak = max(value for row in drawn.data()["values"] for value in row)  # type: ignore[attr-defined, union-attr]
        assert peak == pytest.approx(view.activations.max()), "pooling keeps the largest"


@pytest.mark.slow
def test_a_deeper_layer_says_how_far_it_sees(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "cnn", size="base")
    readings = _readings(subject, count=2)
    count = sum(1 for name, _ in subject.model.named_modules() if name.endswith(".mixer"))
    assert count > 1
    place = convolution_place(subject, readings[0], 1, None)
    assert reach_before(subject.model, place) == (2, 2)
    view = filters(subject, readings, layer=1)
    assert "2 tokens before and 2 after" in view.figures()[0].caption
    first = filters(subject, readings, layer=0)
    assert first.context == (0, 0)


def test_what_has_no_filters_or_not_those_is_refused(task: Task, subject: Subject) -> None:
    readings = _readings(subject, count=2)
    with pytest.raises(ConfigError, match="no filter 99"):
        filters(subject, readings, unit=99)
    with pytest.raises(ConfigError, match="top_k is 0"):
        filters(subject, readings, top_k=0)
    with pytest.raises(DataError, match="no input was given"):
        filters(subject, [])
    with pytest.raises(ConfigError, match="no layer 7"):
        filter_activations(subject, readings[0], layer=7)
    other = subject_of(task, "gru")
    with pytest.raises(ConfigError, match=r"no filters.*gates, states, gradients"):
        filter_activations(other, read(other, "the cat"))


@pytest.mark.slow
def test_after_training_the_ngram_that_decides_is_what_fires_and_gives_most(tmp_path: Path) -> None:
    """A text is of class yes where "big dog ran" stands in it; the same words apart do not count."""
    draws = np.random.default_rng(0)
    rows = []
    for number in range(160):
        words = [str(word) for word in draws.choice(WORDS, 10)]
        if number % 2:
            words[4:7] = ["big", "dog", "ran"]
        else:
            words[1], words[5], words[8] = "big", "dog", "ran"
        rows.append((" ".join(words), "yes" if number % 2 else "no"))
    subject = subject_of(task_on(tmp_path, "classify", rows=[f"{text},{label}" for text, label in rows]), "cnn")
    values = torch.cat([read(subject, text).inputs.values for text, _ in rows])
    wanted = torch.tensor([subject.column(label) for _, label in rows])
    optimizer = torch.optim.Adam(subject.model.parameters(), lr=0.01)
    for _ in range(80):
        loss = torch.nn.functional.cross_entropy(scores(subject, Padded.of(values))[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    reading = read(subject, "the mat sat to big dog ran on a cat")
    best = filter_activations(subject, reading, answer="yes").filters[0]
    assert best.contribution > 0 and " ".join(best.tokens).count("big dog") == 1
    view = filters(subject, [read(subject, text) for text, _ in rows])
    strong = [each.text for each in view.filters[best.filter].strongest[:3]]
    assert all("big dog" in text or "dog ran" in text for text in strong), strong
