// Plots in SVG: dots and steps over two axes, or dots in lanes with a name each. Colours come from the style sheet.
// A plot that has the focus is read with the arrow keys, otherwise with the pointer.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 46, right: 12, top: 8, bottom: 26 };
const LETTER = 7;  // width of a letter of the labels, about
const LANE = 24;

function shape(parent, name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

/** Round numbers between two bounds, about `wanted` of them. */
export function ticks(low, high, wanted = 5) {
  if (!(high > low)) return [low];
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at ? at * step : 0);
  return found;
}

/** Powers of ten between two bounds; more of them where the span is small. */
export function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const factor of high / low > 30 ? [1] : [1, 2, 5]) {
      const at = factor * 10 ** power;
      if (at >= low * 0.999 && at <= high * 1.001) found.push(at);
    }
  }
  return found;
}

const UNITS = [[1, 15, "s"], [60, 30, "min"], [3600, 12, "h"], [86400, 14, "d"], [86400 * 30.4, 12, "mo"], [86400 * 365.25, 1e9, "y"]];
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800,
  1209600, 2592000, 7776000, 15552000, 31557600, 63115200, 157788000, 315576000];

/** Times of a calendar axis, in seconds since 1970, and how to write them. */
export function timeTicks(low, high, wanted = 5) {
  const step = STEPS.find((each) => each >= (high - low) / wanted) || STEPS[STEPS.length - 1];
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  const write = (at) => {
    const text = new Date(at * 1000).toISOString();
    if (step >= 86400) return text.slice(0, 10);
    return high - low > 86400 ? text.slice(5, 16).replace("T", " ") : text.slice(11, step < 60 ? 19 : 16);
  };
  return found.map((at) => [at, write(at)]);
}

/** A span of seconds in words. */
export function span(seconds) {
  if (!Number.isFinite(seconds)) return "never";
  const size = Math.abs(seconds);
  const [unit, , name] = UNITS.find(([each, most]) => size < each * most * 2) || UNITS[UNITS.length - 1];
  return `${Math.round(size / unit)} ${name}`;
}

export function figure(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(digits)));
}

/**
 * Draw into `host` and return nothing; calling it again replaces the picture.
 *
 * options: label (of the whole picture), height, x and y: {low, high, ticks: [[at, text]], log}, dots: [{x, y, lane,
 * kind, text}], steps: [[x, y]], usual: [[y, text]], lanes: [name], chosen: element that shows the text of a dot.
 */
export function draw(host, options) {
  const width = host.clientWidth || 320;
  const lanes = options.lanes || null;
  const height = lanes ? MARGIN.top + MARGIN.bottom + LANE * lanes.length : options.height || 200;
  const longest = lanes ? Math.max(...lanes.map((each) => each.length), 0) : 0;
  const left = lanes ? Math.min(16 + LETTER * longest, width * 0.36) : MARGIN.left;
  const area = { left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
  const svg = document.createElementNS(SVG, "svg");
  const set = { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.label };
  for (const [key, value] of Object.entries(set)) svg.setAttribute(key, value);
  const across = scale(options.x, area.left, area.right);
  const up = lanes ? (lane) => area.top + LANE * (lane + 0.5) : scale(options.y, area.bottom, area.top);
  axes(svg, options, area, across, up, lanes);
  if (options.steps && options.steps.length) steps(svg, options.steps, area, across, up);
  const circles = (options.dots || []).map((dot) => shape(svg, "circle", {
    class: dot.kind || "", cx: across(dot.x), cy: up(lanes ? dot.lane : dot.y), r: dot.kind === "alarm" ? 4.5 : 3.5,
  }));
  for (const [at, text] of options.usual || []) {
    shape(svg, "line", { class: "usual", x1: area.left, x2: area.right, y1: up(at), y2: up(at) });
    shape(svg, "text", { class: "halo", x: area.right, y: up(at) - 4, "text-anchor": "end" }, text);
  }
  if (circles.length && options.chosen) readable(host, svg, circles, options);
  const focused = host.contains(document.activeElement);
  host.replaceChildren(svg);
  if (focused) svg.focus();
}

function scale(axis, from, to) {
  const place = axis.log ? Math.log : (value) => value;
  const low = place(axis.low), size = place(axis.high) - low || 1;
  return (value) => from + (to - from) * (place(value) - low) / size;
}

function axes(svg, options, area, across, up, lanes) {
  let free = -Infinity;
  for (const [at, text] of options.x.ticks) {
    const x = across(at), half = text.length * LETTER / 2;
    shape(svg, "line", { class: "grid", x1: x, x2: x, y1: area.top, y2: area.bottom });
    const middle = Math.max(half, Math.min(x, area.right + MARGIN.right - half));
    if (middle - half < free) continue;
    free = middle + half + 8;
    shape(svg, "text", { x: middle, y: area.bottom + 18, "text-anchor": "middle" }, text);
  }
  const rows = lanes ? lanes.map((name, lane) => [lane, name]) : options.y.ticks;
  const most = lanes ? Math.floor((area.left - 12) / LETTER) : Infinity;
  for (const [at, text] of rows) {
    const short = text.length > most ? `${text.slice(0, most - 1)}…` : text;
    shape(svg, "line", { class: "grid", x1: area.left, x2: area.right, y1: up(at), y2: up(at) });
    const label = shape(svg, "text", { x: area.left - 8, y: up(at) + 4, "text-anchor": "end" }, short);
    if (short !== text) shape(label, "title", {}, text);
  }
}

function steps(svg, points, area, across, up) {
  const path = points.map(([x, y], row) => `${row ? "H" : "M"}${across(x).toFixed(1)}${row ? "V" : " "}${up(y).toFixed(1)}`);
  shape(svg, "path", { class: "area", d: `${path.join("")}V${area.bottom}H${across(points[0][0]).toFixed(1)}Z` });
  shape(svg, "path", { class: "line", d: path.join("") });
}

function readable(host, svg, circles, options) {
  const { dots, chosen } = options;
  let at = -1;
  const show = (number) => {
    if (at >= 0) circles[at].classList.remove("chosen");
    at = number;
    circles[at].classList.add("chosen");
    if (chosen.textContent !== dots[at].text) chosen.textContent = dots[at].text;
  };
  svg.setAttribute("tabindex", "0");
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    show(at < 0 ? dots.length - 1 : Math.max(0, Math.min(dots.length - 1, at + step)));
  });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const distance = (circle) => Math.hypot(circle.cx.baseVal.value - event.clientX + box.left,
      circle.cy.baseVal.value - event.clientY + box.top);
    let best = 0;
    circles.forEach((circle, number) => { if (distance(circle) < distance(circles[best])) best = number; });
    if (distance(circles[best]) < 24) show(best);
  });
}
