// Misses that were close, and what another threshold would have made of them.

import { ask } from "/dashboard/page/api.js";
import { el, field, head, select, table } from "/dashboard/page/dom.js";
import { count, shorten, time } from "/dashboard/page/format.js";

export function near(again) {
  const policy = el("select");
  const slider = el("input", { type: "range", min: "0.5", max: "1", step: "0.005", value: "0.9" });
  const shownValue = el("output", { for: "near-threshold" });
  slider.id = "near-threshold";
  const said = el("p", { class: "verdictline", role: "status" });
  let page = null;
  const list = table({
    view: "near",
    caption: "Near misses, newest first",
    empty: "No near miss lately. They appear when a question misses although a similar one is stored.",
    columns: [
      { name: "With this threshold", kind: "text nowrap", of: (row) => verdict(row) },
      { name: "Asked", kind: "text wide", of: (row) => (row.prompt === null ? el("em", {}, "not stored, so not known") : shorten(row.prompt, 400)) },
      { name: "Stored and near", kind: "text wide", of: (row) => shorten(row.near_prompt, 400) },
      { name: "Similarity", kind: "number", of: (row) => row.similarity.toFixed(3) },
      { name: "Refused for", kind: "text", of: (row) => el("code", {}, row.reason) },
      { name: "Served up to", kind: "number", of: (row) => row.served_up_to?.toFixed(2) ?? "–" },
      { name: "Time", kind: "text nowrap", of: (row) => time(row.at) },
    ],
  });

  function show() {
    if (page === null) return;
    const threshold = Number(slider.value);
    shownValue.textContent = threshold.toFixed(3);
    const rows = page.misses.map((row) => ({
      ...row, is_served: row.served_up_to !== null && threshold <= row.served_up_to,
    }));
    const served = rows.filter((row) => row.is_served).length;
    said.textContent = page.policy === null ? "No policy answers by meaning: give one semantic: {}."
      : `${count(served)} of ${count(rows.length)} near misses would have been served. In force: ${page.threshold.toFixed(3)}.`;
    list.show(rows, (row) => row.request_id);
  }
  async function refresh() {
    const before = page?.policy;
    page = await ask(`/dashboard/near?${new URLSearchParams(before ? { policy: policy.value } : {})}`);
    if (policy.options.length !== page.policies.length) {
      policy.replaceChildren(...select(page.policies.map((name) => [name, name]), page.policy).children);
    }
    if (before !== page.policy && page.policy !== null) slider.value = page.threshold;
    slider.min = page.lowest;
    slider.disabled = policy.disabled = page.policy === null;
    show();
  }
  slider.addEventListener("input", show);
  policy.addEventListener("change", again);
  return {
    elements: [
      head("Near misses", "The threshold is only one of the rules: a pair that a guard refuses is not served at any. Read the pairs before you lower it."),
      el("form", { class: "card filters", on: { submit: (event) => event.preventDefault() } },
        field("Policy", policy),
        el("div", { class: "field grow" }, el("label", { for: "near-threshold" }, "Least similarity ", shownValue), slider)),
      said, list.element,
    ],
    refresh,
    everyS: 10,
  };
}

function verdict(row) {
  return row.is_served
    ? el("span", { class: "outcome is-semantic" }, el("span", { "aria-hidden": "true" }, "●"), " served")
    : el("span", { class: "outcome is-miss" }, el("span", { "aria-hidden": "true" }, "○"), " refused");
}
