"""Replay on a CPU: the calls of torch that a function makes are recorded once, and later made again without its Python.

    run()       modules, masks, layouts, checks, and about 500 calls of torch
    replay()    the calls that depend on what has changed, one after another

For one token of a small model, Python takes as long as the products. As in a CUDA graph (`capture.py`), what Python
does while a function is recorded happens once: its branches and its numbers are fixed. So the function reads from
tensors that were made before, and writes its results into such tensors. A replay does without

- calls that only make a view of such a tensor: the view is kept
- calls whose inputs nobody writes to, such as those that make a mask of the source: their results are kept

A function that reads a number out of a tensor, makes tensors whose sizes depend on numbers, draws random numbers or
switches autocast is not replayed: it runs each time.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import getitem, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqloom.nn.capture import Run

# Calls that return what is known without the numbers of a tensor: methods, and properties such as `shape`
FACTS = {"size", "stride", "dim", "numel", "__len__", "is_contiguous", "is_floating_point", "is_complex", "__get__"}
FACTS |= {"untyped_storage", "storage_offset"}
OPERATORS = "add and div floordiv lshift matmul mod mul or pow rshift sub truediv xor"
WRITERS = {"__setitem__", "__set__", *(f"__i{name}__" for name in OPERATORS.split())}  # besides names that end in _
SWITCHES = {"_set_grad_enabled"}  # a replay computes no gradients at all
# The sizes of their results depend on numbers, and Python may read a size.
SIZED_BY_NUMBERS = {"nonzero", "argwhere", "masked_select", "bincount", "repeat_interleave", "one_hot"}
SIZED_BY_NUMBERS |= {"unique", "_unique2", "unique_consecutive"}


class ReplayedCalls:
    """The calls that a function makes: recorded the first time, and replayed after that."""

    def __init__(self, changed: Sequence[Tensor] = ()) -> None:
        """`changed` are the tensors that others write to between two calls."""
        self._changed = changed
        self._program: Program | None = None
        self.refused: str | None = None  # why it cannot be replayed

    def __call__(self, run: Run) -> None:
        """Do what the function does, which is the same each time; it is not kept, nor what it refers to."""
        if self._program is not None:
            self._program.run()
        elif self.refused is not None:
            run()
        else:
            self._record(run)

    def _record(self, run: Run) -> None:
        drawn, recording = torch.get_rng_state(), _Recording()
        with recording:
            run()
        self.refused = recording.refused
        if not torch.equal(torch.get_rng_state(), drawn):
            self.refused = "it draws random numbers"
        if recording.has_moved:
            self.refused = self.refused or "a tensor is moved, as by set_"
        if self.refused is None:
            self._program = _compiled(recording, self._changed)


class _Call(NamedTuple):
    """A call of torch, and the tensors in it."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    inputs: list[Tensor]
    outputs: list[Tensor]
    written: list[Tensor]  # inputs that it writes to


class _Recording(TorchFunctionMode):
    """Lists the calls made in its block."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[_Call] = []
        self.refused: str | None = None
        self._made: set[int] = set()
        self._places: dict[int, tuple[Tensor, int]] = {}  # where each tensor is
        self._precision = _autocast()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.refused = self.refused or self._refuses(func, args, kwargs)
        result = func(*args, **kwargs)
        outputs, written = list(_tensors(result)), _written(func, args, kwargs)
        if outputs or written:
            inputs = list(_tensors((args, kwargs)))
            args = tuple(list(one) if isinstance(one, list) else one for one in args)  # its maker may change it
            self.calls.append(_Call(func, args, kwargs, result, inputs, outputs, written))
            self._made |= set(map(id, outputs))
            for one in (*inputs, *outputs):
                if id(one) not in self._places:
                    self._places[id(one)] = one, one.data_ptr()
            return result
        name = func.__name__
        if name not in FACTS and name not in SWITCHES:
            self.refused = self.refused or f"it reads numbers by {name}"
        return result

    @property
    def has_moved(self) -> bool:
        """Whether a tensor is elsewhere than it was, by a call that modes do not see: `set_`."""
        return any(one.data_ptr() != place for one, place in self._places.values())

    def _refuses(self, function: Any, args: Any, kwargs: dict[str, Any]) -> str | None:
        """Return why a replay of a call may not do what the call does."""
        name = function.__name__.partition(".")[0]
        if name in SIZED_BY_NUMBERS or (name == "__getitem__" and _is_sized_by_numbers(args[1])):
            return f"sizes depend on numbers by {name}"
        if kwargs.get("generator") is not None:
            return "it draws random numbers from a generator"
        if _autocast() != self._precision:
            return "it switches autocast"
        if any(id(one) in self._made for nest in _dictionaries((args, *kwargs.values())) for one in _tensors(nest)):
            return f"a tensor that it makes is in a dictionary for {name}"
        return None


def _autocast() -> tuple[bool, torch.dtype]:
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


def _is_sized_by_numbers(index: Any) -> bool:
    """Whether the size of what an index picks depends on numbers: by a mask, or by a slice that ends at one."""
    if isinstance(index, tuple | list):
        return any(map(_is_sized_by_numbers, index))
    if isinstance(index, slice):
        return any(isinstance(edge, Tensor) for edge in (index.start, index.stop, index.step))
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _dictionaries(nest: Any) -> Iterator[dict[Any, Any]]:
    """Yield the dictionaries in nested tuples and lists."""
    if isinstance(nest, dict):
        yield nest
    elif isinstance(nest, tuple | list):
        for part in nest:
            yield from _dictionaries(part)


def _written(function: Any, args: Any, kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the inputs that a call of torch writes to, by its schema or by the rules for names."""
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        every = (function,) if isinstance(function, torch._ops.OpOverload) else _overloads(function)
        return list(_tensors((args, kwargs))) if any(one._schema.is_mutable for one in every) else []
    if kwargs.get("out") is not None:
        return list(_tensors(kwargs["out"]))
    name = function.__name__
    if kwargs.get("inplace") or (name in WRITERS if name.startswith("__") else name.endswith("_")):
        return list(_tensors(args[0] if args else kwargs))
    return []


def _overloads(packet: Any) -> Iterator[Any]:
    return (getattr(packet, name) for name in packet.overloads())


def _tensors(nest: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and dictionaries."""
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, tuple | list):
        for part in nest:
            yield from _tensors(part)
    elif isinstance(nest, dict):
        yield from _tensors(tuple(nest.values()))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


# A program is a list of functions with the registers that they read and write. Registers of constants come first.

Instruction = tuple[Callable[..., Any], Callable[[list[Any]], Any], int]


class Program:
    """Calls that are made one after another."""

    def __init__(self, registers: list[Any], instructions: list[Instruction]) -> None:
        self._registers, self._instructions = registers, instructions

    def run(self) -> None:
        """Make the calls."""
        registers = self._registers
        with torch.inference_mode():
            for function, arguments, target in self._instructions:
                registers[target] = function(*arguments(registers))


def _compiled(recording: _Recording, changed: Sequence[Tensor]) -> Program:
    """Return the calls that a replay makes."""
    written = {_storage(one) for call in recording.calls for one in call.written}
    written |= set(map(_storage, changed))
    made = set[int]()  # tensors that each replay makes anew; all others stay where they are
    builder = _Assembler()
    for call in recording.calls:
        if not call.written and not any(id(one) in made for one in call.inputs):
            held = {_storage(one) for one in call.inputs}
            changes = written & (held | {_storage(one) for one in call.outputs})
            if not changes or all(_storage(one) in held for one in call.outputs):
                continue  # the same numbers each time, or a view of the same place
        given = {id(one) for one in call.inputs}
        outputs = [one for one in call.outputs if id(one) not in given]
        if not call.written and not outputs:
            continue  # such as `to` with the type that the tensor has
        made |= set(map(id, outputs))
        builder.add(call, outputs)
    return builder.program()


class _Assembler:
    """Makes a program: values first, then registers for them."""

    def __init__(self) -> None:
        self._constants: list[Any] = []
        self._made: dict[int, int] = {}  # id of a tensor -> number of the value, below zero
        self._calls: list[tuple[Callable[..., Any], list[int], int]] = []
        self._count = 0

    def add(self, call: _Call, outputs: list[Tensor]) -> None:
        """Add a call that makes these tensors."""
        args = [self._value(one) for one in call.args]
        names = [name for name, value in call.kwargs.items() if self._is_made(value)]
        rest = {name: value for name, value in call.kwargs.items() if name not in names}
        function = partial(call.function, **rest) if rest else call.function
        if names:
            function = _with_names(function, len(args), names)
            args += [self._value(call.kwargs[name]) for name in names]
        self._keep(call.result, self._call(function, args), {id(one) for one in outputs})

    def _keep(self, result: Any, value: int, outputs: set[int]) -> None:
        """Remember where the tensors of a result are."""
        if isinstance(result, Tensor):
            if id(result) in outputs:
                self._made[id(result)] = value
        elif isinstance(result, tuple | list):
            for number, part in enumerate(result):
                if any(id(one) in outputs for one in _tensors(part)):
                    self._keep(part, self._call(getitem, [value, self._constant(number)]), outputs)

    def _is_made(self, argument: Any) -> bool:
        """Whether a replay makes a tensor of this argument."""
        return any(id(one) in self._made for one in _tensors(argument))

    def _value(self, argument: Any) -> int:
        if isinstance(argument, Tensor) and id(argument) in self._made:
            return self._made[id(argument)]
        if isinstance(argument, tuple | list) and self._is_made(argument):
            return self._call(_packed(type(argument)), [self._value(part) for part in argument])
        return self._constant(argument)

    def _constant(self, value: Any) -> int:
        self._constants.append(value)
        return len(self._constants) - 1

    def _call(self, function: Callable[..., Any], args: list[int]) -> int:
        self._count += 1
        self._calls.append((function, args, -self._count))
        return -self._count

    def program(self) -> Program:
        """Return the program: a register is used again as soon as nobody needs its value."""
        last = {value: place for place, (_, args, target) in enumerate(self._calls) for value in (target, *args)}
        registers, free, instructions = list(self._constants), list[int](), list[Instruction]()
        held: dict[int, int] = {}
        for place, (function, args, target) in enumerate(self._calls):
            fetched = [held.get(value, value) for value in args]
            free += [held[value] for value in set(args) if value in held and last[value] == place]
            if not free:
                free.append(len(registers))
                registers.append(None)
            held[target] = free.pop()
            instructions.append((function, _fetching(fetched), held[target]))
            if last[target] == place:
                free.append(held[target])
        return Program(registers, instructions)


def _fetching(registers: list[int]) -> Callable[[list[Any]], Any]:
    """Return a function that picks the arguments of a call."""
    if len(registers) < 2:
        start = registers[0] if registers else 0
        return itemgetter(slice(start, start + len(registers)))
    return itemgetter(*registers)


def _with_names(function: Callable[..., Any], count: int, names: list[str]) -> Callable[..., Any]:
    """Return the function with the arguments after the first `count` by name."""
    return lambda *args: function(*args[:count], **dict(zip(names, args[count:], strict=True)))


def _packed(kind: Any) -> Callable[..., Any]:
    """Return a function that makes a tuple or list of its arguments."""
    if hasattr(kind, "_fields"):
        return lambda *parts: kind(*parts)
    return lambda *parts: kind(parts)
