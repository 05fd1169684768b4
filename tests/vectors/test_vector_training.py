"""Word vectors: windows and steps equal their definition, the result factorizes PMI, and files are used at once."""

import math
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import logsigmoid

import seqloom
from seqloom import vectors
from seqloom.config.tokenizers import WordsConfig
from seqloom.config.vectors import VectorMethod, WordVectorsConfig
from seqloom.data.word_vectors import WordVectors, read_vectors, write_vectors
from seqloom.errors import ConfigError, DataError
from seqloom.events import finished
from seqloom.text.ragged import Ragged
from seqloom.vectors.corpus import Corpus, CorpusFile, read_corpus
from seqloom.vectors.lookup import VectorSpace
from seqloom.vectors.objectives import OBJECTIVES, TensorBlocks, VectorTables
from seqloom.vectors.tables import SubwordTable, WordTable, ngrams
from seqloom.vectors.training import VectorTraining, train_vectors
from seqloom.vectors.windows import BLOCK, SMOOTHING, WindowBlocks, Windows, kept_shares

CORPUS = "the cat sat . the dog sat .\n" * 6 + "a cat ran . a dog ran .\n" * 6
METHODS = pytest.mark.parametrize("method", list(OBJECTIVES))


def corpus_of(texts: list[list[int]], vocabulary: int) -> Corpus:
    ragged = Ragged.of(texts, np.int32)
    counts = np.bincount(ragged.values, minlength=vocabulary)
    return Corpus(tuple(f"w{number}" for number in range(vocabulary)), counts, ragged, 0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS)
    return path


# --- windows ---------------------------------------------------------------------------------------------------------


def pairs_of(drawn: WindowBlocks) -> list[tuple[int, int]]:
    """Every (center, context) of the blocks, in order of their places."""
    blocks, centers, contexts = np.nonzero(drawn.in_window)
    return list(zip(drawn.centers[blocks, centers].tolist(), drawn.contexts[blocks, contexts].tolist(), strict=True))


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 45), max_size=5).map(lambda lengths: [*lengths, 1]), st.integers(1, 6), st.integers(0, 9)
)
def test_windows_hold_the_near_words_of_the_same_text_and_no_others(lengths: list[int], window: int, seed: int) -> None:
    total = sum(lengths)
    numbers = iter(range(total))  # every word is another, so that a pair tells its places
    texts = [[next(numbers) for _ in range(length)] for length in lengths]
    windows = Windows(corpus_of(texts, total + 1), WordVectorsConfig(window=window, sample=0.0))
    found = pairs_of(windows.blocks(0, total, np.random.default_rng(seed)))
    assert len(set(found)) == len(found)
    inside = {(a, b) for text in texts for a in text for b in text if 0 < abs(a - b) <= window}
    assert set(found) <= inside
    for a, b in found:  # a window has all words up to its reach
        assert {(a, c) for c in range(total) if 0 < abs(a - c) <= abs(a - b)} & inside <= set(found)
    assert {pair for pair in inside if abs(pair[0] - pair[1]) == 1} <= set(found)


def test_the_reach_of_windows_is_uniform() -> None:
    text = list(range(20_000))
    windows = Windows(corpus_of([text], len(text)), WordVectorsConfig(window=4, sample=0.0))
    found = np.array(pairs_of(windows.blocks(0, len(text), np.random.default_rng(0))))
    shares = np.bincount(np.abs(found[:, 0] - found[:, 1]))[1:] / (2 * len(text))
    np.testing.assert_allclose(shares, [1.0, 0.75, 0.5, 0.25], atol=0.02)


def test_frequent_words_are_left_out_as_often_as_the_formula_says() -> None:
    text = [0] * 18_000 + [1] * 2_000
    corpus = corpus_of([text], 2)
    kept = kept_shares(corpus.counts, 0.05)
    np.testing.assert_allclose(kept[0], math.sqrt(0.05 / 0.9) + 0.05 / 0.9)
    drawn = Windows(corpus, WordVectorsConfig(sample=0.05)).blocks(0, len(text), np.random.default_rng(0))
    centers = drawn.centers[drawn.in_window.any(2)]
    np.testing.assert_allclose(np.bincount(centers) / corpus.counts, kept, atol=0.02)
    assert np.bincount(drawn.noise.flatten())[0] / drawn.noise.size == pytest.approx(
        9**SMOOTHING / (1 + 9**SMOOTHING), abs=0.02
    )


def test_a_chunk_of_which_nothing_is_kept_trains_nothing() -> None:
    corpus = corpus_of([[0, 1] * 20], 2)
    training = VectorTraining(corpus, WordVectorsConfig(dim=3, sample=1e-30))
    before = training.tables.inputs.vectors().clone()
    assert training.run(0, 0) == 40
    assert torch.equal(training.tables.inputs.vectors(), before) and not training.tables.outputs.any()


# --- steps -----------------------------------------------------------------------------------------------------------


def loss(method: VectorMethod, v: Tensor, u: Tensor, batch: TensorBlocks, negative: int) -> Tensor:
    """The objective as the paper writes it, one center and one neighbor after another."""
    total = v.new_zeros(())
    for block, centers in enumerate(batch.centers.tolist()):
        contexts, noise = batch.contexts[block].tolist(), batch.noise[block].tolist()
        for place, center in enumerate(centers):
            near = [word for at, word in enumerate(contexts) if batch.in_window[block, place, at]]
            if not near:
                continue
            if method == "skip-gram":
                examples = [(v[center], word) for word in near]
            else:
                examples = [(torch.stack([v[word] for word in near]).mean(0), center)]
            for x, target in examples:
                total = total - logsigmoid(u[target] @ x)
                total = total - logsigmoid(-u[noise] @ x).sum() * negative / len(noise)
    return total


@METHODS
def test_a_step_is_the_gradient_of_the_objective(method: VectorMethod) -> None:
    text = np.random.default_rng(1).integers(0, 7, 40).tolist()
    windows = Windows(corpus_of([text[:25], text[25:]], 7), WordVectorsConfig(window=2, sample=0.0))
    drawn = windows.blocks(0, 40, np.random.default_rng(0))
    batch = TensorBlocks(*map(torch.from_numpy, drawn))
    v, u = (torch.randn(7, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    loss(method, v, u, batch, 4).backward()
    assert v.grad is not None and u.grad is not None
    tables = VectorTables(WordTable(v.detach().clone()), u.detach().clone())
    OBJECTIVES[method].step(tables, batch, negative=4, lr=0.1)
    torch.testing.assert_close(tables.inputs.vectors(), v.detach() - 0.1 * v.grad, rtol=0, atol=1e-6)
    torch.testing.assert_close(tables.outputs, u.detach() - 0.1 * u.grad, rtol=0, atol=1e-6)


def test_a_batch_is_smaller_if_few_words_share_it() -> None:
    few, many = (corpus_of([list(range(size)) * (6_000 // size)], size) for size in (4, 3_000))
    assert VectorTraining(few, WordVectorsConfig()).batch_blocks == 1
    assert VectorTraining(many, WordVectorsConfig()).batch_blocks * BLOCK == 1_024


@pytest.mark.slow
@METHODS
def test_the_products_are_the_shifted_pmi(method: VectorMethod) -> None:
    """With enough dimensions u_c . v_w = log [#(w,c) / (#(w) k q(c))] (Levy and Goldberg 2014)."""
    draw = np.random.default_rng(0)
    chances = draw.dirichlet(np.ones(5) * 2, size=5)
    text = [0]
    for chance in draw.random(8_000):
        text.append(min(4, int(np.searchsorted(chances[text[-1]].cumsum(), chance))))
    corpus = corpus_of([[a, b] for a, b in pairwise(text)], 5)  # texts of two words: one neighbor
    config = WordVectorsConfig(method=method, dim=8, window=1, sample=0.0, negative=2, epochs=8, lr=0.05)
    training = VectorTraining(corpus, config)
    for chunk in training.chunks():
        training.run(*chunk)
    joint = np.zeros((5, 5))
    np.add.at(joint, (text[:-1], text[1:]), 1)
    joint += joint.T  # each pair has two centers
    noise = corpus.counts**SMOOTHING / (corpus.counts**SMOOTHING).sum()
    pmi = np.log(joint / (joint.sum(1, keepdims=True) * 2 * noise))
    found = (training.tables.inputs.vectors() @ training.tables.outputs.T).numpy()
    assert np.abs(found - pmi).max() < 0.25 and np.corrcoef(found.flatten(), pmi.flatten())[0, 1] > 0.98


# --- subwords --------------------------------------------------------------------------------------------------------


def test_the_vector_of_a_word_is_the_mean_of_its_rows_and_a_step_moves_it_by_its_length() -> None:
    table = SubwordTable(["walk", "walking", "a"], 4, seed=0)
    members = table.members.split(table.sizes.tolist())
    assert [len(rows) for rows in members] == [1 + len(ngrams(word)) for word in ("walk", "walking", "a")]
    assert set(members[0].tolist()) & set(members[1].tolist()), "both begin with <wa"
    means = torch.stack([table.rows[rows].mean(0) for rows in members])
    torch.testing.assert_close(table.vectors(), means)
    step = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    table.add(torch.tensor([2, 2]), step.expand(2, -1))
    torch.testing.assert_close(table.vectors()[2:], means[2:] + 2 * step)
    torch.testing.assert_close(table.vectors()[0], means[0])


def test_words_of_one_stem_are_nearer_with_subwords(tmp_path: Path) -> None:
    """The forms of a verb never share a context here: only their n-grams do."""
    draw = np.random.default_rng(0)
    stems = ["walk", "sing", "jump", "cook"]
    lines = [
        f"x{place} {stem}{end} y{place}"
        for place, (stem, end) in enumerate((s, e) for s in stems for e in ("ing", "ed"))
    ]
    file = tmp_path / "verbs.txt"
    file.write_text("\n".join(lines[at] for at in draw.integers(0, len(lines), 1_500)))
    near = {}
    for subwords in (False, True):
        out = tmp_path / f"{subwords}.txt"
        vectors.train(file, out=out, dim=16, window=1, epochs=1, sample=0.0, subwords=subwords)
        space = VectorSpace.read(out)
        units = [space.units[[space.number(f"{stem}{end}") for stem in stems]] for end in ("ing", "ed")]
        near[subwords] = float((units[0] * units[1]).sum(1).mean())
    assert near[True] > near[False] + 0.2


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["v.txt", "v.vec", "v.bin"])
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    matrix = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    write_vectors(tmp_path / name, WordVectors(("12", "café", "北京"), matrix))
    found = read_vectors(tmp_path / name)
    assert found.words == ("12", "café", "北京")
    np.testing.assert_allclose(found.matrix, matrix, rtol=1e-5)


@METHODS
def test_one_seed_gives_the_same_bytes_and_another_seed_others(
    method: VectorMethod, file: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        vectors.train(file, out=tmp_path / f"{name}.txt", method=method, dim=4, epochs=2, seed=seed)
    first, same, other = ((tmp_path / f"{name}.txt").read_bytes() for name in "abc")
    assert first == same != other


def test_threads_train_on_every_chunk_and_stop_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.vectors.training.CHUNK", 50)
    corpus = corpus_of([[0, 1, 2, 3] * 100], 4)
    config, shown = WordVectorsConfig(dim=4, epochs=2, threads=3), list[int]()
    found = finished(train_vectors(corpus, config), lambda event: shown.append(event.done))
    assert shown == list(range(50, 801, 50)) and np.isfinite(found.matrix).all()
    wild = msgspec.structs.replace(config, lr=900.0)
    with pytest.raises(ConfigError, match="use a lower --lr"):
        finished(train_vectors(corpus_of([[0, 1, 2, 3] * 2_000], 4), wild))


def test_rare_words_are_left_out_before_windows_are_made(tmp_path: Path) -> None:
    file = tmp_path / "c.csv"
    file.write_text("text,other\n" + "a rare1 b,z\n" + "a rare2 b,z\n" * 1 + "b a,z\n")
    corpus = finished(read_corpus(CorpusFile(file), WordsConfig(min_count=3)))
    assert corpus.words == ("a", "b") and corpus.counts.tolist() == [3, 3] and corpus.dropped == 2
    assert [corpus.texts.row(row).tolist() for row in range(3)] == [[0, 1], [0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("out", "settings_", "message"),
    [
        ("v.kv", {}, "unknown extension '.kv'"),
        ("none/v.txt", {}, "does not exist"),
        ("corpus.txt", {}, "would overwrite the corpus"),
        ("v.txt", {"min_count": 500}, "0 words occur at least 500 times"),
        ("v.txt", {"window": 0}, "window: expected a whole number from 1"),
        ("v.txt", {"vector_size": 9}, "it is called 'dim' here"),
    ],
)
def test_what_cannot_work_is_an_error_and_writes_nothing(
    out: str, settings_: dict[str, int], message: str, file: Path, tmp_path: Path
) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        vectors.train(file, out=tmp_path / out, **settings_)  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"] and file.read_text() == CORPUS


def test_a_file_that_exists_is_never_replaced(file: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine\n")
    with pytest.raises(ConfigError, match=r"notes\.txt already exists.*choose another name, or delete it"):
        vectors.train(file, out=tmp_path / "notes.txt", dim=4, epochs=1)
    assert (tmp_path / "notes.txt").read_text() == "mine\n"


def test_an_interrupted_training_leaves_no_file(file: Path, tmp_path: Path) -> None:
    def interrupt(event: object) -> None:
        if "words" in str(event):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vectors.train(file, out=tmp_path / "v.txt", dim=4, show=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.txt"]


def test_the_torch_threads_of_the_caller_stay(file: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        vectors.train(file, out=tmp_path / "v.txt", dim=4, epochs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# --- use -------------------------------------------------------------------------------------------------------------


@METHODS
def test_words_of_one_class_become_neighbors(method: VectorMethod) -> None:
    """Words of a class occur in the same contexts, never together."""
    draw = np.random.default_rng(0)
    classes = draw.integers(0, 3, 3_000)
    texts = [
        [12 + 2 * int(kind), 4 * int(kind) + int(word), 13 + 2 * int(kind)]
        for kind, word in zip(classes, draw.integers(0, 4, 3_000), strict=True)
    ]
    config = WordVectorsConfig(method=method, dim=8, window=2, sample=0.0, epochs=2)
    space = VectorSpace(finished(train_vectors(corpus_of(texts, 18), config)))
    for word in range(12):
        nearest = set(space.neighbors(f"w{word}", top_k=3).words)
        assert nearest == {f"w{other}" for other in range(12) if other // 4 == word // 4 and other != word}


@pytest.mark.slow
def test_trained_vectors_start_a_classifier(tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "vectors.txt"
    good, bad = ["good", "great", "fine"], ["bad", "awful", "poor"]
    lines = [f"a {word} film , I {verb} it" for words, verb in ((good, "love"), (bad, "hate")) for word in words]
    corpus.write_text("\n".join(lines * 150))
    vectors.train(corpus, out=out, dim=8, epochs=5, sample=0.0)
    data = tmp_path / "films.csv"
    data.write_text("text,label\n" + "a good film,pos\na bad film,neg\n" * 10)
    messages: list[str] = []
    run = seqloom.train(
        data, word_vectors=out, freeze_word_vectors=True, model="bag", size="nano", epochs=20, device="cpu",
        out=tmp_path / "run", show=lambda event: messages.extend(getattr(event, "messages", ())),
    )  # fmt: skip
    assert any(line.startswith("word vectors: 4 of 4 words") for line in messages)
    predicted = seqloom.load(run.folder).predict(["a great film", "a poor film", "a fine film", "an awful film"])
    assert [one.label for one in predicted] == ["pos", "neg", "pos", "neg"]
