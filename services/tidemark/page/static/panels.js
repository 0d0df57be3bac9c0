// The smaller parts of the page: key figures, warnings, cache tiers, file groups, dead letters, table services,
// services.

import { byId, draw, el, say, svg } from "/dom.js";
import { ago, bytes, compact, count, dayAndTime, median, NONE, percent, plural, rate, shortened, took } from "/format.js";
import { total } from "/epochs.js";

const LETTERS_FIRST = 5;
const TIER_NAMES = {
  uncommitted: ["Uncommitted", "tagged, not in the table yet"],
  hot: ["Hot", "used lately, in memory"],
  rocksdb: ["RocksDB", "on local disk"],
  run: ["Run files", "copies of the record index on local disk"],
  mdt: ["Record index", "blocks of the metadata table"],
  none: ["Nobody", "keys that are not in the table"],
};

// ---------------------------------------------------------------- at a glance

export function drawFigures(holder, overview) {
  const { rates, flow, last_commit: last, epochs, now_ms: now } = overview;
  const committed = epochs.filter((epoch) => epoch.committed_ms !== null && epoch.steps.length);
  const durations = committed.map(total);
  const behind = flow.input_not_committed;
  const per = rates.now.committed;
  const figures = [
    ["Committed", rate(per), `${compact(overview.records.input)} records so far`, rates.series.committed],
    ["Behind", count(behind), behind && per > 0 ? `about ${took((behind / per) * 1000)} at this rate` : behind === 0 ? "all that came is in the table" : "records not in the table yet", null],
    ["Last commit", last.committed_ms ? ago(now - last.committed_ms) : last.epoch ? `epoch ${count(last.epoch)}` : NONE, last.committed_ms ? `epoch ${count(last.epoch)}` : last.epoch ? "before this coordinator" : "none yet", null],
    ["An epoch takes", took(median(durations)), durations.length ? `median of ${durations.length}, plan to commit` : "plan to commit", durations.slice().reverse()],
    ["Dead letters", compact(overview.dead_letters), overview.dead_letters ? "see why, below" : "every record could be taken", null],
  ];
  draw(holder, figures, () => figures.map(([name, value, note, series]) =>
    el("div", { class: "figure", "data-alert": name === "Dead letters" && overview.dead_letters > 0 },
      el("p", { class: "figure-name" }, name),
      el("p", { class: "figure-value" }, value),
      el("p", { class: "figure-note soft" }, note),
      series && series.length > 2 ? sparkline(series) : null)));
}

function sparkline(values) {
  const width = 120;
  const height = 26;
  const top = Math.max(...values, 1e-9);
  const points = values.map((value, at) =>
    `${((at / (values.length - 1)) * width).toFixed(1)},${(height - 2 - (value / top) * (height - 4)).toFixed(1)}`);
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("polygon", { points: `0,${height} ${points.join(" ")} ${width},${height}`, class: "spark-area" }),
    svg("polyline", { points: points.join(" "), class: "spark-line" }));
}

// ---------------------------------------------------------------- warnings

const STATE_LEVEL = { stopped: "stop", halted: "stop", paused: "wait", empty: "calm", starting: "calm" };

export function drawWarnings(holder, overview) {
  const { state, warnings, table } = overview;
  const notes = warnings.map((each) => [each.level, each.text, each.todo]);
  if (state.name === "paused") notes.unshift(["wait", `Paused: ${state.text}`, `Nothing is lost. \`tidemark resume -c ${table.config}\` goes on.`]);
  if (state.name === "starting") notes.unshift(["calm", "Starting", "The coordinator is taking the table over."]);
  if (state.name === "empty" && !notes.length) notes.unshift(["calm", "An empty table, and all is ready", `Produce records to ${table.topics.join(" or ")}: they are committed a moment later.`]);
  if (STATE_LEVEL[state.name] === "stop" && !notes.some(([level]) => level === "stop")) notes.unshift(["stop", state.text, ""]);
  holder.hidden = notes.length === 0;
  const words = { stop: "Act", wait: "Wait", look: "Look", calm: "Note" };
  draw(holder, notes, () => notes.map(([level, text, todo]) =>
    el("div", { class: "warning", "data-level": level },
      el("p", { class: "warning-word" }, words[level]),
      el("div", {}, el("p", { class: "warning-text" }, ...withCode(text)), todo ? el("p", { class: "warning-todo soft" }, ...withCode(todo)) : null))));
}

// `commands` in backquotes become code.
function withCode(text) {
  return text.split("`").map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

// ---------------------------------------------------------------- cache tiers

export function drawTiers(holder, { tiers }) {
  const asked = tiers.reduce((sum, tier) => sum + (tier.answered ?? 0), 0);
  say(byId("tiers-say"), asked ? `${compact(asked)} keys asked for` : "no key was asked for yet");
  draw(holder, tiers, () => [
    asked ? el("div", { class: "shares", role: "img", "aria-label": tiers.map((tier) => `${TIER_NAMES[tier.tier][0]} answered ${percent(tier.share)}`).join(", ") }, ...tiers.filter((tier) => tier.share > 0).map((tier) => {
      const part = el("span", { class: "share", "data-tier": tier.tier, title: `${TIER_NAMES[tier.tier][0]}: ${percent(tier.share)}` });
      part.style.flexGrow = String(tier.share);
      return part;
    })) : null,
    el("ul", { class: "tiers" }, ...tiers.map(tierRow)),
  ].filter(Boolean));
}

function tierRow(tier) {
  const [name, note] = TIER_NAMES[tier.tier];
  const held = [];
  if (tier.entries !== null && tier.entries !== undefined) held.push(`${compact(tier.entries)}${tier.entries_max ? ` of ${compact(tier.entries_max)}` : ""} entries`);
  if (tier.bytes !== null && tier.bytes !== undefined) held.push(`${bytes(tier.bytes)}${tier.bytes_max ? ` of ${bytes(tier.bytes_max)}` : ""}`);
  if (tier.mapped_max) held.push(`${bytes(tier.mapped ?? 0)} of ${bytes(tier.mapped_max)} mapped`);
  if (tier.loading_of) held.push(`loading ${compact(tier.loading)} of ${compact(tier.loading_of)} entries`);
  if (tier.lacking) held.push(`${compact(tier.lacking)} entries in no run file`);
  if (tier.damaged) held.push(`${plural(tier.damaged, "damaged file")} set aside`);
  const used = tier.bytes_max ? (tier.bytes ?? 0) / tier.bytes_max : tier.entries_max ? (tier.entries ?? 0) / tier.entries_max : null;
  return el("li", { class: "tier" },
    el("p", { class: "tier-name" }, el("span", { class: "swatch", "data-tier": tier.tier, "aria-hidden": "true" }), name, " ", el("span", { class: "soft small" }, note)),
    el("p", { class: "tier-share" }, percent(tier.share)),
    used === null ? null : meter(used, `${name}: ${percent(used)} of its limit is used`),
    held.length ? el("p", { class: "tier-held soft small" }, held.join(" · ")) : null);
}

function meter(used, label) {
  const inside = el("span", { class: "meter-inside", "data-full": used > 0.9 });
  inside.style.width = `${Math.min(Math.max(used * 100, used > 0 ? 0.6 : 0), 100)}%`;
  return el("span", { class: "meter", role: "img", "aria-label": label }, inside);
}

// ---------------------------------------------------------------- file groups

export function drawGroups(holder, groups) {
  const say_ = groups.file_groups ? `${plural(groups.file_groups, "file group")} in ${plural(groups.partitions, "partition")}, ${bytes(groups.bytes)}` : "none yet";
  say(byId("groups-say"), say_);
  draw(holder, groups, () => groups.file_groups ? [
    histogram(groups),
    el("h3", { class: "minor" }, `Largest partitions${groups.partitions > groups.largest_partitions.length ? ` (${groups.largest_partitions.length} of ${count(groups.partitions)})` : ""}`),
    bars(groups.largest_partitions.slice(0, 6).map((each) => [each.partition_path || "(not partitioned)", each.bytes, `${bytes(each.bytes)} · ${plural(each.file_groups, "group")}`])),
    el("details", { class: "quiet" }, el("summary", {}, "Largest file groups"),
      bars(groups.largest.map((each) => [`${each.partition_path} ${each.file_id}`.trim(), each.bytes, bytes(each.bytes)]))),
  ] : el("p", { class: "nothing" }, "The table has no files yet."));
}

function histogram({ histogram: bins, target_bytes: target }) {
  const last = bins.findLastIndex((bin) => bin.file_groups > 0);
  const first = Math.max(Math.min(bins.findIndex((bin) => bin.file_groups > 0), last - 3), 0);
  const shown = bins.slice(first, Math.max(last + 1, first + 4));
  const most = Math.max(...shown.map((bin) => bin.file_groups), 1);
  const name = (bin) => (bin.to === null ? `≥ ${bytes(bin.from)}` : `< ${bytes(bin.to)}`);
  return el("div", { class: "histogram", role: "img", "aria-label": `File groups by size: ${shown.map((bin) => `${name(bin)} ${bin.file_groups}`).join(", ")}. New ones grow to ${bytes(target)}.` },
    ...shown.map((bin) => {
      const column = el("span", { class: "bin-bar" });
      column.style.height = `${Math.max((bin.file_groups / most) * 72, bin.file_groups ? 3 : 1)}px`;
      return el("div", { class: "bin" }, el("span", { class: "bin-count" }, bin.file_groups ? compact(bin.file_groups) : ""), column, el("span", { class: "bin-name soft" }, name(bin)));
    }));
}

function bars(rows) {
  const most = Math.max(...rows.map(([, size]) => size), 1);
  return el("ul", { class: "bars" }, ...rows.map(([name, size, note]) => {
    const inside = el("span", { class: "bar-inside", "aria-hidden": "true" });
    inside.style.width = `${(size / most) * 100}%`;
    return el("li", {}, el("span", { class: "bar-name" }, name), el("span", { class: "bar-note soft" }, note), inside);
  }));
}

// ---------------------------------------------------------------- dead letters

export function drawLetters(holder, letters, all) {
  const counted = letters.by_reason.reduce((sum, [, n]) => sum + n, 0);
  say(byId("letters-say"), !counted ? "none" : counted < all ? `the newest ${count(counted)} of ${count(all)}` : `${count(counted)} in all`);
  draw(holder, letters, () => counted ? [
    el("ul", { class: "reasons" }, ...letters.by_reason.map(([reason, n]) => el("li", {}, el("b", {}, compact(n)), " ", reason))),
    el("ul", { class: "letters" }, ...letters.newest.slice(0, LETTERS_FIRST).map(letterRow)),
    letters.newest.length > LETTERS_FIRST ? el("details", { class: "quiet" },
      el("summary", {}, `${letters.newest.length - LETTERS_FIRST} older ones`),
      el("ul", { class: "letters" }, ...letters.newest.slice(LETTERS_FIRST).map(letterRow))) : null,
    el("p", { class: "soft small" }, el("code", {}, "tidemark dead-letter list"), ", ", el("code", {}, "show ID"), " and ", el("code", {}, "replay"), " see and repair them."),
  ].filter(Boolean) : el("p", { class: "nothing" }, "Every record could be taken."));
}

function letterRow(letter) {
  const place = `${letter.topic} [${letter.partition}] at ${count(letter.offset)}${letter.timestamp_ms > 0 ? `, ${dayAndTime(letter.timestamp_ms)}` : ""}`;
  return el("li", { class: "letter" },
    el("p", {}, el("span", { class: "reason" }, letter.reason), " ", letter.detail),
    el("p", { class: "soft small" }, `#${letter.id} · ${place}`),
    letter.value ? el("code", { class: "preview" }, shortened(letter.value, 220)) : null);
}

// ---------------------------------------------------------------- table services

const KIND_NAMES = {
  "compact-index": "Compact the index", "compact-data": "Compact the data", "clean-data": "Clean the data",
  "clean-index": "Clean the index", archive: "Archive", rollback: "Roll back dead writes",
};

export function drawUpkeep(holder, { table_services: upkeep, now_ms: now }) {
  const files = upkeep.timeline_files === null ? "" : `, ${plural(upkeep.timeline_files, "file")} on the timeline`;
  say(byId("upkeep-say"), `${upkeep.enabled ? (upkeep.paused ? `paused: ${upkeep.reason}` : "beside the epochs") : "not here"}${files}`);
  draw(holder, [upkeep, Math.floor(now / 5000)], () => [
    upkeep.kinds.length ? el("ul", { class: "services" }, ...upkeep.kinds.map((each) => upkeepRow(each, upkeep.paused, now))) : null,
    upkeep.enabled ? null : el("p", { class: "nothing" }, `Tidemark runs none of this table: compaction, cleaning and archival are ${upkeep.run_by || "another engine"}'s.`),
  ].filter(Boolean));
}

function upkeepRow(each, paused, now) {
  const { open, last } = each;
  const stands = open ? `${open.step} for ${took(now - open.planned_ms)}` : each.failed ? "failing" : each.due ? "due" : paused ? "paused" : "idle";
  const done = open && open.groups ? `${count(open.groups_done)} of ${plural(open.groups, "file group")}, ${bytes(open.bytes)}` : "";
  const before = last ? `last ${last.outcome === "done" ? "done" : last.outcome.replace("_", " ")} ${ago(now - last.ended_ms)} in ${took(last.ended_ms - last.planned_ms)}${last.bytes ? `, ${bytes(last.bytes)}` : ""}` : "never done yet";
  const why = each.failed ? `failed ${plural(each.failed_in_a_row, "time")}: ${each.failed}` : open ? "" : each.due || each.not_due || each.last_reason;
  return el("li", { "data-failing": Boolean(each.failed) },
    el("b", {}, KIND_NAMES[each.kind] ?? each.kind), " ", stands,
    ...[done, before, why, ...each.held_back.map((text) => `held back: ${text}`)].filter(Boolean).map((text) => el("span", { class: "soft small service-process" }, text)));
}

// ---------------------------------------------------------------- services

export function drawServices(holder, { services, verification, state, table }) {
  say(byId("services-say"), table.path);
  const names = { shuffle: "Shuffle", assign: "Assign", write: "Write" };
  draw(holder, [services, verification, state.name], () => [
    services.length ? el("ul", { class: "services" }, ...services.map((each) => el("li", {},
      el("b", {}, names[each.stage] ?? each.stage), " ",
      each.slot === null ? "Spark driver" : `slot ${each.slot}, ${plural(each.lanes, "lane")}`,
      el("span", { class: "soft small service-process" }, [each.process, each.address].filter(Boolean).join(" · "))))) : el("p", { class: "nothing" }, "No service has joined yet."),
    verification ? el("p", { class: "soft small" }, verified(verification)) : null,
  ].filter(Boolean));
}

function verified(verification) {
  if (verification.agrees === null || verification.agrees === undefined) return `Verified every ${plural(verification.every_commits, "commit")}${verification.running ? "; the first run is under way" : "; not run yet"}.`;
  return verification.agrees
    ? `Verified up to epoch ${count(verification.verified_epoch)}: rows, record index and files agree.`
    : "The last verification found differences: see the warnings.";
}
