"""Numbers for each step, against torch and scipy, whatever file they came from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from seqloom.config.data import DataConfig, EncodingConfig, GivenSplit
from seqloom.data.check import load_data
from seqloom.data.dataset import open_data
from seqloom.data.prepared import prepare
from seqloom.data.problems import Ledger
from seqloom.errors import ConfigError, RejectedError
from seqloom.tasks.evaluation import evaluate
from seqloom.tasks.regress import RegressSteps
from seqloom.tasks.task import HeadSettings

Find = Callable[..., Any]
KINDS = ["series", "series of words", "steps with numbers", "npz series"]


@pytest.mark.parametrize("kind", KINDS)
def test_mse_mae_and_spearman_are_those_of_the_real_steps(small: Find, kind: str) -> None:
    found = small(kind)
    assert isinstance(found.task, RegressSteps)
    model = found.model().eval()
    errors, orders, losses = [], [], []
    for batch in found.batches():
        with torch.no_grad():
            losses.append(found.task.loss(model, batch, None)[0])
        for one, true in zip(found.task.predict(model, batch.inputs), batch.targets.numpy(), strict=True):
            said = np.array(one.series)
            errors.append((said - true[: len(said)]).ravel())
            constant = [len(set(column)) == 1 for column in true[: len(said)].T]
            pairs = zip(said.T, true[: len(said)].T, constant, strict=True)
            orders.append(np.mean([0.0 if flat else spearmanr(x, y).statistic for x, y, flat in pairs]))
    flat, metrics = np.concatenate(errors), evaluate(found.task, model, found.batches()).metrics
    assert metrics["mse"] == pytest.approx(np.mean(flat**2), rel=1e-5)
    assert metrics["mae"] == pytest.approx(np.mean(np.abs(flat)), rel=1e-5)
    assert metrics["spearman"] == pytest.approx(np.mean(orders))
    assert metrics["rmse"] == pytest.approx(metrics["mse"] ** 0.5)
    mean = sum(float(one.total) for one in losses) / sum(float(one.weight) for one in losses)
    assert metrics["loss"] == pytest.approx(mean, rel=1e-4)


def test_each_step_has_its_own_numbers_in_the_batch(small: Find) -> None:
    found = small("series")
    for batch in found.batches("train"):
        lengths = batch.inputs.lengths
        assert batch.targets.shape == (*batch.inputs.values.shape[:2], 1)
        wanted = batch.inputs.values.sum(dim=-1, keepdim=True)
        assert torch.allclose(batch.targets, wanted)
        assert (batch.targets[torch.arange(int(lengths.max())) >= lengths[:, None]] == 0).all()


def test_rows_of_a_table_have_the_numbers_of_their_steps(small: Find) -> None:
    found = small("steps with numbers")
    assert found.task.spec.numbers == 2
    batch = found.batches("train")[0]
    assert torch.equal(batch.targets[:, :, 0], batch.inputs.values[:, :, 1])  # the column b is both


def write(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_step_without_a_number_is_a_bad_row(tmp_path: Path) -> None:
    rows = [{"vectors": [[1.0], [2.0]], "series": [1.0, 2.0]}] * 3
    with pytest.raises(RejectedError, match=r"a\.jsonl:4.* series\.length: 2 tokens, but 1 answers"):
        load_data(write(tmp_path, [*rows, {"vectors": [[1.0], [2.0]], "series": [1.0]}]), dev_size=0.0, test_size=0.0)


def test_steps_with_other_counts_of_numbers_are_bad_rows(tmp_path: Path) -> None:
    rows = [{"vectors": [[1.0]], "series": [[1.0, 2.0]]}, {"vectors": [[1.0]], "series": [[1.0]]}]
    with pytest.raises(RejectedError, match="1 numbers per step; the first row has 2"):
        load_data(write(tmp_path, rows), dev_size=0.0, test_size=0.0)


def test_a_flat_list_for_each_sequence_stays_numbers_of_the_sequence(tmp_path: Path) -> None:
    rows = [{"vectors": [[1.0], [2.0 + n]], "score": [1.0, n]} for n in range(4)]
    assert load_data(write(tmp_path, rows), task="regress", dev_size=0.0, test_size=0.0).schema.target.name == "numbers"
    nested = [{"vectors": one["vectors"], "score": [[number] for number in one["score"]]} for one in rows]
    assert (
        load_data(write(tmp_path, nested), task="regress", dev_size=0.0, test_size=0.0).schema.target.name == "series"
    )


def test_texts_have_no_steps_that_could_have_numbers(tmp_path: Path) -> None:
    with pytest.raises(RejectedError):
        load_data(write(tmp_path, [{"text": "a b", "score": [[1.0], [2.0]]}] * 3), dev_size=0.0, test_size=0.0)


def test_what_is_cut_loses_the_numbers_of_its_steps(tmp_path: Path) -> None:
    rows = [{"vectors": [[float(n)] for n in range(6)], "series": [float(n) for n in range(6)]}] * 3
    config = DataConfig(train=(str(write(tmp_path, rows)),), split=GivenSplit())
    prepared = prepare(open_data(config, Ledger()), EncodingConfig(max_length=4), Ledger())
    assert prepared.columns["target"].lengths.tolist() == [4, 4, 4]


def test_settings_of_classes_and_other_shapes_of_models_are_refused(small: Find) -> None:
    task = small("series").task
    with pytest.raises(ConfigError, match="single labels"):
        task.model("bilstm", "nano", HeadSettings(label_smoothing=0.1))
    with pytest.raises(ConfigError, match="needs a"):
        task.require(small("vectors").task.model("gru", "nano", HeadSettings()))
    with pytest.raises(ConfigError, match="numbers for each step"):
        task.require(small("vectors with tags").task.model("bilstm", "nano", HeadSettings()))
    assert task.adapted(small("vectors with tags").task.model("gru", "nano", HeadSettings())).head.size == 1
