"""Comparing from Python in one call, and the generator behind it that the command line shows.

Before the first run, data is read without its test part, and everything is chosen and checked. A baseline is always
among the models: `linear` where symbols can be counted, else the mean of vectors, hidden layers over pixels, or the
recipe with the fewest parameters. What a model gains over it is what its size buys.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from seqloom.config.data import AnySplit, BadRows, ColumnSplit, EncodingConfig, RandomSplit, ReadingConfig
from seqloom.config.data import Task as TaskName
from seqloom.config.heads import HeadKind, Pooling
from seqloom.config.inputs import LettersWish
from seqloom.config.models import AnyObjective
from seqloom.config.options import stated, strict
from seqloom.config.training import AnyFeed, AnyLength, AnyOptimiser, AnySchedule, Precision
from seqloom.data.check import Names
from seqloom.data.prepared import Prepared
from seqloom.data.synthetic.registry import NAMES
from seqloom.errors import ConfigError
from seqloom.experiments.compare.costs import measure_costs
from seqloom.experiments.compare.plan import (
    Budget,
    BudgetKind,
    ComparisonBegun,
    ComparisonEnded,
    ComparisonPlan,
    ComparisonReport,
    Measuring,
    PlannedModel,
    RunEnded,
)
from seqloom.experiments.compare.results import Comparison, Cost
from seqloom.experiments.compare.runs import Judgement, judgement, resolved_run, run, together, wishes_of
from seqloom.experiments.compare.verdicts import Weighed, count_leaks
from seqloom.experiments.workers import Interrupted, require_jobs
from seqloom.files.disk import make_folder, write_file
from seqloom.files.jsonl import append_lines, read_lines
from seqloom.files.lock import hold
from seqloom.inference.model import LoadedModel, load
from seqloom.recipes.families import Size
from seqloom.tasks.task import HeadSettings, Task
from seqloom.training.learning_rate import training_symbols, usual_epochs
from seqloom.training.resolve import Resolved, resolve
from seqloom.training.wishes import OF_WISHES, settings_of

ASKED, LINES = "comparison.json", "results.jsonl"
BASELINES = ("linear", "bag", "mlp")  # the first that the task has
TOLD = 4  # differences in an error
LONGEST = 40  # characters of a value in an error
SECONDS = 60.0  # of training, where nobody said how many


class OpenComparison:
    """What a comparison knows before its first run."""

    def __init__(self, plan: ComparisonPlan) -> None:
        models = plan.models
        first = resolve(plan.data, wishes_of(plan, models[0], 0), cache=plan.cache)
        self.task = first.task
        for name in models:  # a recipe that cannot do the task is refused before any training
            self.task.model(name, plan.size, HeadSettings())
        # refused now, and not after hours of training; whether there is a test part is said without a look at it
        split, data = first.config.data.split, first.config.data
        drawn = isinstance(split, ColumnSplit) or (isinstance(split, RandomSplit) and split.test > 0)
        has_test = bool(data.test) or drawn or data.train[0] in NAMES
        if not (len(first.prepared.parts["dev"]) if plan.part == "dev" else has_test):
            fix = f"give --{plan.part} FILE, or --shares 10%,10%"
            raise ConfigError(f"there is no {plan.part} part to judge on", fix=fix)
        self.baseline, why = baseline_of(self.task, plan)
        models = models if self.baseline in models else (self.baseline, *models)
        budget = Budget(kind=plan.budget.kind, amount=plan.budget.amount or usual(plan, first))
        self.plan = msgspec.structs.replace(plan, models=models, budget=budget)
        self.notes = (why,) if why else ()
        self.said = (*first.said[:-1], *self.notes)
        self._require_same(first)

    def _require_same(self, first: Resolved) -> None:
        """Write down what is compared, or refuse to mix it with something else; models and seeds may be added."""
        plan, path = self.plan, self.plan.folder / ASKED
        asked = plan.asked(first) | {"budget": plan.budget, "size": plan.size, "wishes": plan.wishes}
        plain = msgspec.json.decode(msgspec.json.encode(asked))
        if not path.exists():
            write_file(path, msgspec.json.format(msgspec.json.encode(plain), indent=2))
            return
        if changed := changes(msgspec.json.decode(path.read_bytes()), plain):
            more = f"; and {len(changed) - TOLD} more" if len(changed) > TOLD else ""
            raise ConfigError(
                f"{plan.folder} holds another comparison: {'; '.join(changed[:TOLD])}{more}",
                fix="give another --out, or the same settings to go on",
            )


def changes(before: Any, now: Any, name: str = "") -> list[str]:
    """In which values what is asked for differs from what was, in words.

    >>> changes({"budget": {"kind": "symbols", "amount": 8000.0}}, {"budget": {"kind": "symbols", "amount": 900.0}})
    ['budget amount was 8000.0 and is now 900.0']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        names = dict.fromkeys([*now, *before])
        return [one for key in names for one in changes(before.get(key), now.get(key), f"{name} {key}".strip())]
    return [] if before == now else [f"{name} was {_said(before)} and is now {_said(now)}"]


def _said(value: Any) -> str:
    """A value in few characters; nothing is what nobody said."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return "not said" if value is None else text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def baseline_of(task: Task, plan: ComparisonPlan) -> tuple[str, str]:
    """The model that every comparison has, and why it is another one than `linear`."""
    names, usual = task.recipes(), BASELINES[0]
    known = next((name for name in BASELINES if name in names), None)
    if known == usual:
        return usual, ""
    if known is not None:
        return known, f"{task.name} has no '{usual}' here: the baseline is {known}"
    smallest = min(names, key=lambda name: task.model(name, plan.size, HeadSettings()).parameters())
    return smallest, f"{task.name} has no '{usual}' here: the baseline is {smallest}, the smallest recipe"


def usual(plan: ComparisonPlan, first: Resolved) -> float:
    """A budget that nobody named: the usual recipe's size, or as much data as training usually reads."""
    if plan.budget.kind == "seconds":
        return SECONDS
    if plan.budget.kind == "parameters":
        return float(first.task.model(first.task.recipes()[0], plan.size, HeadSettings()).parameters())
    symbols = training_symbols(first.prepared)
    return float(symbols * usual_epochs(symbols))


def referee(plan: ComparisonPlan, jobs: int = 1) -> Iterator[ComparisonReport]:
    """The reports of a comparison that begins or goes on; at the last one, `ComparisonEnded`, results are written."""
    require_jobs(jobs)
    make_folder(plan.folder / "runs")
    with hold(plan.folder):
        opening = OpenComparison(plan)
        plan = opening.plan
        waiting = [entry for entry in plan.entries() if judgement(plan, entry) is None]
        wanted, abreast = len(plan.entries()), min(jobs, len(waiting))
        yield ComparisonBegun(plan.folder, wanted, wanted - len(waiting), opening.said, abreast)
        _write_lines(plan)
        alone = chain.from_iterable(run(plan, entry) for entry in waiting)
        try:
            for report in together(plan, waiting, jobs) if abreast > 1 else alone:
                _write_lines(plan)
                yield report
                # A comparison without one of its runs would be another one than was asked for
                if isinstance(report, RunEnded) and report.problem:
                    raise ConfigError(f"{report.entry.name}: {report.problem}", fix="mend that, or leave the model out")
        except Interrupted as interruption:
            yield ComparisonEnded(interruption.why, None, interruption.exit_code)
            return
        yield Measuring(len(plan.models))
        yield ComparisonEnded("done", _weigh(opening), 0)


def _write_lines(plan: ComparisonPlan) -> None:
    """Bring results.jsonl up to what is judged."""
    path = plan.folder / LINES
    known = {(one.get("part"), one.get("model"), one.get("seed")) for one in read_lines(path).records}
    fresh = [entry for entry in plan.entries() if (plan.part, *entry) not in known]
    found = [one.facts for entry in fresh if (one := judgement(plan, entry)) is not None]
    append_lines(path, [{"kind": "run", **msgspec.to_builtins(facts)} for facts in found])


def _weigh(opening: OpenComparison) -> Comparison:
    """The results, written to the folder before anybody sees them."""
    plan = opening.plan
    runs: dict[str, list[Judgement]] = {name: [] for name in plan.models}
    for entry in plan.entries():
        found = judgement(plan, entry)
        assert found is not None, "every run is judged by now"
        runs[entry.model].append(found)
    firsts = [PlannedModel(name, 0) for name in plan.models]
    device = plan.chosen_device().torch
    models = {entry.model: load(plan.run_folder(entry), device=device) for entry in firsts}
    prepared = models[plan.models[0]].own_rows(plan.part)
    # of models that did not come near the parameters that were asked for
    sizes = [resolved_run(plan, entry)[1] for entry in firsts] if plan.budget.kind == "parameters" else []
    weighed = Weighed(runs, opening.task)
    comparison = weighed.comparison(
        prepared.columns["input"].lengths[weighed.ids],
        data=" + ".join(plan.data.train),
        part=plan.part,
        budget=plan.budget.shown(),
        seeds=plan.seeds,
        baseline=opening.baseline,
        leak=count_leaks(plan.data, plan.part),
        said=(*opening.notes, *filter(None, sizes)),
    )
    costs = _costs(plan, models, prepared)
    results = tuple(msgspec.structs.replace(one, cost=costs[one.name]) for one in comparison.models)
    comparison = msgspec.structs.replace(comparison, models=results)
    plan.write(comparison)
    return comparison


def _costs(plan: ComparisonPlan, models: dict[str, LoadedModel], prepared: Prepared) -> dict[str, Cost]:
    """What each model costs, measured now with all others, or as all of them were measured before."""
    path = plan.folder / LINES
    lines = [one for one in read_lines(path).records if one.get("kind") == "cost"]
    known = {one["model"]: msgspec.convert(one["cost"], Cost) for one in lines}
    if known.keys() >= models.keys():
        return known
    fresh = measure_costs(models, prepared, plan.part)
    append_lines(path, [{"kind": "cost", "model": n, "cost": msgspec.to_builtins(cost)} for n, cost in fresh.items()])
    return fresh


@strict
def compare(
    *data: str | Path,
    out: str | Path,
    models: Sequence[str],
    budget: BudgetKind = "symbols",
    amount: float | None = None,
    seeds: int = 3,
    test: bool = False,
    size: Size = "small",
    jobs: int = 1,
    device: str = "auto",
    show: Callable[[ComparisonReport], None] | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    symbols: int | None = None,
    seconds: float | None = None,
    length: AnyLength | None = None,
    dev: Names | None = None,
    reading: ReadingConfig | None = None,
    task: TaskName | None = None,
    input: Names | None = None,
    target: Names | None = None,
    id: str | None = None,
    label_separator: str | None = None,
    sequence: str | None = None,
    split: AnySplit | None = None,
    bad_rows: BadRows | None = None,
    encoding: EncodingConfig | None = None,
    dropout: float | None = None,
    smoothing: float | None = None,
    class_weights: str | Sequence[float] | None = None,
    head: HeadKind | None = None,
    pooling: Pooling | None = None,
    objective: str | AnyObjective | None = None,
    rows_at_once: int | None = None,
    letters: LettersWish | None = None,
    vectors: str | Path | None = None,
    vector_words: int | None = None,
    freeze_vectors: bool | None = None,
    feed: AnyFeed | None = None,
    optimiser: AnyOptimiser | None = None,
    rate: float | None = None,
    schedule: AnySchedule | None = None,
    clip: float | None = None,
    pieces: int | None = None,
    validate_every: int | None = None,
    metric: str | None = None,
    patience: int | None = None,
    save_every: int | None = None,
    keep: int | None = None,
    average: float | None = None,
    average_last: int | None = None,
    precision: Precision | None = None,
    compile: bool | None = None,
    init: str | None = None,
    freeze: Sequence[str] | None = None,
    report_every: int | None = None,
    seed: int | None = None,
    deterministic: bool | None = None,
) -> Comparison:
    """Models side by side, each with the same budget, judged on dev, or with `test` on the test part.

    `out` has runs, results.jsonl and report.html; what is there goes on. `amount` is that of the budget: symbols,
    seconds or parameters. From `epochs` on, settings are those of `seqloom.train`, the same for every model.
    """
    named: dict[str, Any] = {"dev": dev, "reading": reading, "task": task, "input": input, "id": id}
    named |= {"target": target, "label_separator": label_separator, "sequence": sequence, "split": split}
    named |= {"bad_rows": bad_rows}
    named |= {"dropout": dropout, "smoothing": smoothing, "head": head, "pooling": pooling, "objective": objective}
    named |= {"class_weights": class_weights, "rows_at_once": rows_at_once, "letters": letters, "encoding": encoding}
    named |= {"vectors": vectors, "vector_words": vector_words, "freeze_vectors": freeze_vectors}
    named |= {"length": length, "feed": feed, "optimiser": optimiser, "rate": rate, "schedule": schedule}
    named |= {"clip": clip, "pieces": pieces, "validate_every": validate_every, "metric": metric, "keep": keep}
    named |= {"patience": patience, "save_every": save_every, "average": average, "average_last": average_last}
    named |= {"precision": precision, "compile": compile, "init": init, "freeze": freeze, "seed": seed}
    named |= {"report_every": report_every, "deterministic": deterministic}
    named |= {"epochs": epochs, "steps": steps, "symbols": symbols, "seconds": seconds}
    config, wishes = settings_of(data, stated(named))
    told = {name: value for name, value in stated(named).items() if name in OF_WISHES and name != "encoding"}
    plan = ComparisonPlan(
        data=config,
        out=str(out),
        models=tuple(models),
        budget=Budget(kind=budget, amount=amount),
        seeds=seeds,
        part="test" if test else "dev",
        size=size,
        settings=msgspec.to_builtins(wishes.training),
        wishes=told,
        encoding=wishes.encoding,
        device=device,
    )
    for report in referee(plan, jobs):
        if show is not None:
            show(report)
    assert isinstance(report, ComparisonEnded), "the last report"
    if report.comparison is None:
        raise KeyboardInterrupt
    return report.comparison
