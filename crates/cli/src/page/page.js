"use strict";
/* The style sheet has this many colors for lines. */
const COLORS = 10;
const HEIGHT = 420, LEFT = 76, RIGHT = 16, TOP = 12, BOTTOM = 52;
/* Mean width of a character, in pixels, and the space that a number along an axis needs. */
const CHARACTER = 7.2, MARK = 100;
/* The smallest part of a figure's range that is shown: marks need distinct numbers. */
const CLOSEST = 1e-9;
const color_of = nth => `var(--line-${nth % COLORS})`;
const SCALES = {
  linear: { to: v => v, from: p => p },
  log2: { to: Math.log2, from: p => 2 ** p },
  log10: { to: Math.log10, from: p => 10 ** p },
};

function make(parent, name, attributes, text) {
  const space = parent.namespaceURI.endsWith("svg") || name === "svg" ? "http://www.w3.org/2000/svg" : parent.namespaceURI;
  const node = document.createElementNS(space, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return parent.appendChild(node);
}

/* Condenses a text that is longer than this. */
function fit(node, room) {
  if (node.getComputedTextLength() <= room) return;
  node.setAttribute("textLength", room);
  node.setAttribute("lengthAdjust", "spacingAndGlyphs");
}

/* Moves a centered text that would reach beyond the right edge. */
function keep_inside(node, x, edge) {
  node.setAttribute("x", Math.min(x, edge - node.getComputedTextLength() / 2));
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return trimmed(value / 1e9) + "G";
  if (size >= 1e6) return trimmed(value / 1e6) + "M";
  if (size >= 1e4) return trimmed(value / 1e3) + "k";
  return trimmed(value);
}

function trimmed(value) {
  return String(Number(value.toPrecision(4)));
}

/* Values at round distances, about `count` of them. */
function round_values(from, to, count) {
  const raw = (to - from) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find(of => of * power >= raw) * power, values = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; n++) values.push(n * step);
  return values;
}

function marks(axis, from, to, count) {
  if (axis.names.length) return axis.names.map((_, at) => at).filter(at => at >= from && at <= to);
  const scale = SCALES[axis.scale];
  if (axis.scale !== "linear" && to - from >= 2) {
    const every = Math.ceil((to - from) / (count * 1.5)), values = [];
    for (let p = Math.ceil(from); p <= to; p++) if (p % every === 0) values.push(scale.from(p));
    return values;
  }
  return round_values(scale.from(from), scale.from(to), count);
}

function name_of(axis, value) {
  return axis.names.length ? axis.names[value] ?? "" : short(value);
}

/* Draws a figure in a box; the returned function draws other lines. */
function figure(box, data) {
  const x_scale = SCALES[data.x.scale], y_scale = SCALES[data.y.scale], hidden = new Set();
  let view, full, dragged = null, is_zoomed = false, width = 0;
  make(box, "h3", {}, data.title);
  const svg = make(box, "svg", { role: "img", "aria-label": data.title });
  const tools = make(box, "div", { class: "tools" }), legend = make(box, "div", { class: "legend" });
  for (const [label, factor] of [["+", 0.5], ["\u2212", 2]])
    make(tools, "button", { type: "button", "aria-label": factor < 1 ? "zoom in" : "zoom out" }, label)
      .addEventListener("click", () => zoom(view.map((v, n) => (view[n - n % 2] + view[n - n % 2 + 1]) / 2
        + (v - (view[n - n % 2] + view[n - n % 2 + 1]) / 2) * factor)));
  make(tools, "button", { type: "button", "aria-label": "show all" }, "all").addEventListener("click", reset);
  make(tools, "small", {}, "drag to zoom, double-click to show all");
  const readout = make(tools, "output", {});
  const shown = () => data.lines.filter(line => !hidden.has(line.name));
  const longest = Math.max(0, ...data.x.names.map(name => name.length)) * CHARACTER;
  /* Names that do not fit beside each other are slanted, and condensed if they are longer than this. */
  const is_slanted = () => longest + CHARACTER > (width - LEFT - RIGHT) / (data.x.names.length || 1);
  const slant = Math.min(longest, 130);
  const bottom = () => is_slanted() ? BOTTOM + slant * 0.77 : BOTTOM;
  const px = x => LEFT + (x_scale.to(x) - view[0]) / (view[1] - view[0]) * (width - LEFT - RIGHT);
  const py = y => HEIGHT - bottom() - (y_scale.to(y) - view[2]) / (view[3] - view[2]) * (HEIGHT - TOP - bottom());
  const is_there = ([x, y]) => Number.isFinite(x_scale.to(x)) && Number.isFinite(y_scale.to(y));

  function range(axis, scale, values) {
    const places = values.map(scale.to).filter(Number.isFinite);
    if (axis.names.length) return [-0.5, axis.names.length - 0.5];
    if (!places.length) return [0, 1];
    let least = Math.min(...places), most = Math.max(...places);
    if (axis.scale === "linear") {
      least = Math.min(0, least);
      most = Math.max(0, most * 1.05);
    } else if (axis.scale === "log10") [least, most] = [Math.floor(least), Math.ceil(most)];
    return least < most ? [least, most] : [least, least + 1];
  }

  function measure() {
    const points = data.lines.flatMap(line => line.points);
    const ys = points.flatMap(point => point.slice(1).filter(y => y !== null));
    full = [...range(data.x, x_scale, points.map(point => point[0])), ...range(data.y, y_scale, ys)];
    if (!is_zoomed) view = full;
  }

  function zoom(to) {
    const is_far = at => to[at + 1] - to[at] > CLOSEST * (full[at + 1] - full[at]);
    if (!is_far(0) || !is_far(2)) return;
    [view, is_zoomed] = [to, true];
    draw();
  }

  function reset() {
    [view, is_zoomed] = [full, false];
    draw();
  }

  function draw() {
    width = Math.max(280, Math.round(svg.getBoundingClientRect().width));
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    svg.replaceChildren();
    const clip = `clip-${figure.count = (figure.count ?? 0) + 1}`, floor = HEIGHT - bottom();
    const inner = { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: floor - TOP };
    make(make(svg, "clipPath", { id: clip }), "rect", inner);
    make(svg, "rect", { ...inner, class: "frame" });
    for (const value of marks(data.y, view[2], view[3], 6)) {
      const y = py(value);
      make(svg, "line", { x1: LEFT, x2: width - RIGHT, y1: y, y2: y, class: "grid" });
      make(svg, "text", { x: LEFT - 6, y: y + 4, "text-anchor": "end", class: "y-mark" }, name_of(data.y, value));
    }
    for (const value of marks(data.x, view[0], view[1], Math.max(2, Math.min(8, inner.width / MARK)))) {
      const x = px(value), turned = is_slanted() ? { transform: `rotate(-50 ${x} ${floor + 16})`, "text-anchor": "end" } : { "text-anchor": "middle" };
      make(svg, "line", { x1: x, x2: x, y1: floor, y2: floor + 5, class: "mark" });
      const mark = make(svg, "text", { x, y: floor + 19, class: "x-mark", ...turned }, name_of(data.x, value));
      if (is_slanted()) fit(mark, slant);
      else keep_inside(mark, x, width);
    }
    label(width / 2, HEIGHT - 8, 0, data.x.label, width - 8);
    label(16, HEIGHT / 2, -90, data.y.label, HEIGHT - 8);
    const plot = make(svg, "g", { "clip-path": `url(#${clip})` });
    data.lines.forEach((line, nth) => hidden.has(line.name) || paint(plot, line, color_of(nth)));
  }

  function label(x, y, angle, text, room) {
    fit(make(svg, "text", { transform: `translate(${x} ${y}) rotate(${angle})`, "text-anchor": "middle" }, text), room);
  }

  function paint(plot, line, color) {
    const points = line.points.filter(is_there), zero = Math.min(HEIGHT - bottom(), py(data.y.scale === "linear" ? 0 : y_scale.from(view[2])));
    if (line.style === "bars") {
      const bars = data.lines.filter(of => of.style === "bars"), wide = (px(1) - px(0)) * 0.8 / bars.length;
      for (const [x, y] of points)
        make(plot, "rect", { x: px(x) - wide * bars.length / 2 + wide * bars.indexOf(line), y: Math.min(py(y), zero), width: wide, height: Math.abs(zero - py(y)) }).style.fill = color;
      return;
    }
    const corners = points.flatMap(([x, y], at) =>
      line.style === "steps" && at > 0 ? [[px(x), py(points[at - 1][1])], [px(x), py(y)]] : [[px(x), py(y)]]);
    if (line.style !== "marks")
      make(plot, "polyline", { points: corners.join(" "), fill: "none", "stroke-width": 2 }).style.stroke = color;
    for (const [x, y, low, high] of points) {
      if (low !== null && high !== null && is_there([x, low]) && is_there([x, high]))
        make(plot, "line", { x1: px(x), x2: px(x), y1: py(low), y2: py(high), "stroke-width": 4, opacity: 0.35 }).style.stroke = color;
      if (line.style === "marks")
        make(plot, "path", { d: `M${px(x) - 5} ${py(y) - 5}l10 10m0-10l-10 10`, "stroke-width": 2 }).style.stroke = color;
      else if (line.style === "line") make(plot, "circle", { cx: px(x), cy: py(y), r: 3 }).style.fill = color;
    }
  }

  /* Returns the pointer's position, in the picture's own units. */
  function place(event) {
    const at = svg.getBoundingClientRect();
    return [(event.clientX - at.left) * width / at.width, (event.clientY - at.top) * HEIGHT / at.height];
  }

  function read([x, y]) {
    let best = null;
    for (const line of shown())
      for (const point of line.points.filter(is_there)) {
        const far = Math.hypot(px(point[0]) - x, (py(point[1]) - y) / 3);
        if (!best || far < best.far) best = { far, line, point };
      }
    svg.querySelector(".cursor")?.remove();
    if (!best) return;
    const { line, point: [at_x, at_y, low, high] } = best;
    make(svg, "circle", { class: "cursor", cx: px(at_x), cy: py(at_y), r: 6 });
    const spread = low === null || high === null ? "" : ` (${short(low)} to ${short(high)})`;
    readout.textContent = `${line.name}: ${data.x.names.length ? name_of(data.x, at_x) : trimmed(at_x)}, ${Number(at_y.toPrecision(6))}${spread}`;
  }

  svg.addEventListener("pointerdown", event => {
    dragged = { from: place(event), rect: make(svg, "rect", { class: "part" }) };
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    const at = place(event);
    if (!dragged) return read(at);
    const { from, rect } = dragged;
    const sizes = { x: Math.min(from[0], at[0]), y: Math.min(from[1], at[1]), width: Math.abs(from[0] - at[0]), height: Math.abs(from[1] - at[1]) };
    for (const key in sizes) rect.setAttribute(key, sizes[key]);
  });
  svg.addEventListener("pointerup", event => {
    if (!dragged) return;
    const [from, to] = [dragged.from, place(event)];
    dragged.rect.remove();
    dragged = null;
    if (Math.abs(from[0] - to[0]) < 8 || Math.abs(from[1] - to[1]) < 8) return;
    const x = at => view[0] + (at - LEFT) / (width - LEFT - RIGHT) * (view[1] - view[0]);
    const y = at => view[2] + (HEIGHT - bottom() - at) / (HEIGHT - TOP - bottom()) * (view[3] - view[2]);
    zoom([x(Math.min(from[0], to[0])), x(Math.max(from[0], to[0])), y(Math.max(from[1], to[1])), y(Math.min(from[1], to[1]))]);
  });
  /* The browser scrolls the page instead. */
  svg.addEventListener("pointercancel", () => {
    dragged?.rect.remove();
    dragged = null;
  });
  svg.addEventListener("dblclick", reset);
  data.lines.forEach((line, nth) => {
    const button = make(legend, "button", { type: "button", "aria-pressed": true });
    make(button, "i", {}).style.background = color_of(nth);
    button.append(line.name);
    button.addEventListener("click", () => {
      hidden.has(line.name) ? hidden.delete(line.name) : hidden.add(line.name);
      button.setAttribute("aria-pressed", !hidden.has(line.name));
      draw();
    });
  });
  measure();
  draw();
  new ResizeObserver(() => Math.round(svg.getBoundingClientRect().width) !== width && !dragged && draw()).observe(svg);
  return lines => {
    data.lines.forEach((line, nth) => line.points = lines[nth]);
    measure();
    if (!dragged) draw();
  };
}

/* Returns the sort key of a cell: its number, else its text. */
function key_of(cell) {
  const number = Number.parseFloat(cell.textContent.replace(/^[^\d.+-]*/, "").replace(/,/g, ""));
  return cell.classList.contains("number") && !Number.isNaN(number) ? number : cell.textContent;
}

function sort_by(table, column) {
  const head = table.tHead.rows[0].cells[column], body = table.tBodies[0];
  const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
  const compare = (a, b) => typeof a === typeof b
    ? (typeof a === "number" ? a - b : a.localeCompare(b)) : typeof a === "number" ? -1 : 1;
  body.append(...[...body.rows].sort((a, b) => direction * compare(key_of(a.cells[column]), key_of(b.cells[column]))));
}

for (const table of document.querySelectorAll("table.sorts"))
  [...table.tHead.rows[0].cells].forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => sort_by(table, column)));
for (const data of document.querySelectorAll(".figure > script")) figure(data.parentElement, JSON.parse(data.textContent));
