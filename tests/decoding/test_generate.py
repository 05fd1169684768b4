"""`LoadedModel.generate` and `stream`: prompts of any lengths, in order, whatever the batches."""

from pathlib import Path
from typing import Any

import pytest

from bundle_common import make_reviews, make_run
from seqloom.config.decoding import BeamConfig, GreedyConfig, SampleConfig, decoding
from seqloom.errors import ConfigError, DataError, RejectedError
from seqloom.inference.model import LoadedModel, load

LINES = "once upon a time there was a cat\nthe cat sat on the mat\nonce more the cat sat\n"
PROMPTS = ["once upon", "", "the cat sat on the", "once", "once", "a"]


def make_language_model(place: Path, recipe: str = "lstm") -> Path:
    (place / "lines.txt").write_text(LINES)
    return make_run(place / recipe, recipe, train=(str(place / "lines.txt"),), task="lm")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load(make_language_model(tmp_path_factory.mktemp("lm")))


def texts(answers: Any) -> list[list[str]]:
    return [[one.text for one in row] for row in answers]


@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 1.5, "num_samples": 2, "seed": 3}, {"beam_size": 3, "n_best": 2}],
    ids=["greedy", "some", "beam"],
)
def test_answers_come_in_the_order_of_the_prompts_whatever_the_batches(model: LoadedModel, settings: Any) -> None:
    together = texts(model.generate(PROMPTS, max_new_tokens=6, **settings))
    assert texts(model.generate(PROMPTS, max_new_tokens=6, batch_tokens=1, **settings)) == together
    assert {len(row) for row in together} == {2 if settings else 1}


def test_an_answer_says_how_likely_it_is_and_why_it_ended(model: LoadedModel) -> None:
    ((answer,),) = model.generate(["once"], max_new_tokens=3)
    assert answer.to_json().keys() == {"text", "score", "finish_reason"}
    assert answer.to_json()["score"] < 0
    assert answer.to_json()["finish_reason"] in ("end", "length")


def test_equal_prompts_draw_different_answers(model: LoadedModel) -> None:
    answers = texts(model.generate(["once"] * 4, temperature=2.0, max_new_tokens=8))
    assert len({row[0] for row in answers}) > 1


def test_a_stream_gives_the_same_text(model: LoadedModel) -> None:
    for how in (GreedyConfig(max_new_tokens=9), SampleConfig(max_new_tokens=9, seed=5)):
        ((answer,),) = model.generate(["once upon"], decoding=how)
        assert "".join(model.stream("once upon", decoding=how)) == answer.text


@pytest.mark.parametrize("prompt", ["zebra", "zebra xylophone", "the zebra"])
def test_what_follows_an_unknown_word_has_its_space(model: LoadedModel, prompt: str) -> None:
    (answers,) = model.generate([prompt], max_new_tokens=3, temperature=2.0, num_samples=6)
    said = [text for (text,) in texts([[one] for one in answers]) if text]
    assert said and said == [f" {' '.join(text.split())}" for text in said]
    assert "".join(model.stream(prompt, max_new_tokens=3, temperature=2.0)) == answers[0].text


def test_predict_goes_on_as_generate_does(model: LoadedModel) -> None:
    predicted = [one.to_json()["text"] for one in model.predict(["once upon", "the"])]
    assert [[text] for text in predicted] == texts(model.generate(["once upon", "the"]))


def test_a_sampling_task_predicts_the_same_however_batches_are_cut(model: LoadedModel) -> None:
    task = model.task
    try:
        model.task = task.writing(SampleConfig(temperature=2.0, max_new_tokens=6))
        together = [one.to_json() for one in model.predict(["once upon", "the", "a cat"])]
        assert [one.to_json() for one in model.predict(["once upon", "the", "a cat"], batch_tokens=1)] == together
    finally:
        model.task = task


def test_prompts_beyond_the_last_position_are_refused_by_number_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpt = load(make_language_model(tmp_path, "gpt"))
    monkeypatch.setattr(gpt.task.__class__, "continued", None)
    with pytest.raises(RejectedError) as refused:
        gpt.generate(["once", "cat " * 1_100, "cat", "cat " * 1_024])
    said = str(refused.value)
    assert (
        "prompts:2: seq.too_long: the input has 1,100 tokens or steps, but the model has only 1,023 learned positions"
        in said
    )
    assert (
        "prompts:4: seq.too_long: the input has 1,024 tokens or steps" in said
        and "prompts:3" not in said
        and "--" not in said
    )
    with pytest.raises(DataError, match="positions"):
        gpt.stream("cat " * 1_100)


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        ("once", "a list"),
        (["once", 7], "prompt 2 is not a string but int"),
        (["\ud800"], "prompt 1.*surrogate"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(model: LoadedModel, prompts: Any, said: str) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        model.generate(prompts)


def test_no_prompt_gives_no_answer(model: LoadedModel) -> None:
    assert model.generate([]) == []


def test_a_model_that_writes_no_text_is_refused_with_the_reason(tmp_path: Path) -> None:
    classifier = load(make_run(tmp_path / "run", **make_reviews(tmp_path)))
    for ask in (lambda: classifier.generate(["a"]), lambda: classifier.stream("a")):
        with pytest.raises(ConfigError, match="needs a language model, but the task of this model is classify"):
            ask()


def test_settings_choose_the_simplest_way_that_has_them_all() -> None:
    assert decoding({"max_new_tokens": 3, "stop": ("a",)}) == GreedyConfig(max_new_tokens=3, stop=("a",))
    assert decoding({"top_k": 3, "repetition_penalty": 1.2}) == SampleConfig(top_k=3, repetition_penalty=1.2)
    assert decoding({"n_best": 2}) == BeamConfig(n_best=2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0.5, "beam_size": 3}, r"sampling \(temperature\) and of beam search \(beam_size\)"),
        ({"temprature": 0.5}, "Did you mean 'temperature'"),
        ({"temperature": 0.0}, r"temperature is 0.*greedy"),
        ({"n_best": 9, "beam_size": 3}, "n_best 9 is more than beam_size 3"),
        ({"decoding": GreedyConfig(), "max_new_tokens": 3}, "both decoding and max_new_tokens"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(model: LoadedModel, settings: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model.generate(["a"], **settings)
