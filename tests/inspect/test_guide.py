"""The guide: weights that point at the deciding word teach a model of single tokens, others do not."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from faithfulness_common import WORDS, planted_subject, readings_of, trained
from inspection_common import subject_of, task_on
from seqloom.config.mixers import ConvolutionConfig
from seqloom.config.stacks import BlockConfig
from seqloom.errors import DataError
from seqloom.inspect.faithfulness import guide as guiding
from seqloom.inspect.faithfulness.guide import LEARNED, MODEL, UNIFORM, GuideView, guide
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Reading, Subject, Token, numbered
from seqloom.text.special_tokens import END

SAID = "The weights carry", "The weights do not carry", "It is unclear"


@pytest.fixture
def planted(tmp_path: Path) -> Subject:
    return planted_subject(tmp_path, (BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(1,))),))


def on(reading: Reading, *words: str) -> np.ndarray:
    """A weight for each token: 1 for these words, else 0."""
    return np.array([float(text in words) for text in reading.sides[0].texts])


def said_of(readings: Sequence[Reading], **right: Sequence[float]) -> str:
    """The beginning of the first sentence for these inputs."""
    named = {UNIFORM: right["even"], LEARNED: right["learned"], MODEL: right["mine"]}
    view = GuideView(
        title="x", correct={name: np.array(each) for name, each in named.items()}, num_train=len(readings), seed=0
    )
    return next(said for said in SAID if view.sentences()[0].startswith(said))


@pytest.mark.slow
def test_weights_on_the_deciding_word_beat_equal_ones_and_weights_elsewhere_do_not(planted: Subject) -> None:
    readings, truths = readings_of(planted, 60)
    keys = [on(reading, "w0", "w1") for reading in readings]
    vague = guide(planted, readings, truths)
    assert not vague.sentences()[0].startswith("The weights carry"), "the model is not trained yet"
    found = guide(trained(planted), readings, truths, others={"key": keys, "elsewhere": [1 - row for row in keys]})
    assert list(found.accuracy) == [UNIFORM, LEARNED, MODEL, "key", "elsewhere"]
    assert found.accuracy["key"] == found.accuracy[MODEL] == 1.0
    assert found.accuracy[UNIFORM] == vague.accuracy[UNIFORM] < 0.9, "the same seed, the same guide"
    assert found.accuracy["elsewhere"] < 0.8
    assert (found.num_train, found.held_out) == (45, 45)
    assert found.sentences()[0].startswith("The weights carry")


@pytest.mark.slow
def test_weights_count_while_it_learns_and_when_it_is_judged(planted: Subject) -> None:
    draw = np.random.default_rng(3)
    truths = ["no", "yes"] * 20
    texts = [" ".join(draw.permutation(["w0", "w1", *draw.choice(WORDS[2:], 6)])) for _ in truths]
    readings = [read(planted, text) for text in texts]  # both keys stand in each: the weights alone say which is meant
    pointed = [on(reading, "w1" if truth == "yes" else "w0") for reading, truth in zip(readings, truths, strict=True)]
    found = guide(planted, readings, truths, others={"pointed": pointed})
    assert found.accuracy["pointed"] == 1.0
    assert found.accuracy[UNIFORM] < 0.8 and found.accuracy[LEARNED] < 0.8


@pytest.mark.soak
@pytest.mark.slow
def test_weights_of_chance_are_never_said_to_carry(planted: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    readings, truths = readings_of(planted, 60)
    draw = np.random.default_rng(0)
    monkeypatch.setattr(
        guiding, "_weights_of", lambda _subject, reading, _layer: draw.dirichlet(np.ones(len(reading.sides[0].tokens)))
    )
    for seed in range(3):
        assert not guide(planted, readings, truths, seed=seed).sentences()[0].startswith("The weights carry")


def test_what_is_within_the_noise_or_leaves_nothing_to_gain_cannot_be_told(planted: Subject) -> None:
    readings, _ = readings_of(planted, 20)
    half, most, every = [1.0, 0.0] * 20, [1.0] * 38 + [0.0] * 2, [1.0] * 40
    assert said_of(readings, even=half, learned=every, mine=every) == "The weights carry"
    assert said_of(readings, even=half, learned=half, mine=every) == "The weights carry"
    assert said_of(readings, even=half, learned=every, mine=half) == "The weights do not carry"
    assert said_of(readings, even=every, learned=every, mine=half) == "The weights do not carry"
    assert said_of(readings, even=every, learned=every, mine=every) == "It is unclear"
    assert said_of(readings, even=most, learned=every, mine=every) == "It is unclear"
    assert said_of(readings, even=half, learned=half, mine=half) == "It is unclear"


def test_weights_of_special_tokens_are_left_out(planted: Subject) -> None:
    (reading,) = [read(planted, "w0 w1 w2")]
    (side,) = reading.sides
    ended = reading._replace(sides=(side._replace(tokens=(*side.tokens, Token("<end>", id=END))),))
    data = guiding._padded([reading, ended], [0, 1])
    told = guiding._imposed([np.array([1.0, 2.0, 1.0]), np.array([1.0, 2.0, 1.0, 96.0])], data.real)
    assert told.tolist() == [[0.25, 0.5, 0.25, 0.0]] * 2


def test_what_a_guide_cannot_learn_from_is_refused(planted: Subject, tmp_path: Path) -> None:
    readings, truths = readings_of(planted, 20)
    with pytest.raises(DataError, match="3 inputs are too few"):
        guide(planted, readings[:3], truths[:3])
    with pytest.raises(DataError, match="19 labels for 20 inputs"):
        guide(planted, readings, truths[1:])
    with pytest.raises(DataError, match="no answer 'maybe'"):
        guide(planted, readings, ["maybe", *truths[1:]])
    tagger = subject_of(task_on(tmp_path, "tag"), "transformer")
    with pytest.raises(DataError, match="one prediction for each input"):
        guide(tagger, [read(tagger, ["the", "cat"])] * 20, ["O"] * 20)
    seen = [one._replace(sides=(one.sides[0]._replace(tokens=numbered(20)),)) for one in readings]
    with pytest.raises(DataError, match="no tokens"):
        guide(planted, seen, truths)


@pytest.mark.parametrize(
    ("name", "rows", "said"),
    [
        ("short", [np.ones(3)] * 20, r"'short' of input 0 .* 20 tokens"),
        ("few", [np.ones(20)] * 19, "19 rows of 'few' for 20 inputs"),
        ("truths", [np.ones(20)] * 19, "19 rows of 'truths' for 20 inputs"),
        (MODEL, [np.ones(20)] * 20, "the name 'weights of the model' is reserved"),
        ("below", [-np.ones(20)] * 20, "'below' of input 0 .*below zero"),
        ("none", [np.zeros(20)] * 20, "'none' of input 0 .*only zero"),
        ("lost", [np.full(20, np.nan)] * 20, "'lost' of input 0 .*finite"),
        ("words", [["a"] * 20] * 20, "'words' of input 0 .*not numbers"),
    ],
)
def test_weights_that_are_none_are_refused(planted: Subject, name: str, rows: list[np.ndarray], said: str) -> None:
    readings, truths = readings_of(planted, 20)
    with pytest.raises(DataError, match=said):
        guide(planted, readings, truths, others={name: rows})
