"""What the documentation says is so: links lead somewhere, tests and verbs that are named exist, lists are complete.

The examples are run by pytest itself. Each check here is a function from a text to a list of faults, so that it can be
seen to find one.
"""

import ast
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

import seqloom
from seqloom import recipes
from seqloom.cli import app
from seqloom.config.heads import ElementHead, Pooling, SequenceHead, VectorHeadConfig
from seqloom.config.inputs import AnyInput
from seqloom.config.mixers import POSITIONS, SCORES, AnyMixer, Pattern
from seqloom.config.models import AnyModel, model_from_toml
from seqloom.config.stacks import AnyConditioned, BlockConfig
from seqloom.config.training import (
    AnyBatching,
    AnyDuration,
    AnyOptimizer,
    AnySchedule,
    RangeConfig,
    RunConfig,
    SpaceConfig,
    TrainingConfig,
)
from test_import_directions import ORDER

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *PAGES]
ROWS = range(1, 39)
WIDEST = 122  # letters of a line of prose
EVERY_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+(?:::\w+)*)(?:\[.*\])?")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """The text without its blocks of code."""
    return FENCE.sub("", text)


def fences(text: str, language: str) -> list[str]:
    return [body for found, body in FENCE.findall(text) if found == language]


# --- links -----------------------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The names of the headings as the site and a repository's pages make them."""
    words = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in HEADING.findall(prose(text)))
    return {re.sub(r"[-\s]+", "-", word) for word in words}


def broken_links(document: Path, text: str) -> list[str]:
    faults = []
    for _, target in LINK.findall(prose(text)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        if not file.exists():
            faults.append(f"{document.name}: {target} leads nowhere")
        elif anchor and anchor not in anchors(text if file == document else file.read_text(encoding="utf-8")):
            faults.append(f"{document.name}: {target} has no such heading")
    return faults


@EVERY_DOCUMENT
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    assert broken_links(document, document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("link", ["[a](nowhere.md)", "[a](recipes.md#nothing)", "[a](#nothing)", "[a](../src/none.py)"])
def test_a_link_that_leads_nowhere_is_seen(link: str) -> None:
    assert len(broken_links(ROOT / "docs" / "index.md", f"# Title\n\n{link} and [b](#title)")) == 1


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w-]+\.md", read("mkdocs.yml"))
    assert sorted(listed) == [str(page.relative_to(ROOT / "docs")) for page in PAGES]


# --- words that people look for ---------------------------------------------------------------------------------------

# What somebody who knows other libraries types into a search box, and the pages that should come up.
USUAL = {
    "resume": "train.md",
    "overfit": "train.md",
    "per-class": "evaluate.md",
    "validation": "data.md",
    "split": "data.md",
    "token": "tokenizers.md",
    "learning rate": "optimizers.md",
    "batch size": "train.md",
    "early stopping": "train.md",
    "GPU": "train.md",
    "seed": "survival.md",
    "checkpoint": "checkpoints.md",
    "confusion matrix": "evaluate.md",
    "fine-tuning": "importing.md",
    "hyperparameter": "tune.md",
    "beam search": "decoding.md",
    "perplexity": "language-models.md",
    "dropout": "recipes.md",
}


def keywords(text: str) -> dict[str, list[str]]:
    """The words of the table of keywords, each with the pages that it leads to."""
    table = text.partition("| Looking for | Page |")[2].partition("\n\n")[0]
    found: dict[str, list[str]] = {}
    for words, target in re.findall(r"^\| (.+) \| \[[^\]]+\]\(([\w-]+\.md)[^)]*\) \|$", table, re.MULTILINE):
        for word in words.split(", "):
            found.setdefault(word, []).append(target)
    return found


def not_on_their_page(table: dict[str, list[str]]) -> list[str]:
    """The words that a text search does not find on the page that they lead to."""

    def plain(text: str) -> str:
        return " ".join(text.lower().replace("-", " ").split())

    return [
        f"{word}: {page}"
        for word, pages in table.items()
        for page in pages
        if not re.search(rf"\b{re.escape(plain(word.removesuffix('s')))}", plain(read(f"docs/{page}")))
    ]


def test_every_keyword_is_on_the_page_that_it_leads_to() -> None:
    table = keywords(read("docs/index.md"))
    assert len(table) > 60
    assert not_on_their_page(table) == []


def test_the_usual_words_lead_to_their_pages() -> None:
    table = keywords(read("docs/index.md"))
    for word, page in USUAL.items():
        assert any(page in pages for known, pages in table.items() if word.lower() in known.lower()), word
    assert not_on_their_page({word: [page] for word, page in USUAL.items()}) == []


def test_a_keyword_that_is_not_on_its_page_is_seen() -> None:
    assert not_on_their_page({"no such word": ["train.md"], "resume": ["train.md"]}) == ["no such word: train.md"]


def test_every_page_is_in_the_index() -> None:
    index = read("docs/index.md")
    assert [page.name for page in PAGES if page.name != "index.md" and f"]({page.name}" not in index] == []


# --- tests and code that are named -----------------------------------------------------------------------------------


def overlong(text: str) -> list[str]:
    """The lines of prose that stand far out among wrapped ones; tables and code cannot be wrapped."""
    return [line for line in prose(text).splitlines() if len(line) > WIDEST and not line.startswith("|")]


@pytest.mark.parametrize("name", ["embed-files", "embeddings", "search", "duplicates", "label"])
def test_prose_is_wrapped(name: str) -> None:
    assert not overlong(read(f"docs/{name}.md"))
    assert overlong("word " * 40)


@cache
def names_in(path: Path) -> frozenset[str]:
    """The tests of a file, those of a class as Class::name."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef))
    return frozenset(found)


def unknown_tests(text: str) -> list[str]:
    return [
        f"{path}::{name}"
        for path, name in TEST.findall(text)
        if not (ROOT / path).exists() or name not in names_in(ROOT / path)
    ]


def mislabeled_links(document: Path, text: str) -> list[str]:
    """Links whose words name another file than the one they lead to."""
    faults = []
    for words, target in LINK.findall(prose(text)):
        if target.startswith("../"):
            named = words.strip("`").partition("::")[0]
            if not (document.parent / target).resolve().as_posix().endswith(f"/{named}"):
                faults.append(f"{words} leads to {target}")
    return faults


@EVERY_DOCUMENT
def test_every_test_that_is_named_exists(document: Path) -> None:
    assert unknown_tests(document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "name", ["tests/none.py::test_a", "tests/test_docs.py::test_none", "tests/test_docs.py::TestNone::test_a"]
)
def test_a_test_that_does_not_exist_is_seen(name: str) -> None:
    known = "tests/test_docs.py::test_every_test_that_is_named_exists[README.md]"
    assert unknown_tests(f"`{name}` and `{known}`") == [name]


@EVERY_DOCUMENT
def test_links_lead_to_the_file_that_they_name(document: Path) -> None:
    assert mislabeled_links(document, document.read_text(encoding="utf-8")) == []


def test_a_link_to_another_file_than_it_names_is_seen() -> None:
    link = "[`tests/a.py::test_b`](../tests/c.py) [`types.py`](../src/seqloom/nn/types.py)"
    assert mislabeled_links(ROOT / "docs" / "concepts.md", link) == ["`tests/a.py::test_b` leads to ../tests/c.py"]


def untested_sections(text: str) -> list[str]:
    return [body.partition("\n")[0] for body in text.split("\n## ")[1:] if not TEST.search(body)]


def test_every_guarantee_names_its_tests() -> None:
    assert untested_sections(read("docs/guarantees.md")) == []
    assert untested_sections("# Page\n\n## Speed\n\nIt is fast.\n\n## Size\n\n`tests/a.py::test_b`\n") == ["Speed"]


# --- the table of concepts -------------------------------------------------------------------------------------------


def faults_of_rows(text: str) -> list[str]:
    """Rows that are missing, out of order, or without a test and without the words that there is none yet."""
    table = {int(row): line for line, row in re.findall(r"^(\| \[(\d+)\]\(#row-\2\) \|.*)$", text, re.MULTILINE)}
    parts = re.split(r"^### Row (\d+)$|^## ", text, flags=re.MULTILINE)
    sections = {int(row): body for row, body in zip(parts[1::2], parts[2::2], strict=True) if row}
    faults = [] if list(table) == list(ROWS) == list(sections) else [f"rows {list(table)}, sections {list(sections)}"]
    for row in sorted(table.keys() & sections.keys()):
        if not TEST.search(sections[row]) and "not built yet" not in (table[row] + sections[row]).lower():
            faults.append(f"row {row} has no proof")
        if TEST.search(sections[row]) and "](../src/seqloom/" not in sections[row]:
            faults.append(f"row {row} has a proof and no code")
    return faults


def test_every_row_of_the_lectures_has_its_code_and_proof_or_says_that_it_is_not_built() -> None:
    assert faults_of_rows(read("docs/concepts.md")) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| [7](#row-7) |", "| [6](#row-7) |"),
        ("### Row 38", "### Row 39"),
        (r"(?s)(### Row 22\n.*?)`tests[^`]*`", r"\1`nothing`"),
        (r"(?s)(### Row 22\n.*?)\.\./src/seqloom/", r"\1"),
    ],
)
def test_a_row_without_proof_is_seen(old: str, new: str) -> None:
    text = read("docs/concepts.md")
    spoiled = text.replace(old, new) if old in text else re.sub(old, new, text, count=1)
    assert spoiled != text
    assert len(faults_of_rows(spoiled)) == 1


# --- commands --------------------------------------------------------------------------------------------------------


def commands(text: str) -> list[str]:
    """What a reader may type: the lines of shell blocks, and code inside sentences."""
    return [line for block in fences(text, "sh") for line in block.splitlines()] + CODE.findall(prose(text))


def unknown_commands(text: str) -> list[str]:
    targets = set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))
    faults = []
    for command in commands(text):
        word = re.match(r"(?:[\w./]*/)?(make|seqloom) +([a-z][\w-]*)(?: +([a-z][\w-]*))?", command)
        if word and not (word[2] in targets if word[1] == "make" else is_verb(word[2], word[3])):
            faults.append(command)
    return faults


def is_verb(name: str, inner: str | None) -> bool:
    """Whether the command line has this verb, and for a group of verbs also the second word."""
    for group in app.registered_groups:
        if group.name == name:
            assert group.typer_instance is not None
            return inner is None or inner in {command.name for command in group.typer_instance.registered_commands}
    return name in {command.name for command in app.registered_commands}


@EVERY_DOCUMENT
def test_every_command_exists(document: Path) -> None:
    assert unknown_commands(document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    ["`seqloom trian`", "`seqloom data chekc x`", "```sh\nmake nothing\n```", "```sh\n.venv/bin/seqloom tuned x\n```"],
)
def test_a_command_that_does_not_exist_is_seen(text: str) -> None:
    assert len(unknown_commands(f"{text}\n\n`make demo`, `seqloom recipes lstm`, `seqloom --version`")) == 1


# --- options ---------------------------------------------------------------------------------------------------------

# Where the options of a verb are told; the first page leads to the others.
TOLD = {
    "auto": ["auto.md", "train.md", "data.md"],
    "compare": ["compare.md", "train.md", "data.md"],
    "data check": ["data.md"],
    "dedupe": ["duplicates.md"],
    "demo": ["index.md"],
    "bench": ["bench.md"],
    "doctor": ["doctor.md"],
    "evaluate": ["evaluate.md"],
    "generate": ["decoding.md"],
    "graph": ["graph.md"],
    "import": ["importing.md"],
    "inspect": ["inspect.md"],
    "label": ["label.md"],
    "predict": ["predict.md"],
    "recipes": ["recipes.md"],
    "serve": ["serve.md"],
    "train": ["train.md"],
    "translate": ["translate.md"],
    "tune": ["tune.md", "train.md"],
    "vectors analogy": ["word-vectors.md"],
    "vectors evaluate": ["word-vectors.md"],
    "vectors neighbors": ["word-vectors.md"],
    "vectors train": ["word-vectors.md"],
    "verify resume": ["survival.md"],
}
EVERY_VERB = pytest.mark.parametrize("verb", TOLD)


def options(verb: str) -> list[set[str]]:
    """The names of each option of a verb but those that ask for help; one of them is enough for a page."""
    command: Any = get_command(app)
    for word in verb.split():
        command = command.commands[word]
    found = [{*one.opts, *one.secondary_opts} for one in command.params if one.param_type_name == "option"]
    return [names for names in found if not names & {"--help", "--help-all"}]


def untold(text: str, names: list[set[str]]) -> list[str]:
    said = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", text))
    return sorted(max(one, key=len) for one in names if not one & said)


@EVERY_VERB
def test_the_page_of_a_verb_tells_every_option(verb: str) -> None:
    first, *others = TOLD[verb]
    text = read(f"docs/{first}")
    assert all(f"]({page}" in text for page in others)
    assert untold("".join(read(f"docs/{page}") for page in TOLD[verb]), options(verb)) == []


@EVERY_VERB
def test_an_option_that_is_not_told_is_seen(verb: str) -> None:
    names = options(verb)
    assert names and untold("`--models`", [*names, {"--model"}]) == sorted(
        max(one, key=len) for one in [*names, {"--model"}] if "--models" not in one
    )


# --- lists that must be complete -------------------------------------------------------------------------------------


def missing_words(text: str, words: list[str]) -> list[str]:
    """The words that never stand alone as code."""
    return [word for word in words if f"`{word}`" not in text]


def kinds(*unions: Any) -> list[str]:
    return [kind.kind() for union in unions for kind in get_args(union) or [union]]


def test_the_readme_is_short_and_lists_every_module() -> None:
    readme = read("README.md")
    assert len(readme.splitlines()) < 150
    entries = sorted((ROOT / "src" / "seqloom").iterdir())
    modules = [f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries]
    silent = {"__init__.py", "__main__.py", "version.py", "py.typed", "__pycache__/"}
    assert missing_words(readme, [module for module in modules if module not in silent]) == []


def test_configuration_names_every_word_and_recipes_every_recipe() -> None:
    stacks = ["encoder", "decoder", "conditioned-decoder"]
    heads = kinds(SequenceHead, ElementHead, VectorHeadConfig)
    words = kinds(AnyModel, AnyInput, AnyMixer, Pattern, BlockConfig, AnyConditioned) + stacks + heads
    words += [*POSITIONS, *SCORES, *get_args(Pooling)]
    words += kinds(AnyDuration, AnyBatching, AnyOptimizer, AnySchedule, RangeConfig, SpaceConfig)
    words += [*TrainingConfig.__struct_fields__, *RunConfig.__struct_fields__]
    assert missing_words(read("docs/configuration.md"), words) == []
    assert missing_words(read("docs/recipes.md"), list(recipes.RECIPES)) == []


def test_a_word_that_is_missing_is_seen() -> None:
    assert missing_words("`lstm`, gru", ["lstm", "gru"]) == ["gru"]


def test_the_annotated_file_is_the_recipe_that_it_claims_to_be() -> None:
    (text,) = fences(read("docs/configuration.md"), "toml")
    assert model_from_toml(text) == recipes.language_model("transformer", vocab_size=10_000, size="nano")


def test_the_layout_in_the_architecture_is_the_order_of_imports() -> None:
    section = read("docs/architecture.md").partition("## Layout and import order")[2]
    (layout, *_) = fences(section, "text")
    assert [line.split()[0] for line in layout.splitlines()] == ORDER


def test_changelog_and_readme_have_the_version_of_the_package() -> None:
    versions = re.findall(r"^## \[([^\]]+)\]", read("CHANGELOG.md"), re.MULTILINE)
    assert versions[0] == seqloom.__version__
    assert f"Version {seqloom.__version__}," in read("README.md")


@EVERY_DOCUMENT
def test_no_path_of_one_machine_is_mentioned(document: Path) -> None:
    assert re.findall(r"(?<![\w.-])/(?:home|root|work|tmp|usr|opt)/\S*", document.read_text(encoding="utf-8")) == []


# --- the site --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    build = [sys.executable, "-m", "zensical", "build", "--clean"]
    run = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and "No issues found" in run.stdout + run.stderr, run.stdout + run.stderr
    pages = list((tmp_path / "site").glob("*.html"))
    assert len(pages) == len(PAGES) + 1  # and the page for what is not found
    for page in pages:
        fetched = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', page.read_text())
        assert fetched == [], page.name
