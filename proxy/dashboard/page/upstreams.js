// The servers behind the proxy, and which of them are left alone.

import { ask } from "/dashboard/page/api.js";
import { el, head, table } from "/dashboard/page/dom.js";
import { count } from "/dashboard/page/format.js";

export function upstreams() {
  const list = table({
    view: "upstreams",
    caption: "Servers of all upstreams",
    empty: "The config names no upstream.",
    columns: [
      { name: "Upstream", kind: "text", of: (row) => row.upstream },
      { name: "Server", kind: "text", of: (row) => row.server },
      { name: "State", kind: "text", of: (row) => row.state },
      { name: "Breaker", kind: "text", of: (row) => breaker(row) },
      { name: "In flight", kind: "number", of: (row) => count(row.in_flight) },
    ],
  });
  async function refresh() {
    const page = await ask("/dashboard/upstreams");
    list.show(page.servers.map((row) => ({ ...row, state: page.states[row.upstream] ?? "–" })), (row) => `${row.upstream} ${row.server}`);
  }
  return {
    elements: [head("Upstreams", "A server to which most requests failed is left alone for a while: its breaker is open."), list.element],
    refresh,
    everyS: 5,
  };
}

function breaker(row) {
  if (!row.left_alone_by) return el("span", { class: "outcome" }, el("span", { "aria-hidden": "true" }, "●"), " closed: asked");
  const who = row.num_workers > 1 ? ` by ${row.left_alone_by} of ${row.num_workers} workers` : "";
  return el("span", { class: "outcome is-bad" }, el("span", { "aria-hidden": "true" }, "▲"), ` open: left alone${who}`);
}
