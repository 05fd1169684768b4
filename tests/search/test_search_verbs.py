"""`seqloom index` and `seqloom search`: what people type, what they see, and what is refused before any work."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bundle_common import make_reviews, make_run
from search_common import bytes_of
from seqloom.cli import app
from seqloom.errors import ConfigError, RejectedError
from seqloom.loaded import load
from seqloom.search.reranking import Reranker
from seqloom.search.searching import Hit

pytestmark = pytest.mark.slow
DOCUMENTS: list[dict[str, object]] = [
    {"id": "a", "text": "A good film. It has a dog.", "year": 1999, "lang": "en"},
    {"id": "b", "text": "A bad film.", "year": 2005, "lang": "en"},
    {"id": "c", "text": "Nothing of all that.", "year": 2010, "lang": "fi"},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, documents and their index."""
    place = tmp_path_factory.mktemp("search")
    make_run(place / "run", **make_reviews(place))
    write(place / "docs.jsonl", DOCUMENTS)
    seqloom("index", place / "run", place / "docs.jsonl", "--out", place / "idx", "--device", "cpu")
    return place


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def seqloom(*arguments: object, given: str | None = None) -> Result:
    """What came of a command that went well; what it raised otherwise."""
    done = CliRunner().invoke(app, list(map(str, arguments)), input=given, env={"COLUMNS": "120"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done


def ids(place: Path, *arguments: object) -> list[str]:
    """The ids of the hits of a search."""
    told = json.loads(seqloom("search", place / "idx", *arguments, "--json").stdout)
    return [hit["id"] for hit in told["hits"]]


@pytest.mark.parametrize("mode", ["vectors", "words", "both"])
def test_a_document_is_the_best_answer_to_its_own_text(place: Path, mode: str) -> None:
    assert ids(place, DOCUMENTS[1]["text"], "--mode", mode)[0] == "b"


def test_a_search_by_words_finds_only_documents_that_have_one(place: Path) -> None:
    assert ids(place, "dogs", "--mode", "words") == ["a"]
    assert "nothing found" in seqloom("search", place / "idx", "zebra", "--mode", "words").stdout


def test_conditions_and_count_limit_what_is_found(place: Path) -> None:
    assert sorted(ids(place, "film", "--where", "year>=2000")) == ["b", "c"]
    assert ids(place, "film", "--where", "year>=2000", "--where", "lang=en") == ["b"]
    assert len(ids(place, "film", "-k", 1)) == 1


def test_the_best_sentence_is_marked_and_columns_are_shown(place: Path) -> None:
    shown = seqloom("search", place / "idx", "dog", "--mode", "words").stdout
    assert "1. a  " in shown and "year=1999" in shown and ">>It has a dog.<<" in shown


def test_questions_come_from_standard_input_and_a_bad_one_does_not_end_them(place: Path) -> None:
    lines = seqloom("search", place / "idx", "--json", given="good\nbad\n\nnever asked\n").stdout.splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["good", "bad"]


def test_judged_questions_give_figures_with_intervals(place: Path, tmp_path: Path) -> None:
    queries = write(tmp_path / "q.jsonl", [{"_id": "1", "text": "dogs"}, {"_id": "2", "text": "bad"}])
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tc\t1\n")
    options = ("--queries", queries, "--qrels", tmp_path / "qrels.tsv", "--mode", "words")
    told = json.loads(seqloom("search", place / "idx", *options, "--json").stdout)
    assert told["rows"] == 2 and told["metrics"] == {"ndcg@10": 0.5, "recall@100": 0.5, "mrr@10": 0.5}
    assert "95 % between" in seqloom("search", place / "idx", *options).stdout


def test_documents_are_added_replaced_and_deleted(place: Path, tmp_path: Path) -> None:
    index = tmp_path / "idx"
    seqloom("index", place / "run", place / "docs.jsonl", "--out", index, "--device", "cpu")
    more = write(tmp_path / "more.jsonl", [{"id": "b", "text": "Zebra.", "year": 1, "lang": "sw"}])
    seqloom("index", place / "run", more, "--out", index, "--add", "--device", "cpu")
    found = json.loads(seqloom("search", index, "zebra", "--mode", "words", "--json").stdout)
    assert [hit["id"] for hit in found["hits"]] == ["b"]
    told = seqloom("index", "--out", index, "--delete", "b", "--delete", "c").stderr
    assert "2 documents deleted" in told and "1 document in" in told
    seqloom("index", "--out", index, "--join")
    assert not [path for path in index.rglob("*.txt") if b"Zebra" in path.read_bytes()]


def test_the_same_command_changes_nothing(place: Path) -> None:
    before = bytes_of(place / "idx")
    told = seqloom("index", place / "run", place / "docs.jsonl", "--out", place / "idx", "--device", "cpu").stderr
    assert bytes_of(place / "idx") == before
    assert "3 documents in" in told and "3 passages, all compared" in told


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("search", "{place}/idx", "q", "--where", "yeer=3"), "did you mean 'year'"),
        (("search", "{place}/idx", "q", "--where", "year"), "no condition"),
        (("search", "{place}/idx", "q", "--mode", "vector"), "did you mean 'vectors'"),
        (("search", "{place}/idxx", "q"), "there is no index.*did you mean idx"),
        (("search", "{place}/run", "q"), "holds no index"),
        (("search", "{place}/idx", " "), "question is empty"),
        (("search", "{place}/idx", "--queries", "q.jsonl"), "belong together"),
        (("search", "{place}/idx", "q", "--rerank", "{place}/run"), "goes from text to label"),
        (("search", "{place}/idx", "q", "--rerank-label", "yes"), "--rerank MODEL"),
        (("index", "{place}/run", "{place}/docs.jsonl"), "--out INDEX"),
        (("index", "--out", "{place}/new"), "seqloom index MODEL FILE"),
        (("index", "--out", "{place}/new", "--delete", "a"), "there is no index"),
        (("index", "--out", "{place}/idx", "--delete", "z"), "no document 'z'"),
        (("index", "{place}/run", "{place}/train.csv", "--out", "{place}/idx"), "--add"),
        (("index", "{place}/run", "{place}/docs.jsonl", "--out", "{place}/run", "--add"), "holds no index"),
        (("index", "{place}/run", "{place}/docs.jsonl", "--out", "{place}/new", "--add"), "there is no index"),
        (("index", "{place}/run", "{place}/docs.jsonl", "--out", "{place}/x", "--passage", "3"), "take 8 to"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(place: Path, arguments: tuple[str, ...], match: str) -> None:
    typed = [one.format(place=place) for one in arguments]
    with pytest.raises((ConfigError, RejectedError), match=match):
        seqloom(*typed, *(["--device", "cpu"] if typed[0] == "index" else []))
    assert not (place / "new").exists() and not list(place.glob("x/lot-*"))


def test_a_model_that_was_moved_is_named(place: Path, tmp_path: Path) -> None:
    (place / "run").rename(place / "moved")
    try:
        with pytest.raises(ConfigError, match="--model MODEL"):
            ids(place, "good")
        assert ids(place, "a bad film.", "--model", place / "moved")[0] == "b"
    finally:
        (place / "moved").rename(place / "run")


def test_a_re_ranker_puts_hits_in_the_order_of_what_it_says(tmp_path: Path) -> None:
    rows = [{"text1": "q", "text2": word, "label": label} for word, label in (("good", "yes"), ("bad", "no")) * 4]
    file = write(tmp_path / "pairs.jsonl", rows)
    run = make_run(tmp_path / "pairs", train=(str(file),))
    loaded, hits = load(run), [Hit(word, 0.0, word, (0, len(word)), (0, 1), {}) for word in ("bad", "good", "q")]
    found = Reranker(loaded).reranked("q", hits)
    scores = {
        hit.id: one.to_json()["scores"]["yes"]
        for hit, one in zip(hits, loaded.predict([("q", hit.text) for hit in hits]), strict=True)
    }
    assert [hit.id for hit in found] == sorted(scores, key=lambda name: -scores[name])
    assert {hit.id: hit.score for hit in found} == pytest.approx(scores)
    with pytest.raises(ConfigError, match="choose from no, yes"):
        Reranker(loaded, "maybe")
