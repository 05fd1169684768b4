"""What is offered is there: of a small model of every family and task, each view that is listed draws itself."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspection_common import subject_of, task_on
from seqloom.cli.inspect import options_of
from seqloom.data.check import load_data
from seqloom.inspect.inspector import VIEWS, Inspection
from seqloom.tasks.task import ModelSpec, Task, task_of

PAIRS = "first,second,label\n" + "the cat sat,a cat was sitting,yes\na dog ran,the mat,no\n" * 12
NUMBERS = "text,number\n" + "the cat sat,1.5\na big dog ran,-2.25\n" * 12
SEVERAL = "text,labels\n" + "the cat sat,x|y\na big dog ran,y\n" * 12
RUNNING = "the cat sat on the mat\na dog ran to the big house\n" * 12


def of_text(folder: Path, name: str, text: str, **settings: Any) -> Task:
    (folder / name).write_text(text, encoding="utf-8")
    return task_of(ModelSpec.of(load_data(folder / name, **settings)))


def of_arrays(folder: Path, **arrays: np.ndarray) -> Task:
    np.savez(folder / "a.npz", **arrays)
    return task_of(ModelSpec.of(load_data(folder / "a.npz")))


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape).astype(np.float32)


# what is learned, and an input of it
TASKS: dict[str, Any] = {
    "pair": lambda folder: of_text(folder, "a.csv", PAIRS, input=("first", "second"), target="label"),
    "several": lambda folder: of_text(folder, "a.csv", SEVERAL, target="labels", label_separator="|"),
    "regress": lambda folder: of_text(folder, "a.csv", NUMBERS, target="number", task="regress"),
    "masked": lambda folder: of_text(folder, "a.txt", RUNNING, task="masked"),
    "vectors": lambda folder: of_arrays(folder, vectors=drawn(12, 5, 3), y=np.arange(12) % 2),
    "pictures": lambda folder: of_arrays(folder, pictures=drawn(10, 14, 14), y=np.arange(10) % 2),
}
GIVEN: dict[str, Any] = {
    "tag": ["the", "big", "dog"],
    "embed": ("the cat", "a dog ran"),
    "pair": ("the cat", "a dog ran"),
    "vectors": drawn(5, 3),
    "pictures": drawn(14, 14, 1),
}
SMALLEST: dict[str, dict[str, Any]] = {
    "faithfulness": {"permutations": 2, "adversaries": 1, "steps": 2},
    "beam_tree": {"beam_size": 2, "max_new_tokens": 3},
}
QUICK = {("classify", "bag")}
MODELS = [
    *(("classify", recipe) for recipe in ("linear", "bag", "mlp", "cnn", "bilstm", "self-attention", "sparse")),
    *(("tag", recipe) for recipe in ("bilstm", "rnn", "linear-attention")),
    *(("lm", recipe) for recipe in ("gru", "cnn", "window")),
    *(("translate", recipe) for recipe in ("transformer", "seq2seq", "seq2seq-additive")),
    *(("embed", recipe) for recipe in ("bag", "lstm")),
    *(("pair", "gru"), ("several", "cnn"), ("regress", "transformer"), ("masked", "encoder")),
    *(("vectors", "gru"), ("vectors", "transformer")),
    *(("pictures", recipe) for recipe in ("conv2d", "mlp", "patch-transformer")),
]


def told(name: str) -> str:
    """What the table of views has to say about one of them, before the page."""
    options = options_of(VIEWS[name].function).items()
    marked = [f"**`{option}`**" if one.needed else f"`{option}`" for option, one in options]
    return f"| `{name}` | {', '.join(marked) or 'none'} |"


def test_the_table_of_views_has_each_of_them_with_its_options_and_its_page() -> None:
    docs = Path(__file__).parents[2] / "docs"
    lines = (docs / "inspect.md").read_text(encoding="utf-8").partition("| View | Options | Page |")[2]
    rows = lines.partition("\n\n")[0].splitlines()[2:]
    assert [row.partition(" [")[0] for row in rows] == [told(name) for name in VIEWS]
    pages = {row.split("`")[1]: row.rpartition("(")[2].partition(")")[0] for row in rows}
    for name in VIEWS:
        page = (docs / pages[name]).read_text(encoding="utf-8")
        called = f"`{name}`", f".{name}(", f"--view {name}"
        assert any(one in page for one in called), f"{pages[name]} does not tell of {name}"


def needs_nothing(name: str) -> bool:
    options = list(inspect.signature(VIEWS[name].function).parameters.values())[2:]
    return all(one.default is not one.empty for one in options)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("task", "recipe"), [pytest.param(*one, marks=[] if one in QUICK else pytest.mark.slow) for one in MODELS]
)
def test_every_view_that_is_offered_draws(tmp_path: Path, task: str, recipe: str) -> None:
    learned = TASKS[task](tmp_path) if task in TASKS else task_on(tmp_path, task)
    target = "le chat" if task == "translate" else None  # untrained, it would write for long
    inspection = Inspection(subject_of(learned, recipe), GIVEN.get(task, "the cat sat"), target=target)
    failed = dict[str, str]()
    for name in filter(needs_nothing, inspection.views()):
        try:
            view = inspection.view(name, **SMALLEST.get(name, {}))
            assert view.figures() and view.text() and view.svg().startswith("<svg")
            json.dumps(view.to_json(), allow_nan=False)
        except Exception as error:  # all of them are told together
            failed[name] = repr(error)
    assert failed == {}
