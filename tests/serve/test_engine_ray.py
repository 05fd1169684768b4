"""The application for Ray Serve: what can be tested without a cluster, and what is said where Ray is missing."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError, MissingExtraError
from seqloom.serve.ray import Replica, app, config_of, models_of
from serve_common import SharedForks


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'seqloom\[ray\]'"):
        app({"models": "runs/reviews"})


@pytest.mark.parametrize(
    "given", [{}, {"models": ","}, {"models": "a", "replicas": "0"}, {"models": "a", "batch": "3"}]
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


@pytest.mark.slow
def test_a_replica_answers_and_refuses_in_json(models: dict[str, Path], forks: SharedForks) -> None:
    async def check() -> None:
        replica = Replica({"reviews": str(models["reviews"])}, ServingConfig(device="cpu", max_items=2))
        replica.engine._forks = forks
        await replica.start()

        async def asked(**body: Any) -> tuple[int, dict[str, Any]]:
            return await replica.answer(msgspec.json.encode(body))

        status, found = await asked(model="reviews", verb="classify", items=["a good film"])
        assert status == 200 and found["answers"][0]["label"] in ("good", "bad")
        assert (await asked(model="other", verb="classify", items=["a"]))[0] == 404
        assert (await asked(model="reviews", verb="sing", items=["a"]))[0] == 422
        assert (await asked(model="reviews", verb="classify", items=["a"] * 3))[0] == 422
        assert (await replica.answer(b"{"))[0] == 422
        await replica.stop()

    asyncio.run(check())
