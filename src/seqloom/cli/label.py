"""`seqloom label`: rows get labels, one question after the other or many at a time; all of it is logged."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from seqloom.cli.inputs import embedder_of
from seqloom.cli.options import FILE, Budget, DeviceName, Given, option, takes
from seqloom.cli.terminal import Screen, followed_work
from seqloom.config.data import DataConfig, ReadingConfig
from seqloom.config.options import said, settings
from seqloom.data.problems import escaped
from seqloom.errors import ConfigError
from seqloom.report.numbers import counted

if TYPE_CHECKING:
    from seqloom.search.labeling import Labelling, LabelQuestion

MOST_SHOWN = 2_000  # characters of a text
HELP = "Enter accepts the suggestion; a number or a name is another label, +NAME a new one; s skips, u undoes, q ends"


@takes(settings(DataConfig, "id"), FILE)
def label(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The texts, one in each row.")],
    out: Annotated[Path, option("--out -o", "LABELS", "The log of all decisions; it grows.")],
    labels: Annotated[str | None, option("--labels", "A,B,C", "The labels, with commas.")] = None,
    examples: Annotated[Path | None, option("--examples", "FILE", "FileRows that have a label, to learn from.")] = None,
    target: Annotated[str | None, option("--target", "NAME", "The column of labels in --examples.")] = None,
    model: Annotated[Path | None, option("--model", "MODEL", "A model of vectors; without one, words decide.")] = None,
    suggest: Annotated[
        Literal["head", "neighbours"], option("--suggest", None, "A fitted head, or the nearest examples.")
    ] = "head",
    order: Annotated[
        Literal["active", "random"], option("--order", None, "The most doubtful rows first, or any.")
    ] = "active",
    seed: Annotated[int, typer.Option("--seed", min=0, metavar="NUMBER", help="Of the order.")] = 0,
    undo: Annotated[bool, option("--undo", None, "Take the last action back, and ask nothing.")] = False,
    accept_above: Annotated[
        float | None, option("--accept-above", "X", "Accept all suggestions this sure, and ask nothing.")
    ] = None,
    export: Annotated[Path | None, option("--export", "FILE", "Write the labelled rows, and ask nothing.")] = None,
    column: Annotated[str, option("--column", "NAME", "What the column of labels is called in --export.")] = "label",
    *,
    given: Given,
    budget: Budget = None,
    device: DeviceName = "auto",
) -> None:
    """Label the rows of a file; the same command goes on where it was stopped."""
    from seqloom.search.decisions import Decisions, writing
    from seqloom.search.documents import FileRows, require_copy, write_copy
    from seqloom.search.labeling import BY, NONE, How, exported, opening, read_examples

    reading = ReadingConfig(**said(ReadingConfig, given))
    rows = FileRows(file, tuple(given.get("input", ())), given.get("id"), reading=reading)
    _require_out(out, file, examples)
    if export is not None:
        require_copy(export, rows, (column, BY), out)
    if target is not None and examples is None:
        raise ConfigError("--target names a column of --examples", fix="give --examples FILE too")
    names, unlabelled = _names(labels), rows.read()
    suggests = accept_above is not None or not (undo or export)
    if undo or suggests:
        with writing(out, unlabelled.by_name) as decisions:
            if undo:
                action = decisions.undo()
                taken = 0 if action is None else len(action.rows)
                typer.echo(f"taken back: {counted(taken, 'decision')}" if action is not None else "nothing to undo")
            if suggests:
                learnt = NONE if examples is None else read_examples(rows._replace(path=examples, id=None), target)
                if not (names or learnt.labels or decisions.labelled):
                    raise ConfigError("there is no label to give", fix="name some: --labels good,bad")
                embedder = None if model is None else embedder_of(model, device, budget)
                how = How(suggest, order, seed)
                session = followed_work(
                    opening(unlabelled, decisions, model=embedder, labels=names, examples=learnt, how=how)
                )
                if accept_above is None:
                    _review(session)
                else:
                    accepted = counted(session.accept_above(accept_above), "suggestion")
                    typer.echo(f"{accepted} accepted; seqloom label ... --undo takes them back")
    if export is not None:
        added, wanted = exported(Decisions(out, unlabelled.by_name), unlabelled.names, column)
        write_copy(export, rows, unlabelled.state, added, wanted)
        typer.echo(f"{counted(int(wanted.sum()), 'labelled row')} written to {export}")


def _require_out(out: Path, file: Path, examples: Path | None) -> None:
    """Refuse, before any work, a log that would be the data or the examples, or that nobody could write."""
    from seqloom.search.documents import is_same

    if is_same(out, file):
        raise ConfigError(f"--out {out} is the file itself", fix="give the log of labels another name")
    if examples is not None and is_same(out, examples):
        raise ConfigError(f"--out {out} is the file of --examples", fix="give the log of labels another name")
    if out.is_dir():
        raise ConfigError(
            f"--out {out} is a folder, and the log of labels is a file", fix=f"--out {out / 'labels.jsonl'}"
        )
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}", fix="make the folder first")


def _names(labels: str | None) -> list[str]:
    """The labels that were named; ConfigError for an empty one, one named twice, or one that is another answer."""
    if labels is None:
        return []
    names = [name.strip() for name in labels.split(",")]
    if not all(names) or len(set(names)) < len(names):
        raise ConfigError(f"--labels {labels!r}", fix="give different names with commas between, as in good,bad")
    if taken := [name for name in names if name in COMMANDS]:
        raise ConfigError(f"--labels {labels!r}: the answer {taken[0]!r} has a meaning", fix="give a longer name")
    return names


class Chosen(NamedTuple):
    """The answer that names a label; new ones begin with a plus."""

    label: str
    new: bool = False


class Unknown(NamedTuple):
    """An answer that means nothing."""

    typed: str


Answer = Chosen | Unknown | Literal["accept", "skip", "undo", "end", "help"]
COMMANDS: dict[str, Answer] = {"": "accept", "s": "skip", "u": "undo", "q": "end", "?": "help"}


def answer_of(typed: str, labels: list[str]) -> Answer:
    """What an answer means: a label by its name, a command, a label by its number from 1 or by its beginning.

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


def _review(session: "Labelling") -> None:
    """Ask until all rows are decided, or until somebody has had enough."""
    asks, screen = sys.stdin.isatty(), Screen()
    screen.say(*session.given.gaps)
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
    labelled = counted(len(session.decisions.labelled), "row")
    left = "no row is left" if question is None else f"{counted(len(session.free), 'row')} left"
    where = f"all of it is in {session.decisions.path}" if session.decisions.last else "nothing was decided"
    screen.say(f"{labelled} labelled, {left}; {where}")


def _require_meaning(typed: str, answer: Answer, session: "Labelling", question: "LabelQuestion") -> None:
    """Refuse an answer from a file that means nothing: asked again, the next line would be for the wrong row."""
    if not isinstance(answer, Unknown) and (answer != "accept" or question.suggested is not None):
        return
    name, labels = session.given.names[question.row], ", ".join(session.labels)
    raise ConfigError(
        f"the answer {typed.strip()!r} to row {name} is no label; those before it are kept",
        fix=f"labels are {labels}; +NAME makes a new one",
    )


def _show(session: "Labelling", question: "LabelQuestion", screen: Screen) -> None:
    """The row, what is suggested, and the labels there are."""
    done, left = len(session.decisions.labelled), len(session.free)
    sure = "" if question.suggested is None else f" - {escaped(question.suggested)}? ({question.confidence:.2f})"
    name = escaped(session.given.names[question.row])
    numbered = not any(one.isdecimal() for one in session.labels)
    choices = [f"{number} {escaped(one)}" if numbered else escaped(one) for number, one in enumerate(session.labels, 1)]
    text = question.text if len(question.text) <= MOST_SHOWN else f"{question.text[:MOST_SHOWN]}..."
    head = f"row {name} - {done:,} labelled, {left:,} left{sure}"
    commands = ", ".join(f"{word} {does}" for word, does in COMMANDS.items() if word and word not in session.labels)
    screen.say(head, f"  {escaped(text)}", f"  [{', '.join(choices)}; {commands}]")


def _answered(session: "Labelling", question: "LabelQuestion", answer: Answer, screen: Screen) -> bool:
    """Whether there may be further questions, after this answer was acted on."""
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
        case "end":
            return False
        case Unknown(typed):
            screen.print(f"'{escaped(typed)}' is no label, nor the beginning of only one; ? helps", markup=False)
        case "accept":
            screen.print("nothing is suggested yet: name a label; ? helps", markup=False)
        case _:
            screen.say(HELP)
    return True
