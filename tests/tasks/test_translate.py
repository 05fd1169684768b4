"""Translation: exact match by symbols, perplexity by its definition, answers of bounded length."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from seqloom.config.data import EncodingConfig
from seqloom.config.text import CharactersConfig, WordsConfig
from seqloom.errors import ConfigError
from seqloom.tasks.contract import HeadSettings
from seqloom.tasks.judging import evaluate
from seqloom.text.symbols import END, UNKNOWN
from seqloom.types import Pair

Find = Callable[[str], Any]


def test_an_answer_is_right_if_every_symbol_is_and_no_other_way(small: Find, monkeypatch: pytest.MonkeyPatch) -> None:
    found = small("parallel")
    task, batch = found.task, found.batches("train")[0]
    truth = [[symbol for symbol in row if symbol > END] for row in batch.targets.tolist()]
    answers = [truth[0], truth[1][:-1], [*truth[2], 7], *([] for _ in truth[3:])]
    monkeypatch.setattr(task, "written", lambda *_: answers)
    judged = task.judge(found.model(), batch)
    assert [one.right for one in judged] == [True] + [False] * (len(truth) - 1)
    assert task.measure(np.sum([one.statistics for one in judged], axis=0))["exact_match"] == 1 / len(truth)
    assert judged[0].said == judged[0].true


def test_what_the_vocabulary_lacks_is_never_said_exactly(written: Callable[..., Any], monkeypatch: Any) -> None:
    train = "source\ttarget\n" + "one two\teins zwei\n" * 9
    small = written("a.tsv", train, "source\ttarget\none two\teins quark\n", task="translate")
    (batch,) = small.batches()
    truth = batch.targets[0, :-1].tolist()
    assert UNKNOWN in truth
    monkeypatch.setattr(small.task, "written", lambda *_: [truth])
    (one,) = small.task.judge(small.model(), batch)
    assert not one.right
    assert one.true == "eins <unknown>"


def test_perplexity_belongs_to_the_mean_loss_of_the_true_symbols(small: Find) -> None:
    found = small("parallel")
    model = found.model().eval()
    metrics = evaluate(found.task, model, found.batches()).metrics
    with torch.no_grad():
        losses = [model.loss(batch) for batch in found.batches()]
    mean = sum(loss.total.item() for loss in losses) / sum(loss.weight.item() for loss in losses)
    assert metrics["perplexity"] == pytest.approx(np.exp(mean), rel=1e-5)
    assert metrics["loss"] == pytest.approx(mean, rel=1e-5)


def test_an_answer_ends_at_a_bound_that_the_source_sets(small: Find) -> None:
    found = small("parallel")
    model = found.model().eval()
    with torch.no_grad():
        model.head.bias[END] = -99.0
    source = found.batches()[0].inputs.source
    answers = found.task.written(model, source)
    assert [len(answer) for answer in answers] == found.task.most_symbols(source.lengths).tolist()
    assert bool((found.task.most_symbols(source.lengths) >= 2 * source.lengths + 32).all())


def test_a_word_may_become_many_characters(written: Callable[..., Any]) -> None:
    train = "source\ttarget\n" + "one two\teins zwei\n" * 9
    encoding = EncodingConfig(tokenizer=WordsConfig(), target_tokenizer=CharactersConfig())
    small = written("a.tsv", train, train, task="translate", encoding=encoding)
    same = written("a.tsv", train, train, task="translate", encoding=EncodingConfig(tokenizer=CharactersConfig()))
    lengths = torch.tensor([2, 30])
    assert bool((small.task.most_symbols(lengths) > same.task.most_symbols(lengths)).all())


def test_the_source_alone_is_enough_for_an_answer(small: Find) -> None:
    found = small("parallel")
    model, inputs = found.model().eval(), found.batches()[0].inputs
    assert isinstance(inputs, Pair)
    assert found.task.predict(model, inputs) == found.task.predict(model, inputs.source)


def test_a_model_with_another_vocabulary_is_refused(small: Find) -> None:
    task = small("parallel").task
    model = task.model("transformer", "tiny", HeadSettings(smoothing=0.2))
    assert model.head.smoothing == 0.2
    larger = model.head.vocab_size + 1
    other = type(task)(task.meaning)
    other.meaning = task.meaning._replace(target_tokenizer=_Sized(task.tokenizer, larger))
    with pytest.raises(ConfigError, match="the model writes"):
        other.require(model)


class _Sized:
    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self.config, self.vocab_size = tokenizer.config, vocab_size
