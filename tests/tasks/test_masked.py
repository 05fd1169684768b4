"""Masked prediction: which tokens are hidden, that figures do not depend on batches, and what fine-tuning gains."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from seqloom.config.tokenizers import BpeConfig, CharactersConfig, WordsConfig
from seqloom.config.training import ByLengthConfig, PacksConfig, StreamsConfig
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.masked import FilledPrediction, GapTokenizer, MaskCandidate, drawn, drawn_by_content, hide
from seqloom.tasks.task import HeadSettings
from seqloom.text.special_tokens import COUNT, END, MASK, PAD, SEPARATOR, UNKNOWN

LINES = "".join(f"the {word} cat sees a dog\n" for word in ("old", "new", "red", "warm", "tall", "flat") * 5)
VOCABULARY = 500
Write = Callable[..., Any]


def tokens(rows: int = 40, time: int = 60) -> Padded:
    drawn_tokens = torch.randint(COUNT, VOCABULARY, (rows, time), generator=torch.Generator().manual_seed(1))
    lengths = torch.randint(1, time + 1, (rows,), generator=torch.Generator().manual_seed(2))
    return Padded.of(drawn_tokens, lengths)


def hidden_here(x: Padded, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return hide(x, drawn(x), VOCABULARY)


def test_fifteen_of_a_hundred_tokens_of_each_row_are_hidden_and_one_at_least() -> None:
    x = tokens()
    found = hidden_here(x)
    for length, count in zip(x.lengths.tolist(), found.places.lengths.tolist(), strict=True):
        assert count == max(1, math.floor(0.15 * length + 0.5))


@pytest.mark.parametrize("time", range(1, 80, 7))
def test_what_is_hidden_are_different_places_of_the_row_with_their_tokens(time: int) -> None:
    x = tokens(9, time)
    found = hidden_here(x)
    for row, count in enumerate(found.places.lengths.tolist()):
        places = found.places.values[row, :count].tolist()
        assert len(set(places)) == count and all(place < x.lengths[row] for place in places)
        assert found.targets[row, :count].tolist() == x.values[row, places].tolist()
        others = [place for place in range(time) if place not in places]
        assert torch.equal(found.inputs.values[row, others], x.values[row, others])


def test_eight_of_ten_are_masked_one_is_another_token_and_one_stays() -> None:
    x = tokens(2_000, 60)
    found = hidden_here(x)
    real = found.places.valid
    shown, true = found.inputs.values.gather(1, found.places.values)[real], found.targets[real]
    masked, stayed = (shown == MASK).float().mean().item(), (shown == true).float().mean().item()
    assert masked == pytest.approx(0.8, abs=0.02) and stayed == pytest.approx(0.1, abs=0.02)  # 9,000 of each
    assert bool(((shown == MASK) | (shown >= COUNT)).all())
    assert len(shown[(shown != MASK) & (shown != true)].unique()) > 300  # of 494 tokens


def test_special_tokens_are_never_hidden() -> None:
    values = torch.tensor([[PAD, UNKNOWN, SEPARATOR, END, MASK], [UNKNOWN, 7, END, SEPARATOR, PAD]])
    found = hidden_here(Padded.of(values))
    assert found.places.lengths.tolist() == [0, 1] and found.targets[1, 0] == 7
    assert torch.equal(found.inputs.values[0], values[0])


def test_other_tokens_are_hidden_at_another_step() -> None:
    x = tokens()
    assert not torch.equal(hidden_here(x, 1).inputs.values, hidden_here(x, 2).inputs.values)
    assert torch.equal(hidden_here(x, 1).inputs.values, hidden_here(x, 1).inputs.values)


def test_in_evaluation_an_example_decides_by_itself_whatever_stands_beside_it() -> None:
    x = tokens(5, 30)
    together = hide(x, drawn_by_content(x), VOCABULARY)
    for row in range(5):
        one = x.select(torch.tensor([row])).cut(0, int(x.lengths[row]))
        alone = hide(one, drawn_by_content(one), VOCABULARY)
        assert torch.equal(alone.inputs.values[0], together.inputs.values[row, : x.lengths[row]])


def test_an_evaluation_does_not_depend_on_what_rows_are_called(written: Write) -> None:
    """Training counts rows over all parts of its data, `evaluate` those of the part it reads: the figures agree."""
    found = masked(written)
    model, batches = found.model("cnn"), found.batches("dev")
    called = [batch._replace(ids=tuple(str(900 - int(id_)) for id_ in batch.ids)) for batch in batches]
    one, other = (evaluate(found.task, model, iter(each), keep=1_000) for each in (batches, called))
    assert one.metrics == other.metrics


def packed(*documents: torch.Tensor) -> Padded:
    """One row of documents, each with its END, as packs hold them."""
    ended = [torch.cat([one, torch.tensor([END])]) for one in documents]
    numbers = torch.cat([torch.full((len(one),), number) for number, one in enumerate(ended)])
    return Padded.of(torch.cat(ended)[None], segments=numbers[None])


@pytest.mark.parametrize("length", [1, 3, 20])
def test_in_evaluation_what_is_hidden_does_not_depend_on_the_neighbors_in_a_packed_row(length: int) -> None:
    draw = torch.Generator().manual_seed(5)
    mine, *others = (torch.randint(COUNT, VOCABULARY, (n,), generator=draw) for n in (length, 40, 1, 7))
    alone = Padded.of(mine[None])
    expected = hide(alone, drawn_by_content(alone), VOCABULARY)
    assert expected.places.lengths.item() == max(1, math.floor(0.15 * length + 0.5))
    for before, behind in (([], others), (others, []), (others[:1], others[1:])):
        row = packed(*before, mine, *behind)
        found = hide(row, drawn_by_content(row), VOCABULARY)
        start = sum(len(one) + 1 for one in before)
        assert torch.equal(found.inputs.values[0, start : start + length], expected.inputs.values[0])
        places = found.places.values[0, : found.places.lengths[0]]
        mine_of = places[(places >= start) & (places < start + length)] - start
        assert mine_of.tolist() == expected.places.values[0, : expected.places.lengths[0]].tolist()


def test_every_document_is_judged_by_the_same_hidden_tokens_packed_or_not(written: Write) -> None:
    found = masked(written)
    model = found.model("cnn")
    apart, *packs = (
        evaluate(found.task, model, found.batches("dev", feed), keep=1_000)
        for feed in (
            ByLengthConfig(batch_tokens=64),
            PacksConfig(batch_rows=2, row_length=40),
            PacksConfig(batch_rows=1, row_length=90),
        )
    )
    for one in packs:  # some are cut in two by the end of a row
        truths = {judged.id: judged.expected for judged in one.examples}
        whole = [name for name, count in Counter(judged.id for judged in one.examples).items() if count == 1]
        same = [truths[judged.id] == judged.expected for judged in apart.examples if judged.id in whole]
        assert {*truths} == {judged.id for judged in apart.examples}
        assert all(same) and len(same) >= 0.7 * len(apart.examples)


def masked(written: Write, **settings: Any) -> Any:
    return written("a.txt", LINES, LINES, task="masked", **settings)


@pytest.mark.slow
def test_figures_do_not_depend_on_batches_and_are_the_same_every_time(written: Write) -> None:
    found = masked(written)
    model = found.model("bilstm")
    first, *others = (
        evaluate(found.task, model, found.batches("dev", ByLengthConfig(batch_tokens=batch_tokens)))
        for batch_tokens in (8, 8, 64, 500)
    )
    assert first.rows == len(found.prepared.splits["dev"])
    for other in others:
        assert other.metrics == pytest.approx(first.metrics, rel=1e-5)


def test_the_loss_is_that_of_the_hidden_tokens_alone(written: Write) -> None:
    found = masked(written)
    model = found.model("cnn").eval()
    for batch in found.batches("dev"):
        torch.manual_seed(3)
        loss, state = found.task.loss(model, batch, None)
        torch.manual_seed(3)
        hidden = hide(batch.inputs, drawn(batch.inputs), found.task.tokenizer.vocab_size)
        scores = model(hidden.inputs).values.log_softmax(dim=-1)
        picked = [
            -scores[row, place, target].item()
            for row, count in enumerate(hidden.places.lengths.tolist())
            for place, target in zip(
                hidden.places.values[row, :count].tolist(), hidden.targets[row, :count].tolist(), strict=True
            )
        ]
        assert state is None and float(loss.weight) == len(picked)
        assert loss.total.item() == pytest.approx(sum(picked), rel=1e-4)


def test_packs_hold_all_tokens_and_every_document_is_judged_under_its_id(written: Write) -> None:
    found = masked(written)
    batches = found.batches("dev", PacksConfig(batch_rows=2, row_length=40))
    rows, column = found.prepared.splits["dev"], found.prepared.columns["input"]
    read = [batch.inputs.values[batch.inputs.valid] for batch in batches]
    expected = [*column.select(rows).values.tolist(), *[END] * len(rows)]
    assert sorted(torch.cat(read).tolist()) == sorted(expected)
    evaluation = evaluate(found.task, found.model("cnn"), batches)
    assert set(evaluation.ids) <= set(map(str, rows.tolist()))
    assert evaluation.statistics[:, -1].sum() > 0.1 * len(column.select(rows).values)


def test_streams_are_refused(written: Write) -> None:
    found = masked(written)
    with pytest.raises(ConfigError, match="streams"):
        found.task.require_batching(found.model("cnn"), StreamsConfig())
    found.task.require_batching(found.model("cnn"), PacksConfig())


def test_families_that_see_one_side_only_are_refused(written: Write) -> None:
    task = masked(written).task
    assert {"encoder", "bilstm", "cnn", "transformer"} <= set(task.recipes())
    for name in ("lstm", "gpt", "bag", "linear"):
        with pytest.raises(ConfigError, match="masked-model"):
            task.model(name, "nano", HeadSettings())


def test_every_recipe_makes_a_model_that_sees_what_stands_behind(written: Write) -> None:
    found = masked(written)
    for name in found.task.recipes():
        model = found.model(name).eval()
        x = torch.randint(COUNT, found.task.tokenizer.vocab_size, (1, 6), generator=torch.Generator().manual_seed(0))
        other = x.clone()
        other[0, 3] = x[0, 3] % (found.task.tokenizer.vocab_size - COUNT - 1) + COUNT + 1
        scores = [model(Padded.of(values)).values[0, 2] for values in (x, other)]
        assert not torch.equal(*scores), name


@pytest.mark.parametrize(
    ("tokenizer", "text"),
    [
        (WordsConfig(), "the [MASK] cat sees [MASK] dog"),
        (CharactersConfig(), "the o[MASK]d cat"),
        (BpeConfig(vocab_size=300), "the [MASK] cat"),
    ],
    ids=lambda given: given if isinstance(given, str) else given.kind(),
)
def test_gaps_are_tokens_in_questions_and_text_in_data(tokenizer: Any, text: str) -> None:
    plain = tokenizer.fit([LINES])
    asked = GapTokenizer(plain).encode([text, LINES]).row(0).tolist()
    assert asked.count(MASK) == text.count("[MASK]")
    assert MASK not in plain.encode([text]).row(0).tolist()
    assert GapTokenizer(plain).encode([LINES]).row(0).tolist() == plain.encode([LINES]).row(0).tolist()


def test_a_gap_stands_where_the_missing_word_stood() -> None:
    for tokenizer in (WordsConfig(), BpeConfig(vocab_size=400)):
        plain = tokenizer.fit([LINES])
        whole, asked = (
            one.encode([text]).row(0) for one, text in ((plain, "a dog"), (GapTokenizer(plain), "a [MASK]"))
        )
        assert asked.tolist() == [*whole[: len(plain.encode(["a"]).row(0))].tolist(), MASK]


def test_gaps_are_filled_with_the_likeliest_tokens_in_the_text_that_was_asked_about(written: Write) -> None:
    found = masked(written)
    model = found.model("bilstm").eval()
    text = "The [MASK] cat,\tsees a [MASK]"
    encoded = found.task.input_spec.tokenizer.encode([text]).row(0)
    (said,) = found.task.predict(model, Padded.of(torch.from_numpy(encoded.astype(np.int64))[None]))
    answer = said.with_input(text)
    assert [len(guesses) for guesses in answer.masks] == [5, 5]
    for guesses in answer.masks:
        assert [guess.probability for guess in guesses] == sorted((one.probability for one in guesses), reverse=True)
    first, second = (guesses[0].text for guesses in answer.masks)
    assert answer.to_json()["text"] == f"The {first} cat,\tsees a {second}"


def test_special_tokens_are_never_candidates(written: Write) -> None:
    found = masked(written)
    model = found.model("bilstm").eval()
    with torch.no_grad():
        model.head.bias[:COUNT] = 100.0
    given = Padded.of(torch.tensor([[COUNT, MASK, COUNT + 1]]))
    assert int(model(given).values[0, 1].argmax()) < COUNT  # the model itself prefers a special token
    (said,) = found.task.predict(model, given)
    special = {found.task._text(token) for token in range(COUNT)}
    assert len(said.masks[0]) == 5 and not special & {guess.text for guess in said.masks[0]}


def test_gaps_that_were_not_read_stay_gaps_and_the_text_behind_them_is_kept() -> None:
    said = FilledPrediction(masks=((MaskCandidate("cat", 0.9), MaskCandidate("dog", 0.1)),))
    text = "the [MASK] sat on the [MASK] of the [MASK], here"
    assert said.with_input(text).text == "the cat sat on the [MASK] of the [MASK], here"
    assert FilledPrediction(masks=()).with_input(text).text == text


def test_a_text_without_gaps_comes_back_as_it_is(written: Write) -> None:
    found = masked(written)
    (said,) = found.task.predict(found.model("cnn").eval(), Padded.of(torch.tensor([[7, 8]])))
    assert said.with_input("a  dog").to_json() == {"text": "a  dog", "masks": []}


# Fine-tuning: nouns of two kinds, which only what they do tells apart; labels are known of a few nouns

KINDS = {"animal": ("eats", "sleeps", "runs"), "tool": ("breaks", "cuts", "rusts")}
NOUNS = {kind: [f"{kind[0]}{number}" for number in range(16)] for kind in KINDS}


def sentences(count: int) -> list[str]:
    draw = np.random.Generator(np.random.PCG64(0))
    kinds = draw.choice(list(KINDS), count)
    return [f"the {draw.choice(NOUNS[kind])} {draw.choice(KINDS[kind])} here" for kind in kinds]


def nouns(start: int, stop: int) -> list[tuple[str, str]]:
    return [(noun, kind) for kind in KINDS for noun in NOUNS[kind][start:stop]]


def labeled(folder: Path, task: str) -> tuple[Path, Path]:
    """Nouns of which the kind is told, and others to be judged by."""
    paths = folder / f"{task}-train.jsonl", folder / f"{task}-dev.jsonl"
    for path, pairs in zip(paths, (nouns(0, 5) * 4, nouns(5, 16)), strict=True):
        rows = (
            {"text": f"the {noun}", "label": kind}
            if task == "classify"
            else {"tokens": ["the", noun], "tags": ["O", kind]}
            for noun, kind in pairs
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


@pytest.mark.soak
@pytest.mark.slow
def test_a_model_that_was_trained_on_text_alone_is_a_better_start_for_classify_and_tag(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(sentences(600)) + "\n")
    how: dict[str, Any] = {"patience": 0, "device": "cpu", "lr": 0.01, "seed": 1}
    start = tmp_path / "start"
    seqloom.train(tmp_path / "text.txt", out=start, task="masked", model="cnn", size="nano", steps=150, **how)
    for task in ("classify", "tag"):
        train, dev = labeled(tmp_path, task)
        fresh = {"model": "cnn", "size": "nano", "char_encoder": "none"}  # nouns of a kind begin with the same letter
        runs: dict[str, dict[str, Any]] = {"fresh": fresh, "tuned": {"init": str(start)}}
        scores = {}
        for name, model in runs.items():
            out = tmp_path / f"{task}-{name}"
            seqloom.train(train, dev=(str(dev),), out=out, task=task, steps=60, **how, **model)
            scores[name] = seqloom.load(out).evaluate(split="dev").metrics["accuracy"]
        assert scores["tuned"] > scores["fresh"] + 0.15, (task, scores)
        assert scores["tuned"] > 0.85, (task, scores)
