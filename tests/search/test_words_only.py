"""An index without a model: built from a file alone, searched by words, and never mixed with vectors."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from search_common import WordTable, built, bytes_of, last, some_documents, write_documents
from seqloom.cli import app
from seqloom.errors import ConfigError
from seqloom.search.bm25 import K1, B, words_of
from seqloom.search.build import add_to_index, build_index, open_writable
from seqloom.search.documents import Collection
from seqloom.search.index import Index, open_index
from seqloom.search.search import RANKINGS, Searcher, searcher
from seqloom.search.store import TextDocument
from seqloom.search.vectors import WordsOnly, settings_for


def by_words(folder: Path, documents: list[TextDocument], name: str = "words") -> Index:
    """A fresh index without vectors."""
    last(build_index(folder / name, None, Collection(write_documents(folder / f"{name}.jsonl", documents))))
    return open_index(folder / name)


def formula(texts: list[str], query: str) -> np.ndarray:
    """[N] BM25 by its formula, from a table of counts [N,W]."""
    words = sorted(set(words_of(query)))
    table = np.array([[words_of(text).count(word) for word in words] for text in texts], float)
    lengths = np.array([len(words_of(text)) for text in texts])
    having = (table > 0).sum(axis=0)
    idf = np.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
    longer = K1 * (1 - B + B * lengths / lengths.mean())
    found: np.ndarray = (idf * table * (K1 + 1) / (table + longer[:, None])).sum(axis=1)
    return found


def test_scores_are_those_of_the_formula(tmp_path: Path) -> None:
    documents = some_documents(30)
    found = searcher(by_words(tmp_path, documents)).search("kado lofi mibas kado", top_k=30)
    scores = formula([one.text for one in documents], "kado lofi mibas kado")
    assert {hit.id: hit.score for hit in found} == pytest.approx(
        {one.id: score for one, score in zip(documents, scores.tolist(), strict=True) if score > 0}
    )
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert found[0].cosine is None and found[0].columns["year"] == 1995


def test_words_rank_as_in_an_index_with_vectors(tmp_path: Path) -> None:
    documents = some_documents(20)
    mixed = Searcher(built(tmp_path, documents), None, RANKINGS["words"])
    alone = searcher(by_words(tmp_path, documents))
    for query in ("kado", "lofi mibas", "nuba pegu kafi"):
        assert alone.ranked(query, top_k=20) == mixed.ranked(query, top_k=20)


def test_long_documents_have_passages_and_hits_show_the_best_one(tmp_path: Path) -> None:
    text = " ".join(f"Sentence {n} is about nothing." for n in range(200)) + " The zebra sleeps."
    index = by_words(tmp_path, [TextDocument("a", text, {})])
    (hit,) = searcher(index).search("zebras")
    assert len(index.state.owners) > 2 and hit.to_json()["sentence"] == "The zebra sleeps."
    assert len(hit.to_json()["passage"].split()) <= 256


def test_documents_are_added_deleted_and_merged_as_in_a_fresh_index(tmp_path: Path) -> None:
    documents = some_documents(12)
    by_words(tmp_path, documents[:8])
    more = write_documents(tmp_path / "more.jsonl", documents[8:])
    last(add_to_index(tmp_path / "words", None, Collection(more)))
    with open_writable(tmp_path / "words") as index:
        index.delete(["d0"])
        index.compact()
    changed, fresh = (
        searcher(one) for one in (open_index(tmp_path / "words"), by_words(tmp_path, documents[1:], "new"))
    )
    assert changed.ranked("kado lofi", top_k=20) == fresh.ranked("kado lofi", top_k=20)


def test_no_graph_and_no_library_is_needed_however_many_passages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.search.index.GRAPH_FROM", 2)
    monkeypatch.setitem(sys.modules, "usearch", None)
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    assert len(by_words(tmp_path, some_documents(6))) == 6


def test_a_model_and_an_index_without_vectors_do_not_mix(tmp_path: Path) -> None:
    documents = some_documents(4)
    words, vectors = by_words(tmp_path, documents), built(tmp_path, documents)
    more = Collection(write_documents(tmp_path / "more.jsonl", some_documents(6)[4:]))
    before = bytes_of(words.path), bytes_of(vectors.path)
    with pytest.raises(ConfigError, match=r"(?s)built without a model.*leave out the model"):
        last(add_to_index(words.path, WordTable(), more))
    with pytest.raises(ConfigError, match=r"(?s)need its model.*seqloom index .*table FILE"):
        last(add_to_index(vectors.path, None, more))
    for asked in ({"mode": "vectors"}, {"mode": "both"}, {"model": "table"}):
        with pytest.raises(ConfigError, match="seqloom index MODEL FILE"):
            searcher(words, **asked)  # type: ignore[arg-type]
    assert (bytes_of(words.path), bytes_of(vectors.path)) == before


def test_settings_without_a_model_do_not_depend_on_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = settings_for(WordsOnly())
    monkeypatch.chdir(tmp_path)
    assert settings_for(WordsOnly()) == here and not here.has_vectors and here.model == ""


# --- what people type ------------------------------------------------------------------------------------------------


def seqloom(*arguments: object) -> Result:
    done = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "120"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_a_file_alone_is_indexed_and_searched_by_words(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("id,text,year\na,A dog barks.,1999\nb,Two cats sleep.,2005\n")
    told = seqloom("index", tmp_path / "docs.csv", "-o", tmp_path / "index")
    assert "2 documents and 2 passages; search by words" in told.output
    found = json.loads(seqloom("search", tmp_path / "index", "cat", "--json").stdout)["hits"]
    assert [hit["id"] for hit in found] == ["b"]
    assert "nothing to do" in seqloom("index", tmp_path / "docs.csv", "-o", tmp_path / "index").output
    assert "deleted 1 document" in seqloom("index", "-o", tmp_path / "index", "--delete", "b").output


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("index", "{folder}/run", "-o", "{folder}/new"), "is a model"),
        (("index", "{folder}/docs.csv", "-o", "{folder}/new", "--batch-tokens", "9"), "give a MODEL"),
        (("index", "{folder}/none.csv", "-o", "{folder}/new"), "no such file"),
        (("index", "{folder}/docs.csv", "-o", "{folder}/new", "--passage-tokens", "3"), "choose from 8"),
    ],
)
def test_what_cannot_be_indexed_is_refused(tmp_path: Path, arguments: tuple[str, ...], match: str) -> None:
    (tmp_path / "docs.csv").write_text("id,text\na,A dog barks.\n")
    (tmp_path / "run" / "model").mkdir(parents=True)
    with pytest.raises(Exception, match=match):
        seqloom(*(one.format(folder=tmp_path) for one in arguments))
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_neither_the_index_nor_the_search_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "docs.csv").write_text("id,text\na,A dog barks.\n")
    code = (
        "import sys; from seqloom.cli import app\n"
        "app(['index', 'docs.csv', '-o', 'index'], standalone_mode=False)\n"
        "app(['search', 'index', 'dogs'], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "A dog barks." in done.stdout, done.stderr


def test_two_files_are_not_a_model_and_a_file(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"id": 1, "text": "a dog"}\n')
    files = [str(tmp_path / f"{name}.jsonl") for name in "ab"]
    found = CliRunner().invoke(app, ["index", *files, "--out", str(tmp_path / "index")])
    assert "are two files, and an index is built from one" in str(found.exception)
    assert f"`seqloom index {files[1]} --out {tmp_path / 'index'} --add`" in str(found.exception)
