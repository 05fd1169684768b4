"""`seqloom evaluate`: how well a model does, with 95 % intervals. A look at the test set is written down."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from seqloom.cli.data_options import FileOptions, LabelSeparator, Target
from seqloom.cli.predict import Model, load_on
from seqloom.cli.screen import Screen
from seqloom.cli.sharing import shares
from seqloom.config.data import ReadingConfig
from seqloom.data.problems import counted, escaped

if TYPE_CHECKING:
    from seqloom.loaded import LoadedModel
    from seqloom.tasks.judging import Evaluation

CONFUSIONS = 5


@shares(FileOptions)
def evaluate(
    model: Model,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Data with targets, or the name of a set; else that of the run."),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Look at the test part, and write down that you did.")] = False,
    target: Target = None,
    label_separator: LabelSeparator = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    *,
    shared: FileOptions,
) -> None:
    """Judge a model on the dev part of its run, on its test part, or on data of your own."""
    wishes: dict[str, Any] = {"input": shared.input_, "reading": shared.reading()}
    wishes |= {"target": target, "label_separator": label_separator}
    settings: dict[str, Any] = {name: value for name, value in wishes.items() if value not in (None, ReadingConfig())}
    loaded = load_on(model, shared.device)
    evaluation = loaded.evaluate(*(data or ()), part="test" if test else "dev", budget=shared.budget, **settings)
    found = _result(loaded, evaluation, test)
    if test and loaded.folder is not None:  # its report and its card tell of this look too
        from seqloom.training.pages.writing import write_pages

        write_pages(loaded.folder)
    if json:
        Screen().print(msgspec.json.encode(found).decode(), markup=False, soft_wrap=True)
    else:
        _show(found, evaluation, data or [])


def _result(loaded: "LoadedModel", evaluation: "Evaluation", test: bool) -> dict[str, Any]:
    """The result as programs read it."""
    looks = {"looks": len(loaded.looks)} if test else {}
    intervals = {name: list(interval) for name, interval in evaluation.intervals(loaded.task).items()}
    known = {"task": evaluation.task, "part": "test" if test else "dev", "rows": evaluation.rows}
    return known | {"metrics": evaluation.metrics, "intervals": intervals} | looks


def _show(found: dict[str, Any], evaluation: "Evaluation", data: list[str]) -> None:
    from seqloom.training.pages.words import alike_said

    screen = Screen()
    where = " ".join(map(escaped, data)) or f"the {found['part']} part"
    lines = [f"{counted(found['rows'], 'example')} of {where}", ""]
    width = max(map(len, found["metrics"]), default=0)
    for name, value in found["metrics"].items():
        low, high = found["intervals"].get(name, (None, None))
        between = "" if low is None or high is None else f"   95 % between {low:.4f} and {high:.4f}"
        lines.append(f"  {name:<{width}}  {value:.4f}{between}")
    if alike := alike_said(found["metrics"]):
        lines += ["", alike]
    wrong = [one for one in evaluation.confusion if one[0] != one[1]]
    if wrong:
        often = sorted(wrong, key=lambda one: -one[2])[:CONFUSIONS]
        lines += ["", "most often mistaken:"]
        lines += [
            f"  {escaped(str(true))} taken for {escaped(str(said))}, {counted(count, 'time')}"
            for true, said, count in often
        ]
    if "looks" in found:
        lines += ["", f"The test set was looked at {counted(found['looks'], 'time')} with this model."]
    screen.print("\n".join(lines), markup=False, soft_wrap=True)
