// The requests as they come in.

import { ask } from "/dashboard/page/api.js";
import { el, field, head, select, table } from "/dashboard/page/dom.js";
import { OUTCOMES, count, milliseconds, tenantName, time } from "/dashboard/page/format.js";
import { explainLink } from "/dashboard/page/explain.js";
import { outcome } from "/dashboard/page/outcome.js";

const LIMIT = 100;

export function requests(again) {
  const wanted = select([["", "every outcome"], ...OUTCOMES.map(([name, text]) => [name, text])], "");
  const tenant = el("input", { type: "search", autocomplete: "off", placeholder: "every tenant" });
  const hold = el("button", { type: "button", "aria-pressed": "false" }, "Hold");
  const list = table({
    view: "requests",
    caption: `The last ${LIMIT} requests, newest first`,
    empty: "No request has come in yet. Point a client's base_url at the data port, and watch it here.",
    columns: [
      { name: "Time", kind: "text nowrap", of: (row) => time(row.at) },
      { name: "Outcome", kind: "text nowrap", of: (row) => outcome(row.outcome) },
      { name: "Why", kind: "text", of: (row) => why(row) },
      { name: "Model", kind: "text", of: (row) => row.model || "–" },
      { name: "Tenant", kind: "text", of: (row) => el("span", { title: row.tenant }, tenantName(row.tenant) || "–") },
      { name: "Status", kind: "number", of: (row) => String(row.status || "–") },
      { name: "Tokens", kind: "number", of: (row) => `${count(row.input_tokens)} → ${count(row.output_tokens)}` },
      { name: "First byte", kind: "number", of: (row) => milliseconds(row.first_ms) },
      { name: "Total", kind: "number", of: (row) => milliseconds(row.total_ms) },
      { name: "Request id", kind: "key", of: (row) => el("a", { href: explainLink(row.request_id, row.tenant), "aria-label": `Explain ${row.request_id}` }, row.request_id) },
    ],
  });

  async function refresh() {
    if (hold.getAttribute("aria-pressed") === "true") return;
    const query = new URLSearchParams({ limit: LIMIT });
    if (wanted.value) query.set("outcome", wanted.value);
    if (tenant.value.trim()) query.set("tenant", tenant.value.trim());
    const page = await ask(`/cache/recent?${query}`);
    list.show(page.requests, (row) => `${row.request_id} ${row.at}`);
  }
  wanted.addEventListener("change", again);
  tenant.addEventListener("change", again);
  hold.addEventListener("click", () => {
    const isHeld = hold.getAttribute("aria-pressed") !== "true";
    hold.setAttribute("aria-pressed", String(isHeld));
    again();
  });
  return {
    elements: [
      head("Requests", "What became of each request, and why it was not answered from the cache."),
      el("form", { class: "filters", on: { submit: (event) => event.preventDefault() } },
        field("Outcome", wanted), field("Tenant", tenant), hold),
      list.element,
    ],
    refresh,
    everyS: 2,
  };
}

function why(row) {
  if (row.outcome === "semantic") return `similarity ${row.similarity.toFixed(3)}`;
  const reasons = [...(row.reasons ?? [])];
  if (row.not_kept) reasons.push(`not kept: ${row.not_kept}`);
  return reasons.join(", ") || "–";
}
