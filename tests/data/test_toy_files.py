"""A kind whose values are files is one class too: this file adds waves in a format of their own, and a model learns."""

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.config.inputs import AnyInput, VectorsConfig
from seqloom.data.inputs import read_inputs
from seqloom.data.kinds.kind import Columns, InputKind
from seqloom.data.problems import Ledger, Place
from seqloom.data.roles import Roles
from seqloom.data.schema import INPUT_KINDS
from seqloom.data.values import BadValue, Content, Read, Remarks
from seqloom.errors import RejectedError
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow


class WaveInput(InputKind):
    """Column "input": a number for each moment. In a batch: Padded [B,T,1]. A file: "WAVE", then signed bytes."""

    name = "wave"
    noun = "waves"
    column_names = (("wave",),)
    has_steps = True
    suffixes = (".wave",)

    def decode(self, path: Path, place: Place, ledger: Ledger) -> np.ndarray:
        content = path.read_bytes()
        if not content.startswith(b"WAVE"):
            raise BadValue(0, "wave.magic", "this does not begin with WAVE", "write it again")
        return np.frombuffer(content[4:], np.int8).astype(np.float32)[:, None] / 127

    def holds(self, name: str, content: Content) -> bool:
        return (name,) in self.column_names

    def reader(self, roles: Roles, remarks: Remarks) -> Read:
        return lambda values: values[roles.input[0]]

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"moments of a wave": np.array(list(map(len, values)))}

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        return {"input": Ragged.of(values, np.float32)}

    def collate(self, columns: Columns) -> Any:
        from seqloom.data.kinds import kind

        return kind.padded(kind.filled(columns["input"], np.float32), columns["input"].lengths)

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        return VectorsConfig(size=sizes[0])

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        return f"{len(columns['input'].row(row))} moments"


@pytest.fixture
def waves(tmp_path: Path) -> Iterator[Path]:
    """A folder of waves by class, high ones and low ones, and a table that names them, while the kind is known."""
    draw, rows = random.Random(0), ["wave,label"]
    for number in range(60):
        label = ("high", "low")[number % 2]
        moments = [draw.randint(20, 120) * (1 if label == "high" else -1) for _ in range(draw.randint(4, 9))]
        file = tmp_path / "waves" / label / f"{number:02}.wave"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"WAVE" + struct.pack(f"{len(moments)}b", *moments))
        rows.append(f"waves/{label}/{file.name},{label}")
    (tmp_path / "waves.csv").write_text("\n".join(rows) + "\n")
    others = dict(INPUT_KINDS)
    INPUT_KINDS.clear()
    INPUT_KINDS.update({"wave": WaveInput(), **others})  # before vectors, which hold any array of two axes
    yield tmp_path
    del INPUT_KINDS["wave"]


@pytest.mark.parametrize("name", ["waves", "waves.csv"])
def test_files_of_a_kind_that_one_class_adds_are_learned_and_answered(waves: Path, name: str) -> None:
    run = seqloom.train(waves / name, out=waves / "run", model="cnn", size="nano", steps=12, lr=0.02, seed=1)
    model = seqloom.load(run.folder)
    assert repr(model).startswith("LoadedModel(classify: wave to label, 2 labels")
    low = [example.input for example in read_inputs(waves / "waves" / "low", WaveInput(), Ledger())]
    assert [answer.label for answer in model.predict(low)] == ["low"] * 30


def test_files_of_a_kind_are_measured_and_a_bad_one_is_named(waves: Path) -> None:
    report = seqloom.check_data(waves / "waves")
    assert report.input == "wave" and report.distributions[0].name == "moments of a wave"
    bad = waves / "waves" / "low" / "01.wave"
    bad.write_bytes(b"wave")
    for name in ("waves", "waves.csv"):
        with pytest.raises(RejectedError, match=r"wave.magic: this does not begin with WAVE"):
            seqloom.load_data(waves / name)
    bad.unlink()
    with pytest.raises(RejectedError, match=r"file.missing: there is no wave file"):
        seqloom.load_data(waves / "waves.csv")
    bad.with_suffix(".txt").write_text("a text")
    with pytest.raises(RejectedError, match=r"the class folders contain both texts and waves"):
        seqloom.load_data(waves / "waves")
