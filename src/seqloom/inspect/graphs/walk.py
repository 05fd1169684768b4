"""A graph as a page to walk through: a slider goes forward over the values and back over the gradients.

Each part of a model is a section with a picture of its own; a box that holds more opens its section. One script serves
all graphs, knows nothing about them but their steps, and asks nobody for anything: the page works from a file. What
stands behind `#` in the address is the part, and behind an `@` the step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from seqloom.report.document import Interactive
from seqloom.report.figures.figure import Figure
from seqloom.report.figures.markup import Markup, tag

RULES = (
    ".walk{display:flex;gap:12px;align-items:center;margin:16px 0 8px}.walk input{flex:1;max-width:640px}"
    ".told{min-height:3.2em;white-space:pre-wrap;font-size:16px}.way{display:flex;flex-wrap:wrap;gap:6px}"
    "[data-card].now>rect{stroke-width:3}[data-opens]{cursor:pointer}[data-opens]:focus{outline:2px solid #1c66be}"
    "section[hidden]{display:none}section h2{margin:12px 0}section figure{margin:0 -20px}"
)
SCRIPT = """
"use strict";
const parts = JSON.parse(document.getElementById("data").textContent).parts;
const sections = [...document.querySelectorAll("section")];
const shown = (element, visible) => element.setAttribute("visibility", visible ? "visible" : "hidden");
function walk(section, steps) {
  const slider = section.querySelector("input");
  const told = section.querySelector(".told");
  if (!slider) { return; }
  const at = Number(slider.value);
  const done = steps.slice(0, at);
  const seen = {value: new Set(), slope: new Set()};
  done.forEach(step => seen[step.shows].add(step.card));
  const now = at ? steps[at - 1] : null;
  section.querySelectorAll("[data-card]").forEach(card => {
    const number = Number(card.dataset.card);
    card.querySelectorAll("[data-shows]").forEach(line => {
      if (line.dataset.shows !== "name") { shown(line, seen[line.dataset.shows].has(number)); }
    });
    card.classList.toggle("now", now !== null && now.card === number);
  });
  told.textContent = now ? at + " of " + steps.length + ": " + now.text : "Before the first step.";
}
function open(place) {
  const [name, step] = place.split("@");
  const index = Math.max(0, parts.findIndex(part => part.name === name));
  sections.forEach((section, number) => { section.hidden = number !== index; });
  const slider = sections[index].querySelector("input");
  if (slider && step !== undefined) {
    slider.value = Number(step);
    walk(sections[index], parts[index].steps);
  }
}
sections.forEach((section, number) => {
  const steps = parts[number].steps;
  const slider = section.querySelector("input");
  if (slider) {
    slider.addEventListener("input", () => walk(section, steps));
    section.querySelectorAll("button[data-move]").forEach(button => button.addEventListener("click", () => {
      slider.value = Number(slider.value) + Number(button.dataset.move);
      walk(section, steps);
    }));
    walk(section, steps);
  }
});
document.querySelectorAll("[data-opens]").forEach(element => {
  const go = () => { location.hash = encodeURIComponent(element.dataset.opens); };
  element.addEventListener("click", go);
  element.addEventListener("keydown", event => { if (event.key === "Enter") { go(); } });
});
const follow = () => open(decodeURIComponent(location.hash.slice(1)));
window.addEventListener("hashchange", follow);
follow();
"""


class WalkStep(NamedTuple):
    """One step of the walk: a box gets its value, or its gradient."""

    card: int
    shows: str  # value, slope
    text: str


class WalkPart(NamedTuple):
    """What one section of the page shows."""

    name: str  # what boxes that lead here say
    title: str
    said: Sequence[str]
    figures: Sequence[Figure]
    steps: Sequence[WalkStep]
    way: Sequence[tuple[str, str]] = ()  # (words, part) to go to: those around it, those beside it


@dataclass(frozen=True)
class GraphWalk(Interactive):
    """A section for each part, the first one open; without a script all of them are seen."""

    rules: ClassVar[str] = RULES
    parts: Sequence[WalkPart]

    def markup(self) -> list[Markup]:
        return [_section(part) for part in self.parts]

    def script(self) -> str:
        return SCRIPT

    def data(self) -> Mapping[str, Any]:
        return {"parts": [{"name": part.name, "steps": [step._asdict() for step in part.steps]} for part in self.parts]}


def _section(part: WalkPart) -> Markup:
    way = [tag("button", words, type="button", data_opens=to) for words, to in part.way]
    inside = [
        *([tag("nav", *way, class_="way")] if way else []),
        *([tag("h2", part.title)] if part.title else []),
        *(tag("p", sentence) for sentence in part.said),
        *(_controls(len(part.steps)) if part.steps else []),
        *(tag("figure", figure.drawn(styled=False)) for figure in part.figures),
    ]
    return tag("section", *inside)


def _controls(count: int) -> list[Markup]:
    slider = tag("input", type="range", min=0, max=count, value=count, aria_label="step, forward and then back")
    back = tag("button", "◀", type="button", data_move=-1, aria_label="one step back")
    on = tag("button", "▶", type="button", data_move=1, aria_label="one step on")
    return [tag("div", back, slider, on, class_="walk"), tag("p", " ", class_="told", aria_live="polite")]
