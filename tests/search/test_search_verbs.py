"""`seqloom index` and `seqloom search`: what people type, what they see, and what is refused before any work."""

import json
import warnings
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from bundle_common import make_reviews, make_run
from search_common import bytes_of
from seqloom.cli import app
from seqloom.errors import ConfigError, RejectedError, SeqloomWarning
from seqloom.inference.model import load
from seqloom.search import Collection, ModelEmbedder, build_index, segments
from seqloom.search import index as folder_index
from seqloom.search.index import WritableIndex
from seqloom.search.search import Hit, Reranker
from seqloom.search.store import Segment

# The model of these tests is a classifier.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*not to embed:seqloom.errors.SeqloomWarning")]
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
    with pytest.warns(SeqloomWarning, match="not to embed"):
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
    assert "no documents found" in seqloom("search", place / "idx", "zebra", "--mode", "words").stdout


def test_a_query_without_a_known_word_is_reported(place: Path) -> None:
    def warned(query: str, mode: str) -> str:
        return seqloom("search", place / "idx", query, "--mode", mode).stderr

    assert warned("film", "both") == warned("film", "vectors") == warned("zebra", "words") == ""
    assert "warning: no word of the query is in the vocabulary of the model" in warned("dog", "both")
    assert "no word of the query is in the documents or in the vocabulary of the model" in warned("zyzzyva", "both")
    assert "no word of the query is in the vocabulary of the model" in warned("zyzzyva", "vectors")
    assert "zyzzyva" in seqloom("search", place / "idx", "zyzzyva", "--json").stdout


def test_conditions_and_count_limit_what_is_found(place: Path) -> None:
    assert sorted(ids(place, "film", "--where", "year>=2000")) == ["b", "c"]
    assert ids(place, "film", "--where", "year>=2000", "--where", "lang=en") == ["b"]
    assert len(ids(place, "film", "-k", 1)) == 1


def test_the_best_sentence_is_marked_and_columns_are_shown(place: Path) -> None:
    shown = seqloom("search", place / "idx", "dog", "--mode", "words").stdout
    assert "1. a  " in shown and "year=1999" in shown and ">>It has a dog.<<" in shown


def test_queries_come_from_standard_input_and_a_bad_one_does_not_end_them(place: Path) -> None:
    lines = seqloom("search", place / "idx", "--json", given="good\nbad\n\nnever asked\n").stdout.splitlines()
    assert [json.loads(line)["query"] for line in lines] == ["good", "bad"]


def test_evaluated_queries_give_metrics_with_intervals(place: Path, tmp_path: Path) -> None:
    queries = write(tmp_path / "q.jsonl", [{"_id": "1", "text": "dogs"}, {"_id": "2", "text": "bad"}])
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n2\tc\t1\n")
    options = ("--queries", queries, "--qrels", tmp_path / "qrels.tsv", "--mode", "words")
    told = json.loads(seqloom("search", place / "idx", *options, "--json").stdout)
    assert told["queries"] == 2 and told["metrics"] == {"ndcg@10": 0.5, "recall@100": 0.5, "mrr@10": 0.5}
    assert "95 % interval" in seqloom("search", place / "idx", *options).stdout


def test_documents_are_added_replaced_and_deleted(place: Path, tmp_path: Path) -> None:
    index = tmp_path / "idx"
    seqloom("index", place / "run", place / "docs.jsonl", "--out", index, "--device", "cpu")
    more = write(tmp_path / "more.jsonl", [{"id": "b", "text": "Zebra.", "year": 1, "lang": "sw"}])
    seqloom("index", place / "run", more, "--out", index, "--add", "--device", "cpu")
    found = json.loads(seqloom("search", index, "zebra", "--mode", "words", "--json").stdout)
    assert [hit["id"] for hit in found["hits"]] == ["b"]
    told = seqloom("index", "--out", index, "--delete", "b", "--delete", "c").stderr
    assert "deleted 2 documents with 2 passages" in told and "the index has 1 document and 1 passage" in told
    again = seqloom("index", "--out", index, "--delete", "b", "--delete", "c").stderr
    assert "nothing to delete: the documents are deleted already" in again
    seqloom("index", "--out", index, "--compact")
    assert not [path for path in index.rglob("*.txt") if b"Zebra" in path.read_bytes()]


@pytest.mark.slow
def test_what_an_added_file_replaces_is_counted_and_another_file_of_the_same_name_is_named(tmp_path: Path) -> None:
    for folder, count in (("a", 2), ("b", 3)):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "docs.jsonl", [{"text": f"{folder} {number}"} for number in range(count)])
    ids = write(tmp_path / "ids.jsonl", [{"id": "docs.jsonl:1", "text": "one"}, {"id": "new", "text": "two"}])
    index, more = ("--out", tmp_path / "idx"), ("--out", tmp_path / "idx", "--add")
    assert "replaced" not in seqloom("index", tmp_path / "a" / "docs.jsonl", *index).stderr
    told = seqloom("index", tmp_path / "b" / "docs.jsonl", *more).stderr
    assert "replaced 2 documents with the same ids, which are docs.jsonl and the line" in told
    assert "rename one and add both again, or use --id COLUMN" in told and "the index has 3 documents" in told
    assert "replaced" not in seqloom("index", tmp_path / "b" / "docs.jsonl", *more).stderr  # nothing to do
    assert seqloom("index", ids, *more).stderr.splitlines()[0] == "replaced 1 document with the same id"


def test_the_same_command_changes_nothing(place: Path) -> None:
    before = bytes_of(place / "idx")
    told = seqloom("index", place / "run", place / "docs.jsonl", "--out", place / "idx", "--device", "cpu").stderr
    assert bytes_of(place / "idx") == before
    assert "nothing to do: all documents of docs.jsonl are in the index" in told
    assert "the index has 3 documents and 3 passages; exact search" in told


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("search", "{place}/idx", "q", "--where", "yeer=3"), "Did you mean 'year'"),
        (("search", "{place}/idx", "q", "--where", "year"), "not a condition"),
        (("search", "{place}/idx", "q", "--mode", "vector"), "Did you mean 'vectors'"),
        (("search", "{place}/idxx", "q"), "does not exist.*Did you mean idx"),
        (("search", "{place}/run", "q"), "not an index"),
        (("search", "{place}/idx", " "), "query is empty"),
        (("search", "{place}/idx", "--queries", "q.jsonl"), "must be used together"),
        (("search", "{place}/idx", "q", "--rerank", "{place}/run"), "reads text and predicts label"),
        (("search", "{place}/idx", "q", "--rerank-label", "yes"), "--rerank MODEL"),
        (("index", "--out", "{place}/new"), "seqloom index MODEL FILE"),
        (("index", "--out", "{place}/new", "--delete", "a"), "does not exist"),
        (("index", "--out", "{place}/idx", "--delete", "z"), "no document with the id 'z'"),
        (("index", "{place}/run", "{place}/train.csv", "--out", "{place}/idx"), "--add"),
        (("index", "{place}/run", "{place}/docs.jsonl", "--out", "{place}/run", "--add"), "not an index"),
        (("index", "{place}/run", "{place}/docs.jsonl", "--out", "{place}/new", "--add"), "does not exist"),
        (
            ("index", "{place}/run", "{place}/docs.jsonl", "--out", "{place}/x", "--passage-tokens", "3"),
            "choose from 8 to",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(place: Path, arguments: tuple[str, ...], match: str) -> None:
    typed = [one.format(place=place) for one in arguments]
    with pytest.raises((ConfigError, RejectedError), match=match):
        seqloom(*typed, *(["--device", "cpu"] if typed[0] == "index" else []))
    assert not (place / "new").exists() and not (place / "x").exists()


def test_a_model_that_was_not_trained_to_embed_is_reported_once(place: Path, tmp_path: Path) -> None:
    arguments = ("--out", tmp_path / "index", "--device", "cpu")
    with pytest.warns(SeqloomWarning, match="not to embed.*for the task embed") as told:
        seqloom("index", place / "run", place / "docs.jsonl", *arguments)
    assert len(told) == 1
    write(tmp_path / "more.jsonl", [{"id": "d", "text": "More.", "year": 1, "lang": "en"}])
    with warnings.catch_warnings(action="error"):
        seqloom("index", place / "run", tmp_path / "more.jsonl", *arguments, "--add")


def test_a_model_that_was_not_trained_to_embed_is_reported_in_python(place: Path, tmp_path: Path) -> None:
    embedder = ModelEmbedder(load(place / "run", device="cpu"))
    with pytest.warns(SeqloomWarning, match="not to embed") as told:
        build_index(tmp_path / "index", embedder, Collection(place / "docs.jsonl"))
    assert told[0].filename == __file__, "it is the caller's line"


def test_an_index_needs_a_name(place: Path) -> None:
    done = CliRunner().invoke(app, ["index", str(place / "run"), str(place / "docs.jsonl")])
    assert done.exit_code == 2 and "Missing option '--out'" in done.output


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


def test_ids_and_joined_columns_can_be_asked_and_are_shown_once(place: Path, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"doi": "10.1/a", "title": "On cancer", "text": "A good film " * 8},
        {"doi": "10.1/b", "title": "On films", "text": "A bad film."},
    ]
    file, index = write(tmp_path / "papers.jsonl", rows), tmp_path / "idx"
    named = ("--input", "title", "--input", "text", "--id", "doi", "--out", index, "--device", "cpu")
    seqloom("index", place / "run", file, *named)
    for condition, found in (("title~CANCER", "a"), ("doi=10.1/b", "b"), ("text~bad", "b")):
        shown = seqloom("search", index, "film", "--where", condition).stdout
        assert f"1. 10.1/{found}  " in shown and "2. " not in shown and "title=On" in shown and "doi=" not in shown
    assert "text=A good" not in seqloom("search", index, "film", "--where", "title~cancer").stdout


def test_a_fused_score_has_the_cosine_beside_it(place: Path) -> None:
    both, vectors = (
        seqloom("search", place / "idx", "bad film", "--mode", mode).stdout for mode in ("both", "vectors")
    )
    assert "  cosine 0." in both and "cosine" not in vectors


def test_piped_answers_are_told_apart_and_joiners_are_left_while_control_characters_are_not(
    place: Path, tmp_path: Path
) -> None:
    family = "👩\u200d👧 می\u200cخواهم\u00a0film"
    file = write(tmp_path / "signs.jsonl", [{"id": "x", "text": f"{family} \x1b[31m\u202e."}])
    seqloom("index", place / "run", file, "--out", tmp_path / "idx", "--device", "cpu")
    shown = seqloom("search", tmp_path / "idx", "--mode", "words", given="film\nzebra\n").stdout
    first, second = shown.split("\n\n")
    assert first.startswith("film\n  1. x  ") and second == "zebra\nno documents found\n"
    assert family in first and "\\x1b[31m\\u202e" in first and "\x1b" not in first


def test_relevant_documents_that_are_not_there_and_the_rule_of_three_are_reported(place: Path, tmp_path: Path) -> None:
    queries = write(tmp_path / "q.jsonl", [{"_id": "1", "text": "dogs"}, {"_id": "2", "text": "bad"}])
    options = ("--queries", queries, "--qrels", tmp_path / "qrels.tsv", "--mode", "words")
    (tmp_path / "qrels.tsv").write_text("1\ta\t1\n2\tb\t1\n2\t98\t0\n")
    right = seqloom("search", place / "idx", *options)
    assert "rule of three: all of 2 new queries may be wrong" in right.stdout  # there are but two
    assert "ndcg@10, recall@100" in right.stdout and not right.stderr
    (tmp_path / "qrels.tsv").write_text("1\ta\t1\n2\tb\t1\n2\t99\t1\n")
    assert "1 document of qrels.tsv not in the index, such as '99'" in seqloom("search", place / "idx", *options).stderr


def test_bad_rows_that_are_skipped_are_named(place: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "holes.jsonl", [*DOCUMENTS, DOCUMENTS[0] | {"id": "h", "text": " "}])
    named = ("--out", tmp_path / "idx", "--device", "cpu", "--skip-bad-rows")
    told = seqloom("index", place / "run", file, *named).stderr
    assert "holes.jsonl:4" in told and "row.empty_text" in told and "1 bad row skipped" in told
    assert "--skip-bad-rows" not in told  # it was given


def test_stopping_an_index_reports_what_is_saved_and_it_resumes(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "DOCUMENTS", 2)
    command = ("index", place / "run", place / "docs.jsonl", "--out", tmp_path / "idx", "--device", "cpu")
    add = WritableIndex.add

    def stopped(index: WritableIndex, segment: Segment) -> None:
        if segment.documents[0].id == "c":
            raise KeyboardInterrupt
        add(index, segment)

    with monkeypatch.context() as patched:
        patched.setattr(WritableIndex, "add", stopped)
        done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 130
    assert "2 of 3 documents of docs.jsonl are saved; run the same command again to resume\nstopped\n" in done.stderr
    told = seqloom(*command).stderr
    assert "resuming: 2 of 3 documents are done" in told and "has 3 documents" in told and "nothing" not in told


def test_exact_is_remembered_by_an_index_and_undone_with_approximate(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_index, "GRAPH_FROM", 2)
    index = ("--out", tmp_path / "idx")
    command = ("index", place / "run", place / "docs.jsonl", *index, "--device", "cpu")
    for given, how in (("--exact", "exact search"), (None, "exact search"), ("--approximate", "approximate search")):
        assert how in seqloom(*command, *([given] if given else [])).stderr
    assert "approximate search" in seqloom("index", *index, "--compact").stderr
    assert "exact search" in seqloom("index", *index, "--delete", "a", "--exact").stderr
