// The pages of the bundled engines, and what their prefix trees spare.

import { ask } from "/dashboard/page/api.js";
import { strip } from "/dashboard/page/chart.js";
import { el, figures, head } from "/dashboard/page/dom.js";
import { count, percent } from "/dashboard/page/format.js";
import { prefixTree } from "/dashboard/page/prefixes.js";

export function engine() {
  const place = el("div", { class: "stack" });
  const nothing = el("p", { class: "empty" }, "No engine runs. Give an upstream of the config engine: {model: …}.");
  const cards = new Map();
  async function refresh() {
    const { engines } = await ask("/cache/stats");
    for (const [name, told] of Object.entries(engines)) {
      if (!cards.has(name)) cards.set(name, card(name));
      cards.get(name).show(told);
    }
    for (const name of cards.keys()) if (!(name in engines)) cards.delete(name);
    const shown = cards.size ? [...cards.values()].map((one) => one.element) : [nothing];
    if (shown.some((one, n) => one !== place.children[n]) || shown.length !== place.children.length) {
      place.replaceChildren(...shown);
    }
  }
  return {
    elements: [head("Engine", "Pages hold the keys and values of tokens. Those of finished prompts stay in a tree of prefixes until room is needed."), place],
    refresh,
    everyS: 2,
  };
}

// The figures change all the time; the tree stays as it is, and as far as it was unfolded.
function card(name) {
  const live = el("div", {});
  let before = "";
  return {
    element: el("section", { class: "card", "data-engine": name },
      el("h2", {}, name), live, el("h3", {}, "Prefix tree"), prefixTree(name)),
    show(told) {
      const now = JSON.stringify(told);
      if (now !== before) live.replaceChildren(...parts(told));
      before = now;
    },
  };
}

function parts(told) {
  const of = (key) => told[key] ?? 0;
  const held = of("num_pages") - of("free_pages");
  const kept = Math.min(of("cached_pages"), of("free_pages"));
  const pages = [
    ["exact", "held by sequences or pinned", held],
    ["semantic", "free, but kept in the tree", kept],
    ["track", "free and empty", of("free_pages") - kept],
  ];
  const share = of("prompt_tokens") ? of("cached_tokens") / of("prompt_tokens") : null;
  return [
    el("h3", {}, "Pages"),
    strip(pages.map(([mark, , amount]) => [mark, amount]), `${count(of("num_pages"))} pages: ${pages.map(([, text, amount]) => `${count(amount)} ${text}`).join(", ")}`),
    el("ul", { class: "legend" }, ...pages.map(([mark, text, amount]) => el("li", {}, el("span", { class: `chip ${mark}`, "aria-hidden": "true" }), `${count(amount)} ${text}`))),
    figures("engine", [
      ["In the tree", count(of("cached_pages"))], ["Pinned", count(of("pinned_pages"))],
      ["On disk", count(of("disk_pages"))], ["Swapped out", count(of("swapped_pages"))],
    ]),
    el("h3", {}, "Prompts"),
    figures("engine", [
      ["Prompt tokens", count(of("prompt_tokens"))], ["Found in the tree", `${count(of("cached_tokens"))} (${percent(share)})`],
      ["Brought back from disk", count(of("restored_tokens"))],
    ]),
    el("h3", {}, "Batch"),
    figures("engine", [
      ["Running", count(of("running"))], ["Waiting", count(of("waiting"))], ["Steps", count(of("steps"))], ["Tokens generated", count(of("generated_tokens"))],
      ["Preempted", count(of("preemptions"))], ["Of these swapped", count(of("swaps"))],
      ["Restarts", count(of("restarts"))],
    ]),
  ];
}
