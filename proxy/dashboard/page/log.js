// The audit log: what was done on the admin port, by whom, with what result.

import { ask } from "/dashboard/page/api.js";
import { el, field, head, select, table } from "/dashboard/page/dom.js";
import { date, shorten, time } from "/dashboard/page/format.js";

const LIMIT = 50;
const WHAT = [["", "everything"], ["purge", "purges"], ["erase", "erasures"], ["reload", "reloads"], ["feedback", "feedback"]];
const LONGEST = 200;

export function log(again) {
  const wanted = select(WHAT, "");
  const more = el("button", { type: "button", hidden: true }, "Show more");
  let deeds = [];
  let isOlderShown = false;
  const list = table({
    view: "log",
    caption: "What was done, newest first",
    empty: "Nothing was done yet. Purges, erasures, reloads and feedback are listed here.",
    columns: [
      { name: "When", kind: "text nowrap", of: (row) => el("span", { title: time(row.at) }, date(row.at)) },
      { name: "What", kind: "text", of: (row) => row.what },
      { name: "Who", kind: "text", of: (row) => row.who },
      { name: "Asked", kind: "text wide", of: (row) => told(row.asked) },
      { name: "Result", kind: "text wide", of: (row) => told(row.result) },
      { name: "Went well", kind: "text", of: (row) => (row.ok ? "yes" : el("span", { class: "outcome is-bad" }, el("span", { "aria-hidden": "true" }, "▲"), " no")) },
    ],
  });
  async function page(before) {
    const query = new URLSearchParams({ limit: LIMIT });
    if (wanted.value) query.set("what", wanted.value);
    if (before) query.set("before", before);
    const told = (await ask(`/audit?${query}`)).deeds;
    more.hidden = told.length < LIMIT;
    return told;
  }
  async function refresh() {
    if (isOlderShown) return;  // it would take them away again
    deeds = await page();
    list.show(deeds);
  }
  wanted.addEventListener("change", () => { isOlderShown = false; again(); });
  more.addEventListener("click", async () => {
    isOlderShown = true;
    deeds = [...deeds, ...await page(deeds.at(-1).at)];
    list.show(deeds);
  });
  return {
    elements: [
      head("Audit log", "Everything that somebody changed by the admin port, and every reload. Without a file for it (admin.audit_log) it is of this process and ends with it."),
      el("form", { class: "filters", on: { submit: (event) => event.preventDefault() } }, field("Show", wanted)),
      list.element, more,
    ],
    refresh,
    everyS: 10,
  };
}

// What is empty or false was not asked for.
function told(value) {
  if (value === null) return "–";
  if (typeof value !== "object") return String(value);
  const said = Object.entries(value).filter(([, one]) => one !== null && one !== false && one !== "" && one?.length !== 0);
  return shorten(said.map(([name, one]) => `${name}: ${typeof one === "object" ? JSON.stringify(one) : one}`).join(", "), LONGEST) || "–";
}
