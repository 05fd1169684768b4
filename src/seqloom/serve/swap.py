"""Hot swaps: a new version of a served folder is loaded beside the old one in every worker, tried, and used.

    folder changes ──▶ it is still for a second ──▶ every worker loads it ──▶ all can: swap
                                                                         └─▶ one cannot: keep the old one

A folder may be replaced at once, or be copied file by file. As long as files change it is left alone. A version that is
refused is tried again when any of its files changes, so a copy that paused in the middle is served in the end. A folder
that is missing costs nothing until a worker is lost: the log says so, before it is too late.
"""

import asyncio
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import count
from pathlib import Path

from seqloom.errors import SeqloomError
from seqloom.serve.link import WorkerLink
from seqloom.serve.messages import (
    DiscardModel,
    ModelCard,
    ModelRefused,
    ModelStaged,
    StageModel,
    SwapModel,
)
from seqloom.serve.watch import Mark, mark_of, version_of

POLL = 1.0  # seconds between two looks at the folders
LONGEST_LOAD = 300.0  # seconds after which a worker that has not loaded a new version is not waited for
RETRY = 5.0  # seconds between two tries to load a version that a worker did not load when it started
log = logging.getLogger("seqloom.serve")


class HotSwap:
    """The folders, what is served of them, and what was refused.

    Attributes:
        cards: the card of each model that is served; changed by a swap.
        counts: `swaps_total` and `refused_swaps_total` are counted in it.
    """

    def __init__(
        self,
        paths: Mapping[str, Path],
        links: Sequence[WorkerLink],
        cards: MutableMapping[str, ModelCard],
        counts: MutableMapping[str, float],
    ) -> None:
        self.paths, self.links, self.cards, self.counts = paths, links, cards, counts
        self.settled: dict[str, Mark | None] = {name: mark_of(path) for name, path in paths.items()}  # or refused
        self.seen = dict(self.settled)  # at the last look
        self.told: dict[str, Mark] = {}  # the version of which a line of the log says that it is refused
        self.missing: set[str] = set()  # of which a line of the log says so
        self.numbers = count(1)
        self.tried: dict[str, float] = {}  # when a worker without the settled version was last asked to load it

    async def watch(self) -> None:
        """Look at the folders every second."""
        while True:
            await asyncio.sleep(POLL)
            for name in self.paths:
                try:
                    await self._look(name)
                except Exception as error:  # the next look may succeed
                    log.error("the folder of %s could not be looked at: %s", name, type(error).__name__)

    async def _look(self, name: str) -> None:
        mark = await asyncio.to_thread(mark_of, self.paths[name])
        still, self.seen[name] = mark == self.seen[name], mark
        if not still:
            return
        if (mark is None) != (name in self.missing):
            self._tell_missing(name)
        if mark is None:
            return
        links = [link for link in self.links if link.ready]
        if mark == self.settled[name]:  # but it may have been away or another one, just when a worker started
            links = self._without(name, links)
        if links and await self._swap(name, mark, links):
            self.settled[name] = mark

    def _tell_missing(self, name: str) -> None:
        """Log that a folder is missing, or that it is back."""
        self.missing ^= {name}
        if name in self.missing:
            said = f"the folder of {name} is missing or incomplete: workers that have loaded it go on, new ones cannot"
            log.warning("%s", SeqloomError(said, fix="put it back"))
        else:
            log.info("the folder of %s is back", name)

    def _without(self, name: str, links: Sequence[WorkerLink]) -> list[WorkerLink]:
        """The workers that may not have the version in the folder; none if they were asked to load it a moment ago.

        Those are workers that could not load it, and all if they do not have the same version: one that was started
        just before a swap has loaded the old one.
        """
        asked = [link for link in links if len(self._versions(name)) > 1 or not link.serves(name)]
        now = asyncio.get_running_loop().time()
        if not asked or now - self.tried.get(name, -RETRY) < RETRY:
            return []
        self.tried[name] = now
        return asked

    async def _swap(self, name: str, mark: Mark, links: Sequence[WorkerLink]) -> bool:
        """Load a version in every worker; if all can, swap, else keep the old one. False: it must be tried again."""
        number, pids = next(self.numbers), [link.pid for link in links]
        before = self._versions(name) | {self.cards[name].fingerprint}  # the latter: maybe no worker has it
        waits = [link.stage(StageModel(number, name, str(self.paths[name]))) for link in links]
        _, late = await asyncio.wait(waits, timeout=LONGEST_LOAD)
        found = [None if one in late else one.result() for one in waits]
        problem = self._problem(name, found) or ("a worker took too long to load it" if late else "")
        for link, pid, one in zip(links, pids, found, strict=True):
            link.staging.pop(number, None)
            if isinstance(one, ModelStaged) and link.pid == pid:  # a worker that was restarted has loaded it itself
                link.send(DiscardModel(number) if problem else SwapModel(number))
                if not problem:
                    link.cards[name] = self.cards[name] = one.card
        if problem:
            self._refuse(name, mark, problem)
        elif any(found):  # else all workers were lost meanwhile, and load it when they start
            is_new = before != {self.cards[name].fingerprint}
            self.counts["swaps_total"] += is_new
            log.info("a new version of %s is served" if is_new else "%s is loaded again; its version is the same", name)
        return not late

    def _versions(self, name: str) -> set[str]:
        """The fingerprints of a model in the workers."""
        return {link.cards[name].fingerprint for link in self.links if link.serves(name)}

    def _problem(self, name: str, found: Sequence[ModelStaged | ModelRefused | None]) -> str:
        """Why a version cannot be served; empty if it can."""
        problems = [str(SeqloomError(one.problem, fix=one.fix)) for one in found if isinstance(one, ModelRefused)]
        cards = [one.card for one in found if isinstance(one, ModelStaged) and name in self.cards]
        problems += [change_of(self.cards[name], card) for card in cards]
        return next(filter(None, problems), "")

    def _refuse(self, name: str, mark: Mark, problem: str) -> None:
        """Keep the old version; a line for each new one, however often it is tried."""
        version = version_of(mark)
        if self.told.get(name) != version:
            self.told[name] = version
            self.counts["refused_swaps_total"] += 1
            log.error("the new version of %s is refused, the old one is kept: %s", name, problem)


def change_of(old: ModelCard, new: ModelCard) -> str:
    """Why a new version cannot replace the old one for its clients; empty if it can."""
    if new.abilities >= old.abilities and new.input == old.input:
        return ""
    return f"it reads {new.input} for the task {new.task}, but clients expect {old.input} and {old.task}"
