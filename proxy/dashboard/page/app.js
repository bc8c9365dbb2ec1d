// Which view is shown, and when it is asked for anew.

import { ask } from "/dashboard/page/api.js";
import { el } from "/dashboard/page/dom.js";
import { audits } from "/dashboard/page/audits.js";
import { config } from "/dashboard/page/config.js";
import { engine } from "/dashboard/page/engine.js";
import { entries } from "/dashboard/page/entries.js";
import { explain } from "/dashboard/page/explain.js";
import { log } from "/dashboard/page/log.js";
import { near } from "/dashboard/page/near.js";
import { overview } from "/dashboard/page/overview.js";
import { purge } from "/dashboard/page/purge.js";
import { requests } from "/dashboard/page/requests.js";
import { upstreams } from "/dashboard/page/upstreams.js";

// A view: (again, [what, …]) => {elements, refresh?, everyS?}. `refresh` may throw what `ask` throws;
// `again()` calls it now. What it is about stands behind its name in the address: #explain/ID.
const VIEWS = [
  ["overview", "Overview", overview], ["requests", "Requests", requests],
  ["explain", "Explain", explain],
  ["entries", "Entries", entries], ["purge", "Tags and purge", purge],
  ["near", "Near misses", near], ["audits", "Audits", audits],
  ["engine", "Engine", engine], ["upstreams", "Upstreams", upstreams],
  ["log", "Audit log", log], ["config", "Config", config],
];
const HEALTH_EVERY_S = 10;

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const menu = document.getElementById("menu");
const trouble = el("p", { class: "problem banner", role: "alert" });
let shown = null;

function show() {
  const [name, ...about] = location.hash.slice(1).split("/");
  if (name === "main") return;
  const [key, title, make] = VIEWS.find(([one]) => one === name) ?? VIEWS[0];
  const isFirst = shown === null;
  clearTimeout(shown?.timer);
  const view = shown = { key, timer: 0, turn: 0 };
  delete main.dataset.asked;
  Object.assign(view, make(() => keepFresh(view), about.map(decodeURIComponent)));
  for (const link of nav.querySelectorAll("a")) {
    if (link.hash === `#${key}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${title} · Rejoinder`;
  trouble.textContent = "";
  main.replaceChildren(trouble, ...view.elements);
  openMenu(false);
  // Whoever has chosen a view goes on there.
  if (!isFirst) { main.querySelector("h1").focus({ preventScroll: true }); scrollTo(0, 0); }
  keepFresh(view);
}

async function keepFresh(view) {
  if (!view.refresh) return;
  clearTimeout(view.timer);
  const turn = view.turn += 1;
  // What nobody looks at costs nothing.
  if (!document.hidden) {
    try {
      await view.refresh();
      if (shown === view) say("");
    } catch (error) {
      if (shown === view) say(error.message);
    }
    // For whoever reads the page by a script: the view has what it asked for.
    if (shown === view) main.dataset.asked = view.key;
  }
  // Where it was asked for again meanwhile, that one goes on.
  if (view.everyS && shown === view && turn === view.turn) view.timer = setTimeout(keepFresh, 1000 * view.everyS, view);
}

function say(text) {
  if (trouble.textContent !== text) trouble.textContent = text;
}

async function watchHealth() {
  const place = document.getElementById("health");
  let [mark, text] = ["down", "not reachable"];
  try {
    const report = await (await fetch("/readyz")).json();
    [mark, text] = report.ready ? ["up", "ready"] : ["wait", report.draining ? "stopping" : "loading"];
  } catch {
    // Not reachable, as it says.
  }
  if (place.textContent !== text) place.replaceChildren(el("span", { class: `mark ${mark}`, "aria-hidden": "true" }), text);
  setTimeout(watchHealth, 1000 * HEALTH_EVERY_S);
}

function openMenu(isOpen) {
  menu.setAttribute("aria-expanded", String(isOpen));
  nav.classList.toggle("open", isOpen);
}

nav.append(el("ul", {}, ...VIEWS.map(([key, title]) => el("li", {}, el("a", { href: `#${key}` }, title)))));
// Also when the view is already there, which is no change of the address.
nav.addEventListener("click", () => openMenu(false));
menu.addEventListener("click", () => openMenu(menu.getAttribute("aria-expanded") !== "true"));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("visibilitychange", () => {
  // What is not asked for by itself stays as its reader has left it.
  if (!document.hidden && (shown.everyS || !main.dataset.asked)) keepFresh(shown);
});
addEventListener("hashchange", show);
show();
watchHealth();
