"""Values and rows as they are written to files: floats with six significant digits, and lines of csv."""

import csv
import io
from collections.abc import Iterable
from typing import Any

import msgspec

WHOLE = 1e6  # from here on, six significant digits have no decimals


def rounded_text(value: Any) -> Any:
    """The same plain value, with each float rounded to six significant digits.

    >>> rounded_text({"scores": {"good": 0.12345678901234567}, "numbers": [1234567.75, -2e-9], "line": 3})
    {'scores': {'good': 0.123457}, 'numbers': [1234568.0, -2e-09], 'line': 3}
    """
    if isinstance(value, dict):
        return {name: rounded_text(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded_text(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < WHOLE else round(value, 0)
    return value


def cell(value: Any) -> Any:
    """Return a value as a csv cell: None is empty; booleans, lists and objects are JSON.

    >>> cell(None), cell(True), cell(["a", "b"]), cell(0.5)
    ('', 'true', '["a","b"]', 0.5)
    """
    if isinstance(value, bool | list | tuple | dict):
        return msgspec.json.encode(value).decode()
    return "" if value is None else value


def row(values: Iterable[Any]) -> bytes:
    r"""A csv line of these values.

    >>> row(["a, b", None, 3])
    b'"a, b",,3\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([cell(value) for value in values])
    return text.getvalue().encode()


def flat(value: dict[str, Any]) -> dict[str, Any]:
    """Flatten nested dictionaries.

    >>> flat({"label": "good", "scores": {"good": 0.9, "bad": 0.1}})
    {'label': 'good', 'scores.good': 0.9, 'scores.bad': 0.1}
    """
    inner = {name: one for name, one in value.items() if isinstance(one, dict)}
    plain = {name: one for name, one in value.items() if name not in inner}
    return plain | {f"{name}.{key}": one for name, part in inner.items() for key, one in part.items()}
