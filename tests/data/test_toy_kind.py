"""A new kind of input is one class: this file adds strands of DNA, and a model reads, learns and answers them."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.config.inputs import AnyInput, VectorsConfig
from seqloom.data.kinds.kind import Columns, InputKind
from seqloom.data.roles import Roles
from seqloom.data.schema import INPUT_KINDS
from seqloom.data.values import BadValue, Content, Read, Remarks
from seqloom.errors import RejectedError
from seqloom.text.ragged import Ragged
from seqloom.text.tokenizer import Tokenizer

BASES = "ACGT"


class DnaInput(InputKind):
    """Column "input": for each base a vector of four, of which one is 1. In a batch: Padded [B,T,4]."""

    name = "dna"
    noun = "strands of DNA"
    column_names = (("dna",), ("strand",))
    has_steps = True

    def holds(self, name: str, content: Content) -> bool:
        return content == "text" and (name,) in self.column_names

    def reader(self, roles: Roles, remarks: Remarks) -> Read:
        (column,) = roles.input

        def read(values: tuple[Any, ...]) -> np.ndarray:
            strand = str(values[column])
            for base in strand:
                if base not in BASES:
                    raise BadValue(column, "dna.base", f"{base!r} is no base", f"write {', '.join(BASES)}")
            return np.array([BASES.index(base) for base in strand])

        return read

    def measure(self, values: Sequence[Any]) -> dict[str, np.ndarray]:
        return {"bases of a strand": np.array(list(map(len, values)))}

    def encode(self, values: Sequence[Any], tokenizer: Tokenizer | None) -> dict[str, Ragged]:
        return {"input": Ragged.of([np.eye(4, dtype=np.float32)[value] for value in values], np.float32)}

    def collate(self, columns: Columns) -> Any:
        from seqloom.data.kinds import kind

        return kind.padded(kind.filled(columns["input"], np.float32), columns["input"].lengths)

    def layer(self, sizes: tuple[int, ...], tokenizer: Tokenizer | None) -> AnyInput:
        return VectorsConfig(size=sizes[0])

    def show(self, columns: Columns, row: int, tokenizer: Tokenizer | None) -> str:
        return "".join(BASES[base] for base in columns["input"].row(row).argmax(axis=1))


@pytest.fixture
def dna(tmp_path: Path) -> Iterator[Path]:
    """A file of strands, those with a G in them "rich", while the kind is known."""
    draw, rows = random.Random(0), []
    for _ in range(100):
        strand = "".join(draw.choice("ACT") for _ in range(draw.randint(4, 9)))
        place = draw.randrange(len(strand))
        rows += [f"{strand},poor", f"{strand[:place]}G{strand[place:]},rich"]
    file = tmp_path / "strands.csv"
    file.write_text("\n".join(["dna,label", *dict.fromkeys(rows)]) + "\n")
    INPUT_KINDS["dna"] = DnaInput()
    yield file
    del INPUT_KINDS["dna"]


def test_a_kind_that_one_class_adds_is_read_measured_and_shown(dna: Path) -> None:
    data = seqloom.load_data(dna)
    assert repr(data.schema) == "Schema(input='dna', target='label', labels=('poor', 'rich'))"
    first, strand = int(data.splits["train"][0]), data.place_of(int(data.splits["train"][0]))
    assert data.shown(first) == dna.read_text().splitlines()[(strand.line or 0) - 1].split(",")[0]
    report = seqloom.check_data(dna)
    assert report.input == "dna" and report.distributions[0].name == "bases of a strand"
    dna.write_text("dna,label\nACGT,rich\nACXT,poor\n")
    with pytest.raises(RejectedError, match=r"dna.base: 'X' is no base"):
        seqloom.load_data(dna)


@pytest.mark.slow
def test_a_model_learns_a_kind_that_one_class_adds_and_answers_it(dna: Path, tmp_path: Path) -> None:
    run = seqloom.train(dna, out=tmp_path / "run", model="cnn", size="nano", steps=120, lr=0.02, seed=1)
    model = seqloom.load(run.folder)
    assert repr(model).startswith("LoadedModel(classify: dna to label, 2 labels")
    rich, poor = model.predict(["ACTGTA", "ACTCTA"])
    assert (rich.label, poor.label) == ("rich", "poor")
    assert model.evaluate(split="dev").metrics["accuracy"] > 0.8
