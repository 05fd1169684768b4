"""`seqloom embed`: one vector per row, in order; it resumes after a stop, and refuses another job."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from embedding_common import small_model, some_texts, write_texts
from seqloom.cli import app
from seqloom.errors import ConfigError, HeldError, MissingExtraError, RejectedError
from seqloom.events import Progress
from seqloom.importing.models import import_model
from seqloom.inference.model import load
from seqloom.search.embedding import bulk, packed_linears, windows
from seqloom.search.embedding import windows as source
from seqloom.search.embedding.bulk import embed_file, embedding_steps
from seqloom.search.embedding.output import DTYPES, VectorFormat
from seqloom.search.embedding.windows import InputSource, WindowWorker, local_engine
from seqloom.search.vectors import ModelEmbedder, require_same_model, settings_for

TEXTS = some_texts(45)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return small_model(tmp_path_factory.mktemp("small"))


@pytest.fixture(autouse=True)
def small_windows(monkeypatch) -> None:
    monkeypatch.setattr(source, "ROWS", 8)
    monkeypatch.setattr(bulk, "ENOUGH", 8)


def embed(*arguments: object, given: str | bytes | None = None, code: int = 0) -> str:
    """What is said on standard error."""
    done = CliRunner().invoke(app, ["embed", *map(str, arguments), "--device", "cpu"], input=given)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stderr


def vectors_in(path: Path) -> np.ndarray:
    return np.array(pq.read_table(path)["vector"].to_pylist()) if path.suffix == ".parquet" else np.load(path)


@pytest.mark.parametrize("name", ["v.npy", pytest.param("v.parquet", marks=pytest.mark.slow)])
def test_the_vectors_are_those_of_python_in_the_order_of_the_rows(model, tmp_path, name) -> None:
    said = embed(model, write_texts(tmp_path / "a.txt", TEXTS), "-o", tmp_path / name)
    assert said.splitlines(True)[-1] == f"45 vectors with 16 dimensions in {tmp_path / name}\n"
    np.testing.assert_allclose(vectors_in(tmp_path / name), load(model).embed(TEXTS), atol=1e-5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", name, f"{name}.json"]


@pytest.mark.slow
def test_a_parquet_file_names_its_rows(model, tmp_path) -> None:
    (tmp_path / "a.csv").write_text("id,text\nx7,the cat\nx3,bad film\n")
    embed(model, tmp_path / "a.csv", "-o", tmp_path / "v.parquet")
    assert pq.read_table(tmp_path / "v.parquet")["id"].to_pylist() == ["x7", "x3"]
    embed(model, write_texts(tmp_path / "a.txt", TEXTS[:3]), "-o", tmp_path / "w.parquet")
    assert pq.read_table(tmp_path / "w.parquet")["id"].to_pylist() == ["1", "2", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", DTYPES[1:])
@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_fewer_bits_keep_what_their_numbers_say_and_tell_the_loss(model, tmp_path, kind, ending) -> None:
    out = tmp_path / f"v{ending}"
    said = embed(model, write_texts(tmp_path / "a.txt", TEXTS), "-o", out, "--dtype", kind)
    assert "loss of precision, measured on 45 rows: mean error of cosines" in said
    card = json.loads((tmp_path / f"v{ending}.json").read_text())
    scale = None if card["scale"] is None else np.array(card["scale"], np.float32)
    kept = vectors_in(out)
    decoded = VectorFormat(kind, 16, scale).decoded(kept.astype(VectorFormat(kind, 16).numpy_dtype))
    wanted = load(model).embed(TEXTS)
    cosines = (decoded * wanted).sum(axis=1) / np.linalg.norm(decoded, axis=1)
    assert cosines.min() > {"float16": 0.99999, "int8": 0.99, "binary": 0.5}[kind]
    if ending == ".parquet":
        assert json.loads(pq.read_schema(out).metadata[b"scale"]) == card["scale"]
        assert pq.read_schema(out).field("vector").type.list_size == (2 if kind == "binary" else 16)


@pytest.mark.slow
def test_a_model_that_computes_in_int8_tells_the_loss(model, tmp_path) -> None:
    said = embed(model, write_texts(tmp_path / "a.txt", TEXTS), "-o", tmp_path / "v.npy", "--precision", "int8")
    assert "loss of precision, measured on 45 rows" in said
    cosines = (np.load(tmp_path / "v.npy") * load(model).embed(TEXTS)).sum(axis=1)
    assert 0.98 < cosines.min() < 1 - 1e-6


@pytest.mark.slow
def test_standard_input_gives_the_same_bytes_as_a_file(model, tmp_path) -> None:
    embed(model, write_texts(tmp_path / "a.txt", TEXTS), "-o", tmp_path / "v.npy")
    embed(model, "-", "-o", tmp_path / "w.npy", given="".join(f"{text}\n" for text in TEXTS))
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    embed(model, "-", "-o", tmp_path / "x.npy", "--format", "jsonl", given=lines)
    assert len({(tmp_path / name).read_bytes() for name in ("v.npy", "w.npy", "x.npy")}) == 1


class StoppedError(Exception):
    """What ends the work of a test."""


def stopping_after(count: int):
    """An engine that dies behind so many windows."""

    def engine(setup, loaded, works):
        for number, work in enumerate(works):
            if number == count:
                raise StoppedError
            yield WindowWorker(setup, loaded).made(work)

    return engine


@pytest.mark.slow
def test_stopping_reports_what_is_saved_and_then_it_resumes_and_is_done(model, tmp_path, monkeypatch) -> None:
    file, out = write_texts(tmp_path / "a.txt", TEXTS), tmp_path / "v.npy"
    whole = WindowWorker.made

    def stopped(worker, work):
        if work.start == 24:
            raise KeyboardInterrupt
        return whole(worker, work)

    monkeypatch.setattr(WindowWorker, "made", stopped)
    said = embed(model, file, "-o", out, code=130)
    assert said.splitlines()[-2:] == [
        "24 of 45 rows are saved in v.npy.work; run the same command again to resume",
        "stopped",
    ]
    monkeypatch.setattr(WindowWorker, "made", whole)
    assert "resuming: 24 of 45 rows are done" in embed(model, file, "-o", out)
    again = embed(model, file, "-o", out).splitlines()
    assert again[0] == "nothing to do: this command has already finished"
    assert again[-1] == f"45 vectors with 16 dimensions in {out}"


@pytest.mark.slow
def test_other_threads_do_not_go_on_with_what_was_begun_and_what_is_done_stays_done(
    model, tmp_path, monkeypatch
) -> None:
    loaded, file, out = load(model), write_texts(tmp_path / "a.txt", TEXTS), tmp_path / "v.npy"
    monkeypatch.setattr(bulk, "num_threads", lambda: 3)
    with pytest.raises(StoppedError):
        embed_file(loaded, file, out, engine=stopping_after(1))
    monkeypatch.setattr(bulk, "num_threads", lambda: 1)
    with pytest.raises(ConfigError, match=r"a different number of threads \(it was OMP_NUM_THREADS=3"):
        embed_file(loaded, file, out)
    monkeypatch.setattr(bulk, "num_threads", lambda: 3)
    finished = embed_file(loaded, file, out)
    monkeypatch.setattr(bulk, "num_threads", lambda: 1)
    assert embed_file(loaded, file, out, engine=stopping_after(0)) == finished


def test_vectors_of_zeros_are_reported_and_counted(tmp_path) -> None:
    (tmp_path / "words.txt").write_text("cat 1 0\ndog 0 1\n")
    static = import_model(tmp_path / "words.txt", tmp_path / "static")
    file = write_texts(tmp_path / "a.txt", ["a cat", *("nobody knows",) * 11, "dog"])
    said = embed(static, file, "-o", tmp_path / "v.npy")
    assert (
        "a.txt:2: vector.zero: the vector is zero: no word of the text is in the vocabulary of the model. (11 times)"
        in said
    )
    (note,) = json.loads((tmp_path / "v.npy.json").read_text())["notes"]
    assert note[:2] == ["vector.zero", 11]


def test_a_precision_is_checked_without_a_copy_of_the_model(model, tmp_path, monkeypatch) -> None:
    loaded, file = load(model), write_texts(tmp_path / "a.txt", TEXTS[:3])
    copies = []
    monkeypatch.setattr(windows, "with_precision", lambda one, precision: copies.append(precision) or one)
    steps = embedding_steps(loaded, InputSource(file), tmp_path / "v.npy", precision="int8")
    monkeypatch.setattr(packed_linears.copy, "deepcopy", lambda *_: pytest.fail("the model was copied"))
    list(steps)
    assert copies == ["float32", "int8"]


@pytest.mark.parametrize(
    ("dtype", "windows"),
    [
        ("int8", 1),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("float32", 0), ("float32", 4), ("int8", 4))),
    ],
)
def test_what_was_stopped_resumes_and_ends_with_the_same_bytes(model, tmp_path, windows, dtype) -> None:
    loaded, file = load(model), write_texts(tmp_path / "a.txt", TEXTS)
    embed_file(loaded, file, tmp_path / "whole.npy", dtype=dtype)
    out = tmp_path / "v.npy"
    with pytest.raises(StoppedError):
        embed_file(loaded, file, out, dtype=dtype, engine=stopping_after(windows))
    assert not out.exists()
    asked = []

    def counting(setup, loaded, works):
        return local_engine(setup, loaded, (asked.append(work.start) or work for work in works))

    finished = embed_file(loaded, file, out, dtype=dtype, engine=counting)
    assert asked == list(range(8 * windows, 45, 8))  # what was done is not done again
    assert finished.rows == 45
    for ending in ("", ".json"):
        assert (tmp_path / f"v.npy{ending}").read_bytes() == (tmp_path / f"whole.npy{ending}").read_bytes()
    assert not (tmp_path / "v.npy.work").exists()


@pytest.mark.slow
def test_a_damaged_segment_and_all_behind_it_are_made_again(model, tmp_path) -> None:
    loaded, file, out = load(model), write_texts(tmp_path / "a.txt", TEXTS), tmp_path / "v.npy"
    embed_file(loaded, file, tmp_path / "whole.npy")
    with pytest.raises(StoppedError):
        embed_file(loaded, file, out, engine=stopping_after(4))
    damaged = tmp_path / "v.npy.work" / "rows-000000000008" / "vectors.bin"
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    steps = list(embedding_steps(loaded, InputSource(file), out))
    assert next(step for step in steps if isinstance(step, Progress)) == Progress("rows", 8, 45, kept=8)
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [({"file": True}, "different rows"), ({"dtype": "int8"}, "dtype"), ({"batch_tokens": 32}, "batch_tokens")],
)
def test_unfinished_work_and_output_of_another_job_are_refused(model, tmp_path, change, said) -> None:
    loaded, file, out = load(model), write_texts(tmp_path / "a.txt", TEXTS), tmp_path / "v.npy"
    other = write_texts(tmp_path / "b.txt", [*TEXTS[:-1], "another"]) if change.pop("file", False) else file
    with pytest.raises(StoppedError):
        embed_file(loaded, file, out, engine=stopping_after(2))
    with pytest.raises(ConfigError, match=f"unfinished work with other settings: {said}"):
        embed_file(loaded, other, out, **change)
    embed_file(loaded, file, out)
    before = out.read_bytes()
    with pytest.raises(ConfigError, match=f"made with other settings: {said}"):
        embed_file(loaded, other, out, **change)
    assert out.read_bytes() == before


@pytest.mark.slow
def test_the_same_job_again_changes_nothing_and_says_the_same(model, tmp_path) -> None:
    loaded, file, out = load(model), write_texts(tmp_path / "a.txt", TEXTS), tmp_path / "v.npy"
    first = embed_file(loaded, file, out, dtype="int8")
    assert embed_file(loaded, file, out, dtype="int8", engine=stopping_after(0)) == first


def test_a_file_of_somebody_else_is_not_replaced(model, tmp_path) -> None:
    (tmp_path / "v.npy").write_text("mine")
    with pytest.raises(ConfigError, match="was not written by seqloom embed"):
        embed(model, write_texts(tmp_path / "a.txt", TEXTS), "-o", tmp_path / "v.npy")
    assert (tmp_path / "v.npy").read_text() == "mine"


@pytest.mark.slow
def test_a_model_that_pools_otherwise_is_another_model(model, tmp_path) -> None:
    other = load(import_model(model.parent / "checkpoint", tmp_path / "other", pooling="first"))
    file, out = write_texts(tmp_path / "a.txt", TEXTS[:3]), tmp_path / "v.npy"
    embed_file(load(model), file, out)
    with pytest.raises(ConfigError, match="made with other settings: a different model"):
        embed_file(other, file, out)
    with pytest.raises(ConfigError, match=r"the index was built with .* is a different model"):
        require_same_model(settings_for(ModelEmbedder(load(model))), ModelEmbedder(other))


def test_vectors_that_were_changed_are_not_called_done(model, tmp_path) -> None:
    file, out = write_texts(tmp_path / "a.txt", TEXTS[:3]), tmp_path / "v.npy"
    embed_file(model, file, out)
    out.write_bytes(b"garbage")
    with pytest.raises(ConfigError, match="is damaged or was changed"):
        embed_file(model, file, out)


@pytest.mark.parametrize("name", ["v.npy.json", "v.npy.work/mine.txt", "v.npy.work/.mine"])
def test_what_is_not_ours_is_neither_replaced_nor_removed(model, tmp_path, name) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(ConfigError, match=r"not written by seqloom embed|that Seqloom did not write"):
        embed_file(model, write_texts(tmp_path / "a.txt", TEXTS[:3]), tmp_path / "v.npy")
    assert mine.read_text() == "mine" and not (tmp_path / "v.npy").exists()


def test_a_card_of_another_version_is_reported_as_one_and_stays(model, tmp_path) -> None:
    file, out, card = write_texts(tmp_path / "a.txt", TEXTS[:3]), tmp_path / "v.npy", tmp_path / "v.npy.json"
    embed_file(model, file, out)
    record = json.loads(card.read_text())
    del record["job"]["threads"]  # as the first version wrote it
    card.write_text(json.dumps(record))
    with pytest.raises(
        ConfigError, match=r"v\.npy\.json was written by another version of Seqloom.*delete it and v\.npy"
    ):
        embed_file(model, file, out)
    assert json.loads(card.read_text()) == record and out.exists()


@pytest.mark.slow
def test_a_first_window_of_one_row_does_not_decide_the_scale(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(bulk, "ENOUGH", 30)
    monkeypatch.setattr(source, "CHARACTERS", 400)
    texts = ["cat " * 200, *TEXTS[1:]]
    embed_file(model, write_texts(tmp_path / "a.txt", texts), tmp_path / "v.npy", dtype="int8")
    scale = np.array(json.loads((tmp_path / "v.npy.json").read_text())["scale"])
    first = np.abs(load(model).embed(texts[:30])).max(axis=0) / 127  # 1 row, and windows of up to 8
    assert (scale >= first - 1e-6).all()


@pytest.mark.slow
def test_two_processes_do_not_fill_one_folder(model, tmp_path) -> None:
    loaded, file, out = load(model), write_texts(tmp_path / "a.txt", TEXTS), tmp_path / "v.npy"
    first = embedding_steps(loaded, InputSource(file), out)
    next(first), next(first)
    with pytest.raises(HeldError):
        embed_file(loaded, file, out)
    assert len(list(first)) > 1
    assert len(np.load(out)) == 45


BAD = [json.dumps({"text": text}) for text in TEXTS[:20]]
BAD[3:3] = ['{"text": ""}', '{"text": 7}']
BAD.append('{"text": ')


def test_bad_rows_are_refused_with_their_places_before_any_work(model, tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(BAD))
    with pytest.raises(RejectedError, match=r"a.jsonl:4(.|\n)*a.jsonl:5"):
        embed(model, tmp_path / "a.jsonl", "-o", tmp_path / "v.npy")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (".npy", "float32"),
        pytest.param(".npy", "int8", marks=pytest.mark.slow),
        pytest.param(".parquet", "int8", marks=pytest.mark.slow),
    ],
)
def test_skipped_rows_keep_their_places_without_a_vector(model, tmp_path, ending, kind) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(BAD))
    out = tmp_path / f"v{ending}"
    said = embed(model, tmp_path / "a.jsonl", "-o", out, "--skip-bad-rows", "--dtype", kind, code=7)
    assert f"3 rows have no vector; v{ending}.json lists them with the reason" in said
    assert "20 vectors with 16 dimensions" in said and "row 4, line 4: row.empty_text" in said
    bad = json.loads(Path(f"{out}.json").read_text())["bad"]
    assert [(row, line) for row, line, _ in bad] == [(4, 4), (5, 5), (23, 23)]
    assert "row.empty_text" in bad[0][2]
    if ending == ".parquet":
        rows = pq.read_table(out)["vector"].to_pylist()
        assert [number for number, row in enumerate(rows) if row is None] == [3, 4, 22]
        good = np.array([row for row in rows if row is not None], np.float32)
    else:
        rows = np.load(out)
        assert all(np.isnan(rows[row]).all() if kind == "float32" else not rows[row].any() for row in (3, 4, 22))
        good = np.delete(rows, [3, 4, 22], axis=0)
    wanted = load(model).embed(TEXTS[:20])
    assert (good * wanted).sum(axis=1).min() > 0.99


def test_an_empty_file_is_refused(model, tmp_path) -> None:
    (tmp_path / "a.txt").write_text("")
    for name, given in ((tmp_path / "a.txt", None), ("-", "\n\n")):
        with pytest.raises(RejectedError, match=r"data\.empty"):
            embed(model, name, "-o", tmp_path / "v.npy", given=given)


@pytest.mark.parametrize(
    ("out", "options", "said"),
    [
        ("v.csv", (), "name it v.npy or v.parquet"),
        ("no/v.npy", (), "does not exist"),
        ("a.npy", (), "is the input file"),
        ("v.npy", ("--dtype", "int4"), "Did you mean 'int8'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_work(model, tmp_path, out, options, said) -> None:
    write_texts(tmp_path / "a.npy", TEXTS)
    with pytest.raises(ConfigError, match=said):
        embed(model, tmp_path / "a.npy", "-o", tmp_path / out, "--format", "text", *options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_without_ray_the_engine_says_what_to_install(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'seqloom\[ray\]'"):
        embed(model, write_texts(tmp_path / "a.txt", TEXTS), "-o", tmp_path / "v.npy", "--engine", "ray")


@pytest.mark.slow
def test_texts_that_are_cut_are_reported_once_also_after_a_stop(model, tmp_path) -> None:
    loaded, out = load(model), tmp_path / "v.npy"
    file = write_texts(tmp_path / "a.txt", [*TEXTS[:20], "the cat sat " * 9, *TEXTS[20:], "a b " * 20])
    with pytest.raises(StoppedError):
        embed_file(loaded, file, out, engine=stopping_after(4))
    (note,) = embed_file(loaded, file, out).notes
    assert note.times == 2 + sum(len(loaded.spec.tokenizer.encode([text]).row(0)) > 12 for text in TEXTS)
