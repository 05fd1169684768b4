"""One call of torch: the name of the function, the tensors in what it was given, and which of them it changed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor


def version_of(tensor: Tensor) -> int:
    """How often a tensor, or one that shares its memory, was changed in place."""
    return 0 if tensor.is_inference() else tensor._version


def _base(tensor: Tensor) -> Tensor:
    return tensor if tensor._base is None else tensor._base


def whole_of(changed: list[Tensor]) -> list[Tensor]:
    """The tensors that were changed, or those that they are views of; each once."""
    return list({id(base): base for base in map(_base, changed)}.values())


def is_among(tensor: Tensor, tensors: Iterable[Tensor]) -> bool:
    """Whether it is one of them, not only equal to one."""
    return any(tensor is one for one in tensors)


def called(function: Any) -> str:
    """The name of a function as people write it: `add` for `Tensor.__radd__`, `mT` for the property."""
    name: str = getattr(function, "__name__", "operation")
    if name == "__get__":
        owner = function.__self__  # a property, written in C or in Python
        name = getattr(owner, "__name__", "") or getattr(getattr(owner, "fget", None), "__name__", "property")
    if name.startswith("__") and name.endswith("__"):
        name = name.strip("_")
        return name[1:] if name in ("radd", "rsub", "rmul", "rdiv", "rpow", "rtruediv", "rmatmul") else name
    return name


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor inside tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_in(inner)


def replaced(value: Any, others: Mapping[Tensor, Tensor]) -> Any:
    """The same with other tensors in place of some."""
    if isinstance(value, Tensor):
        return others.get(value, value)
    if isinstance(value, Mapping):
        return {name: replaced(inner, others) for name, inner in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        kind: Any = type(value)
        return kind(*(replaced(inner, others) for inner in value))
    if isinstance(value, tuple | list):
        return type(value)(replaced(inner, others) for inner in value)
    return value
