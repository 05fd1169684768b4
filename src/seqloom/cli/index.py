"""`seqloom index`: build a search index of a file; add, replace or delete documents."""

from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.inputs import load_on, reading_of, require_readable
from seqloom.cli.options import (
    FILE,
    SKIP_BAD_ROWS,
    TRAINED,
    DeviceName,
    EmbeddingBatchTokens,
    Given,
    option,
    reworded,
    takes,
)
from seqloom.cli.terminal import followed_work
from seqloom.config.data import DataConfig
from seqloom.config.options import settings, with_flags
from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.build import Building
    from seqloom.search.documents import CheckedDocuments
    from seqloom.search.store import IndexSummary


DOCUMENTS = reworded(FILE, input=f"Column with the text; several are joined with a space {TRAINED}")


@takes(
    settings(DataConfig, "id"),
    SKIP_BAD_ROWS,
    DOCUMENTS,
    common=("out", "add", "delete", "compact", "passage_tokens", "exact", "input", "id", "batch_tokens", "device"),
    examples=(
        "seqloom index models/encoder docs.jsonl --out docs.index",
        "seqloom index models/encoder more.jsonl --out docs.index --add",
    ),
)
def index(
    out: Annotated[str, option("--out -o", "INDEX", "Folder of the index, or a postgresql:// URL.")],
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL", help="A run folder or a model folder (not needed with --delete and --compact)."
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
            "Split documents into passages of at most this many tokens (default: 256, or the model's limit if lower).",
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
    """Build a search index of documents; run the same command again to resume."""
    if delete or compact:
        if model is not None or add:
            raise ConfigError("--delete and --compact change an existing index", fix="leave out MODEL, FILE and --add")
        return _change(out, delete or [], compact, exact)
    if model is None or file is None:
        raise ConfigError("building an index needs a model and a file", fix="seqloom index MODEL FILE --out INDEX")
    from seqloom.search.build import add_to_index, build_index, open_store
    from seqloom.search.documents import Collection
    from seqloom.search.vectors import ModelEmbedder

    require_readable(given)
    if add:
        open_store(out)  # fail before any work if this is not an index
    loaded = load_on(model, device)
    usual = loaded.columns if len(loaded.columns) == 1 else ()
    rule = with_flags(loaded.bad_rows, {**given, "max_bad_rows": "100%"})
    reading = reading_of(loaded, str(file), given)
    documents = Collection(file, tuple(given.get("input", ())), given.get("id"), usual, reading, rule)
    steps = (add_to_index if add else build_index)(
        out, ModelEmbedder(loaded, batch_tokens), documents, passage_tokens=passage_tokens, exact=exact
    )
    return _print_summary(_follow(steps, file.name))


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
        _print_summary(followed_work(there.finished(), partial(_report, deque(maxlen=2))))


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


def _print_summary(built: "IndexSummary") -> None:
    how = "approximate search (HNSW graph)" if built.graph else "exact search"
    passages = counted(built.passages, "passage")
    typer.echo(f"the index has {counted(built.documents, 'document')} and {passages}; {how}", err=True)
