// The pages of the bundled engines, and what their prefix trees spare.

import { ask } from "/dashboard/page/api.js";
import { strip } from "/dashboard/page/chart.js";
import { el, head } from "/dashboard/page/dom.js";
import { count, percent } from "/dashboard/page/format.js";

export function engine() {
  const place = el("div", { class: "stack" });
  const nothing = el("p", { class: "empty" }, "No engine runs. Give an upstream of the config engine: {model: …}.");
  let before = "";
  async function refresh() {
    const { engines } = await ask("/cache/stats");
    const now = JSON.stringify(engines);
    if (now === before) return;
    before = now;
    const cards = Object.entries(engines).map(([name, figures]) => card(name, figures));
    place.replaceChildren(...(cards.length ? cards : [nothing]));
  }
  return {
    elements: [head("Engine", "Pages hold the keys and values of tokens. Those of finished prompts stay in a tree of prefixes until room is needed."), place],
    refresh,
    everyS: 2,
  };
}

function card(name, figures) {
  const of = (key) => figures[key] ?? 0;
  const held = of("num_pages") - of("free_pages");
  const kept = Math.min(of("cached_pages"), of("free_pages"));
  const parts = [
    ["exact", "held by sequences or pinned", held],
    ["semantic", "free, but kept in the tree", kept],
    ["track", "free and empty", of("free_pages") - kept],
  ];
  const share = of("prompt_tokens") ? of("cached_tokens") / of("prompt_tokens") : null;
  return el("section", { class: "card", "data-engine": name },
    el("h2", {}, name),
    el("h3", {}, "Pages"),
    strip(parts.map(([mark, , amount]) => [mark, amount]), `${count(of("num_pages"))} pages: ${parts.map(([, text, amount]) => `${count(amount)} ${text}`).join(", ")}`),
    el("ul", { class: "legend" }, ...parts.map(([mark, text, amount]) => el("li", {}, el("span", { class: `chip ${mark}`, "aria-hidden": "true" }), `${count(amount)} ${text}`))),
    el("h3", {}, "Prefix tree"),
    figuresOf([
      ["Pages in the tree", count(of("cached_pages"))], ["Pinned", count(of("pinned_pages"))],
      ["On disk", count(of("disk_pages"))], ["Swapped out", count(of("swapped_pages"))],
      ["Prompt tokens", count(of("prompt_tokens"))], ["Found in the tree", `${count(of("cached_tokens"))} (${percent(share)})`],
      ["Brought back from disk", count(of("restored_tokens"))],
    ]),
    el("h3", {}, "Batch"),
    figuresOf([
      ["Running", count(of("running"))], ["Waiting", count(of("waiting"))], ["Steps", count(of("steps"))],
      ["Preempted", count(of("preemptions"))], ["Of these swapped", count(of("swaps"))],
    ]));
}

function figuresOf(pairs) {
  return el("dl", { class: "figures" }, ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
