"""Every benchmark runs with tiny sizes, and `make bench` runs every one."""

import importlib.util
import re
import sys
from pathlib import Path
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import pytest

from fitting_common import Plan
from importing_common import write_checkpoint, write_sentences
from seqloom.importing.models import import_model

ROOT = Path(__file__).parents[1]
BENCHMARKS = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
LONG = {"linear": pytest.mark.soak}  # its jobs are processes of their own
# For each the constants that make it small, its arguments, and words of its last line.
SMALL: dict[str, tuple[dict[str, Any], list[list[str]], str]] = {
    "batches": ({"STEPS": 2}, [], "PTB streams"),
    "crf": ({"ROUNDS": 2, "TIMES": (4,)}, [], "x  ("),
    "dedupe": ({"WORDS": 500}, [["200"]], "precision"),
    "difficulty": ({"SEEDS": (0,)}, [["questions"]], "questions"),
    "labeling": ({"SEEDS": 2, "LAST": 24, "ARTIFICIAL": 100, "WIDTH": 8}, [], "active - random"),
    "embedding": ({"ROUNDS": 1}, [["MODEL", "CHECKPOINT", "20"]], "texts/s"),
    "inspection": (
        {"LENGTH": 16, "LAYERS": 2, "HEADS": 2, "WIDTH": 8, "VOCABULARY": 20},
        [["inspect"]],
        '"inspecting"',
    ),
    "layers": ({"ROUNDS": 1, "BATCH": 2, "TIME": 8, "WIDTH": 16, "VOCABULARY": 50}, [], "lm loss"),
    "linear": ({"ROWS": (60, 30, 30), "CLASSES": 2, "VOCABULARY": 1_000}, [["long"]], "same"),
    "long_attention": ({"TIME": 600, "WIDTH": 8, "WINDOW": 16, "ROUNDS": 1}, [], "ALiBi"),
    "long_sequences": ({}, [["window", "64"]], "peak_mib"),
    "muon": (
        {"STEPS": 2, "EVERY": 1, "ROWS": 2, "TIME": 4, "SIZE": "nano", "RATES": (0.01,), "TRANSLATED": 10},
        [],
        "muon",
    ),
    "messages": (
        {"ROWS": 80, "TEST_ROWS": 20, "VOCABULARY": 600, "OWN": 20, "SHORTEST": 8, "LONGEST": 8},
        [["train"]],
        "best of seqloom",
    ),
    "operators": ({"ROUNDS": 1, "DEPTH": 1}, [], "per generated token"),
    "data_loading": ({"ROUNDS": 1}, [["200", "0"]], "second"),
    "search": ({"WIDTH": 8, "CENTERS": 9, "QUERIES": 20}, [["600"]], "library"),
    "serving": (
        {"REQUESTS": 6, "CLIENTS": 3, "PROMPTS": 6, "MEAN": 3, "SIZE": "nano", "VOCABULARY": 50, "FAMILIES": ("lstm",)},
        [["1"]],
        "generate, lstm",
    ),
    "serving_load": ({"SECONDS": 0.3, "WARM_UP": 0.1, "GOAL": 20}, [["0.3"]], "exit code after SIGTERM: 0"),
    "stream": ({"LAST": 50}, [["gru", "600"]], '"difference"'),
    "tokenization": ({"ROUNDS": 1}, [["200"]], "bytes"),
    "training": ({"PAIRS": 1, "STEPS": 1, "ROWS": 2, "TIME": 4, "MODELS": {"lstm": ("lstm", "nano")}}, [], "per step"),
    "word_vectors": ({"ROUNDS": 2, "EPOCHS": 1, "SENTENCES": 200, "FREQUENT": 5}, [[]], "cbow"),
}


def module_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(path.parent)  # they import one another
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def loaded(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module, its constants made small."""
    module = module_of(ROOT / "benchmarks" / f"{name}.py", monkeypatch)
    for constant, value in SMALL[name][0].items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in BENCHMARKS])
def test_every_benchmark_runs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("seqloom.search.index.GRAPH_FROM", 100_000)  # which one of them lowers
    module = loaded(name, monkeypatch)
    _, arguments, last = SMALL[name]
    if name == "difficulty":
        row = module._classes("questions", "bag", "<= 1", Plan(1e-2, 1), count=200)
        monkeypatch.setattr(module, "ROWS", (row, *module.ROWS[-1:]))
    if name == "embedding":
        checkpoint = write_checkpoint(tmp_path / "checkpoint")
        write_sentences(checkpoint)
        arguments = [[str(import_model(checkpoint, tmp_path / "model")), str(checkpoint), "20"]]
    module.main(*arguments)
    assert last in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_the_memory_of_reading_short_and_long_rows_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = loaded("data_loading", monkeypatch)
    monkeypatch.setattr(module, "ROUNDS", 1)
    module.main(["200", "1"])
    short, long = capsys.readouterr().out.splitlines()[-2:]
    assert short.startswith("1 MB of short rows: peak ") and long.startswith("1 MB of 150 kB rows: peak ")
    assert re.search(r"peak \d+ MiB for [1-9] rows", long)


@pytest.mark.slow
def test_the_table_of_long_sequences_has_a_row_for_each_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = loaded("long_sequences", monkeypatch)
    monkeypatch.setattr(module, "LENGTHS", (64,))
    monkeypatch.setattr(module, "MIXERS", {"window": module.MIXERS["window"]})
    module.main([])
    assert capsys.readouterr().out.splitlines()[-1].startswith("window        64 ")


def test_make_bench_runs_every_benchmark_but_the_hour_of_training_and_what_needs_a_checkpoint() -> None:
    target = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\nbench:")[2].partition("\n\n")[0]
    run = {Path(line.split()[-1]).stem for line in target.split("\n")[1:]}
    assert run == set(BENCHMARKS) - {"difficulty", "embedding"} | {"benchmarks"}  # .peers


@pytest.mark.slow
def test_every_comparison_with_a_peer_is_listed_and_those_without_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setenv("SEQLOOM_BENCH_RECORD", "0")
    from benchmarks.peers import harness, packing, recurrent, tables
    from benchmarks.peers.__main__ import PEERS

    files = {path.stem for path in (ROOT / "benchmarks" / "peers").glob("*.py")}
    assert set(PEERS) == files - {"__init__", "__main__", "harness"}
    assert not harness.installed("torch", "nobody_has_this_module")
    monkeypatch.setattr(harness, "ROUNDS", 1)
    for module, constants in (
        (recurrent, {"WIDTH": 4, "TIME": 3, "ROWS": 2}),
        (packing, {"ROWS": 2, "LENGTH": 60, "WIDTH": 12, "LONG": 40}),
        (tables, {"MODELS": (("bag", 50),), "ROWS": 2, "TIME": 8, "SIZE": "nano", "STEPS": 1, "ROUNDS": 1}),
    ):
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)
        module.main()
    printed = capsys.readouterr().out
    assert printed.count("groups by length") == 8 and printed.count("sparse-adamw") == 1


def test_a_job_of_the_races_that_failed_is_trained_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = module_of(ROOT / "benchmarks" / "defaults" / "auto.py", monkeypatch)
    began, failing = list[str](), {"bag"}

    def ran(name: str, job: str, *_: Any) -> dict[str, Any]:
        began.append(job)
        found = {"error": "no memory"} if job in failing else {"dev": 1.0, "test": 1.0, "winner": "cnn"}
        return {"data": name, "job": job, "seconds": 1.0, **found}

    monkeypatch.setattr(module, "ran", ran)
    monkeypatch.setattr(sys, "argv", ["auto.py", "--out", str(tmp_path), "--only", "trec"])
    for expected in (["auto", *module.RACES["trec"].recipes], ["bag"], []):
        module.main()
        assert began == expected
        began.clear()
        failing.clear()


def test_the_search_of_defaults_ends_when_its_workers_were_killed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = module_of(ROOT / "benchmarks" / "defaults" / "run.py", monkeypatch)

    class Killed:
        exitcode = -9

        def is_alive(self) -> bool:
            return False

    answers = SimpleQueue[dict[str, Any]]()
    answers.put({"score": 1.0})  # sent just before
    assert list(module.answered([Killed(), Killed()], answers)) == [{"score": 1.0}]
    assert "[-9, -9]" in capsys.readouterr().out
