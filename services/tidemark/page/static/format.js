// Numbers, sizes and times as people read them.

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });

export const NONE = "–";

export const count = (n) => (n === null || n === undefined ? NONE : whole.format(n));

export const compact = (n) =>
  n === null || n === undefined ? NONE : Math.abs(n) < 10000 ? whole.format(n) : short.format(n);

export const rate = (n) =>
  n === null || n === undefined ? NONE : `${n > 0 && n < 10 ? n.toFixed(1) : compact(n)}/s`;

export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

export function bytes(n) {
  if (n === null || n === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 || n >= 100 ? whole.format(n) : n.toFixed(1).replace(/\.0$/, "")} ${units[unit]}`;
}

// A number for an axis, with no more digits than needed.
export const tick = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${Number((ms / 1000).toFixed(2))} s`);

export function took(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

export function ago(ms) {
  const seconds = Math.max(Math.round(ms / 1000), 0);
  if (seconds < 1) return "just now";
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

export const time = (ms) => (ms > 0 ? clock.format(new Date(ms)) : NONE);

export function dayAndTime(ms) {
  return ms > 0 ? `${day.format(new Date(ms))}, ${clock.format(new Date(ms))}` : NONE;
}

// The time of a Hudi instant such as 20261122031042123, which is in UTC.
export function instantMs(instant) {
  const parts = /^(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d{3})?$/.exec(instant ?? "");
  if (parts === null) return null;
  const [year, month, date, hours, minutes, seconds, ms] = parts.slice(1).map((part) => Number(part ?? 0));
  return Date.UTC(year, month - 1, date, hours, minutes, seconds, ms);
}

export const percent = (share) =>
  share === null || share === undefined ? NONE : `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

export const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
};

export const shortened = (text, length) => (text.length <= length ? text : `${text.slice(0, length - 1)}…`);
