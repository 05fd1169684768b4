"""Checkpoints: everything a run needs to go on, in a folder that is whole and verified, or not used.

    checkpoints/step-00000020/
      model.safetensors      weights                        average.safetensors   if the run averages them
      optimiser.safetensors  moments                        carried.safetensors   if a state goes on between steps
      best.safetensors       statistics of each example at the best validation, once there is one
      standing.json          counters, position, seed, best, scale, pieces: equal runs have equal bytes up to here
      machine.json           environment and seconds, which differ
      manifest.json          size and sha256 of each

With several processes what differs between them has a file for each, `carried-00001-of-00002.safetensors`, and so has
everything when the weights are sharded. All processes take part in `save`: they put their files into one hidden
folder, process 0 seals it, and an error of one is an error of all.

Newer means a larger number in the name; times of files are never asked.

The first half of this module are the tensors of a run by name: whole, averaged, or the shards of one process.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from seqloom import files as durable
from seqloom.config.training import TrainingConfig
from seqloom.errors import ConfigError, DamagedError, DurableError
from seqloom.files.disk import REAL_FILES, FileLayer
from seqloom.files.folders import FileEntry, Pruned
from seqloom.files.layouts import CheckpointFile
from seqloom.files.tensors import from_bytes, not_finite, to_bytes
from seqloom.training.devices import Ranks
from seqloom.training.state import FORMAT, Machine, TrainingState


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers of a model as they are; what is known by two names (a tied table) comes under the first."""
    found: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), (name, tensor))
    return {name: tensor.detach() for name, tensor in found.values()}


@torch.no_grad()
def put(mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Copy the numbers of `given` into `mine`."""
    for name, tensor in mine.items():
        put_whole(tensor, given[name])


def copy_all(part: str, mine: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Put every tensor of a part back. DurableError if one is missing, unknown, or of another shape."""
    wrong = sorted(mine.keys() ^ given.keys())
    wrong = wrong or [name for name, tensor in mine.items() if tensor.shape != given[name].shape]
    if wrong:
        raise DurableError(
            f"the part '{part}' of the checkpoint does not fit this run: {', '.join(wrong[:3])}"
            f"{' and so on' if len(wrong) > 3 else ''} {'is' if len(wrong) == 1 else 'are'} not on both sides alike",
            fix="go on with the model and the optimiser of the run, or begin in a new folder",
        )
    put(mine, given)


def leaves_of(state: Any) -> list[Tensor]:
    """The tensors of a nest of tuples, from left to right."""
    return [state] if isinstance(state, Tensor) else [leaf for part in state for leaf in leaves_of(part)]


def plain(tensor: Tensor) -> Tensor:
    """The tensor, whole: one that is spread over ranks is gathered."""
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole


# Weights averaged over time: along the way (exponential moving average), or over the last checkpoints.
#
#     average <- average + (1 - decay) (weights - average)                       Polyak and Juditsky 1992
#     decay of step n = min(decay, (1 + n) / (10 + n))       so that the random start is soon forgotten
#
# Averaged weights are what is validated and shipped; training goes on from its own.


class Average:
    """The moving average of a model's weights, on their device."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._weights = [weight.detach() for weight in trained.values()]
        self.values = {name: weight.detach().clone() for name, weight in trained.items()}

    @torch.no_grad()
    def follow(self, step: int, hold: Tensor) -> None:
        """Move the average a little nearer to the weights, or leave it bit for bit if `hold` is 1."""
        values = list(self.values.values())
        pace = (1 - min(self.decay, (1 + step) / (10 + step))) * (1 - hold)
        change = torch._foreach_sub(self._weights, values)
        torch._foreach_mul_(change, pace)
        torch._foreach_add_(values, change)


def mean_of(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models' weights, name by name; whole numbers are those of the last.

    >>> mean_of([{"w": torch.tensor([1.0, 4.0])}, {"w": torch.tensor([3.0, 4.0])}])
    {'w': tensor([2., 4.])}
    """
    last = weights[-1]
    return {
        name: _mean([one[name] for one in weights]) if last[name].is_floating_point() else last[name] for name in last
    }


def _mean(tensors: list[Tensor]) -> Tensor:
    """The mean, added up in float64 where the device has it, so that it does not depend on the order."""
    wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
    total = torch.zeros_like(tensors[0], dtype=wide)
    for tensor in tensors:
        total += tensor.to(total.device)
    return (total / len(tensors)).to(tensors[0].dtype)


# Weights in parts: what one of several processes holds, and the whole again from the parts of all.
#
# `fully_shard` cuts each tensor along its first axis, one part for each process; tensors that are not cut (counters,
# and everything of a run that is not sharded) are whole everywhere. The place of a part is three numbers, so a
# checkpoint of two processes opens in one or in three: its parts are put together, and each process takes its own
# again.
#
#     rank 0  [rows 0..4)  ┐                    ┌ rank 0 of 3  [0..3)
#     rank 1  [rows 4..7)  ┘──▶ whole [7 rows] ─┼ rank 1 of 3  [3..6)
#                                               └ rank 2 of 3  [6..7)


class ShardPlace(NamedTuple):
    """Where a part lies in the whole: its first row, and the shape of the whole."""

    first: int
    shape: tuple[int, ...]


class ShardPart(NamedTuple):
    """The tensors that one process holds; those that have a place are parts of larger ones."""

    tensors: dict[str, Tensor]
    places: dict[str, ShardPlace]


def part_of(tensors: Mapping[str, Tensor]) -> ShardPart:
    """What this process holds of each tensor, and where it lies."""
    places = {name: _place(tensor) for name, tensor in tensors.items() if isinstance(tensor, DTensor)}
    held = {name: tensor.detach() for name, tensor in tensors.items()}
    own = {name: tensor.to_local() if isinstance(tensor, DTensor) else tensor for name, tensor in held.items()}
    return ShardPart(own, places)


def _place(tensor: DTensor) -> ShardPlace:
    if tensor.placements != (Shard(0),):
        raise NotImplementedError(f"a tensor cut as {tensor.placements}")  # fully_shard on one axis of devices cuts so
    offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)[1]
    return ShardPlace(min(offset[0], tensor.shape[0]), tuple(tensor.shape))


def whole_of(parts: Sequence[ShardPart]) -> dict[str, Tensor]:
    """The whole tensors that the parts of all processes make; DamagedError if rows are missing or there twice."""
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
            raise DamagedError(f"{name}: expected a part from row {row} on, found one from row {first} on")
        row += len(piece)
    joined = torch.cat([piece for _, piece in pieces])
    if tuple(joined.shape) != shape:
        raise DamagedError(f"{name}: expected {list(shape)}, found parts that make {list(joined.shape)}")
    return joined


def put_whole(target: Tensor, whole: Tensor) -> None:
    """Give a weight, or this process's part of it, the values of the whole tensor, or of one cut alike."""
    with torch.no_grad():
        if isinstance(target, DTensor) and not isinstance(whole, DTensor):
            own, first = target.to_local(), _place(target).first
            own.copy_(whole[first : first + len(own)])
        else:
            target.copy_(whole)


Record = TypeVar("Record", TrainingState, Machine)
OWN = "carried"  # the tensors that belong to the rows of one process
_FILE = re.compile(r"(?P<group>[a-z]+)(-(?P<rank>[0-9]{5})-of-(?P<count>[0-9]{5}))?\.safetensors")


class Checkpoint(NamedTuple):
    """Where a run stands, on which machine, its tensors by group: model, optimiser, perhaps average, carried, best."""

    standing: TrainingState
    machine: Machine
    tensors: dict[str, dict[str, Tensor]]


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies, if there is one."""
    return folder / f"step-{step:08d}"


def save(folder: Path, checkpoint: Checkpoint, ranks: Ranks, *, files: FileLayer = REAL_FILES) -> Path:
    """The folder of the checkpoint; when it returns, on every process, a power cut cannot take it back.

    A folder of the same step is replaced: a run that went back behind a damaged one comes to its step again. Numbers
    that are not finite are refused. DurableError on all processes if one of them fails; what was there is there.
    """
    path, main = path_of(folder, checkpoint.standing.step), ranks.rank == 0

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
    """The files that this process writes; nothing is written if one of them cannot be made."""
    contents = {}
    for group, tensors in checkpoint.tensors.items():
        apart = ranks.sharded or (group == OWN and ranks.count > 1)
        if apart or ranks.rank == 0:
            part = part_of(tensors) if ranks.sharded and group != OWN else ShardPart(tensors, {})
            if bad := not_finite(part.tensors):
                raise DurableError(
                    f"{group}: {', '.join(bad[:3])} hold numbers that are not finite", fix="lower --rate"
                )
            ending = f"-{ranks.rank + 1:05d}-of-{ranks.count:05d}" if apart else ""
            contents[f"{group}{ending}.safetensors"] = _packed(part)
    if ranks.rank == 0:
        contents |= {
            CheckpointFile.STANDING: _text(checkpoint.standing),
            CheckpointFile.MACHINE: _text(checkpoint.machine),
        }
    return contents


def _packed(part: ShardPart) -> bytes:
    """The file of some tensors; its note names those that share one tensor, which is stored once, and the parts.

    {"places": {"embedding.weight": [40, [80, 16]]}, "tied": {"head.weight": "embedding.weight"}}
    """
    first_of: dict[tuple[Any, ...], str] = {}
    tied: dict[str, str] = {}
    for name, tensor in part.tensors.items():
        memory = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        first = first_of.setdefault(memory, name)
        if first != name and tensor.numel():  # all empty tensors are at the same address
            tied[name] = first
    stored = {name: tensor for name, tensor in part.tensors.items() if name not in tied}
    return to_bytes(stored, {"tied": tied, "places": {name: list(place) for name, place in part.places.items()}})


def _unpacked(data: bytes, name: str) -> ShardPart:
    """The tensors of a file; tied names share one tensor again."""
    tensors, note = from_bytes(data, name)
    try:
        tensors |= {other: tensors[first] for other, first in note["tied"].items()}
        places = {other: ShardPlace(first, tuple(shape)) for other, (first, shape) in note["places"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{name}: expected tensors, found something else ({error!r})") from error
    return ShardPart(tensors, places)


def _text(value: TrainingState | Machine) -> bytes:
    try:
        return json.dumps(msgspec.to_builtins(value), indent=2, allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise DurableError("where the run stands holds a number that is not finite", fix="lower --rate") from error


def _together(ranks: Ranks, work: Callable[[], Any]) -> list[Any]:
    """What the work of each process gave, on all of them; an error of one is an error of all."""
    try:
        told = {"done": work()}
    except DurableError as error:
        told = {"problem": error.problem, "fix": error.fix}
    answers = [json.loads(answer) for answer in ranks.gather(json.dumps(told).encode())]
    for number, answer in enumerate(answers):
        if "problem" in answer:
            where = f" (process {number})" if ranks.count > 1 else ""
            raise DurableError(answer["problem"] + where, fix=answer["fix"])
    return [answer["done"] for answer in answers]


def estimated_bytes(tensors: Mapping[str, Mapping[str, Tensor]]) -> int:
    """How many bytes a checkpoint of these tensors takes on the disk, or a few more; parts are counted as a whole."""
    files = [[(name, tensor.nbytes) for name, tensor in group.items()] for group in tensors.values()]
    return 16_384 + sum(4_096 + sum(size + 128 + len(name) for name, size in file) for file in files)


def steps(folder: Path) -> list[Path]:
    """The folders of checkpoints, oldest first; not looked into."""
    return [path for _, path in reversed(durable.numbered(folder)[0])]


def newest(folder: Path, ranks: Ranks) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The newest checkpoint that verifies, None if there is none yet, and what was passed over and why.

    DamagedError if there are checkpoints and none can be used: a run must not begin anew over them. Process 0 chooses;
    the others read what it chose.
    """
    chosen: Checkpoint | None = None
    found: list[Any] = ["", []]
    if ranks.rank == 0:
        chosen, found = _newest(folder, ranks)
    path, skipped = json.loads(ranks.share(json.dumps(found).encode()))
    if path is None:
        raise DamagedError(
            f"{folder}: no checkpoint can be used: {'; '.join(skipped)}",
            fix="restore one from a copy, or train in another folder",
        )
    if path and ranks.rank:
        chosen = read(folder / path, ranks)
    return chosen, tuple(skipped)


def _newest(folder: Path, ranks: Ranks) -> tuple[Checkpoint | None, list[Any]]:
    """The checkpoint; its name, empty if there is none, None if there are only damaged ones; what was passed over."""
    listed, passed = durable.numbered(folder)
    skipped = [f"{one.path.name} was passed over: {one.reason}" for one in passed]
    for _, path in listed:
        try:
            return read(path, ranks), [path.name, skipped]
        except DurableError as error:
            skipped.append(f"{path.name} was passed over: {error}")
    return None, [None if listed else "", skipped]


def read(path: Path, ranks: Ranks) -> Checkpoint:
    """A checkpoint whose every byte is as saved, its tensors whole and on the processor; otherwise DamagedError.

    Parts that the processes of another number wrote are put together. ConfigError for one that was written by another
    version of Seqloom, or that lacks something.
    """
    rank, texts = ranks.rank + 1, dict[str, bytes]()
    parts: dict[str, dict[int, ShardPart]] = {}
    for name, data in durable.read_folder(path):
        match = _FILE.fullmatch(name)
        if match is None:
            texts[name] = data
        # Of one process's tensors only its own are read; after a change of their number they are nobody's.
        elif match["group"] != OWN or (int(match["rank"] or 1), int(match["count"] or 1)) == (rank, ranks.count):
            parts.setdefault(match["group"], {})[int(match["rank"] or 1)] = _unpacked(data, f"{path}/{name}")
    standing = _decoded(path / CheckpointFile.STANDING, texts.get(CheckpointFile.STANDING), TrainingState)
    if path != path_of(path.parent, standing.step):
        raise DamagedError(f"{path}: expected step {path.name[5:]}, found {standing.step} in {CheckpointFile.STANDING}")
    tensors = {group: whole_of([of_rank[rank] for rank in sorted(of_rank)]) for group, of_rank in parts.items()}
    machine = _decoded(path / CheckpointFile.MACHINE, texts.get(CheckpointFile.MACHINE), Machine)
    return Checkpoint(standing, machine, tensors)


def _decoded(path: Path, data: bytes | None, kind: type[Record]) -> Record:
    """The record in a JSON file, with nothing missing: a default would silently change how the run goes on."""
    try:
        plain = json.loads(data or b"null")
        if kind is TrainingState and isinstance(plain, dict) and plain.get("format") != FORMAT:
            raise ConfigError(
                f"{path}: expected format {FORMAT}, found {plain.get('format')}",
                fix="go on with the Seqloom that wrote it, or train in another folder",
            )
        decoded = msgspec.convert(plain, kind)
    except (ValueError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path}: {error}", fix="go on with the Seqloom that wrote it") from error
    if missing := [name for name in kind.__struct_fields__ if name not in plain]:
        raise ConfigError(
            f"{path} lacks {', '.join(missing)}, without which a run cannot go on as it would have",
            fix="go on with the Seqloom that wrote it, or train in another folder",
        )
    return decoded


def read_standing(path: Path) -> TrainingState:
    """Where the run stood at a checkpoint; its other files are not looked at."""
    name = CheckpointFile.STANDING
    return _decoded(path / name, durable.read_file_of(path, name), TrainingState)


def read_machine(path: Path) -> Machine:
    """On which machine a checkpoint was saved; its other files are not looked at."""
    name = CheckpointFile.MACHINE
    return _decoded(path / name, durable.read_file_of(path, name), Machine)


def retain(folder: Path, keep: int, chosen_step: int | None, *, files: FileLayer = REAL_FILES) -> Pruned:
    """What was kept and removed: the `keep` newest that verify stay, and the one that is shipped; for process 0."""
    return durable.prune(folder, keep, protect=() if chosen_step is None else (chosen_step,), files=files)


# When a validation and a checkpoint are due, and which checkpoints lie elsewhere.
#
# A signal asks for a checkpoint in between. It must leave no trace in what comes out: it takes the place of no other
# one, is in no mean of checkpoints, and goes when the next one that is due is there.


def validation_is_due(config: TrainingConfig, standing: TrainingState) -> bool:
    """Whether the dev part is looked at here: at the end of an epoch, or every so many steps."""
    return standing.index == 0 if config.validate_every == 0 else standing.step % config.validate_every == 0


def save_is_due(config: TrainingConfig, standing: TrainingState) -> bool:
    """Whether a checkpoint is written here: behind a validation, or every so many steps.

    >>> save_is_due(TrainingConfig(save_every=7), TrainingState(step=21))
    True
    >>> save_is_due(TrainingConfig(), TrainingState(index=1))
    False
    """
    return validation_is_due(config, standing) if config.save_every == 0 else standing.step % config.save_every == 0


def in_between(folder: Path, config: TrainingConfig) -> Iterator[Path]:
    """The checkpoints, oldest first, that were not due where they lie."""
    for path in steps(folder):
        try:
            if not save_is_due(config, read_standing(path)):
                yield path
        except DurableError:  # one that is damaged is for `retain`
            continue
