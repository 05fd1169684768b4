"""A token that alone decides the answer is the one that attributions name."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch

from inspection_common import subject_of, task_on
from seqloom.inspect.attribution.attribution import attribution
from seqloom.inspect.attribution.tables import attributions_compared
from seqloom.inspect.readings import read
from seqloom.inspect.subject import Subject
from seqloom.nn.models import SequenceModel
from seqloom.nn.types import Batch, Padded

FILLERS = [f"w{number}" for number in range(12)]
KEYS = {"good": "yes", "bad": "no"}
LENGTH = 8
SIGNED = ("integrated_gradients", "occlusion", "leave_one_out")


def drawn(draws: np.random.Generator) -> tuple[str, str, int]:
    """A text of fillers with one key among them, its label, and the place of the key."""
    words, at = draws.choice(FILLERS, size=LENGTH).tolist(), int(draws.integers(LENGTH))
    key = str(draws.choice(list(KEYS)))
    return " ".join([*words[:at], key, *words[at + 1 :]]), KEYS[key], at


def trained(folder: Path, recipe: str) -> Subject:
    """A model that has learned it; texts without a key have an answer of their own, so that both keys must be read."""
    draws = np.random.default_rng(0)
    rows = [drawn(draws) for _ in range(240)]
    rows += [(" ".join(draws.choice(FILLERS, size=LENGTH)), "neither", -1) for _ in range(120)]
    subject = subject_of(task_on(folder, "classify", rows=[f"{text},{label}" for text, label, _ in rows]), recipe)
    model = cast(SequenceModel, subject.model).train()
    inputs = torch.cat([subject.encode(text).values for text, _, _ in rows])
    targets = torch.tensor([subject.column(label) for _, label, _ in rows])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(150):
        chosen = torch.arange(step * 48, step * 48 + 48) * 7 % len(rows)  # of all three answers
        batch = Batch(Padded.of(inputs[chosen]), targets[chosen])
        optimizer.zero_grad()
        model.loss(batch).mean.backward()
        optimizer.step()
    optimizer.zero_grad()
    assert torch.equal(model.eval().predict(Padded.of(inputs)), targets), "it has learned it"
    return subject


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["cnn", "lstm", "self-attention"])
def test_the_planted_token_is_found(tmp_path: Path, recipe: str) -> None:
    subject = trained(tmp_path, recipe)
    draws = np.random.default_rng(1)
    hits = dict.fromkeys(SIGNED, 0)
    for text, label, at in (drawn(draws) for _ in range(8)):
        view = attributions_compared(subject, read(subject, text), methods=SIGNED, answer=label, baseline="mean")
        for each in view.views:
            hits[each.method] += int(each.parts[0].values.argmax() == at)
    assert min(hits.values()) >= 7, hits


@pytest.mark.slow
def test_against_the_other_answer_the_planted_token_counts_for_both(tmp_path: Path) -> None:
    subject = trained(tmp_path, "bag")
    reading = read(subject, "w1 w2 good w3 w4 w5 w6 w7")
    alone = attribution(subject, reading, answer="yes").parts[0].values
    both = attribution(subject, reading, answer="yes", against="no").parts[0].values
    assert both.argmax() == alone.argmax() == 2
    assert both[2] > alone[2] > 0
