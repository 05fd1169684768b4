"""Devices: what is chosen and why, what is refused, and flags that are put back."""

import os
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from seqloom.errors import ConfigError
from seqloom.training.devices import CUBLAS, Alone, Device, choose_device, describe, deterministic, environment
from update_common import PLAIN


def pretend(monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False, capability: int = 8) -> None:
    """This machine has the devices that are true."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some Card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (capability, 0))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("there", "kind", "precision"),
    [
        ({"cuda": True, "mps": True}, "cuda", "bf16"),
        ({"cuda": True, "capability": 7}, "cuda", "float32"),
        ({"mps": True}, "mps", "float32"),
        ({}, "cpu", "float32"),
    ],
)
def test_auto_takes_the_fastest_device_and_a_precision_that_gains(
    there: dict[str, Any], kind: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, **there)
    device = choose_device("auto", "auto")
    assert (device.torch.type, device.precision) == (kind, precision)
    (said,) = device.messages
    assert said.startswith(f"device: {describe(device.torch)} (") and f"), precision: {precision} (" in said
    assert choose_device("cpu", "float32").messages == (
        "device: cpu, precision: float32",
    )  # as asked: nothing to explain


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_with_the_reason(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    with pytest.raises(ConfigError, match=rf"--device {name}, but .*\. Fix: use --device cpu or auto"):
        choose_device(name, "auto")


def test_what_is_asked_for_is_taken_and_slowness_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, cuda=True)
    with monkeypatch.context() as without:
        without.setattr(torch.ops, "mkldnn", None)  # some builds lack it, and float32 needs none of it
        assert choose_device("cpu", "float32")[:2] == (torch.device("cpu"), "float32")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    slow = choose_device("cpu", "bf16")
    assert slow.precision == "bf16" and "slower than float32" in slow.messages[0]
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert "slower" not in choose_device("cpu", "bf16").messages[0]
    assert len(choose_device("cpu", "auto", deterministic=True).messages) == 2


@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_products_are_computed_in_the_precision(precision: Any, dtype: torch.dtype) -> None:
    one = torch.ones(2, 2, device="cpu")
    with Device(torch.device("cpu"), precision).mixed():
        assert (one @ one).dtype == dtype
    assert (one @ one).dtype == torch.float32


@pytest.mark.slow  # it loads torch's compiler
def test_deterministic_kernels_are_asked_for_inside_only() -> None:
    def flags() -> tuple[Any, ...]:
        enabled, warned = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
        return enabled, warned, os.environ.get(CUBLAS)

    before = flags()
    with deterministic(PLAIN):
        assert flags() == before
    with deterministic(replace(PLAIN, deterministic=True)):
        assert flags()[:2] == (True, False) and flags()[2] is not None
    assert flags() == before
    with pytest.raises(ValueError, match="inside"), deterministic(replace(PLAIN, deterministic=True)):
        raise ValueError("inside")
    assert flags() == before


def test_the_environment_names_what_bit_equality_depends_on() -> None:
    found = environment(Device(torch.device("cpu")), Alone())
    assert (found.device, found.ranks, found.sharded) == ("cpu", 1, False)
    assert found.torch == torch.__version__ and found.threads == torch.get_num_threads() and found.capability
