// Making elements. Text only ever becomes text: nothing here parses markup.

import { isImplicit } from "/dashboard/page/format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// What a figure of a view is called for good, whatever its place: tests and scripts find it by this.
const called = (view, name) => `${view}-${name.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;

// Columns: {name, of: row => text or node, kind: "number" | "text" | "key"}. The roles are written
// out because a narrow page shows rows as cards, which takes the tables' own roles away.
export function table({ view, caption, columns, empty }) {
  const body = el("tbody", { role: "rowgroup" });
  const head = columns.map((column) => el("th", {
    role: "columnheader", scope: "col", class: column.kind,
  }, column.name));
  const element = el("table", { role: "table" },
    el("caption", {}, caption),
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...head)),
    body);
  const nothing = el("p", { class: "empty" }, empty);
  const wrap = el("div", { class: "tablewrap" }, element, nothing);
  const known = new Map();

  // Rows with a known key stay the elements that they are, so focus and selection do too.
  function show(rows, keyOf) {
    element.hidden = rows.length === 0;
    nothing.hidden = rows.length > 0;
    const shown = rows.map((row, number) => {
      const key = keyOf ? keyOf(row) : String(number);
      const content = JSON.stringify(row);
      const before = known.get(key);
      if (before?.content === content) return [key, before];
      return [key, { content, line: line(view, columns, row) }];
    });
    known.clear();
    for (const [key, one] of shown) known.set(key, one);
    const lines = shown.map(([, one]) => one.line);
    if (lines.length !== body.children.length || lines.some((one, n) => one !== body.children[n])) {
      arrange(body, lines);
    }
  }
  return { element: wrap, show };
}

function line(view, columns, row) {
  return el("tr", { role: "row" }, ...columns.map((column) => el("td", {
    role: "cell", class: column.kind, "data-label": column.name, "data-figure": called(view, column.name),
  }, column.of(row))));
}

// Moves as little as possible: what is moved in the document loses its focus.
function arrange(body, lines) {
  const wanted = new Set(lines);
  for (const child of [...body.children]) if (!wanted.has(child)) child.remove();
  lines.forEach((one, number) => {
    if (body.children[number] !== one) body.insertBefore(one, body.children[number] ?? null);
  });
}

// Those that somebody has named.
export function namedTags(tags) {
  const shown = tags.filter((tag) => !isImplicit(tag));
  return shown.length ? el("span", {}, ...shown.map((tag) => el("code", { class: "tag" }, tag))) : "–";
}

export function field(label, input, hint) {
  input.id ||= `field-${label.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input,
    hint ? el("small", {}, hint) : null);
}

export function select(options, value) {
  return el("select", {}, ...options.map(([key, text]) => el("option", {
    value: key, selected: key === value,
  }, text)));
}

export function head(title, text, ...tools) {
  return el("div", { class: "head" },
    el("div", {}, el("h1", { tabindex: "-1" }, title), text ? el("p", { class: "lead" }, text) : null),
    tools.length ? el("div", { class: "tools" }, ...tools) : null);
}

// Names and values in a row.
export function figures(view, pairs) {
  return el("dl", { class: "figures" }, ...pairs.map(([name, value]) => el("div", {},
    el("dt", {}, name), el("dd", { "data-figure": called(view, name) }, value))));
}

// A figure with a name. Returns the element and what sets it.
export function tile(view, name) {
  const value = el("dd", {}, "–");
  const note = el("dd", { class: "note" });
  const element = el("div", { class: "tile", "data-figure": called(view, name) }, el("dt", {}, name), value, note);
  return {
    element,
    set(text, said) {
      if (value.textContent !== text) value.textContent = text;
      if (said !== undefined && note.textContent !== said) note.textContent = said;
    },
  };
}
