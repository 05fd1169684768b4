"""Which task the numbers of a model belong to: the kinds of its data decide."""

from seqloom.config.data import Task as TaskName
from seqloom.data.schema import TargetKind
from seqloom.tasks.classify import Classify, ClassifySeveral
from seqloom.tasks.contract import Meaning, Task
from seqloom.tasks.lm import LanguageModelling
from seqloom.tasks.regress import Regress
from seqloom.tasks.tag import Tag
from seqloom.tasks.translate import Translate

TASKS: dict[TaskName, type[Task]] = {
    "classify": Classify,
    "regress": Regress,
    "tag": Tag,
    "lm": LanguageModelling,
    "translate": Translate,
}
BY_TARGET: dict[TargetKind, type[Task]] = {
    "label": Classify,
    "labels": ClassifySeveral,
    "numbers": Regress,
    "tags": Tag,
    "nothing": LanguageModelling,
    "text": Translate,
}


def task_of(meaning: Meaning) -> Task:
    """The task that asks for this kind of answer."""
    return BY_TARGET[meaning.schema.target](meaning)
