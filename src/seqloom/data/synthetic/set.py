"""What every embedded set is: a name, a schema, and a draw that is repeated until there are enough examples.

    draw ──▶ Drawn(key, rows) ──▶ the key's part is another one? again
                              ──▶ drawn before? again
                              ──▶ Example, Example, ...

The key is a function of the input alone, so no input can stand in two parts, whatever the seeds were. Rows drawn
together (a statement and its question) share their key: they stay together.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from seqloom.config.data import Task
from seqloom.data.problems import Place
from seqloom.data.schema import Example, Input, Schema, Target
from seqloom.data.synthetic.random_draws import PARTS, Part, RandomDraws, fingerprint, part_of
from seqloom.errors import ConfigError, DataError, did_you_mean

_PATIENCE = 2_000  # draws in vain, one after another: of a space with room left, one in ten fits even the test part


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

    def examples(self, part: Part, seed: int = 0, count: int | None = None, **parameters: int) -> Iterator[Example]:
        """The first `count` examples of a part: the same for the same name, part, seed and parameters, always."""
        if part not in PARTS:
            raise ConfigError(f"the set '{self.name}' has no part '{part}'", fix=did_you_mean(str(part), PARTS))
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

    def _endless(self, part: Part, seed: int, settings: Mapping[str, int]) -> Iterator[Example]:
        draws, index = RandomDraws(self.name, part, seed), 0
        for drawn in self._accepted(draws, settings):
            for given, target in drawn.rows:
                yield Example(
                    given, target, f"{self.name}/{part}/{seed}/{index}", Place(f"{self.name}/{part}", index + 1)
                )
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
        raise DataError(
            f"the set '{self.name}' has no more than {len(seen):,} different draws for its part '{draws.part}'",
            fix="ask for a lower count" + (f", or change {' or '.join(settings)}" if settings else ""),
        )


def _require_whole(name: str, number: object, least: int, most: int = 2**63 - 1) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        span = f"{least}..{most}" if most < 2**63 - 1 else f"{least} or more"
        raise ConfigError(f"{name}: expected a whole number of {span}, found {number!r}", fix=f"give {name} = {least}")
