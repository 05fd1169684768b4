"""What a model computes before a layer, computed once for one input and given again for any number of its copies.

Other weights are tried on one layer hundreds of times for the same input. All that stands before the layer stays the
same, so it is kept: the whole encoder under attention pooling, the lower layers of a Transformer.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.inspection.asking import scores
from seqloom.inspection.subject import Reading, Subject, repeated
from seqloom.taps import listening
from seqloom.types import Padded


@contextmanager
def held(subject: Subject, reading: Reading, path: str) -> Iterator[None]:
    """Inside the `with`, the modules that end before the layer at this path give what they gave for this reading."""
    kept = _before(subject, reading, path)
    with ExitStack() as stack:
        for name, output in kept.items():
            stack.enter_context(_giving(subject.model.get_submodule(name), output))
        yield


@contextmanager
def _giving(module: nn.Module, output: Padded) -> Iterator[None]:
    """Inside the `with`, the module gives copies of this output; one that gave copies before does so again behind."""
    before = module.__dict__.get("forward")
    module.__dict__["forward"] = _again(output)  # in front of the method of its class
    try:
        yield
    finally:
        if before is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = before


def _again(output: Padded) -> Callable[..., Padded]:
    def forward(given: Any, *_more: Any) -> Padded:
        found: Padded = repeated(output, _rows(given))
        return found

    return forward


def _rows(given: Any) -> int:
    if isinstance(given, Padded):
        return len(given.lengths)
    return len(given) if isinstance(given, Tensor) else _rows(given[0])


@torch.no_grad()
def _before(subject: Subject, reading: Reading, path: str) -> dict[str, Padded]:
    """The outputs of the outermost modules that ended before the layer began, each used once."""
    ended: dict[str, list[Any]] = {}
    began: list[str] = []

    def hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        return lambda _module, _given, output: None if began else ended.setdefault(name, []).append(output)

    def begin(name: str, _offered: Any) -> None:
        began.append(name)

    with ExitStack() as stack:
        for name, module in subject.model.named_modules():
            stack.callback(module.register_forward_hook(hook(name)).remove)
        stack.enter_context(listening(subject.model, f"{path}.weights", begin))
        scores(subject, reading.inputs)
    once = {name: outputs[0] for name, outputs in ended.items() if len(outputs) == 1}
    found = {name: output for name, output in once.items() if isinstance(output, Padded)}
    return {name: output for name, output in found.items() if not _inside(name, found)}


def _inside(name: str, others: dict[str, Padded]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:count]) in others for count in range(1, len(parts)))
