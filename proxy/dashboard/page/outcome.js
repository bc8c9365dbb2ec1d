// What became of a request: a word and a mark, so that colour says nothing alone.

import { el } from "/dashboard/page/dom.js";
import { OUTCOMES } from "/dashboard/page/format.js";

const NAMES = Object.fromEntries(OUTCOMES);
const MARKS = { exact: "●", semantic: "◐", stale: "◔", coalesced: "◇", miss: "○", bypass: "–", left: "✕" };

export function outcome(name) {
  return el("span", { class: `outcome is-${name}`, title: NAMES[name] ?? "the client hung up" },
    el("span", { "aria-hidden": "true" }, MARKS[name] ?? "·"), ` ${name}`);
}
