"""What the tests of embed share: a small table of each kind, and the objectives that can read it."""

from collections.abc import Callable

from seqloom.config.models import (
    AnyObjective,
    ContrastConfig,
    RankConfig,
    ScoredCosineConfig,
    TripletConfig,
    ViewsConfig,
)

ROWS = 24
TABLES: dict[str, tuple[str, Callable[[int], str]]] = {
    "text": ("text", lambda n: f"word{n} and word{n % 5} of {n % 3}"),
    "pair": ("question,answer", lambda n: f"what is {n % 9},the word{n} of {n % 4}"),
    "triple": ("anchor,positive,negative", lambda n: f"what is {n},the word{n},of {n % 4}"),
    "scored": ("sentence1,sentence2,score", lambda n: f"the word{n % 5} of {n},the word{n % 3},{n * 7 % 11 / 2}"),
}
OBJECTIVES: dict[str, tuple[AnyObjective, ...]] = {
    "text": (ViewsConfig(), ContrastConfig()),
    "pair": (ContrastConfig(),),
    "triple": (TripletConfig(), ContrastConfig()),
    "scored": (RankConfig(), ScoredCosineConfig()),
}
EVERY = [(kind, objective) for kind, some in OBJECTIVES.items() for objective in some]
