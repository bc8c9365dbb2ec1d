// How much is answered from the cache, how fast, and what that saves.

import { ask } from "/dashboard/page/api.js";
import { frame, logarithmic, stacked } from "/dashboard/page/chart.js";
import { el, head, select, tile } from "/dashboard/page/dom.js";
import {
  OUTCOMES, allOf, answeredOf, bytes, count, hitRate, hitsOf, milliseconds, minute, money, percent, seconds,
} from "/dashboard/page/format.js";

const SPANS = [["60", "last hour"], ["360", "last 6 hours"], ["1440", "last day"]];
const TIERS = OUTCOMES.filter(([name]) => !["miss", "bypass"].includes(name));
const REST = ["track", "sent to an upstream"];
const LINES = [
  ["line-cached", "from the cache, median", "cached_p50_ms"],
  ["line-cached slow", "from the cache, 95th percentile", "cached_p95_ms"],
  ["line-forwarded", "from upstreams, median", "forwarded_p50_ms"],
  ["line-forwarded slow", "from upstreams, 95th percentile", "forwarded_p95_ms"],
];

export function overview(again) {
  const span = select(SPANS, "60");
  const tiles = {
    rate: tile("overview", "Hit rate"), requests: tile("overview", "Requests"), money: tile("overview", "Money saved"),
    time: tile("overview", "Time saved"), tokens: tile("overview", "Tokens saved"), stored: tile("overview", "Stored answers"),
  };
  const rate = frame({
    title: "Hit rate by tier", unit: "share of answers", legend: [...TIERS, REST],
    columns: ["From", "Answers", ...TIERS.map(([, text]) => text), "Hit rate"],
  });
  const latency = frame({
    title: "Latency", unit: "until the first byte; each line ten times the one below",
    legend: LINES.map(([name, text]) => [name, text]),
    columns: ["From", ...LINES.map(([, text]) => text)],
  });
  const outcomes = el("dl", { class: "outcomes" });

  async function refresh() {
    const minutes = Number(span.value);
    const [history, stats] = await Promise.all([
      ask(`/dashboard/history?minutes=${minutes}&num_bins=60`), ask("/cache/stats"),
    ]);
    showTiles(tiles, history, stats, SPANS.find(([key]) => key === span.value)[1]);
    const bins = history.bins;
    const until = bins.length ? bins.at(-1).until : history.now;
    showRate(rate, bins, until - 60 * minutes, until);
    showLatency(latency, bins, until - 60 * minutes, until);
    outcomes.replaceChildren(...OUTCOMES.flatMap(([name, text]) => [
      el("dt", {}, text), el("dd", { "data-outcome": name }, count(stats.requests[name] ?? 0)),
    ]));
  }
  span.addEventListener("change", again);
  span.setAttribute("aria-label", "Time shown");
  return {
    elements: [
      head("Overview", null, span),
      el("dl", { class: "tiles" }, ...Object.values(tiles).map((one) => one.element)),
      el("div", { class: "pair" }, rate.element, latency.element),
      el("section", { class: "card" }, el("h2", {}, "All requests since the start"), outcomes),
    ],
    refresh,
    everyS: 5,
  };
}

function showTiles(tiles, history, stats, span) {
  const requests = {};
  const saved = { tokens: 0, money: {}, seconds: 0 };
  for (const bin of history.bins) {
    for (const [name, number] of Object.entries(bin.requests)) requests[name] = (requests[name] ?? 0) + number;
    saved.tokens += bin.tokens_saved;
    for (const [unit, amount] of Object.entries(bin.money_saved)) saved.money[unit] = (saved.money[unit] ?? 0) + amount;
    saved.seconds += bin.seconds_saved;
  }
  tiles.rate.set(percent(hitRate(requests)), `${count(hitsOf(requests))} hits, ${span}`);
  tiles.requests.set(count(allOf(requests)), `${count(stats.in_flight)} under way now`);
  tiles.tokens.set(count(saved.tokens), span);
  tiles.time.set(seconds(saved.seconds), "waiting that clients were spared");
  const sums = Object.entries(saved.money).map(([unit, amount]) => `${money(amount)} ${unit}`);
  tiles.money.set(sums.join(", ") || "–", sums.length ? span : "needs prices in the config");
  const store = stats.store;
  tiles.stored.set(count(store.entries), `${bytes(store.memory_bytes)} in memory${store.disk_bytes ? `, ${bytes(store.disk_bytes)} on disk` : ""}`);
}

function showRate(chart, bins, since, until) {
  const counted = bins.filter((bin) => answeredOf(bin.requests) > 0);
  const bars = counted.map((bin) => {
    const all = answeredOf(bin.requests);
    const parts = TIERS.map(([name]) => [name, (bin.requests[name] ?? 0) / all]);
    return {
      since: bin.since, until: bin.until,
      title: `${minute(bin.since)}: ${percent(hitRate(bin.requests))} hits of ${count(all)} answers`,
      parts: [...parts, [REST[0], parts.reduce((left, [, share]) => left - share, 1)]],
    };
  });
  chart.show(stacked(bars, since, until), counted.map((bin) => [
    minute(bin.since), count(answeredOf(bin.requests)),
    ...TIERS.map(([name]) => count(bin.requests[name] ?? 0)), percent(hitRate(bin.requests)),
  ]));
}

function showLatency(chart, bins, since, until) {
  const middle = (bin) => (bin.since + bin.until) / 2;
  const lines = LINES.map(([name, , key]) => [name, bins.map((bin) => [middle(bin), bin[key]])]);
  const measured = bins.filter((bin) => LINES.some(([, , key]) => bin[key] !== null));
  chart.show(logarithmic(lines, since, until), measured.map((bin) => [
    minute(bin.since), ...LINES.map(([, , key]) => milliseconds(bin[key])),
  ]));
}
