"""Claims about files that an earlier version wrote: an index and a label log under tests/search/golden still open.

They were written before segments had their name: folders are called lot-000001, and the settings have a key `passage`.
"""

import shutil
from pathlib import Path

from search_common import WordTable
from seqloom.search.decisions import MODEL, PERSON, Decisions, RowLabel, open_log
from seqloom.search.index import open_index, open_writable_index
from seqloom.search.search import RANKINGS, Searcher

GOLDEN = Path(__file__).parent / "golden"


def test_an_index_that_was_written_before_opens_and_answers() -> None:
    index = open_index(GOLDEN / "index")
    assert len(index) == 3 and index.columns == ("id", "year")
    assert index.holds(["a", "b", "c", "d"]) == {"a", "c", "d"}
    settings, source = index.settings, index.source
    assert settings is not None and (settings.model, settings.width, settings.passage) == ("/models/table", 16, 12)
    assert source is None  # the newest change deleted a document
    searcher = Searcher(index, WordTable(), RANKINGS["both"])
    best, *_ = searcher.search("Lo do pe ba.")
    assert best.id == "d" and best.columns == {"id": "d", "year": 2020}
    assert [hit.id for hit in searcher.search("ka", where=["year<2005"])] == ["a"]


def test_an_index_that_was_written_before_can_be_changed(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "index", tmp_path / "index")
    with open_writable_index(tmp_path / "index") as index:
        index.delete(["a"])
        index.compact()
    assert sorted(open_index(tmp_path / "index").state.rows) == ["c", "d"]


def test_a_label_log_that_was_written_before_is_read_and_resumes(tmp_path: Path) -> None:
    texts = {"1": "a fine film", "2": "an awful film", "3": "a fine story"}
    wanted = {"1": RowLabel("good", PERSON), "2": RowLabel("bad", MODEL), "3": RowLabel("good", MODEL)}
    assert Decisions(GOLDEN / "labels.jsonl", texts).current == wanted
    shutil.copy(GOLDEN / "labels.jsonl", tmp_path / "labels.jsonl")
    with open_log(tmp_path / "labels.jsonl", texts) as log:
        action = log.undo()
        assert action is not None and set(action.rows) == {"2", "3"}
    assert Decisions(tmp_path / "labels.jsonl", texts).current == {"1": RowLabel("good", PERSON)}
