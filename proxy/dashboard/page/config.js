// The config in force, secrets masked by the proxy.

import { ask } from "/dashboard/page/api.js";
import { el, head } from "/dashboard/page/dom.js";
import { date } from "/dashboard/page/format.js";

export function config() {
  const text = el("pre", { class: "code", tabindex: "0", role: "region", "aria-label": "Config in force" });
  const said = el("p", { role: "status", class: "said" });
  const again = el("button", { type: "button" }, "Read the file again");
  async function refresh() {
    text.textContent = JSON.stringify(await ask("/config"), null, 2);
  }
  again.addEventListener("click", async () => {
    try {
      const report = await ask("/reload", { method: "POST" });
      said.textContent = `In force since ${date(report.at)}.`;
      await refresh();
    } catch (error) {
      said.textContent = error.message;
    }
  });
  return {
    elements: [head("Config", "As it is in force; secrets are masked.", again), said, text],
    refresh,
  };
}
