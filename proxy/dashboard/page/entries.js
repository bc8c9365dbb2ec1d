// The stored answers: search, pages, delete.

import { ask } from "/dashboard/page/api.js";
import { el, field, head, namedTags, table } from "/dashboard/page/dom.js";
import { bytes, count, date, shorten, tenantName, until } from "/dashboard/page/format.js";

const LIMIT = 50;
const FIELDS = [
  ["q", "In the question", "part of its text"], ["tag", "Tag", "doc:42"],
  ["model", "Model", "its name"], ["tenant", "Tenant", "its name"],
];

export function entries() {
  const inputs = FIELDS.map(([name, label, hint]) => [
    name, label, el("input", { type: "search", autocomplete: "off", placeholder: hint, id: `entries-${name}` }),
  ]);
  const said = el("p", { role: "status", class: "said" });
  const more = el("button", { type: "button", hidden: true }, "Show more");
  let rows = [];
  let cursor = null;
  const list = table({
    view: "entries",
    caption: "Stored answers, newest first",
    empty: "No stored answer matches. Answers of routes with a cache policy appear here.",
    columns: [
      { name: "Question", kind: "text wide", of: (row) => question(row) },
      { name: "Model", kind: "text", of: (row) => row.model },
      { name: "Tenant", kind: "text", of: (row) => el("span", { title: row.tenant }, tenantName(row.tenant)) },
      { name: "Tags", kind: "text", of: (row) => namedTags(row.tags) },
      { name: "Made", kind: "text nowrap", of: (row) => date(row.created_at) },
      { name: "Expires", kind: "text nowrap", of: (row) => until(row.expires_at, Date.now() / 1000) },
      { name: "Tokens", kind: "number", of: (row) => `${count(row.input_tokens)} → ${count(row.output_tokens)}` },
      { name: "Size", kind: "number", of: (row) => bytes(row.size_bytes) },
      { name: "Delete", kind: "text", of: (row) => removal(row) },
    ],
  });

  async function load(from) {
    const query = new URLSearchParams({ limit: LIMIT });
    for (const [name, , input] of inputs) if (input.value.trim()) query.set(name, input.value.trim());
    if (from) query.set("cursor", from);
    const page = await ask(`/cache/entries?${query}`);
    rows = from ? [...rows, ...page.entries] : page.entries;
    cursor = page.cursor;
    list.show(rows, (row) => row.key);
    more.hidden = cursor === null;
  }

  async function attempt(work) {
    try {
      await work();
    } catch (error) {
      said.textContent = error.message;
    }
  }

  // Twice: the first press asks, the second does it.
  function removal(row) {
    const button = el("button", { type: "button", class: "quiet danger" }, "Delete");
    const name = shorten(row.prompt || row.key, 60);
    button.setAttribute("aria-label", `Delete: ${name}`);
    const calm = () => { delete button.dataset.sure; button.textContent = "Delete"; };
    button.addEventListener("blur", calm);
    button.addEventListener("click", () => attempt(async () => {
      if (!button.dataset.sure) {
        button.dataset.sure = "asked";
        button.textContent = "Really?";
        said.textContent = `Press again to delete the answer to “${name}”.`;
        return;
      }
      await ask(`/cache/entries/${row.key}`, { method: "DELETE" });
      rows = rows.filter((one) => one.key !== row.key);
      list.show(rows, (one) => one.key);
      said.textContent = `Deleted the answer to “${name}”.`;
      said.focus();
    }));
    return button;
  }

  said.tabIndex = -1;
  more.addEventListener("click", () => attempt(() => load(cursor)));
  return {
    elements: [
      head("Entries", "What is stored now. Deleting one also covers what is being made for its key."),
      el("form", {
        class: "filters", role: "search",
        on: { submit: (event) => { event.preventDefault(); said.textContent = ""; attempt(() => load(null)); } },
      }, ...inputs.map(([, label, input]) => field(label, input)), el("button", { type: "submit", class: "primary" }, "Search")),
      said, list.element, more,
    ],
    refresh: () => load(null),
  };
}

function question(row) {
  return el("div", {}, el("span", { class: "prompt" }, row.prompt ? shorten(row.prompt, 240) : "not matched by meaning"),
    el("code", { class: "keyline" }, row.key.slice(0, 16)));
}
