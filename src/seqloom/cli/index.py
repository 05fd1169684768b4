"""`seqloom index`: build a search index of a file, by words or also by meaning; add, replace or delete documents."""

import shlex
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from seqloom.cli.inputs import load_on, reading_of, require_readable
from seqloom.cli.options import (
    FILE,
    SKIP_BAD_ROWS,
    TRAINED_COLUMN,
    DeviceName,
    EmbeddingBatchTokens,
    Given,
    option,
    reworded,
    takes,
)
from seqloom.cli.terminal import followed_work
from seqloom.config.data import BadRows, DataConfig, ReadingConfig
from seqloom.config.options import said, settings, with_flags
from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.files.layouts import ModelFile, RunFile
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.build import Building
    from seqloom.search.documents import CheckedDocuments, Collection
    from seqloom.search.store import IndexSummary
    from seqloom.search.vectors import ModelEmbedder


DOCUMENTS = reworded(FILE, input=f"Column with the text; several are joined with a space (default: {TRAINED_COLUMN}).")


@takes(
    settings(DataConfig, "id"),
    SKIP_BAD_ROWS,
    DOCUMENTS,
    common=("out", "add", "delete", "compact", "passage_tokens", "exact", "input", "id", "batch_tokens", "device"),
    examples=(
        "seqloom index docs.jsonl --out docs.index",
        "seqloom index models/encoder docs.jsonl --out docs.index",
        "seqloom index models/encoder more.jsonl --out docs.index --add",
    ),
)
def index(
    out: Annotated[str, option("--out -o", "INDEX", "Folder of the index, or a postgresql:// URL.")],
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL",
            help="A run folder or a model folder, to search by meaning too (default: none, search by words).",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="The documents, one per row (not needed with --delete and --compact)."),
    ] = None,
    add: Annotated[
        bool, option("--add", None, "Add documents to an index and replace those with the same id (default: off).")
    ] = False,
    delete: Annotated[
        list[str] | None, option("--delete", "ID", "Delete the document with this id; can be repeated (default: none).")
    ] = None,
    compact: Annotated[
        bool,
        option("--compact", None, "Free the disk space of deleted and replaced documents (default: off)."),
    ] = False,
    passage_tokens: Annotated[
        int | None,
        option(
            "--passage-tokens",
            "COUNT",
            "Split documents into passages of at most this many tokens, or words without a MODEL (default: 256, or "
            "the model's limit if lower).",
        ),
    ] = None,
    exact: Annotated[
        bool | None,
        option(
            "--exact/--approximate",
            None,
            "Always search exactly, or use approximate search (HNSW) when the index is large (default: approximate).",
        ),
    ] = None,
    *,
    given: Given,
    batch_tokens: EmbeddingBatchTokens = None,
    device: DeviceName = "auto",
) -> None:
    """Build a search index of documents; run the same command again to resume.

    Without a MODEL, the index is searched by words (BM25); with one, by words and by meaning.
    """
    if delete or compact:
        if model is not None or add:
            raise ConfigError("--delete and --compact change an existing index", fix="leave out MODEL, FILE and --add")
        return _change(out, delete or [], compact, exact)
    if file is None:  # one argument is the file
        model, file = None, model
    if file is None or (model is None and any((file / name).exists() for name in (RunFile.MODEL, ModelFile.WEIGHTS))):
        problem = (
            "building an index needs a file" if file is None else f"{file} is a model, and the documents are missing"
        )
        raise ConfigError(problem, fix="seqloom index FILE --out INDEX, or seqloom index MODEL FILE --out INDEX")
    if model is not None and model.is_file() and file.is_file():
        problem = f"{model} and {file} are two files, and an index is built from one"
        more = f"`seqloom index {shlex.quote(str(file))} --out {shlex.quote(str(out))} --add`"
        raise ConfigError(problem, fix=f"build it from the first one, then add the other: {more}")
    if model is None and batch_tokens is not None:
        raise ConfigError("--batch-tokens is for a model, and there is none", fix="leave it out, or give a MODEL")
    from seqloom.search.build import add_to_index, build_index, open_store

    require_readable(given)
    if add:
        open_store(out)  # fail before any work if this is not an index
    read = _read_alone(file, given) if model is None else _read_by(model, file, given, device, batch_tokens)
    steps = (add_to_index if add else build_index)(
        out, read.embedder, read.documents, passage_tokens=passage_tokens, exact=exact
    )
    built = _follow(steps, file.name)
    if built.replaced:
        typer.echo(_replaced(built.replaced, read.documents), err=True)
    return _print_summary(built, has_vectors=model is not None)


def _replaced(count: int, documents: "Collection") -> str:
    """How many documents were replaced, and how to keep those of another file of the same name."""
    found = f"replaced {counted(count, 'document')} with the same {'id' if count == 1 else 'ids'}"
    if documents.has_ids:
        return found
    name = documents.path.name
    fix = f"if those came from another file called {name}, rename one and add both again, or use --id COLUMN"
    return f"{found}, which {'is' if count == 1 else 'are'} {name} and the line; {fix}"


class IndexInputs(NamedTuple):
    """The documents to index, and what embeds them."""

    documents: "Collection"
    embedder: "ModelEmbedder | None"


def _read_alone(file: Path, given: Given) -> IndexInputs:
    """Return the documents for an index without vectors."""
    from seqloom.search.documents import Collection

    rule = with_flags(BadRows(), {**given, "max_bad_rows": "100%"})
    reading = ReadingConfig(**said(ReadingConfig, given))
    return IndexInputs(Collection(file, tuple(given.get("input", ())), given.get("id"), (), reading, rule), None)


def _read_by(model: Path, file: Path, given: Given, device: str, batch_tokens: int | None) -> IndexInputs:
    """Load the model, and return it with the documents, which are read as in its training."""
    from seqloom.search.documents import Collection
    from seqloom.search.vectors import ModelEmbedder

    loaded = load_on(model, device)
    embedder = ModelEmbedder(loaded, batch_tokens)
    usual = loaded.columns if len(loaded.columns) == 1 else ()
    rule = with_flags(loaded.bad_rows, {**given, "max_bad_rows": "100%"})
    reading = reading_of(loaded, str(file), given).config
    return IndexInputs(Collection(file, tuple(given.get("input", ())), given.get("id"), usual, reading, rule), embedder)


def _change(out: str, ids: list[str], compact: bool, exact: bool | None) -> None:
    """Delete documents of an index, or compact it."""
    from seqloom.search.build import open_store, open_writable
    from seqloom.search.store import set_exact

    open_store(out)  # fail before a folder is made if this is not an index
    with open_writable(out) as there:
        if ids:
            known = sorted(there.holds(ids))
            passages = sum(len(one.passages) for one in there.documents(known))
            there.delete(ids)
            gone = f"{counted(len(known), 'document')} with {counted(passages, 'passage')}"
            typer.echo(f"deleted {gone}" if known else "nothing to delete: the documents are deleted already", err=True)
        if exact is not None:
            set_exact(there, exact)
        if compact:
            there.compact()
        settings = there.settings
        built = followed_work(there.finished(), partial(_report, deque(maxlen=2)))
        _print_summary(built, has_vectors=settings is not None and settings.has_vectors)


def _follow(steps: "Building", name: str) -> "IndexSummary":
    """Run the build and return its summary; print what is stored if it is stopped, or that there was nothing to do."""
    from seqloom.search.store import LINKED

    last: deque[Progress] = deque(maxlen=2)
    try:
        built = followed_work(steps, partial(_report, last))
    except KeyboardInterrupt:
        if last:
            stored = f"{last[-1].kept:,} of {counted(last[-1].total, 'document')} of {name} are saved"
            if last[-1].stage == LINKED:
                stored = f"all documents of {name} are saved, but the graph is not finished"
            typer.echo(f"{stored}; run the same command again to resume", err=True)
        raise
    if len(last) == 1:  # only the first report of progress
        typer.echo(f"nothing to do: all documents of {name} are in the index", err=True)
    return built


def _report(last: "deque[Progress]", step: "CheckedDocuments | Progress") -> None:
    """Print what was stored before and which rows are bad; keep the last steps."""
    from seqloom.search.store import LINKED

    if isinstance(step, Progress):
        if step.stage != LINKED and 0 < step.done < step.total and not last:
            typer.echo(f"resuming: {step.done:,} of {counted(step.total, 'document')} are done", err=True)
        last.append(step)
    elif step.skipped:
        for one in step.bad:
            typer.echo(str(one._replace(fix="")), err=True)  # skipped, so there is nothing to fix
        typer.echo(f"{counted(step.skipped, 'bad row')} skipped", err=True)


def _print_summary(built: "IndexSummary", *, has_vectors: bool) -> None:
    how = "approximate search (HNSW graph)" if built.graph else "exact search"
    how = how if has_vectors else "search by words"
    passages = counted(built.passages, "passage")
    typer.echo(f"the index has {counted(built.documents, 'document')} and {passages}; {how}", err=True)
