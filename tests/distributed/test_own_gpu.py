"""Several GPUs, without any: each process computes on the one that has its number."""

import pytest
import torch

from seqloom.errors import ConfigError
from seqloom.training import distributed as processes
from seqloom.training.devices import LOCAL_RANK, choose_device


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with two GPUs, of which the first is current."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Card {device.index}")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.delenv(LOCAL_RANK, raising=False)


@pytest.mark.parametrize("name", ["auto", "cuda"])
@pytest.mark.parametrize("local", [0, 1])
def test_each_process_computes_on_its_own_gpu_before_and_after_they_meet(
    monkeypatch: pytest.MonkeyPatch, name: str, local: int
) -> None:
    monkeypatch.setenv(LOCAL_RANK, str(local))
    assert choose_device(name).torch == torch.device("cuda", local)  # type: ignore[arg-type]
    assert f"Card {local}" in choose_device(name).messages[0]  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "current_device", lambda: local)  # as `joined` leaves it
    assert choose_device(name).torch == torch.device("cuda", local)  # type: ignore[arg-type]


def test_without_its_number_every_process_would_compute_on_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cuda").torch == torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert choose_device("cuda").torch == torch.device("cuda", 1)


def test_the_processes_meet_on_their_own_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def stop(*_: object) -> None:
        raise InterruptedError("far enough")

    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(processes, "_store", stop)
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", LOCAL_RANK: "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InterruptedError), processes.joined(device="cuda"):
        pass
    assert taken == [1]


def test_a_process_without_a_gpu_is_refused_and_the_processor_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCAL_RANK, "2")
    with pytest.raises(ConfigError, match=r"local rank 2 .* has 2\. Fix: start one process per GPU, or use --"):
        choose_device("cuda")
    assert choose_device("cpu").torch == torch.device("cpu")
