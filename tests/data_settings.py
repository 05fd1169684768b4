"""Small good data in every format, with the kinds that it must turn out to have."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.config.data import DataConfig, ReadingConfig

ROWS = 40
SENTENCES = [f"the {('good', 'bad')[n % 2]} film {n} of {n % 7} evenings" for n in range(ROWS)]
LABELS = [("pos", "neg")[n % 2] for n in range(ROWS)]
VECTORS = [[[float(n % 5), step / 10, 1.0] for step in range(2 + n % 3)] for n in range(ROWS)]
SPANS = ["B-PER", "I-PER", "O", "B-LOC"]

Write = Callable[[Path], tuple[str, ...]]  # puts files into a folder, and gives the names to read


class Setting(NamedTuple):
    """What is written, how it is read, and the kinds of input and target that come of it."""

    name: str
    write: Write
    input: str
    target: str
    how: dict[str, Any] = {}  # noqa: RUF012  # read only

    def config(self, folder: Path) -> DataConfig:
        """The files written into a folder, and the configuration that reads them."""
        names = tuple(str(folder / name) for name in self.write(folder))
        return DataConfig(train=names, **self.how)


def one(name: str, text: str) -> Write:
    """A writer of one text file, packed if its name says so."""

    def write(folder: Path) -> tuple[str, ...]:
        content = text.encode()
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return (name,)

    return write


def table(*columns: list[Any], header: str, mark: str = ",") -> str:
    """A csv or tsv file."""
    return "".join(f"{mark.join(map(str, row))}\n" for row in [header.split(" "), *zip(*columns, strict=True)])


def objects(**columns: list[Any]) -> str:
    """A file of JSON lines."""
    return "".join(
        f"{json.dumps(dict(zip(columns, row, strict=True)))}\n" for row in zip(*columns.values(), strict=True)
    )


def parallel(folder: Path) -> tuple[str, ...]:
    """Two files whose lines belong together."""
    (folder / "a.en").write_text("".join(f"{text}\n" for text in SENTENCES))
    (folder / "a.de").write_text("".join(f"der Film {n} am Abend {n % 7}\n" for n in range(ROWS)))
    return "a.en", "a.de"


def text_folder(folder: Path) -> tuple[str, ...]:
    """A folder of texts by class."""
    for number, (text, label) in enumerate(zip(SENTENCES, LABELS, strict=True)):
        path = folder / "films" / label / f"{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ("films",)


def save_picture(path: Path, number: int) -> None:
    """A picture of 8 x 8 gray pixels."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((8, 8), 5 * number, np.uint8)).save(path)


def picture_folder(folder: Path) -> tuple[str, ...]:
    """A folder of pictures by class."""
    for number, label in enumerate(LABELS):
        save_picture(folder / "shapes" / label / f"{number:03}.png", number)
    return ("shapes",)


def picture_table(header: str, targets: list[str]) -> Write:
    """A table that names pictures in a folder beside it."""

    def write(folder: Path) -> tuple[str, ...]:
        for number in range(ROWS):
            save_picture(folder / "shapes" / f"{number}.png", number)
        names = [f"shapes/{number}.png" for number in range(ROWS)]
        return one("a.csv", table(names, targets, header=header))(folder)

    return write


def arrays(**named: Any) -> Write:
    """A file of arrays."""

    def write(folder: Path) -> tuple[str, ...]:
        np.savez(folder / "a.npz", **named)
        return ("a.npz",)

    return write


def parquet(folder: Path) -> tuple[str, ...]:
    """A parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": SENTENCES, "label": LABELS}), folder / "a.parquet")
    return ("a.parquet",)


def _conll() -> str:
    words = [text.split(" ")[: len(SPANS)] for text in SENTENCES]
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(some, SPANS, strict=True)) for some in words)


def _conllu() -> str:
    row = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n"
    kinds = ["DET", "ADJ", "NOUN", "NUM"]
    words = [text.split(" ")[: len(kinds)] for text in SENTENCES]
    return "\n".join("".join(row.format(n + 1, some[n], kinds[n]) for n in range(len(kinds))) for some in words)


def _steps() -> str:
    rows = [(run, *vector, "xyz"[step]) for run, steps in enumerate(VECTORS) for step, vector in enumerate(steps[:3])]
    return table(*map(list, zip(*rows, strict=True)), header="run a b c state")


SERIES = [[sum(step) for step in steps] for steps in VECTORS]
RHYTHMS = [[[len(word), place / 2] for place, word in enumerate(text.split(" "))] for text in SENTENCES]
STATES = [["xyz"[step % 3] for step in range(len(steps))] for steps in VECTORS]
CAPTIONS = [f"gray number {number}" for number in range(ROWS)]
STEPPED = {"sequence": "run", "input": ("a", "b", "c"), "target": ("state",)}
SETTINGS = [
    Setting("csv", one("a.csv", table(SENTENCES, LABELS, header="text label")), "text", "label"),
    Setting("csv packed", one("a.csv.gz", table(SENTENCES, LABELS, header="text label")), "text", "label"),
    Setting("tsv", one("a.tsv", table(SENTENCES, LABELS, header="sentence label", mark="\t")), "text", "label"),
    Setting("parquet", parquet, "text", "label"),
    Setting("numbers", one("a.csv", table(SENTENCES, range(ROWS), header="text score")), "text", "numbers"),  # type: ignore[arg-type]
    Setting(
        "several numbers",
        one("a.csv", table(SENTENCES, range(ROWS), range(ROWS), header="text x y")),  # type: ignore[arg-type]
        "text",
        "numbers",
        {"target": ("x", "y")},
    ),
    Setting("jsonl", one("a.jsonl", objects(text=SENTENCES, label=LABELS)), "text", "label"),
    Setting(
        "pairs", one("a.jsonl", objects(premise=SENTENCES, hypothesis=SENTENCES[::-1], label=LABELS)), "pair", "label"
    ),
    Setting("labels", one("a.jsonl", objects(text=SENTENCES, labels=[[a, "film"] for a in LABELS])), "text", "labels"),
    Setting(
        "labels in a cell",
        one("a.csv", table(SENTENCES, [f"{label}|film" for label in LABELS], header="text labels")),
        "text",
        "labels",
        {"label_separator": "|"},
    ),
    Setting("vectors", one("a.jsonl", objects(vectors=VECTORS, label=LABELS)), "vectors", "label"),
    Setting("vectors with tags", one("a.jsonl", objects(vectors=VECTORS, tags=STATES)), "vectors", "tags"),
    Setting("vectors to text", one("a.jsonl", objects(frames=VECTORS, caption=CAPTIONS)), "vectors", "text"),
    Setting("series", one("a.jsonl", objects(vectors=VECTORS, series=SERIES)), "vectors", "series"),
    Setting(
        "series of words",
        one("a.jsonl", objects(tokens=[text.split(" ") for text in SENTENCES], rhythm=RHYTHMS)),
        "words",
        "series",
        {"target": ("rhythm",)},
    ),
    Setting(
        "steps with numbers",
        one("a.csv", _steps()),
        "vectors",
        "series",
        {"task": "regress", "sequence": "run", "input": ("a", "b"), "target": ("b", "c")},
    ),
    Setting("steps", one("a.csv", _steps()), "vectors", "tags", STEPPED),
    Setting("conll", one("a.conll", _conll()), "words", "tags"),
    Setting("conllu", one("a.conllu", _conllu()), "words", "tags"),
    Setting("text", one("a.txt", "".join(f"{text}\n" for text in SENTENCES)), "text", "nothing"),
    Setting(
        "paragraphs",
        one("a.txt", "".join(f"{text}\nand so on\n\n" for text in SENTENCES)),
        "text",
        "nothing",
        {"reading": ReadingConfig(unit="paragraph")},
    ),
    Setting(
        "whole file",
        one("a.txt", "".join(f"{text}\n" for text in SENTENCES)),
        "text",
        "nothing",
        {"reading": ReadingConfig(unit="file")},
    ),
    Setting(
        "template",
        one("a.txt", "".join(f"IN: {text} OUT: {label}\n" for text, label in zip(SENTENCES, LABELS, strict=True))),
        "text",
        "text",
        {"reading": ReadingConfig(template="IN: {source} OUT: {target}")},
    ),
    Setting("parallel", parallel, "text", "text"),
    Setting("folder", text_folder, "text", "label"),
    Setting("pictures", picture_folder, "picture", "label"),
    Setting("pictures of a table", picture_table("picture label", LABELS), "picture", "label"),
    Setting("pictures to text", picture_table("picture caption", CAPTIONS), "picture", "text"),
    Setting("npz vectors", arrays(x=np.random.default_rng(0).normal(size=(ROWS, 5, 3)), y=LABELS), "vectors", "label"),
    Setting("npz tags", arrays(x=np.ones((ROWS, 5, 3)), y=[list("abcab")] * ROWS), "vectors", "tags"),
    Setting("npz numbers", arrays(x=np.ones((ROWS, 5, 3)), y=np.arange(ROWS) / 3), "vectors", "numbers"),
    Setting("npz series", arrays(x=np.ones((ROWS, 5, 3)), y=np.ones((ROWS, 5, 2)) / 3), "vectors", "series"),
    Setting("npz pictures", arrays(pictures=np.ones((ROWS, 8, 8), np.uint8), y=LABELS), "picture", "label"),
]
BY_NAME = {setting.name: setting for setting in SETTINGS}
