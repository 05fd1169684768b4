"""CUDA graphs: the kernels of a function are recorded once, and later launched all together.

    run()       launch, launch, launch, ...        about 5 microseconds of the host for each kernel
    replay()    one launch                         the same kernels on the same addresses

A model of small kernels waits for their launches most of the time. What Python does while a function is recorded
happens once: its branches and its numbers are fixed, and its tensors stay where they are. So the function reads from
tensors that were made before, and writes its results into such tensors. It must not wait for the device.

Random numbers are not fixed: a replay draws from the default generator of the device, as `run` would. Seeded alike,
both draw the same numbers.
"""

import gc
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

Run = Callable[[], None]
Record = Callable[[Run], Run]  # from a function to one that replays it; the function has not been run then


class GraphRecorder:
    """Records functions as CUDA graphs that share the memory of what they compute on the way.

    So results of a function that are not copied into a tensor made before are gone after the next replay.
    """

    def __init__(self, device: torch.device) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = _recording_stream(device)

    def __call__(self, run: Run) -> Run:
        """The function that replays `run`; RuntimeError if it waits for the device, or if memory runs out."""
        graph, outside = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(outside)
        collects = gc.isenabled()
        gc.disable()  # a tensor or graph that is freed meanwhile may call what is forbidden while recording
        try:
            with torch.cuda.stream(self._stream):
                # Other threads may go on: a loader that pins memory, or another model.
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    run()
                finally:
                    graph.capture_end()
        finally:
            if collects:
                gc.enable()
            outside.wait_stream(self._stream)
        return graph.replay


@cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream for all recorders: cuBLAS keeps memory for every stream that it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def fixed(nest: Any) -> Any:
    """The same nested tuples with tensors of their own; a tensor that occurs twice stays one."""
    made: dict[Tensor, Tensor] = {}

    def own(part: Any) -> Any:
        if isinstance(part, Tensor):
            if part not in made:
                made[part] = part.detach().clone()
            return made[part]
        if not isinstance(part, tuple):
            return part
        inner = map(own, part)
        return type(part)(*inner) if hasattr(part, "_fields") else type(part)(inner)

    return own(nest)


def fill(places: Any, values: Any) -> None:
    """Copy the tensors of nested tuples into those of `places`, which has the same structure.

    Nothing is copied where both are the same tensor: it was changed in place.
    """
    done = set[int]()

    def put(place: Any, value: Any) -> None:
        if isinstance(place, Tensor):
            if place is not value and id(place) not in done:
                done.add(id(place))
                place.copy_(value, non_blocking=True)
        elif isinstance(place, tuple):
            for one, other in zip(place, value, strict=True):
                put(one, other)

    put(places, values)
