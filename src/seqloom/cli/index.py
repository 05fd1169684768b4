"""`seqloom index`: a file of documents becomes an index; more are added, replaced or deleted."""

from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seqloom.cli.inputs import load_on, reading_of, require_readable
from seqloom.cli.options import FILE, Budget, DeviceName, Given, option, takes
from seqloom.cli.terminal import followed_work
from seqloom.config.data import DataConfig
from seqloom.config.options import settings, with_flags
from seqloom.errors import ConfigError
from seqloom.events import Progress
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.build import Building
    from seqloom.search.documents import CheckedDocuments
    from seqloom.search.store import Built


@takes(settings(DataConfig, "id", "bad_rows"), FILE)
def index(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help="A run folder or a model folder.")] = None,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The documents, one in each row.")] = None,
    out: Annotated[str | None, option("--out -o", "INDEX", "The folder of the index, or a postgresql:// URL.")] = None,
    add: Annotated[bool, option("--add", None, "Add to an index; an id that is there is replaced.")] = False,
    delete: Annotated[list[str] | None, option("--delete", "ID", "Delete a document; may be repeated.")] = None,
    join: Annotated[
        bool, option("--join", None, "Write the index anew, without what was deleted or replaced.")
    ] = False,
    passage: Annotated[
        int | None, option("--passage", "COUNT", "Symbols of a passage; else 256, or what the model reads.")
    ] = None,
    exact: Annotated[
        bool | None,
        typer.Option("--exact/--graph", help="Never a graph, or one where passages are many; the index remembers it."),
    ] = None,
    *,
    given: Given,
    budget: Budget = None,
    device: DeviceName = "auto",
) -> None:
    """Make an index of documents to search in; the same command goes on where one was stopped."""
    if out is None:
        raise ConfigError("the index has no name", fix="--out INDEX")
    if delete or join:
        if model is not None or add:
            raise ConfigError("--delete and --join are for documents that are there", fix="leave the file out")
        return _change(out, delete or [], join, exact)
    if model is None or file is None:
        raise ConfigError("an index is made with a model, of a file", fix="seqloom index MODEL FILE --out INDEX")
    from seqloom.search.build import add_to_index, build_index, open_store
    from seqloom.search.documents import Collection
    from seqloom.search.vectors import ModelEmbeds

    require_readable(given)
    if add:
        open_store(out)  # what is no index is told before any work
    loaded = load_on(model, device)
    usual = loaded.columns if len(loaded.columns) == 1 else ()
    rule = with_flags(loaded.bad_rows, {**given, "max_bad": "100%"})
    reading = reading_of(loaded, str(file), given)
    documents = Collection(file, tuple(given.get("input", ())), given.get("id"), usual, reading, rule)
    steps = (add_to_index if add else build_index)(
        out, ModelEmbeds(loaded, budget), documents, passage=passage, exact=exact
    )
    return _tell(_follow(steps, file.name))


def _change(out: str, ids: list[str], join: bool, exact: bool | None) -> None:
    """Delete documents of an index, or write it anew without what is gone."""
    from seqloom.search.build import open_store, writing_at
    from seqloom.search.store import remember_exact

    open_store(out)  # what is no index is told before a folder is made
    with writing_at(out) as there:
        if ids:
            there.delete(ids)
            typer.echo(f"{counted(len(ids), 'document')} deleted", err=True)
        if exact is not None:
            remember_exact(there, exact)
        if join:
            there.join()
        _tell(followed_work(there.finished(), partial(_told, deque(maxlen=2))))


def _follow(steps: "Building", name: str) -> "Built":
    """What came of it; what is kept is told to whoever stops it, and that there was nothing to do."""
    from seqloom.search.store import LINKED

    last: deque[Progress] = deque(maxlen=2)
    try:
        built = followed_work(steps, partial(_told, last))
    except KeyboardInterrupt:
        if last:
            kept = f"{last[-1].kept:,} of {counted(last[-1].total, 'document')} of {name} are kept"
            if last[-1].stage == LINKED:
                kept = f"all documents of {name} are kept, and the graph is not"
            typer.echo(f"{kept}; the same command goes on", err=True)
        raise
    if len(last) == 1:  # how far it was at the beginning
        typer.echo(f"nothing to do: {name} is in the index", err=True)
    return built


def _told(last: "deque[Progress]", step: "CheckedDocuments | Progress") -> None:
    """Say what was kept before and which rows are bad; the last steps are remembered."""
    from seqloom.search.store import LINKED

    if isinstance(step, Progress):
        if step.stage != LINKED and 0 < step.done < step.total and not last:
            typer.echo(f"going on: {step.done:,} of {counted(step.total, 'document')} are kept", err=True)
        last.append(step)
    elif step.skipped:
        for one in step.bad:
            typer.echo(str(one._replace(fix="")), err=True)  # read over, so nothing is to be done
        typer.echo(f"{counted(step.skipped, 'bad row')} read over", err=True)


def _tell(built: "Built") -> None:
    how = "found along a graph (HNSW)" if built.graph else "all compared"
    passages = counted(built.passages, "passage")
    typer.echo(f"{counted(built.documents, 'document')} in the index: {passages}, {how}", err=True)
