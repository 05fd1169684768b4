"""`seqloom label`: label rows one by one or many at a time; every decision is logged."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from seqloom.cli.inputs import embedder_of, require_readable, text_file_of
from seqloom.cli.options import TEXT_FILE, DeviceName, EmbeddingBatchTokens, Given, option, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.data import DataConfig
from seqloom.config.options import settings
from seqloom.data.problems import escaped
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.labeling import Labeling, LabelQuestion

MOST_SHOWN = 2_000  # characters of a text
HELP = "Enter: accept the suggestion; number or name: another label; +NAME: a new label; s: skip; u: undo; q: quit"


@takes(
    settings(DataConfig, "id"),
    TEXT_FILE,
    common=("out", "labels", "examples", "target", "model", "order", "accept_above", "undo", "export", "input"),
    examples=(
        "seqloom label texts.csv --labels good,bad --out labels.jsonl",
        "seqloom label texts.csv --out labels.jsonl --export labeled.csv",
    ),
)
def label(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The texts, one per row.")],
    out: Annotated[
        Path, option("--out -o", "LABELS", "File that stores your labels as JSON lines; give it again to resume.")
    ],
    labels: Annotated[
        str | None, option("--labels", "A,B,C", "The labels, separated by commas (default: those of --examples).")
    ] = None,
    examples: Annotated[
        Path | None, option("--examples", "FILE", "File of labeled rows to learn suggestions from (default: none).")
    ] = None,
    target: Annotated[
        str | None,
        option("--target", "COLUMN", "Label column of --examples (default: guessed from column names and content)."),
    ] = None,
    model: Annotated[
        Path | None,
        option(
            "--model",
            "MODEL",
            "Embedding model whose vectors the suggestions are based on (default: none, bag-of-words features).",
        ),
    ] = None,
    suggest: Annotated[
        Literal["head", "neighbors"],
        option(
            "--suggest",
            "NAME",
            "How to suggest labels: head, a linear classifier, or neighbors, the nearest labeled rows (default: head).",
        ),
    ] = "head",
    order: Annotated[
        Literal["active", "random"],
        option(
            "--order", "NAME", "Order of the rows: active, the least certain ones first, or random (default: active)."
        ),
    ] = "active",
    seed: Annotated[
        int,
        typer.Option(
            "--seed", min=0, metavar="NUMBER", help="Random seed of the order (default: 0).", show_default=False
        ),
    ] = 0,
    undo: Annotated[bool, option("--undo", None, "Undo the last action and exit (default: off).")] = False,
    accept_above: Annotated[
        float | None,
        option(
            "--accept-above", "NUMBER", "Accept all suggestions with at least this probability and exit (default: off)."
        ),
    ] = None,
    export: Annotated[
        Path | None, option("--export", "FILE", "Write the labeled rows to this file and exit (default: off).")
    ] = None,
    column: Annotated[str, option("--column", "NAME", "Label column of --export (default: label).")] = "label",
    *,
    given: Given,
    batch_tokens: EmbeddingBatchTokens = None,
    device: DeviceName = "auto",
) -> None:
    """Label the rows of a file, with suggestions. Run the same command again to resume."""
    from seqloom.search.decisions import Decisions, open_log
    from seqloom.search.documents import require_copy, write_copy
    from seqloom.search.labeling import BY, NONE, LabelingOptions, export_columns, read_examples, start_labeling

    require_readable(given)
    rows = text_file_of(file, model, given)
    _require_out(out, file, examples)
    if export is not None:
        require_copy(export, rows, (column, BY), out)
    if target is not None and examples is None:
        raise ConfigError("--target needs --examples", fix="add --examples FILE")
    names, unlabeled = _names(labels), rows.read()
    suggests = accept_above is not None or not (undo or export)
    if undo or suggests:
        with open_log(out, unlabeled.by_name) as decisions:
            if undo:
                action = decisions.undo()
                taken = 0 if action is None else len(action.rows)
                typer.echo(f"undone: {counted(taken, 'decision')}" if action is not None else "nothing to undo")
            if suggests:
                learned = NONE if examples is None else read_examples(rows._replace(path=examples, id=None), target)
                if not (names or learned.distinct_labels or decisions.labeled):
                    raise ConfigError("there are no labels to choose from", fix="name them: --labels good,bad")
                embedder = None if model is None else embedder_of(model, device, batch_tokens)
                how = LabelingOptions(suggest, order, seed)
                session = followed_work(
                    start_labeling(unlabeled, decisions, model=embedder, labels=names, examples=learned, options=how)
                )
                if accept_above is None:
                    _review(session)
                else:
                    accepted = counted(session.accept_above(accept_above), "suggestion")
                    typer.echo(f"{accepted} accepted; undo them with --undo")
    if export is not None:
        added, wanted = export_columns(Decisions(out, unlabeled.by_name), unlabeled.names, column)
        write_copy(export, rows, unlabeled.state, added, wanted)
        typer.echo(f"{counted(int(wanted.sum()), 'labeled row')} written to {export}")


def _require_out(out: Path, file: Path, examples: Path | None) -> None:
    """Raise ConfigError, before any work, for a log that is the data or the examples, or cannot be written."""
    from seqloom.search.documents import is_same

    if is_same(out, file):
        raise ConfigError(f"--out {out} is the input file", fix="give the label log another name")
    if examples is not None and is_same(out, examples):
        raise ConfigError(f"--out {out} is the file of --examples", fix="give the label log another name")
    if out.is_dir():
        raise ConfigError(f"--out {out} is a folder, and the label log is a file", fix=f"--out {out / 'labels.jsonl'}")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.parent} does not exist", fix="create it first")


def _names(labels: str | None) -> list[str]:
    """Parse --labels; ConfigError for an empty label, a repeated one, or one that is a command."""
    if labels is None:
        return []
    names = [name.strip() for name in labels.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"--labels {labels!r}", fix="give distinct names separated by commas, such as good,bad")
    if taken := [name for name in names if name in COMMANDS]:
        raise ConfigError(f"--labels {labels!r}: {taken[0]!r} is a command", fix="use a longer name")
    return names


class Chosen(NamedTuple):
    """An answer that names a label; new labels begin with a plus."""

    label: str
    new: bool = False


class Unknown(NamedTuple):
    """An answer that is neither a label nor a command."""

    typed: str


Answer = Chosen | Unknown | Literal["accept", "skip", "undo", "quit", "help"]
COMMANDS: dict[str, Answer] = {"": "accept", "s": "skip", "u": "undo", "q": "quit", "?": "help"}


def answer_of(typed: str, labels: list[str]) -> Answer:
    """Parse an answer: a label by name, a command, or a label by number (from 1) or unique prefix.

    >>> answer_of("2", ["good", "bad"]), answer_of("1", ["0", "1"]).label, answer_of("b", ["good", "bad"]).label
    (Chosen(label='bad', new=False), '1', 'bad')
    """
    word = typed.strip()
    if word in labels:
        return Chosen(word)
    if word in COMMANDS:
        return COMMANDS[word]
    if word.startswith("+") and word[1:].strip() not in COMMANDS:
        return Chosen(word[1:].strip(), new=True)
    if word.isdecimal() and not any(label.isdecimal() for label in labels):
        return Chosen(labels[int(word) - 1]) if 1 <= int(word) <= len(labels) else Unknown(word)
    begun = [label for label in labels if label.startswith(word)]
    return Chosen(begun[0]) if len(begun) == 1 else Unknown(word)


def _review(session: "Labeling") -> None:
    """Ask until every row is decided or the user quits."""
    asks, screen = sys.stdin.isatty(), Screen()
    screen.say(*session.given.notices)
    while (question := session.next()) is not None:
        _show(session, question, screen)
        if asks:
            typer.echo("> ", nl=False, err=True)
        typed = sys.stdin.readline()
        answer = answer_of(typed, session.labels)
        if typed and not asks:
            _require_meaning(typed, answer, session, question)
        if not typed or not _answered(session, question, answer, screen):
            break
    labeled = counted(len(session.decisions.labeled), "row")
    left = "none left" if question is None else f"{counted(len(session.free), 'row')} left"
    where = f"saved in {session.decisions.path}" if session.decisions.last else "nothing to save"
    screen.say(f"{labeled} labeled, {left}; {where}")


def _require_meaning(typed: str, answer: Answer, session: "Labeling", question: "LabelQuestion") -> None:
    """Raise ConfigError for an invalid answer from a file, because the next line would go to the wrong row."""
    if not isinstance(answer, Unknown) and (answer != "accept" or question.suggested is not None):
        return
    name, labels = session.given.names[question.row], ", ".join(session.labels)
    raise ConfigError(
        f"the answer {typed.strip()!r} to row {name} is not a label; earlier answers are saved",
        fix=f"the labels are {labels}; +NAME makes a new one",
    )


def _show(session: "Labeling", question: "LabelQuestion", screen: Screen) -> None:
    """Show a row, its suggestion and the labels."""
    done, left = len(session.decisions.labeled), len(session.free)
    sure = "" if question.suggested is None else f" - {escaped(question.suggested)}? ({question.confidence:.2f})"
    name = escaped(session.given.names[question.row])
    numbered = not any(one.isdecimal() for one in session.labels)
    choices = [f"{number} {escaped(one)}" if numbered else escaped(one) for number, one in enumerate(session.labels, 1)]
    text = question.text if len(question.text) <= MOST_SHOWN else f"{question.text[:MOST_SHOWN]}..."
    head = f"row {name} - {done:,} labeled, {left:,} left{sure}"
    commands = ", ".join(f"{word} {does}" for word, does in COMMANDS.items() if word and word not in session.labels)
    screen.say(head, f"  {escaped(text)}", f"  [{', '.join(choices)}; {commands}]")


def _answered(session: "Labeling", question: "LabelQuestion", answer: Answer, screen: Screen) -> bool:
    """Act on an answer; return whether to continue."""
    match answer:
        case Chosen(label, new):
            if new and label not in session.labels:
                session.labels.append(label)
            session.label(question, label)
        case "accept" if question.suggested is not None:
            session.label(question, question.suggested)
        case "skip":
            session.skip(question)
        case "undo":
            if session.undo() is None:
                screen.print("nothing to undo", markup=False)
        case "quit":
            return False
        case Unknown(typed):
            screen.print(f"'{escaped(typed)}' is not a label or a unique prefix of one; type ? for help", markup=False)
        case "accept":
            screen.print("there is no suggestion yet: type a label, or ? for help", markup=False)
        case _:
            screen.say(HELP)
    return True
