"""The same models on a Ray cluster: an application that Ray Serve starts, watches and scales.

    serve run seqloom.serve.ray:app models=reviews=runs/reviews,lm=runs/lm replicas=2 num_gpus=1

`app` is an application builder: Ray calls it with the arguments and runs what it returns. Each replica is a process of
Ray with an engine of its own, so it batches its requests as `seqloom serve` does; Ray distributes requests between the
replicas. A replica sees as many GPUs as `num_gpus` says (default: 0; 0.5 shares one). The folders must be on a disk
that all machines of the cluster share. A request is JSON, {"model", "verb", "texts", "options"}, and so is its answer;
models that read no text have "inputs" instead of "texts".
Further arguments are settings of `seqloom serve`: device, max_batch, max_waiting, queue_seconds, total_seconds,
max_items, max_characters, max_tokens, max_new_tokens, max_samples, max_beam_tokens.
Keys, limits of connections and TLS are the cluster's own: this application has none, so put it behind something that
has.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from seqloom.config.options import settings, with_flags
from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError, did_you_mean, needing
from seqloom.serve.answers import HttpRefusal
from seqloom.serve.dispatch import most_requests
from seqloom.serve.engine import Engine
from seqloom.serve.messages import Verb
from seqloom.serve.refusals import Refusal
from seqloom.serve.requests import items_of, require_short

PASSED_ON = (
    *("device", "max_batch", "max_waiting", "queue_seconds", "total_seconds"),
    *("max_items", "max_characters", "max_tokens", "max_new_tokens", "max_samples", "max_beam_tokens"),
)
MOST_GPUS = 64  # of a replica


class ReplicaRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request."""

    model: str
    verb: Verb
    texts: list[Any] | UnsetType = UNSET
    inputs: list[Any] | UnsetType = UNSET
    options: dict[str, Any] = {}


class Replica:
    """One copy of the models; Ray makes it a deployment."""

    def __init__(self, models: Mapping[str, str], config: ServingConfig) -> None:
        self.engine = Engine({name: Path(path) for name, path in models.items()}, config)
        self.config = config

    async def start(self) -> None:
        """Load the models."""
        await self.engine.__aenter__()

    async def stop(self) -> None:
        """End the worker."""
        await self.engine.__aexit__(None, None, None)

    async def answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """The status and the answer of a request."""
        try:
            asked = msgspec.json.decode(body, type=ReplicaRequest)
        except (ValueError, RecursionError):
            return 422, {"problem": "the body is not a request", "fix": "send JSON with model, verb and texts"}
        try:
            field, items = items_of(asked)
            if len(items) > (most := self.config.max_items):
                return 422, {"problem": f"{len(items):,} {field} in a request", "fix": f"send at most {most:,}"}
            require_short([[item] for item in items], field, self.config.max_characters)
            return 200, {"answers": await self.engine.ask(asked.model, asked.verb, items, asked.options)}
        except HttpRefusal as refusal:
            return refusal.status, {"problem": refusal.message, "fix": ""}
        except Refusal as refusal:
            return refusal.status, {"problem": refusal.problem, "fix": refusal.fix}


def app(arguments: Mapping[str, str]) -> Any:
    """The application for Ray Serve, with the models and settings of the arguments."""
    given = dict(arguments)
    models = models_of(given.pop("models", ""))
    replicas = _whole(given.pop("replicas", "1"), "replicas")
    gpus = _share(given.pop("num_gpus", "0"), "num_gpus")
    config = config_of(given)
    with needing("ray"):
        from ray import serve
        from starlette.responses import JSONResponse  # a part of ray[serve]

    class Deployed:
        """A replica with the interface that Ray expects."""

        async def __init__(self) -> None:  # type: ignore[misc]  # Ray awaits it
            self.replica = Replica(models, config)
            await self.replica.start()

        async def __call__(self, request: Any) -> Any:
            status, found = await self.replica.answer(await request.body())
            return JSONResponse(found, status_code=status)

        async def __del__(self) -> None:
            # Ray awaits it when it stops a replica. Python would call it once more, without anybody to await it.
            del Deployed.__del__
            await self.replica.stop()

    return serve.deployment(
        Deployed,
        name="seqloom",
        num_replicas=replicas,
        max_ongoing_requests=most_requests(config),  # the default of Ray is 5: no batch would be full
        ray_actor_options={"num_gpus": gpus},
    ).bind()


def models_of(text: str) -> dict[str, str]:
    """The folders of `name=folder,...`; a folder without a name has its own.

    >>> models_of("reviews=runs/a,runs/lm")
    {'reviews': 'runs/a', 'lm': 'runs/lm'}
    """
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, path = part.partition("=")
        found[name if equals else Path(part).name] = path if equals else part
    if not found:
        raise ConfigError("no models are given", fix="add models=NAME=FOLDER,...")
    return found


def config_of(given: Mapping[str, str]) -> ServingConfig:
    """The settings of a replica, from arguments of the command line."""
    known = settings(ServingConfig, *PASSED_ON)
    for name in given:
        if name not in known:
            raise ConfigError(
                f"there is no argument '{name}'", fix=did_you_mean(name, ["models", "replicas", "num_gpus", *known])
            )
    return with_flags(ServingConfig(), {name: _value(value) for name, value in given.items()})


def _value(text: str) -> str | int | float:
    """A number, if the text spells one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _share(text: str, name: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= MOST_GPUS:
        raise ConfigError(f"{name} is {text!r}", fix=f"give a number from 0 to {MOST_GPUS}")
    return found


def _whole(text: str, name: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"{name} is {text!r}", fix="give a whole number of at least 1")
    return int(text)
