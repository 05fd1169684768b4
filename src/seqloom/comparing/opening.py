"""A comparison that is ready to begin: data read without its test part, everything chosen and checked.

A baseline is always among the models: `linear` where symbols can be counted, else the mean of vectors, hidden layers
over pixels, or the recipe with the fewest parameters. What a model gains over it is what its size buys.
"""

from typing import Any

import msgspec

from seqloom.comparing.plan import Budget, Plan
from seqloom.comparing.running import wishes_of
from seqloom.config.data import ColumnSplit, DataConfig, RandomSplit
from seqloom.data.sizes import sizes_of
from seqloom.data.synthetic import NAMES
from seqloom.durable import write_file
from seqloom.errors import ConfigError
from seqloom.tasks.contract import HeadSettings, Task
from seqloom.training.defaults import usual_epochs
from seqloom.training.front import Resolved, resolve

ASKED = "comparison.json"
BASELINES = ("linear", "bag", "mlp")  # the first that the task has
TOLD = 4  # differences in an error
LONGEST = 40  # characters of a value in an error
SECONDS = 60.0  # of training, where nobody said how many


class Opening:
    """What a comparison knows before its first run."""

    def __init__(self, plan: Plan) -> None:
        models = plan.models
        first = resolve(plan.data, wishes_of(plan, models[0], 0), cache=plan.cache)
        self.task = first.task
        for name in models:  # a recipe that cannot do the task is refused before any training
            self.task.model(name, plan.size, HeadSettings())
        _require_part(plan, first)
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
        asked: dict[str, Any] = {
            "task": first.config.task,
            "data": sorted(str(one) for one in first.facts.fingerprints.values()),
            "split": first.facts.split,
            "encoding": first.config.encoding,
            "budget": plan.budget,
            "size": plan.size,
            "settings": plan.settings,
            "wishes": plan.wishes,
        }
        plain = msgspec.json.decode(msgspec.json.encode(asked))
        if not path.exists():
            write_file(path, msgspec.json.format(msgspec.json.encode(plain), indent=2))
            return
        before = msgspec.json.decode(path.read_bytes())
        if changed := changes(before, plain):
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


def baseline_of(task: Task, plan: Plan) -> tuple[str, str]:
    """The model that every comparison has, and why it is another one than `linear`."""
    names, usual = task.recipes(), BASELINES[0]
    known = next((name for name in BASELINES if name in names), None)
    if known == usual:
        return usual, ""
    if known is not None:
        return known, f"{task.name} has no '{usual}' here: the baseline is {known}"
    smallest = min(names, key=lambda name: task.model(name, plan.size, HeadSettings()).parameters())
    return smallest, f"{task.name} has no '{usual}' here: the baseline is {smallest}, the smallest recipe"


def usual(plan: Plan, first: Resolved) -> float:
    """A budget that nobody named: the usual recipe's size, or as much data as training usually reads."""
    if plan.budget.kind == "seconds":
        return SECONDS
    if plan.budget.kind == "parameters":
        return float(first.task.model(first.task.recipes()[0], plan.size, HeadSettings()).parameters())
    prepared = first.prepared
    symbols = int(sizes_of(prepared.schema, prepared.columns)[prepared.parts["train"]].sum())
    return float(symbols * usual_epochs(symbols))


def _require_part(plan: Plan, first: Resolved) -> None:
    """Refuse to train for hours and then find nothing to judge on."""
    found = len(first.prepared.parts["dev"]) if plan.part == "dev" else _has_test(first.config.data)
    if not found:
        fix = "give --dev FILE, or --shares 10%,10%" if plan.part == "dev" else "give --test FILE, or --shares 10%,10%"
        raise ConfigError(f"there is no {plan.part} part to judge on", fix=fix)


def _has_test(data: DataConfig) -> bool:
    """Whether there is a test part, as far as can be known without a look at it."""
    split = data.split
    drawn = isinstance(split, ColumnSplit) or (isinstance(split, RandomSplit) and split.test > 0)
    return bool(data.test) or drawn or data.train[0] in NAMES
