"""Draws: chance that is a pure function of a few words, the same on every machine and with every numpy.

Philox4x64 (Salmon et al. 2011) is a published function from a key to a stream of 64-bit words. Numpy promises to keep
its bit generators as they are, but not how it makes integers or reals of their bits; so that is done here.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal, TypeVar, get_args

import numpy as np

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
Thing = TypeVar("Thing")
_BLOCK = 1024  # words fetched at a time


def fingerprint(key: str | bytes) -> int:
    """A number of 64 bits that stands for an input."""
    whole = key.encode() if isinstance(key, str) else key
    return int.from_bytes(blake2b(whole, digest_size=8).digest(), "little")


def part_of(mark: int) -> Part:
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

    def __init__(self, name: str, part: Part, seed: int) -> None:
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
