// Asks the coordinator once a second while the page is visible, and draws what it answers.

import { byId, el, say } from "/dom.js";
import { drawLegend, Epochs } from "/epochs.js";
import { Flow } from "/flow.js";
import { plural, rate, time } from "/format.js";
import { drawFigures, drawGroups, drawLetters, drawServices, drawTiers, drawUpkeep, drawWarnings } from "/panels.js";
import { Story } from "/story.js";

const EVERY_MS = 1000;
const SLOW_EVERY_MS = 5000;
const TIMEOUT_MS = 8000;
const LOST_AFTER_MS = 3500;
const STATES = {
  connecting: "connecting", starting: "starting", running: "running", empty: "empty", paused: "paused",
  attention: "needs a look", halted: "halted", stopped: "stopped", lost: "not connected",
};

const flow = new Flow(byId("flow"));
const epochs = new Epochs(byId("epoch-chart"), byId("epochs"));
const story = new Story();
const seen = { overview: null, answeredMs: null, sinceMs: Date.now(), letters: null };

async function document_(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
  const content = await answer.json();
  if (!answer.ok) throw new Refusal(content.error);
  return content;
}

class Refusal extends Error {}

function showState(name, text) {
  const pill = byId("state").parentElement;
  pill.dataset.state = name;
  pill.title = text;
  say(byId("state"), STATES[name] ?? name);
}

function showLost(why) {
  const since = seen.answeredMs ?? seen.sinceMs;
  if (Date.now() - since < LOST_AFTER_MS) return;
  document.body.dataset.lost = "true";
  showState("lost", "");
  const text = seen.answeredMs
    ? `Not connected since ${time(since)}. What stands here is from then; it is tried again every second.`
    : `Not connected. Is the coordinator running? It is tried again every second.`;
  const banner = byId("banner");
  banner.hidden = false;
  if (banner.firstChild?.textContent !== text) banner.replaceChildren(el("span", {}, text));
  if (why) banner.title = why;
}

function showConnected() {
  seen.answeredMs = Date.now();
  delete document.body.dataset.lost;
  byId("banner").hidden = true;
}

function show(overview) {
  seen.overview = overview;
  const { state, table, rates, flow: places } = overview;
  document.title = `${table.name} · Tidemark`;
  say(byId("table-name"), `${table.name} · ${table.type.replaceAll("_", " ")}`);
  byId("table-name").title = table.path;
  showState(state.name, state.text);
  drawWarnings(byId("warnings"), overview);
  drawFigures(byId("figures"), overview);
  flow.show(overview);
  say(byId("flow-say"), rates.now.committed > 0
    ? `${rate(rates.now.committed).replace("/s", " records a second")} reach the table`
    : places.input_not_committed ? `${plural(places.input_not_committed, "record")} on the way` : "nothing is on the way");
  epochs.show(overview);
  story.hint(table);
  drawTiers(byId("tiers"), overview);
  drawUpkeep(byId("upkeep"), overview);
  drawServices(byId("services"), overview);
  if (seen.letters) drawLetters(byId("letters"), seen.letters, overview.dead_letters);
  say(byId("updated"), `As of ${time(overview.now_ms)}`);
}

async function slow() {
  const [groups, letters] = await Promise.allSettled([document_("/api/file-groups"), document_("/api/dead-letters")]);
  if (groups.status === "fulfilled") drawGroups(byId("groups"), groups.value);
  if (letters.status === "fulfilled") {
    seen.letters = letters.value;
    drawLetters(byId("letters"), letters.value, seen.overview?.dead_letters ?? 0);
  } else {
    say(byId("letters-say"), "cannot be read just now");
  }
}

async function follow() {
  let slowDue = 0;
  for (;;) {
    if (document.hidden) await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    try {
      const overview = await document_("/api/overview");
      showConnected();
      show(overview);
      if (Date.now() >= slowDue) {
        slowDue = Date.now() + SLOW_EVERY_MS;
        slow();
      }
    } catch (error) {
      if (error instanceof Refusal) {
        showConnected();
        showState("attention", error.message);
        const banner = byId("banner");
        banner.replaceChildren(el("span", {}, `The coordinator answers, but cannot say how things are: ${error.message}`));
        banner.hidden = false;
      } else {
        showLost(String(error));
      }
    }
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

drawLegend(byId("legend"));
follow();
