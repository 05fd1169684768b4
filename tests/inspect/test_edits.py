"""An edit does what it says while it lasts, and leaves nothing behind."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from inspection_common import make_paths_differ, subject_of, subject_with, task_on
from seqloom.data.check import load_data
from seqloom.errors import ConfigError, DataError
from seqloom.inspect import what_if
from seqloom.inspect.attention import AttentionView, attention
from seqloom.inspect.attribution.attribution import view_of
from seqloom.inspect.attribution.goals import chosen_goal, ground_of
from seqloom.inspect.attribution.methods import MethodOptions
from seqloom.inspect.differences import AXES, changed, difference
from seqloom.inspect.edits import ablated, attending, carried, clamped, patched
from seqloom.inspect.gates import gates
from seqloom.inspect.inspector import Inspection
from seqloom.inspect.lattice import lattice
from seqloom.inspect.next_tokens import next_tokens
from seqloom.inspect.positions import ExtrapolationView
from seqloom.inspect.readings import read, scores, scores_of_both
from seqloom.inspect.states import layer_states, principal, states
from seqloom.inspect.subject import Reading, Subject
from seqloom.inspect.view import View
from seqloom.inspect.what_if import edited, replaced, swapped
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.attention import weights
from seqloom.nn.taps import recording
from seqloom.nn.types import Padded, Pair
from seqloom.tasks.task import HeadSettings, ModelSpec, Task, task_of

TEXT = "the cat sat on a mat"
ONE = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def classify(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("classify"), "classify")


@pytest.fixture(scope="module")
def reader(classify: Task) -> Subject:
    return subject_of(classify, "transformer")


@pytest.fixture(scope="module")
def memory(classify: Task) -> Subject:
    return subject_of(classify, "lstm")


Edit = Callable[[Subject, Reading], AbstractContextManager[Any]]
OF_HEADS: list[Edit] = [
    lambda subject, _: ablated(subject, layer=0, head=1),
    lambda subject, _: ablated(subject),
    lambda subject, reading: attending(subject, reading, layer=0, head=0, token="sat", weights=ONE),
    lambda subject, reading: patched(subject, reading, read(subject, "a dog ran to the house"), layer=0, at=1),
]
OF_STATES: list[Edit] = [
    lambda subject, _: clamped(subject, unit=3, value=2.0),
    lambda subject, _: clamped(subject, unit=3, value=0.0, gate="input"),
    lambda subject, reading: patched(subject, reading, read(subject, "a dog ran to the house"), at=-1),
    lambda subject, reading: carried(subject, reading, read(subject, "a dog ran to the house"), at=2),
]


@pytest.mark.parametrize(
    ("family", "edit"), [("reader", edit) for edit in OF_HEADS] + [("memory", edit) for edit in OF_STATES]
)
def test_an_edit_changes_the_answer_and_is_gone_afterwards_bit_for_bit(
    request: pytest.FixtureRequest, family: str, edit: Edit
) -> None:
    subject: Subject = request.getfixturevalue(family)
    reading = read(subject, TEXT)
    weights_before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    cells = [part.cell for part in subject.model.modules() if isinstance(part, Recurrent)]
    before = scores(subject, reading.inputs).detach()
    with edit(subject, reading):
        inside = scores(subject, reading.inputs).detach()
    assert not torch.equal(before, inside)
    assert torch.equal(before, scores(subject, reading.inputs))
    assert [part.cell for part in subject.model.modules() if isinstance(part, Recurrent)] == cells
    assert all(torch.equal(value, weights_before[name]) for name, value in subject.model.state_dict().items())


def test_an_edit_that_fails_inside_is_gone_too(memory: Subject) -> None:
    reading = read(memory, TEXT)
    before = scores(memory, reading.inputs)
    with pytest.raises(ZeroDivisionError), clamped(memory, unit=0, value=1.0):
        raise ZeroDivisionError
    assert torch.equal(before, scores(memory, reading.inputs))


def test_the_weights_that_a_layer_has_anyway_change_nothing(reader: Subject) -> None:
    reading = read(reader, TEXT)
    with recording(reader.model, "encoder.layers.0.mixer.weights") as heard:
        before = scores(reader, reading.inputs).detach()
    ((request,),) = heard.values()
    own = weights(request)[0, 1, 3].tolist()
    with attending(reader, reading, layer=0, head=1, token=3, weights=own):
        torch.testing.assert_close(scores(reader, reading.inputs).detach(), before, atol=1e-5, rtol=0)


def test_an_alignment_and_a_pool_read_as_they_are_told(classify: Task, tmp_path: Path) -> None:
    """All weight on one element: the pooled vector is that element."""
    config = classify.model("gru", "nano", HeadSettings())
    pooled = subject_with(classify, msgspec.structs.replace(config, pooling="attention"))
    reading = read(pooled, TEXT)
    with attending(pooled, reading, token=0, weights=ONE):
        one = scores(pooled, reading.inputs).detach()
    torch.testing.assert_close(one, pooled.model.head(_third(pooled, reading)).values)  # type: ignore[operator]
    translator = subject_of(task_on(tmp_path, "translate"), "seq2seq-dot")
    pair = read(translator, "the cat sat", target="le chat")
    before = scores(translator, pair.inputs).detach()
    with attending(translator, pair, token="chat", weights=[0, 0, 1]):
        inside = scores(translator, pair.inputs).detach()
    assert torch.allclose(before[:, 0], inside[:, 0], atol=1e-6) and not torch.allclose(before[:, 1], inside[:, 1])


def _third(subject: Subject, reading: Reading) -> Padded:
    model: Any = subject.model
    return Padded.of(model.encoder(reading.inputs).values[:, 2:3])


def test_a_causal_model_cannot_be_told_to_look_ahead(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "transformer")
    reading = read(subject, "the cat sat")
    with pytest.raises(DataError, match="the mask hides"), attending(subject, reading, token=1, weights=[0, 0, 1, 0]):
        scores(subject, reading.inputs)


def test_of_two_texts_only_the_one_that_is_meant_is_edited(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), "transformer")
    pair, other = (read(subject, texts) for texts in (("the cat", "a dog ran"), ("the cat", "the house was")))
    with (
        patched(subject, pair, other, at=2, side="second", layer=0),
        recording(subject.model, "*.layers.0.output") as heard,
    ):
        scores(subject, pair.inputs)
    ((first, second),) = heard.values()
    with recording(subject.model, "*.layers.0.output") as plain:
        scores(subject, pair.inputs)
    ((one, two),) = plain.values()
    assert torch.equal(first, one)
    assert torch.equal(second[:, :2], two[:, :2]) and not torch.equal(second[:, 2], two[:, 2])


@pytest.mark.parametrize("family", ["transformer", "gru"])
def test_two_texts_take_vectors_from_two_others_and_one_from_one(tmp_path: Path, family: str) -> None:
    subject = subject_of(task_on(tmp_path, "embed"), family)
    pair, one = ("the cat", "a dog ran"), "the house was"
    for given, other, said in ((pair, one, "has 1 text, this one has 2"), (one, pair, "has 2 texts, this one has 1")):
        reading = read(subject, given)
        with pytest.raises(DataError, match=said):
            what_if.patch(subject, reading, other=other, at=0)
        if family == "gru":
            with pytest.raises(DataError, match=said), carried(subject, reading, read(subject, other), at=0):
                pass


def test_a_patch_from_the_same_text_changes_nothing_and_of_all_the_vectors_everything(reader: Subject) -> None:
    reading, other = read(reader, TEXT), read(reader, "the dog sat on a mat")
    before = scores(reader, reading.inputs).detach()
    with patched(reader, reading, reading, layer=0, at="cat"):
        assert torch.equal(scores(reader, reading.inputs), before)
    layers = [patched(reader, reading, other, layer=1, at=at) for at in range(6)]
    with layers[0], layers[1], layers[2], layers[3], layers[4], layers[5]:
        torch.testing.assert_close(scores(reader, reading.inputs), scores(reader, other.inputs))


@pytest.mark.parametrize("recipe", ["lstm", "gru", "rnn"])
def test_a_state_from_another_text_makes_its_beginning_the_beginning(classify: Task, recipe: str) -> None:
    """From the exchanged state on, the layer reads as if the other text had stood before."""
    subject = subject_of(classify, recipe)
    reading, other = read(subject, "the cat sat on a mat"), read(subject, "a big dog on a mat")
    path = next(name for name, part in subject.model.named_modules() if hasattr(part, "hidden_weight"))
    with carried(subject, reading, other, at="sat", layer=path), recording(subject.model, f"{path}.hidden") as heard:
        scores(subject, reading.inputs)
        scores(subject, reading.inputs)  # a second pass counts from its own beginning
        scores(subject, other.inputs)
    ((first, second, whole),) = heard.values()
    assert torch.equal(first, second)
    torch.testing.assert_close(first[0, 2:], whole[0, 2:])
    assert not torch.allclose(first[0, :2], whole[0, :2])


@pytest.mark.parametrize("recipe", ["lstm", "gru"])
@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_a_clamped_gate_stands_at_its_value_in_every_element(classify: Task, recipe: str, value: float) -> None:
    subject = subject_of(classify, recipe)
    reading = read(subject, TEXT)
    with recording(subject.model, "*.gates") as names:
        scores(subject, reading.inputs)
    (path, ((every, _),)) = next(iter(names.items()))
    for place, gate in enumerate(every):
        with (
            clamped(subject, layer=path.removesuffix(".gates"), unit=2, gate=gate, value=value),
            recording(subject.model, path) as heard,
        ):
            scores(subject, reading.inputs)
        ((found,),) = heard.values()
        torch.testing.assert_close(found.values[0, :, place, 2], torch.full((6,), value))


def test_a_forget_gate_at_zero_leaves_nothing_of_the_past(memory: Subject) -> None:
    """With all forget gates shut and no way from state to gates, an element knows only itself."""
    module: Any = next(one for one in memory.model.modules() if hasattr(one, "hidden_weight"))
    kept = module.hidden_weight.detach().clone()
    module.hidden_weight.data.zero_()
    one, other = read(memory, "the cat sat"), read(memory, "a big sat")
    path = next(name for name, part in memory.model.named_modules() if part is module)
    with (
        recording(memory.model, f"{path}.hidden") as heard,
        clamped(memory, unit=1, gate="forget", value=0.0, layer=path),
    ):
        scores(memory, one.inputs)
        scores(memory, other.inputs)
    module.hidden_weight.data.copy_(kept)
    ((first, second),) = heard.values()
    torch.testing.assert_close(first[0, 2, 1], second[0, 2, 1])
    assert not torch.allclose(first[0, 2, 0], second[0, 2, 0])


def test_what_there_is_not_cannot_be_edited(reader: Subject, memory: Subject) -> None:
    reading = read(reader, TEXT)
    wrong: list[tuple[type[Exception], str, AbstractContextManager[Any]]] = [
        (ConfigError, "no head 9", ablated(reader, layer=0, head=9)),
        (ConfigError, "no layer 7", ablated(reader, layer=7)),
        (ConfigError, "has no heads", ablated(memory)),
        (ConfigError, "has no recurrence", clamped(reader, unit=0, value=0.0)),
        (ConfigError, "no unit 999", clamped(memory, unit=999, value=0.0)),
        (ConfigError, "no gate 'forgt'", clamped(memory, unit=0, value=0.0, gate="forgt")),
        (ConfigError, "forget cannot be 3", clamped(memory, unit=0, value=3.0, gate="forget")),
        (DataError, "2 weights for 6 keys", attending(reader, reading, token=0, weights=[1.0, 0.0])),
        (DataError, "not a distribution", attending(reader, reading, token=0, weights=[0.0] * 6)),
        (DataError, "no token is 'dog'", patched(reader, reading, reading, at="dog")),
    ]
    for kind, words, edit in wrong:
        with pytest.raises(kind, match=words), edit:
            pass


def test_a_swap_tells_the_answers_of_both_texts_and_the_difference_of_views(reader: Subject) -> None:
    reading, other = read(reader, TEXT), read(reader, "the dog sat on a mat")
    view = swapped(reader, reading, old="cat", new="dog", views=[attention])
    both = [scores(reader, one.inputs)[0, 0].detach().double().softmax(0) for one in (reading, other)]
    assert view.distance[0] == pytest.approx(float((both[0] - both[1]).abs().sum() / 2), abs=1e-6)
    assert {name: (before, after) for name, before, after in view.answers} == {
        reader.name(at): (pytest.approx(float(both[0][at])), pytest.approx(float(both[1][at]))) for at in range(2)
    }
    seen = [attention(reader, one).values for one in (reading, other)]
    assert seen[0] is not None and seen[1] is not None
    np.testing.assert_allclose(view.differences[0].changes["values"], seen[1] - seen[0], atol=1e-6)
    assert view.differences[0].names["values"][1][1] == "cat → dog"


def test_a_longer_text_is_aligned_by_what_stands_around_the_change(reader: Subject) -> None:
    one, other = (read(reader, text) for text in ("the cat sat on a mat", "the big dog sat on a mat"))
    found = changed(lambda reading: attention(reader, reading), one, other)
    assert found.names["values"][0] == ("the", "∅ → big", "cat → dog", "sat", "on", "a", "mat")
    values = found.changes["values"]
    assert np.isnan(values[1]).all() and np.isnan(values[:, 1]).all() and not np.isnan(values[3, 3])
    after, before = attention(reader, other).values, attention(reader, one).values
    assert after is not None and before is not None
    assert values[6, 3] == pytest.approx(after[6, 3] - before[5, 2], abs=1e-6)


def test_rows_and_columns_are_named_by_their_own_fields_whatever_their_lengths() -> None:
    """As many rows as columns, before and after: only what was said tells the one from the other."""
    before, after = np.arange(9.0).reshape(3, 3), np.full((4, 4), 99.0)
    after[np.ix_([0, 1, 3], [1, 2, 3])] = before
    found = difference(
        _weights(("le", "chat", "."), ("the", "cat", "!"), before),
        _weights(("le", "chat", "bas", "."), ("a", "the", "cat", "!"), after),
    )
    rows, columns = ("le", "chat", "∅ → bas", "."), ("∅ → a", "the", "cat", "!")
    assert found.names["values"] == (rows, columns)
    assert (found.names["entropy"], found.names["received"]) == ((rows,), (columns,))
    assert np.nanmax(np.abs(found.changes["values"])) == 0 and int(np.isnan(found.changes["values"]).sum()) == 7


def _weights(rows: tuple[str, ...], columns: tuple[str, ...], values: np.ndarray) -> AttentionView:
    return AttentionView(
        title="weights",
        layer="one",
        head=0,
        num_heads=1,
        rows=rows,
        columns=columns,
        first_row=0,
        first_column=0,
        values=values,
        pooled=None,
        entropy=np.zeros(len(rows)),
        received=np.zeros(len(columns)),
        links=(),
        excluded=None,
    )


def test_units_are_never_called_by_tokens(memory: Subject) -> None:
    units = len(gates(memory, read(memory, TEXT)).memory)
    one, other = (read(memory, " ".join(["cat"] * (units - 1) + [last])) for last in ("dog", "mat"))
    found = changed(lambda reading: gates(memory, reading), one, other)
    assert found.changes["memory"].shape == (units,) and found.names["memory"] == ((),)
    assert found.names["values"][1][-1] == "dog → mat" and found.names["values"][2] == ()


def test_every_axis_that_a_kind_of_view_declares_is_of_a_field_that_it_has() -> None:
    known: dict[str, set[str]] = {}
    for view in (ExtrapolationView, *View.__subclasses__()):
        known.setdefault(view.kind, set()).update(field.name for field in fields(view))
    for kind, arrays in AXES.items():
        named = {name.split(".")[0] for axes in arrays.values() for name in axes if name is not None}
        assert named | set(arrays) <= known[kind], kind


def test_an_edit_without_effect_has_no_difference(reader: Subject) -> None:
    reading = read(reader, TEXT)
    view = edited(reader, reading, patched(reader, reading, reading, at=0), views=[attention])
    assert view.flipped == () and float(view.distance.max()) == 0
    assert set(view.differences[0].largest.values()) == {0.0}
    with pytest.raises(ConfigError, match="cannot be subtracted"):
        difference(view, attention(reader, reading))


def test_every_row_of_a_language_model_is_compared(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "lstm")
    reading = read(subject, "the cat sat on the mat")
    view = edited(subject, reading, clamped(subject, unit=0, value=1.0), what="Unit 0 at 1", views=[next_tokens])
    assert len(view.distance) == 7 and "Unit 0 at 1" in view.sentences()[0]
    assert {figure.kind for figure in view.figures()} >= {"bars", "strip"}
    assert "surprisal" in view.differences[0].changes
    assert "logs" not in view.differences[0].changes, "they are in order of size: no two belong together"


def test_rows_of_a_text_that_has_grown_are_compared_with_those_of_the_same_token(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "gpt")
    one, other = (read(subject, text) for text in ("the cat sat on the mat", "the big dog sat on the mat"))
    view = swapped(subject, one, old="cat", new="big dog", views=[next_tokens])
    before, after = (scores(subject, each.inputs)[0].detach().double().softmax(-1).numpy() for each in (one, other))
    assert view.rows == ("<begin>", "the", "∅ → big", "cat → dog", "sat", "on", "the", "mat")
    np.testing.assert_allclose(view.distance[3:], np.abs(after[-5:] - before[-5:]).sum(axis=1) / 2, atol=1e-6)
    np.testing.assert_allclose(view.distance[:2], 0, atol=1e-6)
    assert np.isnan(view.distance[2]) and view.predictions[2] == ("∅", subject.name(int(after[2].argmax())))
    assert view.predictions[3] == tuple(subject.name(int(rows[-5].argmax())) for rows in (before, after))
    assert 2 not in view.flipped and "of 7 predictions" in view.sentences()[0]
    assert view.text() and view.svg() and view.to_json()["distance"][2] is None


@pytest.mark.parametrize("target", ["le chat assis", None])
def test_a_swapped_source_is_read_with_the_target_of_before(tmp_path: Path, target: str | None) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq-dot")
    reading = read(subject, "the cat sat", target=target)
    view = swapped(subject, reading, old="cat", new="big dog", views=[attention])
    source = read(subject, "the big dog sat", target="le").inputs.source
    before, after = (
        scores(subject, Pair(each, reading.inputs.target))[0].detach().double().softmax(-1).numpy()
        for each in (reading.inputs.source, source)
    )
    assert view.rows == reading.rows
    np.testing.assert_allclose(view.distance, np.abs(after - before).sum(axis=1) / 2, atol=1e-6)
    assert view.differences[0].names["values"] == (
        attention(subject, reading).rows,
        ("the", "∅ → big", "cat → dog", "sat"),
    )


@pytest.mark.parametrize("kind", ["crf", "class"])
def test_a_swap_of_a_tagger_tells_the_best_paths_and_the_marginals(tmp_path: Path, kind: str) -> None:
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm", kind=kind)
    make_paths_differ(subject)
    one, other = (read(subject, ["the", word, "dog", "sat"]) for word in ("big", "cat"))
    view, both = swapped(subject, one, old="big", new="cat"), [lattice(subject, each) for each in (one, other)]
    assert view.predictions == tuple(zip(both[0].best, both[1].best, strict=True))
    expected = np.abs(both[1].marginals - both[0].marginals).sum(axis=1) / 2
    np.testing.assert_allclose(view.distance, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("he and the heir", "she and the heir"),
        (["so", "he", "said"], ["so", "she", "said"]),
        (("the heir", "he ran"), ("the heir", "she ran")),
    ],
)
def test_a_word_is_replaced_as_a_whole(given: Any, found: Any) -> None:
    assert replaced(given, "he", "she") == found


@pytest.mark.parametrize("given", [[[0.5, 1.0], [1.0, 0.0]], ((0.5, 1.0), (1.0, 0.0)), np.zeros((2, 2)), 5])
def test_what_has_no_words_is_refused_in_words(given: Any) -> None:
    with pytest.raises(DataError, match=r"this input has no words.*swap words of a text"):
        replaced(given, "he", "she")


def test_a_model_of_vectors_lists_no_swap(tmp_path: Path) -> None:
    steps = [[0.5, 1.0], [1.0, 0.0], [2.0, 1.0]]
    rows = [{"vectors": steps, "label": label} for label in ("yes", "no")]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows * 12), encoding="utf-8")
    data = load_data(tmp_path / "a.jsonl", task="classify", input="vectors", target="label")
    inspection = Inspection(subject_of(task_of(ModelSpec.of(data)), "lstm"), steps)
    assert "no words" in inspection.missing()["swap"] and "clamp" in inspection.views()


def test_a_word_that_is_not_there_or_too_often_is_refused() -> None:
    with pytest.raises(DataError, match="the text has no word 'she'"):
        replaced("he ran", "she", "he")
    with pytest.raises(DataError, match="'he' occurs 2 times"):
        replaced("he said he ran", "he", "she")
    assert replaced("he said he ran", "he", "she", at=1) == "he said she ran"


def test_a_swap_explains_the_tags_of_before_on_both_sides(tmp_path: Path) -> None:
    """Else the attribution of some tags would be subtracted from that of others."""
    subject = subject_of(task_on(tmp_path, "tag"), "bilstm")
    given, other = ["the", "cat", "sat", "on", "a", "mat"], ["the", "house", "sat", "on", "a", "mat"]
    reading, first, outside = read(subject, given), subject.column("B-X"), subject.column("O")
    with torch.no_grad():  # the two tags of the word on either side of a tie
        head: Any = subject.model.head
        gaps = [scores(subject, read(subject, one).inputs)[0, 1] for one in (given, other)]
        head.linear.bias[first] -= sum(gap[first] - gap[outside] for gap in gaps) / 2
        head.linear.bias[subject.column("I-X")] -= 100
    view = what_if.swap(subject, reading, old="cat", new="house", views=["attribution"])
    assert 1 in view.flipped
    goal = chosen_goal(subject, reading)
    before, after = (
        np.concatenate(
            [
                part.values
                for part in view_of(ground_of(subject, one), goal, "integrated_gradients", MethodOptions()).parts
            ]
        )
        for one in (reading, read(subject, other))
    )
    np.testing.assert_allclose(view.differences[0].changes["values"], after - before, atol=1e-6)


def test_a_patch_of_a_translation_holds_the_target(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "translate"), "seq2seq-dot")
    reading = read(subject, "the cat sat", target="le chat assis")
    source = read(subject, "a big dog", target="le").inputs.source
    other = reading._replace(inputs=Pair(source, reading.inputs.target))
    before = scores(subject, reading.inputs).detach()
    with patched(subject, reading, other, at=2, side="target"):
        after = scores(subject, reading.inputs).detach()
    view = what_if.patch(subject, reading, other="a big dog", at=2, side="target")
    moved = (after.softmax(-1) - before.softmax(-1)).abs().sum(-1)[0] / 2
    assert moved.max() > 1e-4
    np.testing.assert_allclose(view.distance, moved.numpy(), atol=1e-6)


def test_paths_of_states_are_subtracted_in_one_plane_and_in_no_two(reader: Subject) -> None:
    reading, other = read(reader, "the cat sat on the mat"), read(reader, "the dog sat on the mat")
    view = what_if.swap(reader, reading, old="cat", new="dog", views=["states"])
    (_, before), (_, after) = (layer_states(reader, one) for one in (reading, other))
    plane = principal(before)
    np.testing.assert_allclose(view.differences[0].changes["path"], (after - before) @ plane.directions.T, atol=1e-9)
    apart = difference(states(reader, reading), states(reader, other))
    assert not {"path", "held"} & set(apart.changes) and "step_sizes" in apart.changes


@pytest.mark.parametrize(
    ("recipe", "new"),
    [
        ("transformer", "dog"),
        ("lstm", "big dog"),
        *(
            pytest.param(recipe, new, marks=pytest.mark.slow)
            for recipe in ("transformer", "cnn", "linear-attention")
            for new in ("big dog", "")
        ),
    ],
)
def test_a_swap_near_the_end_reads_the_beginning_once_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str, new: str
) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), recipe)
    words = ["the", "cat", "sat", "on", "a", "mat", "to"] * 40
    one, other = (read(subject, " ".join([*words, *end, *words[:9]])) for end in (["house"], new.split()))
    seen: list[int] = []
    first: Any = subject.model.get_submodule("decoder.input")
    forward = first.forward  # a hook would count as an edit, inside which both are read whole

    def spy(x: Padded) -> Padded:
        seen.append(x.values.shape[1])
        return forward(x)  # type: ignore[no-any-return]

    with monkeypatch.context() as spying:
        spying.setattr(first, "forward", spy)
        found = scores_of_both(subject, one, other)
    assert seen == [1 + len(words), 10, 9 + len(new.split())]  # BEGIN stands first
    for reading, told in zip((one, other), found, strict=True):
        torch.testing.assert_close(told, scores(subject, reading.inputs)[0].detach(), rtol=0, atol=1e-5)
    torch.testing.assert_close(found[0][: len(words)], found[1][: len(words)], rtol=0, atol=0)


def test_a_swap_near_the_beginning_reads_both_texts_whole(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"), "lstm")
    words = ["the", "cat", "sat", "on", "a", "mat", "to"] * 40
    one, other = (read(subject, " ".join([*words[:9], end, *words])) for end in ("house", "dog"))
    for reading, told in zip((one, other), scores_of_both(subject, one, other), strict=True):
        with torch.no_grad():
            torch.testing.assert_close(told, scores(subject, reading.inputs)[0], rtol=0, atol=0)
