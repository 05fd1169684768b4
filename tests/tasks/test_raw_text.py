"""Taggers read raw text: the same entities as for its words, with offsets in the original, and a confidence."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import seqloom
from bundle_common import make_run
from seqloom.bundle import Bundle, bundle_files, read_bundle
from seqloom.cli import app
from seqloom.config.data import ReadingConfig
from seqloom.errors import DamagedError
from seqloom.files.folders import commit_folder
from seqloom.inference.model import LoadedModel
from seqloom.metrics.classification import NO_SPAN, confused_types, count_by_type
from seqloom.nn.ops import crf
from seqloom.tasks.tag import Tag, TagsPrediction

SENTENCES = """\
Yesterday/O John/B-PER Smith/I-PER ,/O of/O Acme/B-ORG Corp./I-ORG ,/O visited/O Paris/B-LOC ./O
Ann/B-PER Lee/I-PER did/O n't/O leave/O Rome/B-LOC ,/O and/O Bo/B-PER is/O n't/O here/O ./O
Mr./O Jones/B-PER of/O Bank/B-ORG Inc./I-ORG left/O London/B-LOC ./O"""
RAW = "Yesterday John Smith, of Acme Corp., visited Paris."
TOKENIZED = "Yesterday John Smith , of Acme Corp. , visited Paris ."


def conll(folder: Path, text: str = SENTENCES) -> dict[str, tuple[str, ...]]:
    rows = (line.replace(" ", "\n").replace("/", " ") for line in text.splitlines())
    found = {part: (str(folder / f"{part}.conll"),) for part in ("train", "dev")}
    data = "\n\n".join(rows) + "\n"
    for part, (path,) in found.items():
        Path(path).write_text(data if part == "train" else f"{data}\nBo B-PER\n")
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    return make_run(folder / "run", "bilstm", **conll(folder))


@pytest.fixture(scope="module")
def model(run: Path) -> LoadedModel:
    return seqloom.load(run)


def one(model: LoadedModel, text: object) -> TagsPrediction:
    (found,) = model.predict([text])
    assert isinstance(found, TagsPrediction)
    return found


def test_raw_text_has_the_entities_of_its_words_with_its_own_offsets(model: LoadedModel) -> None:
    raw, apart, listed = one(model, RAW), one(model, TOKENIZED), one(model, TOKENIZED.split())
    assert raw.tags == apart.tags == listed.tags
    assert raw.words is not None and raw.words.words() == TOKENIZED.split()
    assert raw.entities, "an untrained model marks something here"
    for mine, other in zip(raw.entities, listed.entities, strict=True):
        assert RAW[mine.start : mine.end] == mine.text
        assert mine.text.replace(",", " ,").replace("Paris.", "Paris .") == other.text
        assert (mine.label, mine.confidence) == (other.label, pytest.approx(other.confidence))


def test_words_that_are_given_one_by_one_are_never_split(model: LoadedModel) -> None:
    assert len(one(model, ["Paris.", "isn't", "big"]).tags) == 3


def test_a_folder_without_words_json_splits_at_spaces_as_before(run: Path, tmp_path: Path) -> None:
    bundle = read_bundle(run / "model")
    assert bundle.spec.splitter is not None
    old = Bundle(bundle.config, bundle.spec._replace(splitter=None), bundle.weights, bundle.notes)
    files = bundle_files(old, "# A card\n")
    assert "words.json" not in files
    commit_folder(tmp_path / "old", files)
    assert len(one(seqloom.load(tmp_path / "old"), RAW).tags) == len(RAW.split())


def test_words_json_belongs_to_its_weights(run: Path, tmp_path: Path) -> None:
    bundle = read_bundle(run / "model")
    files = bundle_files(bundle, "# A card\n")
    assert json.loads(files["words.json"])["suffixes"] == ["n't"]
    commit_folder(tmp_path / "other", files | {"words.json": b"{}"})
    with pytest.raises(DamagedError, match=r"words\.json: the weights should have sha256"):
        seqloom.load(tmp_path / "other")


@pytest.mark.slow
def test_the_command_line_takes_a_sentence_a_file_of_lines_and_standard_input(run: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text(f"{RAW}\n{RAW}\n")
    call = CliRunner().invoke
    sentence = call(app, ["predict", str(run), RAW, "--device", "cpu"])
    lines = call(app, ["predict", str(run), str(tmp_path / "lines.txt"), "--device", "cpu"])
    stream = call(app, ["predict", str(run), "-", "--device", "cpu"], input=f"{RAW}\n")
    assert sentence.stdout == stream.stdout == lines.stdout.splitlines(keepends=True)[0]
    found = json.loads(sentence.stdout)
    assert [word["text"] for word in found["words"]] == TOKENIZED.split()
    for entity in found["entities"]:
        assert RAW[entity["start"] : entity["end"]] == entity["text"]
        assert 0 < entity["confidence"] <= 1 and entity["label"] in ("LOC", "ORG", "PER")
    (tmp_path / "raw.conll").write_text(f"{RAW}\nBo left London.\n")  # read as the training file was
    refused = call(app, ["predict", str(run), str(tmp_path / "raw.conll"), "--device", "cpu"])
    assert "--format text" in refused.stderr + str(refused.exception)
    text = call(app, ["predict", str(run), RAW, "--output-format", "text", "--device", "cpu"]).stdout
    assert text.count("](") == len(found["entities"])


@pytest.mark.slow
@pytest.mark.parametrize("line", ['["Bo", "Smith, Jr.", "left"]', '{"tokens": ["Bo", "Smith, Jr.", "left"]}'])
def test_words_as_json_are_not_split(run: Path, line: str) -> None:
    call = CliRunner().invoke
    argument = call(app, ["predict", str(run), line, "--device", "cpu"])
    stream = call(app, ["predict", str(run), "-", "--device", "cpu"], input=f"{line}\n{RAW}\n")
    first, second = map(json.loads, stream.stdout.splitlines())
    assert [word["text"] for word in first["words"]] == ["Bo", "Smith, Jr.", "left"]
    assert json.loads(argument.stdout) == first
    assert [word["text"] for word in second["words"]] == TOKENIZED.split(), "a text is still split"


@pytest.mark.slow
def test_a_txt_file_for_a_tagger_of_txt_files_may_have_sentences_or_words_with_its_tags(tmp_path: Path) -> None:
    for part, (path,) in conll(tmp_path).items():
        Path(path).rename(tmp_path / f"{part}.txt")
    data = {part: (str(tmp_path / f"{part}.txt"),) for part in ("train", "dev")}
    run = make_run(tmp_path / "run", "bilstm", **data, reading=ReadingConfig(format="conll"))
    new, found = tmp_path / "new.txt", list[list[str]]()
    for content in ("Bo left the USA", "Hello Ann !\nBye Ann !", "Bo B-PER\nleft O"):
        new.write_text(content)
        predicted = CliRunner().invoke(app, ["predict", str(run), str(new), "--device", "cpu"]).stdout.splitlines()
        found += [[word["text"] for word in json.loads(line)["words"]] for line in predicted]
    assert found == [["Bo", "left", "the", "USA"], ["Hello", "Ann", "!"], ["Bye", "Ann", "!"], ["Bo", "left"]]


@pytest.mark.slow
def test_a_table_in_the_format_of_training_keeps_the_words_of_its_cells(tmp_path: Path) -> None:
    """Training and evaluation split cells at spaces, so predictions have as many tags as the file has words."""
    call, words = CliRunner().invoke, "Ann met Bo. at 12:30 , e.g. here ."
    rows = [line.split() for line in SENTENCES.splitlines()] * 4
    cells = [tuple(" ".join(one.split("/")[at] for one in row) for at in (0, 1)) for row in rows]
    text = {
        "csv": "tokens,tags\n" + "".join(f'"{words}",{tags}\n' for words, tags in cells),
        "jsonl": "".join(json.dumps({"tokens": words, "tags": tags}) + "\n" for words, tags in cells),
    }
    new = {"csv": f'tokens,raw\n"{words}","{words}"\n', "jsonl": json.dumps({"tokens": words, "raw": words}) + "\n"}
    for kind, content in text.items():
        data, run = tmp_path / f"train.{kind}", tmp_path / f"run-{kind}"
        data.write_text(content)
        (tmp_path / f"dev.{kind}").write_text(content)
        make_run(run, "bilstm", train=(str(data),), dev=(str(tmp_path / f"dev.{kind}"),), task="tag")
        for other, row in new.items():
            (tmp_path / f"new.{other}").write_text(row)
        (tmp_path / "new.txt").write_text(f"{words}\n")

        def tagged(source: str, *options: str, run: Path = run, **given: str) -> int:
            asked = ["predict", str(run), source, *options, "--device", "cpu"]
            return len(json.loads(call(app, asked, catch_exceptions=False, **given).stdout)["tags"])

        kept, raw = len(words.split()), tagged(words)
        assert raw > kept
        assert tagged(str(tmp_path / f"new.{kind}")) == kept
        assert tagged(str(tmp_path / "new.txt")) == tagged("-", input=f"{words}\n") == raw
        assert tagged(str(tmp_path / f"new.{kind}"), "--input", "raw") == raw  # training read another column
        other = "csv" if kind == "jsonl" else "jsonl"
        assert tagged(str(tmp_path / f"new.{other}")) == raw
        piped = tagged("-", "--format", "jsonl", input=new["jsonl"])
        assert piped == (kept if kind == "jsonl" else raw)


def test_a_missing_file_with_a_space_in_its_name_is_no_text(run: Path) -> None:
    result = CliRunner().invoke(app, ["predict", str(run), "my lines.txt", "--device", "cpu"])
    assert result.exit_code and "there is no such file" in result.output + str(result.exception)


@pytest.mark.parametrize("kind", ["softmax", "crf"])
def test_the_confidence_of_a_span_is_its_share_of_all_paths(kind: str, run: Path) -> None:
    """Two rows of different length, all paths written out; the tags of a softmax head are independent."""
    labels, times = ("O", "B-X", "I-X"), (4, 3)
    draws = torch.Generator().manual_seed(1)
    scores = torch.randn(2, 4, 3, generator=draws)
    legal = crf.legal_transitions(labels, "bio")
    free = tuple(torch.ones_like(part) for part in legal)
    between = torch.randn(3, 3, generator=draws) * (kind == "crf")
    ends = torch.randn(2, 3, generator=draws) * (kind == "crf")
    moves = crf.Transitions(ends[0], between, ends[1], *(legal if kind == "crf" else free))
    wanted = [[crf.SpanScore(1, stop, (1, 2)[: stop - 1], (2,)) for stop in (2, 3)] for _ in times]
    found = crf.span_probabilities(scores, torch.tensor(times), moves, wanted)
    for row, time in enumerate(times):
        total = dict.fromkeys((0, 2, 3), 0.0)
        for path in product(range(3), repeat=time):
            tags, lengths = torch.tensor([path]), torch.tensor([time])
            weight = float(crf.path_score(scores[row : row + 1, :time], tags, lengths, moves).double().exp())
            total[0] += weight
            for stop in (2, 3):
                if path[1:stop] == (1, 2)[: stop - 1] and (stop == time or path[stop] != 2):
                    total[stop] += weight
        assert found[row] == pytest.approx([total[stop] / total[0] for stop in (2, 3)], rel=1e-5)


def test_the_confidence_of_independent_tags_is_a_product(model: LoadedModel) -> None:
    """Of the probabilities of the tags inside, and of not going on behind."""
    said, task = one(model, RAW), model.task
    assert isinstance(task, Tag) and said.spans is not None
    labels, encoder = task.spec.schema.labels, model.subject
    inputs = encoder.encode(RAW)
    with torch.no_grad():
        shares = model.model(inputs).values[0].softmax(dim=-1)  # [T,K]
    for span, entity in zip(said.spans, said.entities, strict=True):
        expected = 1.0
        for at in range(span.start, span.stop):
            expected *= float(shares[at, labels.index(said.tags[at])])
        if span.stop < len(said.tags):
            expected *= 1 - float(shares[span.stop, labels.index(f"I-{span.label}")])
        assert entity.confidence == pytest.approx(expected, rel=1e-4)


TAGS = st.lists(st.tuples(*[st.sampled_from(["O", "B-A", "I-A", "B-B", "I-B"])] * 2), max_size=10)


@given(TAGS)
def test_each_span_is_in_one_pair_of_types_and_correct_ones_on_the_diagonal(pairs: list[tuple[str, str]]) -> None:
    said, true = [a for a, _ in pairs], [b for _, b in pairs]
    found = confused_types(said, true)
    correct, predicted, expected = count_by_type(said, true, ("A", "B")).tolist()
    for at, kind in enumerate(("A", "B")):
        assert sum(one == kind for one, _ in found) == expected[at]
        assert sum(other == kind for _, other in found) == predicted[at]
        assert found.count((kind, kind)) >= correct[at]
    assert (NO_SPAN, NO_SPAN) not in found


def test_equal_boundaries_are_paired_before_larger_overlaps() -> None:
    assert confused_types(["B-A", "I-A", "I-A", "B-B"], ["B-B", "I-B", "I-B", "B-A"]) == (("B", "A"), ("A", "B"))
    assert confused_types(["B-A", "B-B", "I-B"], ["B-A", "I-A", "I-A"]) == (("A", "B"), (NO_SPAN, "A"))


def test_an_evaluation_has_scores_and_confusions_by_type(run: Path, model: LoadedModel) -> None:
    evaluation = model.evaluate()
    scores = model.task.by_label(evaluation.statistics)
    for kind, count in (("LOC", 3), ("ORG", 2), ("PER", 5)):
        assert scores[kind]["support"] == count
        assert sum(one.rows for one in evaluation.confusion if one.expected == kind) == count


@pytest.mark.slow
def test_the_report_of_a_run_has_scores_by_type_a_confusion_and_spans_in_color(tmp_path: Path) -> None:
    short = {"steps": 4, "validate_every": 2, "device": "cpu", "size": "nano", "model": "cnn"}
    short |= {"head": "softmax", "lowercase": False}  # after so few steps, it is wrong about names
    data = conll(tmp_path, "\n".join([SENTENCES] * 4))
    result = seqloom.train(*data["train"], dev=data["dev"], out=tmp_path / "run", **short)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Scores by label" in page and "Confusion matrix" in page
    assert "boundaries are ignored" in page.partition("Confusion matrix")[2].partition("<h2")[0]
    scores = seqloom.load(result.folder).notes["per_class"]
    assert {kind: row["support"] for kind, row in scores.items()} == {"LOC": 12, "ORG": 8, "PER": 17}
    assert '<mark class="m2">John Smith<small>PER</small></mark>' in page
