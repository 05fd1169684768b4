"""The application for Ray Serve: what can be tested without a cluster, and what is said where Ray is missing."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError, MissingExtraError
from seqloom.serve.ray import Replica, app, config_of, models_of
from serve_common import SharedForks, until


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'seqloom\[ray\]'"):
        app({"models": "runs/reviews"})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"models": ","},
        {"models": "a", "replicas": "0"},
        {"models": "a", "batch": "3"},
        {"models": "a", "num_gpus": "nan"},
    ],
)
def test_arguments_are_checked_before_ray_is_needed(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError):
        app(given)


def test_arguments_are_settings() -> None:
    assert models_of("reviews=runs/a,runs/lm") == {"reviews": "runs/a", "lm": "runs/lm"}
    assert config_of({"max_batch": "8", "queue_seconds": "2.5", "device": "cpu"}) == ServingConfig(
        max_batch=8, queue_seconds=2.5, device="cpu"
    )


class StubRequest:
    """A request as Ray gives it."""

    def __init__(self, **body: Any) -> None:
        self.data = msgspec.json.encode(body)

    async def body(self) -> bytes:
        return self.data


@pytest.mark.slow
def test_what_ray_is_given(models: dict[str, Path], forks: SharedForks, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stub of `ray.serve` that does what Ray does: it awaits `__init__`, `__call__` and `__del__`."""
    given: dict[str, Any] = {}

    def deployment(kind: Any, **options: Any) -> Any:
        given.update(options, kind=kind)
        return SimpleNamespace(bind=lambda: "the application")

    serve = ModuleType("ray.serve")
    serve.deployment = deployment  # type: ignore[attr-defined]
    ray = ModuleType("ray")
    ray.serve = serve  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.serve", serve)
    monkeypatch.setattr("seqloom.serve.engine.ForkServer", lambda _: forks)
    arguments = {"models": f"reviews={models['reviews']}", "replicas": "2", "num_gpus": "0.5", "device": "cpu"}
    assert app(arguments | {"max_batch": "8", "max_waiting": "30"}) == "the application"
    kind = given.pop("kind")
    assert given == {
        "name": "seqloom",
        "num_replicas": 2,
        "max_ongoing_requests": 54,
        "ray_actor_options": {"num_gpus": 0.5},
    }

    async def check() -> list[int]:
        one = kind.__new__(kind)
        await one.__init__()
        answer = await one(StubRequest(model="reviews", verb="classify", texts=["a good film"]))
        assert answer.status_code == 200 and b"label" in answer.body
        pids: list[int] = one.replica.engine.worker_pids
        await one.__del__()
        assert not one.replica.engine.ready
        return pids

    (pid,) = asyncio.run(check())
    asyncio.run(until(lambda: not Path(f"/proc/{pid}").exists()))


@pytest.mark.slow
def test_a_replica_answers_and_refuses_in_json(models: dict[str, Path], forks: SharedForks) -> None:
    async def check() -> None:
        replica = Replica(
            {"reviews": str(models["reviews"])}, ServingConfig(device="cpu", max_items=2, max_characters=20)
        )
        replica.engine._forks = forks
        await replica.start()

        async def asked(**body: Any) -> tuple[int, dict[str, Any]]:
            return await replica.answer(msgspec.json.encode(body))

        status, found = await asked(model="reviews", verb="classify", texts=["a good film"])
        assert status == 200 and found["answers"][0]["label"] in ("good", "bad")
        assert (await asked(model="other", verb="classify", texts=["a"]))[0] == 404
        assert (await asked(model="reviews", verb="sing", texts=["a"]))[0] == 422
        assert (await asked(model="reviews", verb="classify", texts=["a"] * 3))[0] == 422
        assert (await asked(model="reviews", verb="classify", texts=["a" * 21]))[0] == 422
        assert (await asked(model="reviews", verb="classify", texts=[["a" * 11, "b" * 10]]))[0] == 422
        assert (await asked(model="reviews", verb="classify"))[0] == 422
        assert (await replica.answer(b"{"))[0] == 422
        await replica.stop()

    asyncio.run(check())
