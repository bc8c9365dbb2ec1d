// Numbers, times and names as people read them.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

export const count = (value) => whole.format(value);
export const percent = (share, digits = 1) =>
  share === null || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(digits)} %`;

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1000) return `${short.format(value / 1000)} s`;
  return `${value < 1 ? value.toFixed(2) : short.format(value)} ms`;
}

export function seconds(value) {
  if (value < 120) return `${short.format(value)} s`;
  if (value < 7200) return `${short.format(value / 60)} min`;
  return `${short.format(value / 3600)} h`;
}

export const money = (value) => value.toLocaleString("en", value > 0 && value < 0.01
  ? { maximumSignificantDigits: 3 }
  : { minimumFractionDigits: 2, maximumFractionDigits: value < 1 ? 4 : 2 });

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const hour = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit" });

export const time = (at) => clock.format(at * 1000);
export const minute = (at) => hour.format(at * 1000);
export const date = (at) => day.format(at * 1000);

export function until(at, now) {
  const left = at - now;
  return left <= 0 ? "expired" : `in ${seconds(left)}`;
}

// Tags that every answer carries without anybody having named them (`index.tags`).
export const isImplicit = (tag) => /^(key|model|policy|route|subject|system|tenant):/.test(tag);

// Tenants without a name are digests of their credentials.
export const tenantName = (name) => name.replace(/^(credential:[0-9a-f]{8})[0-9a-f]+$/, "$1…");

export const shorten = (text, length) => (text.length > length ? `${text.slice(0, length)}…` : text);

// What became of a request, in the order in which charts stack it.
export const OUTCOMES = [
  ["exact", "exact hit"], ["semantic", "hit by meaning"], ["stale", "stale hit"],
  ["coalesced", "joined in flight"], ["miss", "miss"], ["bypass", "not cached"],
];
export const HITS = ["exact", "semantic", "stale"];

export const hitsOf = (requests) => HITS.reduce((sum, name) => sum + (requests[name] ?? 0), 0);
export const allOf = (requests) => Object.values(requests).reduce((sum, value) => sum + value, 0);
export const answeredOf = (requests) => OUTCOMES.reduce((sum, [name]) => sum + (requests[name] ?? 0), 0);
// As proxy/observing/hitrate.py defines it.
export const hitRate = (requests) => hitsOf(requests) / answeredOf(requests);
