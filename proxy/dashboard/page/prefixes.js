// The beginnings of prompts that an engine keeps, as a tree. Looking costs the engine a moment, so it
// is done once, and again when asked for.

import { ask } from "/dashboard/page/api.js";
import { strip } from "/dashboard/page/chart.js";
import { el } from "/dashboard/page/dom.js";
import { count, isImplicit, seconds, tenantName } from "/dashboard/page/format.js";

const LIMIT = 200;
const MOST_TAGS = 4;
const OPEN_LEVELS = 2;

export function prefixTree(upstream) {
  const said = el("p", { class: "lead", role: "status", "data-figure": "engine-prefix-tree" });
  const place = el("div", { class: "tree", tabindex: "-1" });
  const again = el("button", { type: "button", class: "quiet" }, "Look again");
  async function look() {
    try {
      const told = await ask(`/engine/prefix-tree?${new URLSearchParams({ upstream, nodes: LIMIT })}`);
      said.textContent = told.num_nodes ? sizeOf(told) : "Nothing is kept yet.";
      place.replaceChildren(...branches(told));
    } catch (error) {
      said.textContent = error.message;
    }
  }
  again.addEventListener("click", look);
  look();
  return el("section", { "aria-label": `Prefix tree of ${upstream}` }, said, place, again);
}

function sizeOf(told) {
  const left = told.num_nodes - told.nodes.length;
  const all = `${count(told.num_nodes)} beginnings with ${count(told.num_tokens)} tokens`;
  return left ? `${all}; the ${count(told.nodes.length)} largest are shown.` : `${all}.`;
}

// The nodes come parents first, and each says where its parent is in the list.
function branches(told) {
  const below = new Map();
  told.nodes.forEach((node, number) => {
    if (!below.has(node.parent)) below.set(node.parent, []);
    below.get(node.parent).push([number, node]);
  });
  const listed = (parent, level) => (below.get(parent) ?? []).map(([number, node]) => {
    const parts = listed(number, level + 1);
    const line = described(node, told.num_tokens);
    if (!parts.length) return el("li", {}, el("div", { class: "leaf" }, ...line));
    return el("li", {}, el("details", { open: level < OPEN_LEVELS }, el("summary", {}, ...line), el("ul", {}, ...parts)));
  });
  const roots = listed(null, 0);
  return roots.length ? [el("ul", {}, ...roots)] : [];
}

function described(node, all) {
  const below = node.tokens_below - node.tokens;
  const facts = [
    `${count(node.tokens)} tokens`, below ? `${count(below)} below` : null,
    node.refs ? `in use by ${count(node.refs)}` : `unused for ${seconds(node.unused_s)}`,
    `made ${seconds(node.age_s)} ago`, node.pinned ? "pinned" : null,
  ];
  return [
    strip([["exact", node.tokens], ["semantic", below], ["track", all - node.tokens_below]],
      `${count(node.tokens)} of ${count(all)} tokens, ${count(below)} below`),
    el("span", { class: "who" }, whose(node.isolation)), " ",
    facts.filter(Boolean).join(" · "), " ", ...tagsOf(node),
  ];
}

// `namespace:HEX:` may stand before it; a credential is shown by its tenant.
function whose(isolation) {
  const rest = isolation.replace(/^namespace:[0-9a-f]*:/, "");
  const inside = rest === isolation ? "" : " (in a namespace)";
  const credential = /^credential:(\d+):/.exec(rest);
  const name = credential
    ? rest.slice(credential[0].length, credential[0].length + Number(credential[1]))
    : rest.replace(/^tenant:/, "");
  return (tenantName(name) || "anybody") + inside;
}

function tagsOf(node) {
  if (node.tags === null) return [el("em", {}, "tags unknown: any purge takes it")];
  const named = node.tags.filter((tag) => !isImplicit(tag));
  const shown = named.slice(0, MOST_TAGS).map((tag) => el("code", { class: "tag" }, tag));
  const left = named.length - shown.length;
  return left > 0 ? [...shown, `and ${count(left)} more`] : shown;
}
