"""The page of next symbols: sliders for temperature, top-k, top-p and min-p that act at once, in the browser.

All log-probabilities of the row travel with the page, four bytes each, so that what the browser sums up is the model's
distribution and not a part of it. The scripts are files of their own (`pages/`), which the tests run too.
"""

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from seqloom.config.decoding import SampleConfig
from seqloom.figures.markup import Markup, tag
from seqloom.figures.page import SHEET, document

SLIDERS: Mapping[str, tuple[float, float, float]] = {  # name: lowest, highest, step
    "temperature": (0.05, 3.0, 0.05),
    "top_k": (0, 100, 1),
    "top_p": (0.01, 1.0, 0.01),
    "min_p": (0.0, 1.0, 0.01),
}
RULES = (
    "#bars th{text-align:right;padding:0 8px;font-weight:400;white-space:pre}"
    "thead th{text-align:left;padding:0 6px;font-weight:400}thead .after,thead .before{height:4px}"
    "#bars td{padding:1px 6px;font-variant-numeric:tabular-nums}#bars td:nth-child(2){width:460px}"
    ".before,.after{height:7px;}.before{background:#737b87}.after{background:#336d9c}"
    "main>label{display:inline-block}main>table{border-collapse:collapse}"
)


def page(
    title: str,
    below: Sequence[Markup],
    how: SampleConfig,
    logs: np.ndarray,
    names: Sequence[str],
    places: Sequence[Mapping[str, Any]],
) -> str:
    """One HTML file with the sliders above what stands `below`."""
    options = [tag("option", f"{at} {place['said']}", value=str(at)) for at, place in enumerate(places)]
    body = [
        tag("h1", title),
        *(_slider(name, float(getattr(how, name))) for name in SLIDERS),
        tag(
            "p", "The distribution as the model has it (grey) and as it is drawn (blue).", id="kept", aria_live="polite"
        ),
        tag("table", tag("thead", _head()), tag("tbody", " ", id="bars")),
        tag("label", "The likeliest at row ", tag("select", *(options or [tag("option", "none")]), id="place")),
        tag("p", " ", id="likeliest", aria_live="polite"),
        *below,
    ]
    data = {
        "logs": base64.b64encode(logs.astype("<f4").tobytes()).decode(),
        "names": list(names),
        "places": list(places),
    }
    return document(title, body, SHEET + RULES, script=script("sampling.js") + script("next_symbols.js"), data=data)


def _head() -> Markup:
    """What each column is, with the colour of its bar."""
    names = {"before": "as the model has it", "after": "as it is drawn"}
    columns = (tag("th", tag("div", " ", class_=kind), name, scope="col") for kind, name in names.items())
    return tag("tr", tag("th", "symbol", scope="col"), tag("th", "probability", scope="col"), *columns)


def script(name: str) -> str:
    """The text of a script that stands beside this module."""
    return files("seqloom.inspection").joinpath("pages", name).read_text(encoding="utf-8")


def _slider(name: str, value: float) -> Markup:
    low, high, step = SLIDERS[name]
    slide = tag("input", id=name, type="range", min=low, max=high, step=step, value=value)
    return tag("label", f"{name.replace('_', '-')} ", slide, " ", tag("output", f"{value:g}", id=f"{name}_said"))
