import { Refused, ask, listen, token } from "./feed.js";
import { draw, figure, logTicks, span, ticks, timeTicks } from "./plot.js";

const KEPT = 200;  // latest events on the page
const SECONDS = 300;  // of events per second
const ROWS = 8;  // of the table of latest events
const LANES = 9;  // partners in the history of a node, the others together

const part = (id) => document.getElementById(id);
const UNUSUAL = { source: "source", partner: "partner", both: "both", "": "neither" };
const page = { events: [], rates: new Map(), state: null, since: 0, shown: 0, node: null, model: null, clock: 0 };

function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  if (content !== undefined && content !== null) made.append(...[content].flat());
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value);
  return made;
}

function named(name) {
  const button = element("button", name, { type: "button", class: "name", title: name });
  button.addEventListener("click", () => look(name));
  return button;
}

/** Fill a table: columns are [heading, class], rows lists of cells; a cell is text or an element. */
function fill(table, columns, rows, empty) {
  const head = element("tr", columns.map(([words, kind]) => element("th", words, { scope: "col", class: kind })));
  const body = rows.map((row) => element("tr", row.cells.map((cell, at) => element("td", cell, { class: columns[at][1] })),
    { class: row.kind || null }));
  if (!rows.length) body.push(element("tr", element("td", empty, { class: "empty", colspan: columns.length })));
  const caption = table.querySelector("caption");
  table.replaceChildren(...(caption ? [caption] : []), element("thead", head), element("tbody", body));
}

// --- Time ------------------------------------------------------------------------------------------------------------

const now = () => Date.now() / 1000 + page.clock;  // by the clock of the server
const ago = (at) => `${span(Math.max(now() - at, 0))} ago`;
const short = (when) => (when ? String(when).replace("T", " ").replace(/(:\d\d)(\.\d+)?Z$/, "$1") : "–");

// --- The feed --------------------------------------------------------------------------------------------------------

const connection = part("connection");

function connected(kind, words) {
  connection.dataset.state = kind;
  if (connection.textContent !== words) connection.textContent = words;
}

const on = {
  live() { connected("live", "live"); load(); },
  lost(reason) { connected("lost", `${reason}; trying again`); },
  async refused() { connected("lost", "the server asks for its token"); await askToken(); },
  events(message) {
    if (message.first) page.events = [];
    const known = page.events.length ? page.events[page.events.length - 1].seq : 0;
    page.events = [...page.events, ...message.events.filter((each) => each.seq > known)].slice(-KEPT);
    soon();
  },
  state(message) {
    if (page.state && message.seq < page.state.seq) page.events = [];  // another log
    page.clock = message.at - Date.now() / 1000;
    page.state = message;
    if (!page.since) page.since = message.since;
    for (const [second, count] of message.rates) page.rates.set(second, count);
    for (const second of page.rates.keys()) if (second < message.at - SECONDS - 5) page.rates.delete(second);
    soon();
  },
};

let waiting = false;
function soon() {  // once for all messages that come together; nothing while nobody looks
  if (waiting || document.hidden) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; show(); });
}
document.addEventListener("visibilitychange", soon);

// --- Now -------------------------------------------------------------------------------------------------------------

function show() {
  if (!page.state) return;
  tiles();
  rate();
  bits();
  latest();
}

function tiles() {
  const { state } = page, drift = state.drift, enough = drift.events >= 200;
  const recent = Array.from({ length: 10 }, (_, back) => page.rates.get(state.at - 1 - back) || 0);
  const rows = [
    ["events per second", figure(recent.reduce((sum, each) => sum + each, 0) / 10), "mean of 10 s"],
    ["events in the log", figure(state.seq), `${figure(state.events)} seen by the model`],
    ["nodes", figure(state.nodes), ""],
    ["newest event", short(state.when), state.dates && state.time !== null ? ago(state.time) : ""],
    ["health", state.failure ? "cannot take events" : state.ready === false ? "catching up" : "ready", health(state), Boolean(state.failure)],
    ["drift", drift.drifted ? "drifted" : enough ? "none" : "–", enough
      ? `${figure(drift.now)} bits per event, ${figure(drift.then)} at training`
      : `judged after 200 events, ${drift.events} so far`, drift.drifted],
  ];
  part("tiles").replaceChildren(...rows.map(([name, value, note, alarm]) => element("div",
    [element("dt", name), element("dd", [value, element("small", note)])], { class: alarm ? "alarm" : null })));
  const alert = part("alert");
  alert.hidden = !state.failure;
  if (state.failure && alert.textContent !== state.failure) alert.textContent = state.failure;
}

function health(state) {
  const told = [];
  if (state.behind) told.push(`events behind: ${figure(state.behind)}`);
  if (state.waiting) told.push(`waiting for older events: ${figure(state.waiting)}`);
  if (state.requests) told.push(`waiting requests: ${figure(state.requests)}`);
  if (state.read_only) told.push("read-only replica");
  return told.join(", ") || "lag 0: all that came is in the model";
}

function rate() {
  const end = page.state.at, low = end - SECONDS, points = [];
  for (let second = Math.max(low, page.since); second < end; second += 1) points.push([second, page.rates.get(second) || 0]);
  const most = Math.max(1, ...points.map(([, count]) => count)) * 1.1;
  const marks = [300, 240, 180, 120, 60, 0].map((back) => [end - back, back ? `−${back / 60} min` : "now"]);
  draw(part("rate"), {
    label: `Events per second over the last five minutes, at most ${figure(Math.max(0, ...points.map(([, count]) => count)))}`,
    x: { low, high: end, ticks: marks }, y: { low: 0, high: most, ticks: ticks(0, most, 4).map((at) => [at, figure(at)]) },
    steps: points,
  });
}

const isAlarm = (event) => event.percentile >= 99;
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const told = (event) => `${event.source} → ${event.target}, ${short(event.when)}: ${figure(event.surprise)} bits, unusual: ${UNUSUAL[event.why]}`;

function bits() {
  const { events } = page, values = events.map((event) => event.surprise);
  const high = Math.max(4, ...values) * 1.1, first = events.length ? events[0].seq : 0, last = events.length ? events[events.length - 1].seq : 1;
  draw(part("bits"), {
    label: events.length ? `Surprise of the latest ${events.length} events: usually ${figure(median(values))} bits` : "No events yet",
    x: { low: first - 0.5, high: last + 0.5, ticks: ticks(first, last, 4).filter(Number.isInteger).map((at) => [at, `#${at}`]) },
    y: { low: 0, high, ticks: ticks(0, high, 4).map((at) => [at, figure(at)]) },
    usual: values.length > 4 ? [[median(values), "median"]] : [],
    dots: events.map((event) => ({ x: event.seq, y: event.surprise, kind: isAlarm(event) ? "alarm" : "", text: told(event) })),
    chosen: part("bits-chosen"),
  });
}

const ENDS = [["bits", "number"], ["source", "word"], ["target", "word"]];

function latest() {
  const newest = page.events.slice(-ROWS).reverse();
  const seq = newest.length ? newest[0].seq : 0;
  if (seq === page.shown && part("latest").tBodies.length) return;
  const rows = newest.map((event) => ({
    kind: [event.seq > page.shown && page.shown ? "new" : "", isAlarm(event) ? "alarm" : ""].join(" ").trim(),
    cells: [figure(event.surprise), named(event.source), named(event.target), short(event.when),
      `more than ${figure(Math.min(event.percentile, 99.9))} % of events`],
  }));
  fill(part("latest"), [...ENDS, ["time", "word"], ["surprise", "wide"]], rows, "no events have been measured yet");
  page.shown = seq;
}

// --- Most surprising, and the model ----------------------------------------------------------------------------------

async function top() {
  const { events } = await ask("v1/recent?k=12");
  const rows = events.map((event) => ({
    kind: isAlarm(event) ? "alarm" : "",
    cells: [figure(event.surprise), named(event.source), named(event.target), short(event.when), reason(event),
      event.last_met === null ? "never before" : short(event.last_met_when), ago(event.at)],
  }));
  fill(part("top"), [...ENDS, ["time", "word wide"], ["unusual", ""], ["last met", "word"], ["came", "word wide"]], rows, "nothing in the last hour");
}

function reason(event) {
  const sizes = event.source_bits === null ? "" : ` (source ${figure(event.source_bits)}, partner ${figure(event.partner_bits)} bits)`;
  return [UNUSUAL[event.why], element("span", sizes, { class: "wide" })];
}

async function model() {
  page.model = await ask("v1/model");
  const { card, settings, learned } = page.model;
  part("run").textContent = `${page.model.dataset} · ${page.model.model}`;
  const rows = [["model", `${page.model.model}, preset ${page.model.preset}`], ["paper", card.paper], ["reads", card.reads], ["cost", card.cost],
    ["trained on", `${figure(page.model.trained_on)} events`], ["weights", figure(page.model.parameters)], ["state", `${figure(page.model.state_bytes / 1e6)} MB`]];
  part("card").replaceChildren(...rows.flatMap(([key, value]) => [element("dt", key), element("dd", value)]));
  part("settings").hidden = false;
  part("settings").querySelector("pre").textContent = JSON.stringify({ settings, learned }, null, 1);
  lives();
}

function lives() {
  const all = page.model ? page.model.half_lives.filter((each) => each.value > 0) : [];
  part("decays").hidden = !all.length;
  if (!all.length) return;
  const lane = (each) => each.part.replace(/, head \d+$/, "").replace("retention", "state");
  const lanes = [...new Set(all.map(lane))], values = all.map((each) => each.value);
  const low = Math.min(...values) / 1.6, high = Math.max(...values) * 1.6;
  part("decays").querySelector("figcaption").textContent =
    `Learned half-lives, in ${[...new Set(all.map((each) => each.unit))].join(", ")}: after so many, half of what an event left is gone`;
  draw(part("lives"), {
    label: "Learned half-lives", lanes,
    x: { low, high, log: true, ticks: logTicks(low, high).map((at) => [at, figure(at)]) },
    dots: all.map((each) => ({ x: each.value, lane: lanes.indexOf(lane(each)), text: `${each.part}: ${figure(each.value)} ${each.unit}` })),
    chosen: part("lives-chosen"),
  });
}

// --- A node ----------------------------------------------------------------------------------------------------------

function look(name) {
  part("name").value = name;
  const place = `#node=${encodeURIComponent(name)}`;
  if (location.hash === place) node(name, true);
  else location.hash = place;
}

async function node(name, moving) {
  const found = part("found");
  if (!page.node || page.node.name !== name) found.textContent = `asking about ${name} …`;
  try {
    page.node = await ask(`v1/node/${name.split("/").map(encodeURIComponent).join("/")}`);
  } catch (error) {
    page.node = null;
    part("node").hidden = true;
    if (error instanceof Refused) throw error;
    found.textContent = error.message;
    return;
  }
  const asked = page.node;
  found.textContent = `${asked.name}: ${figure(asked.events)} events; as of event #${asked.seq}`;
  part("node").hidden = false;
  const most = Math.max(...asked.partners.map((each) => each.partner), 1e-12);
  fill(part("partners"), [["partner", "word"], ["probability", "number"], ["", "wide"], ["last met", "word"]], asked.partners.map((each) => ({
    cells: [named(each.target), share(each.partner), element("meter", null, { min: 0, max: most, value: each.partner, "aria-hidden": "true" }),
      each.last_met === null ? "never" : short(each.last_met_when)],
  })), asked.is_target || !asked.partners.length ? "this node is only ever a target" : "none");
  fill(part("nearest"), [["node", "word"], ["similarity", "number"]], asked.nearest.nodes.map((each) => ({
    cells: [named(each.name), each.cosine.toFixed(3)],
  })), asked.nearest.without || "none");
  part("nearest-notes").textContent = asked.nearest.compared ? `Cosine of the model's vectors, among the ${figure(asked.nearest.compared)} other nodes that were active last.` : "";
  history();
  if (moving) part("ask").scrollIntoView();
}

const share = (value) => (value >= 0.001 ? `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %` : "< 0.1 %");

function history() {
  const asked = page.node, events = asked.history;
  part("history").parentElement.hidden = !events.length;
  if (!events.length) return;
  const counts = new Map();
  for (const event of events) counts.set(event.partner, (counts.get(event.partner) || 0) + 1);
  const names = [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const lanes = names.length > LANES ? [...names.slice(0, LANES - 1), "others"] : names;
  const lane = (name) => (lanes.includes(name) ? lanes.indexOf(name) : lanes.length - 1);
  const times = events.map((event) => event.time), dated = page.state && page.state.dates;
  const room = (Math.max(...times) - Math.min(...times)) * 0.02 || 1;
  const low = Math.min(...times) - room, high = Math.max(...times) + room;
  const wanted = part("history").clientWidth < 500 ? 3 : 6;
  draw(part("history"), {
    label: `The latest ${events.length} events of ${asked.name}`, lanes,
    x: { low, high, ticks: dated ? timeTicks(low, high, wanted) : ticks(low, high, wanted).map((at) => [at, figure(at, 6)]) },
    dots: events.map((event) => ({ x: event.time, lane: lane(event.partner), kind: event.outgoing ? "out" : "in",
      text: `${event.outgoing ? `${asked.name} → ${event.partner}` : `${event.partner} → ${asked.name}`}, ${short(event.when)}` })),
    chosen: part("history-chosen"),
  });
}

let typing = 0;
part("name").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => guarded(async () => {
    const { names } = await ask(`v1/nodes?q=${encodeURIComponent(part("name").value)}`);
    part("names").replaceChildren(...[...new Set(names)].map((value) => element("option", null, { value })));
  }), 150);
});
part("search").addEventListener("submit", (event) => { event.preventDefault(); look(part("name").value.trim()); });

function follow(moving = true) {
  const asked = new URLSearchParams(location.hash.slice(1)).get("node");
  if (asked) {
    part("name").value = asked;
    guarded(() => node(asked, moving));
  }
}
addEventListener("hashchange", () => follow());

// --- The token, the theme, and the start -----------------------------------------------------------------------------

let asking = null;
function askToken() {  // one dialog, however many requests were refused
  if (asking) return asking;
  const dialog = part("token");
  if (token.get()) part("token-why").textContent = "The server refused this token. Give the right one.";
  token.forget();
  part("token-value").value = "";
  dialog.showModal();
  asking = new Promise((done) => {
    dialog.addEventListener("close", () => {
      token.set(part("token-value").value.trim());
      part("forget").hidden = false;
      asking = null;
      done();
    }, { once: true });
  });
  return asking;
}
part("token").addEventListener("cancel", (event) => event.preventDefault());
part("forget").addEventListener("click", () => { token.forget(); location.reload(); });
part("forget").hidden = !token.get();

async function guarded(work) {
  try {
    await work();
  } catch (error) {
    if (error instanceof Refused) askToken();
    else connected("lost", error.message);
  }
}

function load() {
  guarded(top);
  guarded(model);
  follow(false);
}
const looking = () => !document.hidden && connection.dataset.state === "live";
setInterval(() => { if (looking()) guarded(top); }, 5000);
setInterval(() => { if (looking()) guarded(model); }, 60000);  // it may have been trained anew

const theme = part("theme");
const isDark = () => (document.documentElement.dataset.theme
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const relabel = () => { theme.textContent = isDark() ? "light" : "dark"; };
theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; relabel(); });
relabel();

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;  // a phone changes the height as its bars come and go
  width = innerWidth;
  soon();
  if (page.node) history();
  lives();
});
listen("v1/feed", on);
