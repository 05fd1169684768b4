"""The guide: weights that point at the deciding word teach a model of single tokens, others do not."""

from pathlib import Path

import numpy as np
import pytest

from faithfulness_common import planted_subject, readings_of, trained
from inspection_common import subject_of, task_on
from seqloom.config.blocks import BlockConfig
from seqloom.config.mixers import ConvolutionConfig
from seqloom.errors import DataError
from seqloom.inspection.asking import read
from seqloom.inspection.faithfulness.guide import LEARNT, MODEL, UNIFORM, guide
from seqloom.inspection.subject import Subject


@pytest.fixture
def planted(tmp_path: Path) -> Subject:
    return planted_subject(tmp_path, (BlockConfig(mixer=ConvolutionConfig(kernel_sizes=(1,))),))


@pytest.mark.slow
def test_weights_on_the_deciding_word_beat_equal_ones_and_weights_elsewhere_do_not(planted: Subject) -> None:
    readings, truths = readings_of(planted, 60)
    keys = [np.array([float(text in ("w0", "w1")) for text in reading.sides[0].texts]) for reading in readings]
    vague = guide(planted, readings, truths)
    assert vague.sentences()[0].startswith("The weights do not carry"), "the model is not trained yet"
    found = guide(trained(planted), readings, truths, others={"key": keys, "elsewhere": [1 - row for row in keys]})
    assert list(found.accuracy) == [UNIFORM, LEARNT, MODEL, "key", "elsewhere"]
    assert found.accuracy["key"] == found.accuracy[MODEL] == 1.0
    assert found.accuracy[UNIFORM] == vague.accuracy[UNIFORM] < 0.9, "the same seed, the same guide"
    assert found.accuracy["elsewhere"] < 0.8
    assert (found.learnt_from, found.held_out) == (45, 15)
    assert found.sentences()[0].startswith("The weights carry")


def test_what_a_guide_cannot_learn_from_is_refused(planted: Subject, tmp_path: Path) -> None:
    readings, truths = readings_of(planted, 20)
    with pytest.raises(DataError, match="3 inputs are too few"):
        guide(planted, readings[:3], truths[:3])
    with pytest.raises(DataError, match="19 truths for 20 inputs"):
        guide(planted, readings, truths[1:])
    with pytest.raises(DataError, match="input 0 has 20 tokens"):
        guide(planted, readings, truths, others={"short": [np.ones(3)] * 20})
    tagger = subject_of(task_on(tmp_path, "tag"), "transformer")
    with pytest.raises(DataError, match="have several"):
        guide(tagger, [read(tagger, ["the", "cat"])] * 20, ["O"] * 20)
