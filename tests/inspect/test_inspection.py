"""One input, every view a method: what is listed works, what is not says why, and options are those of the function."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom.inspect
from inspection_common import subject_of, task_on
from seqloom.errors import ConfigError, DataError, SeqloomError
from seqloom.inspect import inspector
from seqloom.inspect.attribution.attribution import attribution
from seqloom.inspect.edits import ablated
from seqloom.inspect.inspector import VIEWS, Inspection
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import encoding
from seqloom.inspect.view import View
from seqloom.inspect.what_if import replaced

GIVEN: dict[str, Any] = {
    "classify": "the cat sat on a mat",
    "tag": ["the", "big", "dog"],
    "lm": "the cat sat",
    "translate": "the big cat",
    "embed": ("the cat", "a dog ran"),
}
# what a view must be told
NEEDED: dict[str, dict[str, Any]] = {
    "neighbors": {"word": 0},
    "swap": {"old": "the", "new": "a", "at": 0},
    "clamp": {"unit": 0, "value": 1.0},
    "probe": {"feature": "position"},
    "faithfulness": {"permutations": 3, "adversaries": 0},
}


def inspection_of(folder: Path, task: str, recipe: str, given: Any = None) -> Inspection:
    asked = GIVEN[task] if given is None else given
    target = "le chat" if task == "translate" else None  # untrained, it would write for long
    return Inspection(subject_of(task_on(folder, task), recipe), asked, target=target)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "recipe"),
    [
        ("classify", "linear"),
        ("classify", "cnn"),
        ("classify", "rnn"),
        ("classify", "transformer"),
        ("tag", "bilstm"),
        ("lm", "gru"),
        ("translate", "transformer"),
        ("translate", "seq2seq-additive"),
        ("embed", "bag"),
    ],
)
def test_a_view_is_listed_exactly_where_asking_for_it_works(tmp_path: Path, task: str, recipe: str) -> None:
    inspection = inspection_of(tmp_path, task, recipe)
    inspection.data.append(inspection.reading)  # a probe holds one out
    works, fails = set(), {}
    for name in set(VIEWS) - {"edits"}:  # needs an edit, and any model can be edited
        other = {"other": GIVEN[task], "at": 0} if name == "patch" else {}
        try:
            assert isinstance(inspection.view(name, **NEEDED.get(name, {}), **other), View)
            works.add(name)
        except SeqloomError as error:
            fails[name] = error.problem
    assert works == set(inspection.views()) - {"edits"}
    assert set(fails) == set(inspection.missing())


def test_slides_have_one_view_for_each_value_and_go_through_them_without_a_script(tmp_path: Path) -> None:
    inspection = inspection_of(tmp_path, "classify", "transformer")
    slides = inspection.slides("attention", "head", range(2), layer=0)
    alone = [inspection.attention(layer=0, head=head) for head in range(2)]
    assert [view.title for view in slides.views] == [view.title for view in alone]
    page, text = slides.html(), slides.text(100)
    assert page.count('type="radio"') == 2 and "<script" not in page and slides._repr_html_().startswith("<iframe sand")
    assert all(f"head {head}" in page and view.title in text for head, view in enumerate(alone))
    assert slides.to_json()["views"][1] == alone[1].to_json() and repr(slides) == "Slides(attention, head: 0, 1)"
    with pytest.raises(ConfigError, match="there is no head 9"):
        inspection.slides("attention", "head", [0, 9])
    with pytest.raises(ConfigError, match="no values for head"):
        inspection.slides("attention", "head", [])
    with pytest.raises(ConfigError, match="has no option 'heads'"):
        inspection.slides("attention", "heads", [0])


def test_slides_of_long_texts_keep_the_figures_and_leave_out_scripts(tmp_path: Path) -> None:
    inspection = inspection_of(tmp_path, "classify", "transformer", "the cat sat " * 30)
    view = inspection.attention()
    assert "<script" in view.html()
    page = inspection.slides("attention", "layer", [0]).html()
    assert "<script" not in page and page.count("<svg") == len(view.figures())


@pytest.mark.slow
def test_every_view_is_listed_or_missing_with_a_reason(tmp_path: Path) -> None:
    inspection = inspection_of(tmp_path, "classify", "lstm")
    assert sorted({**inspection.views(), **inspection.missing()}) == sorted(VIEWS)
    assert not set(inspection.views()) & set(inspection.missing())
    assert "gates" in inspection.views() and "attention" in inspection.missing()["attention"]
    assert all(name in inspection.text() for name in inspection.views())
    assert inspection._repr_html_().startswith("<iframe sandbox srcdoc=") and "<table" in inspection.html()
    assert inspection.to_json() == {"views": inspection.views(), "missing": inspection.missing()}


def test_a_method_is_the_function_without_what_the_inspection_knows(tmp_path: Path) -> None:
    inspection = inspection_of(tmp_path, "classify", "lstm")
    for name, look in VIEWS.items():
        method, function = getattr(inspection, name), look.function
        assert list(inspect.signature(method).parameters) == list(inspect.signature(function).parameters)[2:]
        assert method.__doc__ == function.__doc__ and method.__doc__


def test_views_of_data_are_of_the_input_and_of_those_around_it(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "classify"), "cnn")
    alone = Inspection(subject, "the cat").filters()
    among = Inspection(subject, "the cat", data=["a big dog ran", "the mat"]).filters()
    assert (alone.inputs, among.inputs) == (1, 3)


def test_what_there_is_not_is_refused_with_what_there_is(tmp_path: Path) -> None:
    inspection = inspection_of(tmp_path, "classify", "lstm")
    with pytest.raises(ConfigError, match=r"no view 'atention'.*'attention'"):
        inspection.view("atention")
    with pytest.raises(ConfigError, match=r"no attention.*gates"):
        inspection.attention()
    with pytest.raises(ConfigError, match=r"layer 7.*0"):
        inspection.gates(layer=7)
    with pytest.raises(ConfigError, match="cannot be compared before and after an edit"):
        inspection.clamp(unit=0, value=0.0, views=["filters"])
    with pytest.raises(ConfigError, match=r"no attention.*leave 'attention' out"):
        inspection.clamp(unit=0, value=0.0, views=["attention"])
    with pytest.raises(DataError, match="the text has no word"):
        inspection.swap(old="zebra", new="cat")


def test_a_swap_explains_the_answer_of_before_on_both_sides(tmp_path: Path) -> None:
    """Else the attribution of one label would be subtracted from that of another."""
    inspection = inspection_of(tmp_path, "classify", "lstm")
    subject, reading = inspection.subject, inspection.reading
    other = Inspection(subject, replaced(reading.given, "cat", "dog")).reading
    with torch.no_grad():  # the two answers on either side of a tie
        gaps = [scores(subject, one.inputs)[0, 0].diff() for one in (reading, other)]
        biases = [
            one for name, one in subject.model.named_parameters() if name.startswith("head") and one.shape == (2,)
        ]
        biases[-1][0] += (gaps[0] + gaps[1])[0] / 2
    view = inspection.swap(old="cat", new="dog")
    assert view.flipped == (0,)
    column = subject.column(view.predictions[0][0])
    before, after = (attribution(subject, one, answer=column).parts[0].values for one in (reading, other))
    np.testing.assert_allclose(view.differences[0].changes["values"], after - before, atol=1e-6)


@pytest.mark.parametrize("name", ["probe", "swap", "neighbors", "patch", "clamp", "edits"])
def test_a_method_without_what_it_needs_says_so_under_its_own_name(tmp_path: Path, name: str) -> None:
    inspection = inspection_of(tmp_path, "classify", "lstm")
    with pytest.raises(ConfigError, match=f"view {name} needs "):
        inspection.view(name)
    with pytest.raises(ConfigError, match=f"view {name} has no option 'lair'.*its options are "):
        inspection.view(name, lair=0)


def test_an_option_that_is_not_named_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"view attribution: .*by name"):
        inspection_of(tmp_path, "classify", "bag").attribution("occlusion")  # type: ignore[call-arg]


@pytest.mark.slow
def test_a_model_may_stand_beside_itself_as_another_seed(tmp_path: Path) -> None:
    """What stands before a layer is held for both, one inside the other."""
    inspection = inspection_of(tmp_path, "classify", "transformer")
    before = scores(inspection.subject, inspection.reading.inputs)
    view = inspection.faithfulness(permutations=2, adversaries=0, other_seeds=[inspection.subject])
    assert view.measure("other seeds: JSD").mean == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(scores(inspection.subject, inspection.reading.inputs), before, rtol=0, atol=0)


def test_trials_leave_the_model_as_it_was(tmp_path: Path) -> None:
    inspection = inspection_of(tmp_path, "lm", "transformer")
    subject, inputs = inspection.subject, inspection.reading.inputs
    before = scores(subject, inputs)
    one = inspection.ablate(layer=0, head=0)
    same = inspection.edits(ablated(subject, layer=0, head=0))
    np.testing.assert_array_equal(one.distance, same.distance)
    assert one.distance.max() > 0
    torch.testing.assert_close(scores(subject, inputs), before, rtol=0, atol=0)


def test_public_names_are_loaded_one_by_one_and_all_exist() -> None:
    for name in seqloom.inspect.__all__:
        assert getattr(seqloom.inspect, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'loom'"):
        seqloom.inspect.loom  # noqa: B018


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "recipe"), [("classify", "lstm"), ("tag", "transformer"), ("translate", "seq2seq-dot")]
)
def test_a_text_that_was_cut_is_told_by_every_view_on_every_surface(tmp_path: Path, task: str, recipe: str) -> None:
    whole = subject_of(task_on(tmp_path, task), recipe)
    short = whole._replace(encode=encoding(whole.task, 2, None, torch.device("cpu")))
    given, target = GIVEN[task], "le chat" if task == "translate" else None
    cut = Inspection(short, given, target=target)
    more = len(given if task == "tag" else given.split()) - 2
    said = f"The input was truncated: the model reads 2 tokens, {more} are left out."
    for name in set(cut.views()) - {"edits", "probe", "patch"}:
        view = cut.view(name, **{**NEEDED.get(name, {}), **({"at": None} if name == "swap" else {})})
        assert any(said in sentence for sentence in view.sentences()), name
        assert said in " ".join(view.text(400).split()) and said in view.html(), name
        assert any(said in note for note in view.to_json()["notes"]), name
    uncut = Inspection(whole, given, target=target)
    assert not uncut.states().notes and not Inspection(whole, given, target=target, data=[given]).health().notes
    assert (
        "2 of 2 inputs were truncated" in Inspection(short, given, target=target, data=[given]).health().sentences()[-1]
    )


def test_what_was_cut_is_found_out_once_for_all_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inspection = Inspection(subject_of(task_on(tmp_path, "classify"), "bag"), "the cat", data=["a dog"] * 3)
    asked = list[int]()
    monkeypatch.setattr(
        inspector, "truncation_notes", lambda _subject, readings: (asked.append(len(readings)), ("cut",))[1]
    )
    for _ in range(2):
        assert inspection.tokenization().notes == inspection.health().notes == ("cut",)
    assert asked == [1, 4]
