"""What a view says in words is what was asked and found: no answer unnamed, no silence about what was not read."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.check import load_data
from seqloom.errors import ConfigError, DataError
from seqloom.inspect import what_if
from seqloom.inspect.attention import attention
from seqloom.inspect.attribution.attribution import attribution
from seqloom.inspect.attribution.pairs import similarity_pairs
from seqloom.inspect.faithfulness.report import faithfulness
from seqloom.inspect.filters import convolution_place, filter_activations
from seqloom.inspect.gradients import gradients
from seqloom.inspect.health import health
from seqloom.inspect.inspector import Inspection
from seqloom.inspect.lattice import lattice
from seqloom.inspect.next_tokens import next_tokens
from seqloom.inspect.picture_filters import activation_maps, picture_filters
from seqloom.inspect.readings import read
from seqloom.inspect.requirements import believable, reason
from seqloom.inspect.states import states
from seqloom.inspect.subject import Subject
from seqloom.report.numbers import number
from seqloom.tasks.task import ModelSpec, Task, task_of

WORDS = ["the", "cat", "sat"]


@pytest.fixture(scope="module")
def classify(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return task_on(tmp_path_factory.mktemp("classify"), "classify", tokenizer=WordsConfig())


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(task_on(tmp_path_factory.mktemp("tag"), "tag"), "bilstm")


def of_pictures(folder: Path, recipe: str) -> Subject:
    np.savez(folder / "p.npz", pictures=np.random.default_rng(0).random((10, 16, 16)), y=np.arange(10) % 2)
    return subject_of(task_of(ModelSpec.of(load_data(folder / "p.npz"))), recipe)


@pytest.mark.parametrize(("recipe", "options"), [("conv2d", {}), ("patch-transformer", {"method": "occlusion"})])
def test_an_attribution_of_pixels_is_not_asked_about_tokens(
    tmp_path: Path, recipe: str, options: dict[str, Any]
) -> None:
    subject = of_pictures(tmp_path, recipe)
    reading = read(subject, np.random.default_rng(1).random((16, 16, 1)))
    with pytest.raises(ConfigError, match="an image has no tokens"):
        faithfulness(subject, reading, adversaries=0, **options)
    assert (reason(believable, subject, reading) is None) == (recipe != "conv2d")


def test_two_words_that_are_read_as_the_same_token_are_said_to_be(classify: Task) -> None:
    subject = subject_of(classify, "bag")
    reading = read(subject, "the cat Jane")
    same = what_if.swap(subject, reading, old="Jane", new="Mary", views=())
    assert any("reads the same tokens" in one and "not in the vocabulary" in one for one in same.sentences())
    assert "the same tokens" in same.svg(), "a picture is passed on without its page"
    other = what_if.swap(subject, reading, old="cat", new="dog", views=())
    assert not any("same tokens" in one for one in other.sentences())


def test_a_vector_of_an_input_that_is_read_the_same_is_said_to_be(classify: Task) -> None:
    subject = subject_of(classify, "transformer")
    reading = read(subject, "the cat Jane")
    same = what_if.patch(subject, reading, other="the cat Mary", at=1)
    assert any("reads the same tokens" in one for one in same.sentences())
    other = what_if.patch(subject, reading, other="the dog Jane", at=1)
    assert not any("same tokens" in one for one in other.sentences())


def test_a_word_is_not_swapped_for_itself(classify: Task) -> None:
    subject = subject_of(classify, "bag")
    with pytest.raises(DataError, match="old and new are the same word, 'cat'"):
        what_if.swap(subject, read(subject, "the cat sat"), old="cat", new="cat")


def test_an_answer_that_was_named_is_named_where_it_is_explained_in_all_rows(tagger: Subject) -> None:
    reading = read(tagger, WORDS)
    named = attribution(tagger, reading, answer="B-X", against="O", method="gradient")
    assert "“B-X” against “O” in all 3 rows together" in named.title
    assert "“B-X” against “O” in all 3 rows together" in named.sentences()[0]
    assert attribution(tagger, reading, method="gradient").answer == "all 3 answers together"
    assert attribution(tagger, read(tagger, WORDS[:2]), method="gradient").answer == "both answers together"


@pytest.mark.parametrize("gold", ["O B-X O", "O,B-X,O", ["O B-X O"], ["O", "B-X", "O"]])
def test_gold_tags_are_written_with_spaces_or_commas(tagger: Subject, gold: Any) -> None:
    view = lattice(tagger, read(tagger, WORDS), gold=gold)
    assert view.gold is not None and [view.tags[tag] for tag in view.gold] == ["O", "B-X", "O"]


def test_too_few_gold_tags_are_told_how_to_be_written(tagger: Subject) -> None:
    with pytest.raises(DataError, match=r"1 gold tag for 3 words.*spaces or commas"):
        lattice(tagger, read(tagger, WORDS), gold="O")


@pytest.mark.slow
def test_a_picture_of_pairs_says_what_they_come_to(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "embed"))
    view = similarity_pairs(subject, read(subject, ("the cat sat", "a dog ran")))
    assert f"All pairs sum to {number(np.nansum(view.values))}" in view.sentences()[0]
    drawn = view.svg()
    assert number(np.nansum(view.values)).replace("-", "\u2212") in drawn and "completeness error" in drawn
    assert "part of the similarity<" not in drawn


def test_each_change_says_in_which_view_it_is(classify: Task) -> None:
    subject = subject_of(classify, "transformer")
    found = what_if.swap(subject, read(subject, "the cat sat"), old="cat", new="dog", views=("attention", "states"))
    said = [one for one in found.sentences() if "argest change" in one]
    assert said and {one.split(".")[0] for one in said} == {"Largest change of attention", "Largest change of states"}


def test_a_layer_of_heads_has_the_name_that_all_views_give_it(classify: Task) -> None:
    subject = subject_of(classify, "transformer")
    reading = read(subject, "the cat sat")
    path = attention(subject, reading, layer=0).layer
    with pytest.raises(ConfigError, match=rf"{path} has \d heads"):
        what_if.ablate(subject, reading, layer=0, head=99)
    with pytest.raises(ConfigError, match=rf"\({path}\)"):
        what_if.ablate(subject, reading, layer=99)
    whole, by_path = (what_if.ablate(subject, reading, layer=one) for one in (0, path))
    assert np.array_equal(whole.distance, by_path.distance)


def test_a_filter_that_is_inactive_is_no_winner(classify: Task) -> None:
    subject = subject_of(classify, "cnn")
    with torch.no_grad():
        for group in convolution_place(subject, read(subject, "the cat"), None, None).module(subject.model).filters:
            group.weight[0], group.bias[0] = 0, -1.0
    view = filter_activations(subject, read(subject, "the big dog ran"))
    silent = [one.filter for one in view.filters if one.is_inactive]
    assert silent
    labels = view.figures()[0].data()["labels"]
    assert not any(label.split(":")[0] in map(str, silent) for label in labels)  # type: ignore[union-attr]
    assert any("inactive here" in one for one in view.sentences())


def test_the_place_of_an_ngram_is_where_it_begins(classify: Task) -> None:
    subject = subject_of(classify, "cnn")
    view = filter_activations(subject, read(subject, "the big dog ran to the mat"))
    for each in (one for one in view.filters if not one.is_inactive):
        assert view.tokens[each.places[0]] == each.tokens[0]
    best = view.filters[0]
    assert view.figures()[0].data()["labels"][0].endswith(f"({best.places[0]})")  # type: ignore[index]


def test_a_picture_filter_that_never_fired_has_no_patches_to_show(tmp_path: Path) -> None:
    subject = of_pictures(tmp_path, "conv2d")
    readings = [read(subject, one) for one in np.random.default_rng(2).random((3, 16, 16, 1))]
    model: Any = subject.model
    with torch.no_grad():
        model.encoder.input.weights[0][2], model.encoder.input.biases[0][2] = 0, -1.0
    view = picture_filters(subject, readings, layer=0)
    assert view.patches[2][0].activation == 0
    assert not [tile for tile in view.figures()[0].tiles if tile.name.startswith("2:")]  # type: ignore[attr-defined]
    seen = activation_maps(subject, readings[0], layer=0)
    assert "2 (0)" not in seen.sentences()[0]
    assert any("filter is inactive" in one or "filters are inactive" in one for one in seen.sentences())
    assert seen.layer in seen.svg()


def test_what_is_drawn_without_a_setting_still_lacks_what_is_never_written(tmp_path: Path) -> None:
    subject = subject_of(task_on(tmp_path, "lm"))
    view = next_tokens(subject, read(subject, "the cat sat"))
    assert "no setting changed" not in view.svg() and "without tokens that are never generated" in view.svg()
    page = view.html()
    assert "model</th>" in page and "with sampling settings</th>" in page


@pytest.mark.slow
def test_one_token_is_nothing_to_compare(tmp_path: Path, classify: Task) -> None:
    subject = subject_of(classify, "transformer")
    one, more = read(subject, "cat"), read(subject, "the cat sat")
    alone = faithfulness(subject, one, permutations=2, adversaries=0)
    assert alone.level == "not measured" and "only one token" in alone.verdict
    both = faithfulness(subject, [one, more], permutations=2, adversaries=0)
    assert both.level != "not measured" and any("1 of 2 inputs has only one token" in s for s in both.sentences())
    reader = subject_of(classify, "lstm")
    told = " ".join(
        (*gradients(reader, read(reader, "cat")).sentences(), *states(reader, read(reader, "cat")).sentences())
    )
    assert "for each element" not in told and "0 %" not in told
    assert "for each element" not in gradients(reader, read(reader, "cat")).svg()


def test_one_is_not_many(tmp_path: Path, classify: Task) -> None:
    subject = subject_of(classify, "transformer")
    reading = read(subject, "cat")
    told = [
        health(subject, [reading]).sentences()[-1],
        what_if.swap(subject, reading, old="cat", new="dog").sentences()[0],
    ]
    told += [Inspection(subject, "cat").told()]
    assert not any(re.search(r"\b1 (readings|answers|tokens)\b", one) for one in told), told
    pictures = of_pictures(tmp_path, "conv2d")
    assert Inspection(pictures, np.zeros((16, 16, 1))).told() == "classify: a picture"


def test_a_picture_of_a_lattice_says_which_tags_are_wrong(tagger: Subject) -> None:
    view = lattice(tagger, read(tagger, WORDS), gold="O B-X O")
    assert "3 tags" in view.svg() and "wrong" in view.svg()
    assert "its predicted tag" in view.svg()
