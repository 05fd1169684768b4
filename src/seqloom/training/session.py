"""What a run works with: everything that is fixed before its first step."""

from typing import NamedTuple

from torch import nn

from seqloom.config.training import RunConfig
from seqloom.data.prepared import Prepared
from seqloom.tasks.task import Task
from seqloom.training.devices import Device
from seqloom.training.distributed import Ranks
from seqloom.training.run_folder import RunFolder
from seqloom.training.signals import Stopping


class Session(NamedTuple):
    """A run folder, a configuration, data without its test part, and where to compute."""

    folder: RunFolder
    config: RunConfig
    prepared: Prepared
    task: Task
    model: nn.Module  # fresh, or with the weights it starts from; on the device
    ranks: Ranks
    device: Device
    stopping: Stopping
    workers: int = 2
    said: tuple[str, ...] = ()
