"""Translation: exact match by tokens, BLEU and chrF of the original texts, bounded answers, n-best, copies."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

from seqloom.config.decoding import BeamConfig, GreedyConfig
from seqloom.config.tokenizers import BytesConfig, CharactersConfig, WordsConfig
from seqloom.data.kinds.target_text import REFERENCE
from seqloom.decoding.answers import GeneratedText
from seqloom.errors import ConfigError
from seqloom.nn.types import Padded, Pair
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.task import HeadSettings
from seqloom.tasks.translate import Translate
from seqloom.text.special_tokens import END, UNKNOWN
from seqloom.training.request import requested
from seqloom.training.resolve import resolve
from seqloom.training.step import moved

Find = Callable[[str], Any]


def test_an_answer_is_right_if_every_token_is_and_no_other_way(small: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    found = small("parallel")
    task, batch = found.task, found.batches("train")[0]
    truth = [[token for token in row if token > END] for row in batch.targets.tolist()]
    answers = [truth[0], truth[1][:-1], [*truth[2], 7], *([] for _ in truth[3:])]
    monkeypatch.setattr(task, "written", lambda *_: answers)
    judged, _ = task.evaluate_batch(found.model(), batch, None)
    assert [one.correct for one in judged] == [True] + [False] * (len(truth) - 1)
    assert task.measure(np.sum([one.statistics for one in judged], axis=0))["exact_match"] == 1 / len(truth)
    assert judged[0].predicted == judged[0].expected


def test_what_the_vocabulary_lacks_is_never_said_exactly(written: Callable[..., Any], monkeypatch: Any) -> None:
    train = "source\ttarget\n" + "one two\teins zwei\n" * 9
    small = written("a.tsv", train, "source\ttarget\none two\teins quark\n", task="translate", tokenizer="words")
    (batch,) = small.batches()
    truth = batch.targets[0, :-1].tolist()
    assert UNKNOWN in truth
    monkeypatch.setattr(small.task, "written", lambda *_: [truth])
    ((one,), _) = small.task.evaluate_batch(small.model(), batch, None)
    assert not one.correct
    assert one.expected == "eins quark"
    assert one.predicted == "eins <unknown>"


@pytest.mark.slow
def test_perplexity_belongs_to_the_mean_loss_of_the_true_tokens(small: Find) -> None:
    found = small("parallel")
    model = found.model().eval()
    metrics = evaluate(found.task, model, found.batches()).metrics
    with torch.no_grad():
        losses = [model.loss(batch) for batch in found.batches()]
    mean = sum(loss.total.item() for loss in losses) / sum(loss.weight.item() for loss in losses)
    assert metrics["perplexity"] == pytest.approx(np.exp(mean), rel=1e-5)
    assert metrics["loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.slow
def test_an_answer_ends_at_a_bound_that_the_source_sets(small: Find) -> None:
    found = small("parallel")
    model = found.model().eval()
    with torch.no_grad():
        model.head.bias[END] = -99.0
    source = found.batches()[0].inputs.source
    answers = found.task.written(model, source)
    assert [len(answer) for answer in answers] == found.task.most_tokens(source.lengths).tolist()
    assert bool((found.task.most_tokens(source.lengths) >= 2 * source.lengths + 32).all())


def test_a_word_may_become_many_characters(written: Callable[..., Any]) -> None:
    train = "source\ttarget\n" + "one two\teins zwei\n" * 9
    apart = {"tokenizer": WordsConfig(), "target_tokenizer": CharactersConfig()}
    small = written("a.tsv", train, train, task="translate", **apart)
    same = written("a.tsv", train, train, task="translate", tokenizer=CharactersConfig())
    lengths = torch.tensor([2, 30])
    assert bool((small.task.most_tokens(lengths) > same.task.most_tokens(lengths)).all())


def test_an_answer_may_be_as_long_as_the_longest_training_target(written: Callable[..., Any]) -> None:
    train = "source\ttarget\njump often\t" + "jump " * 60 + "\n" + "jump\tjump\n" * 9
    found = written("a.tsv", train, train, task="translate", tokenizer=WordsConfig())
    assert found.task.most_tokens(torch.tensor([2, 50])).tolist() == [61, 132]


@pytest.mark.slow
def test_the_source_alone_is_enough_for_an_answer(small: Find) -> None:
    found = small("parallel")
    model, inputs = found.model().eval(), found.batches()[0].inputs
    assert isinstance(inputs, Pair)
    assert found.task.predict(model, inputs) == found.task.predict(model, inputs.source)


def test_a_model_with_another_vocabulary_is_refused(small: Find) -> None:
    task = small("parallel").task
    model = task.model("transformer", "nano", HeadSettings(label_smoothing=0.2))
    assert model.head.label_smoothing == 0.2
    larger = model.head.vocab_size + 1
    other = type(task)(task.spec)
    other.spec = task.spec._replace(target_tokenizer=_Sized(task.tokenizer, larger))
    with pytest.raises(ConfigError, match=r"that of the model|and the model of"):
        other.require(model)


class _Sized:
    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self.config, self.vocab_size = tokenizer.config, vocab_size


RAW = "source\ttarget\n" + "one two\tEins, zwei!\nthree\tDrei sind da.\nfour\tVier?\n" * 4
CUT = "source\ttarget\n" + "one two\teins , zwei !\nthree\tdrei sind u.s. - da .\nfour\tvier ?\n" * 4


@pytest.mark.parametrize(
    ("text", "tokenizer"),
    [
        (RAW, WordsConfig(lowercase=True, min_count=9)),
        (RAW, CharactersConfig()),
        (CUT, WordsConfig(word_split="space")),
    ],
)
def test_scores_are_those_of_sacrebleu_for_the_original_texts(
    written: Callable[..., Any], text: str, tokenizer: Any
) -> None:
    found = written("a.tsv", text, text, task="translate", tokenizer=tokenizer)
    said = ["Eins zwei!", "drei , da .", "vier"] * 4
    rows = [found.task.tokenizer.encode([one]).row(0).tolist() for one in said]
    texts = [found.task.tokenizer.decode(row) for row in rows]
    true = [line.partition("\t")[2] for line in text.splitlines()[1:]]
    judged = [found.task._evaluated("0", *each, 1.0, 1.0) for each in zip(rows, rows, true, strict=True)]
    scores = found.task.measure(np.sum([one.statistics for one in judged], axis=0))
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(texts, [true], force=True).score, rel=1e-9)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(texts, [true]).score, rel=1e-9)
    if text is CUT:
        plain = sacrebleu.corpus_bleu(texts, [true], tokenize="none", force=True).score
        assert scores["bleu_tokenized"] == pytest.approx(plain, rel=1e-9)


def test_a_text_is_judged_against_the_original_and_tokenized_in_the_case_of_the_model(
    written: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = written("a.tsv", RAW, RAW, task="translate", tokenizer=WordsConfig(lowercase=True))
    batches = found.batches()
    truths = [[[token for token in row if token > END] for row in batch.targets.tolist()] for batch in batches]
    monkeypatch.setattr(Translate, "written", lambda *_: truths.pop(0))
    metrics = evaluate(found.task, found.model(), batches, keep=99)
    assert {one.expected for one in metrics.examples} == {"Eins, zwei!", "Drei sind da.", "Vier?"}
    assert {one.predicted for one in metrics.examples} == {"eins, zwei!", "drei sind da.", "vier?"}
    assert metrics.metrics["exact_match"] == 1
    assert metrics.metrics["bleu_tokenized"] == pytest.approx(100)
    assert metrics.metrics["bleu"] < 99  # a reader misses the capitals
    assert "case:lc" in found.task.signatures(metrics.statistics)["bleu_tokenized"]


def test_training_reads_no_reference(small: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    found = small("parallel")
    monkeypatch.setitem(found.prepared.columns, REFERENCE, Sealed())
    model = found.model("seq2seq")
    for batch in found.batches("train"):
        found.task.loss(model, batch, None)
        assert len(batch.references) == len(batch.ids)
        assert moved(batch, torch.device("meta")).references is batch.references


class Sealed:
    """A column that nobody may look into."""

    def __getattr__(self, name: str) -> Any:
        pytest.fail(f"the column of references was asked for its {name}")


def test_other_metrics_may_decide(small: Find) -> None:
    task = small("parallel").task
    assert task.with_metric("bleu").metric.name == "bleu"
    assert {*task.signatures(np.zeros((1, task.statistics)))} == {"bleu", "bleu_tokenized", "chrf"}
    assert {metric.name for metric in task.metrics} <= task.measure(np.zeros(task.statistics)).keys()


def test_a_beam_gives_the_best_first_and_the_others_with_their_scores(small: Find) -> None:
    found = small("parallel")
    model, inputs = found.model("seq2seq-dot").eval(), found.batches()[0].inputs
    task = found.task.writing(BeamConfig(beam_size=4, n_best=3))
    for prediction in task.predict(model, inputs):
        scores = [prediction.score, *(other.score for other in prediction.alternatives)]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)
        assert [*prediction.to_json()] == ["text", "score", "alternatives"]
    one = found.task.writing(BeamConfig(beam_size=1, length_penalty=0.0)).predict(model, inputs)
    assert one == found.task.predict(model, inputs)  # a beam of one is greedy


def test_an_answer_is_no_longer_than_was_asked(small: Find) -> None:
    found = small("parallel")
    source = found.batches()[0].inputs.source
    with torch.no_grad():
        (model := found.model().eval()).head.bias[END] = -99.0
    for how in (GreedyConfig(max_new_tokens=3), BeamConfig(beam_size=2, max_new_tokens=3)):
        assert {len(answer) for answer in found.task.writing(how).written(model, source)} == {3}


def test_what_is_unknown_is_copied_from_the_word_that_was_looked_at(
    written: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    train = "source\ttarget\n" + "Ms Red sleeps.\tFrau Red ruht.\n" * 9
    found = written("a.tsv", train, train, task="translate", tokenizer=WordsConfig())
    model = found.model("seq2seq-dot").eval()
    task, tokenizer = found.task.copying(model), found.task.tokenizer
    frau, ruht, stop = (tokenizer.encode([word]).row(0).tolist()[0] for word in ("Frau", "ruht", "."))
    looks = torch.eye(4)  # token t of the answer was said while token t of the source was looked at
    monkeypatch.setattr("seqloom.tasks.translate.alignment", lambda *_: looks)
    answer = [frau, UNKNOWN, ruht, stop]
    monkeypatch.setattr(Translate, "answers", lambda *_: [[GeneratedText(answer, -1.0, "end", "Frau ruht.")]])
    source = "Ms Quark sleeps."
    tokens = torch.tensor([tokenizer.encode([source]).row(0).tolist()])
    (prediction,) = task.predict(model, Padded.of(tokens))
    assert prediction.with_input(source).text == "Frau Quark ruht."


def test_copying_is_refused_where_nothing_can_be_copied(small: Find, written: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="attention to the source"):
        small("parallel").task.copying(small("parallel").model("seq2seq"))
    pictures = small("pictures to text")
    with pytest.raises(ConfigError, match="reads picture"):
        pictures.task.copying(pictures.model())
    subwords = written("a.tsv", RAW, RAW, task="translate", tokenizer=BytesConfig())
    with pytest.raises(ConfigError, match="no unknown tokens"):
        subwords.task.copying(subwords.model("seq2seq-dot"))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["vectors to text", "pictures to text"])
def test_vectors_and_pictures_are_told_in_words(small: Find, name: str) -> None:
    found = small(name)
    metrics = evaluate(found.task, found.model(), found.batches()).metrics
    assert {"bleu", "chrf", "exact_match", "perplexity"} <= metrics.keys()
    how = BeamConfig(beam_size=2, n_best=2)
    source = found.batches()[0].inputs.source
    assert all(len(one.alternatives) == 1 for one in found.task.writing(how).predict(found.model().eval(), source))


MIXED = "source\ttarget\n" + "one\tred , blue .\ntwo\tone , two .\nsix\tten .\nten\tRed, blue.\nnow\tOne, two.\n"


def test_one_rule_for_words_holds_for_an_evaluation_and_all_of_its_parts(written: Callable[..., Any]) -> None:
    found = written("a.tsv", MIXED, MIXED, task="translate", tokenizer=CharactersConfig())
    task = found.task
    true = [line.partition("\t")[2] for line in MIXED.splitlines()[1:]]
    said = ["red , blue .", "one , two .", "ten .", "red, blue.", "one, two."]
    rows = [task.tokenizer.encode([one]).row(0).tolist() for one in said]
    raw = np.stack(
        [task._evaluated("0", row, row, text, 1.0, 1.0).statistics for row, text in zip(rows, true, strict=True)]
    )
    table = task.agreed(raw, raw)

    def score(some: np.ndarray) -> float:
        return float(task.measure(task.summed(some))["bleu_tokenized"])

    whole = sacrebleu.corpus_bleu(said, [true], tokenize="none", force=True).score
    assert score(table) == score(raw) == pytest.approx(whole)
    part = sacrebleu.corpus_bleu(said[3:], [true[3:]], tokenize="none", force=True).score
    assert score(table[3:]) == pytest.approx(part) and score(raw[3:]) > part + 1  # by itself it would vote otherwise
    shares = np.concatenate([task.agreed(raw[:3], raw[:3]), task.agreed(raw[3:], raw[3:])])
    assert np.allclose(task.agreed(shares, shares), table)  # processes agree on what they would together
    assert "tok:none" in task.signatures(table[3:])["bleu_tokenized"]
    assert "tok:seqloom-words" in task.signatures(raw[3:])["bleu_tokenized"]


def test_bleu_is_not_defined_where_no_answer_has_four_words(written: Callable[..., Any]) -> None:
    train = "source\ttarget\n" + "a b c d\ta b c d\n" * 9
    task = written("a.tsv", train, train, task="translate").task

    def judged(text: str) -> np.ndarray:
        tokens = task.tokenizer.encode([text]).row(0).tolist()
        return task._evaluated("0", tokens, tokens, text, 1.0, 1.0).statistics

    short, long = judged("a b c"), judged("a b c d")
    why = "no output has four words, so BLEU has no 4-grams to count (sacreBLEU gives 0)"
    assert task.undefined(np.stack([short, short])) == {"bleu": why, "bleu_tokenized": why}
    assert float(task.measure(short)["bleu"]) == sacrebleu.corpus_bleu(["a b c"], [["a b c"]]).score == 0
    assert task.undefined(np.stack([short, long])) == {}


def test_single_answers_are_scored_by_the_rule_of_all(
    written: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = written("a.tsv", MIXED, MIXED, task="translate", tokenizer=CharactersConfig())
    batches = found.batches()
    truths = [[[token for token in row if token > END] for row in batch.targets.tolist()] for batch in batches]
    monkeypatch.setattr(Translate, "written", lambda *_: truths.pop(0))
    judged = evaluate(found.task, found.model(), batches, keep=99, worst=99)
    for one in (*judged.examples, *judged.worst):
        assert "tok:none" in found.task.signatures(one.statistics[None])["bleu_tokenized"]


SENTENCES = "".join(f"line {n} is here\tdas ist die Zeile {n}.\n" for n in range(30))
INFLECTIONS = "".join(f"go past {n}\twent{n}\n" for n in range(30))
CHINESE = "".join(f"it rains today, {n}\t今天下雨了，我们都在家里看书{n}。\n" for n in range(30))


@pytest.mark.parametrize(
    ("lines", "metric"),
    [(SENTENCES, "bleu"), (INFLECTIONS, "exact_match"), (CHINESE, "chrf")],
    ids=["sentences", "forms", "chinese"],
)
def test_bleu_decides_for_sentences_chrf_without_spaces_and_exact_match_for_single_forms(
    tmp_path: Any, lines: str, metric: str
) -> None:
    (tmp_path / "a.tsv").write_text("text\ttarget\n" + lines, encoding="utf-8")
    config, request = requested((tmp_path / "a.tsv",), {"task": "translate", "size": "nano"})
    resolved = resolve(config, request, cache=tmp_path / "cache")
    assert (resolved.task.metric.name, resolved.config.training.metric) == (metric, metric)
    config, request = requested((tmp_path / "a.tsv",), {"task": "translate", "size": "nano", "metric": "loss"})
    assert resolve(config, request, cache=tmp_path / "cache").task.metric.name == "loss"
