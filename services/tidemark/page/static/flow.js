// The flow as a picture: five places, and between them the records that wait. It is drawn for the width of the
// window; later only its texts change, so that the movement in the pipes is not interrupted.

import { say, svg } from "/dom.js";
import { bytes, compact, count, plural, rate, shortened, took } from "/format.js";

const NODE_HEIGHT = 92;
const NARROW = 700;

export class Flow {
  constructor(holder) {
    this.holder = holder;
    this.shape = "";
    this.shown = null;
    new ResizeObserver(() => this.shown && this.show(this.shown)).observe(holder);
  }

  show(overview) {
    this.shown = overview;
    const width = Math.floor(this.holder.clientWidth);
    const places = placesOf(overview);
    const shape = `${width} ${places.map((place) => place.id)}`;
    if (width === 0) return;
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(width, places);
    }
    this.fill(places);
    this.picture.setAttribute("aria-label", sentence(overview));
  }

  build(width, places) {
    this.nodes = [];
    this.pipes = [];
    const narrow = width < NARROW;
    const gap = narrow ? 62 : Math.max(78, Math.min(118, width * 0.09));
    const nodeWidth = narrow ? width - 2 : (width - 2 - gap * (places.length - 1)) / places.length;
    const height = narrow ? places.length * 74 + (places.length - 1) * 46 + 2 : NODE_HEIGHT + 2;
    this.picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
    places.forEach((place, at) => {
      const x = narrow ? 1 : 1 + at * (nodeWidth + gap);
      const y = narrow ? 1 + at * 120 : 1;
      if (at > 0) this.pipes.push(narrow ? this.pipeDown(width, y) : this.pipeAcross(x, gap));
      this.nodes.push(this.node(x, y, nodeWidth, narrow ? 74 : NODE_HEIGHT, narrow));
    });
    this.holder.replaceChildren(this.picture);
  }

  node(x, y, width, height, narrow) {
    const box = svg("rect", { x, y, width, height, rx: 12, class: "place" });
    const left = x + 16;
    const title = svg("text", { x: left, y: y + 26, class: "place-title" });
    const value = narrow
      ? svg("text", { x: x + width - 16, y: y + 43, class: "place-value", "text-anchor": "end" })
      : svg("text", { x: left, y: y + 54, class: "place-value" });
    const note = svg("text", { x: left, y: y + (narrow ? 52 : 76), class: "place-note" });
    const group = svg("g", { class: "place-group" }, box, title, value, note);
    this.picture.append(group);
    return { group, title, value, note, width };
  }

  pipeAcross(x, gap) {
    const y = 1 + NODE_HEIGHT / 2;
    const from = x - gap + 6;
    return this.pipe(`M${from} ${y}H${x - 6}`, (from + x - 6) / 2, y - 14, y + 24, "middle");
  }

  pipeDown(width, y) {
    const middle = y - 23;
    return this.pipe(`M32 ${y - 42}V${y - 4}`, 52, middle + 1, middle + 1, "start");
  }

  pipe(path, x, above, below, anchor) {
    const bed = svg("path", { d: path, class: "pipe" });
    const water = svg("path", { d: path, class: "water" });
    const waiting = svg("text", { x, y: above, class: "waiting", "text-anchor": anchor });
    const unit = svg("text", { x, y: below, class: "waiting-unit", "text-anchor": anchor });
    this.picture.append(bed, water, waiting, unit);
    return { water, waiting, unit, beside: above === below };
  }

  fill(places) {
    places.forEach((place, at) => {
      const { group, title, value, note, width } = this.nodes[at];
      const room = Math.floor((width - 30) / 6.8);
      say(title, place.title);
      say(value, place.value);
      say(note, shortened(place.note, Math.max(room, 8)));
      group.setAttribute("data-active", String(place.active));
      if (at === 0) return;
      const pipe = this.pipes[at - 1];
      const text = place.waiting === null || place.waiting === undefined ? "" : compact(place.waiting);
      say(pipe.waiting, pipe.beside ? (text && `${text} ${place.unit}`) : text);
      say(pipe.unit, pipe.beside || !text ? "" : place.unit);
      pipe.water.setAttribute("data-speed", place.speed);
    });
  }
}

function placesOf({ flow, rates, table, in_flight: flight, last_commit: last, rates: { now } }) {
  const speed = (n) => (!n ? "still" : n < 200 ? "slow" : n < 5000 ? "steady" : "fast");
  const processes = (n) => (n ? plural(n, "process", "processes") : "nobody there yet");
  const input = {
    id: "input", title: "Kafka", value: table.topics.length === 1 ? "input" : plural(table.topics.length, "topic"),
    note: table.topics.join(", "), active: true,
  };
  const shuffle = {
    id: "shuffle", title: "Shuffle", value: rate(now.shuffled), note: processes(flow.shufflers),
    waiting: flow.input_waiting, unit: "waiting", speed: speed(now.shuffled), active: now.shuffled > 0,
  };
  const assign = {
    id: "assign", title: "Assign", value: rate(now.tagged), note: processes(flow.assigners),
    waiting: flow.has_shuffle ? flow.keyed_waiting : flow.input_waiting, unit: "waiting", speed: speed(now.tagged),
    active: now.tagged > 0,
  };
  const write = {
    id: "write", title: "Write",
    value: flight.epoch ? `epoch ${count(flight.epoch)}` : last.epoch ? `epoch ${count(last.epoch)}` : "at rest",
    note: !flow.writer ? "Spark is starting" : flight.epoch ? `for ${took(flight.age_ms)}` : last.epoch ? "done" : "Spark",
    waiting: flow.tagged_waiting, unit: "tagged", speed: speed(now.tagged),
    // Between two epochs nothing is written for a moment. The rate of commits keeps the place active, or it would blink.
    active: Boolean(flight.epoch) || now.committed > 0,
  };
  const hudi = {
    id: "table", title: "Hudi table", value: rate(now.committed),
    note: bytes(flow.bytes ?? 0),
    waiting: last.epoch || null, unit: last.epoch === 1 ? "epoch" : "epochs done", speed: speed(now.committed), active: now.committed > 0,
  };
  return flow.has_shuffle ? [input, shuffle, assign, write, hudi] : [input, assign, write, hudi];
}

function sentence({ flow, rates: { now }, in_flight: flight, last_commit: last }) {
  const parts = [];
  if (flow.has_shuffle) parts.push(`shuffle ${rate(now.shuffled)}, ${count(flow.input_waiting)} records wait before it`);
  parts.push(`assign ${rate(now.tagged)}, ${count(flow.keyed_waiting)} wait before it`);
  parts.push(flight.epoch ? `epoch ${flight.epoch} is being written` : "no epoch is being written");
  parts.push(`table ${rate(now.committed)}, last committed epoch ${count(last.epoch)}`);
  return `From Kafka to the Hudi table: ${parts.join("; ")}.`;
}
