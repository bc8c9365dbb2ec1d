// How many answers by meaning are wrong, as far as audits and users know.

import { ask } from "/dashboard/page/api.js";
import { el, head, table } from "/dashboard/page/dom.js";
import { count, percent } from "/dashboard/page/format.js";

const STATES = {
  open: "open: serves", tightened: "tightened: serves, asks for more",
  closed: "closed: does not serve", shadow: "shadow: only looks",
};

export function audits() {
  const list = table({
    view: "audits",
    caption: "Tiers by policy",
    empty: "No policy answers by meaning, or none has been used yet. Give the config an embedder and a policy semantic: {}.",
    columns: [
      { name: "Policy", kind: "text", of: (row) => row.policy },
      { name: "Tier", kind: "text", of: (row) => STATES[row.state] ?? row.state },
      { name: "Bound", kind: "number", of: (row) => (row.bound === "unproven" ? "unproven" : percent(row.bound, 2)) },
      { name: "Wrong, between", kind: "number", of: (row) => `${percent(row.wrong_at_least, 2)} – ${percent(row.wrong_at_most, 2)}` },
      { name: "Allowed", kind: "number", of: (row) => percent(row.max_error, 2) },
      { name: "Hits", kind: "number", of: (row) => count(row.hits) },
      { name: "Audited", kind: "number", of: (row) => count(row.audited) },
      { name: "Found wrong", kind: "number", of: (row) => count(row.found_wrong) },
      { name: "Reported wrong", kind: "number", of: (row) => count(row.reported_wrong) },
      { name: "Pairs refused", kind: "number", of: (row) => count(row.pairs_refused) },
      { name: "Asked on top", kind: "number", of: (row) => row.raised_similarity.toFixed(2) },
    ],
  });
  async function refresh() {
    const stats = await ask("/cache/stats");
    list.show(Object.entries(stats.policies ?? {}).map(([policy, row]) => ({ policy, ...row })), (row) => row.policy);
  }
  return {
    elements: [
      head("Audits", "A share of the answers given by meaning is compared with fresh ones. The bound holds for the answers served, with the confidence that the policy asks for."),
      list.element,
      el("p", { class: "lead" }, "Hits and audits count from the tier's last change of state on."),
    ],
    refresh,
    everyS: 5,
  };
}
