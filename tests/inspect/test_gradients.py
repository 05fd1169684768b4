"""Total gradients are those of an unrolled pass; what vanishes, explodes and stays is told apart, for every family."""

import copy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor

from inspection_common import subject_of, subject_with, task_on
from pictures_common import SVG
from seqloom.errors import DataError
from seqloom.inspect import flow as flow_module
from seqloom.inspect import gradients as gradients_module
from seqloom.inspect.flow import unrolled
from seqloom.inspect.gradients import UNDERFLOW, gradients, gradients_compared, stack_flow
from seqloom.inspect.layers import input_of
from seqloom.inspect.readings import read, scores
from seqloom.inspect.subject import Subject, encoding
from seqloom.nn.taps import recording, taps
from seqloom.nn.types import Padded
from seqloom.report.numbers import number as shown
from seqloom.tasks.task import HeadSettings, Task
from seqloom.text.special_tokens import BEGIN

TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("data"), "classify")


def explicit(subject: Subject, inputs: Any, column: int) -> dict[str, list[float]]:
    """|dL/dh_t| and |dL/dc_t| of every layer of an LSTM that is read by its last state, by a loop of one's own."""
    model: Any = subject.model
    x = list(input_of(model, "encoder")(inputs).values[0])
    states: dict[str, list[Tensor]] = {}
    for number, layer in enumerate(model.encoder.layers):
        mixer, hidden = layer.mixer, torch.zeros(layer.mixer.width)
        cell, outputs = torch.zeros_like(hidden), []
        for value in x:
            summed = mixer.input_weight @ value + mixer.input_bias + mixer.hidden_weight @ hidden + mixer.hidden_bias
            i, f, g, o = summed.chunk(4)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
            for part, state in (("hidden", hidden), ("cell", cell)):
                state.retain_grad()
                states.setdefault(f"layer {number} {part}", []).append(state)
            outputs.append(hidden)
        x = outputs
    (model.head.linear(x[-1])[column]).backward()
    found = {name: [0.0 if one.grad is None else float(one.grad.norm()) for one in row] for name, row in states.items()}
    model.zero_grad(set_to_none=True)
    return found


def test_total_gradients_are_those_of_a_loop_over_cells(task: Task) -> None:
    subject = subject_of(task, "lstm")
    reading = read(subject, TEXT)
    view = gradients(subject, reading, answer="yes")
    expected = explicit(subject, reading.inputs, subject.column("yes"))
    found = {each.name: each.norms for each in view.totals if each.part != "vectors"}
    assert set(found) == set(expected)
    for name, norms in expected.items():
        np.testing.assert_allclose(found[name], norms, rtol=1e-4, err_msg=name)


def test_the_gradient_at_the_output_of_a_fused_kernel_is_not_the_total(task: Task) -> None:
    """The trap: a hook on the layer says that nothing comes back to all elements but the last."""
    subject = subject_of(task, "lstm")
    reading = read(subject, TEXT)
    with recording(subject.model, "encoder.layers.1.mixer.hidden") as record:
        score = scores(subject, reading.inputs)[0, 0, 0]
    (slope,) = torch.autograd.grad(score, record["encoder.layers.1.mixer.hidden"][0])
    assert not slope[0, :-1].any()
    (total,) = (each for each in gradients(subject, reading).totals if each.name == "layer 1 hidden")
    assert min(total.norms) > 0


def test_what_is_read_from_the_end_is_told_in_the_order_of_the_text(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    view = gradients(subject, read(subject, TEXT.split()), at=1)
    back = next(each for each in view.totals if each.layer.endswith("1.mixer.back"))
    ahead = next(each for each in view.totals if each.layer.endswith("1.mixer.ahead"))
    assert back.backward and not ahead.backward
    assert not any(back.norms[:1]) and all(back.norms[1:]), "the answer at 1 comes from the end of the text"
    assert all(ahead.norms[:2]) and not any(ahead.norms[2:]), "and from its beginning"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "recipe", "given"),
    [
        ("classify", "transformer", TEXT),
        ("classify", "cnn", TEXT),
        ("classify", "mlp", TEXT),
        ("classify", "linear", TEXT),
        ("lm", "gru", TEXT),
        ("lm", "window", TEXT),
        ("translate", "seq2seq-dot", "a big cat"),
        ("embed", "bilstm", ("the cat", "a dog ran far")),
    ],
)
def test_every_family_has_a_gradient_for_each_element_of_each_side(
    tmp_path: Path, name: str, recipe: str, given: Any
) -> None:
    subject = subject_of(task_on(tmp_path, name), recipe)
    target = "le chat" if name == "translate" else None
    reading = read(subject, given, target=target)
    for side in reading.sides:
        view = gradients(subject, reading, side=side.name)
        assert {len(each.norms) for each in view.totals} == {len(side.tokens)}
        assert any(view.totals[0].norms)
        assert view.svg() and view.text() and view.to_json()["totals"]


@pytest.mark.parametrize("recipe", ["lstm", "transformer"])
def test_two_texts_that_change_places_change_their_gradients_with_them(tmp_path: Path, recipe: str) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), recipe)
    one, other = "the cat", "a dog ran far"
    second = gradients(subject, read(subject, (one, other)), side="second").totals
    first = gradients(subject, read(subject, (other, one)), side="first").totals
    assert len(first) > 2
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.norms, b.norms, rtol=1e-4, atol=1e-7)


def test_the_elements_of_a_target_are_those_that_the_decoder_reads(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq")
    view = gradients(subject, read(subject, "the cat sat", target="le chat assis"), side="target", at=0)
    assert view.tokens == ("<begin>", "le", "chat", "assis")
    first = view.totals[0]
    assert first.norms[0] > 0 and not any(first.norms[1:]), "“le” is said of BEGIN alone"


def test_the_gradient_at_the_vectors_is_that_of_autograd(task: Task) -> None:
    subject = subject_of(task, "transformer")
    reading = read(subject, TEXT)
    column = int(scores(subject, reading.inputs)[0, 0].argmax())
    vectors: Any = []
    handle = input_of(subject.model, "encoder").register_forward_hook(lambda *a: vectors.append(a[2].values))
    score = scores(subject, reading.inputs)[0, 0, column]
    handle.remove()
    (slope,) = torch.autograd.grad(score, vectors[0])
    assert gradients(subject, reading).totals[0].norms == pytest.approx(slope[0].norm(dim=1).tolist(), rel=1e-4)


def rotating(task: Task, radius: float, scale: float = 1e-4) -> Subject:
    """An Elman network of one layer whose matrix from state to state is a rotation times a number, near zero."""
    subject = subject_of(task, "rnn")
    model: Any = subject.model
    model.encoder.layers = model.encoder.layers[:1]
    mixer = model.encoder.layers[0].mixer
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixer.hidden_weight.copy_(radius * torch.nn.init.orthogonal_(torch.empty(mixer.width, mixer.width)))
        mixer.input_bias.zero_()
        mixer.hidden_bias.zero_()
        model.encoder.input.table.mul_(scale)
    return subject


@pytest.mark.parametrize("radius", [0.5, 1.5])
def test_a_radius_of_a_half_vanishes_and_one_and_a_half_explodes(task: Task, radius: float) -> None:
    subject = rotating(task, radius, scale=1e-9)
    view = gradients(subject, read(subject, " ".join([TEXT] * 3)))
    (total,) = (each for each in view.totals if each.part == "hidden")
    assert total.factor == pytest.approx(radius, rel=1e-3)
    (mixer, stack) = view.flows
    assert mixer.radius == pytest.approx(radius, rel=1e-4)
    assert mixer.factor == pytest.approx(radius, rel=1e-2) and stack.factor == pytest.approx(radius, rel=1e-2)
    (first, last) = total.norms[0], total.norms[-1]
    assert (first < 1e-4 * last) if radius < 1 else (first > 1e2 * last)


def test_what_float32_cannot_hold_is_said_and_drawn(task: Task) -> None:
    subject = rotating(task, 0.01)
    view = gradients(subject, read(subject, " ".join([TEXT] * 5)))
    (total,) = (each for each in view.totals if each.part == "hidden")
    lost = sum(norm < UNDERFLOW for norm in total.norms)
    assert lost > 5 and f"the gradient underflows float32 at {lost} of 30 tokens" in " ".join(view.sentences())
    assert "float32 underflow" in view.svg()
    short = gradients(subject, read(subject, TEXT))
    assert "float32 underflow" not in short.svg()
    attention = subject_of(task, "transformer")
    pooled = gradients(attention, read(attention, TEXT))
    assert not any(total.lost for total in pooled.totals)


def test_an_element_that_nothing_comes_back_to_is_not_called_lost(tmp_path: Path) -> None:
    """Of the last layer of a language model only the last element matters to the last answer."""
    subject = subject_of(task_on(tmp_path, "lm"), "transformer")
    view = gradients(subject, read(subject, TEXT))
    assert not any(view.totals[-1].norms[:-1]) and view.totals[-1].norms[-1] > 0
    assert "float32" not in view.svg() + " ".join(view.sentences())


def test_looking_at_gradients_changes_nothing(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    subject.model.train()
    before, draws = copy.deepcopy(subject.model.state_dict()), torch.get_rng_state()
    reading = read(subject, TEXT.split())
    gradients(subject, reading)
    assert torch.equal(draws, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in subject.model.state_dict().items())
    assert all(weight.grad is None for weight in subject.model.parameters())
    assert all(module.training and not module._forward_hooks for module in subject.model.modules())
    assert not any(tap._listeners for tap in taps(subject.model).values())


def test_a_cell_is_put_back_even_if_the_model_fails(task: Task) -> None:
    subject = subject_of(task, "lstm")
    mixer: Any = subject.model.get_submodule("encoder.layers.0.mixer")
    cell = mixer.cell
    with unrolled(subject.model):
        assert mixer.cell is not cell
    with pytest.raises(DataError, match="token 99"), unrolled(subject.model):
        subject.model(Padded.of(torch.tensor([[99]])))
    assert mixer.cell is cell


def test_weights_that_want_no_gradient_are_no_hindrance(task: Task) -> None:
    subject = subject_of(task, "lstm")
    reading = read(subject, TEXT)
    expected = gradients(subject, reading).totals
    subject.model.requires_grad_(False)
    assert gradients(subject, reading).totals == expected


@pytest.mark.slow
def test_models_are_compared_on_one_input_and_each_keeps_its_name(task: Task) -> None:
    subjects = {recipe: subject_of(task, recipe) for recipe in ("rnn", "lstm", "transformer")}
    view = gradients_compared(subjects, TEXT)
    assert [flow.layer for flow in view.flows] == list(subjects)
    words = " ".join("".join(one.itertext()) for one in ElementTree.fromstring(view.svg()).iter(f"{SVG}text"))
    told = [sentence.rstrip(".") for sentence in view.sentences()]
    for flow, one in zip(view.flows, told, strict=True):  # each once, with the last point of its curve
        assert words.count(one.partition(";")[0]) == 1
        assert one.endswith(f"at distance 5 it is {shown(flow.norms[-1] / flow.norms[1])} times that at distance 1")
    assert view.flows[0].norms == stack_flow(subjects["rnn"], read(subjects["rnn"], TEXT)).norms
    with pytest.raises(DataError, match="0 models"):
        gradients_compared({}, TEXT)
    with pytest.raises(DataError, match="fewer than 3 tokens"):
        gradients_compared(subjects, "cat")


def test_a_comparison_says_which_models_read_only_the_first_tokens(task: Task) -> None:
    whole = subject_of(task, "rnn")
    short = whole._replace(encode=encoding(task, 4, None, torch.device("cpu")))
    view = gradients_compared({"whole": whole, "short": short}, TEXT)
    (note,) = view.notes
    assert note == "short: the input was truncated: the model reads 4 tokens, 2 are left out."
    assert note in " ".join(view.text(400).split()) and view.to_json()["notes"] == [note]


def test_hundreds_and_thousands_of_elements_are_drawn_as_maps(task: Task) -> None:
    subject = subject_of(task, "cnn")
    kinds = [figure.kind for figure in gradients(subject, read(subject, " ".join([TEXT] * 30))).figures()]
    assert "heat_map" in kinds and "matrix" not in kinds
    assert "matrix" in [figure.kind for figure in gradients(subject, read(subject, TEXT)).figures()]


def test_each_caption_is_about_its_own_figure(task: Task) -> None:
    subject = subject_of(task, "rnn")
    view = gradients(subject, read(subject, TEXT))
    through_time, by_layer, by_distance = view.figures()
    pieces = view.svg().split(by_layer.title)
    assert "distance" not in "".join(ElementTree.fromstring(view.svg()).itertext()).split(by_layer.title)[0]
    assert len(pieces) > 1 and "distance" not in through_time.caption and "distance" in by_distance.caption
    assert "log10 of norm / smallest norm" in by_layer.title
    assert "atched" not in by_layer.caption, "no gradient is zero here"
    writer = subject_of(task, "transformer")
    last = gradients(writer, read(writer, TEXT))
    zero = any(0 in total.norms for total in last.totals)
    assert ("Hatched: a gradient of zero." in last.figures()[1].caption) == zero


def test_a_stack_of_one_layer_is_one_curve(task: Task) -> None:
    subject = rotating(task, 0.9, scale=1.0)
    view = gradients(subject, read(subject, TEXT))
    assert len(view.flows) == 2 and view.flows[0].norms == pytest.approx(view.flows[1].norms, rel=1e-4)
    (line,) = (figure for figure in view.figures()[1:] if figure.kind == "line")
    assert len(line.series) == 1
    assert sum("distance" in sentence for sentence in view.sentences()) == 1


def test_it_is_said_when_layers_are_measured_on_a_part_of_the_text(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (flow_module, gradients_module):
        monkeypatch.setattr(module, "LONGEST", 5)
    subject = subject_of(task, "cnn")
    said = "Single layers are measured on the first 5 of 6 tokens."
    assert said in gradients(subject, read(subject, TEXT)).sentences()
    assert not any("measured" in each for each in gradients(subject, read(subject, "the cat sat on")).sentences())


# --- what training at a distance does --------------------------------------------------------------------------------

DISTANCE = 8
LETTERS, NOISE = ("a", "b", "c", "d"), ("x", "y", "z")
STEPS = {"rnn": 200, "lstm": 200, "transformer": 80}


@pytest.fixture(scope="module")
def copiers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    """Language models that were taught to say the first word again behind seven others."""
    lines = [" ".join([letter, *(NOISE * 4)[: DISTANCE - 1], letter]) for letter in LETTERS]
    task = task_on(tmp_path_factory.mktemp("copy"), "lm", rows=lines, dev_size=0.0, test_size=0.0)
    return {recipe: _taught(_built(task, recipe), steps) for recipe, steps in STEPS.items()}


def _built(task: Task, recipe: str) -> Subject:
    config: Any = task.model(recipe, "nano", HeadSettings())
    if recipe != "transformer":  # one layer: what is seen is what the cell does
        decoder = msgspec.structs.replace(config.decoder, width=32, repeat=1)
        config = msgspec.structs.replace(config, decoder=decoder)
    return subject_with(task, config, seed=0)


def _drawn(subject: Subject, count: int, draws: torch.Generator) -> tuple[Padded, Tensor]:
    letters, noise = (torch.tensor([subject.column(word) for word in words]) for words in (LETTERS, NOISE))
    tokens = noise[torch.randint(len(noise), (count, DISTANCE + 1), generator=draws)]
    tokens[:, 1] = letters[torch.randint(len(letters), (count,), generator=draws)]
    tokens[:, 0] = BEGIN
    return Padded.of(tokens), tokens[:, 1]


def _taught(subject: Subject, steps: int) -> Subject:
    draws = torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(subject.model.parameters(), lr=0.02)
    for _ in range(steps):
        inputs, wanted = _drawn(subject, 64, draws)
        loss = torch.nn.functional.cross_entropy(scores(subject, inputs)[:, -1], wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(subject.model.parameters(), 1.0)
        optimizer.step()
    subject.model.zero_grad(set_to_none=True)
    return subject


@torch.no_grad()
def _right(subject: Subject) -> float:
    inputs, wanted = _drawn(subject, 200, torch.Generator().manual_seed(9))
    return float((scores(subject, inputs)[:, -1].argmax(dim=-1) == wanted).double().mean())


@pytest.mark.slow
def test_after_copying_at_a_distance_elman_gradients_decay_those_of_an_lstm_far_less_and_those_of_attention_not(
    copiers: dict[str, Subject],
) -> None:
    assert min(_right(copiers["lstm"]), _right(copiers["transformer"])) > 0.95 > _right(copiers["rnn"])
    text = " ".join(["b", *(NOISE * 4)[: DISTANCE - 1]])
    views = {name: gradients(subject, read(subject, text), answer="b") for name, subject in copiers.items()}
    vectors = {name: view.totals[0] for name, view in views.items()}
    left = {name: total.norms[1] / total.norms[-1] for name, total in vectors.items()}  # the first word, behind BEGIN
    assert left["rnn"] < 1e-3 * left["lstm"]
    assert left["transformer"] > 0.3 and vectors["transformer"].factor > 0.95, "it reads the first word at once"
    factors = {f"{name} {total.part}": total.factor for name, view in views.items() for total in view.totals}
    assert factors["rnn hidden"] < 0.7 < 0.8 < factors["lstm cell"]
    far = {flow.layer: flow.left for flow in gradients_compared(copiers, text).flows}
    assert far["rnn"] < 0.01 * far["lstm"] and far["transformer"] > 0.3
