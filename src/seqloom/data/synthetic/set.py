"""The definition of a synthetic set: a name, a schema, and a draw function, called until there are enough examples.

    draw ──▶ Drawn(key, rows) ──▶ the key belongs to another split? draw again
                              ──▶ already drawn? draw again
                              ──▶ Example, Example, ...

The key depends only on the input, so no input is in two splits, for any seeds. Rows drawn together (a statement and its
question) share their key and stay together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np

from seqloom.config.data import Task
from seqloom.data.problems import Place
from seqloom.data.schema import Example, Input, Schema, Target
from seqloom.errors import ConfigError, DataError, did_you_mean

# Random draws that are a pure function of a few words, the same on every machine and with every numpy version.
#
# Philox4x64 (Salmon et al. 2011) is a published function from a key to a stream of 64-bit words. Numpy guarantees the
# output of its bit generators, but not how it derives integers or floats from the bits; so that is done here.

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
Thing = TypeVar("Thing")
_BLOCK = 1024  # words fetched at a time


def fingerprint(key: str | bytes) -> int:
    """Return a 64-bit hash of an input."""
    whole = key.encode() if isinstance(key, str) else key
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")


def part_of(mark: int) -> SplitName:
    """Return the split that the input with this fingerprint always belongs to: 10 % test, 10 % dev, the rest train.

    >>> [part_of(fingerprint(word)) for word in ("oak", "elm", "ash", "fig", "yew")]
    ['train', 'train', 'train', 'train', 'dev']
    """
    bucket = mark % 10
    return "test" if bucket == 0 else "dev" if bucket == 1 else "train"


class RandomDraws:
    """A stream of random draws for one split of one set.

    >>> first, second = RandomDraws("dice", "train", 0), RandomDraws("dice", "train", 0)
    >>> [first.below(6) for _ in range(8)] == [second.below(6) for _ in range(8)]
    True
    """

    def __init__(self, name: str, part: SplitName, seed: int) -> None:
        self.part = part
        digest = blake2b(f"{name}/{part}/{seed}".encode(), digest_size=16).digest()
        self._words = np.random.Philox(key=int.from_bytes(digest, "little"))
        self._block: list[int] = []

    def _word(self) -> int:
        if not self._block:
            self._block = self._words.random_raw(_BLOCK).tolist()
        return self._block.pop()

    def below(self, count: int) -> int:
        """Draw an integer in 0..count-1, uniform to within count / 2**64."""
        return (self._word() * count) >> 64

    def between(self, least: int, most: int) -> int:
        """Draw an integer in least..most, both included."""
        return least + self.below(most - least + 1)

    def chance(self, percent: int) -> bool:
        """Return True with this probability in percent."""
        return self.below(100) < percent

    def pick(self, things: Sequence[Thing]) -> Thing:
        """Draw one of the things."""
        return things[self.below(len(things))]

    def several(self, things: Sequence[Thing], count: int) -> list[Thing]:
        """Draw `count` different things, in random order."""
        left = list(things)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def mixed(self, things: Sequence[Thing]) -> list[Thing]:
        """Return the things in random order."""
        return self.several(things, len(things))

    def reals(self, count: int) -> np.ndarray:
        """Draw float32 numbers [count] in [0, 1): multiples of 2**-24, which float32 represents exactly."""
        words = self._words.random_raw(count)
        return (words >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)

    def bytes(self, count: int) -> np.ndarray:
        """Draw uint8 numbers [count], the lowest byte of each word first on every machine."""
        words = self._words.random_raw(-(-count // 8))
        return words.astype("<u8").view(np.uint8)[:count]


_PATIENCE = 2_000  # failed draws in a row: while the space is not exhausted, one in ten fits even the test set


class DrawnExample(NamedTuple):
    """The result of one draw: rows of input and target, and the key that determines their split."""

    key: str | bytes
    rows: tuple[tuple[Input, Target], ...]


class Parameter(NamedTuple):
    """An integer parameter of a set."""

    default: int
    least: int
    most: int


class Sizes(NamedTuple):
    """The default number of examples in each split."""

    train: int
    dev: int
    test: int


class SyntheticSet(NamedTuple):
    """A dataset that is generated from a seed."""

    name: str
    schema: Schema
    description: str
    draw: Callable[..., DrawnExample]  # called with RandomDraws and the parameters by name
    sizes: Sizes
    parameters: Mapping[str, Parameter] = {}

    @property
    def task(self) -> Task:
        """The task that a model learns from the set."""
        return self.schema.task

    def examples(
        self, part: SplitName, seed: int = 0, count: int | None = None, **parameters: int
    ) -> Iterator[Example]:
        """Yield the first `count` examples of a split; they depend only on the name, split, seed and parameters."""
        if part not in SPLITS:
            raise ConfigError(f"the set '{self.name}' has no part '{part}'", fix=did_you_mean(str(part), SPLITS))
        wanted = getattr(self.sizes, part) if count is None else count
        for name, number, least in (("seed", seed, 0), ("count", wanted, 0)):
            _require_whole(name, number, least)
        return islice(self._endless(part, seed, self._settings(parameters)), wanted)

    def _settings(self, given: Mapping[str, int]) -> dict[str, int]:
        for name, number in given.items():
            if name not in self.parameters:
                known = did_you_mean(name, self.parameters) if self.parameters else "it has none, leave it out"
                raise ConfigError(f"the set '{self.name}' has no parameter '{name}'", fix=known)
            _require_whole(name, number, self.parameters[name].least, self.parameters[name].most)
        return {name: given.get(name, parameter.default) for name, parameter in self.parameters.items()}

    def _endless(self, part: SplitName, seed: int, settings: Mapping[str, int]) -> Iterator[Example]:
        draws, index = RandomDraws(self.name, part, seed), 0
        for drawn in self._accepted(draws, settings):
            for given, target in drawn.rows:
                place = Place(f"{self.name}/{part}", index + 1)
                yield Example(given, target, f"{self.name}/{part}/{seed}/{index}", place)
                index += 1

    def _accepted(self, draws: RandomDraws, settings: Mapping[str, int]) -> Iterator[DrawnExample]:
        """Yield draws that belong to the split, without duplicate keys."""
        seen: set[int] = set()
        vain = 0
        while vain < _PATIENCE:
            drawn = self.draw(draws, **settings)
            mark = fingerprint(drawn.key)
            if part_of(mark) != draws.part or mark in seen:
                vain += 1
                continue
            seen.add(mark)
            vain = 0
            yield drawn
        text = f"the set '{self.name}' has no more than {len(seen):,} different draws for its part '{draws.part}'"
        change = f", or change {' or '.join(settings)}" if settings else ""
        raise DataError(text, fix=f"ask for a lower count{change}")


def _require_whole(name: str, number: object, least: int, most: int = 2**63 - 1) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        span = f"{least}..{most}" if most < 2**63 - 1 else f"{least} or more"
        raise ConfigError(f"{name}: expected a whole number of {span}, found {number!r}", fix=f"give {name} = {least}")
