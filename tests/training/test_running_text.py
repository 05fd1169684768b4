"""Prose is trained in streams or packs, as the model can, and a trained language model shows what it writes."""

from pathlib import Path

import msgspec
import pytest

import seqloom
from seqloom import recipes
from seqloom.cli.terminal import written_lines
from seqloom.config.data import DataConfig, EncodingConfig
from seqloom.config.tokenizers import CharactersConfig
from seqloom.config.training import ByLengthConfig, PacksConfig, StreamsConfig
from seqloom.recipes.families import RECIPES
from seqloom.tasks.lm import memory_grows
from seqloom.training import written_texts
from seqloom.training.events import Ended, Report, WrittenText, Wrote
from seqloom.training.request import RunRequest
from seqloom.training.resolve import resolve
from seqloom.training.run_folder import RunFolder

WORDS = ("rain", "fell", "over", "old", "hills", "and", "the", "night", "was", "dark")
PARAGRAPHS = [" ".join(WORDS[(n * k) % 10] for k in range(1, 12)) for n in range(60)]


@pytest.fixture
def prose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "prose.txt").write_text("\n\n".join(one.replace(" the ", " the\n") for one in PARAGRAPHS))
    return tmp_path / "prose.txt"


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [("lstm", StreamsConfig), ("rnn", StreamsConfig), ("transformer", PacksConfig), ("cnn", PacksConfig)],
)
def test_prose_is_trained_in_streams_if_the_model_carries_a_state(prose: Path, recipe: str, kind: type) -> None:
    found = resolve(DataConfig(train=(str(prose),)), RunRequest(model=recipe, size="nano"), cache=prose.parent / "c")
    assert isinstance(found.config.training.batching, kind)
    assert found.config.data.reading.unit == "paragraph"
    (line,) = [line for line in found.messages if line.startswith("batching: ")]
    assert line.startswith(f"batching: {found.config.training.batching.kind()}, because the documents are parts of one")


def test_documents_that_stand_alone_are_batched_by_length(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(PARAGRAPHS))
    found = resolve(DataConfig(train=(str(tmp_path / "a.txt"),)), RunRequest(size="nano"), cache=tmp_path / "c")
    assert isinstance(found.config.training.batching, ByLengthConfig)
    assert not any(line.startswith("batching: ") for line in found.messages)


def test_long_documents_are_no_batches_by_length_and_a_line_says_why_and_how_to_have_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(PARAGRAPHS))
    data, encoding = DataConfig(train=(str(tmp_path / "a.txt"),)), EncodingConfig(tokenizer=CharactersConfig())
    found = resolve(data, RunRequest(model="lstm", size="nano", encoding=encoding), cache=tmp_path / "c")
    assert isinstance(found.config.training.batching, StreamsConfig)
    (line,) = [line for line in found.messages if line.startswith("batching: ")]
    longest = max(map(len, PARAGRAPHS))
    assert f"streams, because the longest document has {longest} tokens" in line and "--batching by-length" in line
    asked = RunRequest(model="lstm", size="nano", encoding=encoding, training={"batching": StreamsConfig()})
    assert not any(line.startswith("batching: ") for line in resolve(data, asked, cache=tmp_path / "c").messages)


@pytest.mark.slow
def test_an_evaluation_counts_documents_or_the_pieces_of_streams(prose: Path) -> None:
    for batching, unit in (("streams", "piece"), ("packs", "document")):
        out = prose.parent / batching
        seqloom.train(prose, out=out, model="lstm", size="nano", steps=1, device="cpu", batching=batching)
        found = seqloom.load(out).evaluate()
        assert found.unit == unit and found.report().startswith(f"lm: {found.rows} {unit}s\n")
        assert any("consecutive pieces" in text for text in found.messages) is (unit == "piece")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [name for name, one in RECIPES.items() if "language-model" in one.kinds])
def test_only_models_whose_state_does_not_grow_say_that_they_carry_it(recipe: str) -> None:
    model = recipes.language_model(recipe, vocab_size=9, size="nano")
    assert not (model.carries_state() and memory_grows(model.build()))


@pytest.mark.slow
def test_a_trained_language_model_continues_the_first_words_of_dev_texts(prose: Path) -> None:
    events: list[Report] = []
    run = seqloom.train(
        prose, out=prose.parent / "run", model="lstm", size="nano", steps=4, device="cpu", show=events.append
    )
    assert isinstance(events[-1], Ended) and isinstance(events[-2], Wrote)
    texts = events[-2].texts
    assert len(texts) == 2 and all(one.prompt.split()[0] in WORDS and one.text for one in texts)
    (line,) = [line for line in RunFolder(run.folder).events() if line["kind"] == "texts"]
    assert [one["text"] for one in line["texts"]] == [one.text for one in texts]
    page = (run.folder / "report.html").read_text()
    assert "Texts that the model writes" in page
    lead, quoted, *_ = [line.plain for line in written_lines(events[-2], 10_000)]
    assert lead in page and quoted.startswith(f"│ {texts[0].prompt}|") and f"{texts[0].prompt}|" in page
    hostile = Wrote(1, (WrittenText("", "a\x1b[31m\nb"),))
    assert [line.plain for line in written_lines(hostile, 80)] == ["The model writes:", "│ a\\x1b[31m", "│ b"]
    again: list[Report] = []
    seqloom.train(prose, out=run.folder, device="cpu", show=again.append)
    assert [one.texts for one in again if isinstance(one, Wrote)] == [texts]  # the seed is fixed
    assert seqloom.load(run.folder).generate([texts[0].prompt])


@pytest.mark.slow
def test_a_text_that_ends_at_the_limit_says_so(prose: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last word, which may be incomplete, is left out if there are others: see `whole_words`."""
    monkeypatch.setattr(written_texts, "HOW", msgspec.structs.replace(written_texts.HOW, max_new_tokens=2))
    events: list[Report] = []
    given = {"model": "lstm", "size": "nano", "tokenizer": "characters", "steps": 1, "device": "cpu"}
    seqloom.train(prose, out=prose.parent / "run", **given, show=events.append)
    (wrote,) = [one for one in events if isinstance(one, Wrote)]
    assert wrote.texts and all(one.text.endswith("…") for one in wrote.texts)


@pytest.mark.slow
def test_other_tasks_write_nothing(tmp_path: Path) -> None:
    events: list[Report] = []
    (tmp_path / "a.csv").write_text("text,label\n" + "red,a\nblue,b\n" * 15)
    seqloom.train(
        tmp_path / "a.csv", out=tmp_path / "run", model="bag", size="nano", steps=2, device="cpu", show=events.append
    )
    assert not any(isinstance(one, Wrote) for one in events)


@pytest.mark.parametrize(("name", "content", "kind"), [("a.csv", "source,target\n", "bpe"), ("a.txt", "", "words")])
def test_data_check_encodes_as_training_does(tmp_path: Path, name: str, content: str, kind: str) -> None:
    rows = [f"{one},{one[::-1]}" if content else one for one in PARAGRAPHS]
    (tmp_path / name).write_text(content + "\n".join(rows) + "\n")
    found = resolve(DataConfig(train=(str(tmp_path / name),)), RunRequest(size="nano"), cache=tmp_path / "c")
    checked = seqloom.load_data(tmp_path / name)
    assert found.config.encoding.tokenizer.kind() == kind
    assert checked.tokenizer is not None and checked.tokenizer.config.kind() == kind
