// Making answers invalid: first a dry run that says how many, then the purge of the very same.

import { ask } from "/dashboard/page/api.js";
import { el, field, head, select, table } from "/dashboard/page/dom.js";
import { count, date } from "/dashboard/page/format.js";

const KINDS = [
  ["tags", "Tags"], ["models", "Models"], ["tenants", "Tenants"], ["keys", "Keys"], ["all", "Everything"],
];

export function purge() {
  const kind = select(KINDS, "tags");
  const names = el("textarea", { rows: 3, autocomplete: "off", spellcheck: "false", placeholder: "doc:42" });
  const soft = el("input", { type: "checkbox", id: "purge-soft" });
  const dry = el("button", { type: "button", class: "primary" }, "Dry run");
  const sharp = el("button", { type: "button", class: "danger", disabled: true }, "Purge");
  const said = el("p", { role: "status", class: "said", id: "purge-said" });
  const search = el("input", { type: "search", autocomplete: "off", placeholder: "part of a tag" });
  const scope = el("p", { class: "lead" });
  let tested = null;

  function asked() {
    const body = { soft: soft.checked };
    if (kind.value === "all") return { ...body, all: true };
    return { ...body, [kind.value]: names.value.split(/[\n,]/).map((name) => name.trim()).filter(Boolean) };
  }
  function forget() {
    tested = null;
    sharp.disabled = true;
    sharp.textContent = "Purge";
    names.disabled = kind.value === "all";
  }
  async function attempt(work) {
    try {
      await work();
    } catch (error) {
      said.textContent = error.message;
    }
  }
  const run = () => attempt(async () => {
    forget();
    const body = asked();
    const found = await ask("/cache/purge", { method: "POST", body: { ...body, dry_run: true } });
    tested = body;
    sharp.disabled = false;
    sharp.textContent = `Purge ${count(found.matched)}`;
    said.textContent = `Dry run: ${number(found.matched, "answer")} and ${number(found.pages, "KV page")} would go. Nothing has changed yet.`;
  });
  const really = () => attempt(async () => {
    const done = await ask("/cache/purge", { method: "POST", body: tested });
    forget();
    dry.focus();
    const gone = done.matched === null ? "All that matched" : number(done.matched, "answer");
    said.textContent = `Purged: ${gone} and ${number(done.pages, "KV page")}. Purge number ${count(done.sequence)}.`;
    await list();
  });

  const tags = table({
    view: "purge",
    caption: "Tags of the stored answers: first those that were named, the most frequent first",
    empty: "No stored answer carries a tag that matches. Requests name tags in X-Cache-Tags, policies find them by their rules.",
    columns: [
      { name: "Tag", kind: "text", of: (row) => el("code", {}, row.tag) },
      { name: "Answers", kind: "number", of: (row) => count(row.entries) },
      { name: "Newest", kind: "text nowrap", of: (row) => date(row.newest) },
      { name: "Choose", kind: "text", of: (row) => el("button", {
        type: "button", class: "quiet", "aria-label": `Choose ${row.tag} for a purge`,
        on: { click: () => choose(row.tag) },
      }, "Choose") },
    ],
  });
  function choose(tag) {
    kind.value = "tags";
    const now = asked().tags;
    if (!now.includes(tag)) names.value = [...now, tag].join("\n");
    forget();
    run();
    dry.focus();
  }
  async function list() {
    const page = await ask(`/dashboard/tags?${new URLSearchParams({ q: search.value.trim() })}`);
    tags.show(page.tags, (row) => row.tag);
    scope.textContent = page.complete
      ? `Of all ${count(page.entries)} stored answers.`
      : `Of the newest ${count(page.entries)} answers; a purge covers all of them.`;
  }

  for (const input of [kind, names, soft]) input.addEventListener("input", forget);
  dry.addEventListener("click", run);
  sharp.addEventListener("click", really);
  return {
    elements: [
      head("Tags and purge", "When a source has changed, purge its tag: nothing that depended on it is served again, nor what is being made from it right now."),
      el("section", { class: "card" }, el("h2", {}, "Purge"),
        el("form", { class: "stack", on: { submit: (event) => event.preventDefault() } },
          el("div", { class: "filters top" }, field("What", kind), field("Names", names, "One a line, or with commas between.")),
          el("p", { class: "check" }, soft, el("label", { for: "purge-soft" }, "Soft: rules for stale answers may still serve them")),
          el("p", { class: "buttons" }, dry, sharp)),
        said),
      el("section", { class: "card" }, el("h2", {}, "Tags"),
        el("form", { class: "filters", role: "search", on: { submit: (event) => { event.preventDefault(); attempt(list); } } },
          field("Find", search), el("button", { type: "submit" }, "Find")),
        scope, tags.element),
    ],
    refresh: list,
  };
}

const number = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
