// Epochs: one column each for the trend, one row each for the last commits, both made of the same steps.

import { draw, el, svg } from "/dom.js";
import { ago, bytes, compact, count, dayAndTime, plural, tick, time, took } from "/format.js";

export const STEPS = {
  plan: "plan", write: "write", decide: "decide", index: "index commit", data: "data commit", clean: "clean up",
};
const ROWS = 10;
const CHART_HEIGHT = 132;
// A column is cut off at this multiple of the 90th percentile, so that Spark's start does not flatten the rest.
const FAR = 3;

export const total = (epoch) => epoch.steps.reduce((sum, [, ms]) => sum + ms, 0);

export function drawLegend(holder) {
  holder.replaceChildren(...Object.entries(STEPS).map(([step, name]) =>
    el("li", {}, el("span", { class: "swatch", "data-step": step, "aria-hidden": "true" }), name)));
}

export class Epochs {
  constructor(chart, list) {
    this.chart = chart;
    this.list = list;
    this.rows = new Map();
    this.shown = null;
    new ResizeObserver(() => this.shown && this.drawChart(this.shown)).observe(chart);
  }

  show(overview) {
    this.shown = overview;
    this.drawChart(overview);
    this.drawRows(overview);
  }

  drawChart({ epochs }) {
    const width = Math.floor(this.chart.clientWidth);
    const timed = epochs.filter((epoch) => epoch.steps.length).slice(0, width < 500 ? 24 : 48).reverse();
    draw(this.chart, [width, timed.map((epoch) => [epoch.epoch, epoch.steps])], () => columns(width, timed));
  }

  drawRows({ epochs, now_ms: now, in_flight: flight }) {
    const shown = epochs.slice(0, ROWS);
    const longest = Math.max(...shown.map(total), 1);
    if (!shown.length) {
      draw(this.list, "none", () => el("p", { class: "nothing" }, "No epoch yet. The first one is planned as soon as records are tagged."));
      this.rows.clear();
      return;
    }
    const kept = new Map();
    for (const epoch of shown) {
      const row = this.rows.get(epoch.epoch) ?? new Row(epoch.epoch);
      row.show(epoch, now, longest, flight);
      kept.set(epoch.epoch, row);
    }
    this.rows = kept;
    const nodes = [...kept.values()].map((row) => row.node);
    const same = nodes.length === this.list.children.length && nodes.every((node, at) => this.list.children[at] === node);
    if (!same) this.list.replaceChildren(...nodes);
    this.list.drawn = undefined;
  }
}

function columns(width, epochs) {
  if (!epochs.length || !width) return [];
  const longest = Math.max(...epochs.map(total), 1);
  const top = niceAbove(reach(epochs, longest));
  const left = 52;
  const plot = CHART_HEIGHT - 22;
  const pitch = Math.min((width - left) / epochs.length, 34);
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${CHART_HEIGHT}`, width, height: CHART_HEIGHT, role: "img",
    "aria-label": `Duration of the last ${epochs.length} epochs, at most ${took(longest)}`,
  });
  for (const share of [0, 0.5, 1]) {
    const y = 6 + plot * (1 - share);
    picture.append(
      svg("line", { x1: left, x2: width, y1: y, y2: y, class: "grid" }),
      svg("text", { x: left - 8, y: y + 4, class: "axis", "text-anchor": "end" }, share ? tick(top * share) : "0"),
    );
  }
  epochs.forEach((epoch, at) => {
    const x = left + at * pitch + pitch * 0.14;
    let y = 6 + plot;
    const group = svg("g", {}, svg("title", {}, `epoch ${epoch.epoch}: ${took(total(epoch))}, ${compact(epoch.counts.input)} records`));
    for (const [step, ms] of epoch.steps) {
      const height = Math.min((ms / top) * plot, y - 6);
      y -= height;
      if (height > 0.2) group.append(svg("rect", { x, y, width: pitch * 0.72, height, class: "step", "data-step": step }));
    }
    if (total(epoch) > top) {
      group.append(svg("path", { d: `M${x - 1} 20l${pitch * 0.72 + 2} -5`, class: "cut" }));
      const right = x + 64 < width && !(total(epochs[at + 1] ?? epoch) > top);
      if (right || at === epochs.length - 1) {
        picture.append(svg("text", { x: right ? x + pitch * 0.72 + 5 : x - 5, y: 17, class: "axis", "text-anchor": right ? "start" : "end" }, took(total(epoch))));
      }
    }
    picture.append(group);
    if (at % Math.ceil(64 / pitch) === 0) {
      picture.append(svg("text", { x: x + pitch * 0.36, y: CHART_HEIGHT - 2, class: "axis", "text-anchor": "middle" }, count(epoch.epoch)));
    }
  });
  return picture;
}

function reach(epochs, longest) {
  const sorted = epochs.map(total).sort((a, b) => a - b);
  const most = Math.max(sorted[Math.floor((sorted.length - 1) * 0.9)], 1);
  return longest > FAR * most ? Math.min(1.25 * most, longest) : longest;
}

function niceAbove(ms) {
  const power = 10 ** Math.floor(Math.log10(ms));
  return [1, 2, 4, 5, 8, 10].map((step) => step * power).find((step) => step >= ms);
}

class Row {
  constructor(epoch) {
    this.name = el("span", { class: "epoch-name" }, `#${count(epoch)}`);
    this.when = el("span", { class: "epoch-when soft" });
    this.records = el("span", { class: "epoch-records" });
    this.bar = el("span", { class: "epoch-bar", "aria-hidden": "true" });
    this.took = el("span", { class: "epoch-took" });
    this.more = el("div", { class: "epoch-more" });
    this.node = el("details", { class: "epoch" },
      el("summary", {}, this.name, this.when, this.records, this.bar, this.took), this.more);
  }

  show(epoch, now, longest, flight) {
    const done = epoch.committed_ms !== null;
    this.node.dataset.done = String(done);
    draw(this.when, done ? ago(now - epoch.committed_ms) : "in flight", () => done ? ago(now - epoch.committed_ms) : "in flight");
    draw(this.records, epoch.counts, () => records(epoch.counts, done));
    const waiting = !done && flight.epoch === epoch.epoch ? took(flight.age_ms) : "";
    draw(this.took, [epoch.steps, waiting], () => el("span", {}, epoch.steps.length && done ? took(total(epoch)) : waiting));
    draw(this.bar, [epoch.steps, longest], () => segments(epoch, longest));
    draw(this.more, epoch, () => details(epoch));
  }
}

function records(counts, done) {
  if (!done && !counts.input) return el("span", { class: "soft" }, "…");
  const parts = [["inserts", "+"], ["updates", "~"], ["deletes", "−"]]
    .filter(([name]) => counts[name])
    .map(([name, sign]) => el("span", { class: name, title: `${count(counts[name])} ${name}` }, `${sign}${compact(counts[name])}`));
  return [el("b", {}, compact(counts.input)), " ", ...parts.flatMap((part) => [part, " "])];
}

function segments(epoch, longest) {
  return epoch.steps.filter(([, ms]) => ms > 0).map(([step, ms]) => {
    const segment = el("span", { class: "segment", "data-step": step, title: `${STEPS[step]}: ${took(ms)}` });
    segment.style.width = `${(ms / longest) * 100}%`;
    return segment;
  });
}

function details(epoch) {
  const pairs = [
    ["instant", epoch.instant ?? "no rows, no commit"],
    ["planned", dayAndTime(epoch.planned_ms)],
    ["committed", epoch.committed_ms ? time(epoch.committed_ms) : "not yet"],
    ["attempts", count(epoch.attempts)],
    ["covers", `${plural(epoch.transactions, "transaction")}, ${bytes(epoch.bytes)}`],
    ["records", `${count(epoch.counts.inserts)} inserts, ${count(epoch.counts.updates)} updates, ${count(epoch.counts.deletes)} deletes, ${count(epoch.counts.superseded)} superseded, ${count(epoch.counts.no_ops)} without effect`],
    ...epoch.steps.map(([step, ms]) => [STEPS[step], took(ms)]),
    ...epoch.voided.map((each) => [`attempt ${each.attempt}`, `given up: ${each.reason}`]),
  ];
  return el("dl", { class: "pairs" }, ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
