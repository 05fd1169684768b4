"""`seqloom translate`: what Python gives, a line for each source; several texts with scores; refusals with reasons."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bundle_common import make_reviews, make_run
from seqloom.cli import app
from seqloom.config.decoding import BeamConfig, GreedyConfig, SampleConfig
from seqloom.errors import ConfigError, RejectedError
from seqloom.inference.model import load

SOURCES = ["one two", "three, four", "two"]
PAIRS = "source\ttarget\n" + "one two\tEins zwei.\nthree, four\tDrei, vier!\ntwo\tZwei\n" * 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pairs")
    for part in ("train", "dev"):
        (place / f"{part}.tsv").write_text(PAIRS)
    paths = {part: (str(place / f"{part}.tsv"),) for part in ("train", "dev")}
    return make_run(place / "run", "seq2seq-dot", task="translate", **paths)


def said(*arguments: object, given: str | None = None) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"], input=given, env={"COLUMNS": "200"})
    if done.exception is not None:
        raise done.exception
    return done.stdout


@pytest.mark.slow
def test_lines_of_standard_input_and_of_a_file_are_translated_as_python_does(run: Path, tmp_path: Path) -> None:
    lines = "".join(f"{source}\n" for source in SOURCES)
    (tmp_path / "a.txt").write_text(lines)
    wanted = [one.to_text() for one in load(run).translate(SOURCES)]
    assert said("translate", run, given=lines).splitlines() == wanted
    said("translate", run, tmp_path / "a.txt", "--out", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text().splitlines() == wanted


@pytest.mark.slow
def test_files_named_after_languages_are_lines_of_text(run: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.en").write_text("one\ntwo\n")
    said("translate", run, tmp_path / "letters.en", "--out", tmp_path / "letters.de")
    assert (tmp_path / "letters.de").read_text() == said("translate", run, given="one\ntwo\n")
    (tmp_path / "letters.json").write_text('["one"]')
    with pytest.raises(RejectedError, match=r"unknown file extension '\.json'"):
        said("translate", run, tmp_path / "letters.json")


@pytest.mark.slow
@pytest.mark.parametrize("skip", [False, True])
def test_line_n_of_plain_text_is_the_translation_of_line_n(
    run: Path, tmp_path: Path, skip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.inference.prediction.BLOCK_ROWS", 2)
    lines = ["", "one two", "", " ", "three, four", "two", "two", "", ""]
    translated = {source: one.to_text() for source, one in zip(SOURCES, load(run).translate(SOURCES), strict=True)}
    wanted = [translated.get(line, "") for line in lines]
    given = "".join(f"{line}\n" for line in lines)
    for name in ("a.en", "a.txt"):
        (tmp_path / name).write_text(given)
        said("translate", run, tmp_path / name, "--out", tmp_path / "a.de", *["--skip-bad-rows"] * skip)
        assert (tmp_path / "a.de").read_text().split("\n") == [*wanted, ""]
    assert said("translate", run, given=given).split("\n") == [*wanted, ""]
    objects = said("translate", run, "--output-format", "jsonl", given=given).splitlines()
    assert [json.loads(one)["line"] for one in objects] == [2, 5, 6, 7]  # these have the number of their line


@pytest.mark.slow
def test_lines_of_text_are_not_read_with_the_settings_of_the_table_of_training(run: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("one\tEins\ntwo\tZwei\n" * 6)
    columns = ["--no-header", "--input", "1", "--target", "2", "--task", "translate", "--model", "seq2seq-dot"]
    short = ["--size", "nano", "--tokenizer", "words", "--steps", 2, "--out", tmp_path / "run"]
    said("train", tmp_path / "pairs.tsv", *columns, *short)
    for name in ("new.en", "new.txt"):
        (tmp_path / name).write_text("one\ntwo\n")
        done = CliRunner().invoke(app, ["translate", str(tmp_path / "run"), str(tmp_path / name), "--device", "cpu"])
        assert done.exception is None and len(done.stdout.splitlines()) == 2
        assert "as this run did" not in done.stderr
    (tmp_path / "new.tsv").write_text("one\nEins\n")
    done = CliRunner().invoke(app, ["translate", str(tmp_path / "run"), str(tmp_path / "new.tsv"), "--device", "cpu"])
    assert len(done.stdout.splitlines()) == 2
    assert f"reads {tmp_path / 'new.tsv'} as this run did: tsv, no header" in done.stderr


@pytest.mark.slow
def test_files_named_after_languages_have_the_encoding_of_training(tmp_path: Path) -> None:
    lines = "".join(f"très {number}\n" for number in range(12))
    (tmp_path / "train.en").write_bytes(lines.encode("cp1252"))
    (tmp_path / "train.fr").write_bytes(f"é{lines}".encode("cp1252"))
    files = [tmp_path / "train.en", tmp_path / "train.fr", "--encoding", "cp1252", "--model", "seq2seq-dot"]
    said("train", *files, "--size", "nano", "--tokenizer", "words", "--steps", 2, "--out", tmp_path / "run")
    done = CliRunner().invoke(app, ["translate", str(tmp_path / "run"), str(tmp_path / "train.en"), "--device", "cpu"])
    assert done.exception is None and "as this run did: encoding cp1252" in done.stderr


@pytest.mark.slow
def test_several_texts_come_with_their_scores(run: Path) -> None:
    found = [json.loads(line) for line in said("translate", run, "--n-best", 2, given="one two\n").splitlines()]
    (one,) = load(run).translate(["one two"], n_best=2)
    assert found == [{"line": 1} | _near(one.to_json())]
    assert len(found[0]["alternatives"]) == 1


def _near(value: Any) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-4)
    if isinstance(value, dict):
        return {name: _near(one) for name, one in value.items()}
    return [_near(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
def test_a_beam_of_one_is_greedy_and_greedy_is_what_predict_says(run: Path) -> None:
    model = load(run)
    greedy = [one.to_text() for one in model.translate(SOURCES, decoding=GreedyConfig())]
    assert greedy == [one.to_text() for one in model.predict(SOURCES)]
    assert greedy == said("translate", run, "--beam-size", 1, given="\n".join(SOURCES)).splitlines()


@pytest.mark.slow
def test_a_source_draws_the_same_text_alone_among_others_and_in_any_order(run: Path) -> None:
    model, how = load(run), SampleConfig(seed=3, max_new_tokens=12, temperature=2.0)

    def drawn(sources: list[str], **settings: Any) -> list[str]:
        return [one.to_text() for one in model.translate(sources, decoding=how, **settings)]

    together = drawn(SOURCES)
    assert [drawn([source])[0] for source in SOURCES] == together
    assert drawn(SOURCES[::-1]) == together[::-1]
    assert drawn(SOURCES, batch_tokens=1) == together
    assert len(set(together)) == len(SOURCES)  # each draws with numbers of its own


@pytest.mark.slow
def test_figures_of_drawn_texts_do_not_depend_on_batches(run: Path) -> None:
    model, how = load(run), SampleConfig(seed=3, max_new_tokens=12)
    first, *others = (model.evaluate(decoding=how, batch_tokens=tokens).metrics for tokens in (1, 30, 1_000))
    for other in others:
        assert other == pytest.approx(first, rel=1e-4)


def test_unknown_words_are_copied_from_the_source(run: Path) -> None:
    from seqloom.text.special_tokens import UNKNOWN

    model = load(run)
    model.model.head.bias.data[UNKNOWN] = 99.0  # it says nothing else
    (found,) = model.translate(["quark two"], replace_unknown=True, max_new_tokens=3)
    assert len(found.text.split()) == 3
    assert set(found.text.split()) <= {"quark", "two"}
    said("translate", run, "--replace-unknown", given="quark\n")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--output-format", "text", "--n-best", 2), "--output-format jsonl"),
        (("--n-best", 7), "--n-best 7 is more than --beam-size 5.*--beam-size 7, or a lower --n-best"),
        (("--output-format", "xml"), "choose from"),
        (("--out", "new.tsv"), r"written as jsonl, csv or text, not as \.tsv\. Fix: --out new\.txt"),
        (("--out", "new.tsv", "--with-input"), r"Fix: --out new\.jsonl"),
        (("--beam-size", 0), "^--beam-size: expected"),
        (("--max-new-tokens", 0), "^--max-new-tokens: expected"),
        (("--coverage-penalty", -1), "^--coverage-penalty: expected"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(run: Path, options: tuple[Any, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        said("translate", run, *options, given="one\n")


def test_a_length_penalty_without_a_beam_is_refused_by_evaluate() -> None:
    with pytest.raises(ConfigError, match="add --beam-size 5"):
        said("evaluate", "no-such-run", "--length-penalty", 0.6)


@pytest.mark.slow
def test_a_model_of_another_task_is_refused(tmp_path: Path) -> None:
    reviews = make_run(tmp_path / "run", **make_reviews(tmp_path))
    with pytest.raises(ConfigError, match=r"this model cannot translate: its task is classify.*use `seqloom predict`"):
        said("translate", reviews, given="one\n")
    with pytest.raises(ConfigError, match="for models that generate text, but the task of this model is classify"):
        load(reviews).evaluate("no-such-file.csv", decoding=BeamConfig())


def test_generate_names_the_command_of_a_translator(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a language model.*translate\. Fix: use `seqloom translate`"):
        said("generate", run, "one")


@pytest.mark.slow
def test_evaluate_searches_with_a_beam_and_signs_its_scores(run: Path) -> None:
    found = json.loads(said("evaluate", run, "--beam-size", 3, "--length-penalty", 0.6, "--json"))
    wanted = load(run).evaluate(decoding=BeamConfig(beam_size=3, length_penalty=0.6))
    assert found["metrics"] == pytest.approx(wanted.metrics)
    assert found["signatures"] == load(run).task.signatures(wanted.statistics)
    assert "tok:13a" in said("evaluate", run)
