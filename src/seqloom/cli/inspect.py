"""`seqloom inspect`: one view of a model and an input, or the list of views.

    --layer 2   --token cat   --set top_k=5   --set window=100:200   --set views=attention,gates

The options of a view are read from the signature of its function. An option of type `int | str` takes a number where
possible: `--token 3` is the fourth token. An option of type `str | int` always takes a name: `--answer 3` is the label
"3" (a star rating), not the fourth label.
"""

import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter, signature
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import typer

from seqloom.cli.inputs import Model, load_on, reading_of, require_readable
from seqloom.cli.options import BAD_ROWS, FILE, SEQUENCE, DeviceName, Given, option, takes
from seqloom.cli.predictions import print_warnings
from seqloom.cli.terminal import Screen, work_bar
from seqloom.config.data import ReadingConfig
from seqloom.config.options import said, with_flags
from seqloom.data.problems import Ledger, escaped
from seqloom.errors import ConfigError, did_you_mean
from seqloom.report.labels import visible
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.data.schema import Example
    from seqloom.inference.as_trained import FileReading
    from seqloom.inference.model import LoadedModel
    from seqloom.inspect.inspector import Inspection
    from seqloom.inspect.view import View

FLAGS = ("layer", "head", "token", "side", "answer", "against", "at", "method", "words")  # options with a flag
VIEW = "View"  # the group of its options in the help
WIDEST = 160  # columns
MOST = 200  # inputs of a file that views of data use
MOST_UNKNOWN = 5  # words that are named
LINES = ".jsonl"  # one JSON line per row
EXPORTED = "attribution"  # the view that can be exported as JSON lines


@takes(
    SEQUENCE,
    BAD_ROWS,
    FILE,
    common=("view", "layer", "head", "token", "answer", "method", "data", "limit", "out", "json"),
    examples=(
        'seqloom inspect runs/reviews-classify-cnn "a fine film" --view attribution',
        'seqloom inspect runs/en-fr-translate-transformer "two dogs run" --view attention --out attention.html',
        'seqloom inspect runs/rnn "a fine film" --view gradients --compare runs/lstm --out gradients.png',
    ),
)
def inspect(
    model: Model,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Input of the model; two texts for a text pair model (default: the rows of --data)."
        ),
    ] = None,
    view: Annotated[
        str | None,
        option(
            "--view",
            "NAME",
            "View to show, such as attention, gates, gradients or attribution (default: list the views of this model).",
        ),
    ] = None,
    layer: Annotated[
        str | None,
        option(
            "--layer",
            "LAYER",
            "Layer, by its number from 0 or its module name, such as encoder.layers.0 (default: depends on the view).",
            VIEW,
        ),
    ] = None,
    head: Annotated[str | None, option("--head", "NUMBER", "Attention head (default: all heads).", VIEW)] = None,
    token: Annotated[
        str | None, option("--token", "TOKEN", "Token, by its number from 0 or its text (default: all).", VIEW)
    ] = None,
    side: Annotated[
        str | None,
        option(
            "--side",
            "NAME",
            "Side: source or target of a translator, first or second of a text pair (default: depends on the view).",
            VIEW,
        ),
    ] = None,
    answer: Annotated[
        str | None,
        option("--answer", "NAME", "Label, tag or token to explain (default: the model's prediction).", VIEW),
    ] = None,
    against: Annotated[
        str | None,
        option(
            "--against",
            "NAME",
            "Explain why the model prefers --answer to this label, tag or token (default: off).",
            VIEW,
        ),
    ] = None,
    at: Annotated[
        str | None,
        option(
            "--at", "TOKEN", "Position to explain, for models that predict tags or text (default: the first).", VIEW
        ),
    ] = None,
    method: Annotated[
        str | None,
        option(
            "--method",
            "NAME",
            "Attribution method: integrated_gradients, gradient_x_input, gradient, occlusion, leave_one_out, rollout "
            "(default: integrated_gradients).",
            VIEW,
        ),
    ] = None,
    words: Annotated[
        bool, option("--words", None, "Show one value per word instead of one per subword (default: off).", VIEW)
    ] = False,
    set_: Annotated[
        list[str] | None,
        option(
            "--set",
            "NAME=VALUE",
            "Set another option of the view, such as top_k=5; an unknown NAME lists the options; can be repeated "
            "(default: none).",
            VIEW,
        ),
    ] = None,
    target: Annotated[
        str | None,
        option(
            "--target",
            "TEXT",
            "Inspect this translation instead of the model's own (default: the model's translation).",
            VIEW,
        ),
    ] = None,
    compare: Annotated[
        list[Path] | None,
        option(
            "--compare", "RUN", "Compare with this run; for --view gradients; can be repeated (default: none).", VIEW
        ),
    ] = None,
    data: Annotated[
        Path | None,
        option("--data", "FILE", "File, or name of a dataset, for views that summarize many examples (default: none)."),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            min=1,
            metavar="COUNT",
            help="Number of rows of --data to use (default: 200, or all when --out is .jsonl).",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out -o",
            "FILE",
            "Write the view to this .html, .md, .txt, .svg, .png or .json file, or the attributions of all rows of "
            "--data to a .jsonl file (default: print).",
        ),
    ] = None,
    json: Annotated[bool, option("--json", None, "Print the numbers as JSON (default: text).")] = False,
    full: Annotated[
        bool, option("--full", None, "Write all numbers to the JSON (default: large arrays are shortened).")
    ] = False,
    *,
    given: Given,
    device: DeviceName = "auto",
) -> None:
    """Look inside a model: attention, gates, gradients, filters, attributions, and faithfulness tests."""
    named = {"layer": layer, "head": head, "token": token, "side": side, "answer": answer, "against": against}
    named |= {"at": at, "method": method, "words": "yes" if words else None}
    asked = view_settings(set_ or (), [(name, value) for name, value in named.items() if value is not None])
    for_view = [*(["--out"] if out is not None else []), *(["--compare"] if compare else []), *asked]
    if view is None and for_view:
        raise ConfigError(f"{for_view[0]} needs a view", fix="add --view NAME")
    if target is not None and not target.strip():
        raise ConfigError("--target is empty", fix="give the translation to inspect, or leave it out")
    if full and not (view is not None and (json or (out is not None and out.suffix == ".json"))):
        raise ConfigError(
            "--full is only for the JSON of a view", fix="add --view NAME --json, or --view NAME --out FILE.json"
        )
    if view is None:
        options: dict[str, Any] = {}
    else:  # report errors before the model is loaded
        from seqloom.inspect.inspector import VIEWS

        if view not in VIEWS:
            raise ConfigError(f"there is no view '{view}'", fix=did_you_mean(view, command_views()))
        options = typed(view, _comparing(view) if compare else VIEWS[view].function, asked)
    require_readable(given)
    _require(view, texts or [], data, out)
    from seqloom.inference.as_trained import FileReading

    loaded = load_on(model, device)
    plain = data is None or _is_set(data)
    how = FileReading(ReadingConfig(**said(ReadingConfig, given))) if plain else reading_of(loaded, str(data), given)
    rows = InspectedRows(loaded, data, how, given, limit)
    if out is not None and out.suffix == LINES:
        from seqloom.inspect.attribution.attribution import attribute_file

        with rows, work_bar() as show:  # one JSON line per input
            count = attribute_file(loaded.subject, rows, out, total=rows.count(), show=show, **options)
        return typer.echo(f"{counted(count, 'row')} written to {out}", err=True)
    with work_bar() as show:
        with rows:
            first, others = _given(loaded, texts or [], islice(rows, limit or MOST))
            if compare and view is not None:
                runs = _names([model, *compare]).items()
                subjects = {name: (loaded if run == model else load_on(run, device)).subject for name, run in runs}
                return _show(_comparing(view)(subjects, first, **{"target": target, **options}), out, json, full=full)
            inspection = loaded.inspect(first, target=target, data=others, show=show)
        _say_unknown(inspection)
        found = None if view is None else inspection.view(view, **options)
    return _list(inspection, json) if found is None else _show(found, out, json, full=full)


def _comparing(view: str) -> Callable[..., "View"]:
    """Return the function that shows a view of several models in one picture; raise ConfigError if there is none."""
    from seqloom.inspect.inspector import VIEWS

    if (found := VIEWS[view].compared) is None:
        able = " and ".join(name for name, one in VIEWS.items() if one.compared is not None)
        raise ConfigError(f"--compare is only for the view {able}", fix=f"add --view {able}")
    return found


def _names(runs: Sequence[Path]) -> dict[str, Path]:
    """Return the runs by the names of their folders, or by their paths if two folders have the same name."""
    short = {run.name: run for run in runs}
    return short if len(short) == len(runs) else {str(run): run for run in runs}


def _require(view: str | None, texts: list[str], data: Path | None, out: Path | None) -> None:
    if not texts and data is None:
        raise ConfigError("there is no input", fix="give a text, or a file with --data FILE")
    if out is None:
        return
    from seqloom.inspect.view import WRITERS

    by_lines = view == EXPORTED and data is not None and not texts
    if out.suffix == LINES and not by_lines:
        raise ConfigError(
            f"{out.name} is for the attributions of a file, one line for each row",
            fix=f"seqloom inspect MODEL --data FILE --view {EXPORTED} --out {out.name}",
        )
    if out.suffix not in (*WRITERS, LINES):
        endings = [*WRITERS, *([LINES] if by_lines else [])]
        raise ConfigError(
            f"a view cannot be written as '{out.name}'", fix=f"use a file that ends in {', '.join(endings)}"
        )
    if not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent}", fix="create it first")


def _is_set(path: Path) -> bool:
    """Whether a name is a built-in dataset and not a file."""
    return not path.exists() and str(path).isidentifier()


class InspectedRows:
    """The inputs of a file or a dataset; warnings are printed at the end of the `with`."""

    def __init__(
        self, loaded: "LoadedModel", path: Path | None, how: "FileReading", given: Given, most: int | None
    ) -> None:
        self.loaded, self.path, self.how, self.given, self.most = loaded, path, how, given, most
        self.ledger = Ledger(with_flags(loaded.bad_rows, given))

    def __iter__(self) -> Iterator[Any]:
        if self.path is None:
            return
        kind = self.loaded.task.input_spec.schema.input
        examples = self._of_set(str(self.path)) if _is_set(self.path) else self._of_file(self.path)
        for example in islice(examples, self.most):
            yield kind.plain(example.input)

    def _of_file(self, path: Path) -> "Iterator[Example]":
        from seqloom.data.inputs import InputColumns, read_inputs

        named, sequence = tuple(self.given.get("input", ())), self.given.get("sequence")
        columns = InputColumns(named, self.loaded.columns, sequence, self.loaded.sequence, self.how.as_trained)
        kind = self.loaded.task.input_spec.schema.input
        return read_inputs(path, kind, self.ledger, columns=columns, reading=self.how.config)

    def _of_set(self, name: str) -> "Iterator[Example]":
        """Yield the rows of the dev set of a built-in dataset; the test set is never read."""
        from seqloom.data.check import data_config
        from seqloom.data.dataset import open_data
        from seqloom.data.sources import resolve
        from seqloom.inference.evaluation import narrowed

        source = narrowed(resolve(data_config((name,), {})), "dev")
        opened = open_data(source.config, self.ledger, (source.split,))
        reads = self.loaded.task.input_spec.schema.input, self.loaded.spec.schema.input
        if opened.schema.input not in reads:
            raise ConfigError(
                f"dataset '{name}' has {opened.schema.input.noun}, but the model reads {reads[0].noun}",
                fix="choose another dataset or a file; `seqloom data list` lists the datasets",
            )
        return (example for _, example in opened.rows(self.ledger))

    def count(self) -> int:
        """Return the number of inputs; bad rows raise an error here, before the slow work."""
        if self.path is None or self.path.is_fifo():
            return 0  # unknown: a pipe can be read only once
        again = InspectedRows(self.loaded, self.path, self.how, self.given, self.most)
        found = sum(1 for _ in again)
        again.ledger.close()
        return found

    def __enter__(self) -> "InspectedRows":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.ledger.close()
            print_warnings(self.ledger)
            if self.ledger.skipped:
                why = "" if "bad_rows" in self.given else ", as in training"
                typer.echo(f"{counted(self.ledger.skipped, 'bad row')} skipped{why}", err=True)


def _given(loaded: "LoadedModel", texts: list[str], rows: Iterator[Any]) -> tuple[Any, list[Any]]:
    """Return the input, and the other inputs of --data."""
    kind = loaded.task.input_spec.schema.input
    if not texts:
        found = list(rows)
        if not found:
            raise ConfigError("the file has no input", fix="give a text")
        return found[0], found[1:]
    if not kind.reads_tokens:
        raise ConfigError(f"the model reads {kind}, not text", fix="give a file of them: --data FILE")
    _require_count(loaded, texts)
    others = list(rows)
    return kind.typed(texts), others


def _require_count(loaded: "LoadedModel", texts: list[str]) -> None:
    """Raise ConfigError for a wrong number of texts: a text without quotes becomes several."""
    from seqloom.inspect.requirements import texts_read

    counts, joined = texts_read(loaded.subject), loaded.task.input_spec.schema.input.in_words
    if not counts or len(texts) in counts or joined:
        return
    reads = " or ".join(("no", "one", "two")[count] for count in counts)
    quoted = f'put each text in quotes: "{escaped(" ".join(texts))}"' if max(counts) == 1 else "put each in quotes"
    translates = loaded.task.spec.schema.target.is_text and len(texts) == 2
    raise ConfigError(
        f"the model reads {reads} {'text' if max(counts) == 1 else 'texts'}, but {len(texts)} were given",
        fix=f'give the translation with --target "{escaped(texts[1])}"; otherwise {quoted}' if translates else quoted,
    )


def _say_unknown(inspection: "Inspection") -> None:
    """Name the first words of the input that the vocabulary lacks, on standard error."""
    tokens = [token for side in inspection.reading.sides for token in side.tokens if token.is_unknown]
    if words := list(dict.fromkeys(visible(token.text) for token in tokens)):
        more = f" and {len(words) - MOST_UNKNOWN:,} more" if len(words) > MOST_UNKNOWN else ""
        lacks = ", ".join(f"'{word}'" for word in words[:MOST_UNKNOWN]) + more
        typer.echo(f"not in the vocabulary of the model: {lacks}", err=True)


def _list(inspection: "Inspection", json: bool) -> None:
    """Print the views, and the unavailable ones with the reasons."""
    from seqloom.report.document import Document, Heading, TableBlock

    here = command_views()
    there = {name: question for name, question in inspection.views().items() if name in here}
    missing, screen = inspection.missing(), Screen()
    if json:
        return screen.say_json({"views": there, "missing": missing})
    tables = [TableBlock((), list(there.items())), Heading("Not available:"), TableBlock((), list(missing.items()))]
    return screen.show(Document(inspection.told(), tables), WIDEST)


def _show(view: "View", out: Path | None, json: bool, *, full: bool) -> None:
    screen = Screen()
    if out is not None:
        view.save(out, full=full and out.suffix == ".json")
    if json:
        return screen.say_json(view.to_json(full=full))
    if out is None:
        return screen.show(view, WIDEST)
    screen.say(*map(visible, view.sentences()))
    return typer.echo(f"View written to {out}", err=True)


BETWEEN, LIST = ":", ","  # separate start and stop, and several values
YES, NO = ("yes", "true"), ("no", "false")


class Option(NamedTuple):
    """One option of a view."""

    kinds: tuple[Any, ...]  # types that its value may have
    needed: bool

    @property
    def said(self) -> str:
        """The type of its value in words."""
        return " or ".join(dict.fromkeys(WORDS[_plain(kind)] for kind in self.kinds))

    def value(self, name: str, text: str) -> Any:
        """Convert a text to a value; raise ConfigError if it has a wrong type."""
        kinds = [_plain(kind) for kind in self.kinds]
        if kinds[0] is str:
            return text
        for kind in sorted(kinds, key=list(WORDS).index):
            try:
                return READERS[kind](text)
            except ValueError:
                continue
        raise ConfigError(f"{name} is '{text}'", fix=f"give {self.said}")


def command_views() -> list[str]:
    """Return the views that work on the command line: all but those with a value that only Python can pass."""
    from seqloom.inspect.inspector import VIEWS

    return [name for name, view in VIEWS.items() if not only_in_python(view.function)]


def only_in_python(function: Callable[..., Any]) -> bool:
    """Whether a view has a required option that cannot be given as text."""
    known = options_of(function)
    return any(name not in known for name, one in _parameters(function) if one.default is one.empty)


def _parameters(function: Callable[..., Any]) -> list[tuple[str, Parameter]]:
    return list(signature(function).parameters.items())[2:]  # after the subject and the reading


def options_of(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a view that can be given as text, by name; others, such as functions, are left out."""
    hints, found = get_type_hints(function), {}
    for name, one in _parameters(function):
        hint = hints[name]
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        kinds = tuple(kind for kind in members if _plain(kind) in WORDS)
        if kinds:
            found[name] = Option(kinds, one.default is one.empty)
    return found


def typed(view: str, function: Callable[..., Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the options with typed values; raise ConfigError for an unknown or missing one."""
    known = options_of(function)
    if only_in_python(function):
        raise ConfigError(f"view {view} works only in Python", fix=f"use seqloom.load(...).inspect(...).{view}(...)")
    for name in given:
        if name not in known:
            fix = f"its options are {', '.join(known)}" if known else "it has no options"
            raise ConfigError(f"view {view} has no option '{name}'", fix=fix)
    missing = [name for name, one in known.items() if one.needed and name not in given]
    if missing:
        shows = (function.__doc__ or "").partition("\n")[0].rstrip(".")
        asked = " ".join(f"--{name} VALUE" if name in FLAGS else f"--set {name}=VALUE" for name in missing)
        raise ConfigError(f"view {view} needs {' and '.join(missing)}", fix=f"add {asked} ({shows})")
    return {name: known[name].value(name, text) for name, text in given.items()}


def view_settings(texts: Iterable[str], flags: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the options given with `--set NAME=VALUE`, after those given with their own flags.

    >>> view_settings(["top_k=5", "word= left"])
    {'top_k': '5', 'word': ' left'}
    """
    found = dict(flags)
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not name.isidentifier():
            raise ConfigError(f"--set {text!r} is not NAME=VALUE", fix="write NAME=VALUE, such as top_k=5")
        if name in found:
            raise ConfigError(f"'{name}' is set twice", fix="leave one out")
        found[name] = value
    return found


def _plain(kind: Any) -> Any:
    """Return the type that decides how a text is parsed: one of `WORDS`, or another."""
    kind = str if kind is Any else kind
    return Sequence[str] if kind in (list[str], tuple[str, ...]) else kind


def _truth(text: str) -> bool:
    if text.lower() not in (*YES, *NO):
        raise ValueError(text)
    return text.lower() in YES


def _span(text: str) -> tuple[int, int]:
    start, _, stop = text.partition(BETWEEN)
    return int(start), int(stop)


# narrowest first: a text that can be a number is one
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
