const EVERY = 250, KEPT = 240;
const DIRECTIONS = [["to_right", "to the right"], ["to_left", "to the left"]];
const UNITS = { us: 1e-3, ms: 1, s: 1e3, kbit: 1e-3, mbit: 1, gbit: 1e3, "%": 1, p: 1 };
/* Rates and queues have logarithmic sliders. The last position of a rate means no bottleneck: then there is no queue either. */
const SLIDERS = [
  { name: "delay", most: 500, step: 1, value: at => `${at}ms`, place: ms => ms },
  { name: "jitter", most: 100, step: 1, value: at => at > 0 ? `${at}ms` : "none", place: ms => ms },
  { name: "loss", most: 20, step: 0.1, value: at => at > 0 ? `${at}%` : "none", place: percent => percent },
  { name: "rate", most: 51, step: 1, value: at => at < 51 ? `${Math.round(64 * 10 ** (at / 10))}kbit` : "none", place: mbit => Math.round(10 * Math.log10(mbit * 1000 / 64)), none: 51 },
  { name: "queue", most: 40, step: 1, value: at => `${Math.round(10 ** (at / 10))}p`, place: packets => Math.round(10 * Math.log10(packets)), needs: "rate" },
];
const message = document.getElementById("message"), sliders = [], samples = [];
const headers = location.hash.length > 1 ? { Authorization: `Bearer ${location.hash.slice(1)}` } : {};

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: { ...headers, ...options.headers } });
  const text = await answer.text();
  let said;
  try { said = JSON.parse(text); } catch { said = { error: text.trim() }; }
  if (!answer.ok) throw new Error(said.error);
  return said;
}

/* Sends the values of moved sliders, one request at a time: only the latest value of each. */
const waiting = new Map();
let is_sending = false;
async function send(direction, name, value) {
  waiting.set(`${direction} ${name}`, { direction, name, value });
  if (is_sending) return;
  is_sending = true;
  while (waiting.size > 0) {
    const settings = [...waiting.values()];
    waiting.clear();
    try {
      const { warning } = await ask("/set", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(settings) });
      message.textContent = warning ?? "";
    } catch (error) {
      message.textContent = error.message;
    }
  }
  is_sending = false;
}

for (const [direction, title] of DIRECTIONS) {
  const set = make(document.getElementById("directions"), "fieldset", {});
  make(set, "legend", {}, title);
  for (const kind of SLIDERS) {
    const label = make(set, "label", {});
    make(label, "span", {}, kind.name);
    const input = make(label, "input", { type: "range", min: 0, max: kind.most, step: kind.step, value: kind.none ?? 0, "data-direction": direction, "data-name": kind.name });
    const shown = make(label, "output", {}, "\u2013");
    input.addEventListener("input", () => {
      shown.textContent = kind.value(Number(input.value));
      send(direction, kind.name, kind.value(Number(input.value)));
    });
    sliders.push({ direction, kind, input, shown });
  }
}

/* Moves the sliders to the impairments in force, which another client may have set. */
function follow(state) {
  for (const { direction, kind, input, shown } of sliders) {
    const text = state[direction].impairments[kind.name];
    input.disabled = kind.needs !== undefined && state[direction].impairments[kind.needs] === undefined;
    if (is_sending || document.activeElement === input) continue;
    shown.textContent = text ?? "none";
    const parts = /^(?:uniform:)?([\d.]+)(us|ms|s|kbit|mbit|gbit|%|p)$/.exec(text ?? "");
    input.value = text === undefined ? kind.none ?? 0 : parts ? kind.place(Number(parts[1]) * UNITS[parts[2]]) : input.value;
  }
}

const per = (now, before, key) => now[key] - before[key];
const FIGURES = [
  ["Throughput", "Mbit/s", (now, before, time) => [
    ["sent", per(now, before, "bytes") * 8e-6 / time], ["delivered", per(now, before, "bytes_delivered") * 8e-6 / time]]],
  ["Delay of the packets delivered, mean", "ms", (now, before) => {
    const packets = per(now, before, "packets_delivered");
    const mean = key => packets > 0 ? per(now, before, key) / packets : null;
    return [["scheduled", mean("delay_asked_ms")], ["measured", mean("delay_given_ms")]];
  }],
  ["In flight: queued or delayed", "packets", now => [["", now.in_flight]]],
  ["Dropped", "% of the packets", (now, before) => {
    const packets = per(now, before, "packets") + per(now, before, "not_entered");
    return [["", packets > 0 ? Math.min(100, per(now, before, "dropped") * 100 / packets) : null]];
  }],
];
const NAMES = [["sent", "delivered"], ["scheduled", "measured"], [""], [""]];
const drawn = FIGURES.map(([title, unit], nth) => {
  const box = make(document.getElementById("figures"), "div", { class: "figure" });
  const lines = DIRECTIONS.flatMap(([, direction]) => NAMES[nth].map(name => ({ name: `${direction}${name && ", "}${name}`, style: "plain", points: [] })));
  return figure(box, { title, x: { label: "seconds", scale: "linear", names: [] }, y: { label: unit, scale: "linear", names: [] }, lines });
});

function draw() {
  const last = samples.at(-1).time_s;
  FIGURES.forEach(([, , values], nth) => {
    const lines = DIRECTIONS.flatMap(() => NAMES[nth].map(() => []));
    for (let at = 1; at < samples.length; at++) {
      const [now, before] = [samples[at], samples[at - 1]], time = now.time_s - before.time_s;
      if (time <= 0) continue;
      DIRECTIONS.flatMap(([key]) => values(now[key], before[key], time)).forEach(([, value], line) =>
        value !== null && lines[line].push([now.time_s - last, value, null, null]));
    }
    drawn[nth](lines);
  });
  const rows = [["packets", "packets"], ["bytes", "bytes"], ["delivered", "packets_delivered"], ["dropped", "dropped"],
    ["of these before the path", "not_entered"]];
  document.getElementById("totals").replaceChildren(...rows.map(([name, key]) => {
    const row = document.createElement("tr");
    for (const text of [name, ...DIRECTIONS.map(([direction]) => samples.at(-1)[direction][key].toLocaleString("en"))])
      make(row, "td", text === name ? {} : { class: "number" }, text);
    return row;
  }));
}

async function look() {
  try {
    const state = await ask("/state");
    samples.push(state);
    if (samples.length > KEPT) samples.shift();
    follow(state);
    draw();
    if (message.dataset.lost) message.textContent = message.dataset.lost = "";
  } catch (error) {
    message.textContent = message.dataset.lost = error instanceof TypeError ? "the path has ended" : error.message;
  }
  setTimeout(look, EVERY);
}
look();
