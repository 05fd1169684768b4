"""What a step draws at random (dropout) as a function of (seed, step, piece, rank), and of nothing else.

Modules draw from torch's global generators. Inside `drawing` these are seeded from the four numbers; afterwards they
are what they were, so a caller's own draws are neither disturbed by training nor disturb it. No state of a generator is
ever saved: a run that goes on from step 20 draws at step 21 what the run that was not stopped draws there.
"""

import hashlib
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seed_of(seed: int, step: int, piece: int, rank: int) -> int:
    """A number of 63 bits in which every bit of the four counts."""
    digest = hashlib.blake2b(struct.pack("<4q", seed, step, piece, rank), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@contextmanager
def drawing(seed: int, step: int, piece: int, rank: int, device: torch.device) -> Iterator[None]:
    """A block in which the generators of the host and of the device start from these four numbers."""
    generators = _generators(device)
    before = [generator.get_state() for generator in generators]
    start = seed_of(seed, step, piece, rank)
    for generator in generators:
        generator.manual_seed(start)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def _generators(device: torch.device) -> list[torch.Generator]:
    """The global generators that modules on the device draw from; none of their states lies on the device itself."""
    if device.type == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        index = torch.cuda.current_device() if device.index is None else device.index
        return [torch.default_generator, torch.cuda.default_generators[index]]
    if device.type == "mps":
        return [torch.default_generator, torch.mps._get_default_mps_generator()]
    return [torch.default_generator]
