"""Which worker computes what, and when: the queue of requests, and the batches that are made of it.

    requests ──▶ queue ──▶ a free worker: items of the oldest request, and of later ones that can share their batch
                       └─▶ prompts: any worker that has room for their rows, at once

A worker computes one batch at a time. What arrives meanwhile waits and shares the next batch (dynamic batching), so
batches grow with the load and a lone request never waits for others. A batch that takes long, such as a beam search or
a search by vectors, has pauses: a worker that has one computes batches of other verbs in them. Prompts are different:
they join the running generation of a worker at once, as long as it has room for their rows (continuous batching).
"""

import asyncio
from collections import deque
from collections.abc import Container, MutableMapping, Sequence
from itertools import count
from typing import get_args

from seqloom.config.serving import ServingConfig
from seqloom.serve.calls import Call, Lane
from seqloom.serve.link import Flight, SentBatch, WorkerLink
from seqloom.serve.messages import CancelBatch, CancelPrompt, ComputeBatch, ContinuePrompt
from seqloom.serve.refusals import Overloaded

BATCH_BYTES = 1 << 14  # of items that are computed together: other requests wait for the end of a batch


def most_requests(config: ServingConfig) -> int:
    """The requests of one item that the workers hold in all lanes, and that may wait."""
    return config.max_waiting + len(get_args(Lane)) * config.max_batch * config.workers


class Dispatcher:
    """The requests with items that no worker has, in two queues: of batches, and of prompts.

    Attributes:
        links: the workers.
        counts: batches, their items and the time in the queue are counted in it.
    """

    def __init__(self, links: Sequence[WorkerLink], config: ServingConfig, counts: MutableMapping[str, float]) -> None:
        self.links, self.config, self.counts = links, config, counts
        self._batches: deque[Call] = deque()
        self._prompts: deque[Call] = deque()
        self._numbers = count(1)

    @property
    def waiting(self) -> int:
        """The number of requests that no worker has begun."""
        sent = [call.next for queue in (self._batches, self._prompts) for call in queue]  # quick, for overload
        return sent.count(0)

    def has_room(self, lanes: Container[Lane]) -> bool:
        """Whether a worker is free for a request in one of these lanes, whatever its model and its rows."""
        return any(
            ("batch" in lanes and False not in link.batches)
            or ("pausing" in lanes and True not in link.batches)
            or ("prompts" in lanes and link.rows < self.config.max_batch)
            for link in self.links
            if link.cards
        )

    def add(self, call: Call) -> None:
        """Put a request into the queue, and into a worker that is free; Overloaded if too many wait already."""
        free = self._worker_with_room(call, self._held()) if call.options.continuous else self._free_worker(call)
        if free is None and (waiting := self.waiting) >= self.config.max_waiting:
            raise Overloaded(waiting)
        self._queue_of(call).append(call)
        self.dispatch()

    def remove(self, call: Call) -> None:
        """Forget a request that nobody waits for any more, here and in the workers."""
        if call in (queue := self._queue_of(call)):
            queue.remove(call)
        for link in self.links:
            for number in [number for number, flight in link.prompts.items() if flight.call is call]:
                link.ask(CancelPrompt(number))
                del link.prompts[number]
            for pauses, batch in link.batches.items():
                if not batch.stopped and batch.is_unwanted:
                    link.batches[pauses] = batch._replace(stopped=True)
                    link.ask(CancelBatch(batch.id))
        self.dispatch()

    def _queue_of(self, call: Call) -> deque[Call]:
        return self._prompts if call.options.continuous else self._batches

    def dispatch(self) -> None:
        """Give the workers what they have room for, the oldest request first, and each request a part in its turn."""
        if self._batches:
            self._dispatch_batches()
        if self._prompts:
            self._dispatch_prompts()

    # Batches

    def _dispatch_batches(self) -> None:
        while (found := self._next_batch()) is not None:
            link, first = found
            self._send_batch(link, first)
            left = [call for call in self._batches if call.left_to_send]
            self._batches = deque([call for call in left if call is not first])
            if first.left_to_send:
                self._batches.append(first)

    def _next_batch(self) -> tuple[WorkerLink, Call] | None:
        """The oldest request that a worker can take now, and this worker."""
        free = {pauses for pauses in (False, True) if any(pauses not in link.batches for link in self.links)}
        for call in self._batches:
            if call.options.pauses in free and (link := self._free_worker(call)) is not None:
                return link, call
        return None

    def _free_worker(self, call: Call) -> WorkerLink | None:
        """The worker that can take a batch of this request, the one with the least to do; None if there is none."""
        pauses = call.options.pauses
        able = [link for link in self.links if pauses not in link.batches and link.serves(call.model)]
        return min(able, key=lambda link: (len(link.batches), link.rows)) if able else None

    def _send_batch(self, link: WorkerLink, first: Call) -> None:
        """Send a batch of the items of a request and of later ones that can share it."""
        room = max(1, self.config.max_batch // first.options.rows)
        flights: list[Flight] = []
        size = 0
        for call in self._batches:
            if call.key != first.key:
                continue
            taken = call.next
            while taken < len(call.items) and len(flights) < room:
                size += len(call.items[taken])
                if size > BATCH_BYTES and flights:
                    break
                flights.append(Flight(call, taken))
                taken += 1
            if taken > call.next:
                self._begun(call)
                call.next = taken
            if len(flights) == room or size > BATCH_BYTES:
                break
        number = next(self._numbers)
        link.batches[first.options.pauses] = SentBatch(number, flights)
        items = [flight.call.items[flight.place] for flight in flights]
        link.ask(ComputeBatch(number, first.model, first.verb, items, first.options.values))
        self.counts["batches_total"] += 1
        self.counts["batch_items_total"] += len(items)

    def _begun(self, call: Call) -> None:
        """Count how long a request has waited, when its first item is sent."""
        if call.waits:
            self.counts["seconds_in_queue_total"] += asyncio.get_running_loop().time() - call.arrived

    # Prompts

    def _dispatch_prompts(self) -> None:
        kept, held = deque[Call](), set[int]()
        while self._prompts:
            call = self._prompts.popleft()
            link = self._worker_with_room(call, held)
            if link is None:
                kept.append(call)
                held |= self._kept_for(call, held)
                continue
            self._send_prompt(link, call)
            if call.left_to_send:
                self._prompts.append(call)
        self._prompts = kept

    def _worker_with_room(self, call: Call, held: Container[int]) -> WorkerLink | None:
        """The worker with room for the rows of a prompt, the one with the fewest rows; None if there is none."""
        most = max(0, self.config.max_batch - call.options.rows)
        able = [link for link in self.links if link.serves(call.model) and link.number not in held]
        able = [link for link in able if link.rows <= most]
        return min(able, key=lambda link: (link.rows, len(link.batches))) if able else None

    def _kept_for(self, call: Call, held: Container[int]) -> set[int]:
        """The worker that later prompts may not join, else a prompt with many samples would never find room."""
        able = [link for link in self.links if link.serves(call.model) and link.number not in held]
        return {min(able, key=lambda link: link.rows).number} if able else set()

    def _held(self) -> set[int]:
        """The workers that are kept for prompts that wait."""
        held = set[int]()
        for call in self._prompts:
            held |= self._kept_for(call, held)
        return held

    def _send_prompt(self, link: WorkerLink, call: Call) -> None:
        self._begun(call)
        number, index = next(self._numbers), call.next
        call.next += 1
        link.prompts[number] = Flight(call, index)
        options, streamed = call.options.values, call.parts is not None
        link.ask(ContinuePrompt(number, call.model, call.items[index], index, options, streamed))
