"""Gates are those of an explicit loop over cells, in every direction and layer, and their summaries are true."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from inspection_common import subject_of, task_on
from seqloom.errors import ConfigError, DataError
from seqloom.inspect.gates import GatesView, full_name, gates
from seqloom.inspect.layers import heard, input_of
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Subject
from seqloom.nn.mixers.recurrent import Recurrent, Seeded
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded
from seqloom.tasks.task import Task

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("data"), "classify")


def explicit(layer: Recurrent, values: Tensor) -> dict[str, Tensor]:
    """Gates and states of one layer over [T,D], one element at a time, written down from the equations."""
    width = layer.width
    hidden, cell = torch.zeros(width), torch.zeros(width)
    found: dict[str, list[Tensor]] = {}
    for x in values:
        fed = layer.input_weight @ x + layer.input_bias
        kept = layer.hidden_weight @ hidden + layer.hidden_bias
        if layer.cell.name == "lstm":
            i, f, g, o = (fed + kept).split(width)
            step = {"input": i.sigmoid(), "forget": f.sigmoid(), "candidate": g.tanh(), "output": o.sigmoid()}
            cell = step["forget"] * cell + step["input"] * step["candidate"]
            hidden = step["output"] * cell.tanh()
            step |= {"cell": cell, "hidden": hidden}
        else:
            (fr, fz, fn), (kr, kz, kn) = fed.split(width), kept.split(width)
            step = {"reset": (fr + kr).sigmoid(), "update": (fz + kz).sigmoid()}
            step["candidate"] = (fn + step["reset"] * kn).tanh()
            hidden = (1 - step["update"]) * step["candidate"] + step["update"] * hidden
            step["hidden"] = hidden
        for name, value in step.items():
            found.setdefault(name, []).append(value)
    return {name: torch.stack(parts) for name, parts in found.items()}


def by_hand(subject: Subject, inputs: Any) -> dict[str, dict[str, Tensor]]:
    """The same for every layer and direction of an encoder of plain blocks, elements in the order of the text."""
    encoder: Any = subject.model.encoder
    x = input_of(subject.model, "encoder")(inputs).values[0]
    found = {}
    for number, layer in enumerate(encoder.layers):
        path = f"encoder.layers.{number}.mixer"
        if isinstance(layer.mixer, Recurrent):
            found[path] = explicit(layer.mixer, x)
            x = found[path]["hidden"]
        else:
            found[f"{path}.ahead"] = explicit(layer.mixer.ahead, x)
            back = explicit(layer.mixer.back, x.flip(0))
            found[f"{path}.back"] = {name: value.flip(0) for name, value in back.items()}
            x = torch.cat([found[f"{path}.ahead"]["hidden"], found[f"{path}.back"]["hidden"]], dim=1)
    return found


@pytest.mark.parametrize("recipe", ["lstm", "gru", "bilstm"])
@torch.no_grad()
def test_gates_and_states_are_those_of_a_loop_over_cells(task: Task, recipe: str) -> None:
    subject = subject_of(task, recipe)
    reading = read(subject, TEXT)
    expected = by_hand(subject, reading.inputs)
    assert len(expected) == (4 if recipe == "bilstm" else 2), "several layers, both directions"
    for path, parts in expected.items():
        view = gates(subject, reading, layer=path)
        assert set(view.names) == set(parts)
        for name, values in parts.items():
            np.testing.assert_allclose(view.of(name), values.numpy(), atol=1e-6, err_msg=f"{path} {name}")


def test_the_loop_is_that_of_torch() -> None:
    """The oracle of this file is itself held against another one."""
    from seqloom.config.mixers import LstmConfig

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer, x = LstmConfig().build(5), torch.randn(7, 5)
    cell = nn.LSTM(5, 5)
    with torch.no_grad():
        for theirs, ours in zip(cell.parameters(), layer.parameters(), strict=True):
            theirs.copy_(ours)
        torch.testing.assert_close(explicit(layer, x)["hidden"], cell(x)[0])


@pytest.mark.parametrize("recipe", ["lstm", "bilstm"])
def test_a_row_of_a_padded_or_packed_batch_has_the_gates_that_it_has_alone(task: Task, recipe: str) -> None:
    subject = subject_of(task, recipe)
    long, short = (read(subject, text).inputs for text in (TEXT, "a dog"))
    together = Padded.stack([long.values[0], short.values[0]])
    joined = torch.cat([long.values[0], short.values[0]])[None]
    packed = Padded.of(joined, segments=torch.tensor([[0] * 6 + [1] * 2]))
    path = f"encoder.layers.0.mixer{'.back' if recipe == 'bilstm' else ''}.gates"
    alone = heard(subject, read(subject, "a dog"), [path])[path][0].values[0]
    for batch in (together, packed):
        with torch.no_grad(), recording(subject.model, path) as record:
            subject.model.encoder(batch)  # type: ignore[operator]
        rows = [row[:2] for group in record[path] for row in group.values]  # packed documents are grouped by length
        assert len(rows) == 2 and sum(torch.allclose(row, alone, atol=1e-5) for row in rows) == 1


def _set(subject: Subject, value: float) -> GatesView:
    """The view of an LSTM whose forget gate stands at a value whatever comes."""
    layer: Any = subject.model.encoder.layers[1].mixer  # type: ignore[union-attr, index]
    width = layer.width
    with torch.no_grad():
        for weight in (layer.input_weight, layer.hidden_weight, layer.hidden_bias, layer.input_bias):
            weight[width : 2 * width] = 0
        layer.input_bias[width : 2 * width] = np.log(value / (1 - value))
    return gates(subject, read(subject, TEXT))


@pytest.mark.parametrize(("value", "shut", "open_"), [(0.05, 1.0, 0.0), (0.5, 0.0, 0.0), (0.95, 0.0, 1.0)])
def test_a_gate_that_stands_still_has_the_memory_and_saturation_of_its_place(
    task: Task, value: float, shut: float, open_: float
) -> None:
    view = _set(subject_of(task, "lstm"), value)
    np.testing.assert_allclose(view.memory, 1 / (1 - value), rtol=1e-5)
    (forget,) = (each for each in view.saturation if each.gate == "forget")
    assert (forget.closed, forget.open) == (shut, open_)


def test_units_stand_in_the_order_of_their_memory_and_the_pinned_one_is_exact(task: Task) -> None:
    subject = subject_of(task, "lstm")
    view = gates(subject, read(subject, " ".join([TEXT] * 15)), unit=5)  # 90 tokens: maps and lines
    assert (np.diff(view.memory[view.order]) <= 0).all()
    (pinned,) = (figure for figure in view.figures() if figure.title.startswith("Unit 5"))
    drawn = {series["name"]: series["y"] for series in pinned.data()["series"]}  # type: ignore[attr-defined]
    assert list(drawn) == [full_name(name) for name in view.names]
    np.testing.assert_array_equal(drawn["forget gate"], view.of("forget")[:, 5].tolist())
    (drawn_map,) = [figure for figure in view.figures() if figure.kind == "heat_map"]
    assert drawn_map.title == "Forget gate, encoder layer 1"
    for name in view.names:
        (one,) = replace(view, gate=name).figures()
        assert one.y == tuple(map(float, view.order)) and one.title.startswith(name.capitalize())  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_window_is_the_part_of_the_whole_and_a_long_text_is_pooled_into_means(task: Task) -> None:
    subject = subject_of(task, "gru")
    reading = read(subject, " ".join([TEXT] * 100))
    whole, part = gates(subject, reading), gates(subject, reading, window=(250, 260))
    np.testing.assert_array_equal(part.values, whole.values[:, 250:260])
    assert part.tokens == whole.tokens[250:260]
    told = whole.to_json()
    assert len(told["values"][0]) <= 256 and told["block_size"] == 3
    np.testing.assert_allclose(np.mean(told["values"]), whole.values.mean(), atol=1e-6)  # 600 = 200 blocks of 3
    assert len(told["unit_values"][0]) == 600


@pytest.mark.parametrize("direction", ["ahead", "back"])
def test_the_state_turns_at_the_element_whose_reading_changes_it(task: Task, direction: str) -> None:
    subject = subject_of(task, "bilstm")
    reading, path = read(subject, TEXT), f"encoder.layers.0.mixer.{direction}"
    hidden = by_hand(subject, reading.inputs)[path]["hidden"].detach()
    zero = torch.zeros(1, hidden.shape[1])
    before = torch.cat([zero, hidden[:-1]] if direction == "ahead" else [hidden[1:], zero])
    order = (hidden - before).norm(dim=1).argsort(descending=True).tolist()
    assert list(gates(subject, reading, layer=path).largest_changes) == order[:5]
    assert list(gates(subject, reading, layer=path, window=(2, 5)).largest_changes) == [
        at for at in order if 2 <= at < 5
    ]


def test_the_first_turn_of_a_decoder_is_from_the_state_that_the_source_gives_it(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq")
    reading = read(subject, "the cat sat", target="le chat assis")
    path = next(name for name, part in subject.model.named_modules() if isinstance(part, Seeded))
    seeded: Any = subject.model.get_submodule(path)
    with torch.no_grad():
        for weight in seeded.mixer.parameters():
            weight.zero_()  # an LSTM without weights reads to zero, so only the first reading changes anything
        seeded.seed.bias.fill_(3.0)
    view = gates(subject, reading, side="target", layer=path)
    assert view.largest_changes[0] == 0 and not view.of("hidden").any()


def test_looking_at_gates_changes_nothing(task: Task) -> None:
    subject = subject_of(task, "lstm")
    subject.model.train()
    reading = read(subject, TEXT)
    before = {name: weight.clone() for name, weight in subject.model.state_dict().items()}
    gates(subject, reading)
    assert all(torch.equal(before[name], weight) for name, weight in subject.model.state_dict().items())
    assert all(module.training for module in subject.model.modules())


@pytest.mark.parametrize(
    ("recipe", "there"), [("cnn", "filters, states"), ("transformer", "attention, states"), ("rnn", "states")]
)
def test_a_family_without_gates_is_told_which_views_it_has(task: Task, recipe: str, there: str) -> None:
    subject = subject_of(task, recipe)
    with pytest.raises(ConfigError, match=f"no gates.*{there}, gradients"):
        gates(subject, read(subject, TEXT))


def test_layers_units_and_windows_that_there_are_not_are_refused(task: Task) -> None:
    subject = subject_of(task, "bilstm")
    reading = read(subject, TEXT)
    with pytest.raises(ConfigError, match=r"no layer 4: this model has 4 layers with gates.*3 \(encoder"):
        gates(subject, reading, layer=4)
    with pytest.raises(ConfigError, match=r"no layer 'encoder\.layers\.9'"):
        gates(subject, reading, layer="encoder.layers.9")
    with pytest.raises(ConfigError, match="no unit 99"):
        gates(subject, reading, unit=99)
    with pytest.raises(ConfigError, match="window from 3 to 3 is not inside the text"):
        gates(subject, reading, window=(3, 3))
    with pytest.raises(DataError, match="no side 'target'"):
        gates(subject, reading, side="target")


@pytest.mark.parametrize("direction", ["ahead", "back"])
def test_where_a_long_text_fills_the_state_there_is_no_turn(task: Task, direction: str) -> None:
    subject = subject_of(task, "bilstm")
    path = f"encoder.layers.0.mixer.{direction}"
    view = gates(subject, read(subject, " ".join(["the"] * 100)), layer=path)
    hidden = view.of("hidden") if direction == "ahead" else view.of("hidden")[::-1]
    sizes = np.linalg.norm(np.diff(hidden, axis=0, prepend=np.zeros_like(hidden[:1])), axis=1)
    assert sizes.argmax() == 0 and 0 < view.burn_in < 30  # the first reading, from zero, changes most
    order = [at for at in np.argsort(-sizes, kind="stable") if at >= view.burn_in][:5]
    turns = view.largest_changes if direction == "ahead" else [len(hidden) - 1 - at for at in view.largest_changes]
    np.testing.assert_allclose(sizes[list(turns)], sizes[order], rtol=1e-4)
    assert f"after the first {view.burn_in} tokens" in view.sentences()[-1]
