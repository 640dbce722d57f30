"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const KEYS = ["streams", "protocol", "reading", "setting", "negatives", "metric"];
const SHOWN = { published: "published rows", rule: "rules and ceilings", variant: "variants and other heads" };
const MARKS = { "one seed": "1", "cut by time": "c", "read plainly": "p", "earlier version": "e" };
const chosen = data.views.length ? Object.fromEntries(KEYS.map((key) => [key, data.views[0][key]])) : {};
const visible = { published: true, rule: true, variant: false };
let sorting = { column: "rank", falling: false };

function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  if (content !== undefined && content !== null) made.append(content);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function values(key) { return [...new Set(data.views.map((view) => view[key]))]; }

function current() {
  const fits = (view) => KEYS.filter((key) => view[key] === chosen[key]).length;
  return data.views.reduce((best, view) => (fits(view) > fits(best) ? view : best));
}

function controls() {
  const box = document.getElementById("controls");
  box.replaceChildren();
  for (const key of KEYS) {
    if (values(key).length < 2) continue;
    const select = element("select", null, { name: key });
    for (const value of values(key)) select.append(element("option", value, { value }));
    select.value = chosen[key];
    select.addEventListener("change", () => { chosen[key] = select.value; show(); });
    const label = element("label", key);
    label.append(select);
    box.append(label);
  }
  for (const [key, words] of Object.entries(SHOWN)) {
    const input = element("input", null, { type: "checkbox", name: key });
    input.checked = visible[key];
    input.addEventListener("change", () => { visible[key] = input.checked; show(); });
    const label = element("label", input);
    label.append(words);
    box.append(label);
  }
}

function isShown(row) {
  if (row.origin === "published") return visible.published;
  if (row.origin === "rule" || row.origin === "ceiling") return visible.rule;
  return row.usual || visible.variant;
}

function keyOf(row) {
  if (sorting.column === "name") return row.name.toLowerCase();
  if (sorting.column === "rank") return row.rank;
  return row.cells[sorting.column] ? row.cells[sorting.column].value : null;
}

function compare(a, b, falling) {
  if (a === null || b === null) return (a === null) - (b === null);  // what is missing comes last
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return falling ? -order : order;
}

function heading(words, column) {
  const button = element("button", words, { type: "button" });
  const head = element("th", button, { scope: "col" });
  if (sorting.column === column) head.setAttribute("aria-sort", sorting.falling ? "descending" : "ascending");
  button.addEventListener("click", () => {
    const falling = sorting.column === column ? !sorting.falling : typeof column === "number";
    sorting = { column, falling };
    show();
  });
  return head;
}

function cellOf(cell) {
  if (!cell) return element("td", "");
  const inner = cell.place === 1 ? "b" : cell.place === 2 ? "u" : "span";
  const made = element("td", element(inner, cell.text));
  const notes = cell.notes || [];
  const marks = notes.map((note) => MARKS[note] || (note === "other head" ? "" : "!")).join("");
  if (marks) made.append(element("sup", marks));
  if (notes.length) made.title = notes.join(", ");
  if (cell.shade) made.classList.add("shaded");
  if (cell.shade) made.style.background = `rgba(var(--shade), ${(0.15 + 0.65 * cell.shade / 100).toFixed(2)})`;
  if (cell.records) {
    made.dataset.records = cell.records.join(",");
    made.tabIndex = 0;
  }
  return made;
}

function show() {
  if (!data.views.length) return;
  controls();
  const view = current();
  const table = element("table"), head = element("tr"), body = element("tbody");
  head.append(heading("model", "name"), heading("avg. rank", "rank"));
  const shown = view.rows.filter(isShown);
  const filled = view.datasets.map((name, column) => shown.some((row) => row.cells[column]));
  view.datasets.forEach((name, column) => { if (filled[column]) head.append(heading(name, column)); });
  const rows = shown.sort((a, b) => compare(keyOf(a), keyOf(b), sorting.falling));
  for (const row of rows) {
    const line = element("tr", null, { class: row.usual || row.origin !== "model" ? row.origin : "model variant" });
    line.append(element("td", row.name), element("td", row.rank === null ? "" : row.rank.toFixed(2)));
    row.cells.forEach((cell, column) => { if (filled[column]) line.append(cellOf(cell)); });
    body.append(line);
  }
  table.append(element("thead", head), body);
  document.getElementById("links-table").replaceChildren(table);
  const words = KEYS.filter((key) => values(key).length > 1).map((key) => view[key]).join(", ");
  const warnings = view.warnings.length ? ` Ranks: ${view.warnings.join("; ")}.` : "";
  document.getElementById("links-notes").textContent = `Shown: ${words || view.protocol}.${warnings}`;
}

function describe(number) {
  const record = data.records[number], list = element("dl"), box = element("div");
  const entries = { model: record.label || record.model, "data set": record.dataset, seed: record.seed,
    protocol: record.protocol, finished: record.finished, "read from": record.read_from };
  for (const [key, value] of Object.entries({ ...entries, ...prefixed("digest of ", record.digests) })) {
    if (value !== undefined && value !== null) list.append(element("dt", key), element("dd", String(value)));
  }
  box.append(element("h3", `${record.label || record.model || record.kind} · ${record.dataset || ""}`), list);
  if (record.command) box.append(element("p", "Command"), element("pre", record.command));
  for (const part of ["settings", "timing", "versions", "machine"]) {
    if (record[part]) box.append(element("p", part), element("pre", JSON.stringify(record[part], null, 1)));
  }
  return box;
}

function prefixed(prefix, entries) {
  return Object.fromEntries(Object.entries(entries || {}).map(([key, value]) => [prefix + key, value]));
}

function open(numbers, notes) {
  const content = document.getElementById("record-content");
  content.replaceChildren(...(notes ? [element("p", notes)] : []), ...numbers.map(describe));
  document.getElementById("record").showModal();
}

function lead(event) {
  const cell = event.target.closest("[data-records], [data-record]");
  if (!cell) return;
  const numbers = (cell.dataset.records || cell.dataset.record).split(",").map(Number);
  open(numbers, cell.title);
}

document.addEventListener("click", lead);
document.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.target.closest("button")) lead(event); });

for (const table of document.querySelectorAll("table.sortable")) {
  table.querySelectorAll("th").forEach((head, column) => head.addEventListener("click", () => {
    const falling = head.getAttribute("aria-sort") === "ascending";
    table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[column];
      if (cell.classList.contains("none")) return null;
      return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
    };
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b), falling)));
  }));
}

const theme = document.getElementById("theme");
const isDark = () => (document.documentElement.dataset.theme
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const relabel = () => { theme.textContent = isDark() ? "light" : "dark"; };
theme.addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; relabel(); });
relabel();
show();
