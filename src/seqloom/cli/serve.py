"""`seqloom serve`: answer HTTP requests with models, on this machine unless it is told otherwise."""

import re
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from seqloom.cli.options import Given, takes
from seqloom.config.options import settings, with_flags
from seqloom.config.serving import ServingConfig
from seqloom.errors import ConfigError, near_folder, needing

if TYPE_CHECKING:
    from seqloom.serve.engine import Engine, ModelCard

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
MODEL_FOLDER = "model"  # in a run folder; the run has the better name
EXAMPLES: dict[str, object] = {
    "text": "some text",
    "pair": ["a text", "another text"],
    "triple": ["a text", "another text", "a third text"],
    "words": ["some", "words"],
}
MASKED_EXAMPLE = "some [MASK] text"


@takes(
    settings(ServingConfig),
    common=("host", "port", "workers", "device", "keys", "hosts", "max_batch", "max_waiting", "max_items"),
    examples=(
        "seqloom serve runs/reviews",
        "seqloom serve runs/reviews names=runs/conll docs.index --port 9000",
        "seqloom serve runs/reviews --host 0.0.0.0 --hosts models.example.com --keys keys.txt",
    ),
)
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL", help="Run, model or index folder; NAME=FOLDER gives it another name than its folder."
        ),
    ],
    *,
    given: Given,
) -> None:
    """Answer HTTP requests with models. Without options only programs of this machine can send them."""
    config = with_flags(ServingConfig(), given)
    folders = named(models)
    with needing("serve"):
        from seqloom.serve.listener import serve as run

    def started(engine: "Engine", port: int) -> None:
        for line in _first_lines(engine, config, port):
            typer.echo(line)
        sys.stdout.flush()

    typer.echo(f"loading {', '.join(folders)}", err=True)  # it takes some seconds
    stopped_by = run(folders, config, log=sys.stderr, started=started)
    if stopped_by == signal.SIGINT:
        raise KeyboardInterrupt


def named(models: list[str]) -> dict[str, Path]:
    """Return the folders by name; ConfigError for one that is missing, or two of one name.

    >>> named(["/", "here=/"])
    Traceback (most recent call last):
    seqloom.errors.ConfigError: the folder / has no name for an address. Fix: give it one: NAME=/.
    """
    found: dict[str, Path] = {}
    for text in models:
        name, _, rest = text.partition("=")
        path = Path(text if not rest or Path(text).exists() else rest)
        if not rest or path == Path(text):
            whole = path.resolve()
            name = whole.parent.name if whole.name == MODEL_FOLDER else whole.name
        if not path.is_dir():
            raise ConfigError(f"there is no folder {path}", fix=near_folder(path))
        if NAME.fullmatch(name) is None:
            raise ConfigError(f"the folder {path} has no name for an address", fix=f"give it one: NAME={path}")
        if name in found:
            raise ConfigError(f"two models are named {name}", fix=f"give one of them another name: NAME={path}")
        found[name] = path
    return found


def _first_lines(engine: "Engine", config: ServingConfig, port: int) -> list[str]:
    """Return what is served, and a command to paste."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    base = f"http://{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}"
    cards = list(engine.models.values())
    lines = [f"{card.name}: {', '.join(sorted(card.abilities)) or card.task}" for card in cards]
    return [
        *lines,
        f"listening on {address(config, base)}; stop with Ctrl-C",
        "try:",
        f"  {_curl(cards, config, base)}",
    ]


def address(config: ServingConfig, base: str) -> str:
    """Return where the server can be asked; on all addresses of the machine also under which names, if there are any.

    >>> address(ServingConfig(host="0.0.0.0", keys="keys.txt"), "http://127.0.0.1:8000")
    'http://127.0.0.1:8000 (only from this machine: to let others ask, add --hosts with its names)'
    >>> address(ServingConfig(host="::", hosts=("models.example",), keys="keys.txt"), "http://127.0.0.1:8000")
    'http://127.0.0.1:8000 and, from other machines, as models.example'
    """
    if config.host not in ("0.0.0.0", "::"):
        return base
    if not config.hosts:
        return f"{base} (only from this machine: to let others ask, add --hosts with its names)"
    return f"{base} and, from other machines, as {', '.join(config.hosts)}"


def _curl(cards: "list[ModelCard]", config: ServingConfig, base: str) -> str:
    """Return a curl command that asks the first model."""
    from seqloom.serve.engine import VERBS

    card = cards[0]
    curl = "curl" if config.keys is None else f"{_first_key(config.keys)} | curl -H @-"
    verbs = [verb for verb in VERBS if verb in card.abilities]
    if not verbs or card.input not in EXAMPLES:
        return f"{curl} {base}/v1/models"
    named = {} if sum(verbs[0] in one.abilities for one in cards) == 1 else {"model": card.name}
    example = MASKED_EXAMPLE if verbs[0] == "fill" else EXAMPLES[card.input]
    body = msgspec.json.encode({**named, card.field: [example]}).decode()
    return f"{curl} {base}/v1/{verbs[0]} -H 'Content-Type: application/json' -d {shlex.quote(body)}"


def _first_key(path: str) -> str:
    """A command that prints the header with the first key; in an argument of curl all users could see it.

    >>> _first_key("my keys")
    "sed -n '/^[^#]*:/{s/^[^:]*:/Authorization: Bearer /p;q;}' 'my keys'"
    """
    return f"sed -n '/^[^#]*:/{{s/^[^:]*:/Authorization: Bearer /p;q;}}' {shlex.quote(path)}"
