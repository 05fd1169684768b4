"""States are those that pass the layers, drawn in their principal plane; probes find what is planted or learned."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge

from inspection_common import subject_of, task_on
from seqloom.config.mixers import RnnConfig
from seqloom.errors import ConfigError, DataError
from seqloom.inspect import states as states_module
from seqloom.inspect.readings import read, scores
from seqloom.inspect.states import RIDGE, depth, layer_states, position, principal, probe, states, thinned
from seqloom.inspect.subject import Reading, Subject
from seqloom.nn.types import Padded
from seqloom.tasks.task import Task

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("data"), "classify")


def test_the_path_is_that_of_the_two_largest_principal_components(task: Task) -> None:
    subject = subject_of(task, "gru")
    reading = read(subject, TEXT)
    view = states(subject, reading)
    _, found = layer_states(subject, reading)
    model = PCA(n_components=2).fit(found)
    theirs = model.transform(found)
    np.testing.assert_allclose(np.abs(view.path), np.abs(theirs), atol=1e-9)
    np.testing.assert_allclose(view.explained_variance, model.explained_variance_ratio_, atol=1e-9)
    np.testing.assert_allclose(view.step_sizes[1:], np.linalg.norm(np.diff(found, axis=0), axis=1))


def test_the_last_state_is_what_the_answer_is_read_from(task: Task) -> None:
    subject = subject_of(task, "lstm")
    reading = read(subject, TEXT)
    _, found = layer_states(subject, reading)
    model: Any = subject.model
    with torch.no_grad():
        answer = model.head.linear(torch.tensor(found[-1]).float())
        torch.testing.assert_close(answer, scores(subject, reading.inputs)[0, 0])


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=1, max_size=80), st.integers(3, 40))
@settings(deadline=None, max_examples=15)
def test_a_thinned_path_keeps_its_order_and_both_its_ends(places: list[tuple[float, float]], most: int) -> None:
    kept = thinned(np.array(places), most)
    assert kept == sorted(set(kept)) and kept[0] == 0 and kept[-1] == len(places) - 1
    assert len(kept) <= max(most, 2) if len(places) > most else len(kept) == len(places)


def test_a_path_that_stands_still_is_drawn_and_a_jump_is_kept(task: Task) -> None:
    path = np.zeros((1_000, 2))
    path[700:] = 5.0
    kept = thinned(path, 20)
    assert {0, 700, 999} <= set(kept)
    plane = principal(np.zeros((4, 3)))
    still, held = plane.path(np.zeros((4, 3))), plane.held(np.zeros((4, 3)))
    assert not still.any() and held == (0.0, 0.0)
    subject = subject_of(task, "cnn")
    assert states(subject, read(subject, "cat")).svg(), "one token is a path too"


@pytest.mark.slow
def test_labels_are_drawn_while_there_is_room_and_a_long_path_says_how_much_is_drawn(task: Task) -> None:
    subject = subject_of(task, "gru")
    short, long = (states(subject, read(subject, " ".join([TEXT] * count))) for count in (1, 100))
    assert ">mat</text>" in short.svg() and ">mat</text>" not in long.svg()
    assert "of 600 states" in long.figures()[0].caption
    assert len(long.to_json()["path"]) == 600


def test_a_model_without_layers_has_no_states(task: Task) -> None:
    subject = subject_of(task, "mlp")
    with pytest.raises(ConfigError, match=r"no states.*gradients, health"):
        states(subject, read(subject, TEXT))


# --- probes ----------------------------------------------------------------------------------------------------------

PLANTED = 3


def brackets(count: int, length: int, seed: int, deepest: int = 6) -> list[str]:
    """Strings of brackets that never close what is not open."""
    draws = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        level, line = 0, []
        for _ in range(length):
            opens = level == 0 or (level < deepest and draws.random() < 0.5)
            level += 1 if opens else -1
            line.append("(" if opens else ")")
        lines.append(" ".join(line))
    return lines


def bracket_subject(folder: Path, recipe: str) -> tuple[Subject, list[Reading]]:
    lines = brackets(24, 20, seed=0)
    subject = subject_of(task_on(folder, "lm", rows=lines), recipe)
    return subject, [read(subject, line) for line in lines]


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> tuple[Subject, list[Reading]]:
    """An untrained GRU, and brackets to read."""
    return bracket_subject(tmp_path_factory.mktemp("brackets"), "gru")


def _plant(monkeypatch: pytest.MonkeyPatch, unit: int) -> None:
    """One unit of the states becomes minus twice the depth, with a tenth of what it was."""

    def planted(subject: Subject, reading: Reading, **options: Any) -> Any:
        place, found = layer_states(subject, reading, **options)
        tracked = np.array(depth([token.text for token in place.tokens]), dtype=float)
        found[:, unit] = -2 * tracked + 0.1 * found[:, unit]
        return place, found

    monkeypatch.setattr(states_module, "layer_states", planted)


@pytest.mark.slow
def test_a_planted_unit_is_found_with_its_sign(
    monkeypatch: pytest.MonkeyPatch, counter: tuple[Subject, list[Reading]]
) -> None:
    _plant(monkeypatch, PLANTED)
    view = probe(*counter, "depth")
    assert view.units[0].unit == PLANTED and view.units[0].correlation < -0.99
    assert view.score > 0.99 and view.best_unit_score > 0.95 and view.control < 0.2
    assert f"unit {PLANTED}" in view.figures()[0].text(80)


def test_an_elman_network_that_counts_by_construction_is_found(tmp_path: Path) -> None:
    """h' = relu(h + x) with x = 1 for an opening and -1 for a closing bracket: the depth itself."""
    subject, readings = bracket_subject(tmp_path, "rnn")
    model: Any = subject.model
    layer = model.decoder.layers[-1]
    width, vocabulary = layer.mixer.width, model.decoder.input.table
    mixer = RnnConfig(activation="relu").build(width)
    with torch.no_grad():
        for weight in mixer.parameters():
            weight.mul_(0.3)
        mixer.hidden_weight[PLANTED] = 0
        mixer.hidden_weight[PLANTED, PLANTED] = 1
        mixer.input_weight[PLANTED] = 0
        mixer.input_weight[PLANTED, 0] = 1
        mixer.input_bias[PLANTED] = mixer.hidden_bias[PLANTED] = 0
        vocabulary[:, 0] = 0
        vocabulary[subject.column("("), 0], vocabulary[subject.column(")"), 0] = 1.0, -1.0
    model.decoder.layers = model.decoder.layers[-1:]
    layer.mixer = mixer
    view = probe(subject, readings, "depth")
    assert view.units[0].unit == PLANTED and view.units[0].correlation == pytest.approx(1, abs=1e-6)
    assert view.best_unit_score > 0.999


@pytest.mark.slow
def test_the_reader_is_ridge_regression_judged_on_whole_readings(counter: tuple[Subject, list[Reading]]) -> None:
    subject, readings = counter
    view = probe(subject, readings, "position", seed=5)
    found = [layer_states(subject, reading)[1] for reading in readings]
    held = set(np.random.default_rng(5).permutation(len(readings))[:7].tolist())  # 30 % of 24
    train = np.concatenate([states for at, states in enumerate(found) if at not in held])
    test = np.concatenate([states for at, states in enumerate(found) if at in held])
    wanted = np.arange(21.0)
    centered = train - train.mean(axis=0)
    strength = RIDGE * np.trace(centered.T @ centered) / train.shape[1]
    reader = Ridge(alpha=strength).fit(train, np.tile(wanted, 17))
    assert view.score == pytest.approx(reader.score(test, np.tile(wanted, 7)), abs=1e-3)


def test_a_unit_that_only_readings_held_out_know_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch, counter: tuple[Subject, list[Reading]]
) -> None:
    """The one that is judged was chosen on the others alone, or the best of many units of noise would look good."""
    subject, readings = counter
    held = set(np.random.default_rng(0).permutation(len(readings))[:7].tolist())  # 30 % of 24
    draws, calls = np.random.default_rng(1), itertools.count()

    def noise(subject: Subject, reading: Reading, **options: Any) -> Any:
        place, found = layer_states(subject, reading, **options)
        found = draws.normal(size=found.shape)
        if next(calls) in held:
            found[:, PLANTED] = 9 * np.arange(len(found))
        return place, found

    monkeypatch.setattr(states_module, "layer_states", noise)
    view = probe(subject, readings, "position")
    assert view.units[0].unit != PLANTED and view.best_unit_score < 0.1
    assert view.num_train == 17 * 21 and f"({view.num_train} training tokens)" in view.sentences()[0]


def test_labels_are_tracked_and_tokens_without_one_are_left_out(counter: tuple[Subject, list[Reading]]) -> None:
    subject, readings = counter

    def kind(tokens: Any) -> list[str | None]:
        return [None if token == "<begin>" else "open" if token == "(" else "shut" for token in tokens]

    view = probe(subject, readings, kind, name="kind")
    assert view.metric == "accuracy" and view.tokens == 24 * 20
    assert view.score > 0.95 and view.control < 0.75
    assert view.to_json()["feature"] == "kind" and view.svg()


@pytest.mark.slow
def test_values_that_do_not_fit_are_refused(counter: tuple[Subject, list[Reading]]) -> None:
    subject, readings = counter
    with pytest.raises(ConfigError, match=r"no feature 'depht'.*depth"):
        probe(subject, readings, "depht")
    with pytest.raises(DataError, match="inputs to hold out, and there is only 1"):
        probe(subject, readings[:1], "depth")
    with pytest.raises(DataError, match="input 1 has 21 tokens, but 2 values were given"):
        probe(subject, readings[:2], [position("x" * 21), [1.0, 2.0]])
    with pytest.raises(DataError, match="the same at every token"):
        probe(subject, readings, lambda tokens: [1.0] * len(tokens))
    with pytest.raises(DataError, match="1 rows of values for 24 inputs"):
        probe(subject, readings, [[1.0]])


@pytest.mark.slow
def test_a_network_that_has_learned_brackets_tracks_their_depth_and_a_shuffled_depth_is_not_found(
    tmp_path: Path,
) -> None:
    lines = brackets(60, 24, seed=0, deepest=3)  # at 0 and at 3 the next bracket is certain: depth is worth knowing
    subject = subject_of(task_on(tmp_path, "lm", rows=lines), "gru")
    values = torch.cat([read(subject, line).inputs.values for line in lines])
    optimizer = torch.optim.Adam(subject.model.parameters(), lr=0.02)
    for _ in range(150):
        found = scores(subject, Padded.of(values))[:, :-1]
        loss = torch.nn.functional.cross_entropy(found.flatten(0, 1), values[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    readings = [read(subject, line) for line in brackets(30, 24, seed=1, deepest=3)]
    view = probe(subject, readings, "depth")
    assert abs(view.units[0].correlation) > 0.75 and view.best_unit_score > 0.55
    assert view.score > 0.7 and view.control < 0.1
