"""Starting is quick: `import seqloom` and `seqloom --help` load no torch and no hub client, training no compiler."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "huggingface_hub", "tokenizers", "numpy")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def _loaded_by(code: str) -> set[str]:
    run = _run("-c", f"import sys\n{code}\nprint(*sys.modules)")
    assert run.returncode == 0, run.stderr
    return {name.partition(".")[0] for name in run.stdout.split()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import seqloom",
        "import seqloom; dir(seqloom); seqloom.__version__; seqloom.recipes; seqloom.read_model; seqloom.SeqloomError",
        "import seqloom.cli",
        "import seqloom.files, seqloom.report.figures",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    assert not _loaded_by(code).intersection(HEAVY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        "search search.bm25 search.build search.documents search.duplicates search.evaluation "
        "search.index search.labeling search.postgres search.search search.vectors",
        "experiments.compare experiments.compare.results experiments.compare.statistics",
        "experiments.doctor.findings experiments.tune.results report report.figures",
    ],
)
def test_what_needs_no_model_is_imported_without_torch(names: str) -> None:
    loaded = _loaded_by("import " + ", ".join(f"seqloom.{name}" for name in names.split()))
    assert "torch" not in loaded


@pytest.mark.slow
def test_training_and_predicting_import_no_compiler(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "good film,yes\nbad film,no\n" * 20)
    code = f"""
import seqloom
for optimizer in ("adamw", "sgd", "muon", "sparse-adamw"):
    out = {str(tmp_path)!r} + "/" + optimizer
    run = seqloom.train({str(table)!r}, out=out, model="gru", size="nano", epochs=1, optimizer=optimizer)
seqloom.load(run.folder).predict(["good"])
"""
    loaded = _loaded_by(code)
    assert "torch" in loaded
    assert not loaded & {"sympy", "triton"}  # torch's compiler imports them: two seconds


def _seconds(*arguments: str) -> float:
    """Processor time of a command, the least of a few runs: other processes share the machine."""

    def once(*command: str) -> float:
        code = (
            "import os, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True);"
            "times = os.times(); print(times.children_user + times.children_system)"
        )
        return float(_run("-c", code, *command).stdout)

    return min(once(*arguments) for _ in range(4))


@pytest.mark.slow
def test_importing_seqloom_takes_less_than_a_fifth_of_a_second() -> None:
    assert _seconds(sys.executable, "-c", "import seqloom") < 0.2


@pytest.mark.slow
def test_help_takes_less_than_half_a_second() -> None:
    assert _seconds(sys.executable, "-m", "seqloom", "--help") < 0.5


def test_public_names_are_loaded_one_by_one_and_all_exist() -> None:
    import seqloom

    for name in seqloom.__all__:
        assert getattr(seqloom, name) is not None, name
    assert sorted(dir(seqloom)) == sorted(seqloom.__all__)
    with pytest.raises(AttributeError, match="no attribute 'loom'"):
        seqloom.loom  # noqa: B018
