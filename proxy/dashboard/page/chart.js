// Small charts: bars of shares and lines of times, with axes, units and a table of the same numbers.

import { el, svg } from "/dashboard/page/dom.js";
import { minute } from "/dashboard/page/format.js";

// Drawn about as large as it is shown, so that the text is as large as elsewhere.
const IS_NARROW = innerWidth < 736;
const WIDTH = IS_NARROW ? 300 : 500;
const HEIGHT = 180;
const EDGE = { left: 52, right: 8, top: 10, bottom: 24 };
const INNER = { width: WIDTH - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
const NUM_TIMES = IS_NARROW ? 3 : 5;

export function frame({ title, unit, legend, columns }) {
  const canvas = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, ${unit}`,
  });
  const rows = el("tbody");
  const figures = el("details", {}, el("summary", {}, "As numbers"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title} as numbers` },
      el("table", { class: "plain" }, el("caption", {}, `${title}, ${unit}`),
        el("thead", {}, el("tr", {}, ...columns.map((name, n) => el("th", {
          scope: "col", class: n ? "number" : "text",
        }, name)))), rows)));
  const nothing = el("p", { class: "empty overlay" }, "No requests in this time.");
  const element = el("section", { class: "card chart" },
    el("div", { class: "charthead" }, el("h2", {}, title), el("p", { class: "unit" }, unit)),
    el("div", { class: "canvas" }, canvas, nothing),
    el("ul", { class: "legend" }, ...legend.map(([name, text]) => el("li", {}, swatch(name), text))),
    figures);
  return {
    element,
    show(parts, lines) {
      nothing.hidden = lines.length > 0;
      canvas.replaceChildren(...parts);
      rows.replaceChildren(...lines.map((cells) => el("tr", {}, ...cells.map((cell, n) => el("td", {
        class: n ? "number" : "text",
      }, cell)))));
    },
  };
}

function swatch(name) {
  return svg("svg", { class: "swatch", viewBox: "0 0 16 10", "aria-hidden": "true" },
    name.startsWith("line-")
      ? svg("line", { class: name, x1: 0, x2: 16, y1: 5, y2: 5 })
      : svg("rect", { class: name, width: 16, height: 10, rx: 2 }));
}

export const x = (at, since, until) => EDGE.left + ((at - since) / (until - since)) * INNER.width;
const y = (share) => EDGE.top + (1 - share) * INNER.height;

// `marks`: [share of the height, label].
function axes(marks, since, until) {
  const across = marks.flatMap(([share, label]) => [
    svg("line", { class: "rule", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: y(share), y2: y(share) }),
    svg("text", { class: "tick", x: EDGE.left - 8, y: y(share) + 4, "text-anchor": "end" }, label),
  ]);
  const along = Array.from({ length: NUM_TIMES }, (_, n) => {
    const at = since + (n / (NUM_TIMES - 1)) * (until - since);
    const anchor = n === 0 ? "start" : n === NUM_TIMES - 1 ? "end" : "middle";
    return svg("text", { class: "tick", x: x(at, since, until), y: HEIGHT - 6, "text-anchor": anchor }, minute(at));
  });
  return [...across, ...along];
}

// `bars`: {since, until, title, parts: [[class, share]]}; shares of 1, stacked.
export function stacked(bars, since, until) {
  const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => [share, `${100 * share} %`]);
  const drawn = bars.map((bar) => {
    const left = x(bar.since, since, until);
    const width = Math.max(1, x(bar.until, since, until) - left - 1.5);
    let below = 0;
    const parts = bar.parts.filter(([, share]) => share > 0).map(([name, share]) => {
      below += share;
      return svg("rect", { class: name, x: left, width, y: y(below), height: Math.max(0.5, share * INNER.height - 0.5) });
    });
    return svg("g", {}, svg("title", {}, bar.title), ...parts);
  });
  return [...axes(marks, since, until), ...drawn];
}

// `lines`: [class, [[at, milliseconds or null]]], on a scale of powers of ten.
export function logarithmic(lines, since, until) {
  const values = lines.flatMap(([, points]) => points.map(([, value]) => value)).filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(1, ...values)));
  const high = Math.max(low + 2, Math.ceil(Math.log10(Math.max(...values, 1))));
  const share = (value) => Math.min(1, Math.max(0, (Math.log10(value) - low) / (high - low)));
  const marks = Array.from({ length: high - low + 1 }, (_, n) => [n / (high - low), named(low + n)]);
  const drawn = lines.flatMap(([name, points]) => runs(points).map((run) => {
    const path = run.map(([at, value]) => `${x(at, since, until).toFixed(1)},${y(share(value)).toFixed(1)}`);
    if (path.length > 1) return svg("polyline", { class: name, points: path.join(" ") });
    const [cx, cy] = path[0].split(",");
    return svg("circle", { class: `${name} dot`, cx, cy, r: 2.5 });
  }));
  return [...axes(marks, since, until), ...drawn];
}

function named(exponent) {
  const value = 10 ** exponent;
  return value >= 1000 ? `${value / 1000} s` : `${value} ms`;
}

// A line breaks where nothing was measured.
function runs(points) {
  const found = [[]];
  for (const point of points) {
    if (point[1] > 0) found.at(-1).push(point);
    else if (found.at(-1).length) found.push([]);
  }
  return found.filter((run) => run.length);
}

// One bar in parts: [class, amount].
export function strip(parts, label) {
  const sum = parts.reduce((total, [, amount]) => total + amount, 0) || 1;
  let left = 0;
  return svg("svg", { class: "strip", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("rect", { class: "track", width: 100, height: 6 }),
    ...parts.map(([name, amount]) => {
      const width = (100 * amount) / sum;
      const part = svg("rect", { class: name, x: left, width, height: 6 });
      left += width;
      return part;
    }));
}
