"""`seqloom inspect`: which views there are, one of them, or a line for each row of a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.cli.inspect import only_in_python, options_of, typed, view_settings
from seqloom.data.synthetic.registry import NAMES
from seqloom.errors import ConfigError, SeqloomError
from seqloom.inference.model import load
from seqloom.inspect import view as plain_values
from seqloom.inspect.attribution import attribution as export
from seqloom.inspect.attribution.attribution import AttributionView, attribution
from seqloom.inspect.gradients import gradients_compared
from seqloom.inspect.inspector import VIEWS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reviews")
    return make_run(place / "run", **make_reviews(place))


def look(*arguments: object) -> str:
    """What is printed."""
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments), "--device", "cpu"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_without_a_view_it_says_which_there_are_and_why_not_the_others(run: Path) -> None:
    inspection = load(run).inspect("a good film")
    found = json.loads(look(run, "a good film", "--json"))
    assert set(found["views"]) == set(inspection.views()) - {"edits"}  # which only Python can give
    assert found["missing"] == inspection.missing()
    told = look(run, "a good film")
    assert {*found["views"], *found["missing"]} <= {line.split()[0] for line in told.splitlines() if line.strip()}


@pytest.mark.parametrize("view", [[], ["--view", "tokenization", "--json"]])
def test_words_that_the_vocabulary_lacks_are_named_beside_any_view(run: Path, view: list[str]) -> None:
    def said(text: str) -> str:
        return CliRunner().invoke(app, ["inspect", str(run), text, *view, "--device", "cpu"]).stderr

    assert "not in the vocabulary of the model: 'zebra', 'xylophone'\n" in said("a zebra xylophone zebra")
    assert "'w4' and 2 more" in said("w0 w1 w2 w3 w4 w5 w6")
    assert "vocabulary" not in said("a good film")


def test_a_view_is_that_of_python(run: Path, tmp_path: Path) -> None:
    found = json.loads(look(run, "a good film", "--view", "attribution", "--method", "occlusion", "--json"))
    assert found == load(run).inspect("a good film").attribution(method="occlusion").to_json()
    assert "Attribution of" in look(run, "a good film", "--view", "attribution", "--answer", "bad")
    look(run, "a good film", "--view", "tokenization", "--out", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text())["kind"] == "tokenization"


def test_the_gradients_of_several_runs_are_compared(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", **make_reviews(tmp_path))
    asked = ["a good film about the sea", "--view", "gradients", "--compare", other]
    found = json.loads(look(run, *asked, "--json"))
    subjects = {"run": load(run).subject, "other": load(other).subject}
    assert found == gradients_compared(subjects, asked[0]).to_json()
    assert [flow["layer"] for flow in found["flows"]] == ["run", "other"]
    with pytest.raises(ConfigError, match="--compare is only for the view gradients"):
        look(run, "a good film", "--view", "attribution", "--compare", other)
    with pytest.raises(ConfigError, match="no option 'answer'"):
        look(run, *asked, "--answer", "bad")
    with pytest.raises(ConfigError, match="--compare needs a view"):
        look(run, "a good film", "--compare", other)


def test_each_compared_run_is_loaded_once(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other, loads = make_run(tmp_path / "other", **make_reviews(tmp_path)), list[Path]()
    monkeypatch.setattr("seqloom.cli.inspect.load_on", lambda path, _device: (loads.append(path), load(path))[1])
    look(run, "a good film about the sea", "--view", "gradients", "--compare", other, "--json")
    assert loads == [run, other]


def test_json_has_every_number_where_the_whole_is_asked_for(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_values, "MOST_NUMBERS", 2)
    asked = [run, "a good film", "--view", "attribution", "--method", "occlusion"]
    assert "in_blocks" in json.loads(look(*asked, "--json"))
    view = load(run).inspect("a good film").attribution(method="occlusion")
    assert json.loads(look(*asked, "--json", "--full")) == view.to_json(full=True)
    look(*asked, "--full", "--out", tmp_path / "a.json")
    assert json.loads((tmp_path / "a.json").read_text()) == view.to_json(full=True)


def test_the_command_that_is_advised_for_how_far_to_believe_a_picture_tells_it(run: Path) -> None:
    asked = [run, "a good film", "--view"]
    advised = look(*asked, "attribution", "--method", "occlusion").split("Faithfulness not measured (")[1]
    assert " ".join(advised.split()).startswith("the view faithfulness measures it, with method=NAME)")
    quick = ["--set", "permutations=2", "--set", "adversaries=0"]
    assert "faithful" in look(*asked, "faithfulness", "--set", "method=occlusion", *quick)


def test_a_file_gives_the_input_and_the_inputs_around_it(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a good film\nbad\n")
    whole = json.loads(look(run, "--data", tmp_path / "a.txt", "--view", "tokenization", "--json"))
    assert whole["input"] == "a good film"
    around = load(run).inspect("bad", data=["a good film", "bad"]).health()
    assert json.loads(look(run, "bad", "--data", tmp_path / "a.txt", "--view", "health", "--json")) == around.to_json()


def test_every_row_of_a_file_is_a_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a good film\nbad\n")
    look(
        run, "--data", tmp_path / "a.txt", "--view", "attribution", "--method", "occlusion", "-o", tmp_path / "a.jsonl"
    )
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [line["sides"][0]["tokens"] for line in lines] == [["a", "good", "film"], ["bad"]]
    assert {line["method"] for line in lines} == {"occlusion"}


def test_data_may_be_the_name_of_a_set(run: Path) -> None:
    first = next(NAMES["reviews"].examples("dev")).input
    assert (
        json.loads(look(run, "--data", "reviews", "--limit", 1, "--view", "tokenization", "--json"))["input"] == first
    )


def test_a_model_without_attention_is_asked_about_an_attribution(run: Path) -> None:
    asked = ["a good film", "--view", "faithfulness", "--set", "permutations=2", "--json"]
    assert json.loads(look(run, *asked))["explanation"] == "Attribution by integrated gradients"
    by_method = json.loads(look(run, *asked, "--method", "occlusion"))
    assert by_method["explanation"] == "Attribution by occlusion"
    values = load(run).inspect("a good film").attribution(method="occlusion").parts[0].values
    assert by_method["examples"][0]["scores"]["explanation"] == pytest.approx(values.tolist())


def test_a_file_that_was_stopped_half_way_leaves_what_was_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a good film\nbad\n")
    (tmp_path / "a.jsonl").write_text("before")

    def stop(*given: Any, **options: Any) -> AttributionView:
        if given[1].given == "bad":
            raise KeyboardInterrupt
        return attribution(*given, **options)

    monkeypatch.setattr(export, "attribution", stop)
    asked = [run, "--data", tmp_path / "a.txt", "--view", "attribution", "--out", tmp_path / "a.jsonl"]
    done = CliRunner().invoke(app, ["inspect", *map(str, asked), "--device", "cpu"])
    assert done.exit_code == 130
    assert (tmp_path / "a.jsonl").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.txt"]


def test_bad_rows_of_a_file_are_refused_before_any_is_explained(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_text("text\na good film\n   \n")
    monkeypatch.setattr(export, "attribution", None)  # not called
    with pytest.raises(SeqloomError, match=r"a\.csv:3"):
        look(run, "--data", tmp_path / "a.csv", "--view", "attribution", "--out", tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "--view", "atention"], "no view 'atention'.*'attention'"),
        (["a", "--view", "attribution", "--head", "1"], "attribution has no option 'head'.*method"),
        (["a", "--view", "attribution", "--set", "steps=many"], "steps is 'many'.*a number"),
        (["a", "--view", "attribution", "--set", "steps"], "is not NAME=VALUE"),
        (["a", "--view", "swap", "--set", "old=a"], "needs new.*--set new="),
        (["a", "--view", "edits"], "only in Python"),
        (["a", "--view", "probe"], "needs feature.*--set feature="),
        (["a", "--view", "probe", "--set", "feature=depht"], "no feature 'depht'.*'depth'"),
        (["a", "--view", "probe", "--set", "feature=depth"], "there is only 1.*--data FILE"),
        (["a", "good", "film", "--view", "tokenization"], 'reads one text, but 3 were given.*"a good film"'),
        (["--data", "reviws"], "there is no file or dataset of this name.*'reviews'"),
        (["--data", "pictures"], "'pictures' has pictures, but the model reads one text"),
        (["a", "--layer", "1"], "layer needs a view"),
        (["--view", "tokenization"], "there is no input"),
        (["a", "--view", "tokenization", "--full"], "--full is only for the JSON of a view"),
        (["a", "--view", "tokenization", "--full", "--out", "a.svg"], "--full is only for the JSON of a view"),
        (["a", "--json", "--full"], "--full is only for the JSON of a view"),
        (["a", "--view", "tokenization", "--out", "a.pdf"], "cannot be written as 'a.pdf'.*html"),
        (["a", "--view", "tokenization", "--out", "no/where/a.png"], "no folder no/where"),
        (["a", "--view", "attribution", "--out", "a.jsonl"], "one line for each row.*--data FILE"),
        (["a", "--view", "attribution", "--target", "b"], "target is only for translation"),
        (["a", "--view", "attribution", "--answer", "maybe"], "no answer 'maybe'"),
        (["a", "--view", "attention"], "no attention.*choose one of its views"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(run: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(SeqloomError, match=f"(?s){said}"):
        look(run, *arguments)


def test_options_are_read_from_the_signatures_of_all_views() -> None:
    assert [name for name, one in VIEWS.items() if only_in_python(one.function)] == ["edits"]
    for name, one in VIEWS.items():
        assert all(option.said for option in options_of(one.function).values()), name


def test_a_label_that_is_a_number_is_asked_about_by_its_name(tmp_path: Path) -> None:
    rows = "".join(f"a {word} film,{stars}\n" for word, stars in (("bad", 2), ("fair", 3), ("good", 1)) * 4)
    (tmp_path / "a.csv").write_text(f"text,label\n{rows}")
    make_run(tmp_path / "run", train=(str(tmp_path / "a.csv"),), task="classify")
    for label in "123":
        found = json.loads(look(tmp_path / "run", "a film", "--view", "attribution", "--answer", label, "--json"))
        assert found["label"] == label
    with pytest.raises(SeqloomError, match="no answer '4'"):
        look(tmp_path / "run", "a film", "--view", "attribution", "--answer", "4")


@pytest.mark.slow
def test_most_says_how_many_rows_of_a_file_are_written(run: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a good film\nbad\n" * 150)
    for most, count in (((), 300), (("--limit", 3), 3)):
        look(run, "--data", tmp_path / "a.txt", "--view", "attribution", "--out", tmp_path / "w.jsonl", *most)
        assert (tmp_path / "w.jsonl").read_text().count("\n") == count


def sample(
    subject: object, reading: object, *, a: int | str, b: tuple[int, int] | None = None, c: bool = False
) -> None:
    """Options of several kinds."""


def called(subject: object, reading: object, *, answer: str | int | None = None) -> None:
    """What is called by a name."""


def listed(subject: object, reading: object, *, names: Sequence[str] | None = None, share: float = 0.5) -> None:
    """More of them."""


def test_a_text_becomes_what_the_function_takes() -> None:
    assert typed("x", sample, {"a": "-1", "b": "3:9", "c": "yes"}) == {"a": -1, "b": (3, 9), "c": True}
    assert typed("x", sample, {"a": "cat"}) == {"a": "cat"}
    assert typed("x", called, {"answer": "1"}) == {"answer": "1"}
    assert typed("x", listed, {"names": "p,q", "share": "1e-3"}) == {"names": ["p", "q"], "share": 0.001}
    for wrong in ({"a": "1", "b": "3"}, {"a": "1", "c": "maybe"}):
        with pytest.raises(ConfigError, match=r"(b|c) is '(3|maybe)'"):
            typed("x", sample, wrong)
    with pytest.raises(ConfigError, match="set twice"):
        view_settings(["a=1", "a=2"])
