"""`seqloom search`: questions to an index, on the command line or one after the other; or judged questions."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from seqloom.cli.inputs import Exact
from seqloom.cli.options import option
from seqloom.cli.terminal import Screen, followed_work
from seqloom.errors import ConfigError, SeqloomError
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.search import Hit, Reranker, Searcher

AROUND = 240  # characters of a passage that are shown around its best sentence
SHORT = 60  # characters of a column that are shown
PROMPT = "search> "
# what steers a terminal or turns the direction of what follows; joiners and other unseen marks belong to words
STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class Answering(NamedTuple):
    """What answers questions, and how many answers are wanted."""

    searcher: "Searcher"
    reranker: "Reranker | None"
    read_again: int
    most: int
    where: tuple[str, ...]

    def hits(self, question: str) -> "list[Hit]":
        """The best documents, the best one first."""
        if self.reranker is None:
            return self.searcher.search(question, count=self.most, where=self.where)
        first = self.searcher.search(question, count=max(self.read_again, self.most), where=self.where)
        return self.reranker.reranked(question, first)[: self.most]

    def ids(self, question: str) -> list[str]:
        """Their ids alone."""
        if self.reranker is None:
            found = self.searcher.ranked(question, count=self.most, where=self.where)
            return [one.id for one in found]
        return [hit.id for hit in self.hits(question)]


def search(
    index: Annotated[str, typer.Argument(metavar="INDEX", help="The folder of an index, or a postgresql:// URL.")],
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="What is searched for; without it, a line after the other.")
    ] = None,
    count: Annotated[int, typer.Option("-k", "--count", min=1, metavar="COUNT", help="How many documents.")] = 10,
    where: Annotated[
        list[str] | None, option("--where", "CONDITION", 'Such as "year>=2000" or lang=en; may be repeated.')
    ] = None,
    mode: Annotated[str, option("--mode", "NAME", "vectors, words or both.")] = "both",
    rerank: Annotated[Path | None, option("--rerank", "MODEL", "A model of pairs that reads the first again.")] = None,
    rerank_label: Annotated[
        str | None, option("--rerank-label", "LABEL", "Its label for a passage that answers.")
    ] = None,
    rerank_top: Annotated[
        int, typer.Option("--rerank-top", min=1, metavar="COUNT", help="How many it reads again.")
    ] = 50,
    queries: Annotated[Path | None, option("--queries", "FILE", "Questions, to be judged with --qrels.")] = None,
    qrels: Annotated[Path | None, option("--qrels", "FILE", "Which documents answer which questions.")] = None,
    model: Annotated[Path | None, option("--model", "MODEL", "The model of the index, if it was moved.")] = None,
    exact: Exact = False,
    device: Annotated[str, option("--device", "NAME", "cpu, cuda or mps.")] = "cpu",
    json: Annotated[bool, option("--json", None, "Print a line of JSON for each question.")] = False,
) -> None:
    """Search in an index, by meaning, by words or by both."""
    if (queries is None) != (qrels is None):
        raise ConfigError("--queries and --qrels belong together", fix="give both, or none")
    if queries is not None and query is not None:
        raise ConfigError("both a query and a file of them are given", fix="leave one out")
    from seqloom.search.build import open_store
    from seqloom.search.search import searcher
    from seqloom.search.store import conditions, require_columns

    there = open_store(index, exact=exact)
    require_columns(conditions(where or ()), there.columns)
    if (standing := there.standing) is not None and not standing.last:
        told = f"the index holds {counted(standing.stop, 'document')} of {standing.name} and not the rest"
        typer.echo(f"warning: {told}: the command that was stopped goes on", err=True)
    asked = searcher(there, by=mode, model=model, device=device)
    reader = _reranker(rerank, rerank_label, device)
    answering = Answering(asked, reader, rerank_top, count, tuple(where or ()))
    if queries is not None and qrels is not None:
        return _judge(answering, queries, qrels, json)
    if query is not None:
        _show(answering.hits(query), query, json)
    else:
        _converse(answering, json)
    return None


def _reranker(path: Path | None, label: str | None, device: str) -> "Reranker | None":
    if path is None:
        if label is not None:
            raise ConfigError("--rerank-label is for a re-ranker", fix="give --rerank MODEL too")
        return None
    from seqloom.inference.model import load
    from seqloom.search.search import Reranker

    return Reranker(load(path, device=device), label)


def _converse(answering: Answering, json: bool) -> None:
    """Answer questions that are typed or come through a pipe, until an empty line; a wrong one does not end all."""
    typing, first = sys.stdin.isatty(), True
    while True:
        if typing:
            typer.echo(PROMPT, nl=False, err=True)
        question = sys.stdin.readline().strip()
        if not question:
            return
        if not json and not typing:  # who types sees what was asked, and where the answers end
            Screen().say(plain(question) if first else f"\n{plain(question)}")
        first = False
        try:
            _show(answering.hits(question), question, json)
        except SeqloomError as error:
            typer.echo(f"error: {error}", err=True)


def _show(hits: "list[Hit]", question: str, json: bool) -> None:
    """A line of JSON, or a few lines for each hit, its best sentence in bold."""
    from rich.text import Text

    screen = Screen()
    if json:
        return screen.say_json({"query": question, "hits": [hit.to_json() for hit in hits]})
    if not hits:
        screen.print("nothing found", markup=False)
    for rank, hit in enumerate(hits, 1):
        score = f"{hit.score:.4f}"
        cosine = score if hit.cosine is None else f"{hit.cosine:.4f}"
        told = [f"{rank:>3}. {plain(hit.id)}", score, *([] if cosine == score else [f"cosine {cosine}"])]
        screen.say("  ".join([*told, *_columns(hit)]))
        before, sentence, after = _marked(hit)
        mark = ("", "") if screen.is_terminal else (">>", "<<")  # what a terminal shows in bold
        shown = Text(f"     {before}").append(f"{mark[0]}{sentence}{mark[1]}", style="bold").append(after)
        screen.print(shown, soft_wrap=True)
    return None


def plain(text: str) -> str:
    r"""The text with all that steers a terminal written out; the joiners of scripts and emoji stay.

    >>> plain("a\x1b[31mb\u202e") , plain("می\u200cخواهم") == "می\u200cخواهم"
    ('a\\x1b[31mb\\u202e', True)
    """
    return STEERS.sub(lambda one: one[0].encode("unicode_escape").decode("ascii"), text)


def _marked(hit: "Hit") -> tuple[str, str, str]:
    """The best sentence of a hit, and what stands around it."""
    (start, stop), (first, last) = hit.passage, hit.sentence
    left, right = max(start, first - AROUND), min(stop, last + AROUND)
    before = ("..." if left > start else "") + hit.text[left:first]
    after = hit.text[last:right] + ("..." if right < stop else "")
    return plain(" ".join(before.split()) + " " * bool(before)), plain(hit.text[first:last]), plain(after)


def _columns(hit: "Hit") -> list[str]:
    """The columns, shortened, but for what is shown anyhow: the id, and long ones that are a part of the text."""
    texts = {name: str(value).strip() for name, value in hit.columns.items()}
    told = {
        name: text for name, text in texts.items() if text != hit.id and (len(text) <= SHORT or text not in hit.text)
    }
    return [f"{plain(name)}={plain(text[:SHORT])}{'...' * (len(text) > SHORT)}" for name, text in told.items()]


def _judge(answering: Answering, queries: Path, qrels: Path, json: bool) -> None:
    """Show how good the answers are, by judgements of people."""
    from seqloom.cli.tables import figure_table
    from seqloom.report.document import Document
    from seqloom.search.documents import Collection
    from seqloom.search.evaluation import DEEP, judged, read_judgements, read_questions, unknown

    judgements, questions = read_judgements(qrels), read_questions(Collection(queries))
    if missing := unknown(judgements, answering.searcher.store.holds):
        told = f"not in the index: {counted(len(missing), 'document')} of {qrels.name}, such as '{plain(missing[0])}'"
        typer.echo(f"warning: {told}; what cannot be found counts as missed", err=True)
    found = followed_work(judged(answering._replace(most=DEEP).ids, questions, judgements))
    figures: dict[str, Any] = {"rows": found.rows, "metrics": found.metrics}
    figures["intervals"] = {name: found.intervals.get(name) for name in found.metrics}
    if json:
        return Screen().say_json(figures)
    blocks = figure_table(figures, shares=found.intervals, one="question")
    return Screen().show(Document(counted(found.rows, "question"), blocks))
