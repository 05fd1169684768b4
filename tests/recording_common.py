"""A recorder for tests without a GPU: it records operators as a CUDA graph records kernels, and replays them.

Like a graph it keeps every tensor where it is: a replay runs the same operators on the same tensors, and writes their
results over the recorded ones. What Python has computed meanwhile is fixed. After recording, nothing has happened: all
tensors that existed before have their values again, and the random generator its state.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Run = Callable[[], None]
TURNS = {"transpose_", "t_", "squeeze_", "unsqueeze_", "as_strided_", "swapaxes_"}  # of a tensor, not of its numbers
READ = torch.ops.aten._local_scalar_dense.default  # a number on the host; on the CPU, checks of values read them


class _Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any], bool]] = []
        self.made = set[int]()  # addresses of storages made while recording
        self.before: list[tuple[Tensor, Tensor]] = []
        self.kept = set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for given in tree_leaves((args, kwargs)):
            if not isinstance(given, Tensor):
                continue
            known = given.untyped_storage()._cdata
            if known not in self.made and known not in self.kept:
                self.kept.add(known)
                whole = torch.empty(0, dtype=given.dtype).set_(given.untyped_storage())
                self.before.append((whole, whole.clone()))
        results = func(*args, **kwargs)
        if func is not READ and func.namespace != "profiler" and func.overloadpacket.__name__ not in TURNS:
            outputs = [one for one in tree_leaves(results) if isinstance(one, Tensor)]
            self.made |= {one.untyped_storage()._cdata for one in outputs} - self.kept
            self.calls.append(
                (func, args, kwargs, [torch.ops.aten.alias(one) for one in outputs], torch.is_grad_enabled())
            )
        return results


def _replay(calls: list[Any]) -> None:
    with torch._C._AutoDispatchBelowAutograd():  # what the backward pass did was recorded too
        for func, args, kwargs, outputs, graded in calls:
            with torch.set_grad_enabled(graded):
                again = [one for one in tree_leaves(func(*args, **kwargs)) if isinstance(one, Tensor)]
            for place, value in zip(outputs, again, strict=True):
                if place.data_ptr() != value.data_ptr():
                    place.copy_(value)


class Recorder:
    """Counts what it has recorded, and its replays."""

    def __init__(self) -> None:
        self.recorded = self.replays = 0

    def __call__(self, run: Run) -> Run:
        drawn, mode = torch.get_rng_state(), _Recording()
        with mode:
            run()
        for place, value in mode.before:
            place.copy_(value)
        torch.set_rng_state(drawn)
        self.recorded += 1

        def replay() -> None:
            self.replays += 1
            _replay(mode.calls)

        return replay
