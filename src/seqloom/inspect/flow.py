"""How far gradients reach: by distance through each mixer, and by depth through the layers.

The influence of the input at token k on the output at token t is the norm of the Jacobian dy_t/dx_k. In a recurrent
layer it is a product of one factor per token in between (Bengio et al. 1994; Pascanu et al. 2013):

    dh_t/dh_k = prod_{j=k+1..t} diag(f'(.)) W_hh        |W_hh| < 1: it vanishes     > 1: it may explode

so its logarithm is linear in the distance t - k. Attention reaches any token directly. The same measure works for every
family: a mixer runs on its inputs inside the model, and the gradient of its last output flows back to all of them.
The norm is the Frobenius norm. One backward pass for each unit of the output gives it exactly, at all distances. For
long texts and wide layers it is estimated: E|J' v|^2 over random vectors v is its square (Hutchinson 1990).

A fused recurrent kernel returns h_1..h_T as one tensor, and the gradient at it is only the part from the layer above:
the influence on later states stays inside the kernel. `unrolled` runs the cell token by token:

    dL/dh_t = dL/dh_t (from above) + dh_{t+1}/dh_t' dL/dh_{t+1}       the total; for an LSTM also that of c_t
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from statistics import correlation, linear_regression
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.inspect.layer_names import layer_title
from seqloom.nn.mixers.contract import CausalMixer, Mixer, Stateless
from seqloom.nn.mixers.recurrent import Recurrent
from seqloom.nn.ops.kernels import using
from seqloom.nn.ops.recurrence import Cell, Memory
from seqloom.nn.taps import listening, taps
from seqloom.nn.types import Batch, Padded
from seqloom.report.figures.line import Line, Series
from seqloom.report.numbers import counted, number
from seqloom.tasks.task import Task

ROWS = 8  # of a batch: the longest ones
LONGEST = 256  # elements
EXACT = 2**14  # rows x tokens x units of the output: up to this many the norms are exact
PROBES = 64  # random vectors of an estimate, divided among the rows
FEWEST = 5  # distances to which a factor is fitted
STRAIGHT = 0.9  # share of the variance of the logarithms that a line must explain
UNDERFLOWN = 1e-12  # times the largest norm: smaller values soon underflow in float32
RECURRENT_MATRIX = "hidden_weight"


class Flow(NamedTuple):
    """The norm of dy_t/dx_k of one mixer against the distance t - k = 0, 1, 2, ..."""

    layer: str
    norms: tuple[float, ...]
    radius: float | None = None  # spectral radius of the state transition matrix, if there is one
    reads: Literal["forward", "backward", "both"] = "forward"  # distances are counted in this direction
    probes: int = 0  # random vectors of the estimate; 0: the norms are exact

    @property
    def factor(self) -> float:
        """The factor per token of distance: the slope of the logarithm of the norm, from distance 1 on.

        >>> round(Flow("rnn", tuple(0.5**distance for distance in range(20))).factor, 6)
        0.5
        """
        points = self._logarithms()
        if len(points) < 2:
            return 0.0 if len(self.norms) > 2 else 1.0
        return math.exp(linear_regression(*zip(*points, strict=True)).slope)

    def _logarithms(self, first: int = 1) -> list[tuple[int, float]]:
        return [(at, math.log(norm)) for at, norm in enumerate(self.norms) if at >= first and norm > 1e-30]

    @property
    def is_steady(self) -> bool:
        """Whether one factor per token describes the norms: they stay the same, or their logarithms are near a line.

        A curve that turns has no factor: its first and second half, both with the token in the middle, go the same
        way. In a short text, and where layers read in both directions, the norms follow the words and not the distance.

        >>> Flow("rnn", (1, 0.1, 0.5, 0.2)).is_steady, Flow("rnn", (1, 0.5, 0.24, 0.13, 0.06, 0.03)).is_steady
        (False, True)
        """
        points = self._logarithms()
        if self.reads == "both" or len(points) < FEWEST:
            return False
        if number(self.factor) == "1":
            return True
        every = self._logarithms(first=0)
        middle = len(every) // 2
        rises = {
            linear_regression(*zip(*part, strict=True)).slope > 0 for part in (every[: middle + 1], every[middle:])
        }
        return len(rises) == 1 and correlation(*zip(*points, strict=True)) ** 2 >= STRAIGHT

    @property
    def has_window(self) -> bool:
        """Whether the influence ends at a fixed distance, as in a convolution."""
        known = [norm for norm in self.norms if norm > 0]
        return 0 in self.norms and min(known, default=0.0) > UNDERFLOWN * max(known, default=0.0)

    @property
    def left(self) -> float:
        """The norm at the largest distances relative to distance 1: the mean over the last quarter."""
        if len(self.norms) < 3:
            return 1.0
        far = self.norms[-max(1, len(self.norms) // 4) :]
        return sum(far) / len(far) / max(self.norms[1], 1e-30)


class Depth(NamedTuple):
    """The norm of the gradient of the loss at the output of each layer of one stack, the first layer first."""

    stack: str
    layers: tuple[str, ...]
    norms: tuple[float, ...]

    @property
    def left(self) -> float:
        """The gradient norm at the first layer relative to the last."""
        return self.norms[0] / max(self.norms[-1], 1e-30)


def flows(task: Task, model: nn.Module, batches: Iterable[Batch[Any, Any]], *, seed: int = 0) -> tuple[Flow, ...]:
    """The flow through every mixer of a model, on the inputs that it gets for these batches."""

    def run() -> None:
        for batch in batches:
            task.loss(model, batch, None)

    return flows_while(model, run, seed=seed)


def flows_while(model: nn.Module, run: Callable[[], object], *, seed: int = 0) -> tuple[Flow, ...]:
    """The flow through every mixer, on the inputs that the mixers get while `run` calls the model."""
    inputs: dict[str, Padded] = {}
    with torch.no_grad(), _recorded_inputs(model, inputs), still(model):
        run()
    modules = dict(model.named_modules())
    with still(model):
        found = [flow(modules[name], x, layer=name, seed=seed) for name, x in inputs.items()]
    return tuple(one for one in found if any(one.norms[1:]))  # the others read each token separately


def flow(mixer: nn.Module, x: Padded, *, layer: str = "", seed: int = 0) -> Flow:
    """The flow through one mixer that reads full rows x [B,T,D], from their last element back."""
    values = x.values.detach().requires_grad_()
    with torch.enable_grad():
        last = mixer(Padded.of(values)).values[:, -1]  # [B,D]
    return flow_between(values, last, layer=layer, seed=seed)._replace(radius=spectral_radius(mixer))


def flow_between(values: Tensor, last: Tensor, *, layer: str = "", seed: int = 0) -> Flow:
    """The norm of the Jacobian of the last vectors [B,D] by each of the values [B,T,D], nearest first."""
    (rows, tokens), units = values.shape[:2], last.shape[1]
    probes = max(1, PROBES // rows)
    if units <= probes or rows * tokens * units <= EXACT:
        probes = 0
    squares = torch.zeros(tokens, dtype=torch.float64)
    for direction in _signs(last, probes, seed) if probes else torch.eye(units).to(last):
        (slope,) = torch.autograd.grad(last, values, direction.expand_as(last), retain_graph=True)
        squares += slope.double().square().sum(dim=2).mean(dim=0).cpu()
    norms: list[float] = (squares / max(1, probes)).sqrt().flip(0).tolist()
    return Flow(layer, tuple(norms), probes=probes)


def _signs(last: Tensor, count: int, seed: int) -> Iterator[Tensor]:
    """Random vectors of -1 and 1, as many as the last vectors [B,D] have rows in each."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield torch.randint(2, last.shape, generator=generator).mul(2).sub(1).to(last)


def spectral_radius(mixer: nn.Module) -> float | None:
    """The largest absolute eigenvalue of the state transition matrix; None for gated layers."""
    weight = getattr(mixer, RECURRENT_MATRIX, None)
    if not isinstance(weight, Tensor) or weight.shape[0] != weight.shape[1]:
        return None
    return float(torch.linalg.eigvals(weight.detach().double().cpu()).abs().max())


@contextmanager
def _recorded_inputs(model: nn.Module, inputs: dict[str, Padded]) -> Iterator[None]:
    """Inside the `with`, record the inputs of every innermost mixer by name: of all batches, the longest."""

    def listener(name: str) -> Any:
        def record(_module: nn.Module, arguments: tuple[Any, ...]) -> None:
            if not arguments[0].values.is_floating_point():
                return  # tokens have no gradient
            if arguments[0].edges is not None:
                return  # nodes of a graph have no order, so none of them lies farther back
            rows = _full_rows(arguments[0])
            if name not in inputs or rows.values.shape[1] > inputs[name].values.shape[1]:
                inputs[name] = rows

        return record

    with ExitStack() as stack:
        for name, module in model.named_modules():
            inner = any(isinstance(part, Mixer) for part in module.modules() if part is not module)
            if isinstance(module, Mixer) and not isinstance(module, Stateless) and not inner:
                stack.enter_context(module.register_forward_pre_hook(listener(name)))
                if isinstance(module, CausalMixer):
                    stack.enter_context(_recorded_continuations(module, listener(name)))
        yield


@contextmanager
def _recorded_continuations(
    mixer: CausalMixer[Any], record: Callable[[nn.Module, tuple[Any, ...]], None]
) -> Iterator[None]:
    """Inside the `with`, also record inputs that continue a state: streams call `extend`, not the module."""
    extend = mixer.extend

    def recorded(x: Padded, inner: Any) -> tuple[Padded, Any]:
        record(mixer, (x,))
        return extend(x, inner)

    mixer.extend = recorded  # type: ignore[method-assign]
    try:
        yield
    finally:
        del mixer.extend


def _full_rows(x: Padded) -> Padded:
    """The longest rows, cut to the shortest of them; for packed rows, the first documents."""
    lengths = x.lengths
    if x.segments is not None:
        same = (x.segments == x.segments[:, :1]) & x.valid
        lengths = same.long().cumprod(dim=1).sum(dim=1)
    longest = lengths.argsort(descending=True)[:ROWS]
    shortest = min(LONGEST, max(1, int(lengths[longest].min())))
    return Padded.of(x.values[longest, :shortest].detach().clone())


@contextmanager
def still(model: nn.Module) -> Iterator[None]:
    """Inside the `with` block, the model is in evaluation mode; afterwards in its previous mode."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def depths(task: Task, model: nn.Module, batch: Batch[Any, Any]) -> tuple[Depth, ...]:
    """The gradient at the output of each layer, for every stack of at least two layers; weights get no gradient."""
    if not any(name.endswith(".output") for name in taps(model)):
        return ()
    outputs: dict[str, Tensor] = {}

    def record(name: str, value: Tensor) -> Tensor:
        outputs[name] = value if value.requires_grad else value.detach().requires_grad_()
        return outputs[name]

    with torch.enable_grad(), still(model), listening(model, "*.output", record):
        loss, _ = task.loss(model, batch, None)
    slopes = torch.autograd.grad(loss.mean, list(outputs.values()), allow_unused=True)
    norms = {name: 0.0 if g is None else float(g.norm()) for name, g in zip(outputs, slopes, strict=True)}
    stacks = [(stack, tuple(names)) for stack, names in groupby(norms, key=lambda name: name.partition(".layers.")[0])]
    return tuple(Depth(stack, names, tuple(norms[name] for name in names)) for stack, names in stacks if len(names) > 1)


LEAST_SHOWN = 1e-30


def flow_drawn(found: Sequence[Flow], title: str = "Gradient of the last output by distance") -> Line:
    """The norm of dy_t/dx_k against the distance, one curve for each mixer; the caption has the factors and radii."""
    shown = [flow for flow in found if len(flow.norms) > 2 and max(flow.norms) > LEAST_SHOWN]
    names = [layer_title(flow.layer) or "layer" for flow in shown]
    named = list(zip(names, shown, strict=True))
    radii = [f"{name}: spectral radius {number(flow.radius)}" for name, flow in named if flow.radius is not None]
    factors = [f"{name}: {reach_text(flow)}" for name, flow in named]
    return Line(
        title=title,
        caption=f"{measure_text(shown)} {'; '.join([*factors, *radii])}.",
        series=[
            Series(
                name=name,
                x=range(len(flow.norms)),
                y=[norm if norm > LEAST_SHOWN else None for norm in flow.norms],
            )
            for name, flow in named
        ],
        x_label="distance in tokens",
        y_label="norm of the gradient, log scale",
        y_axis="log",
    )


def measure_text(shown: Sequence[Flow]) -> str:
    """What the curves show, and whether they are estimates, in words."""
    last = "last token that the layer reads" if any(flow.reads != "forward" for flow in shown) else "last token"
    probes = max((flow.probes for flow in shown), default=0)
    estimated = f", estimated from {probes} random vectors" if probes else ""
    return f"The norm of the Jacobian of the output at the {last} by the input at each distance from it{estimated}."


def reach_text(flow: Flow) -> str:
    """How the gradient changes with distance, in words."""
    if flow.has_window:
        seen = counted(flow.norms.index(0) - 1, "token")  # fewer than it reads, if its widest filters are inactive
        return f"it reads a window: nothing farther than {seen} away has an influence"
    factor, known = number(flow.factor), [norm / flow.norms[1] for norm in flow.norms[1:] if flow.norms[1] > 0]
    toward = {"backward": " toward the end, because it reads backward", "both": "; it reads in both directions"}
    end = toward.get(flow.reads, "")
    if not flow.is_steady and known:
        among = f"relative to distance 1 it lies between {number(min(known))} and {number(max(known))}"
        return f"the gradient norm has no steady change with distance; {among}{end}"
    if factor == "1":
        return f"the gradient norm is about the same at every distance{end}"
    return f"the gradient norm changes by a factor of {factor} per token of distance{end}"


@contextmanager
def unrolled(model: nn.Module) -> Iterator[dict[str, list[Memory]]]:
    """Inside the `with` block, recurrent layers run token by token, and their states are recorded by path."""
    recurrences = {name: module for name, module in model.named_modules() if isinstance(module, Recurrent)}
    cells = {name: module.cell for name, module in recurrences.items()}
    states: dict[str, list[Memory]] = {name: [] for name in recurrences}

    def keeping(kept: list[Memory]) -> Callable[[Memory], Memory]:
        def keep(state: Memory) -> Memory:
            kept.append(state)
            return state

        return keep

    try:
        for name, module in recurrences.items():
            module.cell = changed_states(cells[name], keeping(states[name]))
        with using(recurrence="plain"):
            yield states
    finally:
        for name, module in recurrences.items():
            module.cell = cells[name]


def changed_states(cell: Cell, change: Callable[[Memory], Memory]) -> Cell:
    """The cell with every state passed through `change`."""

    def update(fed: Tensor, kept: Tensor, state: Memory) -> Memory:
        return change(cell.update(fed, kept, state))

    return cell._replace(update=update)
