"""`seqloom search`: search an index for a query, for lines of standard input, or evaluate a file of queries."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from seqloom.cli.inputs import Exact
from seqloom.cli.options import option, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.options import MACHINE
from seqloom.errors import ConfigError, SeqloomError
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.search import Hit, Reranker, Searcher

AROUND = 240  # characters shown around the best sentence of a passage
SHORT = 60  # characters shown of a column
PROMPT = "search> "
# control characters and those that change text direction; joiners and other invisible marks belong to words
STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class SearchSession(NamedTuple):
    """A searcher, an optional reranker, and how many documents to show."""

    searcher: "Searcher"
    reranker: "Reranker | None"
    rerank_top: int
    top_k: int
    where: tuple[str, ...]

    def hits(self, query: str) -> "list[Hit]":
        """Return the best documents, best first."""
        if self.reranker is None:
            return self.searcher.search(query, top_k=self.top_k, where=self.where)
        first = self.searcher.search(query, top_k=max(self.rerank_top, self.top_k), where=self.where)
        return self.reranker.reranked(query, first)[: self.top_k]

    def ids(self, query: str) -> list[str]:
        if self.reranker is None:
            found = self.searcher.ranked(query, top_k=self.top_k, where=self.where)
            return [one.id for one in found]
        return [hit.id for hit in self.hits(query)]


@takes(
    common=("top_k", "mode", "where", "rerank", "queries", "qrels", "model", "json", "device"),
    examples=(
        'seqloom search docs.index "how do I resume a run"',
        'seqloom search docs.index "resume" --mode words --where lang=en -k 3',
    ),
)
def search(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="Folder of an index, or a postgresql:// URL.")],
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="Query (default: read queries from standard input, one per line)."),
    ] = None,
    top_k: Annotated[
        int,
        typer.Option(
            "-k",
            "--top-k",
            min=1,
            metavar="COUNT",
            help="Number of documents to show (default: 10).",
            show_default=False,
        ),
    ] = 10,
    where: Annotated[
        list[str] | None,
        option("--where", "CONDITION", 'Filter such as "year>=2000" or lang=en; can be repeated (default: none).'),
    ] = None,
    mode: Annotated[
        str | None,
        option(
            "--mode",
            "NAME",
            "Search by vectors (meaning), words (BM25) or both (default: both; words if the index has no vectors).",
        ),
    ] = None,
    rerank: Annotated[
        Path | None,
        option(
            "--rerank", "MODEL", "Rerank the top documents with this cross-encoder, a text pair model (default: none)."
        ),
    ] = None,
    rerank_label: Annotated[
        str | None,
        option(
            "--rerank-label",
            "LABEL",
            "Label that the --rerank model predicts for a relevant passage (default: the label named relevant, "
            "yes, true or a similar word).",
        ),
    ] = None,
    rerank_top: Annotated[
        int,
        typer.Option(
            "--rerank-top",
            min=1,
            metavar="COUNT",
            help="Number of documents to rerank (default: 50).",
            show_default=False,
        ),
    ] = 50,
    queries: Annotated[
        Path | None,
        option(
            "--queries",
            "FILE",
            "Evaluate the search on the queries of this file, which has a column id and a column with the text; needs "
            "--qrels (default: off).",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        option(
            "--qrels",
            "FILE",
            "Relevant documents of the --queries: lines of query id, document id and relevance (default: none).",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        option(
            "--model",
            "MODEL",
            "Embedding model, if it has moved since the index was built (default: the path in the index).",
        ),
    ] = None,
    exact: Exact = False,
    device: Annotated[str, option("--device", "NAME", "Device: cpu, cuda or mps (default: cpu).", MACHINE)] = "cpu",
    json: Annotated[bool, option("--json", None, "Print one line of JSON per query (default: text).")] = False,
) -> None:
    """Search an index by meaning, by words or by both."""
    if (queries is None) != (qrels is None):
        raise ConfigError("--queries and --qrels must be used together", fix="give both or neither")
    if queries is not None and query is not None:
        raise ConfigError("a query and --queries cannot be used together", fix="leave one out")
    from seqloom.search.build import open_store
    from seqloom.search.search import searcher
    from seqloom.search.store import conditions, require_columns

    there = open_store(index, exact=exact)
    require_columns(conditions(where or ()), there.columns)
    if (source := there.source) is not None and not source.last:
        found = f"the index has only the first {counted(source.stop, 'document')} of {source.name}"
        typer.echo(f"warning: {found}; run the seqloom index command again to finish it", err=True)
    asked = searcher(there, mode=mode, model=model, device=device)
    reader = _reranker(rerank, rerank_label, device)
    session = SearchSession(asked, reader, rerank_top, top_k, tuple(where or ()))
    if queries is not None and qrels is not None:
        return _evaluate(session, queries, qrels, json)
    if query is not None:
        _show(session, query, json)
    else:
        _converse(session, json)
    return None


def _reranker(path: Path | None, label: str | None, device: str) -> "Reranker | None":
    if path is None:
        if label is not None:
            raise ConfigError("--rerank-label needs --rerank", fix="add --rerank MODEL")
        return None
    from seqloom.inference.model import load
    from seqloom.search.search import Reranker

    return Reranker(load(path, device=device), label)


def _converse(session: SearchSession, json: bool) -> None:
    """Answer queries from standard input until an empty line; an error does not end the loop."""
    typing, first = sys.stdin.isatty(), True
    while True:
        if typing:
            typer.echo(PROMPT, nl=False, err=True)
        query = sys.stdin.readline().strip()
        if not query:
            return
        if not json and not typing:  # on a terminal the query is visible already
            Screen().say(plain(query) if first else f"\n{plain(query)}")
        first = False
        try:
            _show(session, query, json)
        except SeqloomError as error:
            typer.echo(f"error: {error}", err=True)


def _show(session: SearchSession, query: str, json: bool) -> None:
    """Print a line of JSON, or a few lines for each hit with its best sentence in bold."""
    from rich.text import Text

    hits, screen = session.hits(query), Screen()
    if warning := session.searcher.warning(query):
        typer.echo(f"warning: {warning}", err=True)
    if json:
        return screen.say_json({"query": query, "hits": [hit.to_json() for hit in hits]})
    if not hits:
        screen.print("no documents found", markup=False)
    for rank, hit in enumerate(hits, 1):
        score = f"{hit.score:.4f}"
        cosine = score if hit.cosine is None else f"{hit.cosine:.4f}"
        shown = [f"{rank:>3}. {plain(hit.id)}", score, *([] if cosine == score else [f"cosine {cosine}"])]
        screen.say("  ".join([*shown, *_columns(hit)]))
        before, sentence, after = _marked(hit)
        mark = ("", "") if screen.is_terminal else (">>", "<<")  # marks for the bold text of a terminal
        passage = Text(f"     {before}").append(f"{mark[0]}{sentence}{mark[1]}", style="bold").append(after)
        screen.print(passage, soft_wrap=True)
    return None


def plain(text: str) -> str:
    r"""Escape control characters in a text; joiners of scripts and emoji stay.

    >>> plain("a\x1b[31mb\u202e") , plain("می\u200cخواهم") == "می\u200cخواهم"
    ('a\\x1b[31mb\\u202e', True)
    """
    return STEERS.sub(lambda one: one[0].encode("unicode_escape").decode("ascii"), text)


def _marked(hit: "Hit") -> tuple[str, str, str]:
    """Return the text before the best sentence of a hit, the sentence, and the text after it."""
    (start, stop), (first, last) = hit.passage, hit.sentence
    left, right = max(start, first - AROUND), min(stop, last + AROUND)
    before = ("..." if left > start else "") + hit.text[left:first]
    after = hit.text[last:right] + ("..." if right < stop else "")
    return plain(" ".join(before.split()) + " " * bool(before)), plain(hit.text[first:last]), plain(after)


def _columns(hit: "Hit") -> list[str]:
    """Return the columns, shortened; without the id, and without long ones that are part of the text."""
    texts = {name: str(value).strip() for name, value in hit.columns.items()}
    chosen = {
        name: text for name, text in texts.items() if text != hit.id and (len(text) <= SHORT or text not in hit.text)
    }
    return [f"{plain(name)}={plain(text[:SHORT])}{'...' * (len(text) > SHORT)}" for name, text in chosen.items()]


def _evaluate(session: SearchSession, queries: Path, qrels: Path, json: bool) -> None:
    """Print nDCG, recall and MRR against relevance judgments."""
    from seqloom.report.document import Document
    from seqloom.search.documents import Collection
    from seqloom.search.evaluation import DEEP, evaluate_queries, missing_documents, read_qrels, read_queries
    from seqloom.tasks.tables import figure_table

    judgments, asked = read_qrels(qrels), read_queries(Collection(queries))
    if missing := missing_documents(judgments, session.searcher.store.holds):
        found = f"{counted(len(missing), 'document')} of {qrels.name} not in the index, such as '{plain(missing[0])}'"
        typer.echo(f"warning: {found}; each counts as not found", err=True)
    scores = followed_work(evaluate_queries(session._replace(top_k=DEEP).ids, asked, judgments))
    figures: dict[str, Any] = {"queries": scores.queries, "metrics": scores.metrics}
    figures["intervals"] = {name: scores.intervals.get(name) for name in scores.metrics}
    if json:
        return Screen().say_json(figures)
    blocks = figure_table(figures | {"rows": scores.queries}, shares=scores.intervals, one="query")
    return Screen().show(Document(counted(scores.queries, "query", "queries"), blocks))
