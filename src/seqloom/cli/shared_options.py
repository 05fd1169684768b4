"""Options that several verbs have: written once, as the fields of a tuple, and added to the signature of each verb.

    class FileOptions(NamedTuple):                    @shares(FileOptions)
        header: Header = True              and        def predict(model: Model, *, shared: FileOptions) -> None: ...

is the command `predict MODEL [--header]`, which gets what was typed as one value.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

SHARED = "shared"  # the parameter of a verb that gets them


def shares(options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the same verb with the fields of a NamedTuple as options behind its own."""
    kinds: dict[str, Any] = options.__annotations__
    defaults: dict[str, Any] = options._field_defaults

    def shared(verb: Callable[..., None]) -> Callable[..., None]:
        own = [one for one in inspect.signature(verb).parameters.values() if one.name != SHARED]
        named = inspect.Parameter.KEYWORD_ONLY
        added = [inspect.Parameter(name, named, default=defaults[name], annotation=kinds[name]) for name in kinds]

        @wraps(verb)
        def called(**values: Any) -> None:
            given = {name: values.pop(name) for name in kinds}
            verb(**values, **{SHARED: options(**given)})

        called.__annotations__ = {one.name: one.annotation for one in (*own, *added)}
        called.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]  # what typer reads
        return called

    return shared
