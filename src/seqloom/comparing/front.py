"""Comparing from Python in one call, and the generator behind it that the command line shows."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from seqloom.comparing.costs import Cost, measure_costs
from seqloom.comparing.jobs import one_by_one, together
from seqloom.comparing.leaks import count_leaks
from seqloom.comparing.opening import Opening
from seqloom.comparing.plan import MOST_JOBS, Budget, BudgetKind, Entry, Plan
from seqloom.comparing.reports import ComparisonBegun, ComparisonEnded, ComparisonReport, Measuring, RunEnded
from seqloom.comparing.results import Comparison
from seqloom.comparing.running import Interrupted, Judgement, judgement, resolved_run
from seqloom.comparing.weighing import Weighed
from seqloom.data.preparing import Prepared
from seqloom.durable import append_lines, make_folder, read_lines, write_file
from seqloom.durable.holding import hold
from seqloom.errors import ConfigError
from seqloom.loaded import LoadedModel, load
from seqloom.recipes import Size
from seqloom.training.calling import OF_WISHES, settings_of
from seqloom.training.devices import choose_device

LINES, WHOLE, PAGE = "results.jsonl", "results.json", "report.html"


def referee(plan: Plan, jobs: int = 1) -> Iterator[ComparisonReport]:
    """The reports of a comparison that begins or goes on; at the last one, `ComparisonEnded`, results are written."""
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"{jobs} jobs", fix=f"take 1 to {MOST_JOBS}")
    make_folder(plan.folder / "runs")
    with hold(plan.folder):
        opening = Opening(plan)
        plan = opening.plan
        waiting = [entry for entry in plan.entries() if judgement(plan, entry) is None]
        wanted, abreast = len(plan.entries()), min(jobs, len(waiting))
        yield ComparisonBegun(plan.folder, wanted, wanted - len(waiting), opening.said, abreast)
        _write_lines(plan)
        try:
            for report in together(plan, waiting, jobs) if abreast > 1 else one_by_one(plan, waiting):
                _write_lines(plan)
                yield report
                _require_success(report)
        except Interrupted as interruption:
            yield ComparisonEnded(interruption.why, None, interruption.exit_code)
            return
        yield Measuring(len(plan.models))
        yield ComparisonEnded("done", _weigh(opening), 0)


def _require_success(report: object) -> None:
    """A comparison without one of its runs would be another one than was asked for."""
    if isinstance(report, RunEnded) and report.problem:
        raise ConfigError(f"{report.entry.name}: {report.problem}", fix="mend that, or leave the model out")


def _write_lines(plan: Plan) -> None:
    """Bring results.jsonl up to what is judged."""
    path = plan.folder / LINES
    known = {(one.get("part"), one.get("model"), one.get("seed")) for one in read_lines(path).records}
    fresh = [entry for entry in plan.entries() if (plan.part, *entry) not in known]
    found = [one.facts for entry in fresh if (one := judgement(plan, entry)) is not None]
    append_lines(path, [{"kind": "run", **msgspec.to_builtins(facts)} for facts in found])


def _weigh(opening: Opening) -> Comparison:
    """The results, written to the folder before anybody sees them."""
    plan = opening.plan
    runs = {name: [_finished(plan, Entry(name, seed)) for seed in range(plan.seeds)] for name in plan.models}
    models = _loaded(plan)
    prepared = models[plan.models[0]].own_rows(plan.part)
    weighed = Weighed(runs, opening.task)
    comparison = weighed.comparison(
        prepared.columns["input"].lengths[weighed.ids],
        data=" + ".join(plan.data.train),
        part=plan.part,
        budget=plan.budget.shown(),
        seeds=plan.seeds,
        baseline=opening.baseline,
        leak=count_leaks(plan.data, plan.part),
        said=(*opening.notes, *(said for name in plan.models if (said := _size_said(plan, name)))),
    )
    costs = _costs(plan, models, prepared)
    results = tuple(msgspec.structs.replace(one, cost=costs[one.name]) for one in comparison.models)
    comparison = msgspec.structs.replace(comparison, models=results)
    write_file(plan.folder / WHOLE, comparison.to_json())
    write_file(plan.folder / PAGE, comparison.html())
    return comparison


def _finished(plan: Plan, entry: Entry) -> Judgement:
    found = judgement(plan, entry)
    assert found is not None, "every run is judged by now"
    return found


def _size_said(plan: Plan, name: str) -> str:
    """What is to be known about a model that did not come near the parameters that were asked for."""
    return resolved_run(plan, Entry(name, 0))[1] if plan.budget.kind == "parameters" else ""


def _loaded(plan: Plan) -> dict[str, LoadedModel]:
    """The model of the first seed of each."""
    device = choose_device(plan.device).torch  # type: ignore[arg-type]
    return {name: load(plan.run_folder(Entry(name, 0)), device=device) for name in plan.models}


def _costs(plan: Plan, models: dict[str, LoadedModel], prepared: Prepared) -> dict[str, Cost]:
    """What each model costs, measured now with all others, or as all of them were measured before."""
    path = plan.folder / LINES
    lines = [one for one in read_lines(path).records if one.get("kind") == "cost"]
    known = {one["model"]: msgspec.convert(one["cost"], Cost) for one in lines}
    if known.keys() >= models.keys():
        return known
    fresh = measure_costs(models, prepared, plan.part)
    append_lines(path, [{"kind": "cost", "model": n, "cost": msgspec.to_builtins(cost)} for n, cost in fresh.items()])
    return fresh


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
    **settings: Any,
) -> Comparison:
    """Models side by side, each with the same budget, judged on dev, or with `test` on the test part.

    `out` has runs, results.jsonl and report.html; what is there goes on. `amount` is that of the budget: symbols,
    seconds or parameters. `settings` are those of `seqloom.train`: of the data (dev, task, input, ...), of training
    (rate, metric, ...) and of recipes (dropout, ...), the same for every model.
    """
    of_plan = {"models": tuple(models), "seeds": seeds, "size": size, "device": device, "out": str(out)}
    of_plan |= {"budget": Budget(kind=budget, amount=amount), "part": "test" if test else "dev"}
    plan = _asked(data, settings, **of_plan)
    for report in referee(plan, jobs):
        if show is not None:
            show(report)
    assert isinstance(report, ComparisonEnded), "the last report"
    if report.comparison is None:
        raise KeyboardInterrupt
    return report.comparison


def _asked(data: tuple[str | Path, ...], settings: dict[str, Any], **of_plan: Any) -> Plan:
    """The plan, with the settings that `seqloom.train` would take."""
    config, wishes = settings_of(data, None, of_plan["size"], settings)
    return Plan(
        data=config,
        settings=msgspec.to_builtins(wishes.training),
        wishes={name: settings[name] for name in OF_WISHES if name in settings and name != "encoding"},
        encoding=wishes.encoding,
        **of_plan,
    )
