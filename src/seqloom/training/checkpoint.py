"""Checkpoints: everything a run needs to resume. A checkpoint is complete and verified, or it is not used.

    checkpoints/step-00000020/
      model.safetensors      weights                        ema.safetensors       their moving average, with --ema
      optimizer.safetensors  moments                        carried.safetensors   recurrent state between batches
      best.safetensors       statistics of each example at the best validation, once there is one
      state.json             counters, position, seed, best validation: equal runs have equal bytes up to here
      machine.json           environment and seconds, which differ
      manifest.json          size and sha256 of each file

With several processes, tensors that differ between them have one file for each, such as
`carried-00001-of-00002.safetensors`. Sharded weights are stored in the same way. All processes take part in `save`:
they write their files into one hidden folder, process 0 renames it, and an error of one is an error of all.

The newest checkpoint is the one with the largest number in its name; file times are not used.

The first half of this module is about the tensors of a run by name: complete, averaged, or the shards of one process.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

import msgspec
import torch
from torch import Tensor, nn

from seqloom import files as durable
from seqloom.config.training import TrainingConfig
from seqloom.errors import ConfigError, DamagedError, DurableError
from seqloom.files.disk import REAL_FILES, FileLayer
from seqloom.files.folders import FileEntry, Pruned
from seqloom.files.layouts import CheckpointFile
from seqloom.files.tensors import from_bytes, not_finite, to_bytes
from seqloom.training.devices import Ranks
from seqloom.training.state import FORMAT, Machine, TrainingState

if TYPE_CHECKING:  # importing it takes a second, and only `--shard` makes such tensors
    from torch.distributed.tensor import DTensor


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers of a model; a tied weight is listed once, under its first name."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in found.values()}


@torch.no_grad()
def put(mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Copy the values of `given` into `mine`."""
    for name, tensor in mine.items():
        put_whole(tensor, given[name])


def copy_all(part: str, mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Restore every tensor of a group. DurableError if one is missing, unknown, or of another shape."""
    wrong = sorted(mine.keys() ^ given.keys())
    wrong = wrong or [name for name, tensor in mine.items() if tensor.shape != given[name].shape]
    if wrong:
        raise DurableError(
            f"the checkpoint does not fit this run: its {part} tensors differ in name or shape ({', '.join(wrong[:3])}"
            f"{', ...' if len(wrong) > 3 else ''})",
            fix="resume with the model and optimizer of the run, or train in a new folder",
        )
    put(mine, given)


def leaves_of(state: Any) -> list[Tensor]:
    """The tensors in nested tuples, from left to right."""
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in leaves_of(part)]


def plain(tensor: Tensor) -> Tensor:
    """Return the complete tensor: a tensor that is sharded over ranks is gathered."""
    whole: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
    return whole


# Averaged weights: an exponential moving average during training, or the mean of the last checkpoints.
#
#     average <- average + (1 - decay) (weights - average)                       Polyak and Juditsky 1992
#     decay of step n = min(decay, (1 + n) / (10 + n))       so that the random initial weights are soon forgotten
#
# Averaged weights are validated and saved to RUN/model; training continues with the weights themselves.


class Average:
    """The exponential moving average of a model's weights, on their device."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._weights = [weight.detach() for weight in trained.values()]
        self.values = {name: weight.detach().clone() for name, weight in trained.items()}

    @torch.no_grad()
    def follow(self, step: int, hold: Tensor) -> None:
        """Move the average towards the weights, or leave it unchanged if `hold` is 1."""
        values = list(self.values.values())
        pace = (1 - min(self.decay, (1 + step) / (10 + step))) * (1 - hold)
        change = torch._foreach_sub(self._weights, values)
        torch._foreach_mul_(change, pace)
        torch._foreach_add_(values, change)


def mean_of(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' weights, name by name; integers are those of the last model.

    >>> mean_of([{"w": torch.tensor([1.0, 4.0])}, {"w": torch.tensor([3.0, 4.0])}])
    {'w': tensor([2., 4.])}
    """
    last = weights[-1]
    return {
        name: _mean([one[name] for one in weights]) if last[name].is_floating_point() else last[name] for name in last
    }


def _mean(tensors: list[Tensor]) -> Tensor:
    """The mean, summed in float64 where the device has it, so that it does not depend on the order."""
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    total = torch.zeros_like(tensors[0], dtype=wide)
    for tensor in tensors:
        total += tensor.to(total.device)
    return (total / len(tensors)).to(tensors[0].dtype)


# Sharded weights: the part that one of several processes holds, and the complete tensor from the parts of all.
#
# `fully_shard` splits each tensor along its first axis, one part for each process. Tensors that are not split, such as
# counters, are the same in all processes. Each part knows its place, so a checkpoint of two processes can be resumed by
# one or by three: its parts are joined, and each process takes its own part again.
#
#     rank 0  [rows 0..4)  ┐                    ┌ rank 0 of 3  [0..3)
#     rank 1  [rows 4..7)  ┘──▶ whole [7 rows] ─┼ rank 1 of 3  [3..6)
#                                               └ rank 2 of 3  [6..7)


class ShardPlace(NamedTuple):
    """The place of a part in the complete tensor: its first row, and the complete shape."""

    first: int
    shape: tuple[int, ...]


class ShardPart(NamedTuple):
    """The tensors that one process holds; those with a place are parts of larger ones."""

    tensors: dict[str, Tensor]
    places: dict[str, ShardPlace]


def part_of(tensors: Mapping[str, Tensor]) -> ShardPart:
    """The part of each tensor that this process holds, and its place."""
    places = {name: _place(tensor) for name, tensor in tensors.items() if is_sharded(tensor)}
    detached = {name: tensor.detach() for name, tensor in tensors.items()}
    own = {name: tensor.to_local() if is_sharded(tensor) else tensor for name, tensor in detached.items()}
    return ShardPart(own, places)


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether each process holds a part of a tensor."""
    return hasattr(tensor, "full_tensor")


def _place(tensor: "DTensor") -> ShardPlace:
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    if tensor.placements != (Shard(0),):
        raise NotImplementedError(f"a tensor split as {tensor.placements}")  # fully_shard on one axis splits on axis 0
    offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)[1]
    return ShardPlace(min(offset[0], tensor.shape[0]), tuple(tensor.shape))


def whole_of(parts: Sequence[ShardPart]) -> dict[str, Tensor]:
    """Join the parts of all processes to complete tensors; DamagedError if rows are missing or repeated."""
    first, whole = parts[0], {}
    for name, tensor in first.tensors.items():
        if name in first.places:
            pieces = sorted(((part.places[name].first, part.tensors[name]) for part in parts), key=lambda one: one[0])
            whole[name] = _joined(name, first.places[name].shape, pieces)
        else:
            whole[name] = tensor
    return whole


def _joined(name: str, shape: tuple[int, ...], pieces: Sequence[tuple[int, Tensor]]) -> Tensor:
    row = 0
    for first, piece in pieces:
        if len(piece) and first != row:
            raise DamagedError(
                f"{name}: expected a part that starts at row {row}, found one that starts at row {first}"
            )
        row += len(piece)
    joined = torch.cat([piece for _, piece in pieces])
    if tuple(joined.shape) != shape:
        raise DamagedError(
            f"{name}: expected shape {list(shape)}, found parts with shape {list(joined.shape)} together"
        )
    return joined


def put_whole(target: Tensor, whole: Tensor) -> None:
    """Copy a complete tensor into a weight, or into this process's part of it."""
    with torch.no_grad():
        if is_sharded(target) and not is_sharded(whole):
            own, first = target.to_local(), _place(target).first
            own.copy_(whole[first : first + len(own)])
        else:
            target.copy_(whole)


Record = TypeVar("Record", TrainingState, Machine)
_OTHER_VERSION = (
    "resume with the version of Seqloom that wrote it, or train in a new folder; --init RUN starts from its weights"
)
OWN = "carried"  # the tensors that belong to the rows of one process
_FILE = re.compile(r"(?P<group>[a-z]+)(-(?P<rank>[0-9]{5})-of-(?P<count>[0-9]{5}))?\.safetensors")


class Checkpoint(NamedTuple):
    """Training state, machine, and tensors by group: model, optimizer, and perhaps ema, carried, best."""

    run_state: TrainingState
    machine: Machine
    tensors: dict[str, dict[str, Tensor]]


def path_of(folder: Path, step: int) -> Path:
    """The folder of the checkpoint of a step, whether it exists or not."""
    return folder / f"step-{step:08d}"


def save(folder: Path, checkpoint: Checkpoint, ranks: Ranks, *, files: FileLayer = REAL_FILES) -> Path:
    """Save a checkpoint and return its folder. After that, on every process, a power failure cannot destroy it.

    A checkpoint of the same step is replaced: a run that fell back behind a damaged one reaches that step again.
    Tensors that are not finite are refused. DurableError on all processes if one of them fails; older checkpoints stay.
    """
    path, main = path_of(folder, checkpoint.run_state.step), ranks.rank == 0

    def put() -> Any:
        return msgspec.to_builtins(durable.put_shared(partial, _contents(checkpoint, ranks), files=files))

    def seal() -> None:
        if main:
            durable.seal_shared(partial, path, msgspec.convert(entries, dict[str, FileEntry]), files=files)

    begun = _together(ranks, lambda: durable.begin_shared(path, files=files).name if main else "")
    partial = folder / begun[0]
    try:
        entries = {name: entry for mine in _together(ranks, put) for name, entry in mine.items()}
        _together(ranks, seal)
    except BaseException:
        if main:
            durable.drop_shared(partial, files=files)
        raise
    return path


def _contents(checkpoint: Checkpoint, ranks: Ranks) -> dict[str, bytes]:
    """The files that this process writes."""
    contents = {}
    for group, tensors in checkpoint.tensors.items():
        apart = ranks.sharded or (group == OWN and ranks.count > 1)
        if apart or ranks.rank == 0:
            part = part_of(tensors) if ranks.sharded and group != OWN else ShardPart(tensors, {})
            if bad := not_finite(part.tensors):
                raise DurableError(f"{group}: {', '.join(bad[:3])} contain NaN or infinity", fix="lower --lr")
            ending = f"-{ranks.rank + 1:05d}-of-{ranks.count:05d}" if apart else ""
            contents[f"{group}{ending}.safetensors"] = _packed(part)
    if ranks.rank == 0:
        contents |= {
            CheckpointFile.STATE: _text(checkpoint.run_state),
            CheckpointFile.MACHINE: _text(checkpoint.machine),
        }
    return contents


def _packed(part: ShardPart) -> bytes:
    """The file of some tensors. Its note lists tied tensors, which are stored once, and the places of parts.

    {"places": {"embedding.weight": [40, [80, 16]]}, "tied": {"head.weight": "embedding.weight"}}
    """
    first_of: dict[tuple[Any, ...], str] = {}
    tied: dict[str, str] = {}
    for name, tensor in part.tensors.items():
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        first = first_of.setdefault(memory, name)
        if first != name and tensor.numel():  # all empty tensors have the same address
            tied[name] = first
    stored = {name: tensor for name, tensor in part.tensors.items() if name not in tied}
    return to_bytes(stored, {"tied": tied, "places": {name: list(place) for name, place in part.places.items()}})


def _unpacked(data: bytes, name: str) -> ShardPart:
    """The tensors in a file; tied names share one tensor again."""
    tensors, note = from_bytes(data, name)
    try:
        tensors |= {other: tensors[first] for other, first in note["tied"].items()}
        places = {other: ShardPlace(first, tuple(shape)) for other, (first, shape) in note["places"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{name}: this is not a tensor file of a checkpoint ({error!r})") from error
    return ShardPart(tensors, places)


def _text(value: TrainingState | Machine) -> bytes:
    try:
        return json.dumps(msgspec.to_builtins(value), indent=2, allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise DurableError("the training state contains NaN or infinity", fix="lower --lr") from error


def _together(ranks: Ranks, work: Callable[[], Any]) -> list[Any]:
    """The results of `work` from all processes, on each of them; an error of one is an error of all."""
    try:
        mine = {"done": work()}
    except DurableError as error:
        mine = {"problem": error.problem, "fix": error.fix}
    answers = [json.loads(answer) for answer in ranks.gather(json.dumps(mine).encode())]
    for number, answer in enumerate(answers):
        if "problem" in answer:
            where = f" (process {number})" if ranks.count > 1 else ""
            raise DurableError(answer["problem"] + where, fix=answer["fix"])
    return [answer["done"] for answer in answers]


def estimated_bytes(tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Estimate the bytes of a checkpoint of these tensors; sharded tensors count completely."""
    files = [[(name, tensor.nbytes) for name, tensor in group.items()] for group in tensors.values()]
    return 16_384 + sum(4_096 + sum(size + 128 + len(name) for name, size in file) for file in files)


def steps(folder: Path) -> list[Path]:
    """The folders of checkpoints, oldest first. They are not verified."""
    return [path for _, path in reversed(durable.numbered(folder)[0])]


def newest(folder: Path, ranks: Ranks) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The newest intact checkpoint, or None if there is none yet; and messages about those that were skipped.

    DamagedError if there are checkpoints but none is usable: a run must not start again over them. Process 0 chooses;
    the others read the same one.
    """
    chosen: Checkpoint | None = None
    found: list[Any] = ["", []]
    if ranks.rank == 0:
        chosen, found = _newest(folder, ranks)
    path, skipped = json.loads(ranks.share(json.dumps(found).encode()))
    if path is None:
        raise DamagedError(
            f"{folder}: no checkpoint is usable: {'; '.join(skipped)}",
            fix="restore one from a backup, or train in a new folder",
        )
    if path and ranks.rank:
        chosen = read(folder / path, ranks)
    return chosen, tuple(skipped)


def _newest(folder: Path, ranks: Ranks) -> tuple[Checkpoint | None, list[Any]]:
    """Return the checkpoint; its name ("" if there is none, None if all are damaged); and the skipped ones."""
    listed, passed = durable.numbered(folder)
    skipped = [f"{one.path.name} was skipped: {one.reason}" for one in passed]
    for _, path in listed:
        try:
            return read(path, ranks), [path.name, skipped]
        except DurableError as error:
            skipped.append(f"{path.name} was skipped: {error}")
    return None, [None if listed else "", skipped]


def read(path: Path, ranks: Ranks) -> Checkpoint:
    """Read and verify a checkpoint; its tensors are complete and on the CPU. DamagedError if a byte differs.

    Shards of any number of processes are joined. ConfigError for a checkpoint of another version of Seqloom.
    """
    rank, texts = ranks.rank + 1, dict[str, bytes]()
    parts: dict[str, dict[int, ShardPart]] = {}
    for name, data in durable.read_folder(path):
        match = _FILE.fullmatch(name)
        if match is None:
            texts[name] = data
        # A process reads only its own carried state; if the number of processes has changed, it is not read.
        elif match["group"] != OWN or (int(match["rank"] or 1), int(match["count"] or 1)) == (rank, ranks.count):
            parts.setdefault(match["group"], {})[int(match["rank"] or 1)] = _unpacked(data, f"{path}/{name}")
    run_state = _decoded(path / CheckpointFile.STATE, texts.get(CheckpointFile.STATE), TrainingState)
    if path != path_of(path.parent, run_state.step):
        raise DamagedError(
            f"{path}: expected step {path.name[5:]}, found step {run_state.step} in {CheckpointFile.STATE}"
        )
    tensors = {group: whole_of([of_rank[rank] for rank in sorted(of_rank)]) for group, of_rank in parts.items()}
    machine = _decoded(path / CheckpointFile.MACHINE, texts.get(CheckpointFile.MACHINE), Machine)
    return Checkpoint(run_state, machine, tensors)


def _decoded(path: Path, data: bytes | None, kind: type[Record]) -> Record:
    """The record in a JSON file. No field may be missing: a default would silently change the run."""
    try:
        plain = json.loads(data or b"null")
        if kind is TrainingState and isinstance(plain, dict) and plain.get("format") != FORMAT:
            raise ConfigError(
                f"{path}: format {plain.get('format')}; this version of Seqloom resumes format {FORMAT}",
                fix=_OTHER_VERSION,
            )
        decoded = msgspec.convert(plain, kind)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", fix=_OTHER_VERSION) from error
    if missing := [name for name in kind.__struct_fields__ if name not in plain]:
        raise ConfigError(
            f"{path}: missing {', '.join(missing)}; the run cannot be resumed without it",
            fix=_OTHER_VERSION,
        )
    return decoded


def read_state(path: Path) -> TrainingState:
    """The training state of a checkpoint; its other files are not read."""
    name = CheckpointFile.STATE
    return _decoded(path / name, durable.read_file_of(path, name), TrainingState)


def read_machine(path: Path) -> Machine:
    """The machine on which a checkpoint was saved; its other files are not read."""
    name = CheckpointFile.MACHINE
    return _decoded(path / name, durable.read_file_of(path, name), Machine)


def retain(folder: Path, keep: int, chosen_step: int | None, *, files: FileLayer = REAL_FILES) -> Pruned:
    """Remove old checkpoints: the `keep` newest intact ones and the chosen one stay. Only for process 0."""
    return durable.prune(folder, keep, protect=() if chosen_step is None else (chosen_step,), files=files)


# When a validation and a checkpoint are due, and which checkpoints were saved in between.
#
# A signal makes the run save a checkpoint in between. It must not influence the result: it replaces no other one, is
# not averaged, and is removed after the next one that is due.


def validation_is_due(config: TrainingConfig, run_state: TrainingState) -> bool:
    """Whether to validate here: at the end of an epoch, or every `validate_every` steps."""
    return run_state.index == 0 if config.validate_every == 0 else run_state.step % config.validate_every == 0


def save_is_due(config: TrainingConfig, run_state: TrainingState) -> bool:
    """Whether to save a checkpoint here: after a validation, or every `save_every` steps.

    >>> save_is_due(TrainingConfig(save_every=7), TrainingState(step=21))
    True
    >>> save_is_due(TrainingConfig(), TrainingState(index=1))
    False
    """
    return validation_is_due(config, run_state) if config.save_every == 0 else run_state.step % config.save_every == 0


def in_between(folder: Path, config: TrainingConfig) -> Iterator[Path]:
    """The checkpoints that were not due, oldest first."""
    for path in steps(folder):
        try:
            if not save_is_due(config, read_state(path)):
                yield path
        except DurableError:  # `retain` removes damaged ones
            continue
