"""`seqloom inspect`: a look inside a model at one input, or which looks there are.

    --layer 2   --row cat   --set top_k=5   --set window=100:200   --set beside=attention,gates

What a view takes is read from its signature, so that no option is written down twice. A number is a number wherever one
fits, `int | str`: `--row 3` is the fourth token, whatever it reads. What is called by a name is `str | int` there, and
typed it always is a name: `--answer 3` is the label "3", as labels of stars are called, and not the fourth label.
"""

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer

from seqloom.cli.answers import tell_warnings
from seqloom.cli.inputs import Model, load_on, reading_of, require_readable
from seqloom.cli.options import FILE, DeviceName, Given, option, takes
from seqloom.cli.terminal import Screen, work_bar
from seqloom.config.data import DataConfig, ReadingConfig
from seqloom.config.options import said, settings, with_flags
from seqloom.data.problems import Ledger, escaped
from seqloom.errors import ConfigError, did_you_mean
from seqloom.report.labels import visible
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.data.schema import Example
    from seqloom.inference.model import LoadedModel
    from seqloom.inspect.inspector import Inspection
    from seqloom.inspect.view import View

WIDEST = 160  # columns
MOST = 200  # inputs of a file that views of data are of
LINES = ".jsonl"  # a file of a line for each row
EXPORTED = "attribution"  # the view that is written so


@takes(settings(DataConfig, "sequence", "bad_rows", "max_bad"), FILE)
def inspect(
    model: Model,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="What the model reads; two texts where it reads two."),
    ] = None,
    view: Annotated[str | None, option("--view", "NAME", "What to look at; without it, which views there are.")] = None,
    layer: Annotated[str | None, option("--layer", "LAYER", "The number of a layer, or its path.")] = None,
    head: Annotated[str | None, typer.Option(metavar="NUMBER", help="A head of attention.")] = None,
    row: Annotated[str | None, typer.Option(metavar="TOKEN", help="A token, by its number or its text.")] = None,
    side: Annotated[str | None, typer.Option(metavar="NAME", help="source or target, first or second.")] = None,
    answer: Annotated[
        str | None, typer.Option(metavar="NAME", help="The label, tag or symbol that is asked about.")
    ] = None,
    against: Annotated[str | None, typer.Option(metavar="NAME", help="Another one that it is set against.")] = None,
    at: Annotated[str | None, typer.Option(metavar="TOKEN", help="Where the answer stands, of several.")] = None,
    method: Annotated[str | None, typer.Option(metavar="NAME", help="How an attribution is measured.")] = None,
    words: Annotated[bool, option("--words", None, "Put pieces of words together.")] = False,
    set_: Annotated[list[str] | None, option("--set", "NAME=VALUE", "Any other option of the view.")] = None,
    target: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The translation to look at, else the model writes one.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="More inputs, or the name of a set; the first, if no text is given."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(min=1, metavar="COUNT", help="How many of them are read; else 200, and all of them for .jsonl."),
    ] = None,
    out: Annotated[
        Path | None, option("--out -o", "FILE", "Write it: .html .md .txt .svg .png .json; .jsonl for all of --data.")
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the numbers as JSON.")] = False,
    whole: Annotated[bool, option("--whole", None, "JSON with every number, however many there are.")] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Look inside a model: attention, gates, gradients, filters, attributions, and whether to believe them."""
    named = {"layer": layer, "head": head, "row": row, "side": side, "answer": answer, "against": against}
    named |= {"at": at, "method": method, "words": "yes" if words else None}
    asked = view_settings(set_ or (), [(name, value) for name, value in named.items() if value is not None])
    if view is None and (asked or out is not None):
        raise ConfigError(f"{'--out' if out else next(iter(asked))} belongs to a view", fix="name one: --view NAME")
    if target is not None and not target.strip():
        raise ConfigError("--target is empty", fix="give the translation to look at, or leave it out")
    if whole and not (view is not None and (json or (out is not None and out.suffix == ".json"))):
        raise ConfigError("--whole belongs to the JSON of a view", fix="--view NAME --json, or --out FILE.json")
    if view is None:
        options: dict[str, Any] = {}
    else:  # wrong ones are told before a model is read
        from seqloom.inspect.inspector import LOOKS

        if view not in LOOKS:
            raise ConfigError(f"there is no view '{view}'", fix=did_you_mean(view, LOOKS))
        options = typed(view, LOOKS[view].function, asked)
    require_readable(given)
    _require(view, texts or [], data, out)
    loaded = load_on(model, device)
    plain = data is None or _is_set(data)
    how = ReadingConfig(**said(ReadingConfig, given)) if plain else reading_of(loaded, str(data), given)
    rows = InspectedRows(loaded, data, how, given, most)
    if out is not None and out.suffix == LINES:
        from seqloom.inspect.attribution.attribution import attribute_file

        with rows, work_bar() as show:  # a line for each input of the file
            count = attribute_file(loaded.subject, rows, out, total=rows.count(), show=show, **options)
        return typer.echo(f"{counted(count, 'row')} written to {out}", err=True)
    with work_bar() as show:
        with rows:
            first, others = _given(loaded, texts or [], islice(rows, most or MOST))
            inspection = loaded.inspect(first, target=target, among=others, show=show)
        found = None if view is None else inspection.view(view, **options)
    return _list(inspection, json) if found is None else _show(found, out, json, whole=whole)


def _require(view: str | None, texts: list[str], data: Path | None, out: Path | None) -> None:
    if not texts and data is None:
        raise ConfigError("there is nothing to read", fix="give a text, or a file with --data FILE")
    if out is None:
        return
    from seqloom.inspect.view import WRITERS

    by_lines = view == EXPORTED and data is not None and not texts
    if out.suffix == LINES and not by_lines:
        raise ConfigError(
            f"{out.name} would have a line for each row of a file, and that is asked for otherwise",
            fix=f"seqloom inspect MODEL --data FILE --view {EXPORTED} --out {out.name}",
        )
    if out.suffix not in (*WRITERS, LINES):
        endings = [*WRITERS, *([LINES] if by_lines else [])]
        raise ConfigError(f"a view is not written as '{out.name}'", fix=f"end it in {', '.join(endings)}")
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent}", fix="make it first")


def _is_set(path: Path) -> bool:
    """Whether a name is that of a known set, and of no file."""
    return not path.exists() and str(path).isidentifier()


class InspectedRows:
    """The inputs of a file or a set as `inspect` takes them; what is wrong is told at the end of the `with`."""

    def __init__(
        self, loaded: "LoadedModel", path: Path | None, how: ReadingConfig, given: Given, most: int | None
    ) -> None:
        self.loaded, self.path, self.how, self.given, self.most = loaded, path, how, given, most
        self.ledger = Ledger(with_flags(loaded.bad_rows, given))

    def __iter__(self) -> Iterator[Any]:
        if self.path is None:
            return
        kind = self.loaded.task.asked.schema.input
        examples = self._of_set(str(self.path)) if _is_set(self.path) else self._of_file(self.path)
        for example in islice(examples, self.most):
            yield kind.plain(example.input)

    def _of_file(self, path: Path) -> "Iterator[Example]":
        from seqloom.data.inputs import InputColumns, read_inputs

        named, sequence = tuple(self.given.get("input", ())), self.given.get("sequence")
        columns = InputColumns(named, self.loaded.columns, sequence, self.loaded.sequence)
        kind = self.loaded.task.asked.schema.input
        return read_inputs(path, kind, self.ledger, columns=columns, reading=self.how)

    def _of_set(self, name: str) -> "Iterator[Example]":
        """The rows of the dev part of a known set, as `evaluate` finds them; the test part stays shut."""
        from seqloom.data.check import data_config
        from seqloom.data.dataset import open_data
        from seqloom.data.sources import resolve
        from seqloom.inference.evaluation import narrowed

        source = narrowed(resolve(data_config((name,), {})), "dev")
        opened = open_data(source.config, self.ledger, (source.part,))
        reads = self.loaded.task.asked.schema.input, self.loaded.meaning.schema.input
        if opened.schema.input not in reads:
            raise ConfigError(
                f"the set '{name}' holds {opened.schema.input.wanted}, and the model reads {reads[0].wanted}",
                fix="name another set, or a file; `seqloom data list` has the sets",
            )
        return (example for _, example in opened.rows(self.ledger))

    def count(self) -> int:
        """How many inputs there are; what is bad among them is refused now, before work that takes long."""
        if self.path is None or self.path.is_fifo():
            return 0  # nobody knows: what is read once is gone
        again = InspectedRows(self.loaded, self.path, self.how, self.given, self.most)
        found = sum(1 for _ in again)
        again.ledger.close()
        return found

    def __enter__(self) -> "InspectedRows":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.ledger.close()
            tell_warnings(self.ledger)
            if self.ledger.skipped:
                why = "" if "bad_rows" in self.given else ", as in training"
                typer.echo(f"{counted(self.ledger.skipped, 'bad row')} skipped{why}", err=True)


def _given(loaded: "LoadedModel", texts: list[str], rows: Iterator[Any]) -> tuple[Any, list[Any]]:
    """What is looked at, and what it is looked at among."""
    kind = loaded.task.asked.schema.input
    if not texts:
        found = list(rows)
        if not found:
            raise ConfigError("the file has no input", fix="give a text")
        return found[0], found[1:]
    if not kind.reads_tokens:
        raise ConfigError(f"the model reads {kind}, and a text is none", fix="give a file of them: --data FILE")
    _require_count(loaded, texts)
    others = list(rows)
    return kind.typed(texts), others


def _require_count(loaded: "LoadedModel", texts: list[str]) -> None:
    """Refuse more or fewer texts than an input has: a text whose quotes were forgotten is several."""
    from seqloom.inspect.requirements import texts_read

    counts, joined = texts_read(loaded.subject), loaded.task.asked.schema.input.in_words
    if not counts or len(texts) in counts or joined:
        return
    reads = " or ".join(("no", "one", "two")[count] for count in counts)
    quoted = f'put each text in quotes: "{escaped(" ".join(texts))}"' if max(counts) == 1 else "put each in quotes"
    translates = loaded.task.meaning.schema.target.is_text and len(texts) == 2
    raise ConfigError(
        f"the model reads {reads} {'text' if max(counts) == 1 else 'texts'}, and {len(texts)} are given",
        fix=f'the translation to look at is --target "{escaped(texts[1])}"; else {quoted}' if translates else quoted,
    )


def _list(inspection: "Inspection", json: bool) -> None:
    """Which views there are, and why others are not."""
    from seqloom.inspect.inspector import LOOKS
    from seqloom.report.document import Document, Heading, TableBlock

    here = [name for name, look in LOOKS.items() if not only_in_python(look.function)]
    there = {name: said for name, said in inspection.views().items() if name in here}
    missing, screen = inspection.missing(), Screen()
    if json:
        return screen.say_json({"views": there, "missing": missing})
    tables = [TableBlock((), list(there.items())), Heading("and not:"), TableBlock((), list(missing.items()))]
    return screen.show(Document(inspection.told(), tables), WIDEST)


def _show(view: "View", out: Path | None, json: bool, *, whole: bool) -> None:
    screen = Screen()
    if out is not None:
        view.save(out, whole=whole and out.suffix == ".json")
    if json:
        return screen.say_json(view.to_json(whole=whole))
    if out is None:
        return screen.show(view, WIDEST)
    screen.say(*map(visible, view.sentences()))
    return typer.echo(f"the view is written to {out}", err=True)


BETWEEN, LIST = ":", ","  # of a span from start to stop, and of several values
YES, NO = ("yes", "true"), ("no", "false")


class Option(NamedTuple):
    """One option of a view."""

    kinds: tuple[Any, ...]  # types that its value may have
    needed: bool

    @property
    def said(self) -> str:
        """What its value is, in words."""
        return " or ".join(dict.fromkeys(WORDS[_plain(kind)] for kind in self.kinds))

    def value(self, name: str, text: str) -> Any:
        """The value that a text stands for; ConfigError, with the name of the option, for none."""
        kinds = [_plain(kind) for kind in self.kinds]
        if kinds[0] is str:
            return text
        for kind in sorted(kinds, key=list(WORDS).index):
            try:
                return READERS[kind](text)
            except ValueError:
                continue
        raise ConfigError(f"{name} is '{text}'", fix=f"give {self.said}")


def only_in_python(function: Callable[..., Any]) -> bool:
    """Whether a view needs what no text can say."""
    known = options_of(function)
    return any(name not in known for name, one in _parameters(function) if one.default is one.empty)


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Parameter]]:
    return list(signature(function).parameters.items())[2:]  # behind the subject and what is read


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """What a view can be told as text, by name; what only Python can give, such as a function, is left out."""
    hints, found = get_type_hints(function), {}
    for name, one in _parameters(function):
        hint = hints[name]
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        kinds = tuple(kind for kind in members if _plain(kind) in WORDS)
        if kinds:
            found[name] = Option(kinds, one.default is one.empty)
    return found


def typed(view: str, function: Callable[..., Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The options with the values that the view takes; ConfigError for what it does not take, or lacks."""
    known = options_of(function)
    if only_in_python(function):
        raise ConfigError(f"the view {view} needs what only Python can give", fix="seqloom.load(...).inspect(...)")
    for name in given:
        if name not in known:
            fix = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ConfigError(f"the view {view} takes no '{name}'", fix=fix)
    for name, one in known.items():
        if one.needed and name not in given:
            said = (function.__doc__ or "").partition("\n")[0]
            fix = f"--set {name}=VALUE, {one.said}; it shows: {said.rstrip('.')}"
            raise ConfigError(f"the view {view} needs '{name}'", fix=fix)
    return {name: known[name].value(name, text) for name, text in given.items()}


def view_settings(texts: Iterable[str], flags: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """What `--set NAME=VALUE` says, by name, behind what flags of their own say.

    >>> view_settings(["top_k=5", "word= left"])
    {'top_k': '5', 'word': ' left'}
    """
    found = dict(flags)
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.isidentifier():
            raise ConfigError(f"--set {text!r} is no setting", fix="write NAME=VALUE, such as top_k=5")
        if name in found:
            raise ConfigError(f"'{name}' is set twice", fix="leave one out")
        found[name] = value
    return found


def _plain(kind: Any) -> Any:
    """The type that says how a text is read: one of `WORDS`, or something else."""
    kind = str if kind is Any else kind
    return Sequence[str] if kind in (list[str], tuple[str, ...]) else kind


def _truth(text: str) -> bool:
    if text.lower() not in (*YES, *NO):
        raise ValueError(text)
    return text.lower() in YES


def _span(text: str) -> tuple[int, int]:
    start, _, stop = text.partition(BETWEEN)
    return int(start), int(stop)


# the narrowest first: what can be a number is one
WORDS: Mapping[Any, str] = {
    bool: "yes or no",
    int: "a number",
    float: "a number, such as 0.5",
    tuple[int, int]: "two numbers, START:STOP",
    Sequence[int]: "numbers with commas between them",
    Sequence[str]: "names with commas between them",
    str: "a text",
}
READERS: Mapping[Any, Callable[[str], Any]] = {
    bool: _truth,
    int: int,
    float: float,
    tuple[int, int]: _span,
    Sequence[int]: lambda text: [int(part) for part in text.split(LIST)],
    Sequence[str]: lambda text: text.split(LIST) if text else [],
    str: str,
}
