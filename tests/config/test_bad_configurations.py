"""A bad configuration is refused with words that help, quickly, and before anything is built."""

import json
import os
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.bad_texts import CASES, CLASSIFIER, LANGUAGE, TAGGER, TRANSLATOR, Case
from seqloom.config.base import MAX_DOTS, MAX_FILE_BYTES, from_data
from seqloom.config.models import AnyModel, model_from_json, model_from_toml, read_model
from seqloom.errors import ConfigError

TESTS = Path(__file__).parents[1]
SECONDS = 0.1
GOOD = [CLASSIFIER, TAGGER, LANGUAGE, TRANSLATOR]


def refusal_of(read: Callable[[], object]) -> str:
    """The words of the ConfigError; anything else that is raised, or nothing, is a failure."""
    with pytest.raises(ConfigError) as refused:
        read()
    assert type(refused.value) is ConfigError
    assert refused.value.fix, "a refusal says what to do"
    assert refused.value.__cause__ is None and refused.value.__suppress_context__ == bool(refused.value.__context__)
    return str(refused.value)


def matches(message: str, expected: str) -> bool:
    """Whether a message reads as expected; <...> stands for the words of Python's own parsers."""
    return re.fullmatch(".*".join(re.escape(part) for part in expected.split("<...>")), message) is not None


def reader(form: str) -> Callable[[str], object]:
    return model_from_toml if form == "toml" else model_from_json


@pytest.mark.parametrize("bad", CASES, ids=lambda bad: bad.name)
def test_a_bad_text_is_refused_in_these_words(bad: Case) -> None:
    message = refusal_of(lambda: reader(bad.form)(bad.text))
    assert matches(message, bad.message), message
    assert message.isprintable()
    assert len(message) < 400


@pytest.mark.parametrize("bad", CASES, ids=lambda bad: bad.name)
def test_a_bad_file_is_refused_in_the_same_words_within_a_tenth_of_a_second(bad: Case, tmp_path: Path) -> None:
    path = tmp_path / f"model.{bad.form}"
    path.write_text(bad.text, encoding="utf-8")
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        message = refusal_of(lambda: read_model(path))
        seconds.append(time.perf_counter() - began)
    assert message.startswith(f"{path}: ")
    assert matches(message.removeprefix(f"{path}: "), bad.message)
    assert min(seconds) < SECONDS


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good["kind"])
def test_what_the_bad_ones_were_made_from_is_good(good: dict[str, Any]) -> None:
    assert model_from_json(json.dumps(good)).parameters() > 0


def test_the_table_has_no_name_twice() -> None:
    assert len({bad.name for bad in CASES}) == len(CASES) > 100


@pytest.mark.slow
def test_reading_configurations_does_not_import_torch() -> None:
    program = """
import json, sys
import seqloom.config.models
from config.bad_texts import CASES, CLASSIFIER, LANGUAGE, TAGGER, TRANSLATOR
from seqloom import recipes
from seqloom.config.models import model_from_json, model_from_toml
from seqloom.errors import ConfigError
refused = 0
for bad in CASES:
    try:
        (model_from_toml if bad.form == "toml" else model_from_json)(bad.text)
    except ConfigError:
        refused += 1
for good in (CLASSIFIER, TAGGER, LANGUAGE, TRANSLATOR):
    model_from_json(json.dumps(good)).parameters()
model_from_toml(recipes.language_model("transformer", vocab_size=9).to_toml())
print(refused, [name for name in ("torch", "numpy", "yaml") if name in sys.modules])
"""
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == f"{len(CASES)} []", done.stderr


# files


def test_a_file_of_64_mebibytes_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "model.toml"
    with path.open("wb") as file:
        file.truncate(64 * 2**20)
    tracemalloc.start()
    began = time.perf_counter()
    message = refusal_of(lambda: read_model(path))
    seconds = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    expected = "the file has 67,108,864 bytes; the limit for a configuration is 262,144. Fix: is this the right file?"
    assert message == f"{path}: {expected}"
    assert peak < 2**20
    assert seconds < SECONDS


@pytest.mark.parametrize("character", [" ", "\u3000"])
def test_a_file_that_grows_while_it_is_read_is_refused_by_its_size(
    tmp_path: Path, monkeypatch: Any, character: str
) -> None:
    path = tmp_path / "model.json"
    path.write_text(character * (MAX_FILE_BYTES + 1), encoding="utf-8")
    monkeypatch.setattr(Path, "stat", _stat_before_it_grew(Path.stat))
    assert "the file has 262,145 bytes; the limit for a configuration is 262,144" in refusal_of(
        lambda: read_model(path)
    )


def _stat_before_it_grew(stat: Any) -> Any:
    def small(self: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        found = list(stat(self, follow_symlinks=follow_symlinks))
        found[6] = 10  # st_size
        return os.stat_result(found)

    return small


@pytest.mark.parametrize("read", [model_from_toml, model_from_json])
def test_a_text_is_refused_by_its_size_too(read: Callable[[str], object]) -> None:
    assert "the file has 300,000 bytes; the limit for a configuration is 262,144" in refusal_of(
        lambda: read("#" * 300_000)
    )


def test_the_largest_line_of_dots_is_read_quickly() -> None:
    began = time.perf_counter()
    message = refusal_of(lambda: model_from_toml(".".join(["a"] * (MAX_DOTS + 1)) + " = 1"))
    assert message.startswith("missing key 'kind', found 'a'.")
    assert time.perf_counter() - began < SECONDS


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("model.yaml", b"kind: x", "expected a .toml or .json file. Fix: rename it, or give another file."),
        ("model", b"", "expected a .toml or .json file. Fix: rename it, or give another file."),
        ("model.pt", b"PK", "expected a .toml or .json file. Fix: rename it, or give another file."),
        ("latin.toml", "kind = 'é'".encode("latin-1"), "byte 8 is not UTF-8. Fix: save the file as UTF-8."),
        ("utf16.json", "{}".encode("utf-16"), "byte 0 is not UTF-8. Fix: save the file as UTF-8."),
        ("zip.json", b"PK\x03\x04\xff", "byte 4 is not UTF-8. Fix: save the file as UTF-8."),
        ("empty.toml", b"", "the configuration is empty. Fix: start from a recipe: seqloom recipes NAME > model.toml."),
        (
            "mark.json",
            b"\xef\xbb\xbf",
            "the configuration is empty. Fix: start from a recipe: seqloom recipes NAME > model.toml.",
        ),
    ],
)
def test_a_bad_file_is_refused_in_these_words(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert refusal_of(lambda: read_model(path)) == f"{path}: {expected}"


def test_a_missing_file_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "model.toml").touch()
    assert refusal_of(lambda: read_model(tmp_path / "modle.toml")).endswith(
        "modle.toml: there is no such file. Did you mean 'model.toml'?"
    )
    assert refusal_of(lambda: read_model(tmp_path / "no" / "model.toml")).endswith(
        "model.toml: there is no such file. Fix: check the path."
    )


def test_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.toml").mkdir()
    message = refusal_of(lambda: read_model(tmp_path / "model.toml"))
    assert message.endswith("model.toml: this is a folder. Fix: give a file inside it.")


def test_what_is_not_a_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    for name in ("pipe", "loop", "zero"):
        assert "there is no such file" in refusal_of(lambda name=name: read_model(tmp_path / f"{name}.toml"))


@pytest.mark.parametrize("name", ["x" * 300 + ".toml", "nul\0.toml"])
def test_a_name_that_no_disk_takes_is_refused(tmp_path: Path, name: str) -> None:
    message = refusal_of(lambda: read_model(tmp_path / name))
    assert "it cannot be read: " in message or "there is no such file" in message


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "model.toml"
    path.touch()

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    assert refusal_of(lambda: read_model(path)).endswith(
        "model.toml: it cannot be read: Permission denied. Fix: give another path."
    )


def test_a_name_with_terminal_codes_is_shown_without_them(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J\nb.toml"
    path.write_text("kind = 1")
    assert refusal_of(lambda: read_model(path)).isprintable()


# anything at all


def refusal_if_any(read: Callable[[], object]) -> ConfigError | None:
    """The ConfigError, or None if the configuration was taken; anything else that is raised passes through."""
    try:
        read()
    except ConfigError as error:
        return error
    return None


@settings(max_examples=200, deadline=None)
@given(st.text() | st.text(alphabet="{}[]\"',:=.#\n 01ekind-_"))
def test_any_text_is_refused_or_read(text: str) -> None:
    for read in (model_from_toml, model_from_json):
        error = refusal_if_any(lambda read=read: read(text))
        assert error is None or (error.fix and str(error).isprintable())


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["kind", "lstm", "encoder", "tokens", "sequence-model", 8, 1, 2**40, b"", {}.keys()]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("kind"), inner),
    max_leaves=6,
)


def places(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in plain data that could hold something else."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [way, *(place for key, inner in items for place in places(inner, (*way, key)))]


def replaced(data: Any, way: tuple[Any, ...], value: Any) -> Any:
    if not way:
        return value
    key, *rest = way
    changed = dict(data) if isinstance(data, dict) else list(data)
    changed[key] = replaced(data[key], tuple(rest), value)
    return changed


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(GOOD), st.data(), anything)
def test_a_good_one_with_anything_anywhere_is_refused_or_read(good: Any, data: st.DataObject, value: Any) -> None:
    way = data.draw(st.sampled_from(places(good)))
    error = refusal_if_any(lambda: from_data(replaced(good, way, value), AnyModel))
    assert error is None or (error.fix and str(error).isprintable())
