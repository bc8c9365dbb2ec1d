// Why a request got the answer that it got, and what it would get now.

import { ask } from "/dashboard/page/api.js";
import { el, field, figures, head, namedTags, table } from "/dashboard/page/dom.js";
import { count, date, milliseconds, money, seconds, shorten, tenantName } from "/dashboard/page/format.js";
import { outcome } from "/dashboard/page/outcome.js";

const LONGEST = 400;

// Where the explanation of a request is.
export const explainLink = (requestId, tenant) =>
  `#explain/${[requestId, ...(tenant ? [tenant] : [])].map(encodeURIComponent).join("/")}`;

export function explain(_, [requestId = "", tenant = ""]) {
  const id = el("input", { type: "search", autocomplete: "off", spellcheck: "false", value: requestId, placeholder: "as its answer's x-request-id says", required: true });
  const whose = el("input", { type: "search", autocomplete: "off", spellcheck: "false", value: tenant, placeholder: "where several have asked under it" });
  const said = el("p", { role: "status", class: "said" });
  const place = el("div", { class: "stack", id: "explanation" });
  async function refresh() {
    if (!requestId) return;
    said.textContent = "";
    try {
      const body = { request_id: requestId, ...(tenant ? { tenant } : {}) };
      place.replaceChildren(...parts(await ask("/cache/explain", { method: "POST", body })));
    } catch (error) {
      said.textContent = error.message;
    }
  }
  return {
    elements: [
      head("Explain", "All that decides about one request, as if it came now. Nothing is served or changed by looking."),
      el("form", {
        class: "filters", role: "search",
        on: { submit: (event) => { event.preventDefault(); location.hash = explainLink(id.value.trim(), whose.value.trim()); } },
      }, field("Request id", id), field("Tenant", whose), el("button", { type: "submit", class: "primary" }, "Explain")),
      said, place,
    ],
    refresh,
  };
}

function parts(one) {
  return [verdict(one), stored(one), nearest("Near it when it came", one.past?.near, one), nearest("Near it", one.near, one), counted(one)].filter(Boolean);
}

function card(title, ...children) {
  return el("section", { class: "card" }, el("h2", {}, title), ...children);
}

function verdict(one) {
  const { route, seen, cost } = one;
  const price = cost.amount === null || cost.amount === undefined ? "" : `, ${money(cost.amount)} ${cost.currency}`;
  return card("Verdict",
    figures("explain", [
      ...(seen ? [["When it came", el("span", {}, outcome(seen.outcome), ` ${(seen.reasons ?? []).join(", ")}`)],
        ["Took", took(seen)], ["Status", String(seen.status || "–")],
        ...(seen.not_kept ? [["Not kept", seen.not_kept]] : [])] : []),
      ["Now", outcome(one.outcome)], ["Tenant", tenantName(one.tenant)],
      ["Route", `${route.name} to ${route.upstreams.join(", then ")}`], ["Model", route.model],
      ["Policy", route.policy ? `${route.policy} (${route.mode})` : "no cache"],
      ["May", ["read", "write", "semantic"].filter((name) => one.may[name]).join(", ") || "nothing"],
      ["A fresh answer", `${count(cost.input_tokens)} → ${count(cost.output_tokens)} tokens${price}`],
    ]),
    meanings([...(one.past?.reasons ?? []), ...(one.reasons ?? []), ...one.may.reasons]));
}

// All of it, and where it went.
function took(seen) {
  const phases = Object.entries(seen.phases_ms ?? {}).map(([name, ms]) => `${name} ${milliseconds(ms)}`);
  return milliseconds(seen.total_ms) + (phases.length ? ` (${phases.join(", ")})` : "");
}

function meanings(reasons) {
  const known = new Map(reasons.map((reason) => [reason.word, reason.meaning]));
  return known.size ? el("dl", { class: "meanings", "data-figure": "explain-reasons" },
    ...[...known].flatMap(([word, meaning]) => [el("dt", {}, el("code", {}, word)), el("dd", {}, meaning)])) : null;
}

function stored(one) {
  const exact = one.exact;
  if (!exact) return null;
  const { entry } = exact;
  return card("Stored under its key",
    el("p", {}, el("code", { "data-figure": "explain-stored" }, exact.state), ` ${exact.meaning}`),
    entry ? figures("explain", [
      ["Made", date(entry.created_at)], ["Expires", date(entry.expires_at)],
      ["Left", exact.ttl_s > 0 ? seconds(exact.ttl_s) : "stale"],
      ["Purges seen", `${count(entry.sequence)} of ${count(exact.sequence)}`], ["Its tags", namedTags(entry.tags)],
    ]) : null,
    ...(exact.moved ?? []).map((moved) => el("p", {}, el("code", { class: "tag" }, moved.tag),
      ` was ${moved.soft ? "softly purged" : "purged"} by purge ${count(moved.sequence)}${when(moved, exact.entry)}`)));
}

function when(moved, entry) {
  if (!entry) return "";
  if (moved.covers) return ", after this answer's request came";
  return moved.sequence <= entry.sequence ? ", before this answer's request came" : ", which this answer does not carry";
}

function nearest(title, rows, one) {
  if (!rows?.length) return null;
  const list = table({
    view: "explain",
    caption: one.tier ? `By meaning, where the tier is ${one.tier.state} (bound ${one.tier.bound === "unproven" ? "unproven" : `${(100 * one.tier.bound).toFixed(2)} %`})` : "By meaning",
    empty: "",
    columns: [
      { name: "Stored and near", kind: "text wide", of: (row) => shorten(row.prompt, LONGEST) },
      { name: "Similarity", kind: "number", of: (row) => row.similarity.toFixed(4) },
      { name: "Asked for", kind: "number", of: (row) => row.asked?.toFixed(4) ?? "none suffices" },
      { name: "Verdict", kind: "text", of: (row) => el("span", { title: row.meaning }, row.accepted ? "accepted" : el("code", {}, row.reason)) },
    ],
  });
  list.show(rows);
  return card(title, list.element);
}

function counted(one) {
  if (!one.key) return null;
  return card("What counts",
    figures("explain", [
      ["Key", el("code", { class: "long" }, one.key)], ["Scope", el("code", { class: "long" }, one.scope || "–")],
      ["Tags asked for", namedTags(one.tags ?? [])],
    ]),
    el("ul", {}, ...(one.left_out ?? []).map((left) => el("li", {}, "Left out: ", el("code", {}, left.field), `, ${left.reason}`)),
      ...(one.folded ?? []).map((folded) => el("li", {}, "Folded: ", el("code", {}, folded.path), ` ${shorten(folded.a, LONGEST)} → ${shorten(folded.b, LONGEST)}`))),
    one.canonical === undefined ? null : el("details", {}, el("summary", {}, "Canonical form"),
      el("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "Canonical form" }, JSON.stringify(one.canonical, null, 2))));
}
