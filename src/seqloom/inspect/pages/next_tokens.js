const data = JSON.parse(document.getElementById("data").textContent);
const bytes = Uint8Array.from(atob(data.logs), letter => letter.charCodeAt(0));
const logs = Array.from(new Float32Array(bytes.buffer));
const names = ["temperature", "top_k", "top_p", "min_p"];
const field = name => document.getElementById(name);
const chosen = () => Object.fromEntries(names.map(name => [name, Number(field(name).value)]));
const entropy = chances => -chances.reduce((sum, chance) => sum + (chance > 0 ? chance * Math.log(chance) : 0), 0);

function bar(share, kind) {
  const line = document.createElement("div");
  line.className = kind;
  line.style.width = 100 * share + "%";
  line.style.minWidth = share > 0 ? "1px" : "0";
  return line;
}

function row(name, before, after, most) {
  const line = document.createElement("tr"), head = document.createElement("th"), bars = document.createElement("td");
  head.textContent = name;
  bars.append(bar(before / most, "before"), bar(after / most, "after"));
  line.append(head, bars, ...[before, after].map(value => {
    const cell = document.createElement("td");
    cell.textContent = value.toFixed(6);
    return cell;
  }));
  return line;
}

function draw() {
  const how = chosen(), chances = drawnWith(logs, how), kept = chances.filter(chance => chance > 0).length;
  const before = logs.map(Math.exp), most = Math.max(before[0], chances[0]);
  names.forEach(name => { field(name + "_said").textContent = how[name]; });
  field("bars").replaceChildren(...data.names.slice(0, 30).map((name, at) => row(name, before[at], chances[at], most)));
  field("kept").textContent = `${kept} of ${logs.length} tokens can be sampled; entropy ${entropy(chances).toFixed(4)} nats.`;
}

function showPosition() {
  const place = data.places[Number(field("place").value)];
  field("likeliest").textContent = place.top_tokens.map(([name, chance]) => `${name} ${chance.toFixed(4)}`).join(", ") +
    `. Actual next token: ${place.target}, rank ${place.rank}, surprisal ${place.surprisal.toFixed(3)} nats.`;
}

names.forEach(name => field(name).addEventListener("input", draw));
field("place").addEventListener("change", showPosition);
draw();
if (data.places.length) showPosition();
