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
  told.textContent = now ? at + " of " + steps.length + ": " + now.text : "Start: move the slider or press a button.";
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
