"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("map"), said = document.getElementById("said");
const choice = document.getElementById("choice"), one = document.getElementById("one");
const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const maps = data.maps.map(map => ({...map, cells: new Uint16Array(bytes(map.cells).buffer)}));
const most = Math.max(...maps.map(map => map.most));
const shades = data.shades.map(shade => shade.match(/[0-9a-f]{2}/g).map(part => parseInt(part, 16)));
let map = maps[0];
const valueAt = (row, column) => {
  const cell = map.cells[row * map.width + column];
  return cell === 65535 ? null : cell / 65534 * map.most;
};
const name = (id, tokens, cells, size) => {
  const shown = size === 1 && cells <= 64 ? tokens.slice(0, cells) : [];
  document.getElementById(id).replaceChildren(...shown.map(token => {
    const label = document.createElement("span");
    label.textContent = token; label.title = token;
    return label;
  }));
};
const draw = () => {
  map = maps[Number(choice.value)];
  const high = one.checked ? most : map.most;
  canvas.width = map.width; canvas.height = map.height;
  canvas.style.width = 760 * Math.min(1, map.width / map.height) + "px";
  const side = data.sides[map.side];
  name("rows", side.rows, map.height, map.down);
  name("columns", side.columns, map.width, map.across);
  document.getElementById("columns").style.maxWidth = canvas.style.width;
  const pen = canvas.getContext("2d"), picture = pen.createImageData(map.width, map.height);
  for (let row = 0; row < map.height; row++) for (let column = 0; column < map.width; column++) {
    const value = valueAt(row, column), at = 4 * (row * map.width + column);
    const level = Math.min(shades.length - 1, Math.floor((value ?? 0) / (high || 1) * shades.length));
    const shade = value === null ? ((row + column) % 3 ? [255, 255, 255] : [176, 176, 176]) : shades[level];
    picture.data.set([...shade, 255], at);
  }
  pen.putImageData(picture, 0, 0);
  const key = document.getElementById("key"), brush = key.getContext("2d");
  shades.forEach((shade, at) => { brush.fillStyle = `rgb(${shade})`; brush.fillRect(at, 0, 1, 1); });
  const whose = one.checked ? "same color scale for all maps" : "color scale of this map";
  document.getElementById("ends").textContent = `0 to ${high.toPrecision(3)} ${data.label}; ${whose}`;
};
const span = (names, at, size, first, every) => {
  const start = at * size, inside = names.slice(start, start + size), text = inside.slice(0, 6).join(" ");
  const last = inside.length > 1 ? "-" + (first + every * (start + inside.length - 1)) : "";
  return `${first + every * start}${last} \u201c${text}${inside.length > 6 ? " \u2026" : ""}\u201d`;
};
const rowAt = row => {
  const side = data.sides[map.side];
  return span(side.rows, row, map.down, side.first_row, side.every);
};
const columnAt = column => {
  const side = data.sides[map.side];
  return span(side.columns, column, map.across, side.first_column, 1);
};
const ranked = row => {
  const cells = [...Array(map.width).keys()].filter(column => valueAt(row, column) !== null);
  cells.sort((a, b) => valueAt(row, b) - valueAt(row, a));
  return cells.slice(0, 5).map(column => `${columnAt(column)} ${valueAt(row, column).toFixed(4)}`).join(", ");
};
const read = event => {
  const box = canvas.getBoundingClientRect();
  const column = Math.floor((event.clientX - box.left) / box.width * map.width);
  const row = Math.floor((event.clientY - box.top) / box.height * map.height);
  if (row < 0 || column < 0 || row >= map.height || column >= map.width) return;
  const value = valueAt(row, column);
  said.textContent = `${rowAt(row)} attends to ${columnAt(column)}: weight  ` +
    `${value === null ? "masked" : value.toFixed(5)}. Strongest keys: ${ranked(row)}.`;
};
choice.addEventListener("change", draw);
one.addEventListener("change", draw);
canvas.addEventListener("pointermove", read);
draw();
