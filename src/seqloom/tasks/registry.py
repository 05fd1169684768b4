"""Which task the numbers of a model belong to: the kinds of its data decide."""

from seqloom.tasks.classify import Classify, ClassifySeveral
from seqloom.tasks.embed import Embed, EmbedScored
from seqloom.tasks.lm import LanguageModelling
from seqloom.tasks.masked import MaskedPrediction
from seqloom.tasks.regress import Regress, RegressSteps
from seqloom.tasks.tag import Tag
from seqloom.tasks.task import Meaning, Task
from seqloom.tasks.translate import Translate

BY_TARGET: dict[str, type[Task]] = {
    "label": Classify,
    "labels": ClassifySeveral,
    "numbers": Regress,
    "tags": Tag,
    "series": RegressSteps,
    "nothing": LanguageModelling,
    "masked": MaskedPrediction,
    "text": Translate,
    "related": Embed,
    "similarity": EmbedScored,
}


def task_of(meaning: Meaning) -> Task:
    """The task that asks for this kind of answer."""
    return BY_TARGET[meaning.schema.target.name](meaning)
