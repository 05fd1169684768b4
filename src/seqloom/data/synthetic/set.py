"""What every embedded set is: a name, a schema, and a draw that is repeated until there are enough examples.

    draw ──▶ Drawn(key, rows) ──▶ the key's part is another one? again
                              ──▶ drawn before? again
                              ──▶ Example, Example, ...

The key is a function of the input alone, so no input can stand in two parts, whatever the seeds were. Rows drawn
together (a statement and its question) share their key: they stay together.
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

# Draws: chance that is a pure function of a few words, the same on every machine and with every numpy.
#
# Philox4x64 (Salmon et al. 2011) is a published function from a key to a stream of 64-bit words. Numpy promises to keep
# its bit generators as they are, but not how it makes integers or reals of their bits; so that is done here.

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = get_args(SplitName)
Thing = TypeVar("Thing")
_BLOCK = 1024  # words fetched at a time


def fingerprint(key: str | bytes) -> int:
    """A number of 64 bits that stands for an input."""
    whole = key.encode() if isinstance(key, str) else key
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")


def part_of(mark: int) -> SplitName:
    """The part to which the input with this fingerprint belongs for ever: a tenth is test, a tenth dev, the rest train.

    >>> [part_of(fingerprint(word)) for word in ("oak", "elm", "ash", "fig", "yew")]
    ['train', 'train', 'train', 'train', 'dev']
    """
    bucket = mark % 10
    return "test" if bucket == 0 else "dev" if bucket == 1 else "train"


class RandomDraws:
    """One stream of draws, for one part of one set.

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
        """A whole number in 0..count-1, each as likely as the others (to within count / 2**64)."""
        return (self._word() * count) >> 64

    def between(self, least: int, most: int) -> int:
        """A whole number in least..most, both of them included."""
        return least + self.below(most - least + 1)

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred draws."""
        return self.below(100) < percent

    def pick(self, things: Sequence[Thing]) -> Thing:
        """One of the things."""
        return things[self.below(len(things))]

    def several(self, things: Sequence[Thing], count: int) -> list[Thing]:
        """So many different ones of the things, in any order."""
        left = list(things)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def mixed(self, things: Sequence[Thing]) -> list[Thing]:
        """All of the things in another order, each order as likely."""
        return self.several(things, len(things))

    def reals(self, count: int) -> np.ndarray:
        """[count] float32 in [0, 1): multiples of 2**-24, which float32 holds exactly."""
        words = self._words.random_raw(count)
        return (words >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)

    def bytes(self, count: int) -> np.ndarray:
        """[count] uint8, the lowest byte of each word first whatever the machine."""
        words = self._words.random_raw(-(-count // 8))
        return words.astype("<u8").view(np.uint8)[:count]


_PATIENCE = 2_000  # draws in vain, one after another: of a space with room left, one in ten fits even the test set


class DrawnExample(NamedTuple):
    """What one draw gives: rows of input and target, and the key that decides their part."""

    key: str | bytes
    rows: tuple[tuple[Input, Target], ...]


class Parameter(NamedTuple):
    """A whole number that a set may be asked for."""

    default: int
    least: int
    most: int


class Sizes(NamedTuple):
    """How many examples each part has unless another count is asked for."""

    train: int
    dev: int
    test: int


class SyntheticSet(NamedTuple):
    """A data set that is written by a seed."""

    name: str
    schema: Schema
    description: str
    draw: Callable[..., DrawnExample]  # of Draws and the parameters by name
    sizes: Sizes
    parameters: Mapping[str, Parameter] = {}

    @property
    def task(self) -> Task:
        """What a model is to learn from it."""
        return self.schema.task

    def examples(
        self, part: SplitName, seed: int = 0, count: int | None = None, **parameters: int
    ) -> Iterator[Example]:
        """The first `count` examples of a part: the same for the same name, part, seed and parameters, always."""
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
        """Draws that fall into the part, no key twice."""
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
